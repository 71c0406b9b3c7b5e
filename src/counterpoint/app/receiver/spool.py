"""The spool of the receiver: lines that are on disk before anybody is told so, until their trace is sealed.

Always true: when the future of `append` is done, its lines survive a power cut; requests that come together share one sync of
the disk; a line that a kill tore is cut when the spool is opened again, and it was never acknowledged. A segment is deleted
when nobody needs a line of it any more. One process has the spool at a time.

    otlp/spool/00000001.jsonl   OTLP JSON, one object per line, as OpenTelemetry's own file exporter writes
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import msgspec
import zstandard

from counterpoint.errors import CounterpointError, InputError, TryAgain
from counterpoint.store import disk
from counterpoint.store.append_file import AppendFile

_SEGMENT = 64 << 20
_BLOCK = 1 << 20
_SUM = 4
Then = Callable[[Sequence["Place"]], None]


class Place(NamedTuple):
    """Where a line lies."""

    segment: int
    offset: int
    size: int


class _Job(NamedTuple):
    lines: Sequence[bytes]
    then: Then
    done: Future[None]


class Spool:
    """Lines at rest, in numbered segments of one folder."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, or `TryAgain` when another process has it. Read `recovered` to its end before the first `append`."""
        self.folder = folder
        with disk.translate_errors(folder):
            disk.make_folder(folder)
            self._lock_fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not disk.lock(self._lock_fd):
                os.close(self._lock_fd)
                fix = "stop the other `counterpoint serve`, or use another --store"
                raise TryAgain("another receiver writes to this store", where=os.fspath(folder), fix=fix)
        numbers = sorted(int(path.stem) for path in folder.glob("*.jsonl") if path.stem.isdigit())
        self._found = numbers
        self._last = numbers[-1] if numbers else 0
        self._file: AppendFile | None = None
        """The last segment, while it is being written."""
        self._live: Counter[int] = Counter()
        """Segment to the number of lines in it that are still needed."""
        self._disk = threading.Lock()
        """Held by whoever writes, or takes a segment away."""
        self._pending: list[_Job] = []
        self._wake = threading.Condition()
        self._is_closing = False
        self._writer = threading.Thread(target=self._run, name="otlp-spool", daemon=True)
        self._writer.start()

    def _path(self, segment: int) -> Path:
        return self.folder / f"{segment:08d}.jsonl"

    # -- reading -----------------------------------------------------------------------------------------------------------

    def recovered(self) -> Iterator[tuple[bytes, Place]]:
        """Every whole line that an earlier process left, in order; a torn last one is cut."""
        for segment in self._found:
            with disk.translate_errors(self._path(segment)):
                yield from self._recovered(segment)
        self.forget(())

    def _recovered(self, segment: int) -> Iterator[tuple[bytes, Place]]:
        offset = 0
        self._live[segment] += 0
        with self._path(segment).open("r+b") as file:
            for line in file:
                is_whole = line.endswith(b"\n") or (b"\t" in line and opened_line(line) is not None)
                if not is_whole:
                    file.truncate(offset)
                    os.fsync(file.fileno())
                    break
                self._live[segment] += 1
                # A damaged line is given as it lies there: whoever reads it finds no request in it, and puts it aside.
                yield opened_line(line) or line, Place(segment, offset, len(line))
                offset += len(line)

    def read(self, places: Iterable[Place]) -> Iterator[bytes]:
        """The lines at some places, in their order."""
        fd, opened = -1, -1
        try:
            for place in places:
                if place.segment != opened:
                    if fd >= 0:
                        os.close(fd)
                    fd, opened = os.open(self._path(place.segment), os.O_RDONLY | os.O_CLOEXEC), place.segment
                line = opened_line(_whole(fd, place))
                if line is None:
                    where = os.fspath(self._path(place.segment))
                    raise CounterpointError("a line of the spool is damaged: its checksum differs", where=where)
                yield line
        finally:
            if fd >= 0:
                os.close(fd)

    def size(self) -> int:
        """Bytes on disk."""
        with self._disk:
            return sum(self._path(s).stat().st_size for s in self._live if self._path(s).exists())

    # -- writing -----------------------------------------------------------------------------------------------------------

    def append(self, lines: Sequence[bytes], then: Then) -> Future[None]:
        """Write lines (each with its line end); done when they are durable and `then` was told where they lie."""
        done: Future[None] = Future()
        with self._wake:
            if self._is_closing:
                done.set_exception(TryAgain("the receiver is shutting down"))
                return done
            self._pending.append(_Job(lines, then, done))
            self._wake.notify()
        return done

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._pending and not self._is_closing:
                    self._wake.wait()
                jobs, self._pending = self._pending, []
            if not jobs:
                return
            try:
                places = self._commit([_summed_line(line) for job in jobs for line in job.lines])
                begin = 0
                for job in jobs:
                    job.then(places[begin : begin + len(job.lines)])
                    begin += len(job.lines)
            except Exception as error:  # the writer must live on, and whoever waits must hear why
                for job in jobs:
                    job.done.set_exception(error)
            else:
                for job in jobs:
                    job.done.set_result(None)

    def _commit(self, lines: Sequence[bytes]) -> list[Place]:
        with self._disk, disk.translate_errors(self.folder):
            if self._file is not None and self._file.size >= _SEGMENT:
                self._leave()
            file = self._file or self._begin()
            places, offset = [], file.size
            for line in lines:
                places.append(Place(self._last, offset, len(line)))
                offset += len(line)
            try:
                file.append(b"".join(lines))
            except OSError:  # what the disk holds now is not known: the next lines go to a new segment
                self._leave()
                raise
            self._live[self._last] += len(lines)
            return places

    def _begin(self) -> AppendFile:
        path = self._path(self._last + 1)
        self._file = AppendFile.open(path, flags=os.O_CREAT | os.O_EXCL | os.O_APPEND, mode=0o600)
        self._last += 1
        self._live[self._last] += 0
        disk.sync_folder(self.folder)
        return self._file

    def _leave(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- letting go --------------------------------------------------------------------------------------------------------

    def forget(self, places: Iterable[Place]) -> None:
        """These lines are needed no longer; segments without any other go."""
        with self._disk, disk.translate_errors(self.folder):
            self._live.subtract(place.segment for place in places)
            for segment in [s for s, n in self._live.items() if n <= 0]:
                if segment == self._last:
                    self._leave()
                disk.remove(self._path(segment))
                del self._live[segment]

    def sparse(self) -> list[int]:
        """Segments, but the one being written, that are kept for a few lines: worth moving those."""
        with self._disk:
            return [s for s, n in self._live.items() if s != self._last and 0 < n <= 64]

    def close(self) -> None:
        """Write what waits, and let the folder go."""
        with self._wake:
            if self._is_closing:
                return
            self._is_closing = True
            self._wake.notify()
        self._writer.join()
        with self._disk:
            self._leave()
            os.close(self._lock_fd)


def _summed_line(line: bytes) -> bytes:
    """A line with its sum behind a tab, which JSON on one line has nowhere."""
    return line[:-1] + b"\t" + hashlib.blake2b(line[:-1], digest_size=_SUM).hexdigest().encode() + b"\n"


def opened_line(line: bytes) -> bytes | None:
    """A line without its sum; None where it is not the one it was written with. Lines of older versions have none."""
    body, tab, found = line[:-1].rpartition(b"\t")
    if not tab:
        return line if line.endswith(b"}\n") else None
    return body + b"\n" if hashlib.blake2b(body, digest_size=_SUM).hexdigest().encode() == found else None


def _whole(fd: int, place: Place) -> bytes:
    parts, offset, left = [], place.offset, place.size
    while left:
        part = os.pread(fd, min(left, _BLOCK), offset)
        if not part:
            raise CounterpointError("the spool ends before a line it held", why="was the file changed by hand?")
        parts.append(part)
        offset, left = offset + len(part), left - len(part)
    return b"".join(parts)


# -- What left the spool: the records of each trace that came to rest, packed, and which traces are over --------------
# Always true: a file here holds every record of its key that was taken so far, each once, under a line that names what the key
# was joined with; it is replaced whole or not at all. A trace is over when its file was kept long enough and deleted; that is
# remembered in `over`.
#
#     otlp/sealed/<hash of the key>.otlp.jsonl.zst   those that became traces
#     otlp/sealed/<hash of a name>.joined            what a name without records of its own was joined with
#     otlp/refused/...                               those that no importer or store would take; kept until somebody looks
#     otlp/over                                      hashes of the keys whose file is gone, one per line

_GRACE_S = 600.0
"""A file is deleted so long after its key is over, so that nothing that was just taken loses it."""


class _Head(msgspec.Struct):
    joined: list[str]


class Sealed:
    """The packed records by key."""

    def __init__(self, folder: Path, keep_s: float) -> None:
        self._keep_s = keep_s
        self.refused = folder / "refused"
        self._sealed, self._over_path = folder / "sealed", folder / "over"
        with disk.translate_errors(folder):
            disk.make_folder(self._sealed)
            disk.make_folder(self.refused)
            self._over = set(self._over_path.read_text().split()) if self._over_path.exists() else set()

    def _path(self, key: str, *, is_refused: bool = False) -> Path:
        return (self.refused if is_refused else self._sealed) / f"{_hash(key)}.otlp.jsonl.zst"

    def _pointer(self, name: str) -> Path:
        return self._sealed / f"{_hash(name)}.joined"

    def read(self, key: str, *, only_refused: bool = False) -> tuple[list[str], list[bytes]]:
        """What a key was joined with, and its lines; both empty when nothing of it was packed."""
        joined: list[str] = []
        lines: list[bytes] = []
        refused = self._path(key, is_refused=True)
        for path in (refused,) if only_refused else (self._pointer(key), self._path(key), refused):
            if path.exists():
                names, found = _unpacked(path)
                joined += names
                lines += found
        return joined, lines

    def write(self, key: str, joined: Iterable[str], lines: Iterable[bytes], *, is_refused: bool) -> None:
        """Pack all lines of a key. What was sealed before stays beside what is refused now."""
        head, body = msgspec.json.encode(_Head(sorted(joined))) + b"\n", b"".join(lines)
        target = self._path(key, is_refused=is_refused) if body else self._pointer(key)
        with disk.translate_errors(target):
            disk.replace_file(target, zstandard.ZstdCompressor(level=3, write_checksum=True).compress(head + body))
            if body and not is_refused:
                disk.remove(self._path(key, is_refused=True))
                disk.remove(self._pointer(key))

    def put_aside(self, lines: Iterable[bytes]) -> Path:
        """Keep lines that cannot be read, for somebody to look at; returns the file."""
        path = self.refused / f"damaged-{time.time_ns()}.jsonl"
        with disk.translate_errors(path):
            disk.replace_file(path, b"".join(lines))
        return path

    def is_over(self, key: str) -> bool:
        """Whether a trace was sealed so long ago that a late record would take the place of those before it."""
        path = self._path(key)
        return _hash(key) in self._over or (path.exists() and _age_s(path) > self._keep_s)

    def expire(self, but: Iterable[str]) -> None:
        """Delete what was kept long enough, but not what is open."""
        is_open = {path for key in but for path in (self._path(key), self._pointer(key))}
        idle = (path for path in self._sealed.iterdir() if path not in is_open and not path.name.startswith(disk.TEMPORARY))
        old = [path for path in idle if _age_s(path) > self._keep_s + _GRACE_S]
        if not old:
            return
        names = [path.name.split(".")[0] for path in old if path.suffix == ".zst"]
        with disk.translate_errors(self._over_path):
            file = AppendFile.open(self._over_path, flags=os.O_CREAT | os.O_APPEND)
            try:
                file.size = os.fstat(file.fd).st_size
                file.append("".join(f"{name}\n" for name in names).encode())
            finally:
                file.close()
            self._over.update(names)
            for path in old:
                disk.remove(path)


def _unpacked(path: Path) -> tuple[list[str], list[bytes]]:
    try:
        head, *lines = zstandard.ZstdDecompressor().decompress(path.read_bytes()).splitlines(keepends=True)
        return msgspec.json.decode(head, type=_Head).joined, lines
    except (zstandard.ZstdError, msgspec.MsgspecError, ValueError) as error:
        raise InputError("the packed records of a trace are damaged", where=os.fspath(path), why=str(error)) from error


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _age_s(path: Path) -> float:
    return time.time() - path.stat().st_mtime
