"""A file that only grows, with one writer: what was acknowledged is in it, and nothing else counts.

Always true: when `append` returns, the bytes are in the file whole, and on the medium where it was asked to wait; when it
raises, the file ends where it ended before, and where even that could not be done, the next `append` does it first. `size` is
where the acknowledged bytes end: what lies behind it is what a killed writer left. What the bytes mean, and which sums prove it,
is for whoever writes them: the journal, annotations, a run's rows, the receiver's spool.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import counterpoint.store.disk as disk


class AppendFile:
    """One open file and its acknowledged size."""

    def __init__(self, fd: int, size: int = 0) -> None:
        """Take an open descriptor over."""
        self.fd, self.size = fd, size
        self._is_torn = False

    @classmethod
    def open(cls, path: Path, *, flags: int = 0, mode: int = 0o644) -> AppendFile:
        """Open a file for reading and writing; nothing of it is acknowledged yet."""
        return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, mode))

    @property
    def is_open(self) -> bool:
        """Whether this process still holds the file."""
        return self.fd >= 0

    def is_at(self, path: Path) -> bool:
        """Whether the path still names this file: another process may have removed or replaced it."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(self.fd))
        except FileNotFoundError:
            return False

    @property
    def is_removed(self) -> bool:
        """Whether no path names this file any more: what is written to it is lost when it is closed."""
        return os.fstat(self.fd).st_nlink == 0

    def read(self, begin: int = 0) -> bytes:
        """Every byte from `begin` on, acknowledged or not."""
        parts = []
        while part := os.pread(self.fd, max(os.fstat(self.fd).st_size - begin, 1), begin):
            parts.append(part)
            begin += len(part)
        return b"".join(parts)

    def cut(self, size: int) -> None:
        """Let the file end here, durably: what lies behind was never acknowledged, or is not wanted any more."""
        if size < os.fstat(self.fd).st_size:
            os.ftruncate(self.fd, size)
            os.fsync(self.fd)
        self.size, self._is_torn = size, False

    def append(self, data: bytes, *, durably: bool = True, acknowledge: Callable[[], None] | None = None) -> None:
        """Write behind the acknowledged bytes; `acknowledge` runs when they are on the medium, and is a part of the success."""
        if self._is_torn:
            os.ftruncate(self.fd, self.size)
            self._is_torn = False
        try:
            os.lseek(self.fd, self.size, os.SEEK_SET)
            disk.write_all(self.fd, data)
            if durably:
                disk.sync_file(self.fd)
            if acknowledge is not None:
                acknowledge()
        except BaseException:
            # Back to the last acknowledged byte. The bytes stay with the caller, so that trying again writes them anew even
            # where a failed sync has left the cache and the disk in disagreement.
            self._is_torn = True
            with suppress(OSError):
                os.ftruncate(self.fd, self.size)
                self._is_torn = False
            raise
        self.size += len(data)

    def sync(self) -> None:
        """Wait until all bytes are on the medium."""
        os.fsync(self.fd)

    def close(self) -> None:
        """Let go of the file, and with it of its lock; it stays."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
