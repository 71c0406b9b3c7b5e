"""The event graph as arrays, and what can be asked of it in one ordered pass.

Always true: edges are held in an order in which every edge into an event stands before every edge out of it (events in
topological order, edges by destination), checked once at construction; so each question is one loop over the edges, linear in
events + edges. Traces are deep and narrow, which makes this faster than level-synchronous numpy at every size. All results
are event numbers: places in `trace.events`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import counterpoint.trace.kernels as kernels
from counterpoint.errors import InvalidTrace
from counterpoint.trace.edges import Edges
from counterpoint.trace.link import Ints, Links, link
from counterpoint.trace.records import Edge, Event
from counterpoint.trace.vocabulary import EDGE_TYPES

_TYPE_CODE = {name: code for code, name in enumerate(EDGE_TYPES)}
Mask = NDArray[np.bool_]


class Graph:
    """`n` events and their edges as int arrays, in topological order; `trace.graph` is that of a trace.

    >>> from counterpoint.testing import synthetic_trace
    >>> trace = synthetic_trace(3, 9)
    >>> length, path = trace.graph.critical_path([event.dur or 0 for event in trace.events])
    >>> bool(trace.graph.descendants(path[0])[path[-1]])
    True
    """

    def __init__(self, n: int, src: Ints, dst: Ints, *, order: Ints | None = None) -> None:
        """Edges `src[k] -> dst[k]` over events 0..n-1; raises `InvalidTrace` for a cycle.

        `order`, when given, is a known topological order; otherwise file order is used if it is one, or one is computed.
        """
        self.n = n
        if order is None and not bool((src < dst).all()):
            order = topological_order(n, src, dst)
        self.order: Ints = np.arange(n, dtype=np.int32) if order is None else order
        """Event numbers in topological order."""
        self.is_ordered = order is None
        """Whether file order is topological, as it is in nearly every recorded trace."""
        self.rank: Ints = self.order if order is None else _inverse(order)
        """Event number to its place in `order`."""
        key = self.rank[dst]
        self.by: NDArray[np.intp] | None = None
        """Edge numbers in pass order; None when they already stand in it."""
        if len(key) > 1 and bool((key[1:] < key[:-1]).any()):
            self.by = np.argsort(key, kind="stable")
            src, dst = src[self.by], dst[self.by]
        self.src, self.dst = src, dst

    @classmethod
    def of(cls, events: Sequence[Event], edges: Sequence[Edge]) -> Graph:
        """The graph of records; raises `InvalidTrace` for a repeated id, an edge to nowhere or a cycle."""
        return cls.of_links(events, edges, link(events, edges))

    @classmethod
    def of_links(cls, events: Sequence[Event], edges: Sequence[Edge], links: Links) -> Graph:
        """The same where the ids are resolved already."""
        if len(links.repeated):
            i = int(links.repeated[0])
            raise InvalidTrace(f"event id {events[i].id!r} is used twice", where=f"events[{i}]", fix="make ids unique")
        lost = np.flatnonzero((links.src < 0) | (links.dst < 0))
        if len(lost):
            k = int(lost[0])
            end = edges[k].src if links.src[k] < 0 else edges[k].dst
            raise InvalidTrace(f"there is no event {end!r}", where=f"edges[{k}]", fix="add the event or drop the edge")
        graph = cls(len(events), links.src, links.dst)
        graph._edges = edges
        return graph

    _edges: Sequence[Edge] = ()

    @property
    def m(self) -> int:
        """How many edges there are."""
        return len(self.src)

    @cached_property
    def edge_type(self) -> NDArray[np.uint8]:
        """Codes into `EDGE_TYPES`, in pass order."""
        if isinstance(self._edges, Edges):
            return self._edges.type if self.by is None else self._edges.type[self.by]
        codes = np.frombuffer(bytes(map(_TYPE_CODE.__getitem__, (e.type for e in self._edges))), np.uint8)
        return codes if self.by is None else codes[self.by]

    @cached_property
    def _pairs(self) -> tuple[list[int], list[int]]:
        # Python loops over lists of ints are several times faster than over arrays.
        return self.src.tolist(), self.dst.tolist()

    @cached_property
    def children(self) -> tuple[Ints, Ints]:
        """CSR of out-edges: `(start, targets)`; event i's targets are `targets[start[i]:start[i + 1]]`."""
        return _csr(self.n, self.src, self.dst)

    @cached_property
    def parents(self) -> tuple[Ints, Ints]:
        """CSR of in-edges, the same way; each event's parents in file order."""
        by, first = self._parent_edges
        return first, self.src[by]

    def in_degree(self) -> Ints:
        """How many edges come into each event."""
        return np.bincount(self.dst, minlength=self.n).astype(np.int32)

    def roots(self) -> Ints:
        """Events that depend on nothing recorded."""
        return np.flatnonzero(self.in_degree() == 0).astype(np.int32)

    # -- reach ---------------------------------------------------------------------------------------------------

    def reach(self, sources: Iterable[int]) -> Mask:
        """Which events any of the sources reaches, themselves included (a taint's upper bound)."""
        return self._spread(sources, forward=True)

    def descendants(self, event: int) -> Mask:
        """The cone of one event: all that depends on it, itself included."""
        return self._spread([event], forward=True)

    def ancestors(self, event: int) -> Mask:
        """All that one event depends on, itself included."""
        return self._spread([event], forward=False)

    def _spread(self, seeds: Iterable[int], *, forward: bool) -> Mask:
        marked = bytearray(self.n)
        for seed in seeds:
            if not 0 <= seed < self.n:
                raise IndexError(f"event number {seed} is not in 0..{self.n - 1}")
            marked[seed] = 1
        if kernels.pays(self.m):
            flags = np.frombuffer(marked, np.uint8)
            kernels.spread(self.src, self.dst, flags, forward)
        else:
            sources, targets = self._pairs
            if forward:
                for s, d in zip(sources, targets, strict=True):
                    if marked[s]:
                        marked[d] = 1
            else:
                for s, d in zip(reversed(sources), reversed(targets), strict=True):
                    if marked[d]:
                        marked[s] = 1
        return np.frombuffer(marked, np.bool_)

    def reached_by(self, sources: Sequence[int]) -> list[int]:
        """For each event, which of the sources reach it, as a bit set: bit k is source k."""
        bits = [0] * self.n
        for k, source in enumerate(sources):
            bits[source] |= 1 << k
        for s, d in zip(*self._pairs, strict=True):
            if bits[s]:
                bits[d] |= bits[s]
        return bits

    # -- depth and length ----------------------------------------------------------------------------------------

    def levels(self) -> Ints:
        """The depth of each event: edges on the longest way to it from a root."""
        return self.starts(np.ones(self.n)).astype(np.int32)

    def starts(self, weight: NDArray[Any]) -> NDArray[np.float64]:
        """The earliest start of each event when event i takes `weight[i]` and waits for all it depends on."""
        return self._heads(self._weight(weight, self.n)[self.src])

    @staticmethod
    def _weight(weight: NDArray[Any], n: int) -> NDArray[np.float64]:
        w = np.asarray(weight, np.float64)
        if w.shape != (n,):
            raise ValueError(f"weight has shape {w.shape}, not ({n},)")
        return w

    def _heads(self, along: NDArray[np.float64]) -> NDArray[np.float64]:
        """The weight of the heaviest way to each event, where edge k (in pass order) weighs `along[k]`."""
        if kernels.pays(self.m):
            head = np.zeros(self.n)
            kernels.longest(self.src, self.dst, along, head)
            return head
        heads = [0.0] * self.n
        for s, d, w in zip(*self._pairs, along.tolist(), strict=True):
            then = heads[s] + w
            if then > heads[d]:
                heads[d] = then
        return np.array(heads)

    def critical_path(self, weight: NDArray[Any]) -> tuple[float, list[int]]:
        """The heaviest chain of dependent events: its total weight and its events, first to last.

        L = max over paths of the sum of weights of the events on it. Among equals the earliest in file order is taken.
        """
        w = self._weight(weight, self.n)
        total, path, _ = self.heaviest(w, w[self.src])
        return total, path

    def heaviest(self, last: NDArray[Any], along: NDArray[Any]) -> tuple[float, list[int], list[float]]:
        """The heaviest chain where an event's weight depends on what follows: total, events, and what each event adds.

        An event adds `along[k]` when the chain leaves it by edge k (in pass order), and `last[i]` when the chain ends with it.
        """
        if not self.n:
            return 0.0, [], []
        last, along = self._weight(last, self.n), self._weight(along, self.m)
        head = self._heads(along)
        finish = head + last
        end = int(np.argmax(finish))
        path = self._way_back(head, along, end)
        adds = [*np.diff(head[path]).tolist(), float(last[end])]
        return float(finish[end]), path, adds

    def _way_back(self, head: NDArray[np.float64], along: NDArray[np.float64], end: int) -> list[int]:
        by, first = self._parent_edges
        if kernels.pays(self.m):
            path = np.empty(self.n, np.int32)
            path[0] = end
            n = kernels.way_back(first, self.src[by], along[by], head, path)
            return list(path[:n][::-1].tolist())
        heads, starts, sources, weights = head.tolist(), first.tolist(), self.src[by].tolist(), along[by].tolist()
        way = [end]
        while True:
            here = way[-1]
            for k in range(starts[here], starts[here + 1]):
                if heads[sources[k]] + weights[k] == heads[here]:  # exactly what the pass computed, weights of zero included
                    way.append(sources[k])
                    break
            else:
                return way[::-1]

    @cached_property
    def _parent_edges(self) -> tuple[NDArray[np.intp], Ints]:
        """Edge numbers by destination, then by source in file order; and where those into each event begin."""
        by_source = np.argsort(self.src, kind="stable")
        by = by_source[np.argsort(self.dst[by_source], kind="stable")]
        first = np.zeros(self.n + 1, np.int32)
        np.cumsum(np.bincount(self.dst, minlength=self.n), out=first[1:])
        return by, first


