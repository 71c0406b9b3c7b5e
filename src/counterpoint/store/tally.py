"""The tally of a journal: how many of its bytes were acknowledged, and their sum, in a small file beside it.

Always true: the tally never says more than the journal holds on disk, and is on disk itself before anything is acknowledged; so a
journal that is shorter than its tally, or other than it, or missing, is damaged, and what follows the tallied bytes was never
acknowledged. It is written in place, by the one who holds the journal's lock. The journal comes first and goes first: a tally
without a journal, of a trace that is not in the lake, is a run that was lost.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

import counterpoint.store.disk as disk
from counterpoint.errors import InvalidTrace

SUFFIX = ".tally"
_FORM = b'{"bytes":%015d,"crc":%010d,'
_SUM = b'"sum":%010d}\n'
_RECORD = len(_FORM % (0, 0) + _SUM % 0)
# A writer may be in the middle of its sixty bytes; it needs microseconds for them.
_LOOKS, _PAUSE_S = 20, 0.002


class Tally(NamedTuple):
    """What was acknowledged of a journal."""

    size: int
    """In bytes."""
    crc: int
    """CRC-32 of that many bytes from its beginning."""
    trace_id: str

    @property
    def is_over(self) -> bool:
        """Whether the run was stored or dropped: its journal is being removed."""
        return self.size == 0

    def encoded(self) -> bytes:
        """As it stands in the file; all tallies of one run are of one length."""
        record, name = _FORM % (self.size, self.crc), msgspec.json.encode(self.trace_id) + b"\n"
        return record + _SUM % zlib.crc32(record + name) + name

    @classmethod
    def decoded(cls, data: bytes) -> Tally | None:
        """What the file says; None when a bit of it changed."""
        try:
            tally = cls(int(data[9:24]), int(data[31:41]), msgspec.json.decode(data[_RECORD:], type=str))
        except (ValueError, msgspec.MsgspecError):
            return None
        return tally if tally.encoded() == data else None

    def holds(self, data: bytes) -> bool:
        """Whether a journal of these bytes begins with what was acknowledged."""
        return len(data) >= self.size and zlib.crc32(memoryview(data)[: self.size]) == self.crc


def tally_path(journal: Path) -> Path:
    """The tally of a journal."""
    return journal.with_suffix(SUFFIX)


def read_tally(journal: Path) -> Tally | None:
    """What was acknowledged of a journal; None when there is no tally, `InvalidTrace` when it is not as it was written."""
    path = tally_path(journal)
    for _ in range(_LOOKS):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        tally = Tally.decoded(data)
        if tally is not None:
            return tally
        time.sleep(_PAUSE_S)
    raise damage_error("the tally of the journal has changed since it was written", path)


def tally_or_fault(journal: Path) -> tuple[Tally | None, InvalidTrace | None]:
    """The same, and why it cannot be read: a run that was just begun needs none, and after a power cut may have half of one."""
    try:
        return read_tally(journal), None
    except InvalidTrace as error:
        return None, error


def is_short(journal: Path, size: int) -> bool:
    """Whether a journal of this size lacks what was acknowledged of it: it is damaged, or has grown since somebody looked."""
    tally, _ = tally_or_fault(journal)
    return tally is not None and size < tally.size


def lost_runs(folder: Path, sealed: Container[str]) -> Iterator[tuple[Path, InvalidTrace]]:
    """The journals that are missing: tallies without one, of traces that are not stored. Each with what to say about it."""
    names = set(os.listdir(folder)) if folder.is_dir() else set()
    for name in sorted(n for n in names if n.endswith(SUFFIX)):
        journal = Path(folder, name).with_suffix(".jsonl")
        if journal.name not in names and (error := lost_run(journal, sealed)) is not None:
            yield journal, error


def sweep_tallies(folder: Path, sealed: Container[str]) -> None:
    """Remove tallies whose runs are stored: their writers died between the journal's end and theirs."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        journal = path.with_suffix(".jsonl")
        with suppress(InvalidTrace):
            tally = read_tally(journal)
            if tally is not None and (tally.is_over or tally.trace_id in sealed) and not journal.exists():
                disk.remove(path)


def lost_run(journal: Path, sealed: Container[str]) -> InvalidTrace | None:
    """Why a run without a journal is lost; None where it is not: it was stored or dropped, or never was."""
    try:
        tally = read_tally(journal)
    except InvalidTrace as error:
        return None if journal.exists() else error
    if tally is None or tally.is_over or tally.trace_id in sealed or journal.exists():
        return None
    what = f"the journal of trace {tally.trace_id!r} is missing: {tally.size:,} bytes of it were acknowledged"
    return damage_error(what, journal)


def damage_error(what: str, path: Path) -> InvalidTrace:
    """A journal that is not what was acknowledged."""
    fix = f"counterpoint store repair --store {os.fspath(path.parent.parent)} recovers what is readable"
    return InvalidTrace(what, where=os.fspath(path), fix=fix)


class TallyFile:
    """The tally of one journal, as its writer holds it."""

    def __init__(self, fd: int, tally: Tally) -> None:
        """Use `create` or `take`."""
        self._fd, self.tally = fd, tally

    @staticmethod
    def draft(path: Path, tally: Tally) -> None:
        """A new file that says this; the caller names it. It is on disk with the first records: before, nothing counts."""
        disk.write_new(path, tally.encoded(), durably=False)

    @classmethod
    def take(cls, journal: Path, tally: Tally) -> TallyFile:
        """The tally of a journal whose lock is held; made where an older version left none."""
        path = tally_path(journal)
        if not path.exists():
            disk.create(path, tally.encoded())
        return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC), tally)

    def write(self, size: int, crc: int) -> None:
        """Say that so much is acknowledged, and wait until that is durable; when it raises, the old number stands."""
        before, self.tally = self.tally, self.tally._replace(size=size, crc=crc)
        try:
            os.pwrite(self._fd, self.tally.encoded(), 0)
            disk.sync_file(self._fd)
        except BaseException:
            self.tally = before
            with suppress(OSError):
                os.pwrite(self._fd, before.encoded(), 0)
            raise

    def end(self, *, durably: bool) -> None:
        """Say that the run is over. A stored one needs no waiting: the lake says so too."""
        os.pwrite(self._fd, self.tally._replace(size=0, crc=0).encoded(), 0)
        if durably:
            disk.sync_file(self._fd)

    def remove(self, journal: Path) -> None:
        """Remove the file, unless it is another's: who begins a run under a name that was just dropped makes a new one."""
        path = tally_path(journal)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._fd), os.stat(path)):
                disk.remove(path)

    def release(self) -> None:
        """Let go of the file; it stays."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
