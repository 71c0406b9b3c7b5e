"""Bytes to answers: critical path, cone, reach; end to end and the passes alone."""

from __future__ import annotations

import json
from typing import Any

import networkx as nx
import numba  # noqa: F401 - the `fast` extra: where it is loaded, passes are compiled
import numpy as np
import rustworkx as rx
from _timing import arguments, interleaved, report, row

from counterpoint.testing import SIZES, synthetic_trace
from counterpoint.trace import Trace, decode, encode, kernels


def sources(n: int, k: int) -> list[int]:
    """Where taint might begin: k events spread over the run."""
    return np.linspace(n // 50, n - n // 50 - 1, min(k, n // 2)).astype(int).tolist()


def ours(data: bytes) -> tuple[Any, ...]:
    """What a user of Counterpoint writes."""
    trace = decode(data)
    graph, n = trace.graph, len(trace.events)
    path = graph.critical_path(np.array([e.dur or 0 for e in trace.events]))
    reach = [int(graph.reach(sources(n, k)).sum()) for k in (10, 1000)]
    return path[0], int(graph.descendants(n // 3).sum()), *reach, trace


def networkx_graph(document: dict[str, Any]) -> tuple[nx.DiGraph, list[str]]:
    graph = nx.DiGraph()
    graph.add_nodes_from((e["id"], e) for e in document["events"])
    graph.add_edges_from((e["src"], e["dst"]) for e in document["edges"])
    return graph, [e["id"] for e in document["events"]]


def networkx_path(graph: nx.DiGraph) -> float:
    """networkx weighs edges, so an event's duration goes on the edges into it; the first event's own is added."""
    for _, dst, data in graph.edges(data=True):
        data["w"] = graph.nodes[dst].get("dur", 0)
    path = nx.dag_longest_path(graph, weight="w")
    return sum(graph.nodes[name].get("dur", 0) for name in path)


def networkx_reach(graph: nx.DiGraph, starts: list[str]) -> int:
    found: set[str] = set(starts)
    for start in starts:
        found |= nx.descendants(graph, start)
    return len(found)


def networkx_reach_at_once(graph: nx.DiGraph, starts: list[str]) -> int:
    """The same asked cleverly: one extra event before all starts."""
    graph.add_edges_from(("*", start) for start in starts)
    found = len(nx.descendants(graph, "*"))
    graph.remove_node("*")
    return found


def theirs(data: bytes, reach: Any) -> tuple[Any, ...]:
    """What a user writes with json and networkx."""
    document = json.loads(data)
    graph, ids = networkx_graph(document)
    n = len(ids)
    cone = 1 + len(nx.descendants(graph, ids[n // 3]))
    found = [reach(graph, [ids[i] for i in sources(n, k)]) for k in (10, 1000)]
    return networkx_path(graph), cone, *found, document


def end_to_end(name: str, repeats: int) -> list[dict[str, Any]]:
    data = encode(synthetic_trace(*SIZES[name], "centralized", 0))
    a, b = ours(data), theirs(data, networkx_reach)
    assert abs(a[0] - b[0]) < 1e-6, "the critical paths differ"
    assert a[1:4] == b[1:4], "reach differs"
    work = {
        "ours": lambda: ours(data),
        "plain": lambda: theirs(data, networkx_reach),
        "clever": lambda: theirs(data, networkx_reach_at_once),
    }
    took = interleaved(work, repeats, "cpu")
    what = f"bytes to path, cone, reach 10 and 1,000, {name}"
    return [
        row(f"{what} | json + networkx", took["ours"] * 1e3, took["plain"] * 1e3, "ms CPU", target=8),
        row(f"{what} | the same, reach from one extra node", took["ours"] * 1e3, took["clever"] * 1e3, "ms CPU"),
    ]


def plain(call: Any, *arguments: Any) -> Any:
    """The same call as if numba were not installed."""
    pays, kernels.pays = kernels.pays, lambda edges: False
    try:
        return call(*arguments)
    finally:
        kernels.pays = pays


def passes(name: str, repeats: int) -> list[dict[str, Any]]:
    """The questions alone, on graphs that are ready."""
    trace: Trace = synthetic_trace(*SIZES[name], "centralized", 0)
    graph, n = trace.graph, len(trace.events)
    document = json.loads(encode(trace))
    net, ids = networkx_graph(document)
    rust = rx.PyDiGraph()
    rust.add_nodes_from(list(range(n)))
    rust.add_edges_from_no_data(list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)))
    dur = np.array([e.dur or 0 for e in trace.events])
    weight = dur.tolist()
    ten = sources(n, 10)
    work = {
        "path ours": lambda: graph.critical_path(dur),
        "path plain": lambda: plain(graph.critical_path, dur),
        "path networkx": lambda: networkx_path(net),
        "path rustworkx": lambda: rx.dag_weighted_longest_path(rust, lambda s, d, _: float(weight[d])),
        "cone ours": lambda: graph.descendants(n // 3),
        "cone networkx": lambda: nx.descendants(net, ids[n // 3]),
        "cone rustworkx": lambda: rx.descendants(rust, n // 3),
        "reach 10 ours": lambda: graph.reach(ten),
        "reach 10 plain": lambda: plain(graph.reach, ten),
        "reach 10 networkx": lambda: networkx_reach(net, [ids[i] for i in ten]),
        "reach 10 rustworkx": lambda: set().union(*(rx.descendants(rust, i) for i in ten)),
    }
    took = interleaved(work, repeats, "cpu")
    out = []
    for what in ("path", "reach 10"):
        for peer in ("networkx", "rustworkx"):
            mine, other = took[f"{what} plain"] * 1e3, took[f"{what} {peer}"] * 1e3
            out.append(row(f"{what} alone, {name}, without numba | {peer}", mine, other, "ms CPU"))
    for what, by_networkx, by_rustworkx in (("path", 30, 1.5), ("cone", 30, 1.5), ("reach 10", 30, 1.5)):
        for peer, target in (("networkx", by_networkx), ("rustworkx", by_rustworkx)):
            mine, other = took[f"{what} ours"] * 1e3, took[f"{what} {peer}"] * 1e3
            out.append(row(f"{what} alone, {name} | {peer}", mine, other, "ms CPU", target=target))
    return out


def growth(*, quick: bool) -> dict[str, Any]:
    """How the whole grows from 44,000 events to a million: at most 25 times for 23 times the events."""
    small, large = ("k26", "x10") if quick else ("x10", "m1")
    data = {name: encode(synthetic_trace(*SIZES[name], "centralized", 0)) for name in (small, large)}
    ours(data[large])
    took = {name: interleaved({"ours": lambda d=data[name]: ours(d)}, 3 if name == "m1" else 9, "cpu")["ours"] for name in data}
    limit = 25.0 if not quick else None
    return row(f"bytes to answers, {large} over {small}", took[large] / took[small], None, "times", limit=limit)


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    rows = [*end_to_end("k26", 9), *passes("k26", 15)]
    if not asked.quick:
        rows += [*end_to_end("x10", 1), *passes("x10", 5)]
    report("Graph", [*rows, growth(quick=asked.quick)], as_json=asked.json)


if __name__ == "__main__":
    main()
