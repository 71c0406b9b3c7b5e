"""Spawn credit: mean zero under the policy, honest intervals, refusal without coverage, propensities that are used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.credits import doubly_robust as dr
from counterpoint.credits.forks import two_arms
from counterpoint.credits.logged_effects import prefix_features
from counterpoint.credits.mechanisms.spawn import spawn, spawn_points
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Event, Trace
from counterpoint.trace.replay import Delete, Do, Force


def _trace(name: int, kind: int, load: float, is_spawn: bool, logp: float | None, reward: float, **fields: Any) -> Trace:
    decision: Any = "spawn" if is_spawn else "noop"
    event = Event(
        id="d",
        t=1.0,
        type="orchestrator_decision",
        agent="lead",
        decision=decision,
        options=["spawn", "noop"],
        logp=logp,
        **fields,
    )
    first = Event(id="m", t=0.0, type="message", agent="user", tokens_in=kind)
    meta = {"kind": kind, "load": load}
    return Trace(trace_id=f"t{name}", task_id="q", events=[first, event], rewards={"team": reward}, meta=meta)


def _log(rng: np.random.Generator, cases: int, tau: tuple[float, ...], always: int | None = None) -> list[Trace]:
    """One decision per trace; load moves both the chance of spawning and the outcome."""
    out = []
    for n in range(cases):
        kind, load = int(rng.integers(len(tau))), float(rng.random())
        e = 1.0 if kind == always else 0.2 + 0.6 * load
        a = bool(rng.random() < e)
        r = 0.5 * kind + 2 * load**2 + tau[kind] * a + 0.3 * float(rng.standard_normal())
        out.append(_trace(n, kind, load, a, math.log(e if a else 1 - e), r))
    return out


def _features(trace: Trace, event: Event) -> list[float]:
    return [trace.meta["kind"], trace.meta["load"]]


def _kind(trace: Trace, event: Event) -> int:
    return int(trace.meta["kind"])


OPTIONS: dict[str, Any] = {"estimator": "doubly_robust", "features": _features, "leaf": _kind}


@given(st.floats(-1e3, 1e3), st.floats(0, 1))
def test_advantages_have_mean_zero(tau: float, pi: float) -> None:
    mean = pi * two_arms(tau, pi, is_taken=True) + (1 - pi) * two_arms(tau, pi, is_taken=False)
    assert abs(mean) <= 1e-9 * max(1, abs(tau))


def test_psi_by_hand() -> None:
    score = dr.psi(
        np.array([True, False]), np.array([0.5, 0.75]), np.array([3.0, 1.0]), np.array([2.0, 2.0]), np.array([1.0, 0.5])
    )
    assert score.tolist() == [2.0 - 1.0 + 1.0 / 0.5, 2.0 - 0.5 - 0.5 / 0.25]
    with pytest.raises(InputError):
        dr.psi(np.array([True]), np.array([1.2]), np.ones(1), np.ones(1), np.ones(1))


def test_local_average_by_hand() -> None:
    scores, arms = np.array([1.0, 3.0, 5.0, 9.0]), np.array([True, False, True, True])
    found = dr.local(scores, arms, np.arange(4), 2, lambda q: np.array([[1.0, 1, 1, 0], [0, 0, 0, 1.0]])[q])
    assert found.tau_Q.tolist() == [3.0, 9.0]
    assert found.se_Q[0] == pytest.approx(2 / np.sqrt(3))
    assert np.isnan(found.se_Q[1])
    assert found.ess_taken_Q.tolist() == [2.0, 1.0]
    assert found.ess_passed_Q.tolist() == [1.0, 0.0]
    together = dr.local(scores, arms, np.array([0, 0, 1, 1]), 1, lambda q: np.ones((1, 4)))
    assert together.se_Q[0] == pytest.approx(np.sqrt(2 * 2 * (5 / 4 * 2 / 4 * 2) ** 2))  # two traces, means 2 and 7


def test_folds_never_split_a_trace() -> None:
    fold = dr.folds_of(np.array([4, 4, 7, 9, 9, 9]), 2)
    assert fold.tolist() == [0, 0, 1, 0, 0, 0]


def test_own_outcome_is_not_in_its_model() -> None:
    rng = np.random.default_rng(0)
    x, a, r = rng.random((40, 2)), rng.random(40) < 0.5, rng.random(40)
    fold = dr.folds_of(np.arange(40), 4)
    before = dr.outcome_models(x, a, r, fold)
    r2 = r.copy()
    r2[fold == 1] += 100.0
    after = dr.outcome_models(x, a, r2, fold)
    assert np.array_equal(before[0][fold == 1], after[0][fold == 1])
    assert not np.allclose(before[0], after[0])


def test_intervals_cover_nothing_where_nothing_is() -> None:
    hits = []
    for run in range(500):
        rng = np.random.default_rng([5, run])
        kind, load = rng.integers(0, 4, 800), rng.random(800)
        e = 0.2 + 0.6 * load
        a = rng.random(800) < e
        r = 0.5 * kind + 2 * load**2 + 0.3 * rng.standard_normal(800)
        m1, m0 = dr.outcome_models(np.column_stack([kind, load]), a, r, dr.folds_of(np.arange(800), 5))
        weights = dr.same_leaf(np.arange(4), kind)
        found = dr.local(dr.psi(a, e, r, m1, m0), a, np.arange(800), 4, weights.__getitem__)
        hits += (np.abs(found.tau_Q) <= 1.96 * found.se_Q).tolist()
    assert 0.93 <= np.mean(hits) <= 0.97


def test_effects_come_back_from_a_log() -> None:
    tau = (0.8, -0.4)
    traces = _log(np.random.default_rng(1), 1200, tau)
    credit = spawn(traces, value="effect", **OPTIONS)
    for kind in (0, 1):
        mine = [r for r in credit.rows if traces[r.trace].meta["kind"] == kind]
        assert len({r.value for r in mine}) == 1  # a leaf has one effect
        assert abs(mine[0].value - tau[kind]) <= 3 * (mine[0].se or 0) < 0.3
    advantage = spawn(traces, **OPTIONS)
    row, event = advantage.rows[0], traces[0].events[1]
    share = 1 - math.exp(event.logp or 0)
    assert row.value == pytest.approx((share if event.decision == "spawn" else -share) * credit.rows[0].value)
    assert credit.cost == (0, 0)
    assert row.unit == "orchestrator"


def test_kernel_average_follows_a_slope() -> None:
    traces = _log(np.random.default_rng(2), 1500, (0.6, 0.6))
    credit = spawn(traces, estimator="doubly_robust", features=_features, value="effect")
    answered = np.array([r.value for r in credit.rows])
    assert np.mean(np.abs(answered - 0.6) < 0.25) > 0.9
    with pytest.raises(NotIdentified, match="effective sample sizes"):
        spawn(traces, estimator="doubly_robust", features=_features, bandwidth=1e-3)


def test_gate_answers_nothing_without_coverage() -> None:
    traces = _log(np.random.default_rng(3), 900, (0.5, 0.5, -0.5), always=2)
    credit = spawn(traces, **OPTIONS)
    refused = {i for i, _ in credit.unidentified}
    planted = {i for i, t in enumerate(traces) if t.meta["kind"] == 2}
    assert refused == planted
    assert not planted & {r.trace for r in credit.rows}
    assert all("propensity is 1" in why and "forks" in why for why in credit.unidentified.values())


def _forced(trace: Trace) -> Trace:
    """The same, every decision of which a rule forced."""
    return replace(trace, events=[replace(e, policy="forced") for e in trace.events])


def test_gate_refuses_few_cases_and_rules() -> None:
    few = _log(np.random.default_rng(4), 60, (0.5, 0.5, 0.5))
    with pytest.raises(NotIdentified, match="effective sample sizes"):
        spawn(few, **OPTIONS)
    many = _log(np.random.default_rng(4), 600, (0.5, 0.5))
    with pytest.raises(NotIdentified, match="deterministic rule"):
        spawn([_forced(t) for t in many], **OPTIONS)
    half = spawn([_forced(t) if t.meta["kind"] == 0 else t for t in many], **OPTIONS)
    assert {many[r.trace].meta["kind"] for r in half.rows} == {1}


def test_gate_bounds() -> None:
    found = dr.Local(np.zeros(4), np.ones(4), np.array([20.0, 20, 19.9, 99]), np.array([20.0, 20, 99, 99]))
    why = dr.gate(np.array([0.02, 0.985, 0.5, 0.5]), found, np.array([False, False, False, True]))
    assert why[0] is None
    assert "0.985" in str(why[1])
    assert "19.9" in str(why[2])
    assert "rule" in str(why[3])


def test_wrong_propensities_make_it_worse() -> None:
    errors = {1.0: [], 1.2: []}  # type: dict[float, list[float]]
    for run in range(20):
        rng = np.random.default_rng([6, run])
        load = rng.random(1500)
        e = 0.15 + 0.6 * load
        a = rng.random(1500) < e
        r = 3 * np.sin(4 * load) + 0.5 * a + 0.2 * rng.standard_normal(1500)
        m1, m0 = dr.outcome_models(load[:, None] * 0, a, r, dr.folds_of(np.arange(1500), 5))
        for factor, found in errors.items():
            found.append(float(dr.psi(a, np.minimum(0.99, factor * e), r, m1, m0).mean()) - 0.5)
    rmse = {factor: float(np.sqrt(np.mean(np.square(found)))) for factor, found in errors.items()}
    assert rmse[1.2] > 1.5 * rmse[1.0]


def test_no_propensity_no_answer() -> None:
    traces = [_trace(n, 0, 0.0, n % 2 == 0, None, float(n)) for n in range(60)]
    with pytest.raises(NotIdentified, match="no spawn decision has a propensity; log logp"):
        spawn(traces, **OPTIONS)
    some = _log(np.random.default_rng(7), 400, (0.5,))
    credit = spawn([*some, *traces[:1]], **OPTIONS)
    assert "no propensity was logged" in credit.unidentified[400, "d"]
    with pytest.raises(NotIdentified, match="no decision point"):
        spawn(Trace(trace_id="x", task_id="x", events=[some[0].events[0]], rewards={"team": 1.0}))
    with pytest.raises(InputError, match="no estimator"):
        spawn(some, estimator="fork")
    with pytest.raises(InputError, match="no value"):
        spawn(some, value="tau")


class Coin:
    """Forks of `_trace` traces: spawning is worth 0.7 at kind 0 and -0.2 at kind 1; the rest is noise that arms can share."""

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        is_spawn = trace.events[1].decision == "spawn"
        if isinstance(do, Delete):
            is_spawn = False
        elif isinstance(do, Force):
            is_spawn = bool(do.action["spawn"])
        noise = trace.meta["load"] if seed is None else float(np.random.default_rng(seed).standard_normal())
        reward = (0.7, -0.2)[trace.meta["kind"]] * is_spawn + noise
        return _trace(0, trace.meta["kind"], noise, is_spawn, trace.events[1].logp, reward)


def test_forks_give_both_arms_their_share() -> None:
    coin = Coin()
    done = coin.fork(_trace(0, 0, 2.0, True, math.log(0.25), 0.0), "d")
    passed = coin.fork(_trace(0, 0, 2.0, False, math.log(0.75), 0.0), "d")
    credit = spawn([done, passed], replay=coin, k=3)
    assert [r.value for r in credit.rows] == pytest.approx([0.75 * 0.7, -0.25 * 0.7])
    assert [r.se for r in credit.rows] == pytest.approx([0.0, 0.0])
    assert credit.cost.forks == 2 * 5
    fresh = spawn([done, passed], replay=coin, k=400, coupled=False, value="effect")
    assert all(abs(r.value - 0.7) <= 3 * (r.se or 0) < 0.5 for r in fresh.rows)
    with pytest.raises(NotIdentified, match="give a replay: a simulator's world or a live team"):
        spawn([done])
    unlogged = coin.fork(_trace(0, 0, 2.0, True, None, 0.0), "d")
    assert spawn([unlogged], replay=coin, value="effect").of(0) == pytest.approx({"d": 0.7})
    with pytest.raises(NotIdentified, match="no propensity"):
        spawn([unlogged], replay=coin)


def test_forks_where_the_log_is_silent() -> None:
    traces = _log(np.random.default_rng(8), 500, (0.7, -0.2), always=1)
    credit = spawn(traces, estimator="both", replay=Coin(), k=1, value="effect", features=_features, leaf=_kind)
    assert not credit.unidentified
    assert len(credit.rows) == 500
    silent = [i for i, t in enumerate(traces) if t.meta["kind"] == 1]
    # the recorded reward is not the coin's, so an effect is recorded reward minus the forked noop
    assert credit.cost.forks == len(silent)


def test_points_and_features_of_a_simulator_trace() -> None:
    trace = cpt.world("W1", vote_items=8).run("random", [3], log=True).trace(0)
    points = spawn_points([trace])
    assert next(p.is_spawn for p in points)
    assert not any(p.is_spawn for p in points[1:])
    assert len(points) > 3
    assert points[0].propensity == pytest.approx(1 / 32)
    assert points[1].propensity == 0.0
    features = np.array([prefix_features(trace, p.event) for p in points])
    assert (np.diff(features, axis=0) >= 0).all()
    assert features[0, 1] == 0 < features[1, 1]


def test_coupled_and_fresh_forks_agree_in_a_simulator() -> None:
    world = cpt.world("W1", vote_items=8)
    runs = world.run("reference", range(12), log=True)
    traces = [runs.trace(i) for i in range(12)]
    first = lambda credit: np.array([next(r.value for r in credit.rows if r.trace == i) for i in range(12)])  # noqa: E731
    coupled, fresh = (first(spawn(traces, replay=world, k=4, coupled=c, value="effect")) for c in (True, False))
    gap = coupled - fresh
    assert abs(gap.mean()) <= 3 * gap.std(ddof=1) / np.sqrt(12)
