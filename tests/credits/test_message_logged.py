"""Credit of messages and stops from many runs: by hand, refusals, and that both models are used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from counterpoint.credits import doubly_robust as dr
from counterpoint.credits.logged_effects import draft_features, task_features
from counterpoint.credits.mechanisms.message_logged import message_logged
from counterpoint.credits.mechanisms.stop import stop
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Edge, Event, Trace


def run(n: int, is_sent: bool, reward: float, *, load: float = 0.0, says: int = 1) -> Trace:
    """A decision that leads to a message or not."""
    lead = {"agent": "lead", "turn": 0}
    events = [
        Event(id="q", t=0.0, type="message", agent="user", key="q", tokens_in=round(100 * load)),
        Event(id="d", t=1.0, type="orchestrator_decision", decision="delegate", key="lead|d", **lead),
    ]
    if is_sent:
        events.append(Event(id="m", t=2.0, type="message", to="w", key="lead|m", task="x", extra={"claim": says}, **lead))
    edges = [Edge("d", "m", "causal")] if is_sent else []
    return Trace(trace_id=f"r{n}", task_id="t", events=events, edges=edges, rewards={"team": reward}, meta={"load": load})


def flat(*_: Any) -> list[float]:
    return [0.0]


def test_one_slot_by_hand() -> None:
    # In both folds: sent pays 3, 1, 3, 1, ..., not sent pays 0; so m1 = 2, m0 = 0, e = 1/2.
    # psi: 2 + (3 - 2) / 0.5 = 4 and 2 + (1 - 2) / 0.5 = 0 where sent, 2 where not: mean 2, squares 4, 4, 0, 0.
    runs = [run(n, n // 2 % 2 == 0, [3.0, 3.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0][n % 8]) for n in range(80)]
    found = message_logged(runs, features=flat, folds=2)
    assert {r.unit_id for r in found.rows} == {"m"}
    assert len(found.rows) == 40
    assert found.rows[0].value == pytest.approx(2.0)
    assert found.rows[0].se == pytest.approx(math.sqrt(80 / 79 * (80 * 2) / 80**2))
    half = message_logged(runs, features=flat, folds=2, value="advantage")
    assert half.rows[0].value == pytest.approx(1.0)  # (1 - e) tau


def test_what_was_said_is_compared_with_anything_else_said_there() -> None:
    runs = [run(n, True, float(n % 2), says=n % 2) for n in range(80)]
    found = message_logged(runs, features=flat, contrast="said")
    said = {n: r.value for n, r in enumerate(found.rows)}
    assert said[0] == pytest.approx(-1.0)
    assert said[1] == pytest.approx(1.0)


def confounded(seed: int, count: int = 600) -> list[Trace]:
    """The message is sent where the load is high, which itself costs; it is worth 0.5."""
    rng = np.random.default_rng(seed)
    out = []
    for n in range(count):
        load = float(rng.random())
        is_sent = bool(rng.random() < 0.15 + 0.7 * load)
        out.append(run(n, is_sent, 0.5 * is_sent - 2 * load + 0.3 * float(rng.standard_normal()), load=load))
    return out


def load_of(trace: Trace, *_: Any) -> list[float]:
    return [trace.meta["load"]]


@pytest.mark.parametrize("blind", ["none", "outcome", "propensity", "both"])
def test_either_model_is_enough_and_one_is_needed(blind: str) -> None:
    runs = confounded(3)
    features = flat if blind in ("outcome", "both") else load_of
    chance = flat if blind in ("propensity", "both") else load_of
    row = message_logged(runs, features=features, propensity_features=chance).rows[0]
    is_near = abs(row.value - 0.5) <= 3 * float(row.se or 0.0)
    assert is_near is (blind != "both")


def test_refusals_say_how_many_runs_there_are() -> None:
    few = [run(n, n % 3 == 0, 0.0) for n in range(30)]
    with pytest.raises(NotIdentified, match="10 runs sent it and 20 did not"):
        message_logged(few)
    with pytest.raises(NotIdentified, match="nothing that its sender did"):
        message_logged([run(n, n % 2 == 0, 0.0) for n in range(80)], ids=["q"])
    with pytest.raises(InputError, match="did you mean"):
        message_logged(few, contrast="sentt")
    with pytest.raises(NotIdentified, match="no propensity was logged"):
        message_logged([run(n, n % 2 == 0, 0.0) for n in range(80)], propensity="logged")


def test_features_know_nothing_of_the_future() -> None:
    trace = run(0, True, 1.0)
    events = [*trace.events, Event(id="a", t=3.0, type="aggregate", agent="lead", reward={"draft": 0.5}),
              Event(id="b", t=4.0, type="aggregate", agent="lead", reward={"draft": 0.4}),
              Event(id="z", t=5.0, type="orchestrator_decision", agent="lead", turn=2)]  # fmt: skip
    long = Trace(trace_id="l", task_id="t", events=events)
    assert task_features(long, events[1]) == task_features(trace, trace.events[1])
    assert draft_features(long, events[-1])[-2:] == [0.4, 1.0]
    assert draft_features(long, events[1])[-2:] == [0.0, 0.0]


def test_logistic_by_hand() -> None:
    a = np.array([True, False, False, False])
    assert dr.logistic(np.zeros((4, 1)), a)(np.zeros((1, 1))) == pytest.approx(0.25)  # a column without spread: the share
    x = np.repeat([[0.0], [1.0]], 100, axis=0)
    took = np.concatenate([np.arange(100) < 20, np.arange(100) < 70])
    chance = dr.logistic(x, took, penalty=1e-9)(np.array([[0.0], [1.0]]))
    assert chance == pytest.approx([0.2, 0.7], abs=1e-6)


def test_stops_from_the_log_share_delta_between_the_arms() -> None:
    rng, runs = np.random.default_rng(1), []
    for n in range(120):
        is_stop = bool(rng.random() < 0.4)
        event = Event(id="s", t=0.0, type="orchestrator_decision", agent="lead", decision="stop" if is_stop else "noop",
                      options=["stop", "continue"], logp=math.log(0.4 if is_stop else 0.6))  # fmt: skip
        runs.append(Trace(trace_id=f"r{n}", task_id="t", events=[event], rewards={"team": 1.0 if is_stop else 3.0}))
    found = stop(runs, estimator="doubly_robust", leaf=lambda t, e: 0)
    values = {runs[r.trace].events[0].decision: r.value for r in found.rows}
    assert values == pytest.approx({"stop": 0.6 * -2.0, "noop": -0.4 * -2.0})
    with pytest.raises(NotIdentified, match="effective sample sizes"):
        stop(runs[:30], estimator="doubly_robust", leaf=lambda t, e: 0)


TABLE = np.array([0.06, 0.2, 0.75, 0.3, 0.6])
"""The chance of a yes by the level of what decides: no line, and no logistic curve, is near it."""


def decided(runs: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two decisions of each run by the table, whose effect is 1; the level makes the reward by itself, too."""
    rng = np.random.default_rng(seed)
    level, other = rng.integers(0, len(TABLE), 2 * runs), rng.normal(size=2 * runs)
    took = rng.random(2 * runs) < TABLE[level]
    reward = took + 2.0 * TABLE[level] + 0.3 * rng.normal(size=2 * runs)
    return np.column_stack([other, level]).astype(float), took, reward, np.arange(2 * runs) // 2


