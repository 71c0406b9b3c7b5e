"""SQLite databases as files of a source: read from bytes, so that those in archives are read, too.

A database that a program has open keeps its latest pages in a log beside it (`-wal`); those that were committed are read.

Always true: nothing is written and no file is opened; a database that is broken is an `InputError`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importing.files import File

_MAGIC = b"SQLite format 3\0"
_FRAME = 24


def has_tables(head: bytes, *tables: str) -> bool:
    """Whether a file that begins so is a SQLite database whose schema names these tables."""
    return head.startswith(_MAGIC) and all(table.encode() in head for table in tables)


class Database:
    """A database in a file, with its write-ahead log where that is there."""

    def __init__(self, file: File, log: File | None = None) -> None:
        self.name = file.name
        data = bytearray(file.data())
        if log is not None:
            _replay(data, log.data())
        data[18:20] = b"\x01\x01"  # one in write-ahead mode cannot be opened from memory
        self._data = bytes(data)

    def tables(self) -> dict[str, list[str]]:
        """The columns of each table, by its name."""
        names = [str(row["name"]) for row in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [str(r["name"]) for r in self.rows(f"PRAGMA table_info({_quoted(name)})")] for name in names}

    def table(self, name: str, *, order: str = "rowid") -> Iterator[dict[str, Any]]:
        """The rows of a table, by column."""
        yield from self.rows(f"SELECT * FROM {_quoted(name)} ORDER BY {order}")

    def rows(self, query: str) -> Iterator[dict[str, Any]]:
        """What a query gives, by column; bytes as text."""
        try:
            with closing(sqlite3.connect(":memory:")) as connection:
                connection.deserialize(self._data)
                connection.execute("PRAGMA query_only = ON")
                connection.text_factory = lambda text: text.decode("utf-8", "replace")
                cursor = connection.execute(query)
                columns = [column[0] for column in cursor.description or ()]
                for row in cursor:
                    yield {
                        c: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for c, v in zip(columns, row, strict=True)
                    }
        except sqlite3.Error as error:
            raise InputError("is no SQLite database that can be read", where=self.name, why=str(error)[:200]) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _replay(data: bytearray, log: bytes) -> None:
    """Put the pages of a write-ahead log into a database, up to its last commit."""
    if len(log) < 32 or log[:3] != b"\x37\x7f\x06":
        return
    size, salts = int.from_bytes(log[8:12], "big"), log[16:24]
    if size < 512:
        return
    pages: dict[int, bytes] = {}
    committed: dict[int, bytes] = {}
    for at in range(32, len(log) - _FRAME - size + 1, _FRAME + size):
        if log[at + 8 : at + 16] != salts:
            break
        pages[int.from_bytes(log[at : at + 4], "big")] = log[at + _FRAME : at + _FRAME + size]
        if int.from_bytes(log[at + 4 : at + 8], "big"):
            committed.update(pages)
            pages = {}
    for number, page in committed.items():
        begin = (number - 1) * size
        if begin + size > len(data):
            data.extend(b"\0" * (begin + size - len(data)))
        data[begin : begin + size] = page
