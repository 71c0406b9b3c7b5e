"""Events and edges as Arrow columns, and back.

Always true: `events_of(event_table(events)) == events`, number for number. A field is one typed column that any Parquet
reader understands; what a typed column cannot say stands beside it: `ints` has a bit for each number that was an integer
(JSON tells 1 from 1.0), and `exact` holds, as JSON, the few integers that fit no 64-bit column. Null is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import astuple, replace
from numpy.typing import NDArray

from counterpoint.trace.records import Edge, Event

NUMBERS = ("t", "dur", "cost_usd", "logp", "at")
"""Integer or float: float64, with a bit of `ints` in this order."""
COUNTS = ("tokens_in", "tokens_out", "turn")
FLAGS = ("trusted", "ok")
WORDS = ("type", "agent", "role", "from_", "to", "tool", "model", "task", "decision", "policy", "source")
"""Strings with few values, dictionary-encoded."""
TEXTS = ("id", "content_ref", "key", "error")
_JSONS = ("options", "reward", "extra")


def _arrow_type(name: str) -> pa.DataType:
    if name in NUMBERS:
        return pa.float64()
    if name in COUNTS:
        return pa.int64()
    return pa.bool_() if name in FLAGS else pa.string()


EVENT_SCHEMA = pa.schema(
    [pa.field(name, _arrow_type(name)) for name in Event.__struct_fields__]
    + [pa.field("ints", pa.uint8()), pa.field("exact", pa.string())]
)
EDGE_SCHEMA = pa.schema([("src", pa.int32()), ("dst", pa.int32()), ("type", pa.string())])

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_INT64 = 2**63

Column = Sequence[Any]
Exact = dict[int, dict[str, int]]


# -- records to columns ------------------------------------------------------------------------------------------


def event_table(events: Sequence[Event]) -> pa.Table:
    """All columns of these events."""
    n = len(events)
    columns: list[Column] = list(zip(*map(astuple, events), strict=True)) or [()] * len(Event.__struct_fields__)
    ints = np.zeros(n, np.uint8)
    exact: Exact = {}
    arrays = {}
    for name, values in zip(Event.__struct_fields__, columns, strict=True):
        arrays[name] = _array(name, values, ints, exact)
    arrays["ints"] = array_of(ints, pa.uint8())
    notes = [None] * n if not exact else [_encode(exact[i]).decode() if i in exact else None for i in range(n)]
    arrays["exact"] = pa.array(notes, pa.string())
    return pa.table([arrays[f.name] for f in EVENT_SCHEMA], schema=EVENT_SCHEMA)


def array_of(values: NDArray[Any], type_: pa.DataType) -> pa.Array:
    """An array of numpy as a column: `pa.array` looks for masked ones, which are slow to import."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values, type_.to_pandas_dtype()))])


def present(table: pa.Table) -> int:
    """Which columns of an event table say anything, a bit each in the schema's order."""
    n = table.num_rows
    bits = sum(1 << i for i, name in enumerate(EVENT_SCHEMA.names) if table[name].null_count < n)
    return bits if table["ints"].to_numpy().any() else bits & ~(1 << EVENT_SCHEMA.names.index("ints"))


def columns_in(bits: int) -> list[str]:
    """The names of the columns that `present` has found."""
    return [name for i, name in enumerate(EVENT_SCHEMA.names) if bits >> i & 1]


def _array(name: str, values: Column, ints: NDArray[np.uint8], exact: Exact) -> pa.Array:
    if values.count(None) == len(values):
        return pa.nulls(len(values), _arrow_type(name))
    if name in NUMBERS:
        return _numbers(name, values, ints, exact)
    if name in COUNTS:
        return _counts(name, values, exact)
    if name in _JSONS:
        return pa.array([None if v is None else _encode(v).decode() for v in values], pa.string())
    return pa.array(values, _arrow_type(name))


def _numbers(name: str, values: Column, ints: NDArray[np.uint8], exact: Exact) -> pa.Array:
    if int in set(map(type, values)):
        bit = np.uint8(1 << NUMBERS.index(name))
        is_int = np.fromiter((type(v) is int for v in values), np.bool_, len(values))
        values = [_as_float(name, i, v, exact) if type(v) is int else v for i, v in enumerate(values)]
        # What is in `exact` alone leaves a gap here, and the bit of a gap is never read.
        is_int &= np.fromiter((v is not None for v in values), np.bool_, len(values))
        ints[is_int] |= bit
    return pa.array(values, pa.float64())


def _as_float(name: str, i: int, value: int, exact: Exact) -> float | None:
    try:
        near = float(value)
    except OverflowError:
        exact.setdefault(i, {})[name] = value
        return None
    if int(near) != value:
        exact.setdefault(i, {})[name] = value
    return near


