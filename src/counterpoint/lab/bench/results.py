"""A folder of results: a head with what all rows have in common, and the rows.

Always true: the head and a row appear whole or not at all; rows of another head are not mixed in; a file or line that cannot be
read is an error that names it and the way out. A last line without its end was being written when its run was interrupted: it is
no row, and the next row takes its place.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from counterpoint.errors import InputError, NotFound
from counterpoint.files import put, read_plain

T = TypeVar("T")
_ELSEWHERE = "name another folder: -o DIR"


class ResultFolder:
    """A folder with a head; each kind of results says what its rows are."""

    HEAD: ClassVar[str]
    """The name of the head's file."""
    NAME: ClassVar[str]
    """What the folder holds, in errors."""
    MAKER: ClassVar[str]
    """The command that makes such a folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """Whether a folder holds such results."""
        return (path / cls.HEAD).is_file()

    def head(self) -> dict[str, Any]:
        """What all rows have in common."""
        try:
            return read_object(self.path / self.HEAD, fix="restore it, or name another folder")
        except FileNotFoundError as error:
            raise self.absent(self.path) from error

    @classmethod
    def absent(cls, path: Path) -> NotFound:
        """The error of a place without such results."""
        return NotFound(f"there are no {cls.NAME} here", where=str(path), fix=f"{cls.MAKER} -o DIR makes some")

    def enter(self, head: Mapping[str, Any], *, same: Collection[str], renew: Collection[str] = ()) -> None:
        """Make the folder with this head; of one that is there the keys `same` must agree, and those of `renew` are replaced."""
        path, wanted = self.path / self.HEAD, json.loads(json.dumps(head))
        if not path.is_file():
            if self.path.exists() and any(self.path.iterdir()):
                raise InputError("the folder holds something else", where=str(self.path), fix=_ELSEWHERE)
            put([(path, _indented(wanted))])
            return
        there = self.head()
        if differ := [key for key in same if there.get(key) != wanted.get(key)]:
            words = "; ".join(f"another {key.replace('_', ' ')}: {there.get(key)}, not {wanted.get(key)}" for key in differ)
            raise InputError(f"the {self.NAME} here have {words}", where=str(self.path), fix=_ELSEWHERE)
        if any(there.get(key) != wanted.get(key) for key in renew):
            put([(path, _indented(there | {key: wanted.get(key) for key in renew}))])


def _indented(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


def read_object(path: Path, *, fix: str) -> dict[str, Any]:
    """The JSON object of one file."""
    return decode(read_plain(path), dict[str, Any], "is not a JSON object", str(path), fix)


def read_lines(path: Path, kind: type[T], *, fix: str, is_growing: bool = False) -> list[T]:
    """The rows of a file with a row in each line; one that grows has a row where a line has its end."""
    lines = read_plain(path).split(b"\n")
    whole = enumerate(lines[:-1] if is_growing else lines, 1)
    return [decode(line, kind, "is not a result row", f"{path}:{n}", fix) for n, line in whole if line.strip()]


def decode(data: bytes, kind: type[T], problem: str, where: str, fix: str) -> T:
    """A value of this kind from JSON, or the problem, where and why."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(problem, where=where, why=str(error), fix=fix) from error


def digest_of(value: Any) -> str:
    """Twelve hex digits of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


@contextmanager
def appended_rows(path: Path) -> Iterator[Callable[[Any], None]]:
    """A function that adds a row to a file of lines and returns when it is on the disk; a line without its end goes first."""
    if path.is_file() and not (data := path.read_bytes()).endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])
    with path.open("ab") as file:

        def add(row: Any) -> None:
            file.write(msgspec.json.encode(row) + b"\n")
            file.flush()
            os.fsync(file.fileno())

        yield add
