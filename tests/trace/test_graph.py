"""The graph's answers: by hand on a small one, against networkx on random ones, and laws."""

from __future__ import annotations

import itertools
from unittest import mock

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InvalidTrace
from counterpoint.trace import Edge, Event, Graph, Trace, kernels
from counterpoint.trace.graph import cycle


@st.composite
def dags(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], np.ndarray]:
    """A random DAG whose events stand in random file order, with weights."""
    n = draw(st.integers(1, 14))
    pairs = draw(st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
    place = draw(st.permutations(range(n)))
    edges = [(place[a], place[b]) for a, b in pairs if a < b]
    weights = draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    return n, draw(st.permutations(edges)), np.array(weights, float)


def graph_of(n: int, edges: list[tuple[int, int]]) -> Graph:
    ends = np.array(edges, np.int32).reshape(-1, 2)
    return Graph(n, ends[:, 0], ends[:, 1])


def oracle(n: int, edges: list[tuple[int, int]]) -> nx.DiGraph:
    g = nx.DiGraph()
    g.add_nodes_from(range(n))
    g.add_edges_from(edges)
    return g


@settings(max_examples=80, deadline=None)
@given(dags())
def test_reach_agrees_with_networkx(dag: tuple[int, list[tuple[int, int]], np.ndarray]) -> None:
    n, edges, _ = dag
    ours, theirs = graph_of(n, edges), oracle(n, edges)
    for i in range(n):
        assert set(np.flatnonzero(ours.descendants(i))) == nx.descendants(theirs, i) | {i}
        assert set(np.flatnonzero(ours.ancestors(i))) == nx.ancestors(theirs, i) | {i}
    sources = list(range(0, n, 2))
    union = set().union(*({s} | nx.descendants(theirs, s) for s in sources))
    assert set(np.flatnonzero(ours.reach(sources))) == union
    bits = ours.reached_by(sources)
    assert bits == [sum(1 << k for k, s in enumerate(sources) if i == s or nx.has_path(theirs, s, i)) for i in range(n)]


@settings(max_examples=80, deadline=None)
@given(dags())
def test_the_critical_path_is_the_heaviest_chain(dag: tuple[int, list[tuple[int, int]], np.ndarray]) -> None:
    n, edges, weight = dag
    ours, theirs = graph_of(n, edges), oracle(n, edges)
    total, path = ours.critical_path(weight)
    # networkx weighs edges, so each event's weight goes on the edges out of it, and one sink ends them all.
    theirs.add_weighted_edges_from([(a, b, weight[a]) for a, b in edges] + [(i, "end", weight[i]) for i in range(n)])
    assert total == nx.dag_longest_path_length(theirs)
    assert sum(weight[path]) == total
    assert all(b in theirs[a] for a, b in itertools.pairwise(path))


@settings(max_examples=100, deadline=None)
@given(dags())
def test_levels_and_orders_agree_with_networkx(dag: tuple[int, list[tuple[int, int]], np.ndarray]) -> None:
    n, edges, _ = dag
    ours, theirs = graph_of(n, edges), oracle(n, edges)
    depth = {i: k for k, row in enumerate(nx.topological_generations(theirs)) for i in row}
    assert ours.levels().tolist() == [depth[i] for i in range(n)]
    place = {int(e): k for k, e in enumerate(ours.order)}
    assert all(place[a] < place[b] for a, b in edges)


@settings(max_examples=100, deadline=None)
@given(dags())
def test_compiled_passes_give_the_same_numbers(dag: tuple[int, list[tuple[int, int]], np.ndarray]) -> None:
    pytest.importorskip("numba", reason="the compiled passes need the `fast` extra")
    n, edges, weight = dag
    plain = graph_of(n, edges)
    marks = np.zeros(n, np.uint8)
    marks[0] = 1
    told = plain.starts(weight).tolist(), plain.critical_path(weight)
    with mock.patch.object(kernels, "pays", return_value=True):
        compiled = graph_of(n, edges)
        assert (compiled.starts(weight).tolist(), compiled.critical_path(weight)) == told
    for forward, mask in ((True, plain.descendants(0)), (False, plain.ancestors(0))):
        marked = marks.copy()
        kernels.spread(plain.src, plain.dst, marked, forward)
        assert marked.astype(bool).tolist() == mask.tolist()


# A hand-made trace:   0 decide -> 1 spawn -> 2 call(5) -> 4 return ; 1' spawn 3 call(2) -> 5 return ; both -> 6 aggregate
def diamond() -> Graph:
    return graph_of(7, [(0, 1), (0, 3), (1, 2), (2, 4), (3, 5), (4, 6), (5, 6)])


def test_the_diamond_by_hand() -> None:
    g = diamond()
    weight = np.array([1, 0, 5, 2, 0.5, 0.25, 1])
    assert g.critical_path(weight) == (7.5, [0, 1, 2, 4, 6])
    assert g.levels().tolist() == [0, 1, 2, 1, 3, 2, 4]
    assert g.starts(weight).tolist() == [0, 1, 1, 1, 6, 3, 6.5]
    assert np.flatnonzero(g.descendants(3)).tolist() == [3, 5, 6]
    assert np.flatnonzero(g.ancestors(4)).tolist() == [0, 1, 2, 4]
    assert g.roots().tolist() == [0]
    first, targets = g.children
    assert targets[first[0] : first[1]].tolist() == [1, 3]
    first, sources = g.parents
    assert sources[first[6] : first[7]].tolist() == [4, 5]


def test_file_order_need_not_be_topological() -> None:
    # The diamond with its events named backwards.
    edges = [(6 - a, 6 - b) for a, b in [(0, 1), (0, 3), (1, 2), (2, 4), (3, 5), (4, 6), (5, 6)]]
    g = graph_of(7, edges)
    assert not g.is_ordered
    assert g.critical_path(np.array([1, 0, 5, 2, 0.5, 0.25, 1])[::-1]) == (7.5, [6, 5, 4, 2, 0])


def test_ties_go_to_the_earliest_event() -> None:
    g = graph_of(4, [(0, 2), (1, 2), (0, 3)])
    assert g.critical_path(np.ones(4)) == (2.0, [0, 2])


def test_a_cycle_is_found_and_named() -> None:
    edges = np.array([(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)], np.int32)
    loop = cycle(5, edges[:, 0], edges[:, 1])
    assert sorted(loop) == [1, 2, 3]
    pairs = {(1, 2), (2, 3), (3, 1)}
    assert all((a, b) in pairs for a, b in zip(loop, loop[1:] + loop[:1], strict=True))
    with pytest.raises(InvalidTrace, match="cycle"):
        Graph(5, edges[:, 0], edges[:, 1])
    with pytest.raises(InvalidTrace, match="cycle"):
        Graph(1, np.array([0], np.int32), np.array([0], np.int32))


def event(name: str) -> Event:
    return Event(id=name, t=0, type="message", agent="x")


@pytest.mark.parametrize(
    ("events", "edges", "says"),
    [
        (["a", "a"], [], "used twice"),
        (["a", "b"], [Edge("a", "z", "causal")], "no event 'z'"),
        (["a", "b"], [Edge("a", "b", "causal"), Edge("b", "a", "causal")], "cycle"),
    ],
)
def test_what_is_not_a_graph_is_refused(events: list[str], edges: list[Edge], says: str) -> None:
    trace = Trace(trace_id="t", task_id="q", events=[event(e) for e in events], edges=edges)
    with pytest.raises(InvalidTrace, match=says):
        _ = trace.graph


def test_edge_types_follow_their_edges() -> None:
    edges = [Edge("b", "c", "message"), Edge("a", "b", "spawn"), Edge("a", "c", "return")]
    g = Trace(trace_id="t", task_id="q", events=[event(e) for e in "abc"], edges=edges).graph
    from counterpoint.trace.vocabulary import EDGE_TYPES

    named = {(int(s), int(d)): EDGE_TYPES[c] for s, d, c in zip(g.src, g.dst, g.edge_type, strict=True)}
    assert named == {(1, 2): "message", (0, 1): "spawn", (0, 2): "return"}


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(IndexError):
        diamond().descendants(7)
    with pytest.raises(ValueError, match="shape"):
        diamond().starts(np.ones(3))


def test_one_event_and_no_edges() -> None:
    g = graph_of(1, [])
    assert g.critical_path(np.array([2.0])) == (2.0, [0])
    assert g.descendants(0).tolist() == [True]
