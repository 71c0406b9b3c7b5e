"""What went wrong, and why, in one trace or many.

Always true: a failed call and its result are one failure, and the counts are those of `ls`, `top` and the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click
import msgspec

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, table
from counterpoint.app.terminal.selection import Selection, select
from counterpoint.app.terminal.store import store_option
from counterpoint.audits.failures import Failure
from counterpoint.audits.failures import failures as found_in
from counterpoint.display import counted, duration, local_day
from counterpoint.errors import InputError, did_you_mean
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace
from counterpoint.trace.activity import moments

_SHOWN = 20


class Told(NamedTuple):
    """A failure with the trace it is of."""

    trace: Trace
    line: Summary
    failure: Failure
    at: float | None
    """When it failed, seconds since the epoch."""


GROUPS: dict[str, Callable[[Told], str]] = {
    "reason": lambda told: f"{told.failure.tool or told.failure.type.replace('_', ' ')}: {told.failure.kind}",
    "tool": lambda told: told.failure.tool or f"({told.failure.type.replace('_', ' ')})",
    "agent": lambda told: told.failure.name,
    "trace": lambda told: told.line.title or told.line.id,
    "project": lambda told: told.line.project or "(none)",
    "model": lambda told: told.failure.model or "(none)",
    "day": lambda told: "(no date)" if told.at is None else local_day(told.at),
}
"""What failures are counted by."""


@click.command(
    epilog="\b\nExamples:\n  counterpoint failures 3f2a\n  counterpoint failures 'project:shop since:7d' --group tool --json"
)
@click.argument("words", nargs=-1, metavar="[TRACE|QUERY]")
@click.option("--group", metavar="WHAT", help=f"Count by {', '.join(GROUPS)} (default of many traces: reason).")
@click.option("--limit", type=click.IntRange(min=1), help=f"Show this many lines (default: {_SHOWN}; with --json all).")
@store_option
@json_option
def failures(words: tuple[str, ...], group: str | None, limit: int | None, store: Any, as_json: bool) -> None:
    """Show what went wrong: who tried what, why it failed, and whether it worked later.

    Of one trace every failure, of many how often each kind happened; without TRACE all of the store.
    """
    if group is not None and group not in GROUPS:
        raise InputError(f"cannot count failures by {group!r}", fix=did_you_mean(group, GROUPS))
    which = select(words, store)
    every = list(_all(which, quiet=as_json))
    if group is not None or (which.is_query and not as_json):
        _counts(every, group or "reason", which, limit, as_json=as_json)
    elif as_json:
        for told in every[:limit]:
            about = {"trace_id": told.trace.trace_id, "title": told.line.title, "project": told.line.project}
            emit({"schema": SCHEMA_VERSION, **about, **msgspec.to_builtins(told.failure), "kind": told.failure.kind})
    else:
        _listed(every, limit or _SHOWN)


def _all(which: Selection, *, quiet: bool) -> Iterator[Told]:
    begin, end = which.period or (-math.inf, math.inf)
    for trace in which.traces(quiet=quiet):
        if trace.failures:
            line, when = Summary.of_trace(trace), moments(trace.events, trace.meta)
            every = (Told(trace, line, failure, when[trace.index[failure.event]]) for failure in found_in(trace))
            yield from (told for told in every if told.at is None or begin <= told.at < end)


def _listed(every: list[Told], limit: int) -> None:
    """Each failure on a line, in the order it happened."""
    if not every:
        click.echo("nothing failed")
        return
    head = ("event", "at", "agent", "tool", "tried", "why", "")
    rows = []
    for f in (told.failure for told in every[:limit]):
        what, later = f.tool or f.type.replace("_", " "), "worked later" if f.is_mended else ""
        rows.append((f.event, duration(f.t), f.name, what, f.tried or "", f.reason or "-", later))
    click.echo(table(head, rows, right=(1,)))
    mended = sum(told.failure.is_mended for told in every)
    more = f"; {len(every) - limit:,} more: --limit" if len(every) > limit else ""
    click.echo(f"{counted(len(every), 'failure')}, {mended:,} of them in a tool that worked later{more}")


def _counts(every: list[Told], group: str, which: Selection, limit: int | None, *, as_json: bool) -> None:
    """How often each kind happened, the most first."""
    name = GROUPS[group]
    groups: dict[str, list[Told]] = {}
    for told in every:
        groups.setdefault(name(told), []).append(told)
    ordered = sorted(groups.items(), key=lambda row: (-len(row[1]), row[0]))
    shown = ordered[: limit or (len(ordered) if as_json else _SHOWN)]
    if as_json:
        rows = [{"name": key, "failures": len(of), **_tally(of)} for key, of in shown]
        emit({"schema": SCHEMA_VERSION, "group": group, "traces": len(which), "failures": len(every), "rows": rows})
        return
    tallies = [(key, len(of), _tally(of)) for key, of in shown]
    cells = [(key, n, t["traces"], t["agents"], t["mended"], t["title"] or t["trace_id"]) for key, n, t in tallies]
    click.echo(table((group, "failures", "traces", "agents", "worked later", "first in"), cells, right=(1, 2, 3, 4)))
    if len(shown) < len(ordered):
        click.echo(f"… {len(ordered) - len(shown):,} more lines (--limit)")
    failed = len({told.trace.trace_id for told in every})
    click.echo(f"{counted(len(every), 'failure')} in {failed:,} of {counted(len(which), 'trace')}")


def _tally(of: list[Told]) -> dict[str, Any]:
    """In how many traces and agents, how many worked later, and where the first was."""
    agents = {(told.trace.trace_id, told.failure.agent) for told in of}
    return {
        "traces": len({told.trace.trace_id for told in of}),
        "agents": len(agents),
        "mended": sum(told.failure.is_mended for told in of),
        "trace_id": of[0].trace.trace_id,
        "title": of[0].line.title,
        "event": of[0].failure.event,
    }
