"""Files of a run with sums in them: append-only lines of JSON, names of checkpoints, and whole files.

Always true: a sum is of the bytes as they were written, and stands in the same file; a line's sum also covers the sum of the
line before it, so that a line cannot be exchanged, moved or left out. One changed bit is one clear error that names the file.
Every line before the last is whole, whatever happened; a torn last line is cut when the file is opened for writing.

A run of an older version has no sums and says so (`about.json` has no `sums`); where there is one it is compared all the same. A
line that could not be written whole is taken back. What is not a finite number is null.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from counterpoint.errors import InputError, TryAgain
from counterpoint.files import read_plain
from counterpoint.store import disk
from counterpoint.store.append_file import AppendFile

_KEY = b',"sum":"'
_MARK = b"\ncounterpoint-sum "
_SHORT, _LONG = 8, 32


def _hash(*parts: bytes, size: int = _SHORT) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=size).hexdigest().encode()


def _broken(where: str, what: str, fix: str) -> InputError:
    return InputError(f"is damaged: {what}", where=where, why="it was changed after it was written", fix=fix)


def object_with_sum(body: bytes, before: bytes) -> tuple[bytes, bytes]:
    """A JSON object with its sum as the last key, and the sum; `before` is the sum before it, or a name."""
    sum_ = _hash(before, body)
    return body[:-1] + _KEY + sum_ + b'"}', sum_


def object_without_sum(line: bytes, before: bytes, where: str, *, is_summed: bool, fix: str) -> tuple[bytes, bytes]:
    """The object without its sum, and the sum; `InputError` where it is not the one it was written with."""
    end = 2 * _SHORT + 2
    has_sum = line.endswith(b'"}') and line[-end - len(_KEY) : -end] == _KEY
    if not has_sum:
        if is_summed:
            raise _broken(where, "its sum is missing", fix)
        return line, before
    body, sum_ = line[: -end - len(_KEY)] + b"}", line[-end:-2]
    if _hash(before, body) != sum_:
        raise _broken(where, "its sum is another one", fix)
    return body, sum_


def name_with_sum(name: str) -> bytes:
    """The file that names a checkpoint."""
    return f"{name} ".encode() + _hash(name.encode()) + b"\n"


def name_without_sum(data: bytes, where: str) -> str:
    """The name in such a file; a name alone is one that an older version, or somebody by hand, has written."""
    parts = data.split()
    if len(parts) == 2 and _hash(parts[0]) == parts[1]:
        return parts[0].decode("utf-8", "replace")
    if len(parts) != 1 or not re.fullmatch(rb"\d+\.pt", parts[0]):
        fix = "write the name of a checkpoint beside it: `last` is the newest one; or remove it, and the newest one counts"
        raise _broken(where, "its sum is another one", fix)
    return parts[0].decode("utf-8", "replace")


def file_with_sum(data: bytes) -> bytes:
    """Bytes with their sum behind them, which whoever reads them need not know of."""
    return data + _MARK + _hash(data, size=_LONG) + b"\n"


def file_without_sum(data: bytes, where: str, *, is_summed: bool, fix: str) -> bytes:
    """The bytes without their sum."""
    tail = len(_MARK) + 2 * _LONG + 1
    if data[-tail : len(data) - tail + len(_MARK)] != _MARK:
        if is_summed:
            raise _broken(where, "its sum is missing", fix)
        return data
    if data[-2 * _LONG - 1 :] != _hash(data[:-tail], size=_LONG) + b"\n":
        raise _broken(where, "its sum is another one", fix)
    return data[:-tail]


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


def translate_errors(path: Path, run: Path) -> AbstractContextManager[None]:
    """System errors while a run is written become ours; a full disk says how to resume."""
    place = "check the folder's owner and mode"
    full = f"free some space, then: counterpoint train resume {run}"
    return disk.translate_errors(path, disk.Fixes(full=full, denied=place, read_only=place, not_a_folder="name another folder"))


_FIX = "restore the file from a copy, or restart the run; everything before this line is intact"


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
            body, last = object_without_sum(data[begin:end], last, where, is_summed=is_summed, fix=_FIX)
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
        object_without_sum(tail, before, where, is_summed=True, fix=_FIX)
    except InputError:
        return
    raise InputError("is damaged: the line does not end as it was written", where=where, fix=_FIX)


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
        with translate_errors(path, run):
            self._file = AppendFile.open(path, flags=os.O_APPEND | os.O_CREAT)
        try:
            with translate_errors(path, run):
                if not disk.lock(self._file.fd):
                    raise TryAgain("is being written by another process", where=os.fspath(run), fix="wait for it to end")
                self.last = self._cut(None)
        except BaseException:
            self._file.close()
            raise

    def _cut(self, after: int | None) -> dict[str, Any] | None:
        """Leave whole rows only, and none of an update later than `after`; the last row that stays."""
        whole = _rows(self._file.read(), self.path, is_summed=self._is_summed)
        keep = len(whole.rows) if after is None else _up_to(whole.rows, after)
        self._file.cut(whole.ends[keep - 1] if keep else 0)
        self.count, self._sum = keep, whole.sums[keep - 1] if keep else self.path.name.encode()
        return whole.rows[keep - 1] if keep else None

    @property
    def end(self) -> list[Any]:
        """How many rows there are, and the sum after the last."""
        return [self.count, self._sum.decode()]

    def end_at(self, after: int) -> list[Any]:
        """The same, were the rows of later updates cut."""
        whole = read_rows(self.path, is_summed=self._is_summed)
        keep = _up_to(whole.rows, after)
        return [keep, (whole.sums[keep - 1] if keep else self.path.name.encode()).decode()]

    def cut(self, after: int) -> None:
        """Drop the rows of later updates."""
        with translate_errors(self.path, self._run):
            self.last = self._cut(after)

    def append(self, row: Mapping[str, Any]) -> None:
        """One more row: there as a whole for every reader, or not at all."""
        data, sum_ = object_with_sum(json_bytes(row), self._sum) if self._is_summed else (json_bytes(row), self._sum)
        with translate_errors(self.path, self._run):
            self._file.append(data + b"\n", durably=False)
        self._sum, self.count = sum_, self.count + 1
        self.last = dict(row)

    def sync(self) -> None:
        """Wait until the rows would survive a power cut."""
        with translate_errors(self.path, self._run):
            self._file.sync()

    def close(self) -> None:
        """Let others write."""
        self._file.close()
