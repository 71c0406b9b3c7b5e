"""Writing a part of the lake: a few Parquet files that hold whole traces.

Always true: a trace lies in one row group of each file, and its rows stand together in order; a trace of `GROUP_ROWS` events
or more has a row group to itself, smaller neighbours share one, so that a store of small traces is not all footers. Every
part has the same columns. A part is invisible until the log names it: what a crash leaves behind is only a stray file.

    <part>.traces.parquet     a row per trace: ids, counts, rewards, costs, metrics and meta as JSON
    <part>.events.parquet     a row per event, `n` its number in the trace
    <part>.edges.parquet      src and dst as event numbers
    <part>.contents.parquet   texts by reference, where there are any
"""

from __future__ import annotations

import os
import time
import uuid
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

import counterpoint.store.disk as disk
from counterpoint.store.log import Part, Row, Span
from counterpoint.trace.columns import COUNTS, EDGE_SCHEMA, EVENT_SCHEMA, WORDS, array_of

GROUP_ROWS = 4096
_GROUP_TEXT = 1 << 20

_ID = pa.field("trace_id", pa.string())
SCHEMAS = {
    "traces": pa.schema(
        [
            _ID,
            ("task_id", pa.string()),
            ("system", pa.string()),
            ("topology", pa.string()),
            ("n_events", pa.int32()),
            ("n_edges", pa.int32()),
            ("n_agents", pa.int32()),
            ("tokens", pa.float64()),
            ("wall_clock_s", pa.float64()),
            ("team_reward", pa.float64()),
            ("errors", pa.int32()),
            ("source", pa.string()),
            ("added", pa.timestamp("us", tz="UTC")),
            ("rewards", pa.string()),
            ("costs", pa.string()),
            ("metrics", pa.string()),
            ("meta", pa.string()),
        ]
    ),
    "events": pa.schema([_ID, ("n", pa.int32()), *EVENT_SCHEMA]),
    "edges": pa.schema([_ID, *EDGE_SCHEMA]),
    "contents": pa.schema([_ID, ("ref", pa.string()), ("text", pa.large_string())]),
}
# Encodings that every reader of the last years knows; chosen by bytes per event on recorded traces.
_DELTA = "DELTA_BINARY_PACKED"
_LEVEL = 3


def _levels(kind: str, special: dict[str, int]) -> dict[str, int]:
    return dict.fromkeys(SCHEMAS[kind].names, _LEVEL) | special


_OPTIONS: dict[str, dict[str, Any]] = {
    "traces": {"use_dictionary": True},
    "events": {
        "use_dictionary": ["trace_id", "ints", *WORDS],
        "column_encoding": {
            "n": _DELTA,
            "id": "DELTA_BYTE_ARRAY",
            **dict.fromkeys(COUNTS, _DELTA),
        },
        # Hashes are incompressible but for their spelling: level 1 packs hex into half, higher levels chase chance matches.
        "compression_level": _levels("events", {"content_ref": 1, "key": 9}),
    },
    "edges": {"use_dictionary": ["trace_id", "type"], "column_encoding": {"src": _DELTA, "dst": _DELTA}},
    "contents": {"use_dictionary": ["trace_id"]},
}


class Unit(msgspec.Struct):
    """One trace on its way into a part: its row (spans still empty) and its tables, without `trace_id`."""

    row: Row
    events: pa.Table
    edges: pa.Table
    contents: pa.Table | None
    meta: str | None


def part_path(lake: Path, part: str, kind: str) -> Path:
    """The file of a part that holds one kind of table."""
    return lake / f"{part}.{kind}.parquet"


NOTE = "counterpoint.part"


class Note(msgspec.Struct, kw_only=True):
    """What a part says of itself, in the footer of its table of traces: enough to do without the log."""

    at: float
    """When it was written, seconds since the epoch."""
    digests: list[str]
    """Of its traces, in order."""


class MissingPart(Exception):
    """A part that was to be committed is no longer on disk."""


def is_whole(lake: Path, part: Part) -> bool:
    """Whether every file of a part is there. Asked under the log's lock, where strays are deleted too, it stays so."""
    return all(part_path(lake, part.name, kind).is_file() for kind in part.sums)


def segment_sum(file: BinaryIO, begin: int, end: int) -> int:
    """CRC-32 of some bytes of a file."""
    file.seek(begin)
    return zlib.crc32(file.read(end - begin))


