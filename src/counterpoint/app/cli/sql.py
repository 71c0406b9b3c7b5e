"""Ask the store in SQL; reading only."""

from __future__ import annotations

import csv
import sys
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

from counterpoint.app.terminal.options import rows_option
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
@rows_option(1000)
@click.option("--to", type=click.Choice(["table", "csv"]), default="table", show_default=True, help="How to print the rows.")
@store_option
@json_option
def sql(query: str | None, rows: int, to: str, store: Path | None, as_json: bool) -> None:
    """Query the finished traces in SQL (DuckDB, read only); without a query, list the views and their columns.

    The views are traces, events, edges, rewards, costs and annotations. `from_` and `to` are the event fields from
    and to; quote "to".
    """
    if to == "csv" and as_json:
        raise InputError("--to csv and --json exclude each other", fix="leave one of them out")
    with open_store(store) as opened:
        if query is None:
            _list_views(opened, as_json)
            return
        answer = opened.sql(query, limit=rows or None)
        if as_json:
            emit({"v": SCHEMA_VERSION, "columns": answer.columns, "rows": answer.rows, "is_cut": answer.is_cut})
        elif to == "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(answer.columns)
            writer.writerows(answer.rows)
        else:
            _print_table(answer.columns, answer.rows)
        if answer.is_cut and not as_json:
            note(f"only the first {rows:,} rows; --rows 0 prints all")


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