def _counts(name: str, values: Column, exact: Exact) -> pa.Array:
    try:
        return pa.array(values, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        fits = [v if v is None or -_INT64 <= v < _INT64 else None for v in values]
        for i, (value, fit) in enumerate(zip(values, fits, strict=True)):
            if value is not fit:
                exact.setdefault(i, {})[name] = value
        return pa.array(fits, pa.int64())


def edge_table(edges: Sequence[Edge], src: NDArray[np.int32], dst: NDArray[np.int32]) -> pa.Table:
    """Edges as event numbers, in order."""
    types = pa.array([e.type for e in edges], pa.string())
    return pa.table([array_of(src, pa.int32()), array_of(dst, pa.int32()), types], schema=EDGE_SCHEMA)


# -- columns to records ------------------------------------------------------------------------------------------


def events_of(table: pa.Table) -> list[Event]:
    """The events of a table; string columns may be dictionary-encoded, and columns that are not there are absent."""
    n = table.num_rows
    if not n:
        return []
    arrays = {name: _one_chunk(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    arrays = {name: array for name, array in arrays.items() if array.null_count < n}
    ints = arrays["ints"].to_numpy() if "ints" in arrays else np.zeros(n, np.uint8)
    names = [name for name in Event.__struct_fields__ if name in arrays]
    values = {name: _list(name, arrays[name], ints) for name in names}
    events = _build(values, {name: _valid(arrays[name]) for name in names if arrays[name].null_count}, n)
    for i, note in enumerate(arrays["exact"].to_pylist() if "exact" in arrays else ()):
        if note is not None:
            events[i] = replace(events[i], **_decode(note))
    return events


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _valid(array: pa.Array) -> NDArray[np.bool_]:
    """Which rows have a value, from the bitmap itself: asking Arrow's compute layer costs more than the answer."""
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].view(np.bool_)


def _build(values: dict[str, list[Any]], gaps: dict[str, NDArray[np.bool_]], n: int) -> list[Event]:
    """Events, made in groups that have the same fields: few keywords per call are several times faster than all of them."""
    shape = np.zeros(n, np.int64)
    for bit, valid in enumerate(gaps.values()):
        shape |= valid.astype(np.int64) << bit
    shapes = np.unique(shape)
    out: list[Any] = [None] * n
    for one in shapes.tolist():
        absent = {name for bit, name in enumerate(gaps) if not one >> bit & 1}
        names = tuple(name for name in values if name not in absent)
        if len(shapes) == 1:
            return _builder(names)(*(values[name] for name in names))
        rows = np.flatnonzero(shape == one).tolist()
        if len(rows) == 1:
            out[rows[0]] = Event(**{"t": 0} | {name: values[name][rows[0]] for name in names})
            continue
        pick = itemgetter(*rows)
        for i, event in zip(rows, _builder(names)(*(pick(values[name]) for name in names)), strict=True):
            out[i] = event
    return out


@lru_cache(maxsize=1024)
def _builder(fields: tuple[str, ...]) -> Callable[..., list[Event]]:
    """A comprehension that makes events from these columns: a call with literal keywords is the fastest way to a record."""
    names = ", ".join(f"v{i}" for i in range(len(fields)))
    keywords = ", ".join(f"{field}=v{i}" for i, field in enumerate(fields))
    # A default for `t`, which is required and may stand in `exact` alone.
    missing = "" if "t" in fields else ", t=0"
    body = f"lambda {names}: [Event({keywords}{missing}) for {names} in zip({names})]"
    built: Callable[..., list[Event]] = eval(body, {"Event": Event, "zip": zip})
    return built


def _list(name: str, array: pa.Array, ints: NDArray[np.uint8]) -> list[Any]:
    """The values of a column; what stands in its gaps is not looked at."""
    if name in NUMBERS:
        return _number_list(array, (ints >> NUMBERS.index(name)) & 1)
    if pa.types.is_dictionary(array.type):
        return _words(array)
    if name in COUNTS:
        counts: list[int] = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array)].tolist()
        return counts
    values: list[Any] = array.to_pylist()
    return [None if v is None else _decode(v) for v in values] if name in _JSONS else values


def codes_of(array: pa.DictionaryArray) -> NDArray[np.int32]:
    """The codes of a dictionary column (int32 indices), -1 for its gaps."""
    indices = array.indices
    codes = np.frombuffer(indices.buffers()[1], np.int32)[indices.offset :][: len(array)]
    return np.where(_valid(indices), codes, np.int32(-1)) if indices.null_count else codes


def _words(array: pa.DictionaryArray) -> list[Any]:
    words = [*array.dictionary.to_pylist(), None]
    return list(map(words.__getitem__, codes_of(array).tolist()))


def _number_list(array: pa.Array, is_int: NDArray[Any]) -> list[Any]:
    numbers = np.frombuffer(array.buffers()[1], np.float64)[array.offset : array.offset + len(array)]
    values: list[Any] = numbers.tolist()
    if not is_int.any():
        return values
    return [int(v) if flag else v for v, flag in zip(values, is_int.tolist(), strict=True)]


def edges_of(table: pa.Table, ids: list[str]) -> list[Edge]:
    """The edges of a table, with event numbers looked up in `ids`."""
    name = ids.__getitem__
    types = _one_chunk(table["type"])
    words = _words(types) if pa.types.is_dictionary(types.type) else types.to_pylist()
    return list(map(Edge, map(name, table["src"].to_pylist()), map(name, table["dst"].to_pylist()), words))
