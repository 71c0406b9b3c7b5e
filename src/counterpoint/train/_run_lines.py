"""Append-only files of JSON lines that survive a kill and a full disk.

Always true: every line before the last is whole, whatever happened; a torn last line is not there for a reader, and is cut
when the file is opened for writing. A line that could not be written whole is taken back. What is not a finite number is null.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from counterpoint.errors import CounterpointError, InputError, TryAgain

__all__ = ["Lines", "explained", "json_bytes", "read_lines"]


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        return value.tolist()
    raise NotImplementedError


def json_bytes(value: Any) -> bytes:
    """One line of JSON, without its end."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InputError(f"cannot be written as JSON: {error}", fix="text, numbers, lists, tables") from error


@contextmanager
def explained(path: Path, run: Path) -> Iterator[None]:
    """System errors while a run is written, in our words; a full disk says how to go on."""
    try:
        yield
    except CounterpointError:
        raise
    except OSError as error:
        where = os.fspath(error.filename) if isinstance(error.filename, (str, os.PathLike)) else os.fspath(path)
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
                fix = f"free some space, then: counterpoint train --resume {run}"
                why = "everything written before is whole"
                raise CounterpointError("no space left to write", where=where, why=why, fix=fix) from error
            case errno.EACCES | errno.EPERM | errno.EROFS:
                raise InputError("may not be written", where=where, fix="check the folder's owner and mode") from error
        raise CounterpointError(error.strerror or str(error), where=where) from error


def _rows(data: bytes, path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows, and where each ends; a last line that is torn is left out, any other that is not an object is an error."""
    rows: list[dict[str, Any]] = []
    ends: list[int] = []
    begin = 0
    while (end := data.find(b"\n", begin)) >= 0:
        try:
            row = msgspec.json.decode(data[begin:end])
            is_row = isinstance(row, dict)
        except msgspec.DecodeError:
            is_row = False
        if not is_row:
            if end + 1 == len(data):
                break
            fix = "restore the file, or begin the run again"
            raise InputError("is not a JSON object", where=f"{path}:{len(rows) + 1}", fix=fix)
        rows.append(row)
        ends.append(end + 1)
        begin = end + 1
    return rows, ends


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Every whole row; none where there is no file yet."""
    try:
        return _rows(path.read_bytes(), path)[0]
    except FileNotFoundError:
        return []


class Lines:
    """The writer of one such file; one at a time."""

    def __init__(self, path: Path, *, run: Path) -> None:
        self.path, self._run = path, run
        with explained(path, run):
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with explained(path, run):
                self._take()
                self.last = self._cut(None)
        except BaseException:
            os.close(self._fd)
            raise

    def _take(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TryAgain("is being written by another process", where=os.fspath(self._run), fix="wait for it to end") from error

    def _cut(self, after: int | None) -> dict[str, Any] | None:
        """Leave whole rows only, and none of an update later than `after`; the last row that stays."""
        data = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        rows, ends = _rows(data, self.path)
        keep = len(rows) if after is None else next((i for i, row in enumerate(rows) if row.get("update", 0) > after), len(rows))
        self._size = ends[keep - 1] if keep else 0
        if self._size < len(data):
            os.ftruncate(self._fd, self._size)
            os.fsync(self._fd)
        return rows[keep - 1] if keep else None

    def cut(self, after: int) -> None:
        """Drop the rows of later updates."""
        with explained(self.path, self._run):
            self.last = self._cut(after)

    def append(self, row: Mapping[str, Any]) -> None:
        """One more row: there as a whole for every reader, or not at all."""
        data = json_bytes(row) + b"\n"
        with explained(self.path, self._run):
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._fd, view) :]
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(self._fd, self._size)
                raise
        self._size += len(data)
        self.last = dict(row)

    def sync(self) -> None:
        """Wait until the rows would survive a power cut."""
        with explained(self.path, self._run):
            os.fsync(self._fd)

    def close(self) -> None:
        """Let others write."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
