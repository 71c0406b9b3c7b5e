"""The team in a trace: spawn tree, story, critical steps, pieces and profile, by hand and by law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from audits.made import Story, fan_out, random_traces
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.critical_path import pieces, profile
from counterpoint.trace.team import TraceTeam, critical_steps, story


def _stages(plan: list[tuple[int, list[int]]]) -> Trace:
    """A run with the given stages: main's own steps, and the steps of each sub-agent spawned in it."""
    out = Story()
    names = 0
    for own, subs in plan:
        for _ in range(own):
            out.add("orchestrator_decision", "main")
        team = [f"s{names + k}" for k in range(len(subs))]
        names += len(subs)
        for name in team:
            out.add("spawn", "main", to=name)
        for name, steps in zip(team, subs, strict=True):
            for _ in range(steps):
                out.add("tool_call", name)
        for name in team:
            out.add("return", name, to="main")
    return out.trace()


def test_critical_steps_of_the_formula_sheet() -> None:
    found = critical_steps(TraceTeam(_stages([(1, [3, 5, 2]), (1, []), (1, [4])])))
    assert (found.critical, found.total) == (12, 17)
    assert (found.spawned, found.ended) == (4, 4)
    assert int(found.events_E.sum()) == 12


def test_a_stage_ends_at_a_spawn_too_where_no_decision_is_recorded() -> None:
    serial = Story()
    for name in ("a", "b", "c"):
        serial.add("spawn", "main", to=name)
        serial.add("tool_call", name)
        serial.add("tool_call", name)
        serial.add("return", name, to="main")
    found = critical_steps(TraceTeam(serial.trace()))
    assert (found.critical, found.total) == (6, 6)


def test_critical_steps_are_recursive() -> None:
    deep = Story()
    deep.add("orchestrator_decision", "main")
    for name in ("a", "b"):
        deep.add("spawn", "main", to=name)
    deep.add("spawn", "a", to="a1")
    deep.add("spawn", "a", to="a2")
    for name, steps in (("a", 1), ("a1", 4), ("a2", 2), ("b", 3)):
        for _ in range(steps):
            deep.add("tool_call", name)
    for name, to in (("a1", "a"), ("a2", "a"), ("a", "main"), ("b", "main")):
        deep.add("return", name, to=to)
    deep.add("aggregate", "main")
    found = critical_steps(TraceTeam(deep.trace()))
    assert found.total == 12
    assert found.critical == 1 + max(1 + max(4, 2), 3) + 1


def test_a_turn_is_one_step() -> None:
    turns = Story()
    for turn in (0, 0, 1, 1, 1):
        turns.add("tool_call", "solo", turn=turn)
    turns.add("message", "solo")
    assert critical_steps(TraceTeam(turns.trace())).total == 3


def test_roots_that_wait_for_each_other_are_not_parallel() -> None:
    chain = Story()
    last: list[str] = []
    for name in ("a", "b", "c"):
        last = [chain.add("message", name, reads=last)]
    assert critical_steps(TraceTeam(chain.trace())).critical == 3
    apart = Story()
    for name in ("a", "b", "c"):
        apart.add("message", name)
    assert critical_steps(TraceTeam(apart.trace())).critical == 1


def test_spawn_tree_survives_loops_self_spawns_and_double_spawns() -> None:
    odd = Story()
    for agent, to in (("a", "b"), ("b", "a"), ("b", "b"), ("c", "b"), ("b", "d"), ("d", "a")):
        odd.add("spawn", agent, to=to)
    team = TraceTeam(odd.trace())
    parent = {name: int(team.parent_A[a]) for name, a in team.number.items()}
    assert parent == {"a": -1, "b": team.number["a"], "c": -1, "d": team.number["b"]}
    assert team.depth_A[team.number["d"]] == 2
    assert [team.names[a] for a in team.down][:2] == ["a", "c"]
    assert team.children[team.number["b"]] == [team.number["d"]]


