"""Ask the store in SQL; reading only."""

from __future__ import annotations

import csv
import sys
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.errors import InputError

HEADING = "Look"

_EPILOG = """\b
Examples:
  counterpoint sql "select task_id, avg(team_reward) from traces group by 1"
  counterpoint sql "select role, sum(tokens_out) from events group by 1" --json
"""


@click.command(epilog=_EPILOG)
@click.argument("query", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Print at most this many rows.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of a table.")
@store_option
@json_option
def sql(query: str | None, limit: int, as_csv: bool, store: Path | None, as_json: bool) -> None:
    """Query the finished traces in SQL (DuckDB, read only); without a query, list the views and their columns.

    The views are traces, events, edges, rewards, costs and annotations. `from_` and `to` are the event fields from
    and to; quote "to".
    """
    if as_csv and as_json:
        raise InputError("--csv and --json exclude each other")
    with open_store(store) as opened:
        if query is None:
            _list_views(opened, as_json)
            return
        answer = opened.sql(query, limit=limit)
        rows = answer.rows
        if as_json:
            emit({"v": SCHEMA_VERSION, "columns": answer.columns, "rows": rows, "is_cut": answer.is_cut})
        elif as_csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(answer.columns)
            writer.writerows(rows)
        else:
            _print_table(answer.columns, rows)
        if answer.is_cut and not as_json:
            note(f"only the first {limit:,} rows; --limit shows more")


def _print_table(columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    numeric = [i for i in range(len(columns)) if rows and all(isinstance(r[i], (int, float, type(None))) for r in rows)]
    click.echo(table(columns, [[_cell(v) for v in row] for row in rows], right=numeric))


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (date, datetime)):
        return value.isoformat(sep=" ", timespec="seconds") if isinstance(value, datetime) else value.isoformat()
    return str(value)


def _list_views(opened: Any, as_json: bool) -> None:
    from counterpoint.store.query import VIEWS

    columns = {view: [tuple(row[:2]) for row in opened.sql(f"describe {view}").rows] for view in VIEWS}
    if as_json:
        views = {view: [{"column": c, "type": t} for c, t in found] for view, found in columns.items()}
        emit({"v": SCHEMA_VERSION, "views": views})
        return
    rows = [(view if i == 0 else "", name, kind) for view, found in columns.items() for i, (name, kind) in enumerate(found)]
    click.echo(table(["view", "column", "type"], rows))
