"""Tool-call credit: forks of results, and associations that say what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import counterpoint as cpt
from counterpoint.credits.mechanisms.tool_call import outcome_gap, results_of, tool_call
from counterpoint.errors import InputError, NotIdentified
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.lab.worlds.teamworld.team_replay import TeamReplay
from counterpoint.trace import Edge, Event, Trace

HARD: dict[str, Any] = {
    "vote_items": 6,
    "skill_a": (0.7, 0.65, 0.55),
    "skill_b": (0.7, 0.65, 0.55),
    "misconception_a": (0.0, 0.0, 0.0),
    "misconception_b": (0.0, 0.0, 0.0),
}


def _trace(name: int, oks: list[bool | None], reward: float, **more: Any) -> Trace:
    events = []
    for n, ok in enumerate(oks):
        events.append(Event(id=f"c{n}", t=2.0 * n, type="tool_call", agent="w", tool="search"))
        events.append(Event(id=f"r{n}", t=2.0 * n + 1, type="tool_result", agent="w", tool="search", ok=ok))
    return Trace(trace_id=f"t{name}", task_id="q", events=events, rewards={"team": reward}, **more)


def _team() -> tuple[TeamReplay, Trace]:
    world = cpt.world("W1", **HARD)
    policy = ComposedPolicy(world.config, Parts(cap=3, aggregate="majority"), "capped")
    return TeamReplay(world, policy), world.run(policy, [1], log=True).trace(0)


def test_results_by_edge_and_by_order() -> None:
    trace = _trace(0, [True, False], 1.0)
    assert [r.id for r in results_of(trace).values() if r] == ["r0", "r1"]
    crossed = _trace(0, [True, False], 1.0, edges=[Edge("c0", "r1", "tool_dependency")])
    assert {c: r and r.id for c, r in results_of(crossed).items()} == {"c0": "r1", "c1": None}
    alone = Trace(trace_id="x", task_id="q", events=trace.events[:1], rewards={"team": 0.0})
    assert results_of(alone) == {"c0": None}


def test_a_call_is_worth_what_its_result_brings() -> None:
    replay, trace = _team()
    credit = tool_call(trace, replay=replay, k=2)
    calls = [e for e in trace.events if e.type == "tool_call"]
    assert [r.unit_id for r in credit.rows] == [e.id for e in calls]
    assert {r.unit for r in credit.rows} == {"tool"}
    values = np.array([r.value for r in credit.rows])
    assert np.isfinite(values).all()
    assert values.std() > 0
    assert credit.cost.forks == 3 * len(calls)
    once = tool_call(trace, replay=replay).of(0)
    for call in calls[:5]:
        result = results_of(trace)[call.id]
        assert result is not None
        without = replay.fork(trace, result.id, cpt.Delete()).rewards["team"]
        assert once[call.id] == pytest.approx(trace.rewards["team"] - without)


def test_asking_the_tool_again_has_mean_zero() -> None:
    world = cpt.world("W1", **HARD)
    policy = ComposedPolicy(world.config, Parts(cap=3, aggregate="majority"), "capped")
    runs = world.run(policy, range(30), log=True)
    credit = tool_call([runs.trace(i) for i in range(30)], estimator="substitute", replay=TeamReplay(world, policy), k=2)
    means = np.array([np.mean(list(credit.of(i).values())) for i in range(30)])
    assert abs(means.mean()) <= 3 * means.std(ddof=1) / np.sqrt(30)
    assert means.std() > 0


def test_outcome_gap_by_hand() -> None:
    gap, se = outcome_gap(np.zeros(4, int), np.array([1, 1, 0, 0]), np.array([4.0, 2.0, 1.0, 1.0]), np.arange(4))
    assert gap.tolist() == [1.0, 1.0, -1.0, -1.0]  # 3 and 1 against 2
    # influence on the right class: (1, -1)/2 - (2, 0, -1, -1)/4 = (0, -1/2, 1/4, 1/4)
    assert se[0] == pytest.approx(np.sqrt(0.25 + 2 / 16))


def test_outcomes_over_traces() -> None:
    traces = [_trace(n, [True, n % 2 == 0], 1.0 + (n % 2 == 0)) for n in range(12)]
    credit = tool_call(traces, estimator="outcome")
    assert credit.notes["kind"] == "association"
    assert "association" in credit.estimand
    # 18 good calls: 12 in traces of 2, 6 of 1: mean 5/3; all 24: mean 1.5; 6 bad calls: mean 1
    assert credit.of(0) == pytest.approx({"c0": 5 / 3 - 1.5, "c1": 5 / 3 - 1.5})
    assert credit.of(1)["c1"] == pytest.approx(-0.5)
    assert tool_call(traces, estimator="outcome", ids=["c1"]).of(1) == pytest.approx({"c1": -0.5})


def test_refusals() -> None:
    with pytest.raises(NotIdentified, match="give a replay: a simulator's world or a live team"):
        tool_call(_trace(0, [True], 1.0))
    with pytest.raises(NotIdentified, match="traces have this outcome"):
        tool_call([_trace(n, [True], 1.0) for n in range(9)], estimator="outcome")
    with pytest.raises(NotIdentified, match="no tool call has an outcome"):
        tool_call([_trace(n, [None], 1.0) for n in range(9)], estimator="outcome")
    with pytest.raises(InputError, match="no estimator"):
        tool_call(_trace(0, [True], 1.0), estimator="remove")
