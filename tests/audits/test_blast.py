"""Cut-off re-execution: by hand, as laws on random graphs, with fences, and against TeamWorld's full replay."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.audits.blast import blast_radius, closure, cut_off, fences_of, other
from counterpoint.errors import NotFound
from counterpoint.trace import Edge, Event, Graph, Trace


def graph(n: int, *pairs: tuple[int, int]) -> Graph:
    ends = np.array(pairs, np.int32).reshape(-1, 2)
    return Graph(n, ends[:, 0], ends[:, 1])


# 0 -> 1 -> 2 -> 3, and 0 -> 4
LINE = graph(5, (0, 1), (1, 2), (2, 3), (0, 4))


def test_it_stops_where_the_hash_is_the_old_one() -> None:
    seen: list[tuple[int, dict[int, Hashable]]] = []

    def rerun(i: int, new: Mapping[int, Hashable]) -> Hashable:
        seen.append((i, dict(new)))
        return "new" if i == 1 else "old"

    found = cut_off(LINE, ["old"] * 5, {0: "edit"}, rerun)
    assert seen == [(1, {0: "edit"}), (4, {0: "edit"}), (2, {1: "new"})] or seen == [
        (1, {0: "edit"}),
        (2, {1: "new"}),
        (4, {0: "edit"}),
    ]
    assert found.reran.tolist() == [True, True, True, False, True]
    assert found.changed.tolist() == [True, True, False, False, False]
    assert found.hashes == ["edit", "new", "old", "old", "old"]


def test_an_edit_that_says_the_same_changes_nothing() -> None:
    found = cut_off(LINE, ["old"] * 5, {0: "old"}, lambda i, new: pytest.fail("nothing is run"))
    assert found.reran.tolist() == [True, False, False, False, False]
    assert not found.changed.any()


def test_an_agent_keeps_what_it_read() -> None:
    keeps = np.array([d == 2 for d in LINE.dst.tolist()])  # 1 and 2 are of one agent
    found = cut_off(LINE, ["old"] * 5, {0: "edit"}, lambda i, new: "new" if i == 2 else "old", keeps=keeps)
    assert found.reran.tolist() == [True, True, True, True, True]  # 2 runs though 1 said the same; 2 changed, so 3 runs
    assert found.changed.tolist() == [True, False, True, False, False]


def test_a_fence_is_never_crossed_silently() -> None:
    held = cut_off(LINE, ["old"] * 5, {0: "edit"}, lambda i, new: "new", fences=[2])
    assert (held.held, held.crossed) == ((2,), ())
    assert held.reran.tolist() == [True, True, False, False, True]
    crossed = cut_off(LINE, ["old"] * 5, {0: "edit"}, lambda i, new: "new", fences=[2], allow=[2])
    assert (crossed.held, crossed.crossed) == ((), (2,))
    assert crossed.reran.all()
    away = cut_off(LINE, ["old"] * 5, {3: "edit"}, lambda i, new: "new", fences=[2])
    assert (away.held, away.crossed) == ((), ())


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], int, list[bool]]:
    n = draw(st.integers(2, 14))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] < p[1]), max_size=30))
    return n, sorted(set(pairs)), draw(st.integers(0, n - 1)), draw(st.lists(st.booleans(), min_size=n, max_size=n))


@given(graphs())
def test_cut_off_equals_full_replay_and_stays_in_the_closure(made: tuple[int, list[tuple[int, int]], int, list[bool]]) -> None:
    n, pairs, at, absorbs = made
    old: list[Hashable] = list(range(n))

    def rerun(i: int, new: Mapping[int, Hashable]) -> Hashable:
        return i if absorbs[i] else hash((i, *sorted(new.items())))  # type: ignore[type-var]

    full: list[Hashable] = []
    for i in range(n):
        new = {s: full[s] for s, d in pairs if d == i and full[s] != s}
        full.append(-7 if i == at else rerun(i, new) if new else i)
    net = graph(n, *pairs)
    found = cut_off(net, old, {at: -7}, rerun)
    assert found.hashes == full
    assert not (found.reran & ~net.descendants(at)).any()
    assert (found.reran | ~found.changed).all()
    for i in range(n):
        reads = any(found.changed[s] for s, d in pairs if d == i)
        assert found.reran[i] == (i == at or reads)


@pytest.mark.parametrize("topology", ["centralized", "planner_executor_critic", "swarm", "hierarchical"])
def test_team_world_is_followed_exactly(topology: str) -> None:
    world = cpt.world("W1", vote_items=24, topology=topology)
    trace = world.run("reference", [5], log=True).trace(0)
    able = [e for e in trace.events if e.type in ("return", "tool_result", "message") and e.role != "critic"]
    spared = 0
    for event in able[:: max(1, len(able) // 8)]:
        found = blast_radius(trace, world.fork(trace, event.id, other(event)), event.id)
        assert found.missed == ()
        assert found.recall == 1.0
        assert found.is_exact
        assert not (found.reran & ~found.closure).any()
        assert found.waste >= 1
        spared += int((found.closure & ~found.reran).sum())
    assert spared > 0


def test_a_missing_edge_shows_as_missed_events() -> None:
    world = cpt.world("W1", vote_items=24)
    trace = world.run("reference", [5], log=True).trace(0)
    told = next(e for e in trace.events if e.type == "return")
    result = next(e.src for e in trace.edges if e.dst == told.id)
    assert told.extra is not None
    fork = world.fork(trace, result, cpt.Substitute(1 - told.extra["claim"]))
    assert blast_radius(trace, fork, result).missed == ()
    blind, blind_fork = (replace(t, edges=[e for e in t.edges if e.src != result]) for t in (trace, fork))
    found = blast_radius(blind, blind_fork, result)
    assert told.id in found.missed
    assert found.recall < 1
    assert not found.is_exact


def test_closure_and_fences_of_a_trace() -> None:
    events = [
        Event(id="a", t=0, type="tool_result", agent="x", tool="get"),
        Event(id="b", t=1, type="tool_call", agent="x", tool="send"),
        Event(id="c", t=2, type="tool_call", agent="x", tool="get", extra={"irreversible": True}),
    ]
    trace = Trace(trace_id="t", task_id="t", events=events, edges=[Edge("a", "b", "causal")])
    assert closure(trace, "a").tolist() == [True, True, False]
    assert fences_of(trace) == [2]
    with pytest.raises(NotFound):
        closure(trace, "z")
