"""What a part of the lake says without the log: the rows of its traces, read from its own files.

Always true: nothing is written. A trace is given back only when its digest, which the part keeps, is that of what was read; parts
of the first form keep none, and there the page checksums of Parquet are all that is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from counterpoint.errors import CounterpointError, InputError
from counterpoint.store.lake import Lake, head
from counterpoint.store.log import Part, Row, Span
from counterpoint.store.parts import NOTE, SCHEMAS, Note, part_path, segment_sum
from counterpoint.store.writing import check, digest_of, unit_of
from counterpoint.trace.columns import EVENT_SCHEMA, edges_of, events_of

_BROKEN = (pa.ArrowException, OSError, ArithmeticError, LookupError, TypeError, ValueError, CounterpointError)


class Salvaged(NamedTuple):
    """A part with the rows that could be read, and why the others could not."""

    part: Part
    rows: list[Row]
    lost: dict[str, str]
    at: float


def part_names(lake: Path) -> list[str]:
    """Every part that has a table of traces in the lake, whoever knows of it."""
    return sorted(p.relative_to(lake).as_posix().split(".")[0] for p in lake.glob("day=*/shard=*/*.traces.parquet"))


def written_at(lake: Path, name: str) -> float:
    """When a part was written: by its own note, else by the file's time."""
    path = part_path(lake, name, "traces")
    note = _note(pq.read_metadata(path))
    return path.stat().st_mtime if note is None else note.at


def _note(metadata: pq.FileMetaData) -> Note | None:
    said = (metadata.metadata or {}).get(NOTE.encode())
    return None if said is None else msgspec.json.decode(said, type=Note)


def salvage(lake: Path, name: str) -> Salvaged:
    """Read a part that the log does not know. `InputError` when its table of traces cannot be read at all."""
    path = part_path(lake, name, "traces")
    try:
        heads = pq.read_table(path, page_checksum_verification=True, partitioning=None)
        note = _note(pq.read_metadata(path))
        at = path.stat().st_mtime if note is None else note.at
        sums = {kind: _sums(lake, name, kind) for kind in SCHEMAS if part_path(lake, name, kind).exists()}
        places = {kind: dict(_spans(part_path(lake, name, kind))) for kind in sums if kind != "traces"}
    except _BROKEN as error:
        raise InputError("a part of the lake cannot be read", where=str(path), why=str(error)) from error
    day = name.split("/")[0].removeprefix("day=")
    rows: list[Row] = []
    lost: dict[str, str] = {}
    reader = Lake(lake, lambda part: sums)
    for place, values in enumerate(heads.to_pylist()):
        try:
            digest = note.digests[place] if note is not None else None
            rows.append(_row(reader, name, place, values, places, digest))
        except _BROKEN as error:
            lost[str(values["trace_id"])] = str(error)
    reader.close()
    part = Part(
        name=name,
        day=day,
        traces=heads.num_rows,
        events=sum(row.events.rows for row in rows),
        bytes=sum(found[-1][0] for found in sums.values()),
        sums=sums,
        has_rewards=True,
    )
    return Salvaged(part, rows, lost, at)


def _sums(lake: Path, name: str, kind: str) -> list[tuple[int, int]]:
    """The sums of a file as it is now, by row groups; what it was is said by the digests."""
    path = part_path(lake, name, kind)
    metadata = pq.read_metadata(path)
    ends = []
    for group in range(metadata.num_row_groups):
        chunks = [metadata.row_group(group).column(i) for i in range(metadata.num_columns)]
        begins = [c.data_page_offset if c.dictionary_page_offset is None else c.dictionary_page_offset for c in chunks]
        ends.append(max(b + c.total_compressed_size for b, c in zip(begins, chunks, strict=True)))
    ends.append(path.stat().st_size)
    with open(path, "rb") as file:
        return [(end, segment_sum(file, begin, end)) for begin, end in zip([0, *ends], ends, strict=False)]


def _spans(path: Path) -> Iterator[tuple[str, Span]]:
    """Where the rows of each trace lie in a file."""
    file = pq.ParquetFile(path, page_checksum_verification=True)
    for group in range(file.num_row_groups):
        names = np.asarray(file.read_row_group(group, columns=["trace_id"])["trace_id"].to_pylist(), object)
        begins = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist()]
        for begin, end in zip(begins, [*begins[1:], len(names)], strict=True):
            yield names[begin], Span(group, begin, end - begin)


def _row(
    lake: Lake, part: str, place: int, values: dict[str, Any], places: dict[str, dict[str, Span]], digest: str | None
) -> Row:
    """The row that the log had for a trace, made anew from the trace itself."""
    name, nowhere = values["trace_id"], Span(0, 0, 0)
    events, edges = places["events"][name], places["edges"].get(name, nowhere)
    contents = places.get("contents", {}).get(name)
    found = Row(
        id=name, task=values["task_id"], system=values["system"], topology=values["topology"], events=events, edges=edges,
        contents=contents, head=place, agents=0, digest="", added=values["added"].timestamp(), part=part,
        rewards=_numbers(values["rewards"]), costs=_numbers(values["costs"]),
        metrics=None if values["metrics"] is None else _numbers(values["metrics"]),
    )  # fmt: skip
    listed = events_of(lake.read(part, "events", events, EVENT_SCHEMA.names))
    linked = edges_of(lake.read(part, "edges", edges, ["src", "dst", "type"]), [e.id for e in listed])
    meta = {} if values["meta"] is None else msgspec.json.decode(values["meta"])
    trace = head(found, listed, linked, meta, lake.contents(found))
    if digest not in (None, digest_of(trace)):
        raise InputError("it is not what was written", where=f"trace {name!r}")
    made = unit_of(trace, values["source"], digest_of(trace), check(trace)).row
    return replace(made, events=events, edges=edges, contents=contents, head=place, added=found.added, part=part)


def _numbers(text: str) -> dict[str, int | float]:
    found: dict[str, int | float] = msgspec.json.decode(text, type=dict[str, int | float])
    return found
