"""Traces as Arrow tables in Parquet files, and back.

Always true: `list(read(write(traces)))` equals the traces less `meta` and `contents`, number for number. Events have the columns
of the store's lake (`trace/columns.py`), under the survey's names and with the trace's id; edges name their events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from counterpoint.errors import InputError, InvalidTrace
from counterpoint.formats._tables import EDGE_COLUMNS, TRACE_COLUMNS, json_cell, refuse_doubles, trace_row
from counterpoint.formats.format import Data, Table
from counterpoint.trace import Trace
from counterpoint.trace.columns import EVENT_SCHEMA, event_table, events_of
from counterpoint.trace.records import Edge, wire_name

_TOGETHER = "keep the three files of one export together"

_decode = msgspec.json.Decoder().decode

_EVENTS = pa.schema([("trace_id", pa.string()), *((wire_name(f.name), f.type) for f in EVENT_SCHEMA)])
_EDGES = pa.schema([(c, pa.string()) for c in EDGE_COLUMNS])
_TRACES = pa.schema([(c, pa.int64() if c in ("events", "edges") else pa.string()) for c in TRACE_COLUMNS])
_PARTS = (("events.parquet", _EVENTS), ("edges.parquet", _EDGES), ("traces.parquet", _TRACES))


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
        raise InvalidTrace("a field holds what its column cannot", why=str(error), fix="`counterpoint store check`") from error


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
    for i, event in enumerate(trace.events):  # what the columns would carry as null without a word
        json_cell(event.reward, f"events[{i}].reward")
        json_cell(event.extra, f"events[{i}]")
    ids = pa.array([trace.trace_id] * len(trace.events), pa.string())
    return pa.Table.from_arrays([ids, *event_table(trace.events).columns], schema=_EVENTS)


def read(files: Mapping[str, Data]) -> Iterator[Trace]:
    """The traces in the three files, in the order they were written."""
    events, edges, traces = (_table(files, name, schema) for name, schema in _PARTS)
    rows = traces.to_pylist()
    known = [row["trace_id"] for row in rows]
    events_by, edges_by = _parts(events, known), _parts(edges, known)
    for row in rows:
        fields: dict[str, Any] = {name: row[name] for name in ("trace_id", "task_id", "system", "topology")}
        fields |= {name: _json(row[name], f"traces.parquet.{name}") for name in ("rewards", "costs", "metrics")}
        own = events_by[row["trace_id"]].drop_columns("trace_id").rename_columns(EVENT_SCHEMA.names)
        ends = [edges_by[row["trace_id"]][name].to_pylist() for name in ("src", "dst", "type")]
        try:
            yield Trace(**fields, events=events_of(own), edges=list(map(Edge, *ends)))
        except msgspec.MsgspecError as error:
            raise InputError("a column of JSON text holds something else", where="events.parquet", why=str(error)) from error


def _parts(table: pa.Table, known: list[str]) -> dict[str, pa.Table]:
    """The rows of each trace, in their order."""
    codes = table["trace_id"].combine_chunks().dictionary_encode()
    names, code = codes.dictionary.to_pylist(), codes.indices.to_numpy()
    lost = set(names) - set(known)
    if lost:
        raise InputError(f"the trace {min(lost)!r} is not in traces.parquet", fix=_TOGETHER)
    by_name = {name: table.take(np.flatnonzero(code == k)) for k, name in enumerate(names)}
    return {name: by_name.get(name, table.slice(0, 0)) for name in known}


def _table(files: Mapping[str, Data], name: str, schema: pa.Schema) -> pa.Table:
    if name not in files:
        raise InputError(f"{name} is missing", fix=_TOGETHER)
    try:
        # In this thread: Arrow's own threads, started a moment before the process ends, abort it (1 run in 25, pyarrow alone).
        table = pq.ParquetFile(pa.BufferReader(files[name]), pre_buffer=False).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise InputError("is not a whole Parquet file", where=name, why=str(error)) from error
    if not table.schema.equals(schema):
        wanted = f"its columns are {', '.join(schema.names)}"
        raise InputError("does not have the columns of an exported trace", where=name, fix=wanted)
    return table


def _json(text: str | None, where: str) -> Any:
    try:
        return None if text is None else _decode(text)
    except msgspec.MsgspecError as error:
        raise InputError("is not JSON", where=where, why=str(error)) from error
