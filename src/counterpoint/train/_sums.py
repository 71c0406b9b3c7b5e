"""Sums of what a run writes and later trusts: rows, what it says of itself, the names of checkpoints, checkpoints.

Always true: a sum is of the bytes as they were written, and stands in the same file; a row's sum also covers the sum of the row
before it, so that a row cannot be exchanged, moved or left out. One changed bit is one clear error that names the file. A run of
an older version has no sums and says so (`about.json` has no `sums`); where there is one it is compared all the same.
"""

from __future__ import annotations

import hashlib
import re

from counterpoint.errors import InputError

_KEY = b',"sum":"'
_MARK = b"\ncounterpoint-sum "
_SHORT, _LONG = 8, 32


def _hash(*parts: bytes, size: int = _SHORT) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=size).hexdigest().encode()


def _broken(where: str, what: str, fix: str) -> InputError:
    return InputError(f"is damaged: {what}", where=where, why="the disk or somebody changed it", fix=fix)


def summed_object(body: bytes, before: bytes) -> tuple[bytes, bytes]:
    """A JSON object with its sum as the last key, and the sum; `before` is the sum before it, or a name."""
    found = _hash(before, body)
    return body[:-1] + _KEY + found + b'"}', found


def checked_object(line: bytes, before: bytes, where: str, *, is_summed: bool, fix: str) -> tuple[bytes, bytes]:
    """The object without its sum, and the sum; `InputError` where it is not the one it was written with."""
    end = 2 * _SHORT + 2
    has_sum = line.endswith(b'"}') and line[-end - len(_KEY) : -end] == _KEY
    if not has_sum:
        if is_summed:
            raise _broken(where, "its sum is missing", fix)
        return line, before
    body, found = line[: -end - len(_KEY)] + b"}", line[-end:-2]
    if _hash(before, body) != found:
        raise _broken(where, "its sum is another one", fix)
    return body, found


def summed_name(name: str) -> bytes:
    """The file that names a checkpoint."""
    return f"{name} ".encode() + _hash(name.encode()) + b"\n"


def checked_name(data: bytes, where: str) -> str:
    """The name in such a file; a name alone is one that an older version, or somebody by hand, has written."""
    parts = data.split()
    if len(parts) == 2 and _hash(parts[0]) == parts[1]:
        return parts[0].decode("utf-8", "replace")
    if len(parts) != 1 or not re.fullmatch(rb"\d+\.pt", parts[0]):
        fix = "write the name of a checkpoint beside it: `last` is the newest one; or remove it, and the newest one counts"
        raise _broken(where, "its sum is another one", fix)
    return parts[0].decode("utf-8", "replace")


def summed_file(data: bytes) -> bytes:
    """Bytes with their sum behind them, which whoever reads them need not know of."""
    return data + _MARK + _hash(data, size=_LONG) + b"\n"


def checked_file(data: bytes, where: str, *, is_summed: bool, fix: str) -> bytes:
    """The bytes without their sum."""
    tail = len(_MARK) + 2 * _LONG + 1
    if data[-tail : len(data) - tail + len(_MARK)] != _MARK:
        if is_summed:
            raise _broken(where, "its sum is missing", fix)
        return data
    if data[-2 * _LONG - 1 :] != _hash(data[:-tail], size=_LONG) + b"\n":
        raise _broken(where, "its sum is another one", fix)
    return data[:-tail]