def test_a_long_chain_of_spawns_is_no_trouble() -> None:
    n = 20_000
    events = [Event(id=f"e{k}", t=k, type="spawn", agent=f"a{k}", to=f"a{k + 1}") for k in range(n)]
    team = TraceTeam(Trace(trace_id="t", task_id="k", events=events))
    assert int(team.depth_A.max()) == n
    assert int(team.with_children(np.ones(n + 1, np.int64))[team.number["a0"]]) == n + 1


def test_a_tool_is_no_agent_and_its_answer_counts_for_the_caller() -> None:
    one = Story()
    call = one.add("tool_call", "worker", tool="search")
    one.add("tool_result", "search", tool="search", reads=call)
    one.add("tool_result", "clock", tool="clock")
    team = TraceTeam(one.trace())
    assert [team.names[a] for a in team.agent_E] == ["worker", "worker", "clock"]
    assert [team.names[a] for a in team.roots] == ["worker"]


def test_the_user_is_heard_but_not_in_the_team() -> None:
    one = Story()
    one.add("message", "user", to="lead")
    one.add("message", "lead", to="user")
    team = TraceTeam(one.trace())
    assert team.main == team.number["lead"]
    assert critical_steps(team).total == 1


def test_main_is_the_one_with_the_team() -> None:
    team = TraceTeam(fan_out().trace())
    assert team.main is not None
    assert team.names[team.main] == "lead"


def test_story_is_by_time_then_depth_then_id() -> None:
    def at(name: str, t: float) -> Event:
        return Event(id=name, t=t, type="message", agent="a")

    events = [at("e10", 1), at("e2", 1), at("e1", 1), at("e0", 5)]
    trace = Trace(trace_id="t", task_id="k", events=events, edges=[Edge("e10", "e1", "causal")])
    assert [events[i].id for i in story(trace)] == ["e2", "e10", "e1", "e0"]
    backwards = Trace(trace_id="t", task_id="k", events=events, edges=[Edge("e0", "e2", "causal")])
    assert [events[i].id for i in story(backwards)] == ["e1", "e10", "e0", "e2"]


def test_pieces_count_nested_and_overlapping_spans_once() -> None:
    one = Story()
    for t, dur in ((0, 10), (2, 3), (8, 4), (20, 1)):
        one.add("tool_call", "a", t=t, dur=dur)
    one.add("tool_call", "b", t=5, dur=10)
    trace = one.trace()
    team = TraceTeam(trace)
    t_E, dur_E = (np.array([float(getattr(e, f)) for e in trace.events]) for f in ("t", "dur"))
    cut = pieces(team, t_E, dur_E)
    assert cut.length_E.tolist() == [10, 0, 2, 1, 10]
    times, running = profile(cut)
    assert times.tolist() == [0, 5, 10, 12, 15, 20, 21]
    assert running.tolist() == [1, 2, 2, 1, 0, 1, 0]


@given(random_traces())
@settings(max_examples=60, deadline=None)
def test_laws_of_the_team(trace: Trace) -> None:
    team = TraceTeam(trace)
    assert sorted(team.down) == list(range(len(team)))
    assert all(team.down.index(int(p)) < team.down.index(a) for a, p in enumerate(team.parent_A) if p >= 0)
    graph = trace.graph
    assert bool((team.place_E[graph.src] < team.place_E[graph.dst]).all())
    found = critical_steps(team)
    assert 0 <= found.critical <= found.total
    assert found.critical == int(found.events_E.sum())
    assert (found.critical == 0) == (found.total == 0)
    own = team.per_agent(np.ones(len(trace.events), np.int64))
    assert int(own.sum()) == len(trace.events)
    tops = [a for a in range(len(team)) if team.parent_A[a] < 0]
    assert int(team.with_children(own)[tops].sum()) == len(trace.events)


@pytest.mark.parametrize("team_size", [1, 4])
def test_critical_steps_of_a_fan_out(team_size: int) -> None:
    found = critical_steps(TraceTeam(fan_out(team_size).trace()))
    assert (found.critical, found.total) == (1 + 3 + 2, 1 + 3 * team_size + 2)
