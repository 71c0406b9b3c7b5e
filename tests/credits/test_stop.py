"""Stop credit: hand-computed shares, mean zero, forks that agree with the payoffs, refusals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.credits.mechanisms.stop import all_stops, checkpoints, stop
from counterpoint.errors import InputError, NotIdentified
from counterpoint.guard.stop_paths import payoffs
from counterpoint.trace import Event, Trace


def _trace(
    drafts: list[float], stops: list[bool], chances: Sequence[float | None], *, forced: bool | None, reward: float
) -> Trace:
    events = []
    for t, (draft, is_stop, p) in enumerate(zip(drafts, stops, chances, strict=True)):
        logp = None if p is None else math.log(p if is_stop else 1 - p)
        is_last = t == len(drafts) - 1
        events.append(Event(id=f"a{t}", t=float(t), type="aggregate", agent="lead", reward={"draft": draft}))
        events.append(
            Event(
                id=f"d{t}",
                t=t + 0.5,
                type="orchestrator_decision",
                agent="lead",
                decision="stop" if is_stop else "noop",
                options=["stop"] if is_last and forced else ["stop", "continue"],
                logp=logp,
                extra={"executed": "continue"} if is_stop and not is_last else None,
            )
        )
    meta = {} if forced is None else {"forced": forced}
    return Trace(trace_id="t", task_id="q", events=events, rewards={"team": reward}, meta=meta)


def test_all_stops_by_hand() -> None:
    assert all_stops(np.array([1.0, 3.0, 2.0]), np.array([0.5, 0.25, 1.0])).tolist() == [0.5 * 1 + 0.5 * 2.25, 2.25, 2.0]
    with pytest.raises(InputError):
        all_stops(np.ones(2), np.ones(3))


def test_forced_continuation_by_hand() -> None:
    trace = _trace([1.0, 3.0, 2.0], [False, True, True], [0.5, 0.25, 1.0], forced=True, reward=3.0)
    credit = stop(trace)
    # going on at 0 brings U_1 = 2.25: -0.5 (1 - 2.25); stopping at 1 pays 3 against 2: 0.75 (3 - 2); the horizon is no choice
    assert credit.of(0) == pytest.approx({"d0": 0.625, "d1": 0.75})
    assert not credit.unidentified
    v = all_stops(np.array([1.0, 3.0, 2.0]), np.array([0.5, 0.25, 1.0]))
    assert credit.of(0)["d1"] == pytest.approx(3.0 - v[1])  # the skill Y_t - V


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(0.01, 0.99)), min_size=2, max_size=8))
def test_mean_zero_at_every_checkpoint(given_: list[tuple[float, float]]) -> None:
    drafts, chances = [y for y, _ in given_], [p for _, p in given_]
    last = [*[False] * (len(drafts) - 1), True]
    on = stop(_trace(drafts, last, chances, forced=True, reward=drafts[-1])).of(0)
    off = stop(_trace(drafts, [True] * len(drafts), chances, forced=True, reward=drafts[0])).of(0)
    for t, p in enumerate(chances[:-1]):
        assert p * off[f"d{t}"] + (1 - p) * on[f"d{t}"] == pytest.approx(0, abs=1e-9)


def test_a_draft_after_the_last_decision_is_what_going_on_brought() -> None:
    """The rounds ran out: drafts of 7, then 5 came after the last decision. U = 5, 0.25 * 3 + 0.75 * 5 = 4.5 before it."""
    trace = _trace([1.0, 3.0], [False, False], [0.5, 0.25], forced=None, reward=9.0)
    after = [Event(id=f"z{t}", t=t, type="aggregate", agent="lead", reward={"draft": y}) for t, y in ((5.0, 7.0), (6.0, 5.0))]
    other = Event(id="z", t=7.0, type="message", agent="lead", from_="lead", to="w", reward={"draft": 100.0})
    bare = Event(id="zz", t=8.0, type="aggregate", agent="lead", reward={"R4": 100.0})
    trace = replace(trace, events=[*trace.events, *after, other, bare], meta={"forced": True})
    assert stop(trace).of(0) == pytest.approx({"d0": -0.5 * (1 - 4.5), "d1": -0.25 * (3 - 5)})
    none = replace(trace, events=[*trace.events[:4], other, bare])  # no draft came: the last decision has nothing to go on to
    assert stop(none).of(0) == pytest.approx({"d0": -0.5 * (1 - 3)})
    assert set(stop(none).unidentified) == {(0, "d1")}


def test_a_team_that_stopped_leaves_its_stop_open() -> None:
    trace = _trace([1.0, 3.0], [False, True], [0.5, 0.25], forced=None, reward=3.0)
    credit = stop(trace)
    assert credit.of(0) == pytest.approx({"d0": -0.5 * (1.0 - 3.0)})
    assert "forced continuation" in credit.unidentified[0, "d1"]


def test_with_a_critic_no_propensity_is_needed() -> None:
    trace = _trace([1.0, 3.0, 2.0], [False, True, True], [None, None, None], forced=True, reward=3.0)
    with pytest.raises(NotIdentified, match="no propensity"):
        stop(trace)
    worth = {"d0": 2.0, "d1": 2.5, "d2": 2.0}
    credit = stop(trace, value=lambda t, e: worth[e.id])
    assert credit.of(0) == pytest.approx({"d0": 2.5 - 2.0, "d1": 3.0 - 2.5, "d2": 0.0})


def test_refusals() -> None:
    trace = _trace([1.0, 3.0], [False, True], [0.5, None], forced=None, reward=3.0)
    bare = Trace(trace_id="t", task_id="q", events=[e for e in trace.events if e.type != "aggregate"], rewards={"team": 1.0})
    with pytest.raises(NotIdentified, match="no draft is scored"):
        stop(bare)
    with pytest.raises(NotIdentified, match="give a replay: a simulator's world or a live team"):
        stop(trace, estimator="forks")
    with pytest.raises(InputError, match="did you mean 'forks'"):
        stop(trace, estimator="fork")


def test_a_stopping_world_hears_its_policy() -> None:
    """Under a coin of 0.3, advantages over many episodes have mean zero at a checkpoint, and sum p A + (1 - p) A = 0."""
    world = cpt.world("S1", horizon=8)
    traces = [world.trace(s, lambda t, x: np.full(len(x), 0.3)) for s in range(200)]
    credit = stop(traces)
    at = {name: np.array([r.value for r in credit.rows if r.unit_id == name]) for name in ("d1", "d4")}
    for values in at.values():
        assert len(values) == 200
        assert abs(values.mean()) <= 3 * values.std(ddof=1) / np.sqrt(200)
    y, first = payoffs(traces[0]), checkpoints(traces[0])
    assert [p.payoff for p in first] == pytest.approx(y)
    assert all(p.chance == pytest.approx(0.3) for p in first[:-1])
    assert first[-1].chance == 1.0


def test_forks_of_a_stopping_world_are_its_payoffs() -> None:
    world = cpt.world("S1", horizon=8)
    trace = world.trace(3, "cap:4")
    y = payoffs(trace)
    # a rule without chance leaves no advantage, but the effect behind it is the difference of two payoffs
    credit = stop(trace, estimator="forks", replay=world, k=1)
    assert set(credit.of(0)) == {"d0", "d1", "d2", "d3", "d4"}
    assert all(v == 0 for v in credit.of(0).values())
    assert {at for _, at in credit.unidentified} == {"d5", "d6", "d7"}

    from counterpoint.credits.forks import Contrast, effects
    from counterpoint.trace.replay import Force

    found = effects(world, trace, [Contrast(f"d{t}", Force({"stop": True}), None) for t in range(4)])
    assert found.effect_U == pytest.approx(y[:4] - y[4])


def test_forks_in_team_world() -> None:
    world = cpt.world("W1", vote_items=8)
    trace = world.run("random", [3], log=True).trace(0)
    going_on = next(p for p in checkpoints(trace) if not p.is_stop and p.payoff is not None)
    assert going_on.chance == pytest.approx(1 / 30)
    stopped = world.fork(trace, going_on.event.id, cpt.Force({"stop": True})).rewards["team"]
    one = stop(trace, estimator="forks", replay=world, k=1).of(0)[going_on.event.id]
    assert one == pytest.approx(-(stopped - trace.rewards["team"]) / 30)
    assert one != 0
    many = stop(trace, estimator="forks", replay=world, k=3)
    assert all(r.se is not None for r in many.rows)
    assert many.cost.forks == 5 * len(many.rows)
