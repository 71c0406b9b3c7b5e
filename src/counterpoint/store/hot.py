"""Hot replay: the columns that learning reads, of all finished traces, in one memory-mapped Arrow file.

Always true: the file is a copy that can be deleted at any time; it says which state of the store it was made from, and is
made anew when that is not the newest. A column's sum is compared when it is first asked for. Numbers are float64 with NaN for
absent, words are codes with -1. A decision is named by trace and event number: the prefix before it is a reference, not a copy.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.ipc
from numpy.typing import NDArray

import counterpoint.store.disk as disk
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.store.lake import Lake, head
from counterpoint.store.log import Row, State
from counterpoint.trace import Trace
from counterpoint.trace.batch import TraceBatch
from counterpoint.trace.columns import COUNTS, FLAGS, NUMBERS, WORDS, codes_of

COLUMNS = (*NUMBERS, *COUNTS, *FLAGS, *WORDS)


class _Key(msgspec.Struct):
    """What stands beside the file: the words of its codes, and the CRC-32 of every column."""

    words: dict[str, list[str]]
    sums: dict[str, int]
    whole: int
    """Of the whole file, for `verify`: between the columns lie bytes that nobody reads."""


class DecisionRef(NamedTuple):
    """A decision point: the trace, and the number of its event. The prefix is events `0..event`."""

    trace_id: str
    event: int


class HotBatch(TraceBatch):
    """Traces of the hot file; a column is gathered from the map when it is asked for."""

    def __init__(self, hot: Hot, places: NDArray[np.int64], columns: Sequence[str]) -> None:
        self._hot, self._places, self._names = hot, places, list(columns)
        lengths = hot.lengths[places]
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        self._spans = [slice(a, a + n) for a, n in zip(hot.offsets[places].tolist(), lengths.tolist(), strict=True)]
        self.edge_offsets, self.edges, self.is_whole = None, None, False

    @cached_property
    def heads(self) -> list[Trace]:  # type: ignore[override]
        """The traces without their events."""
        return [head(self._hot.rows[i], [], [], {}, {}) for i in self._places.tolist()]

    @cached_property
    def events(self) -> pa.Table:
        """The columns as an Arrow table, numbers and codes as the file has them."""
        return pa.table({name: self._gather(name) for name in self._names})

    def __len__(self) -> int:
        return len(self._places)

    @property
    def ids(self) -> list[str]:
        return [self._hot.rows[i].id for i in self._places.tolist()]

    @property
    def columns(self) -> list[str]:
        return self._names

    def _gather(self, name: str) -> NDArray[Any]:
        name = "from_" if name == "from" else name
        if name not in self._names:
            fix = f"ask for it: columns=[{name!r}, ...]" if name in COLUMNS else did_you_mean(name, COLUMNS)
            raise NotFound(f"this batch has no column {name!r}", fix=fix)
        values = self._hot.array(name)
        return np.concatenate([values[span] for span in self._spans])

    def column(self, name: str) -> NDArray[Any]:
        """One field of every event: numbers (NaN where absent), strings as objects."""
        if name not in WORDS and name != "from":
            return self._gather(name)
        codes, words = self._codes(name)
        return np.array([*words, None], object)[codes]

    def _codes(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        return self._gather(name), self._hot.words["from_" if name == "from" else name]

    def select(self, places: Sequence[int] | NDArray[Any]) -> TraceBatch:
        """The traces at these places, in this order."""
        if not len(places) or not all(0 <= i < len(self) for i in places):
            raise InputError(f"trace numbers must be in 0..{len(self) - 1}, and at least one")
        return HotBatch(self._hot, self._places[np.asarray(places)], self._names)


class Hot:
    """One memory-mapped file of columns, with the place of every trace."""

    def __init__(self, path: Path, number: int, rows: list[Row]) -> None:
        """Use `Store.hot`."""
        self.path, self.number, self.rows = path, number, rows
        self._places = {r.id: i for i, r in enumerate(rows)}
        self._table, self._key = _open(path)
        self.words = self._key.words
        self._arrays: dict[str, NDArray[Any]] = {}
        self.lengths = np.array([r.events.rows for r in rows], np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        if self.offsets[-1] != self._table.num_rows:
            raise InputError("the hot file does not fit the store", where=str(path), fix="store.hot(rebuild=True)")

    @classmethod
    def of(cls, folder: Path, state: State, lake: Lake, *, rebuild: bool) -> Hot:
        """The file of a state, made when it is not there."""
        rows = sorted(state.rows.values(), key=lambda r: (r.part, r.events.group, r.events.start))
        if not rows:
            raise InputError("there is nothing to sample: the store has no finished trace", where=str(folder.parent))
        path = folder / f"{state.number:012d}.arrow"
        with disk.translate_errors(folder):
            disk.make_folder(folder)
            if rebuild or not path.exists() or not _key_path(path).exists():
                _build(path, rows, lake)
                for old in folder.iterdir():
                    if old not in (path, _key_path(path)):
                        disk.remove(old)
        return cls(path, state.number, rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> list[str]:
        """The traces in the file."""
        return [r.id for r in self.rows]

    def array(self, name: str) -> NDArray[Any]:
        """A whole column, mapped: numbers with NaN for absent, words as codes with -1."""
        if name not in self._arrays:
            self._arrays[name] = _column(self._table, self._key, name, self.path)
        return self._arrays[name]

    def batch(self, ids: Sequence[str], columns: Sequence[str] | None = None) -> HotBatch:
        """These traces, with these columns."""
        if not ids:
            raise InputError("a batch needs at least one trace")
        for name in ids:
            if name not in self._places:
                raise NotFound(f"no trace {name!r} in the hot file", fix="store.hot(rebuild=True)")
        return HotBatch(self, np.array([self._places[name] for name in ids]), self._known(columns))

    def sample(self, n: int, rng: np.random.Generator, columns: Sequence[str] | None = None) -> HotBatch:
        """A batch of `n` different traces, drawn evenly."""
        if not 0 < n <= len(self):
            raise InputError(f"cannot draw {n} traces from {len(self)}", fix="ask for fewer, or add more traces")
        return HotBatch(self, rng.choice(len(self), n, replace=False), self._known(columns))

    def _known(self, columns: Sequence[str] | None) -> list[str]:
        names = list(COLUMNS) if columns is None else ["from_" if c == "from" else c for c in columns]
        for name in names:
            if name not in COLUMNS:
                raise InputError(f"the hot file has no column {name!r}", fix=did_you_mean(name, COLUMNS))
        return names

    @cached_property
    def _decisions(self) -> NDArray[np.int64]:
        """Rows of the file that are decision points."""
        return np.flatnonzero(self.array("decision") >= 0)

    def decisions(self, n: int, rng: np.random.Generator) -> list[DecisionRef]:
        """`n` different decision points, drawn evenly over all events that carry a decision."""
        if not 0 < n <= len(self._decisions):
            raise InputError(f"cannot draw {n} decisions from {len(self._decisions)}", fix="ask for fewer, or add more traces")
        rows = self._decisions[rng.choice(len(self._decisions), n, replace=False)]
        places = np.searchsorted(self.offsets, rows, side="right") - 1
        numbers = rows - self.offsets[places]
        return [DecisionRef(self.rows[i].id, int(k)) for i, k in zip(places.tolist(), numbers.tolist(), strict=True)]


def _key_path(path: Path) -> Path:
    return path.with_suffix(".key.json")


def _build(path: Path, rows: list[Row], lake: Lake) -> None:
    """Write the file beside its place, then put it there: its key first, as codes without words could not be read."""
    codes: dict[str, dict[str, int]] = {name: {} for name in WORDS}
    draft = disk.temporary(path.parent)
    schema = pa.schema([(name, pa.int32() if name in WORDS else pa.float64()) for name in COLUMNS])
    events = sum(r.events.rows for r in rows)
    try:
        # One record batch in the end, so that a column is one stretch of the map and a trace a slice of it.
        columns = {name: np.empty(events, np.int32 if name in WORDS else np.float64) for name in COLUMNS}
        at = 0
        for table in _tables(rows, lake):
            for name in COLUMNS:
                numbers = _coded(table[name], codes[name]) if name in WORDS else _floats(table[name])
                columns[name][at : at + table.num_rows] = numbers
            at += table.num_rows
        with pa.OSFile(os.fspath(draft), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch([pa.array(columns[name]) for name in COLUMNS], schema=schema))
        words = {name: list(known) for name, known in codes.items()}
        key = _Key(words, {name: zlib.crc32(values.data) for name, values in columns.items()}, zlib.crc32(draft.read_bytes()))
        disk.replace_file(_key_path(path), disk.with_sum(msgspec.json.encode(key), _key_path(path).name))
        os.replace(draft, path)
    finally:
        disk.remove(draft)


def _tables(rows: list[Row], lake: Lake) -> Iterator[pa.Table]:
    """The events of all rows in order, a row group at a time, without rows that are dead."""
    for (part, group), members in groupby(rows, key=lambda r: (r.part, r.events.group)):
        table = lake.read_group(part, "events", group, COLUMNS)
        yield pa.concat_tables([table.slice(r.events.start, r.events.rows) for r in members])


def _coded(column: pa.ChunkedArray, codes: dict[str, int]) -> NDArray[np.int32]:
    """A dictionary column with the codes of the whole file, which grow as new words come; -1 is absent."""
    parts = []
    for chunk in column.chunks:
        place = np.array([*(codes.setdefault(w, len(codes)) for w in chunk.dictionary.to_pylist()), -1], np.int32)
        parts.append(place[codes_of(chunk)])
    return np.concatenate(parts)


def _floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = (
        (column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column).cast(pa.float64()).to_numpy()
    )
    return numbers


def _open(path: Path) -> tuple[pa.Table, _Key]:
    """The mapped file, and its key."""
    try:
        key = msgspec.json.decode(disk.without_sum(_key_path(path).read_bytes(), _key_path(path).name), type=_Key)
        table = pa.ipc.open_file(pa.memory_map(os.fspath(path))).read_all()
        if tuple(table.column_names) != COLUMNS or key.words.keys() != set(WORDS) or key.sums.keys() != set(COLUMNS):
            raise ValueError("it has other columns")
    except (pa.ArrowException, OSError, msgspec.MsgspecError, ValueError) as error:
        raise _damaged(path, error) from error
    return table, key


def _column(table: pa.Table, key: _Key, name: str, path: Path) -> NDArray[Any]:
    values: NDArray[Any] = table[name].to_numpy()
    if zlib.crc32(np.ascontiguousarray(values).data) != key.sums[name]:
        raise _damaged(path, f"column {name!r} has changed since it was written")
    return values


def verify(path: Path) -> None:
    """Compare a whole file with its sums; `InputError` names the first column that changed."""
    table, key = _open(path)
    for name in COLUMNS:
        _column(table, key, name, path)
    if zlib.crc32(path.read_bytes()) != key.whole:
        raise _damaged(path, "bytes between its columns have changed since it was written")


def _damaged(path: Path, why: object) -> InputError:
    return InputError("the hot file is damaged", where=str(path), why=str(why), fix="store.hot(rebuild=True)")
