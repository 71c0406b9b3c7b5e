"""`sql`: one SELECT on the instance's database, in memory and read-only.

Always true: sqlite's authorizer lets through reading, and functions that give the same answer each time; nothing is written,
attached, loaded or set. Each query has a copy of its own, a time limit, a row limit, and limits on what it may build, so no query
leaves a trace for the next. Output: a header line, then the rows, values separated by ` | `.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from functools import lru_cache
from typing import Any

from counterpoint.errors import InputError
from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.tool import Effect, Place, ToolResult, fingerprint

_ACTIONS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
# No `printf`: one call with a large width computes for long, and the time limit is only looked at between calls.
_FUNCTIONS = frozenset({
    "abs", "avg", "ceil", "ceiling", "char", "coalesce", "concat", "concat_ws", "count", "cume_dist", "date",
    "datetime", "dense_rank", "first_value", "floor", "glob", "group_concat", "hex", "ifnull", "iif", "instr",
    "julianday", "lag", "last_value", "lead", "length", "like", "lower", "ltrim", "max", "min", "mod", "nth_value",
    "ntile", "nullif", "percent_rank", "pow", "power", "quote", "rank", "replace", "round", "row_number",
    "rtrim", "sign", "sqrt", "strftime", "string_agg", "substr", "substring", "sum", "time", "total", "trim", "trunc",
    "typeof", "unicode", "unixepoch", "upper",
})  # fmt: skip
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
}
_STEPS = 1000
_MOST_CHARACTERS = 64_000


class sql:
    """The tool `sql` over an instance's database."""

    name = "sql"
    effect: Effect = "pure"
    about = "runs one SELECT (SQLite; tables are listed in sqlite_master); argument: the query"
    main = "query"
    example: Mapping[str, Any] = {"query": "select sum(a) from t"}

    def __init__(self, instance: Instance, *, rows: int = 200, limit_s: float = 5.0) -> None:
        """`rows`: the most rows that are shown; `limit_s`: how long a query may run."""
        self._script, self._rows, self._limit_s = instance.database, rows, limit_s
        self.version = f"1-{fingerprint(instance.database, rows)}"
        self.arguments: Mapping[str, Any] = {
            "type": "object",
            "properties": {"query": {"type": "string", "minLength": 1}},
            "required": ["query"],
            "additionalProperties": False,
        }

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """Run the query in a thread."""
        return await asyncio.to_thread(self._answer, args["query"])

    async def close(self) -> None:
        """A query that still runs ends at its time limit."""

    def _answer(self, query: str) -> ToolResult:
        with closing(_copy(self._script)) as database:
            deadline = time.monotonic() + self._limit_s
            database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            for limit, value in _LIMITS.items():
                database.setlimit(limit, value)
            database.set_authorizer(_allows)
            try:
                return self._shown(database.execute(query))
            except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
                return self._refused(str(error))

    def _shown(self, cursor: sqlite3.Cursor) -> ToolResult:
        if cursor.description is None:
            return ToolResult("only one SELECT is allowed", ok=False, error="read only")
        lines = [" | ".join(_value(column[0]) for column in cursor.description)]
        size, is_cut = len(lines[0]), False
        for row in cursor:
            if len(lines) > self._rows or size > _MOST_CHARACTERS:
                is_cut = True
                break
            lines.append(" | ".join(map(_value, row)))
            size += len(lines[-1])
        shown = len(lines) - 1
        if is_cut:
            lines.append(f"[cut: only the first {shown} rows are shown]")
        return ToolResult("\n".join(lines), extra={"rows": shown, **({"rows_cut": True} if is_cut else {})})

    def _refused(self, why: str) -> ToolResult:
        if why == "interrupted":
            return ToolResult(f"stopped: the query ran longer than {self._limit_s:g} s", ok=False, error="timeout")
        if "use function" in why:
            return ToolResult(why, ok=False, error="read only")
        if "not authorized" in why or "authorization denied" in why or "prohibited" in why or "one statement" in why:
            return ToolResult(f"only one SELECT is allowed ({why})", ok=False, error="read only")
        return ToolResult(f"{why}; tables: {', '.join(_tables(self._script)) or 'none'}", ok=False, error="failed")


def _allows(action: int, first: str | None, second: str | None, schema: str | None, trigger: str | None) -> int:
    if action in _ACTIONS or (action == sqlite3.SQLITE_FUNCTION and (second or "").casefold() in _FUNCTIONS):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _value(value: object) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return "NULL" if value is None else " ".join(str(value).split("\n"))


@lru_cache(maxsize=8)
def _image(script: str) -> bytes:
    """The database that a script builds, as bytes (none for an empty one); built once however many teams ask it."""
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.executescript(script)
            database.commit()
        except sqlite3.Error as error:
            raise InputError(
                "the instance's database cannot be built", why=str(error), fix="check the SQL of the task"
            ) from error
        return database.serialize() if database.execute("SELECT 1 FROM sqlite_master").fetchone() else b""


def _copy(script: str) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    if image := _image(script):
        database.deserialize(image)
    return database


@lru_cache(maxsize=8)
def _tables(script: str) -> tuple[str, ...]:
    with closing(_copy(script)) as database:
        return tuple(name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"))
