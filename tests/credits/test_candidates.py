"""Candidates of an agent from one state (AT-GRPO), by hand."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.trace import Event, Trace
from counterpoint.trace.rows import Credit, Signal, Signals


def team(name: str, reward: float, *turns: dict[str, str], task: str = "q") -> Trace:
    """In each turn, what every agent says."""
    events = [
        Event(id=f"e{t}{who}", t=10 * t + k, type="message", agent=who, role=who, turn=t, content_ref=words)
        for t, said in enumerate(turns) for k, (who, words) in enumerate(said.items())
    ]  # fmt: skip
    return Trace(trace_id=name, task_id=task, events=events, rewards={"team": reward})


# two beginnings of the lead; after the second, two ways for worker w to go on beside the same words of the lead
TREE = [
    team("t0", 0.0, {"lead": "plan a"}, {"w": "x", "lead": "wait"}),
    team("t1", 1.0, {"lead": "plan b"}, {"w": "y", "lead": "wait"}),
    team("t2", 0.5, {"lead": "plan b"}, {"w": "z", "lead": "wait"}),
]


def credit(traces: list[Trace], **more: object) -> Credit:
    found: Credit = registry.get("mechanism", "agent_wise")(traces, by="turn", state=True, convention="dr_grpo", singleton="zero", **more)
    return found


def test_a_turn_is_compared_with_the_agents_other_turns_from_the_same_state() -> None:
    told = [credit(TREE).of(i) for i in range(3)]
    # the lead: plan a is worth 0, plan b 0.75, the mean of its two rollouts
    assert [t["lead#0"] for t in told] == pytest.approx([-0.375, 0.375, 0.375])
    # w: y against z after plan b; x has no other candidate after plan a
    assert [t["w#1"] for t in told] == pytest.approx([0.0, 0.25, -0.25])
    # the lead said the same in both: one candidate
    assert [t["lead#1"] for t in told] == [0.0, 0.0, 0.0]


def test_other_tasks_are_other_states_and_refused_units_stay_so() -> None:
    other = team("t3", 9.0, {"lead": "plan a"}, task="other")
    assert credit([*TREE, other]).of(3)["lead#0"] == 0.0
    alone = registry.get("mechanism", "agent_wise")(TREE, by="turn", state=True, convention="dr_grpo", singleton="refuse")
    assert "w#1" not in alone.of(0)
    assert (0, "w#1") in alone.unidentified
    with pytest.raises(InputError, match="candidates from one state are turns"):
        registry.get("mechanism", "agent_wise")(TREE, state=True)


def test_local_rewards_come_on_top_of_the_teams() -> None:
    local = {"t0": 0.0, "t1": 0.0, "t2": 2.0}
    paid = Signals.of({
        t.trace_id: [Signal("agent", "w", "R2", t.rewards["team"] + local[t.trace_id]), Signal("agent", "lead", "R2", t.rewards["team"])]
        for t in TREE
    })  # fmt: skip
    told = [credit(TREE, signals=paid).of(i) for i in range(3)]
    assert [t["w#1"] for t in told] == pytest.approx([0.0, (1 - 2.5) / 2, (2.5 - 1) / 2])
    assert np.allclose([t["lead#0"] for t in told], [-0.375, 0.375, 0.375])
