"""`verify`: every byte of a store is read and every sum compared.

Always true: nothing is written, and nobody who uses the store is disturbed; a file that others replaced meanwhile is no finding.
A finding names the file, what is wrong with it, and the traces that cannot be read because of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

import counterpoint.store.head as head
import counterpoint.store.hot as hot
from counterpoint.errors import CounterpointError, InputError
from counterpoint.store.annotations import AnnotationFile
from counterpoint.store.journal import journals, peek
from counterpoint.store.lake import Lake, MissingFile
from counterpoint.store.log import Log, Part, State
from counterpoint.store.opening import open_folder, open_log
from counterpoint.store.parts import SCHEMAS, part_path
from counterpoint.store.tally import lost_runs, tally_path


class Fault(Struct, frozen=True, kw_only=True):
    """One file that is not as it was written."""

    file: str
    what: str
    traces: list[str]
    """Those that cannot be read, where that is known."""


class VerifyResult(Struct, kw_only=True):
    """What was compared, and what was found."""

    files: int = 0
    bytes: int = 0
    traces: int = 0
    faults: list[Fault] = []
    strays: int = 0
    """Files of the lake that the log does not name: of dead writers, or replaced and not yet deleted."""
    untallied: int = 0
    """Open runs that an older version recorded: how much was acknowledged is not known, so that a lost end does not show."""


def verify(path: Path) -> VerifyResult:
    """Read all of a store. Raises only when there is no store of a known form."""
    report = VerifyResult()
    form = open_folder(path, create=False)
    log = open_log(path, form, read_only=True)
    try:
        for fault in _faults(path, log, report):
            report.faults.append(fault)
    finally:
        log.close()
    return report


def _faults(path: Path, log: Log, report: VerifyResult) -> Iterator[Fault]:
    yield from _log_files(log, report)
    try:
        state = log.refresh()
    except CounterpointError as error:
        yield _fault(Path(error.where or log.folder), error)
    else:
        report.traces = len(state.rows)
        yield from _lake_files(path / "lake", log, report)
        report.strays = _strays(path / "lake", log.refresh())
    yield from _journal_files(path / "journal", report, log.state)
    annotations = AnnotationFile(path)
    _count(annotations.path, report)
    try:
        annotations.refresh()
    except CounterpointError as error:
        yield _fault(annotations.path, error)
    for file in sorted((path / "hot").glob("*.arrow")):
        _count(file, report)
        try:
            hot.verify(file)
        except CounterpointError as error:
            if file.exists():
                yield _fault(file, error)


def _journal_files(folder: Path, report: VerifyResult, state: State) -> Iterator[Fault]:
    for file in journals(folder):
        _count(file, report)
        _count(tally_path(file), report)
        try:
            peeked = peek(file)
            report.untallied += peeked is not None and not tally_path(file).exists() and not peeked.is_tallied
        except CounterpointError as error:
            yield _fault(file, error)
    for file, lost in lost_runs(folder, state.rows):
        yield _fault(file, lost)


def _fault(file: Path, error: CounterpointError, traces: list[str] | None = None) -> Fault:
    return Fault(file=os.fspath(file), what=f"{error.what}{f' ({error.why})' if error.why else ''}", traces=traces or [])


def _count(file: Path, report: VerifyResult) -> None:
    try:
        report.bytes += file.stat().st_size
        report.files += 1
    except FileNotFoundError:
        pass  # gone meanwhile


def _log_files(log: Log, report: VerifyResult) -> Iterator[Fault]:
    for kind, numbers in log.numbers().items():
        path_of, read = (log.commit_path, log.read_commit) if kind == "json" else (log.checkpoint_path, log.read_checkpoint)
        for number in numbers:
            file = path_of(number)
            _count(file, report)
            try:
                read(number)
            except InputError as error:
                if file.exists():  # else it was swept after we had its name
                    yield _fault(file, error)
    _count(log.folder.parent / head.NAME, report)


def _lake_files(folder: Path, log: Log, report: VerifyResult) -> Iterator[Fault]:
    """Every part of the newest state; one that compaction replaced meanwhile is looked for again."""
    done: set[str] = set()
    lake = Lake(folder, lambda part: log.state.parts[part].sums)
    while todo := [p for name, p in log.refresh().parts.items() if name not in done]:
        for part in todo:
            done.add(part.name)
            for kind in part.sums:
                _count(part_path(folder, part.name, kind), report)
                fault = _part_fault(lake, log, part, kind)
                if fault is not None:
                    yield fault


def _part_fault(lake: Lake, log: Log, part: Part, kind: str) -> Fault | None:
    file = part_path(lake.folder, part.name, kind)
    try:
        lake.verify(part.name, kind)
    except InputError as error:
        return _fault(file, error, _traces(log.state, part.name))
    except (MissingFile, KeyError):
        if part.name in log.refresh().parts:
            missing = InputError("a file of the lake is missing", where=str(file))
            return _fault(file, missing, _traces(log.state, part.name))
    return None


def _traces(state: State, part: str) -> list[str]:
    return [row.id for row in state.rows.values() if row.part == part]


def _strays(lake: Path, state: State) -> int:
    named = {part_path(lake, part, kind) for part in [*state.parts, *state.dead] for kind in SCHEMAS}
    return sum(path not in named for path in lake.glob("day=*/shard=*/*.parquet"))
