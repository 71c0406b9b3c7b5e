"""The team at its edges: ties of the story, who counts for whom, which root is main, and where stages end."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from audits.made import Story
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.team import TraceTeam, critical_steps, story
from counterpoint.trace.vocabulary import ACTING, OUTSIDE_ROLES


def ev(name: str, t: float, agent: str = "a", type_: Any = "message", **fields: Any) -> Event:
    return Event(id=name, t=t, type=type_, agent=agent, **fields)


def trace(events: list[Event], edges: list[tuple[str, str]] | None = None) -> Trace:
    return Trace(trace_id="t", task_id="q", events=events, edges=[Edge(a, b, "causal") for a, b in edges or []])


def named(team: TraceTeam, numbers: Any) -> list[str]:
    return [team.names[a] for a in numbers]


# -- the story ---------------------------------------------------------------------------------------------------


def ids(of: Trace) -> list[str]:
    return [of.events[i].id for i in story(of)]


def test_ties_of_time_go_by_depth_then_by_the_length_of_the_id_then_by_the_id() -> None:
    events = [ev("e10", 1), ev("e9", 1), ev("b", 1), ev("c", 1), ev("a", 1), ev("z", 0), ev("e2", 2), ev("e1", 2)]
    assert ids(trace(events)) == ["z", "a", "b", "c", "e9", "e10", "e1", "e2"]
    assert ids(trace(events, [("b", "a"), ("z", "c")])) == ["z", "b", "e9", "e10", "a", "c", "e1", "e2"]
    assert ids(trace(events[::-1])) == ids(trace(events))
    assert ids(trace([])) == []
    assert ids(trace([ev("a", 0)])) == ["a"]


def test_an_effect_that_is_said_to_come_first_counts_from_its_latest_cause() -> None:
    events = [ev("late", 5), ev("later", 7), ev("effect", 0), ev("after", 1), ev("six", 6)]
    edges = [("late", "effect"), ("later", "effect"), ("effect", "after")]
    assert ids(trace(events, edges)) == ["late", "six", "later", "effect", "after"]
    assert ids(trace(events, [("late", "effect")])) == ["after", "late", "effect", "six", "later"]


# -- who is in it ------------------------------------------------------------------------------------------------


def test_agents_are_numbered_as_they_appear_and_the_spawned_who_never_act_come_last() -> None:
    events = [ev("s", 0, "lead", "spawn", to="idle"), ev("x", 2, "w"), ev("y", 1, "v"), ev("u", 3, "lead", "spawn", to=None)]
    team = TraceTeam(trace(events))
    assert team.names == ["lead", "v", "w", "idle"]
    assert len(team) == 4
    assert team.number == {"lead": 0, "v": 1, "w": 2, "idle": 3}
    assert team.agent_E.tolist() == [0, 2, 1, 0]
    assert team.order_E.tolist() == [0, 2, 1, 3]
    assert team.place_E.tolist() == [0, 2, 1, 3]
    assert team.spawn_A.tolist() == [-1, -1, -1, 0]
    assert team.events_of(("message",)) == [2, 1]
    assert team.of_types(("spawn", "message")).tolist() == [True] * 4


def test_outsiders_by_role_or_name_are_no_members_unless_they_spawn_or_are_spawned() -> None:
    assert {"user", "human", "tool", "environment", "system", "memory", "unknown"} == OUTSIDE_ROLES
    events = [
        ev("e1", 0, "bob", role="user"),
        ev("e2", 1, "human"),
        ev("e3", 2, "w"),
        ev("e4", 3, "clock", "tool_result", tool="clock"),
        ev("e5", 4, "watch", "safety_event"),
        ev("e6", 5, "system", "spawn", to="tool", role="tool"),
    ]
    team = TraceTeam(trace(events))
    assert {n for n in team.names if team.is_member_A[team.number[n]]} == {"w", "system", "tool"}
    assert named(team, team.roots) == ["w", "system"]
    # The role on a spawn is that of the one who is created: the spawner stays what it is.
    assert TraceTeam(trace([ev("s", 0, "lead", "spawn", to="x", role="user"), ev("m", 1, "lead")])).is_member_A.all()


def test_an_answer_under_a_tools_name_counts_for_its_earliest_caller() -> None:
    calls = [ev("c2", 2, "late", "tool_call", tool="s"), ev("c1", 1, "early", "tool_call", tool="s"), ev("m", 0, "other")]
    answer = ev("r", 3, "s", "tool_result", tool="s")
    team = TraceTeam(trace([*calls, answer], [("c2", "r"), ("c1", "r"), ("m", "r")]))
    assert named(team, team.agent_E) == ["late", "early", "other", "early"]
    alone = TraceTeam(trace([*calls, answer], [("m", "r")]))
    assert named(alone, alone.agent_E)[3] == "s"
    own = TraceTeam(trace([*calls, ev("r", 3, "other", "tool_result", tool="s")], [("c1", "r")]))
    assert named(own, own.agent_E)[3] == "other"


def test_the_spawn_tree() -> None:
    rows = [("a", "c"), ("a", "b"), ("b", "d"), ("x", "y"), ("x", "b")]
    team = TraceTeam(trace([ev(f"s{k}", k, a, "spawn", to=b) for k, (a, b) in enumerate(rows)]))
    assert named(team, team.children[team.number["a"]]) == ["c", "b"]
    assert named(team, team.down) == ["a", "x", "c", "b", "y", "d"]
    assert {n: int(team.depth_A[a]) for n, a in team.number.items()} == {"a": 0, "x": 0, "c": 1, "b": 1, "y": 1, "d": 2}
    assert team.with_children(np.array([1.0] * 6))[team.number["a"]] == 4.0
    assert team.with_children(np.arange(6)).dtype == np.arange(6).dtype
    assert named(team, team.roots) == ["a", "x"]


# -- main and roles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "main"),
    [
        ([ev("1", 0, "x"), ev("2", 1, "y"), ev("3", 2, "y", "spawn", to="z")], "y"),
        ([ev("1", 0, "x"), ev("2", 1, "x"), ev("3", 2, "y", "aggregate")], "y"),
        ([ev("1", 0, "x"), ev("2", 1, "x"), ev("3", 2, "y", "orchestrator_decision")], "y"),
        ([ev("1", 0, "x"), ev("2", 1, "y"), ev("3", 2, "y")], "y"),
        ([ev("1", 0, "x"), ev("2", 1, "y")], "x"),
        ([ev("1", 0, "x"), ev("2", 1, "y", "despawn")], "x"),
        ([ev("1", 0, "user")], None),
        ([], None),
    ],
)
def test_which_root_is_the_orchestrator(events: list[Event], main: str | None) -> None:
    team = TraceTeam(trace(events))
    assert (None if team.main is None else team.names[team.main]) == main


def test_a_role_is_the_first_one_acted_in_else_the_one_spawned_for() -> None:
    events = [
        ev("s1", 0, "lead", "spawn", to="w", role="worker"),
        ev("s2", 1, "lead", "spawn", to="v", role="reader"),
        ev("a", 2, "w"),
        ev("b", 4, "w", role="late"),
        ev("c", 3, "w", role="early"),
        ev("d", 5, "v"),
        ev("e", 6, "lead", role="boss"),
    ]
    team = TraceTeam(trace(events))
    assert dict(zip(team.names, team.role_A, strict=True)) == {"lead": "boss", "w": "early", "v": "reader"}
    call = ev("c", 0, "w", "tool_call", tool="s")
    tool = TraceTeam(trace([call, ev("r", 1, "s", "tool_result", role="engine")], [("c", "r")]))
    assert dict(zip(tool.names, tool.role_A, strict=True)) == {"w": None, "s": None}


# -- sums and paths ----------------------------------------------------------------------------------------------


def test_sums_per_agent_keep_their_kind() -> None:
    team = TraceTeam(trace([ev("1", 0, "x"), ev("2", 1, "y"), ev("3", 2, "x")]))
    assert team.per_agent(np.array([2**60, 1, 2**60])).tolist() == [2**61, 1]
    assert team.per_agent(np.array([0.5, 1.0, 0.25])).tolist() == [0.75, 1.0]
    assert team.per_agent(np.array([True, False, True])).tolist() == [2, 0]
    assert team.per_agent(np.array([True, False, True])).dtype == np.int64


def test_ties_of_the_critical_path_go_by_the_story() -> None:
    events = [ev("z", 3), ev("b2", 2), ev("b1", 1), ev("a", 0)]
    team = TraceTeam(trace(events, [("a", "b1"), ("a", "b2"), ("b1", "z"), ("b2", "z")]))
    assert team.critical_path(np.ones(4)) == (3.0, [3, 2, 0])
    assert team.critical_path(np.array([1.0, 5.0, 1.0, 1.0])) == (7.0, [3, 1, 0])


# -- steps -------------------------------------------------------------------------------------------------------


def test_what_is_a_step() -> None:
    assert ACTING == ("orchestrator_decision", "message", "tool_call", "aggregate")
    events = [ev("1", 0, "w", "tool_call", turn=1), ev("2", 1, "w", turn=1), ev("3", 2, "v", turn=1), ev("4", 3, "w"), ev("5", 4, "w", turn=2)]
    events += [ev("6", 5, "w", "return"), ev("7", 6, "user", turn=3), ev("8", 7, "w", "tool_result", turn=2)]
    team = TraceTeam(trace(events))
    assert np.flatnonzero(team.steps_E()).tolist() == [0, 2, 3, 4]
    assert np.flatnonzero(team.steps_E(("return",))).tolist() == [5]
    backwards = TraceTeam(trace(events[::-1]))
    assert np.flatnonzero(backwards.steps_E()).tolist() == [3, 4, 5, 7]
    bare = TraceTeam(trace([msgspec.structs.replace(e, turn=None) for e in events]))
    assert np.flatnonzero(bare.steps_E()).tolist() == [0, 1, 2, 3, 4]


def stages(of: Story) -> list[tuple[str, int, list[str], list[int]]]:
    team = TraceTeam(of.trace())
    return [(team.names[s.agent], s.own, named(team, s.children), s.critical) for s in critical_steps(team).stages]


def test_stages_by_hand() -> None:
    one = Story()
    one.add("orchestrator_decision", "main")
    for name in ("a", "b"):
        one.add("spawn", "main", to=name)
    one.add("tool_call", "a")
    one.add("tool_call", "b")
    one.add("tool_call", "b")
    one.add("return", "a", to="main")
    one.add("message", "main")  # a has returned: the second stage begins here, though b is still at work
    one.add("spawn", "main", to="c")
    one.add("tool_call", "c")
    one.add("return", "b", to="main")
    one.add("message", "main")  # b belonged to the first stage: this is still the second
    one.add("return", "c", to="main")
    one.add("aggregate", "main")
    assert sorted(stages(one)) == [("main", 1, [], []), ("main", 1, ["a", "b"], [1, 2]), ("main", 2, ["c"], [1])]
    found = critical_steps(TraceTeam(one.trace()))
    assert (found.critical, found.total, found.spawned, found.ended) == (1 + 2 + 2 + 1 + 1, 8, 3, 3)
    # On the way: main's own steps, and those of b and c, who were the slowest.
    assert np.flatnonzero(found.events_E).tolist() == [0, 4, 5, 7, 9, 11, 13]


def test_an_agent_without_a_return_ends_with_its_last_event() -> None:
    one = Story()
    one.add("spawn", "main", to="a")
    one.add("tool_call", "a")
    one.add("message", "main")
    one.add("tool_call", "a")
    one.add("message", "main")
    found = critical_steps(TraceTeam(one.trace()))
    assert (found.ended, found.spawned) == (0, 1)
    assert found.critical == 1 + 2 + 1
    assert sorted((s.own, len(s.children)) for s in found.stages) == [(1, 0), (1, 1)]


def test_only_the_first_return_after_its_spawn_ends_an_agent() -> None:
    events = [
        ev("r0", 0, "a", "return", from_="a", to="main"),
        ev("s", 1, "main", "spawn", to="a"),
        ev("c", 2, "a", "tool_call"),
        ev("r1", 3, "relay", "return", from_="a", to="main"),
        ev("m", 4, "main"),
        ev("r2", 5, "a", "return", from_="a", to="main"),
        ev("r3", 6, "stranger", "return", from_="nobody", to="main"),
        ev("m2", 7, "main"),
    ]
    found = critical_steps(TraceTeam(trace(events)))
    assert found.ended == 1
    assert sorted((s.own, len(s.children)) for s in found.stages) == [(0, 1), (2, 0)]


def test_a_spawned_agent_that_never_acts_ends_no_stage() -> None:
    one = Story()
    one.add("message", "main")
    one.add("spawn", "main", to="idle")
    one.add("message", "main")
    one.add("spawn", "main", to="busy")
    one.add("tool_call", "busy")
    found = critical_steps(TraceTeam(one.trace()))
    assert [(s.own, len(s.children)) for s in found.stages] == [(2, 2)]
    assert found.critical == 3


def test_of_several_roots_the_longest_or_the_chain_between_them() -> None:
    apart = trace([ev("1", 0, "x"), ev("2", 1, "y"), ev("3", 2, "y"), ev("4", 3, "z"), ev("5", 4, "z")])
    found = critical_steps(TraceTeam(apart))
    assert (found.critical, found.total, np.flatnonzero(found.events_E).tolist()) == (2, 5, [1, 2])
    chained = trace(apart.events, [("1", "2"), ("2", "5")])
    found = critical_steps(TraceTeam(chained))
    assert (found.critical, np.flatnonzero(found.events_E).tolist()) == (3, [0, 1, 4])
    tied = critical_steps(TraceTeam(trace(apart.events, [("1", "2")])))  # a chain that is no longer changes nothing
    assert np.flatnonzero(tied.events_E).tolist() == [1, 2]
    through = trace([ev("1", 0, "x"), ev("r", 1, "x", "return"), ev("2", 2, "y")], [("1", "r"), ("r", "2")])
    assert np.flatnonzero(critical_steps(TraceTeam(through)).events_E).tolist() == [0, 2]


def test_nobody_and_nothing() -> None:
    found = critical_steps(TraceTeam(trace([])))
    assert (found.critical, found.total, found.stages, found.ended, found.spawned) == (0, 0, [], 0, 0)
    found = critical_steps(TraceTeam(trace([ev("1", 0, "user")])))
    assert (found.critical, found.total) == (0, 0)
