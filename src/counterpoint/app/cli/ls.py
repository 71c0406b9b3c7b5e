"""List the traces in a store, or those that match a query."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from counterpoint.app.cli._output import emit, json_option, note, table
from counterpoint.app.cli._store import list_store, store_option
from counterpoint.app.search import FIELDS, matcher
from counterpoint.app.words import number
from counterpoint.errors import InputError, did_you_mean
from counterpoint.store.summary import Summary


@click.command(
    epilog="\b\nExamples:\n  counterpoint ls\n  counterpoint ls 'topology:swarm agents>5 reward<1' --sort tokens\n\n"
    "\b\nQuery: words match id, task and system; fields: " + " ".join(FIELDS) + ";\nflags: open finished invalid steered."
)
@click.argument("query", nargs=-1)
@click.option("--sort", default="added", show_default=True, help="A field of the query language, or added; largest last.")
@click.option("--limit", default=50, show_default=True, help="Show the last N; 0 for all.")
@store_option
@json_option
def ls(query: tuple[str, ...], sort: str, limit: int, store: Path | None, as_json: bool) -> None:
    """List traces: the finished ones, and those still running or cut off (open)."""
    matches = matcher(" ".join(query))
    key = FIELDS.get(sort, sort)
    if sort not in FIELDS and sort != "added":
        raise InputError(f"cannot sort by {sort!r}", fix=did_you_mean(sort, [*FIELDS, "added"]))
    every, damaged = list_store(store)
    for path, error in damaged.items():
        note(f"damaged, and not listed: {path.name}: {error.what}; counterpoint store repair")
    rows = sorted((row for row in every if matches(row)), key=lambda row: _rank(getattr(row, key)))
    shown = rows[-limit:] if limit else rows
    if as_json:
        for row in shown:
            emit(msgspec.to_builtins(row))
        return
    if not shown:
        what = "No trace matches." if every else "No traces here yet. Run: counterpoint demo"
        note(what)
        return
    header = ["trace", "topology", "agents", "events", "tokens", "seconds", "R team", "task", ""]
    click.echo(table(header, [_cells(row) for row in shown], right=(2, 3, 4, 5, 6)))
    if len(shown) < len(rows):
        note(f"{len(rows) - len(shown):,} more: --limit 0 shows all")


def _rank(value: object) -> tuple[bool, object]:
    """None first: not known is not zero, and not an error either."""
    return (value is not None, value)


def _cells(row: Summary) -> list[str]:
    counts = [number(v) for v in (row.agents, row.events, row.tokens, row.wall_clock_s, row.team_reward)]
    marks = ["open"] * row.is_open + ["steered"] * row.is_steered + [f"{row.errors:,} errors"] * bool(row.errors)
    return [row.id, row.topology or "-", *counts, row.task_id, " ".join(marks)]
