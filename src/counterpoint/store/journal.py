"""The journal: one append-only file per running trace, in the form of `trace/lines.py`.

Always true: the writer holds the file's lock as long as it lives; every commit is whole lines and their sum, written and then
synced, and then tallied in a file beside it (`tally.py`), which is synced too; when `append` returns, its records survive kill -9
and a power cut; when it raises, the file ends where it ended before. A journal that does not begin with all that was tallied is
damaged. Only what a sum covers counts: what follows the last sum, or is wrong behind the tallied bytes, was never acknowledged: a
torn tail, cut when the next writer takes the file. Journals of older versions have no tally: there a wrong byte is reported, in
the last commit too, and a lost end is not noticed.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import weakref
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import counterpoint.store.disk as disk
from counterpoint.errors import InputError, InvalidTrace, NotFound, TryAgain
from counterpoint.store.append_file import AppendFile
from counterpoint.store.tally import Tally, TallyFile, damage_error, lost_run, tally_or_fault, tally_path
from counterpoint.trace.lines import LineReader, header_line, sum_line

_SUFFIX = ".jsonl"


def path_of(folder: Path, trace_id: str) -> Path:
    """The file of a trace: a readable beginning, and a hash so that no two ids share a file on any file system."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "_", trace_id)[:40].strip("._-")
    digest = hashlib.sha256(trace_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return folder / f"{slug or 'trace'}-{digest}{_SUFFIX}"


def journals(folder: Path) -> Iterator[Path]:
    """The journal files of a folder, in order of name."""
    with suppress(FileNotFoundError):
        yield from (Path(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(_SUFFIX))


def peek(path: Path) -> LineReader | None:
    """What a journal says so far, whoever is writing it; None when it is gone. `InvalidTrace` when it is damaged."""
    for _ in range(2):  # a writer may just have begun, or gone back behind what it could not write
        try:
            tally = tally_or_fault(path)  # first: what it says is in the journal already
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        with suppress(InvalidTrace):
            return _read(data, path, *tally)[0]
    try:
        return _read(data, path, *tally)[0]
    except InvalidTrace:
        if path.exists():
            raise
        return None  # stored or dropped while we looked


def is_there(path: Path) -> bool:
    """Whether a run has a journal, or had one that is missing."""
    return path.exists() or tally_path(path).exists()


def is_held(path: Path) -> bool:
    """Whether somebody is recording into this journal now; False too when it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not disk.lock(fd, shared=True)
    finally:
        os.close(fd)


def _read(data: bytes, path: Path, tally: Tally | None, fault: InvalidTrace | None = None) -> tuple[LineReader, int]:
    """What the sums of a journal cover, and where its torn tail begins; `fault` says why a tally cannot be read."""
    if tally is not None and not tally.is_over:
        return _read_tallied(data, path, tally)
    reader = LineReader(where=os.fspath(path))
    end = _end_of_sums(data)
    if not end:  # a journal of the first form had no sum until its first commit
        end = data.find(b"\n") + 1
        if not end:
            raise damage_error("the journal has no header", path)
    try:
        reader.feed(data[:end])
    except InvalidTrace:
        before = _end_of_sums(data[: data.rfind(b"\n" + _SUM, 0, end) + 1])
        if reader.at < before or not before or _HOLE not in data[before:end]:
            raise
        # After a power cut the last commit may have its sum and a hole before it; it was never acknowledged.
        reader, end = LineReader(where=os.fspath(path)), before
        reader.feed(data[:end])
        return reader, end
    _check_tail(data[end:], reader)
    is_young = not (reader.events or reader.edges or reader.contents or reader.finished)
    if tally is None and (fault or reader.is_tallied) and not is_young:
        missing = "the tally of the journal is missing: how much of it was acknowledged is not known"
        raise fault or damage_error(missing, tally_path(path))
    return reader, end


def _read_tallied(data: bytes, path: Path, tally: Tally) -> tuple[LineReader, int]:
    """The same where it is known what was acknowledged: that must be there, and a tail that is wrong is a torn one."""
    known = tally.size
    if not tally.holds(data):
        LineReader(where=os.fspath(path)).feed(data[:known])  # where a line is wrong, it is named
        if len(data) < known:
            raise damage_error(f"the journal has lost its end: {len(data):,} of {known:,} acknowledged bytes are there", path)
        raise damage_error("the journal is not what was acknowledged: its bytes have changed", path)
    end = max(_end_of_sums(data), known)
    if end > known:
        reader = LineReader(where=os.fspath(path))
        with suppress(InvalidTrace):
            reader.feed(data[:end])
            return reader, end
    reader = LineReader(where=os.fspath(path))
    reader.feed(data[:known])
    return reader, known


_SUM = b'{"sum":'
# What a file has where blocks of it were never written. JSON has no such bytes, and one changed bit makes no two of them.
_HOLE = b"\0\0"


def _end_of_sums(data: bytes) -> int:
    """Where the last whole line ends that is a sum; 0 when there is none."""
    at = data.rfind(b"\n" + _SUM)
    while at >= 0:
        end = data.find(b"\n", at + 1) + 1
        if end:
            return end
        at = data.rfind(b"\n" + _SUM, 0, at)
    return 0


def good_bytes(data: bytes, path: Path) -> int:
    """How many bytes from the beginning of a damaged journal are as they were written: up to a sum that holds."""
    end = len(data)
    while end := _end_of_sums(data[:end]):
        try:
            LineReader(where=os.fspath(path)).feed(data[:end])
            return end
        except InvalidTrace:
            end = data.rfind(b"\n" + _SUM, 0, end) + 1
    return 0


def take_stock(path: Path, data: bytes) -> None:
    """Let the tally say that all these bytes of a journal are acknowledged; the caller holds the journal's lock."""
    reader = LineReader(where=os.fspath(path))
    reader.feed(data)
    name = reader.header.trace_id if reader.header is not None else ""
    disk.replace_file(tally_path(path), Tally(len(data), zlib.crc32(data), name).encoded())


def _check_tail(tail: bytes, so_far: LineReader) -> None:
    """A tail that was torn begins like any commit; one that does not was a commit, and is damaged."""
    if not tail or _HOLE in tail:
        return
    reader = copy.copy(so_far)  # what the tail says is for this look only
    reader.events, reader.edges, reader.contents = [*so_far.events], [*so_far.edges], dict(so_far.contents)
    reader.open = dict(so_far.open)
    end = reader.feed(tail)
    if tail.startswith(_SUM, end) and b"}" in tail[end:-1]:
        raise InvalidTrace("the end of the last sum has changed", where=f"{so_far.where}: line {reader.line + 1}")


class Journal:
    """The writer of one journal file."""

    def __init__(self, path: Path, file: AppendFile, crc: int, tally: TallyFile) -> None:
        """Use `create` or `resume`."""
        self.path, self._file, self._crc = path, file, crc
        self._tally = tally
        _live.add(self)

    @classmethod
    def create(
        cls, folder: Path, trace_id: str, task_id: str, system: str | None, topology: Any, meta: dict[str, Any]
    ) -> Journal:
        """A new journal with its header and the header's sum, durable and locked before anybody can see it."""
        header = header_line(trace_id, task_id, system, topology, meta)
        header += sum_line(zlib.crc32(header), is_tallied=True)
        path, draft, beside = path_of(folder, trace_id), disk.temporary(folder), disk.temporary(folder)
        tally = Tally(len(header), zlib.crc32(header), trace_id)
        with disk.translate_errors(path):
            if (lost := lost_run(path, ())) is not None:
                raise lost
            file = AppendFile.open(draft, flags=os.O_APPEND | os.O_CREAT | os.O_EXCL)
            try:
                disk.lock(file.fd)
                file.append(header, durably=False)
                file.sync()
                TallyFile.draft(beside, tally)
                os.link(draft, path)
                disk.remove(tally_path(path))  # of a run that was stored or dropped before its tally could go
                os.link(beside, tally_path(path))
                disk.sync_folder(folder)
                held = TallyFile.take(path, tally)
            except BaseException as error:
                file.close()
                if isinstance(error, FileExistsError):
                    raise _taken_error(path, trace_id) from None
                raise
            finally:
                disk.remove(draft)
                disk.remove(beside)
        return cls(path, file, 0, held)

    @classmethod
    def resume(cls, path: Path) -> tuple[Journal, LineReader] | None:
        """Take over a dead writer's journal and cut its torn tail; None when it is held, or gone meanwhile."""
        with disk.translate_errors(path):
            try:
                file = AppendFile.open(path, flags=os.O_APPEND)
            except FileNotFoundError:
                return None
            try:
                if not disk.lock(file.fd) or not file.is_at(path):
                    file.close()
                    return None
                data = file.read()
                reader, size = _read(data, path, *tally_or_fault(path))
                file.cut(size)
                name = reader.header.trace_id if reader.header is not None else ""
                held = TallyFile.take(path, Tally(size, zlib.crc32(data[:size]), name))
            except BaseException:
                with suppress(OSError):
                    file.close()
                raise
        return cls(path, file, reader.crc, held), reader

    @staticmethod
    def drop(path: Path, trace_id: str) -> bool:
        """Delete a dead writer's journal, readable or not, or what is left of a missing one; False when somebody holds it."""
        with disk.translate_errors(path):
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                disk.remove(tally_path(path))
                return True
            try:
                if not disk.lock(fd):
                    return False
                tally = TallyFile.take(path, Tally(0, 0, trace_id))
                tally.end(durably=True)
                disk.remove(path)
                tally.remove(path)
                tally.release()
                disk.sync_folder(path.parent)
            finally:
                os.close(fd)
        return True

    @property
    def is_open(self) -> bool:
        """Whether this process still holds the file."""
        return self._file.is_open

    def append(self, lines: bytes) -> None:
        """Write whole lines and their sum, and wait until they are durable."""
        if not self.is_open:
            raise InputError("this run is closed, or belongs to the process that forked this one", where=str(self.path))
        data = lines + sum_line(zlib.crc32(lines, self._crc))
        known = self._tally.tally
        with disk.translate_errors(self.path):
            size, crc = known.size + len(data), zlib.crc32(data, known.crc)
            self._file.append(data, acknowledge=lambda: self._acknowledge(size, crc))
        self._crc = 0

    def _acknowledge(self, size: int, crc: int) -> None:
        if self.is_removed:
            what = "somebody removed the journal while this process wrote it: what it held is lost"
            raise NotFound(what, where=str(self.path), fix="record again; remove recordings with `counterpoint store rm`")
        self._tally.write(size, crc)

    @property
    def is_removed(self) -> bool:
        """Whether somebody removed the file while it was written."""
        return self.is_open and self._file.is_removed

    def read(self) -> LineReader:
        """Everything that is in the file."""
        with disk.translate_errors(self.path), open(self.path, "rb") as file:
            return _read(file.read(), self.path, self._tally.tally)[0]

    def delete(self) -> None:
        """Remove the file, which the lake has made needless, and let go of it."""
        self._tally.end(durably=False)
        disk.remove(self.path)
        self._tally.remove(self.path)
        disk.sync_folder(self.path.parent)
        self.release()

    def release(self) -> None:
        """Let go of the file; it stays."""
        _live.discard(self)
        self._tally.release()
        self._file.close()


def _taken_error(path: Path, trace_id: str) -> InputError | TryAgain:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return TryAgain(f"trace {trace_id!r} was being recorded a moment ago", where=os.fspath(path))
    try:
        is_dead = disk.lock(fd)
    finally:
        os.close(fd)
    if is_dead:
        fix = "store.resume(id) resumes it, store.remove(id) drops it"
        return InputError(f"trace {trace_id!r} is unfinished", where=os.fspath(path), fix=fix)
    fix = "wait for it, or record under another id"
    return TryAgain(f"trace {trace_id!r} is being recorded", where=os.fspath(path), fix=fix)


_live: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    """A forked child must not write into its parent's journals, nor keep their locks alive after it."""
    for journal in list(_live):
        journal.release()


os.register_at_fork(after_in_child=_after_fork)
