"""List the traces in a store, or those that match a query."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from counterpoint.app.list_lines import Line, fold_runs
from counterpoint.app.search import FACETS, FIELDS, FLAGS, facet, matcher, remarks, terms
from counterpoint.app.terminal.options import group_option, ids_option
from counterpoint.app.terminal.output import emit, json_option, note, table
from counterpoint.app.terminal.store import list_store, store_option
from counterpoint.display import at_least, compact, counted, duration, local_moment, money, number, zone
from counterpoint.errors import InputError, did_you_mean
from counterpoint.store.handles import short_ids
from counterpoint.store.summary import Summary
from counterpoint.trace.naming import short_model

HEADING = "Look"

_VALUES = 8


@click.command(
    epilog="\b\nExamples:\n  counterpoint ls\n  counterpoint ls 'project:shop errors>0 since:7d' --sort cost\n\n"
    "Query: words match title, id, task, project, model and system; fields: "
    + " ".join(list(FIELDS)[:10])
    + "\n"
    + " ".join(list(FIELDS)[10:])
    + ";\nproject:sho finds a part of it, project=shop exactly that;"
    " flags: open finished failed invalid steered annotated; in:NAME is a collection of counterpoint notes dataset."
)
@click.argument("query", nargs=-1)
@click.option("--sort", default="active", show_default=True, help="A field of the query language, or added; largest last.")
@click.option("--newest", type=click.IntRange(min=0), default=50, show_default=True, help="List the last N; 0 for all.")
@ids_option
@group_option(f"Count the traces by {', '.join(FACETS)}, or by all of these.")
@store_option
@json_option
def ls(
    query: tuple[str, ...], sort: str, newest: int, with_ids: bool, group: str | None, store: Path | None, as_json: bool
) -> None:
    """List traces: the finished ones, and those still running, stuck or interrupted (open), the last at work last.

    id is enough of a trace's id to open it with; --ids shows all of it. active is when a trace was last at work, in this
    machine's time zone. Runs that a session made for itself, such as reviews of its calls, are one line below it: --ids or
    parent:ID shows each.
    """
    key = FIELDS.get(sort, sort)
    if sort not in FIELDS and sort != "added":
        raise InputError(f"cannot sort by {sort!r}", fix=did_you_mean(sort, [*FIELDS, "added"]))
    if group not in (None, "all", *FACETS):
        raise InputError(f"cannot count traces by {group!r}", fix=did_you_mean(str(group), [*FACETS, "all"]))
    every, damaged, datasets = list_store(store)
    matches = matcher(" ".join(query), datasets)
    for remark in remarks(" ".join(query)):
        note(remark)
    for path, error in damaged.items():
        where = "read around" if path.parent.name == "log" else "not listed"
        note(f"damaged, and {where}: {path.name}: {error.what}; counterpoint store repair")
    rows = sorted((row for row in every if matches(row)), key=lambda row: _rank(getattr(row, key)))
    if group is not None:
        _count_by(rows, FACETS if group == "all" else (group,), as_json=as_json)
        return
    is_folded = not with_ids and not as_json and "parent" not in {term.name for term in terms(" ".join(query), FIELDS, FLAGS)}
    lines = fold_runs(rows) if is_folded else [Line(row) for row in rows]
    listed = lines[-newest:]
    if as_json:
        for line in listed:
            emit(msgspec.to_builtins(line.row))
        return
    if not listed:
        what = "No trace matches." if every else "No traces here yet. Run: counterpoint import"
        note(what)
        return
    click.echo(_table(listed, {} if with_ids else short_ids(row.id for row in every), sort))
    if sort not in _SORTED:
        note(f"sorted by {sort}, the largest last")
    if len(listed) < len(lines):
        note(f"{len(lines) - len(listed):,} more: --newest 0 lists all")


def _rank(value: object) -> tuple[bool, object]:
    """None first: not known is not zero, and not an error either."""
    return (value is not None, value)


_LEAVE = ("project", "model", "events", "errors", "cost", "labels", "agents", "time")
"""Columns that a narrow terminal does not show, the first first."""


_SORTED = {
    "active": "active", "since": "active", "last": "active", "title": "title", "project": "project", "model": "model",
    "agents": "agents", "events": "events", "tokens": "tokens", "cost": "cost", "seconds": "time", "reward": "R team",
    "errors": "errors", "label": "labels", "id": "id",
}  # fmt: skip
"""What the list can be sorted by, and the column that shows it."""


def _table(lines: Sequence[Line], short: dict[str, str], sort: str) -> str:
    """A line per trace, without columns in which no trace has anything; without short names whole ids, tasks and topologies."""
    rows = [line.row for line in lines]
    columns: dict[str, list[str]] = {"id": [short.get(row.id, row.id) for row in rows]}
    columns["active"] = [("" if row.started is not None or row.is_open else "added ") + local_moment(row.active) for row in rows]
    columns["title"] = [line.title for line in lines]
    columns["project"] = [row.project or "" for row in rows]
    columns["model"] = [_models(row.models) for row in rows]
    if not short:
        columns["task"] = [row.task_id for row in rows]
        columns["topology"] = [row.topology or "" for row in rows]
    columns["agents"] = [number(row.agents) for row in rows]
    columns["events"] = [number(row.events) for row in rows]
    columns["tokens"] = [at_least(compact(row.tokens), row.uncounted) for row in rows]
    columns["cost"] = [_cost(row) for row in rows]
    columns["time"] = [duration(row.wall_clock_s) for row in rows]
    columns["R team"] = [number(row.team_reward, 3) for row in rows]
    columns["errors"] = [number(row.errors) if row.errors else "" for row in rows]
    columns["labels"] = [", ".join(row.labels) for row in rows]
    columns[""] = [_marks(row) for row in rows]
    kept = {name: cells for name, cells in columns.items() if any(cell not in ("", "-") for cell in cells)}
    right = [k for k, name in enumerate(kept) if name in ("agents", "events", "tokens", "cost", "time", "R team", "errors")]
    heads = {name: _head(name, is_sorted=name == _SORTED.get(sort)) for name in kept}
    drop = [heads[name] for name in _LEAVE if name in heads]
    return table(list(heads.values()), list(zip(*kept.values(), strict=True)), right=right, drop=drop)


def _head(name: str, *, is_sorted: bool) -> str:
    """A column's name, with the mark of the one that the list is sorted by: its largest is at the bottom."""
    arrow = "^" if (sys.stdout.encoding or "ascii").lower() in ("ascii", "us-ascii") else "↑"
    return name + (f" ({zone()})" if name == "active" else "") + (f" {arrow}" if is_sorted else "")