class _File:
    """One Parquet file being written, with traces packed into row groups."""

    def __init__(self, path: Path, kind: str, limit: int) -> None:
        self.path, self.kind, self._limit = path, kind, limit
        self._writer: pq.ParquetWriter | None = None
        self._ends: list[int] = []
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_weight = self._groups = 0

    def add(self, table: pa.Table, weight: int) -> Span:
        """Take a trace's rows; returns where they will lie."""
        if not table.num_rows:
            return Span(0, 0, 0)
        if self._pending and self._pending_weight + weight > self._limit:
            self._flush()
        span = Span(self._groups, self._pending_rows, table.num_rows)
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self._pending_weight += weight
        return span

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._sink = pa.OSFile(os.fspath(self.path), "wb")
            self._writer = pq.ParquetWriter(
                self._sink,
                SCHEMAS[self.kind],
                compression="zstd",
                write_statistics=["trace_id"],
                write_page_checksum=True,
                store_schema=False,
                **({"compression_level": _LEVEL} | _OPTIONS[self.kind]),
            )
        return self._writer

    def _flush(self) -> None:
        table = pa.concat_tables(self._pending)
        self._open().write_table(table, row_group_size=table.num_rows)
        self._ends.append(self._sink.tell())
        self._groups += 1
        self._pending, self._pending_rows, self._pending_weight = [], 0, 0

    def close(self, notes: dict[str, str] | None = None) -> list[tuple[int, int]] | None:
        """Write the rest and the notes, make it durable; the checksums of its segments, or None when there is no file."""
        if self._pending:
            self._flush()
        if self._writer is None and self.kind == "contents":
            return None  # most traces carry no texts; the other files are there even when empty
        writer = self._open()
        if notes:
            writer.add_key_value_metadata(notes)
        writer.close()
        self._sink.close()
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
            ends = [*self._ends, os.fstat(file.fileno()).st_size]
            return [(end, segment_sum(file, begin, end)) for begin, end in zip([0, *ends], ends, strict=False)]

    def abandon(self) -> None:
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()
            with suppress(Exception):
                self._sink.close()
        disk.remove(self.path)


class PartWriter:
    """Writes traces into one new part; `close` gives the part and its rows for the log."""

    def __init__(self, lake: Path, day: str) -> None:
        name = uuid.uuid4().hex
        self._lake, self._day = lake, day
        # The shard only spreads files over folders, so that no folder grows without bound.
        self.name = f"day={day}/shard={name[0]}/{name}"
        disk.make_folder(part_path(lake, self.name, "traces").parent)
        limits = {"traces": GROUP_ROWS, "events": GROUP_ROWS, "edges": GROUP_ROWS, "contents": _GROUP_TEXT}
        self._files = {kind: _File(part_path(lake, self.name, kind), kind, limits[kind]) for kind in SCHEMAS}
        self.rows: list[Row] = []
        self.events = 0
        self._has_rewards = False

    def add(self, unit: Unit) -> None:
        """Take one trace."""
        row = unit.row
        n = unit.events.num_rows
        numbered = unit.events.add_column(0, "n", array_of(np.arange(n, dtype=np.int32), pa.int32()))
        head = self._files["traces"].add(_head(row, unit.meta, n, unit.edges.num_rows), 1)
        spans = {
            "events": self._files["events"].add(_with_trace_id(row.id, numbered, "events"), n),
            "edges": self._files["edges"].add(_with_trace_id(row.id, unit.edges, "edges"), unit.edges.num_rows),
        }
        contents = None
        if unit.contents is not None:
            contents = self._files["contents"].add(_with_trace_id(row.id, unit.contents, "contents"), unit.contents.nbytes)
        self.rows.append(replace(row, part=self.name, head=len(self.rows), contents=contents, **spans))
        assert head.rows == 1
        self.events += n
        self._has_rewards |= unit.events["reward"].null_count < n

    def close(self) -> Part:
        """Make the part durable. The table of traces comes last: it also says what the log says of the part."""
        closed = {kind: file.close() for kind, file in self._files.items() if kind != "traces"}
        sums = {kind: spans for kind, spans in closed.items() if spans is not None}
        note = Note(at=time.time(), digests=[row.digest for row in self.rows])
        sums["traces"] = self._files["traces"].close({NOTE: _json(note)}) or []
        folder = part_path(self._lake, self.name, "traces").parent
        disk.sync_folder(folder)
        return Part(
            name=self.name,
            day=self._day,
            traces=len(self.rows),
            events=self.events,
            bytes=sum(spans[-1][0] for spans in sums.values()),
            sums=sums,
            has_rewards=self._has_rewards,
        )

    def abandon(self) -> None:
        """Remove what was written."""
        for file in self._files.values():
            with suppress(OSError):
                file.abandon()


def _with_trace_id(trace_id: str, table: pa.Table, kind: str) -> pa.Table:
    named = table.add_column(0, "trace_id", pa.repeat(pa.scalar(trace_id, pa.string()), table.num_rows))
    return named if named.schema.equals(SCHEMAS[kind]) else named.cast(SCHEMAS[kind])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _head(row: Row, meta: str | None, n_events: int, n_edges: int) -> pa.Table:
    team = row.rewards.get("team")
    values = {
        "trace_id": row.id,
        "task_id": row.task,
        "system": row.system,
        "topology": row.topology,
        "n_events": n_events,
        "n_edges": n_edges,
        "n_agents": row.agents,
        "tokens": _float(row.tokens),
        "wall_clock_s": _float(row.wall_clock_s),
        "team_reward": _float(team),
        "errors": row.problems,
        "source": row.source,
        "added": round(row.added * 1e6),
        "rewards": _json(row.rewards),
        "costs": _json(row.costs),
        "metrics": None if row.metrics is None else _json(row.metrics),
        "meta": meta,
    }
    return pa.table({k: [v] for k, v in values.items()}, schema=SCHEMAS["traces"])


def _float(value: int | float | None) -> float | None:
    try:
        return None if value is None else float(value)
    except OverflowError:
        return None  # the exact number stands in the JSON beside it
