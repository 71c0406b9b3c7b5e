"""Files that are there or not, never half: write, sync, link; locks that die with their process; system errors in our words.

Always true: when `create` or `replace_file` returns, the file survives a power cut; when it raises, no new file is visible.
What `with_sum` wrote, `without_sum` gives back byte for byte under the same name, or says that it cannot.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from counterpoint.errors import CounterpointError, InputError, NotFound, TryAgain

_FULLSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
TEMPORARY = ".tmp-"
_SUM = b'\n{"sum":%010d}\n'
_SUM_BYTES = len(_SUM % 0)


class SumError(ValueError):
    """Bytes that are not what was written."""


class Fixes(NamedTuple):
    """What to do about errors of the system: for a store, unless somebody else writes."""

    full: str = "free some space and run it again"
    denied: str = "check the folder's owner and mode, or use --store DIR"
    read_only: str = "open it with read_only=True, or use --store DIR"
    not_a_folder: str = "name a folder with --store DIR"


_FIXES = Fixes()


@contextmanager
def translate_errors(where: str | os.PathLike[str], fixes: Fixes = _FIXES) -> Iterator[None]:
    """System errors inside become one of ours, about `where`."""
    try:
        yield
    except CounterpointError:
        raise
    except OSError as error:
        raise our_error(error, os.fspath(where), fixes) from error


def our_error(error: OSError, where: str, fixes: Fixes = _FIXES) -> CounterpointError:
    """What a system error means for whoever reads and writes here."""
    if isinstance(error.filename, (str, os.PathLike)):
        where = os.fspath(error.filename)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            why = "what was acknowledged before is kept; what was being written is not stored"
            return CounterpointError("no space left to write", where=where, why=why, fix=fixes.full)
        case errno.EACCES | errno.EPERM:
            return InputError("permission denied", where=where, fix=fixes.denied)
        case errno.EROFS:
            return InputError("the file system is read-only", where=where, fix=fixes.read_only)
        case errno.ENOENT:
            return NotFound("no such file or folder", where=where, fix="check the path")
        case errno.ENOTDIR | errno.EEXIST:
            return InputError("is a file, not a folder", where=where, fix=fixes.not_a_folder)
        case errno.EMFILE | errno.ENFILE:
            return TryAgain("too many open files", where=where, fix="close some, or raise `ulimit -n`")
    return CounterpointError(error.strerror or str(error), where=where)


def write_all(fd: int, data: bytes) -> None:
    """Every byte, or an error: a full disk may take a part of a write and say so only on the next."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_file(fd: int) -> None:
    """Wait until the file's bytes are on the medium: on macOS fsync alone leaves them in the drive's cache."""
    if _FULLSYNC is None:
        os.fdatasync(fd)
    else:  # pragma: no cover
        fcntl.fcntl(fd, _FULLSYNC)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """The folder and its parents, durable."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    sync_folder(path.parent)


def temporary(folder: Path) -> Path:
    """A name in the folder that nobody reads."""
    return folder / f"{TEMPORARY}{uuid.uuid4().hex}"


def create(path: Path, data: bytes) -> bool:
    """A new file with these bytes, whole and durable; False when somebody made it first."""
    draft = temporary(path.parent)
    try:
        write_new(draft, data)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        sync_folder(path.parent)
        return True
    finally:
        remove(draft)


def replace_file(path: Path, data: bytes) -> None:
    """The file with these bytes, in place of what was there; readers see the old or the new."""
    draft = temporary(path.parent)
    try:
        write_new(draft, data)
        os.replace(draft, path)
        sync_folder(path.parent)
    finally:
        remove(draft)


def with_sum(data: bytes, name: str) -> bytes:
    """The bytes of a file that can be checked: what it holds, and a line with the CRC-32 of its name and that."""
    return data + _SUM % zlib.crc32(data, zlib.crc32(name.encode()))


def without_sum(data: bytes, name: str) -> bytes:
    """What such a file holds; `SumError` when a bit of it changed, or when it lies under another name."""
    held = data[:-_SUM_BYTES]
    if with_sum(held, name) != data:
        raise SumError("its bytes have changed since they were written" if is_summed(data) else "its end is missing or changed")
    return held


def is_summed(data: bytes) -> bool:
    """Whether a file ends with the line of its sum, right or wrong."""
    return data[-_SUM_BYTES:].startswith(_SUM[:8])


def write_new(path: Path, data: bytes, *, durably: bool = True) -> None:
    """A file that was not there, its bytes on disk; its name is not yet."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, data)
        if durably:
            os.fsync(fd)
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """Gone, whether or not it was there."""
    with suppress(FileNotFoundError):
        path.unlink()


def lock(fd: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Take the file's lock, which the system frees when its holder dies; False when it is taken. Shared ones go together.

    With `wait`, return when it is ours: those who wait get it in turn, and Ctrl-C ends the waiting.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(fd, kind if wait else kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def unlock(fd: int) -> None:
    """Give the file's lock back, also for a forked child that has a copy of the file."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def sweep(folder: Path, older_than_s: float) -> None:
    """Remove drafts that a dead process left behind."""
    for entry in folder.glob(f"{TEMPORARY}*"):
        with suppress(FileNotFoundError):
            if time.time() - entry.stat().st_mtime > older_than_s:
                entry.unlink()
