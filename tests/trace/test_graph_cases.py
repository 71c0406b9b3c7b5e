"""The graph at its edges: orders that are given, ties, empty input, refusals; the compiled passes through the graph itself."""

from __future__ import annotations

import itertools
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from counterpoint.errors import InvalidTrace
from counterpoint.trace import Edge, Event, Graph, kernels
from counterpoint.trace.edges import Edges
from counterpoint.trace.graph import cycle, topological_order
from counterpoint.trace.link import Links, link
from counterpoint.trace.vocabulary import EDGE_TYPES


def ends(edges: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(edges, np.int32).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def graph(n: int, edges: list[tuple[int, int]], **more: Any) -> Graph:
    return Graph(n, *ends(edges), **more)


def event(name: str) -> Event:
    return Event(id=name, t=0, type="message", agent="x")


# Two sources of different weight, a tie, a lone event, and file order that is not topological.
TANGLE = [(4, 1), (1, 0), (4, 2), (2, 0), (3, 0)]


def plain(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled passes as the Python they are written in, so that a test of their logic needs no compiler."""
    monkeypatch.setattr(kernels, "pays", lambda edges: compiled)
    monkeypatch.setattr(kernels, "_compiled", lambda function: function)


@pytest.mark.parametrize("compiled", [False, True])
def test_one_tangle_by_hand_on_both_roads(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plain(compiled, monkeypatch)
    g = graph(6, TANGLE)
    weight = np.array([1.0, 2.0, 2.0, 4.0, 0.5, 3.0])
    assert g.m == 5
    assert g.starts(weight).tolist() == [4.0, 0.5, 0.5, 0.0, 0.0, 0.0]
    assert g.levels().tolist() == [2, 1, 1, 0, 0, 0]
    assert g.critical_path(weight) == (5.0, [3, 0])
    assert g.critical_path(np.array([1.0, 2.0, 2.0, 1.0, 0.5, 0.0])) == (3.5, [4, 1, 0])  # of two ways the earlier event's
    assert g.critical_path(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0]))[0] == 0.0
    assert g.critical_path(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 9.0])) == (9.0, [5])
    assert np.flatnonzero(g.descendants(4)).tolist() == [0, 1, 2, 4]
    assert np.flatnonzero(g.ancestors(0)).tolist() == [0, 1, 2, 3, 4]
    assert np.flatnonzero(g.ancestors(2)).tolist() == [2, 4]
    assert np.flatnonzero(g.reach([3, 5])).tolist() == [0, 3, 5]
    assert not g.reach([]).any()
    assert g.ancestors(2).tobytes() == b"\0\0\1\0\1\0"  # true is 1, for whoever counts
    assert g.descendants(3).tobytes() == b"\1\0\0\1\0\0"
    assert g.reached_by([4, 3, 2]) == [0b111, 0b001, 0b101, 0b010, 0b001, 0]


def test_the_shape_of_a_tangle() -> None:
    g = graph(6, TANGLE)
    assert not g.is_ordered
    assert g.order.tolist() == [3, 4, 1, 2, 0, 5]  # every cause first, file order among the ready
    assert g.rank[g.order].tolist() == [0, 1, 2, 3, 4, 5]
    assert g.in_degree().tolist() == [3, 1, 1, 0, 0, 0]
    assert g.roots().tolist() == [3, 4, 5]
    first, sources = g.parents
    assert [sources[first[i] : first[i + 1]].tolist() for i in range(6)] == [[1, 2, 3], [4], [4], [], [], []]
    first, targets = g.children
    assert [targets[first[i] : first[i + 1]].tolist() for i in range(6)] == [[], [0], [0], [0], [1, 2], []]
    assert first.tolist() == [0, 0, 1, 2, 3, 5, 5]


def test_edges_in_pass_order_stay_as_they_are() -> None:
    g = graph(3, [(0, 1), (0, 2), (1, 2)])
    assert g.is_ordered
    assert g.by is None
    assert g.order.tolist() == g.rank.tolist() == [0, 1, 2]
    turned = graph(3, [(1, 2), (0, 2), (0, 1)])
    assert turned.is_ordered
    assert turned.by is not None
    assert turned.by.tolist() == [2, 0, 1]
    assert (turned.src.tolist(), turned.dst.tolist()) == ([0, 1, 0], [1, 2, 2])
    late = graph(4, [(0, 1), (2, 3), (1, 2)])  # none before the first, and still not in order
    assert late.by is not None
    assert late.levels().tolist() == [0, 1, 2, 3]
    two = graph(3, [(0, 2), (0, 1)])
    assert two.by is not None
    assert graph(2, [(0, 1), (0, 1)]).by is None


def test_a_graph_of_numbers_has_no_types() -> None:
    assert graph(2, [(0, 1)]).edge_type.tolist() == []


def test_a_known_order_is_taken() -> None:
    order = np.array([4, 3, 2, 1, 0, 5], np.int32)
    g = graph(6, TANGLE, order=order)
    assert g.order is order
    assert not g.is_ordered
    assert g.rank.tolist() == [4, 3, 2, 1, 0, 5]
    assert g.levels().tolist() == [2, 1, 1, 0, 0, 0]


def test_no_events() -> None:
    g = graph(0, [])
    assert g.critical_path(np.ones(0)) == (0.0, [])
    assert (g.m, g.roots().tolist(), g.levels().tolist()) == (0, [], [])


@pytest.mark.parametrize("seed", [-1, 6, 7])
def test_an_event_that_is_not_there_is_refused(seed: int) -> None:
    with pytest.raises(IndexError, match=rf"event number {seed} is not in 0\.\.5"):
        graph(6, TANGLE).descendants(seed)


def test_what_is_no_graph_is_named_with_its_place() -> None:
    events = [event(n) for n in ("a", "b", "a", "b")]
    with pytest.raises(InvalidTrace) as caught:
        Graph.of(events, [])
    assert (caught.value.what, caught.value.where) == ("event id 'a' is used twice", "events[2]")
    for edge, lost in ((("a", "z"), "z"), (("y", "b"), "y"), (("y", "z"), "y")):
        with pytest.raises(InvalidTrace) as caught:
            Graph.of(events[:2], [Edge("a", "b", "causal"), Edge(*edge, "causal"), Edge("q", "q", "causal")])
        assert (caught.value.what, caught.value.where) == (f"there is no event {lost!r}", "edges[1]")


def test_a_cycle_is_named_and_so_is_what_waits_for_it() -> None:
    edges = [(i, (i + 1) % 8) for i in range(8)] + [(3, 8), (8, 9), (10, 0)]
    with pytest.raises(InvalidTrace) as caught:
        topological_order(11, *ends(edges))
    loop = cycle(11, *ends(edges))
    assert sorted(loop) == list(range(8))
    assert all((b - a) % 8 == 1 for a, b in itertools.pairwise(loop))
    assert caught.value.what == "the edges form a cycle through events " + " -> ".join(f"[{i}]" for i in loop[:6])
    assert (caught.value.where, caught.value.why) == ("edges", "8 events on it, 10 events wait for it")


def test_what_leads_to_a_cycle_or_away_from_it_is_not_on_it() -> None:
    assert sorted(cycle(5, *ends([(0, 1), (1, 2), (2, 1), (2, 3), (3, 4)]))) == [1, 2]
    assert cycle(3, *ends([(2, 1), (1, 0), (2, 0)])) == []
    assert cycle(1, *ends([(0, 0)])) == [0]
    assert cycle(0, *ends([])) == []


@pytest.mark.parametrize("turned", [False, True])
def test_types_of_scanned_edges_follow_them(turned: bool) -> None:
    events = [event(n) for n in "abc"]
    rows = [(1, 2, "message"), (0, 1, "spawn"), (0, 2, "return")]
    rows = rows if turned else [rows[1], rows[0], rows[2]]
    src, dst = ends([(a, b) for a, b, _ in rows])
    codes = np.array([EDGE_TYPES.index(t) for _, _, t in rows], np.uint8)
    g = Graph.of(events, Edges(events, src, dst, codes))
    assert (g.by is None) == (not turned)
    assert {(int(s), int(d), EDGE_TYPES[c]) for s, d, c in zip(g.src, g.dst, g.edge_type, strict=True)} == set(rows)


# -- when the compiled pass pays ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_loaded", "edges", "pays"), [(True, 999, False), (True, 1000, True), (False, 399_999, False), (False, 400_000, True)]
)
def test_a_compiled_pass_pays_from_so_many_edges(is_loaded: bool, edges: int, pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_is_installed", lambda: True)
    if is_loaded:
        monkeypatch.setitem(sys.modules, "numba", ModuleType("numba"))
    else:
        monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert kernels.pays(edges) is pays
    monkeypatch.setattr(kernels, "_is_installed", lambda: False)
    assert kernels.pays(edges) is False


def test_whether_numba_is_installed_is_looked_up() -> None:
    import importlib.util

    assert kernels._is_installed() is (importlib.util.find_spec("numba") is not None)


# -- links -------------------------------------------------------------------------------------------------------


def lists(links: Links) -> list[list[int]]:
    return [a.tolist() for a in links]


def edges_of(*pairs: tuple[str, str]) -> list[Edge]:
    return [Edge(a, b, "causal") for a, b in pairs]


def test_ids_resolve_on_every_route() -> None:
    numbered = [event(n) for n in ("e5", "e7", "e6", "e7")]
    assert lists(link(numbered, edges_of(("e7", "e6"), ("e4", "e8"), ("e5", "e5")))) == [[1, -1, 0], [2, -1, 0], [3]]
    named = [event(n) for n in ("p", "q", "p")]
    assert lists(link(named, edges_of(("q", "p")))) == [[1], [0], [2]]
    assert lists(link(named, edges_of(("q", "p"), ("zz", "q")))) == [[1, -1], [0, 1], [2]]
    assert lists(link([], [])) == [[], [], []]
    assert lists(link([], edges_of(("a", "b")))) == [[-1], [-1], []]


def test_ids_may_be_sparse_up_to_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpoint.trace.link import _by_number

    near, far = ["e0", "e1040"], ["e0", "e1041"]
    found = _by_number(near, ["e1040", "e1041"], ["e0", "e1"])
    assert found is not None
    assert lists(found) == [[1, -1], [0, -1], []]
    assert _by_number(far, [], []) is None
    assert _by_number([], [], []) is None


def test_edges_that_are_numbers_stay_numbers_for_their_own_events_only() -> None:
    events = [event("e1"), event("e2")]
    edges = Edges(events, *ends([(1, 0)]), np.zeros(1, np.uint8))
    links = link(events, edges)
    assert links.src is edges.src
    assert links.dst is edges.dst
    assert links.repeated.tolist() == []
    assert lists(link(events[::-1], edges)) == [[0], [1], []]
