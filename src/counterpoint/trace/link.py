"""Edges by event id become edges by event number.

Always true: `link` looks at ids only; a reference to nowhere is -1, and a repeated id means its first event. Resolving ids
costs as much as decoding (string hashing, and cache misses at a million events), so there are four routes with one result:
edges that were decoded as numbers stay numbers (`edges.py`); where every id is one prefix and a number (`e1`, `e2`, ...),
plain integer arithmetic; else a dict for small traces, and Arrow's hash table for large ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.trace.edges import Edges, numbers, prefix_of
from counterpoint.trace.records import Edge, Event

# Below this many events a dict is as fast, and Arrow's import (0.2 s) would be the larger part.
_LARGE = 150_000

Ints = NDArray[np.int32]


class Links(NamedTuple):
    """Both ends of every edge as event numbers (-1: no such event), and the numbers of events whose id came before."""

    src: Ints
    dst: Ints
    repeated: Ints


def link(events: Sequence[Event], edges: Sequence[Edge]) -> Links:
    """Resolve the ends of edges against the ids of events."""
    if isinstance(edges, Edges) and edges.events is events:
        return Links(edges.src, edges.dst, np.empty(0, np.int32))
    ids = [e.id for e in events]
    ends = [e.src for e in edges], [e.dst for e in edges]
    return _by_number(ids, *ends) or (_by_dict if len(ids) < _LARGE else _by_arrow)(ids, *ends)


def _by_number(ids: list[str], src: list[str], dst: list[str]) -> Links | None:
    """The integer route, or None when some id is not the common prefix and a number, or the ids are too sparse."""
    n, m = len(ids), len(src)
    values = numbers(ids + src + dst, prefix_of(ids[0])) if n else None
    if values is None:
        return None
    low, high = int(values[:n].min()), int(values[:n].max())
    if high - low > 8 * n + 1024:
        return None
    # Numbers outside the range all meet at the last place, which no event holds.
    values = np.where((values < low) | (values > high), high + 1, values) - low
    number = np.arange(n, dtype=np.int32)
    place = np.full(high - low + 2, -1, np.int32)
    place[values[:n][::-1]] = number[::-1]
    places = place[values]
    return Links(places[n : n + m], places[n + m :], np.flatnonzero(places[:n] != number).astype(np.int32))


def _by_dict(ids: list[str], src: list[str], dst: list[str]) -> Links:
    index = dict(zip(ids, range(len(ids)), strict=True))
    repeated: list[int] = []
    if len(index) < len(ids):
        first: dict[str, int] = {}
        repeated = [i for i, name in enumerate(ids) if first.setdefault(name, i) != i]
        index = first
    try:
        ends = [np.array([index[name] for name in names], np.int32) for names in (src, dst)]
    except KeyError:
        ends = [np.array([index.get(name, -1) for name in names], np.int32) for names in (src, dst)]
    return Links(ends[0], ends[1], np.array(repeated, np.int32))


def _by_arrow(ids: list[str], src: list[str], dst: list[str]) -> Links:
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = pa.array(ids, pa.large_string()).dictionary_encode()
    places = codes.indices.to_numpy()
    first = np.empty(len(codes.dictionary), np.int32)
    first[places[::-1]] = np.arange(len(ids) - 1, -1, -1, dtype=np.int32)
    repeated = np.flatnonzero(first[places] != np.arange(len(ids)))
    ends = pa.array(src + dst, pa.large_string())
    code = pc.fill_null(pc.index_in(ends, options=pc.SetLookupOptions(value_set=codes.dictionary)), -1).to_numpy()
    numbers = np.where(code < 0, -1, first[code]).astype(np.int32)
    return Links(numbers[: len(src)], numbers[len(src) :], repeated.astype(np.int32))
