"""`repair`: a store whose log, parts or journals are damaged becomes whole again, with all that can still be read.

Always true: nothing is deleted; what is broken is moved, as it was, into `set-aside/`. The log as far as it can be read is
believed; what it no longer tells is read from the parts themselves, newest first. Others may go on using the store: the lock of
the log's head is held as long as the log is being made anew, and a journal that somebody writes is left alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Container, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

import counterpoint.store.disk as disk
import counterpoint.store.head as head
import counterpoint.store.hot as hot
from counterpoint.errors import CounterpointError, InputError, InvalidTrace, NotFound
from counterpoint.store.annotations import AnnotationFile, salvage_changes, whole
from counterpoint.store.journal import good_bytes, journals, peek, take_stock
from counterpoint.store.lake import Lake, MissingFile
from counterpoint.store.lake import head as head_of
from counterpoint.store.log import Commit, Log, Part, Row, Span, State
from counterpoint.store.opening import VERSION, form_of, write_mark
from counterpoint.store.parts import NOTE, SCHEMAS, Note, PartWriter, part_path, segment_sum
from counterpoint.store.place import FOLDERS, MARK
from counterpoint.store.removal import removed_at
from counterpoint.store.tally import Tally, lost_runs, read_tally, tally_path
from counterpoint.store.writing import check, digest_of, unit_of
from counterpoint.trace.columns import EVENT_SCHEMA, edges_of, events_of

# -- What a part of the lake says without the log: the rows of its traces, read from its own files --------------------
# Always true: nothing is written. A trace is given back only when its digest, which the part keeps, is that of what was read;
# parts of the first form keep none, and there the page checksums of Parquet are all that is compared.

_BROKEN = (pa.ArrowException, OSError, ArithmeticError, LookupError, TypeError, ValueError, CounterpointError)


class Salvage(NamedTuple):
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
    note = (metadata.metadata or {}).get(NOTE.encode())
    return None if note is None else msgspec.json.decode(note, type=Note)


def salvage(lake: Path, name: str) -> Salvage:
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
        bytes=sum(spans[-1][0] for spans in sums.values()),
        sums=sums,
        has_rewards=True,
    )
    return Salvage(part, rows, lost, at)


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
    row = Row(
        id=name, task=values["task_id"], system=values["system"], topology=values["topology"], events=events, edges=edges,
        contents=contents, head=place, agents=0, digest="", added=values["added"].timestamp(), part=part,
        rewards=_numbers(values["rewards"]), costs=_numbers(values["costs"]),
        metrics=None if values["metrics"] is None else _numbers(values["metrics"]),
    )  # fmt: skip
    listed = events_of(lake.read(part, "events", events, EVENT_SCHEMA.names))
    linked = edges_of(lake.read(part, "edges", edges, ["src", "dst", "type"]), [e.id for e in listed])
    meta = {} if values["meta"] is None else msgspec.json.decode(values["meta"])
    trace = head_of(row, listed, linked, meta, lake.contents(row))
    if digest not in (None, digest_of(trace)):
        raise InputError("the checksum differs", where=f"trace {name!r}")
    unit = unit_of(trace, values["source"], digest_of(trace), check(trace)).row
    return replace(unit, events=events, edges=edges, contents=contents, head=place, added=row.added, part=part)


def _numbers(text: str) -> dict[str, int | float]:
    numbers: dict[str, int | float] = msgspec.json.decode(text, type=dict[str, int | float])
    return numbers


ASIDE = "set-aside"


class RepairResult(Struct, kw_only=True):
    """What a repair found and did."""

    aside: str | None = None
    """The folder that holds what was broken."""
    done: list[str] = []
    """A line for each thing that was mended."""
    restored: list[str] = []
    """Traces that the log had lost and the parts still hold; one that was removed may be among them."""
    lost: list[str] = []
    """Traces of which no whole copy is left."""


def repair(path: Path) -> RepairResult:
    """Mend a store. `NotFound` or `InputError` when the folder never was one."""
    return _Repair(path).run()


class _Repair:
    """One repair on its way."""

    def __init__(self, path: Path) -> None:
        self._path, self._report = path, RepairResult()
        self._lake_folder = path / "lake"
        self._is_head_new = False
        self._stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")

    def run(self) -> RepairResult:
        with disk.translate_errors(self._path):
            is_summed = self._mend_frame()
            log = Log(self._path / "log", self._path / head.NAME, is_summed=is_summed)
            try:
                with log.head.lock():
                    self._mend_log(log)
                self._mend_journals(log.refresh().rows)
            finally:
                log.close()
            self._mend_annotations()
            self._mend_hot()
        return self._report

    # -- setting aside -------------------------------------------------------------------------------------------

    def _place(self, file: Path) -> Path:
        folder = self._path / ASIDE / self._stamp
        place = folder / file.relative_to(self._path)
        disk.make_folder(place.parent)
        self._report.aside = os.fspath(folder)
        return place

    def _move(self, file: Path) -> None:
        """Out of the store, as it is."""
        if file.exists():
            place = self._place(file)
            os.rename(file, place)
            disk.sync_folder(place.parent)
            disk.sync_folder(file.parent)

    def _copy(self, file: Path, data: bytes) -> None:
        disk.create(self._place(file), data)

    # -- mark and head -------------------------------------------------------------------------------------------

    def _mend_frame(self) -> bool:
        """Mark, folders and head; returns whether the log's files have sums."""
        path, mark, top = self._path, self._path / MARK, self._path / head.NAME
        if not path.is_dir():
            raise NotFound("there is no store here", where=str(path), fix="name one with --store DIR")
        form: int | None = None
        try:
            form = form_of(mark)
        except InputError as error:
            if "newer" in error.what:
                raise
            self._report.done.append(f"the version file was damaged: {error.why or error.what}")
            self._move(mark)
        if form is None and not any((path / folder).is_dir() for folder in FOLDERS):
            raise InputError("this folder is not a store", where=str(path), fix="name one with --store DIR")
        for folder in FOLDERS:
            disk.make_folder(path / folder)
        is_summed = form == VERSION or (form is None and top.exists())
        if not top.exists():
            head.Head.create(top)
            if is_summed:
                self._is_head_new = True
                self._report.done.append("the head of the log was missing")
        elif is_summed and head.Position.decoded(top.read_bytes()) is None:
            self._copy(top, top.read_bytes())
            held = head.Head(top)
            with held.lock():
                held.write(head.Position())
            held.close()
            self._is_head_new = True
            self._report.done.append("the head of the log was damaged")
        if form is None:
            write_mark(path)
            self._report.done.append("the version file was rewritten")
        return is_summed

    # -- the log -------------------------------------------------------------------------------------------------

    def _mend_log(self, log: Log) -> None:
        reading = _Reading(log)
        state = reading.state
        for file, why in reading.broken.items():
            self._report.done.append(f"{file.name} of the log was damaged: {why}")
        if reading.has_hole:
            self._report.done.append("commits of the log are missing; the lake was read in their place")
        if reading.has_hole or self._is_head_new:  # without the head nobody knows whether the last commits are there
            self._restore(state, reading)
        is_new = self._mend_parts(state)
        if reading.has_hole or reading.broken or is_new or self._is_head_new:
            log.adopt(state)
        for file in reading.broken:
            self._move(file)
        for name in is_new:
            for kind in SCHEMAS:
                self._move(part_path(self._lake_folder, name, kind))

    def _restore(self, state: State, reading: _Reading) -> None:
        """Traces of parts that the log as far as it can be read never heard of."""
        parts: list[Salvage] = []
        for name in part_names(self._lake_folder):
            if name not in reading.known:
                try:
                    parts.append(salvage(self._lake_folder, name))
                except InputError as error:
                    self._report.done.append(f"part {name} cannot be read: {error.why}")
                    for kind in SCHEMAS:
                        self._move(part_path(self._lake_folder, name, kind))
        lost: set[str] = set()
        for part in sorted(parts, key=lambda s: s.at):
            lost |= part.lost.keys()
            rows = [r for r in part.rows if self._is_wanted(state, reading, r, part.at)]
            if rows:
                state.apply(Commit(at=part.at, parts=[part.part], rows=rows))
                self._report.restored += [r.id for r in rows if r.id not in self._report.restored]
        self._report.lost += sorted(lost - state.rows.keys())

    def _is_wanted(self, state: State, reading: _Reading, row: Row, at: float) -> bool:
        stored = state.rows.get(row.id)
        if stored is None:
            dropped = max(reading.drops.get(row.id, -math.inf), removed_at(state, row.id) or -math.inf)
            return dropped < at
        if stored.digest == row.digest:
            return False
        try:
            return written_at(self._lake_folder, stored.part) < at
        except (OSError, ValueError):
            return True

    # -- the lake ------------------------------------------------------------------------------------------------

    def _mend_parts(self, state: State) -> list[str]:
        """Rewrite what can be read of damaged parts; returns their names, for their files to be set aside."""
        lake = Lake(self._lake_folder, lambda part: state.parts[part].sums)
        damaged = [name for name in state.parts if not self._is_sound(lake, state, name)]
        for name in damaged:
            rows = sorted((r for r in state.rows.values() if r.part == name), key=lambda r: r.head)
            writer = PartWriter(self._lake_folder, state.parts[name].day)
            for row in rows:
                try:
                    writer.add(lake.unit(row))
                except (InputError, MissingFile, KeyError):
                    self._report.lost.append(row.id)
            names = {row.id for row in writer.rows}
            now = datetime.now(UTC).timestamp()
            state.apply(Commit(at=now, drop=[r.id for r in rows if r.id not in names]))
            if names:
                state.apply(Commit(at=now, parts=[writer.close()], rows=writer.rows))
            else:
                writer.abandon()
            self._report.done.append(f"part {name} was damaged: {len(names)} of {len(rows)} traces could be read")
            state.dead.pop(name, None)  # its files are set aside, not deleted
        lake.close()
        return damaged

    def _is_sound(self, lake: Lake, state: State, name: str) -> bool:
        try:
            for kind in state.parts[name].sums:
                lake.verify(name, kind)
        except (InputError, MissingFile):
            return False
        return True

    # -- journals and the hot file -------------------------------------------------------------------------------

    def _mend_journals(self, stored: Container[str]) -> None:
        for file in journals(self._path / "journal"):
            try:
                peek(file)
            except InvalidTrace as error:
                self._mend_journal(file, error)
        for file, lost in lost_runs(self._path / "journal", stored):
            self._report.lost.append(file.name)
            self._report.done.append(lost.what)
            self._move(tally_path(file))

    def _mend_journal(self, file: Path, error: CounterpointError) -> None:
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not disk.lock(fd):
                self._report.done.append(f"{file.name} is damaged and being recorded: {error.what}; it was left alone")
                return
            data = file.read_bytes()
            good, whole = good_bytes(data, file), len(data)
            with suppress(InvalidTrace):
                whole = max(whole, (read_tally(file) or Tally(0, 0, "")).size)
            self._copy(file, data)
            self._move(tally_path(file))
            if good:
                os.ftruncate(fd, good)
                os.fsync(fd)
                take_stock(file, data[:good])
                self._report.done.append(f"{file.name} was damaged: {good:,} of {whole:,} bytes are kept")
            else:
                disk.remove(file)  # its copy is set aside
                self._report.lost.append(file.name)
                self._report.done.append(f"{file.name} was damaged: nothing of it can be read")
        finally:
            os.close(fd)

    def _mend_annotations(self) -> None:
        """Keep the groups that are whole; the file as it was is set aside."""
        file = AnnotationFile(self._path)
        try:
            file.refresh()
        except InputError as error:
            if not file.path.exists():
                disk.create(file.path, whole([]))
                self._report.done.append("the file of annotations was missing: what it said is lost")
                return
            fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                disk.lock(fd, wait=True)
                data = file.path.read_bytes()
                changes, lost = salvage_changes(data)
                self._copy(file.path, data)
                disk.replace_file(file.path, whole(changes))
            finally:
                os.close(fd)
            outcome = f"{len(changes):,} records are kept, {lost:,} lines cannot be read"
            self._report.done.append(f"the file of annotations was damaged: {error.why}; {outcome}")

    def _mend_hot(self) -> None:
        for file in sorted((self._path / "hot").glob("*.arrow")):
            try:
                hot.verify(file)
            except InputError as error:
                self._report.done.append(f"the hot file was damaged: {error.why}; it is rebuilt on demand")
                self._move(file)
                self._move(file.with_suffix(".key.json"))


