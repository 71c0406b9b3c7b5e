"""What a statement names, for queries that may read the views and nothing else.

Always true: a statement passes that reads views, its own common tables, lists and ranges; whatever else a table can be (a file,
another function, a table of the engine) is refused by not being one of these. Names that begin with `_` are ours.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from counterpoint.errors import Refused

_ROWS = ("unnest", "range", "generate_series")
_SETTINGS = ("current_setting", "getenv", "getvariable", "write_log")
_PLAIN = re.compile(r"(?!duckdb_|pragma_|sqlite_|pg_|information_schema)[a-z]\w*", re.IGNORECASE)


def check_statement(tree: Any, views: Collection[str]) -> None:
    """Raise `Refused` for a statement, as `json_serialize_sql` gives it, that reads anything but these views."""
    if not isinstance(tree, dict) or tree.get("error", True):
        raise _refused("it is no plain select")
    parts = list(_parts(tree))
    own = {str(one.get("key")) for part in parts for one in _common(part)}
    for name in own:
        if not _PLAIN.fullmatch(name):
            raise _refused(f"a common table cannot be called {name!r}")
    known = {name.lower() for name in (*views, *own)}
    for part in parts:
        kind, function = part.get("type"), part.get("function")
        if kind == "BASE_TABLE":
            name = str(part.get("table_name"))
            if part.get("schema_name") or part.get("catalog_name") or name.lower() not in known:
                raise _refused(f"there is no view {name!r}")
        elif kind == "TABLE_FUNCTION":
            name = str(function.get("function_name")) if isinstance(function, dict) else "?"
            if name.lower() not in _ROWS:
                raise _refused(f"the function {name} reads something else")
        elif kind == "SHOW_REF":
            raise _refused("the columns are listed without a query")
        elif str(part.get("function_name", "")).lower() in _SETTINGS:
            raise _refused(f"the function {part['function_name']} reads something else")


def _refused(why: str) -> Refused:
    fix = "select from traces, events, edges, rewards, costs, annotations"
    return Refused("sql only reads the views of the store", why=why, fix=fix)


def _common(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The common tables that a part of a statement defines."""
    table = part.get("cte_map")
    for one in table.get("map", ()) if isinstance(table, dict) else ():
        if isinstance(one, dict):
            yield one


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object of a tree, without recursion."""
    stack = [tree]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            yield one
            stack += one.values()
        elif isinstance(one, list):
            stack += one
