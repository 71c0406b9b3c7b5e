"""The head of the log: one small file that is the writers' lock and remembers how far the log goes.

Always true: whoever takes a number of the log, writes a checkpoint or sweeps holds the lock, and the system frees it when its
holder dies; so a number is taken by the one who has just read all that came before it. The head never says more than the log
holds: it is written, in place, after the commit is durable. A log that ends before its head has lost a commit.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import counterpoint.store.disk as disk
from counterpoint.errors import InputError

NAME = "head"
REPAIR = "counterpoint store repair --store {store} rebuilds it from the lake and the journals"
_FORM = b'{"commit":%012d,"checkpoint":%012d,'
_SUM = b'"sum":%010d}\n'
_BYTES = len(_FORM % (0, 0) + _SUM % 0)


class Position(NamedTuple):
    """How far a log goes."""

    commit: int = 0
    checkpoint: int = 0
    """The newest checkpoint."""

    def encoded(self) -> bytes:
        """As it stands in the file, always of one length."""
        line = _FORM % self
        return line + _SUM % zlib.crc32(line)

    @classmethod
    def decoded(cls, data: bytes) -> Position | None:
        """What the file says; None when a bit of it changed."""
        try:
            position = cls(int(data[10:22]), int(data[36:48]))
        except ValueError:
            return None
        return position if position.encoded() == data else None


class Head:
    """The head of one store's log, as one process holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._depth = 0

    @staticmethod
    def create(path: Path) -> None:
        """A head for a log that is empty, unless there is one."""
        disk.create(path, Position().encoded())

    def _file(self) -> int:
        if self._fd < 0:
            try:
                self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                raise _lost_error(self.path, "is missing") from None
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)  # a reader can do with less
        return self._fd

    def read(self) -> Position:
        """How far the log goes, at least."""
        fd = self._file()
        position = Position.decoded(os.pread(fd, _BYTES + 1, 0))
        if position is None:  # a writer may be about to write it: what stands there when nobody writes is what counts
            with self.lock(shared=True):
                position = Position.decoded(os.pread(fd, _BYTES + 1, 0))
        if position is None:
            raise _lost_error(self.path, "is damaged")
        return position

    def write(self, position: Position, *, durably: bool = False) -> None:
        """Say how far the log goes now; the caller holds the lock, and what is said is on disk."""
        fd = self._file()
        os.pwrite(fd, position.encoded(), 0)
        os.ftruncate(fd, _BYTES)
        if durably:
            disk.sync_file(fd)

    @contextmanager
    def lock(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock: alone, or with others who only read. Inside itself it holds what it has."""
        if self._depth == 0:
            disk.lock(self._file(), shared=shared, wait=True)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0 and self._fd >= 0:
                disk.unlock(self._fd)

    def close(self) -> None:
        """Let go of the file, and so of the lock; in a forked child, of its copy only."""
        fd, self._fd, self._depth = self._fd, -1, 0
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)


def _lost_error(path: Path, what: str) -> InputError:
    why = "without it damage to the log goes unnoticed"
    fix = REPAIR.format(store=os.fspath(path.parent))
    return InputError(f"the head of the store's log {what}", where=os.fspath(path), why=why, fix=fix)