def _models(models: Sequence[str]) -> str:
    if not models:
        return ""
    return short_model(models[0]) + (f" +{len(models) - 1}" if len(models) > 1 else "")


def _cost(row: Summary) -> str:
    """The cost; with a plus where tokens of some calls have no price, or the tokens of some are not known."""
    return at_least(money(row.cost_usd), row.unpriced or row.uncounted)


def _marks(row: Summary) -> str:
    marks = ["open"] * (row.is_open or bool(row.waiting)) + ["steered"] * row.is_steered
    if row.waiting:
        first, more = row.waiting[0], len(row.waiting) - 1
        since = "" if first.since is None else f" for {duration(max(0.0, time.time() - first.since))}"
        marks[0] += f": {first.what}{f' and {more:,} more' if more else ''}{since}"
    marks += [counted(count, word) for count, word in ((row.problems, "problem"), (row.annotations, "note")) if count]
    return " ".join(marks)


def _count_by(rows: Sequence[Summary], facets: Sequence[str], *, as_json: bool) -> None:
    """How many of the traces have each value of a facet."""
    counts = {name: Counter(value for row in rows for value in facet(row, name)) for name in facets}
    if as_json:
        emit({name: dict(found.most_common()) for name, found in counts.items()})
        return
    for name, found in counts.items():
        if not found:
            continue
        values = [f"{value} {n:,}" for value, n in found.most_common(_VALUES)]
        more = [f"and {len(found) - _VALUES:,} more"] if len(found) > _VALUES else []
        click.echo(f"{name:9} " + " · ".join([*values, *more]))
