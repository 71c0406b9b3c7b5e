"""Append-only files of JSON lines that survive a kill and a full disk.

Always true: every line before the last is whole, whatever happened, and has a sum over it and all before it; a torn last line is
not there for a reader, and is cut when the file is opened for writing. A line that could not be written whole is taken back.
What is not a finite number is null.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from counterpoint.errors import CounterpointError, InputError, TryAgain
from counterpoint.files import read_plain
from counterpoint.train._sums import checked_object, summed_object


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


_FIX = "restore the file from a copy, or begin the run again; what stands before this line is whole"


@dataclass
class Rows:
    """Rows of a file, where each ends, and the sum after each."""

    rows: list[dict[str, Any]]
    ends: list[int]
    sums: list[bytes]


def _rows(data: bytes, path: Path, *, is_summed: bool) -> Rows:
    """The rows; a last line that is torn is left out, any other that is not what was written is an error."""
    out = Rows([], [], [])
    begin, last = 0, path.name.encode()
    while (end := data.find(b"\n", begin)) >= 0:
        where = f"{path}:{len(out.rows) + 1}"
        try:
            body, last = checked_object(data[begin:end], last, where, is_summed=is_summed, fix=_FIX)
            row = msgspec.json.decode(body)
            is_row = isinstance(row, dict)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            is_row = False
        if not is_row:
            if end + 1 == len(data) and not is_summed:
                break
            raise InputError("is not a JSON object", where=where, fix=_FIX)
        out.rows.append(row)
        out.ends.append(end + 1)
        out.sums.append(last)
        begin = end + 1
    if is_summed and len(data) - begin > 1:
        _refuse_whole(data[begin:-1], last, f"{path}:{len(out.rows) + 1}")
    return out


def _refuse_whole(tail: bytes, before: bytes, where: str) -> None:
    """What is torn is half a line; a whole line without its end is one that was changed."""
    try:
        checked_object(tail, before, where, is_summed=True, fix=_FIX)
    except InputError:
        return
    raise InputError("is damaged: the end of the line is another byte", where=where, fix=_FIX)


def read_rows(path: Path, *, is_summed: bool = False) -> Rows:
    """Every whole row; none where there is no file yet."""
    try:
        return _rows(read_plain(path), path, is_summed=is_summed)
    except FileNotFoundError:
        return Rows([], [], [])


def _up_to(rows: list[dict[str, Any]], update: int) -> int:
    return next((i for i, row in enumerate(rows) if row.get("update", 0) > update), len(rows))


class Lines:
    """The writer of one such file; one at a time."""

    def __init__(self, path: Path, *, run: Path, is_summed: bool = False) -> None:
        self.path, self._run, self._is_summed = path, run, is_summed
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
        found = _rows(data, self.path, is_summed=self._is_summed)
        keep = len(found.rows) if after is None else _up_to(found.rows, after)
        self._size = found.ends[keep - 1] if keep else 0
        self.count, self._sum = keep, found.sums[keep - 1] if keep else self.path.name.encode()
        if self._size < len(data):
            os.ftruncate(self._fd, self._size)
            os.fsync(self._fd)
        return found.rows[keep - 1] if keep else None

    @property
    def end(self) -> list[Any]:
        """How many rows there are, and the sum after the last."""
        return [self.count, self._sum.decode()]

    def end_at(self, after: int) -> list[Any]:
        """The same, were the rows of later updates cut."""
        found = read_rows(self.path, is_summed=self._is_summed)
        keep = _up_to(found.rows, after)
        return [keep, (found.sums[keep - 1] if keep else self.path.name.encode()).decode()]

    def cut(self, after: int) -> None:
        """Drop the rows of later updates."""
        with explained(self.path, self._run):
            self.last = self._cut(after)

    def append(self, row: Mapping[str, Any]) -> None:
        """One more row: there as a whole for every reader, or not at all."""
        data, found = summed_object(json_bytes(row), self._sum) if self._is_summed else (json_bytes(row), self._sum)
        data += b"\n"
        with explained(self.path, self._run):
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._fd, view) :]
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(self._fd, self._size)
                raise
        self._size, self._sum, self.count = self._size + len(data), found, self.count + 1
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