def _inverse(order: Ints) -> Ints:
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=order.dtype)
    return rank


def _csr(n: int, key: Ints, value: Ints) -> tuple[Ints, Ints]:
    start = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(key, minlength=n), out=start[1:])
    return start, value[np.argsort(key, kind="stable")]


def topological_order(n: int, src: Ints, dst: Ints) -> Ints:
    """Event numbers so that every edge points forward, file order among equals; raises `InvalidTrace` for a cycle."""
    import heapq

    degrees = np.bincount(dst, minlength=n).tolist()
    first, targets = (a.tolist() for a in _csr(n, src, dst))
    ready = [i for i in range(n) if not degrees[i]]
    out: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        out.append(i)
        for j in targets[first[i] : first[i + 1]]:
            degrees[j] -= 1
            if not degrees[j]:
                heapq.heappush(ready, j)
    if len(out) < n:
        loop = cycle(n, src, dst)
        raise InvalidTrace(
            "the edges form a cycle through events " + " -> ".join(f"[{i}]" for i in loop[:6]),
            where="edges",
            why=f"{len(loop)} events on it, {n - len(out)} events wait for it",
            fix="an event cannot depend on its own result; drop or turn one of these edges",
        )
    return np.array(out, np.int32)


def cycle(n: int, src: Ints, dst: Ints) -> list[int]:
    """One cycle as event numbers, or an empty list."""
    degrees = np.bincount(dst, minlength=n).tolist()
    first, targets = (a.tolist() for a in _csr(n, src, dst))
    ready = [i for i in range(n) if not degrees[i]]
    while ready:
        i = ready.pop()
        degrees[i] = -1
        for j in targets[first[i] : first[i + 1]]:
            degrees[j] -= 1
            if not degrees[j]:
                ready.append(j)
    stuck = [i for i in range(n) if degrees[i] > 0]
    if not stuck:
        return []
    # Every stuck event has a stuck parent, so walking backwards must come round.
    start, sources = (a.tolist() for a in _csr(n, dst, src))
    visits: dict[int, int] = {}
    walk: list[int] = []
    here = stuck[0]
    while here not in visits:
        visits[here] = len(walk)
        walk.append(here)
        here = next(p for p in sources[start[here] : start[here + 1]] if degrees[p] > 0)
    return walk[visits[here] :][::-1]
