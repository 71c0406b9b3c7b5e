"""Edges by event id become edges by event number.

Always true: `link` looks at ids only; a reference to nowhere is -1, and a repeated id means its first event. Resolving ids
costs as much as decoding (string hashing, and cache misses at a million events), so there are three routes with one result:
where every id is one prefix and a number (`e1`, `e2`, ...), plain integer arithmetic; else a dict for small traces, and
Arrow's hash table for large ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.trace.records import Edge, Event

__all__ = ["Ints", "Links", "link"]

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
    ids = [e.id for e in events]
    ends = [e.src for e in edges], [e.dst for e in edges]
    return _by_number(ids, *ends) or (_by_dict if len(ids) < _LARGE else _by_arrow)(ids, *ends)


def _by_number(ids: list[str], src: list[str], dst: list[str]) -> Links | None:
    """The integer route, or None when some id is not the common prefix and a number without leading zeros."""
    n, m = len(ids), len(src)
    values = _numbers(ids + src + dst, ids[0].rstrip("0123456789")) if n else None
    if values is None:
        return None
    low, high = values[:n].min(), values[:n].max()
    if int(high) - int(low) > 8 * n + 1024 or values.min() < low or values.max() > high:
        return None  # too sparse for a table, or an edge to nowhere: a dict serves both
    values -= low
    number = np.arange(n, dtype=np.int32)
    if high - low == n - 1 and bool((values[:n] == number).all()):
        return Links(values[n : n + m].astype(np.int32), values[n + m :].astype(np.int32), number[:0])
    place = np.full(int(high) - int(low) + 1, -1, np.int32)
    place[values[:n][::-1]] = number[::-1]
    found = place[values]
    return Links(found[n : n + m], found[n + m :], np.flatnonzero(found[:n] != number).astype(np.int32))


def _numbers(names: list[str], prefix: str) -> NDArray[Any] | None:
    """The numbers behind a prefix, digit by digit over all names at once; None unless each is prefix + decimal digits."""
    n, lead = len(names), prefix.encode("utf-8", "surrogatepass")
    text = np.frombuffer("\n".join(names).encode("utf-8", "surrogatepass"), np.uint8)
    breaks = np.flatnonzero(text == 10)
    if len(breaks) != n - 1:
        return None
    start, end = np.empty(n, np.intp), np.empty(n, np.intp)
    start[0], end[-1] = 0, len(text)
    start[1:], end[:-1] = breaks + 1, breaks
    length = end - start - len(lead)
    shortest, longest = int(length.min()), int(length.max())
    if shortest < 1 or longest > 17 or any(bool((text[start + k] != byte).any()) for k, byte in enumerate(lead)):
        return None
    digit = text - np.uint8(48)
    has_leading_zero = bool(((digit[start + len(lead)] == 0) & (length > 1)).any())  # `e07` and `e7` are two ids of one number
    digits_in_lead = sum(48 <= byte <= 57 for byte in lead)
    if has_leading_zero or np.count_nonzero(digit < 10) != int(length.sum()) + n * digits_in_lead:
        return None
    size = np.int32 if longest <= 9 else np.int64
    values: Any = digit[end - 1].astype(size)
    for k in range(1, longest):
        # Where a name is shorter the byte belongs to its neighbour: it is read, and counts for nothing.
        values += digit[end - 1 - k] * (size(10**k) if k < shortest else (length > k) * size(10**k))
    return values


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
    found = np.where(code < 0, -1, first[code]).astype(np.int32)
    return Links(found[: len(src)], found[len(src) :], repeated.astype(np.int32))
