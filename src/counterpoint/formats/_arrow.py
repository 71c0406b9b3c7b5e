"""Traces as Arrow tables in Parquet files, and back.

Always true: `list(read(write(traces)))` equals the traces less `meta` and `contents`, integers staying integers. A number
that its column's type cannot hold as it is (an integer among doubles, a count beyond 64 bits) is also written, as JSON, in
`exact`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from counterpoint.errors import InputError, InvalidTrace
from counterpoint.formats._format import Data, Table
from counterpoint.formats._rows import EDGE_COLUMNS, EVENT_COLUMNS, TRACE_COLUMNS, json_cell, refuse_doubles, trace_row
from counterpoint.trace import Trace
from counterpoint.trace.records import FIELDS, Edge, Event, wire_name

__all__ = ["read", "write"]

_DOUBLES = ("t", "dur", "cost_usd", "logp", "at")
_COUNTS = ("tokens_in", "tokens_out", "turn")
_FLAGS = ("trusted", "ok")
_LARGEST = 1 << 63
_TOGETHER = "keep the three files of one export together"

_decode = msgspec.json.Decoder().decode


def _type(column: str) -> pa.DataType:
    if column in _DOUBLES:
        return pa.float64()
    if column in _COUNTS:
        return pa.int64()
    if column in _FLAGS:
        return pa.bool_()
    return pa.list_(pa.string()) if column == "options" else pa.string()


_EVENTS = pa.schema([*((c, _type(c)) for c in EVENT_COLUMNS), ("exact", pa.string())])
_EDGES = pa.schema([(c, pa.string()) for c in EDGE_COLUMNS])
_TRACES = pa.schema([(c, pa.int64() if c in ("events", "edges") else pa.string()) for c in TRACE_COLUMNS])


def write(traces: Sequence[Trace]) -> dict[str, Table]:
    """The three files."""
    refuse_doubles(traces)
    rows = [trace_row(t) for t in traces]
    try:
        own = [pa.array([row[k] for row in rows], field.type) for k, field in enumerate(_TRACES)]
        return {
            "events.parquet": _file(_EVENTS, [_events(t) for t in traces]),
            "edges.parquet": _file(_EDGES, [_edges(t) for t in traces]),
            "traces.parquet": _file(_TRACES, [pa.Table.from_arrays(own, schema=_TRACES)]),
        }
    except (pa.ArrowException, UnicodeEncodeError, OverflowError) as error:
        raise InvalidTrace("a field holds what its column cannot", why=str(error), fix="see `counterpoint check`") from error


def _file(schema: pa.Schema, tables: list[pa.Table]) -> Table:
    out = BytesIO()
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(len(table), 1))
    return Table(out.getvalue(), sum(len(t) for t in tables))


def _edges(trace: Trace) -> pa.Table:
    ends = [[getattr(e, end) for e in trace.edges] for end in ("src", "dst", "type")]
    return pa.table([pa.array([trace.trace_id] * len(trace.edges), pa.string()), *ends], schema=_EDGES)


def _events(trace: Trace) -> pa.Table:
    events = trace.events
    exact: dict[int, dict[str, Any]] = {}
    columns = [pa.array([trace.trace_id] * len(events), pa.string())]
    for field in FIELDS:
        column = wire_name(field)
        values: list[Any] = [getattr(e, field) for e in events]
        if column in _DOUBLES or column in _COUNTS:
            values = _numbers(column, values, exact)
        elif column == "reward":
            values = [json_cell(v, f"events[{i}].reward") for i, v in enumerate(values)]
        columns.append(pa.array(values, _type(column)))
    columns.append(pa.array([json_cell(e.extra, f"events[{i}]") for i, e in enumerate(events)], pa.string()))
    columns.append(pa.array([json_cell(exact.get(i), f"events[{i}]") for i in range(len(events))], pa.string()))
    return pa.Table.from_arrays(columns, schema=_EVENTS)


def _numbers(column: str, values: list[Any], exact: dict[int, dict[str, Any]]) -> list[Any]:
    """The values as the column can hold them; the others noted in `exact`."""
    wanted = float if column in _DOUBLES else int
    for i, value in enumerate(values):
        if value is None or (type(value) is wanted and (wanted is float or -_LARGEST <= value < _LARGEST)):
            continue
        exact.setdefault(i, {})[column] = value
        is_close = wanted is float and isinstance(value, int) and abs(value) < _LARGEST
        values[i] = float(value) if is_close else None
    return values


def read(files: Mapping[str, Data]) -> Iterator[Trace]:
    """The traces in the three files, in the order they were written."""
    events, edges, traces = (_rows(files, name, schema) for name, schema in _PARTS)
    by_trace: dict[str, tuple[list[Event], list[Edge]]] = {row["trace_id"]: ([], []) for row in traces}
    try:
        for row in events:
            by_trace[row["trace_id"]][0].append(_event(row))
        for row in edges:
            by_trace[row["trace_id"]][1].append(Edge(row["src"], row["dst"], row["type"]))
    except KeyError as error:
        raise InputError(f"the trace {error} is not in traces.parquet", fix=_TOGETHER) from error
    for row in traces:
        own_events, own_edges = by_trace[row["trace_id"]]
        fields: dict[str, Any] = {name: row[name] for name in ("trace_id", "task_id", "system", "topology")}
        fields |= {name: _json(row[name], f"traces.parquet.{name}") for name in ("rewards", "costs", "metrics")}
        yield Trace(**fields, events=own_events, edges=own_edges)


_PARTS = (("events.parquet", _EVENTS), ("edges.parquet", _EDGES), ("traces.parquet", _TRACES))


def _rows(files: Mapping[str, Data], name: str, schema: pa.Schema) -> list[dict[str, Any]]:
    if name not in files:
        raise InputError(f"{name} is missing", fix=_TOGETHER)
    try:
        table = pq.read_table(pa.BufferReader(files[name]), partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise InputError("is not a whole Parquet file", where=name, why=str(error)) from error
    if not table.schema.equals(schema):
        raise InputError("has other columns than an exported trace", where=name, fix=f"its columns are {', '.join(schema.names)}")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _json(text: str | None, where: str) -> Any:
    try:
        return None if text is None else _decode(text)
    except msgspec.MsgspecError as error:
        raise InputError("is not JSON", where=where, why=str(error)) from error


def _event(row: dict[str, Any]) -> Event:
    values: dict[str, Any] = {f: row[wire_name(f)] for f in FIELDS if row[wire_name(f)] is not None}
    if "reward" in values:
        values["reward"] = _json(values["reward"], "events.parquet.reward")
    values |= _json(row["exact"], "events.parquet.exact") or {}
    return Event(**values, extra=_json(row["extra"], "events.parquet.extra"))