class _Reading:
    """The log as far as it can be read."""

    def __init__(self, log: Log) -> None:
        self.broken: dict[Path, str] = {}
        """Files that cannot be read, and why."""
        self.drops: dict[str, float] = {}
        """When a trace was last removed, as far as commits tell."""
        self.state = State()
        numbers = log.numbers()
        for number in sorted(numbers["checkpoint"], reverse=True):
            try:
                self.state = log.read_checkpoint(number)
                break
            except InputError as error:
                self.broken[log.checkpoint_path(number)] = str(error.why)
        base = self.state.number
        self.known = {*self.state.parts, *self.state.dead}
        """Parts that the log has named: what it does not list of them is dead."""
        expected = base + 1
        self.has_hole = False
        for number in sorted(n for n in numbers["json"] if n > base):
            try:
                commit = log.read_commit(number)
            except InputError as error:
                self.broken[log.commit_path(number)] = str(error.why)
                continue
            self.has_hole |= number != expected
            expected = number + 1
            self._take(commit, number)
        newest = max([base, *numbers["json"], *numbers["checkpoint"], log.head.read().commit])
        self.has_hole |= expected <= newest
        self.state.number = newest

    def _take(self, commit: Commit, number: int) -> None:
        unknown = set(commit.replaces) - self.known
        self.known |= {p.name for p in commit.parts}
        self.drops |= dict.fromkeys(commit.drop, commit.at)
        self.state.apply(commit)
        if not unknown:
            return
        # What was moved out of a part that a lost commit had named: here is its only mention.
        rows = [r for r in commit.rows if r.id not in self.state.rows and r.id not in self.drops]
        if rows:
            unheld = [p for p in commit.parts if p.name not in self.state.parts]
            self.state.apply(Commit(at=commit.at, parts=unheld, rows=rows))
            for part in unheld:
                self.state.dead.pop(part.name, None)  # it died a line above, when none of its traces was known
