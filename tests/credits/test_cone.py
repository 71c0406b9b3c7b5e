"""Causal-cone advantages: sums over descendants by hand, the same mean as the full return, and what a lost edge does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint import registry
from counterpoint.credits.mechanisms.cone import cone_sums, return_sums
from counterpoint.errors import InputError
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.graph import Graph

cone = registry.get("mechanism", "cone")


def graph_of(n: int, *edges: tuple[int, int]) -> Graph:
    src, dst = np.array(edges, np.int32).reshape(-1, 2).T
    return Graph(n, np.ascontiguousarray(src), np.ascontiguousarray(dst))


def test_sums_over_descendants_by_hand():
    #   0 -> 1 -> 3,  0 -> 2,  4 apart
    graph = graph_of(5, (0, 1), (0, 2), (1, 3))
    delta = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert cone_sums(graph, delta).tolist() == [15, 10, 4, 8, 16]
    assert cone_sums(graph, delta, discount=0.5).tolist() == [1 + 1 + 2 + 2, 2 + 4, 4, 8, 16]
    assert cone_sums(graph, delta, discount=0.0).tolist() == delta
    assert cone_sums(graph, delta, [4, 1]).tolist() == [16, 10]
    assert return_sums(graph, delta).tolist() == [31, 30, 28, 24, 16]
    assert cone_sums(graph, [delta, delta]).shape == (2, 5)
    with pytest.raises(InputError, match="between 0 and 1"):
        cone_sums(graph, delta, discount=1.5)
    with pytest.raises(InputError, match="shape"):
        cone_sums(graph, delta[:3])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_many_at_once_are_as_one_by_one(seed: int):
    rng = np.random.default_rng(seed)
    n = 60
    pairs = sorted({(int(min(p)), int(max(p))) for p in rng.integers(0, n, (80, 2)) if p[0] != p[1]}, key=lambda p: p[1])
    graph, delta = graph_of(n, *pairs), rng.normal(size=n)
    together = cone_sums(graph, delta, discount=0.9)
    assert together == pytest.approx([cone_sums(graph, delta, [t], 0.9)[0] for t in range(n)], abs=1e-12)
    level = graph.levels()
    t = int(rng.integers(n))
    below = np.flatnonzero(graph.descendants(t))
    assert together[t] == pytest.approx(sum(0.9 ** (level[s] - level[t]) * delta[s] for s in below), abs=1e-12)


def test_the_mean_is_the_full_returns_and_a_lost_edge_moves_it():
    # Workers act by a coin, a = -1 or 1; each action adds 0.3 to its own result and 0.2 to what its peer reads from it.
    rng = np.random.default_rng(0)
    workers, episodes = 50, 4000
    acts, own, peers = (k * workers + 1 + np.arange(workers) for k in range(3))
    edges = [*((0, a) for a in acts), *zip(acts, own, strict=True), *zip(acts, peers, strict=True)]
    a = rng.choice([-1.0, 1.0], (episodes, workers))
    delta = np.zeros((episodes, 1 + 3 * workers))
    delta[:, own] = 0.3 * a + rng.normal(size=a.shape)
    delta[:, peers] = 0.2 * a + rng.normal(size=a.shape)
    graph = graph_of(1 + 3 * workers, *((int(s), int(d)) for s, d in edges))
    gains = {
        "cone": cone_sums(graph, delta, [1])[:, 0] * a[:, 0],
        "full": return_sums(graph, delta)[:, 1] * a[:, 0],
        "lost": cone_sums(graph_of(graph.n, *((int(s), int(d)) for s, d in edges if d != peers[0])), delta, [1])[:, 0] * a[:, 0],
    }
    mean = {k: g.mean() for k, g in gains.items()}
    se = {k: g.std() / np.sqrt(episodes) for k, g in gains.items()}
    assert abs(mean["cone"] - 0.5) <= 4 * se["cone"]
    assert abs(mean["cone"] - mean["full"]) <= 3 * (gains["cone"] - gains["full"]).std() / np.sqrt(episodes)
    assert se["cone"] < se["full"] / 4
    assert mean["lost"] < 0.5 - 5 * se["lost"]
    assert abs(mean["lost"] - 0.3) <= 4 * se["lost"]


def trace_of() -> Trace:
    types = ["orchestrator_decision", "message", "message", "aggregate"]
    events = [Event(id=f"e{i}", t=i, type=kind, agent="lead") for i, kind in enumerate(types)]
    edges = [Edge("e0", "e1", "causal"), Edge("e0", "e2", "causal"), Edge("e1", "e3", "causal")]
    return Trace(trace_id="c", task_id="c", events=events, edges=edges, rewards={"team": 1.0})


def test_rows_of_a_trace():
    value = [0.5, 0.6, 0.4, 0.9, 0.0]  # delta 0.1, -0.2, 0.5, 0.1
    assert cone(trace_of(), value=value).of(0) == pytest.approx({"e0": 0.5, "e1": -0.1, "e2": 0.5, "e3": 0.1})
    assert cone(trace_of(), value=value, over="all").of(0) == pytest.approx({"e0": 0.5, "e1": 0.4, "e2": 0.6, "e3": 0.1})
    told = cone(trace_of(), value=value, q=[0.8, np.nan, np.nan, np.nan])
    assert told.of(0) == pytest.approx({"e0": 0.3, "e1": -0.1, "e2": 0.5, "e3": 0.1})
    assert told.notes["traces"][0]["by_q"] == 1
    with pytest.raises(InputError, match="over"):
        cone(trace_of(), value=value, over="everything")
