"""Columns and fields of a trace as small JSON, for the one-file page: what is alike stands together, and nothing is said twice.

Always true: what is unpacked (`web/src/dense.ts`) is what was packed, to the last bit, but for `content_ref`: a text that is in
the file needs no hash, and the hash of one that is not there leads nowhere. A field that an event does not have stays absent.

A list of values is one of

    {"v": [...]}                 the values as they are; null is NaN in a column
    {"d": [...]}                 whole numbers: the first, then each less the one before
    {"of": [...], "c": [...]}    the distinct values, and the place of each among them
    {"sum": ["tokens_in", ...]}  of a column: the sum of these fields of an event, NaN for `dur` where it has none
    {"same": true}               of a field: what the columns say of the event (`same` in `fields`)

With `s` beside them, numbers are to be divided by it. A field that not every event has carries `at`, the numbers of those that
do, as in `d`. Of the edges `src` counts backwards from `dst`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SCALES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_EXACT = float(1 << 53)
_SUMS: dict[str, tuple[str, ...]] = {"dur": ("dur",), "tokens": ("tokens_in", "tokens_out"), "cost": ("cost_usd",)}
_LEFT_OUT = "content_ref"

Packed = dict[str, Any]
Arrays = Mapping[str, NDArray[np.generic]]


def numbers(values: NDArray[Any]) -> Packed:
    """A list of numbers, by the shortest of the ways that give back every bit."""
    wide = values.astype(np.float64)
    if np.isfinite(wide).all() and (not len(wide) or float(np.abs(wide).max()) < _EXACT / _SCALES[-1]):
        for scale in _SCALES:
            whole = np.rint(wide * scale)
            if np.array_equal((whole / scale).astype(values.dtype), values):
                return _shortest(whole.astype(np.int64).tolist()) | ({} if scale == 1 else {"s": scale})
    return {"v": [None if x != x else x for x in wide.tolist()]}


def _shortest(whole: list[int]) -> Packed:
    """Whole numbers as they are, as steps from one to the next, or by a table."""
    steps = [x - before for before, x in zip([0, *whole], whole, strict=False)]
    return min({"v": whole}, {"d": steps}, _table(whole), key=_length)


def _length(packed: Packed) -> int:
    """How long it is written."""
    return sum(len(str(x)) for values in packed.values() for x in values)


def listed(values: Sequence[Any]) -> Packed:
    """A list of any values: with a table of the distinct ones where they repeat."""
    kinds = {type(x) for x in values}
    if values and kinds <= {int, float}:
        if kinds == {int} and max(map(abs, values)) >= _EXACT:
            return {"v": list(values)}
        return numbers(np.array(values, np.float64))
    return _table(values) if kinds <= {str, bool, type(None)} else {"v": list(values)}


def _table(values: Sequence[Any]) -> Packed:
    distinct = {(type(x), x): x for x in values}
    if 2 * len(distinct) > len(values):
        return {"v": list(values)}
    place = {key: k for k, key in enumerate(distinct)}
    return {"of": list(distinct.values()), "c": [place[type(x), x] for x in values]}


def columns(arrays: Arrays, ids: Sequence[str], rows: Sequence[Mapping[str, Any]] | None = None) -> Packed:
    """The arrays of a trace; `rows` are the fields of its events where these travel too."""
    out = {}
    for name, array in arrays.items():
        if name in _SUMS and rows is not None and _is_sum(array, rows, _SUMS[name]):
            out[name] = {"sum": list(_SUMS[name])}
        elif name == "src":
            out[name] = numbers(arrays["dst"].astype(np.int64) - array.astype(np.int64))
        else:
            out[name] = numbers(array)
    return {"events": len(ids), "edges": len(arrays["src"]), "ids": _ids(ids), "columns": out}


def _is_sum(array: NDArray[Any], rows: Sequence[Mapping[str, Any]], names: tuple[str, ...]) -> bool:
    if any(not isinstance(row.get(name, 0), int | float) or isinstance(row.get(name), bool) for row in rows for name in names):
        return False
    missing = float("nan") if names == ("dur",) else 0.0
    summed = [float(sum(row.get(name) or 0 for name in names)) if any(name in row for name in names) else missing for row in rows]
    return np.array_equal(np.array(summed, np.float64).astype(array.dtype), array, equal_nan=True)


def _ids(ids: Sequence[str]) -> Packed:
    """Ids as a stem and a number, where they are that: e1, e2, e17."""
    stems = [name.rstrip("0123456789") for name in ids]
    tails = [name[len(stem) :] for name, stem in zip(ids, stems, strict=True)]
    if all(tail and len(tail) < 15 and (tail == "0" or tail[0] != "0") for tail in tails) and ids:
        return {"stem": _table(stems), "number": numbers(np.array([int(tail) for tail in tails], np.int64))}
    return {"v": list(ids)}


def fields(rows: Sequence[Mapping[str, Any]], same: Mapping[str, Sequence[Any]]) -> Packed:
    """The fields of events by name, in the order in which they are first met; `same` are columns that a field may equal."""
    names = dict.fromkeys(name for row in rows for name in row if name != _LEFT_OUT)
    out: Packed = {}
    for name in names:
        at = [n for n, row in enumerate(rows) if name in row]
        values = [rows[n][name] for n in at]
        if name in same and _equal(values, [same[name][n] for n in at]):
            packed: Packed = {"same": True}
        else:
            packed = listed(values)
        if len(at) < len(rows):
            packed["at"] = [n - before for before, n in zip([0, *at], at, strict=False)]
        out[name] = packed
    return out


def _equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Equal as JSON writes them: 1 and 1.0 are told apart by nobody who reads it, True and 1 are."""
    return all(x == y and isinstance(x, bool) == isinstance(y, bool) for x, y in zip(a, b, strict=True))
