"""Reading the lake: a trace is one row group of each file, found through its row in the manifest.

Always true: nothing here writes; a file that compaction took away before we opened it raises `MissingFile`, and the caller
looks at the newest manifest and tries again; bytes that changed on disk are an error, never another trace (the manifest
has a checksum of every row group and footer).
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from counterpoint.errors import InputError
from counterpoint.store.log import Row, Span
from counterpoint.store.parts import SCHEMAS, Unit, part_path, segment_sum
from counterpoint.trace import Trace
from counterpoint.trace.batch import TraceBatch
from counterpoint.trace.columns import EVENT_SCHEMA, WORDS, columns_in, edges_of, events_of

_OPEN_FILES = 256
REPAIR = "restore the file from a copy, or: counterpoint store repair, which recovers what is readable"
_PLACES = {kind: {name: i for i, name in enumerate(schema.names)} for kind, schema in SCHEMAS.items()}
_EDGES = ["src", "dst", "type"]
# The one table that may have no rows: a valid trace has events.
_NO_EDGES = pa.schema([("src", pa.int32()), ("dst", pa.int32()), ("type", pa.dictionary(pa.int32(), pa.string()))]).empty_table()


class MissingFile(Exception):
    """The file was there when the manifest was read, and is not now."""


class Lake:
    """The Parquet files of one store, with their footers kept."""

    def __init__(self, folder: Path, sums: Callable[[str], dict[str, list[tuple[int, int]]]]) -> None:
        """`sums` gives the checksums of a part's files, as the manifest has them."""
        self.folder, self._sums = folder, sums
        self._verified: set[tuple[str, str, int]] = set()
        self._whole: set[tuple[str, str]] = set()
        self._files: OrderedDict[tuple[str, str], pq.ParquetFile] = OrderedDict()
        self._lock = threading.RLock()

    def _file(self, part: str, kind: str) -> pq.ParquetFile:
        key = part, kind
        file = self._files.get(key)
        if file is None:
            path = part_path(self.folder, part, kind)
            words = [*WORDS] if kind == "events" else ["type"] if kind == "edges" else []
            try:
                self._verify(part, kind, -1)
                file = pq.ParquetFile(path, memory_map=True, read_dictionary=words, pre_buffer=False)
            except FileNotFoundError as error:
                raise MissingFile(str(path)) from error
            except (pa.ArrowException, OSError) as error:
                raise _damaged(path, error) from error
            self._files[key] = file
            if len(self._files) > _OPEN_FILES:
                self._files.popitem(last=False)[1].close(force=True)
        else:
            self._files.move_to_end(key)
        return file

    def _verify(self, part: str, kind: str, group: int) -> None:
        """Compare the bytes of a row group (-1: the footer) with their checksum, the first time they are asked for.

        Parquet's own page checksums leave page headers and the footer open: one changed bit there can be another value.
        """
        if (part, kind, group) not in self._verified:
            sums = self._sums(part)[kind]
            with open(part_path(self.folder, part, kind), "rb") as raw:
                self._compare(raw, part, kind, group % len(sums), sums)

    def _compare(self, raw: BinaryIO, part: str, kind: str, place: int, sums: list[tuple[int, int]]) -> None:
        end, crc = sums[place]
        if segment_sum(raw, sums[place - 1][0] if place else 0, end) != crc or raw.seek(0, 2) != sums[-1][0]:
            what = f"row group {place} has" if place < len(sums) - 1 else "its footer has"
            raise _damaged(Path(raw.name), f"{what} changed since it was written")
        self._verified |= {(part, kind, place), (part, kind, place - len(sums))}

    def verify(self, part: str, kind: str) -> None:
        """Compare every byte of a file with the checksums, except those compared before; raises `MissingFile`."""
        sums = self._sums(part).get(kind, [])
        todo = [place for place in range(len(sums)) if (part, kind, place) not in self._verified]
        if todo:
            with self._reading(part, kind), open(part_path(self.folder, part, kind), "rb") as raw:
                for place in todo:
                    self._compare(raw, part, kind, place, sums)

    def verify_all(self, parts: Iterable[str], kinds: Iterable[str]) -> None:
        """The same for these files of many parts, two at a time; those that were compared whole before cost a look in a set."""
        files = [file for file in itertools.product(parts, kinds) if file not in self._whole]
        if files:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda file: self.verify(*file), files))
            self._whole |= set(files)

    @contextmanager
    def _reading(self, part: str, kind: str) -> Iterator[None]:
        """A file that is not there raises `MissingFile`, one that cannot be read is damaged."""
        try:
            yield
        except FileNotFoundError as error:
            raise MissingFile(str(part_path(self.folder, part, kind))) from error
        except OSError as error:
            raise _damaged(part_path(self.folder, part, kind), error) from error

    def _checked(self, part: str, kind: str, group: int) -> None:
        with self._reading(part, kind):
            self._verify(part, kind, group)

    def read(self, part: str, kind: str, span: Span, columns: Sequence[str]) -> pa.Table:
        """The rows of one trace in one file."""
        if not span.rows:
            return _NO_EDGES
        table = self.read_group(part, kind, span.group, columns)
        return table if table.num_rows == span.rows else table.slice(span.start, span.rows)

    def read_group(self, part: str, kind: str, group: int, columns: Sequence[str]) -> pa.Table:
        """One row group."""
        return self._read_groups(part, kind, {group: 0}, columns)

    @staticmethod
    def _indices(kind: str, columns: Sequence[str]) -> list[int]:
        # By place: looking columns up by name for every row group would cost as much as reading a few.
        return [_PLACES[kind][name] for name in columns]

    def forget(self, part: str) -> None:
        """Close the files of a part that is no more."""
        with self._lock:
            for key in [k for k in self._files if k[0] == part]:
                self._files.pop(key).close(force=True)
            self._verified = {k for k in self._verified if k[0] != part}
            self._whole = {k for k in self._whole if k[0] != part}

    def close(self) -> None:
        """Let go of every file."""
        with self._lock:
            while self._files:
                self._files.popitem()[1].close(force=True)

    # -- traces --------------------------------------------------------------------------------------------------

    def trace(self, row: Row) -> Trace:
        """The whole trace."""
        try:
            events = events_of(self.read(row.part, "events", row.events, columns_in(row.present)))
            edges = edges_of(self.read(row.part, "edges", row.edges, _EDGES), [e.id for e in events])
            return head(row, events, edges, self.meta(row), self.contents(row))
        except (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
            if isinstance(error, InputError):
                raise
            raise _damaged(part_path(self.folder, row.part, "events"), error) from error

    def meta(self, row: Row) -> dict[str, Any]:
        """The trace's `meta`, which the manifest does not hold."""
        if not row.has_meta:
            return {}
        text = self.meta_text(row)
        meta: dict[str, Any] = msgspec.json.decode(text) if text else {}
        return meta

    def meta_text(self, row: Row) -> str | None:
        group, place = self._head_place(row)
        text: str | None = self.read_group(row.part, "traces", group, ["meta"])["meta"][place].as_py()
        return text

    def _head_place(self, row: Row) -> tuple[int, int]:
        with self._lock:
            metadata = self._file(row.part, "traces").metadata
        place, group = row.head, 0
        while place >= metadata.row_group(group).num_rows:
            place -= metadata.row_group(group).num_rows
            group += 1
        return group, place

    def contents(self, row: Row) -> dict[str, str]:
        """The trace's texts by reference."""
        if row.contents is None:
            return {}
        table = self.read(row.part, "contents", row.contents, ["ref", "text"])
        return dict(zip(table["ref"].to_pylist(), table["text"].to_pylist(), strict=True))

    def unit(self, row: Row) -> Unit:
        """The trace as it lies, for writing elsewhere."""
        contents = None
        if row.contents is not None:
            contents = self.read(row.part, "contents", row.contents, ["ref", "text"])
        return Unit(
            row,
            self.read(row.part, "events", row.events, EVENT_SCHEMA.names),
            self.read(row.part, "edges", row.edges, _EDGES),
            contents,
            self.meta_text(row) if row.has_meta else None,
        )

    def batch(self, rows: Sequence[Row], columns: Sequence[str], *, edges: bool) -> TraceBatch:
        """Some columns of many traces; a row group that several share is read once."""
        events = self._tables(rows, "events", columns)
        lengths = [r.events.rows for r in rows]
        heads = [head(r, [], [], {}, {}) for r in rows]
        if not edges:
            return TraceBatch(heads, _offsets(lengths), events)
        links = self._tables(rows, "edges", _EDGES)
        return TraceBatch(heads, _offsets(lengths), events, _offsets([r.edges.rows for r in rows]), links)

    def whole_batch(self, rows: Sequence[Row]) -> TraceBatch:
        """All columns, meta and contents: what `TraceBatch.trace` needs."""
        bits = 0
        for row in rows:
            bits |= row.present
        events = self._tables(rows, "events", columns_in(bits))
        edges = self._tables(rows, "edges", _EDGES)
        heads = [head(r, [], [], self.meta(r), self.contents(r)) for r in rows]
        offsets, edge_offsets = _offsets([r.events.rows for r in rows]), _offsets([r.edges.rows for r in rows])
        return TraceBatch(heads, offsets, events, edge_offsets, edges, is_whole=True)

    def _tables(self, rows: Sequence[Row], kind: str, columns: Sequence[str]) -> pa.Table:
        """The rows of many traces in their order; of each part the row groups that are needed, in one go."""
        spans = [(row.part, getattr(row, kind)) for row in rows]
        wanted: dict[str, dict[int, int]] = {}
        for part, span in spans:
            if span.rows:
                wanted.setdefault(part, {})[span.group] = 0
        tables = {part: self._read_groups(part, kind, groups, columns) for part, groups in wanted.items()}
        slices = [tables[part].slice(wanted[part][span.group] + span.start, span.rows) for part, span in spans if span.rows]
        return pa.concat_tables(slices) if slices else _NO_EDGES

    def _read_groups(self, part: str, kind: str, groups: dict[int, int], columns: Sequence[str]) -> pa.Table:
        """Some row groups as one table; `groups` learns where each begins in it."""
        with self._lock:
            file = self._file(part, kind)
            at = 0
            for group in groups:
                self._checked(part, kind, group)
                groups[group] = at
                at += file.metadata.row_group(group).num_rows
            try:
                is_much = len(groups) > 1 or len(columns) > 8  # else handing it to threads costs more than it saves
                return file.reader.read_row_groups(list(groups), column_indices=self._indices(kind, columns), use_threads=is_much)
            except (pa.ArrowException, OSError) as error:
                raise _damaged(part_path(self.folder, part, kind), error) from error


def head(row: Row, events: Any, edges: Any, meta: dict[str, Any], contents: dict[str, str]) -> Trace:
    """A trace from its manifest row and the rest."""
    return Trace(
        trace_id=row.id,
        task_id=row.task,
        system=row.system,
        topology=row.topology,
        events=events,
        edges=edges,
        rewards=dict(row.rewards),
        costs=dict(row.costs),
        metrics=None if row.metrics is None else dict(row.metrics),
        meta=meta,
        contents=contents,
    )


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _damaged(path: Path, error: object) -> InputError:
    return InputError("a file of the lake is damaged", where=str(path), why=str(error), fix=REPAIR)
