"""A planner and a tool user: plans, tries and reports by turns, until the planner stops or may not go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterpoint import Trace
from counterpoint.lab.lm.model import Call
from counterpoint.lab.tasks.leakage import leaks
from counterpoint.lab.tasks.task import task
from counterpoint.lab.team.state import Limits
from counterpoint.lab.team.topologies.planner_tool_user import planner_tool_user
from counterpoint.lab.testing import check_topology
from team_help import Says, record

TURNS = Limits(width=1, turns=5, steps=3)


def team(folder: Path, name: str = "T7", **spec: object) -> Trace:
    given = {"task": task(name).name, "topology": "planner_tool_user", "limits": TURNS, "options": {"explore": 0.0}} | spec
    return record(folder, **given)  # type: ignore[arg-type]


def said(trace: Trace, agent: str) -> list[str]:
    """What an agent chose, in order."""
    return [
        trace.text(e) or "" for e in trace.events if e.agent == agent and e.type != "tool_result" and "call" in (e.extra or {})
    ]


def test_it_is_a_topology() -> None:
    check_topology(planner_tool_user)


@pytest.mark.parametrize("name", ["T7", "T8"])
def test_without_slips_four_calls_solve_it(name: str, tmp_path: Path) -> None:
    for seed in range(5):
        trace = team(tmp_path, name, model="fake:1", seed=seed, trace_id=f"one-{seed}")
        plan, stop = said(trace, "lead")
        moves, back = said(trace, "lead.1")
        assert plan.startswith("walk " if name == "T7" else "box ")
        assert back == f"{moves}: solved"
        assert stop == ""
        assert trace.meta["answer"] == back
        assert trace.metrics is not None
        assert trace.metrics["task_success"] == 1
        assert {e.role for e in trace.events if "call" in (e.extra or {})} == {"planner", "executor"}
        assert not leaks(task(name).instance(seed), trace, task(name))


def test_a_plan_that_fails_is_followed_by_another(tmp_path: Path) -> None:
    tried = [team(tmp_path, model="fake:0.5", seed=seed, trace_id=f"two-{seed}") for seed in range(12)]
    again = [t for t in tried if len(said(t, "lead")) > 2]
    assert again
    for trace in again:
        reports = [trace.text(e) or "" for e in trace.events if e.type == "return"]
        assert all(not text.endswith(": solved") for text in reports[:-1])
        assert len(said(trace, "lead")) <= 5
        assert [e.turn for e in trace.events if e.agent == "lead" and "call" in (e.extra or {})] == [
            *range(1, len(said(trace, "lead")) + 1)
        ]


def test_the_last_turn_can_only_stop_and_the_first_cannot(tmp_path: Path) -> None:
    legal: list[tuple[str, ...]] = []

    def plans(call: Call) -> str:
        assert call.view is not None
        if call.view.role == "planner":
            legal.append(tuple(c.verb for c in call.view.choices))
            return "MESSAGE lead.1: walk a1 a2"
        return "RETURN: up: left the grid" if legal[1:] else "RETURN: down"

    trace = team(tmp_path, using=Says(plans), limits=Limits(width=1, turns=3, steps=3, repairs=0))
    assert legal == [("message",), ("message", "stop", "stop"), ("stop", "stop")]
    assert trace.meta["answer"] == "up: left the grid"  # what came back last, by an event that nobody chose
    (last,) = [e for e in trace.events if e.policy == "forced"]
    assert (last.decision, last.error) == ("stop", "no turns left")


def test_three_answers_that_are_none_end_it(tmp_path: Path) -> None:
    trace = team(tmp_path, using=Says(lambda call: "let me think"), limits=Limits(width=1, turns=9, repairs=0))
    assert [e.error for e in trace.events if e.policy == "forced"] == ["no legal action, three times"]
    assert trace.rewards["team"] == 0


def test_without_room_for_a_tool_user_the_planner_answers_alone(tmp_path: Path) -> None:
    trace = team(tmp_path, using=Says(lambda call: "STOP: right"), limits=Limits(width=1, agents=1))
    assert trace.meta["answer"] == "right"
    assert [e.error for e in trace.events if e.type == "safety_event"] == ["limit"]
