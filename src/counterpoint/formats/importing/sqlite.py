"""Tables of an SQLite database that is there as bytes, also out of an archive.

Always true: the database is read in memory and never written; a table that is not there is empty; what cannot be read is counted
as broken.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File

_MAGIC = b"SQLite format 3\0"
_JOURNALS = slice(18, 20)
_ROLLBACK = b"\x01\x01"


def is_sqlite(head: bytes) -> bool:
    """Whether a file that begins so is a database."""
    return head.startswith(_MAGIC)


def tables_of(session: Session, file: File, names: Sequence[str], where: str = "") -> dict[str, list[dict[str, Any]]]:
    """The rows of some tables, each by column; `where` chooses rows."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    try:
        data = bytearray(file.data())
        data[_JOURNALS] = _ROLLBACK  # a log beside it is not here, and memory has none
        with closing(sqlite3.connect(":memory:")) as base:
            base.deserialize(bytes(data))
            base.execute("PRAGMA query_only = 1")
            base.row_factory = sqlite3.Row
            base.text_factory = lambda text: text.decode("utf-8", "replace")
            there = {row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for name in [name for name in names if name in there]:
                found[name] = [dict(row) for row in base.execute(f'SELECT * FROM "{name}" {where}')]
    except InputError as error:
        session.report.broke(file.name, None, error.one_line())
    except (sqlite3.Error, MemoryError) as error:
        session.report.broke(file.name, None, f"a database that cannot be read: {error}")
    return found