def test_a_learned_propensity_can_be_a_table() -> None:
    """By hand: among its steps a column is a table, and its regression is the share of yes at every level; among lines it is not."""
    z, took, _, run = decided(2_000, 0)
    shares = np.array([took[z[:, 1] == k].mean() for k in range(len(TABLE))])
    wide = dr.with_steps(z[:, 1:])
    assert wide(np.arange(2.0)[:, None]).tolist() == [[0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]  # the column, and 1[level > 0.5], ...
    assert dr.logistic(wide(z[:, 1:]), took, penalty=1e-9)(wide(z[:, 1:])) == pytest.approx(shares[z[:, 1].astype(int)], abs=1e-6)
    learned = dr.propensities(z, took, dr.folds_of(run, 5))
    assert np.abs(learned - TABLE[z[:, 1].astype(int)]).max() < 0.05
    assert np.abs(dr.logistic(z, took)(z) - TABLE[z[:, 1].astype(int)]).max() > 0.2


def test_with_a_wrong_outcome_model_and_enough_runs_a_table_leaves_no_bias() -> None:
    """The outcome model sees noise alone. Over twenty logs the mean is within four standard errors of 1, where a propensity on a
    line is off by many."""
    found: dict[str, list[float]] = {"table": [], "line": []}
    for seed in range(20):
        z, took, reward, run = decided(1_000, seed)
        fold = dr.folds_of(run, 5)
        m1, m0 = dr.outcome_models(z[:, :1], took, reward, fold)
        chances = {"table": dr.propensities(z, took, fold), "line": dr.logistic(z, took)(z)}
        for name, chance in chances.items():
            found[name].append(float(dr.psi(took, chance, reward, m1, m0).mean()))
    bias = {name: float(np.mean(each)) - 1 for name, each in found.items()}
    error = {name: float(np.std(each, ddof=1)) / len(each) ** 0.5 for name, each in found.items()}
    print({name: (round(bias[name], 4), round(error[name], 4)) for name in bias})  # pytest -rP shows it
    assert abs(bias["table"]) < max(0.02, 4 * error["table"])
    assert abs(bias["line"]) > 10 * error["line"]


def test_a_first_draft_that_gained_nothing_is_no_rise() -> None:
    """Before any draft the score is 0: after -0.1 and -0.2 nothing has risen for two drafts, after 0.3 and 0.1 for one."""
    for scores, since in (((-0.1, -0.2), 2.0), ((0.3, 0.1), 1.0), ((-0.1, 0.1), 0.0), ((0.0,), 1.0)):
        drafts = [Event(id=f"g{i}", t=i, type="aggregate", agent="lead", reward={"draft": x}) for i, x in enumerate(scores)]
        now = Event(id="d", t=9, type="orchestrator_decision", agent="lead", decision="stop")
        trace = Trace(trace_id="t", task_id="q", events=[*drafts, now], rewards={"team": 0.0})
        assert draft_features(trace, now)[-2:] == [scores[-1], since]
