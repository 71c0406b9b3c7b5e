"""`counterpoint audit --failures`: what failed, and why, in one trace or many.

Always true: a failed call and its result are one failure, and the counts are those of `ls`, `top` and the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from counterpoint.answer import Section
from counterpoint.app.terminal.options import most_rows
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, say
from counterpoint.app.terminal.selection import Selection
from counterpoint.audits.failures import Failure
from counterpoint.audits.failures import failures as failures_in
from counterpoint.display import counted, duration, local_day
from counterpoint.errors import InputError, did_you_mean
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace
from counterpoint.trace.activity import moments

_ROWS = 20


class FailureIn(NamedTuple):
    """A failure with the trace it is of."""

    trace: Trace
    line: Summary
    failure: Failure
    at: float | None
    """When it failed, seconds since the epoch."""


GROUPS: dict[str, Callable[[FailureIn], str]] = {
    "reason": lambda one: f"{one.failure.tool or one.failure.type.replace('_', ' ')}: {one.failure.kind}",
    "tool": lambda one: one.failure.tool or f"({one.failure.type.replace('_', ' ')})",
    "agent": lambda one: one.failure.name,
    "trace": lambda one: one.line.title or one.line.id,
    "project": lambda one: one.line.project or "(none)",
    "model": lambda one: one.failure.model or "(none)",
    "day": lambda one: "(no date)" if one.at is None else local_day(one.at),
}
"""What to count failures by."""


def print_failures(which: Selection, group: str | None, rows: int | None, *, as_json: bool) -> None:
    """Of one trace every failure; of many, or with a group, how often each kind happened."""
    if group is not None and group not in GROUPS:
        raise InputError(f"cannot count failures by {group!r}", fix=did_you_mean(group, GROUPS))
    failures = list(_all(which, quiet=as_json))
    most = most_rows(rows, None if as_json else _ROWS)
    if group is not None or (which.is_query and not as_json):
        _counts(failures, group or "reason", which, most, as_json=as_json)
    elif as_json:
        for one in failures[:most]:
            about = {"trace_id": one.trace.trace_id, "title": one.line.title, "project": one.line.project}
            emit({"schema": SCHEMA_VERSION, **about, **msgspec.to_builtins(one.failure), "kind": one.failure.kind})
    else:
        say(_each(failures, most))


def _all(which: Selection, *, quiet: bool) -> Iterator[FailureIn]:
    begin, end = which.period or (-math.inf, math.inf)
    for trace in which.traces(quiet=quiet):
        if trace.failures:
            line, when = Summary.of_trace(trace), moments(trace.events, trace.meta)
            every = (FailureIn(trace, line, failure, when[trace.index[failure.event]]) for failure in failures_in(trace))
            yield from (one for one in every if one.at is None or begin <= one.at < end)


def _each(every: list[FailureIn], most: int | None) -> Section:
    """Each failure on a line, in the order it happened."""
    if not every:
        return Section(words="nothing failed")
    rows = []
    for f in (one.failure for one in every[:most]):
        what, later = f.tool or f.type.replace("_", " "), "worked later" if f.is_mended else ""
        rows.append((f.event, duration(f.t), f.name, what, f.tried or "", f.reason or "-", later))
    mended = sum(one.failure.is_mended for one in every)
    left = 0 if most is None else len(every) - most
    more = f"{counted(len(every), 'failure')}, {mended:,} of them in a tool that worked later"
    more += f"; {left:,} more: --rows" if left > 0 else ""
    return Section(head=("event", "at", "agent", "tool", "tried", "why", ""), rows=rows, right=(1,), more=more)


def _counts(every: list[FailureIn], group: str, which: Selection, most: int | None, *, as_json: bool) -> None:
    """How often each kind happened, the most first."""
    name = GROUPS[group]
    groups: dict[str, list[FailureIn]] = {}
    for one in every:
        groups.setdefault(name(one), []).append(one)
    ordered = sorted(groups.items(), key=lambda row: (-len(row[1]), row[0]))
    largest = ordered[:most]
    if as_json:
        rows = [{"name": key, "failures": len(of), **_tally(of)} for key, of in largest]
        emit({"schema": SCHEMA_VERSION, "group": group, "traces": len(which), "failures": len(every), "rows": rows})
        return
    tallies = [(key, len(of), _tally(of)) for key, of in largest]
    cells = [(key, n, t["traces"], t["agents"], t["mended"], t["title"] or t["trace_id"]) for key, n, t in tallies]
    head = (group, "failures", "traces", "agents", "worked later", "first in")
    failed = len({one.trace.trace_id for one in every})
    more = f"… {len(ordered) - len(largest):,} more lines (--rows); " if len(largest) < len(ordered) else ""
    more += f"{counted(len(every), 'failure')} in {failed:,} of {counted(len(which), 'trace')}"
    say(Section(head=head, rows=cells, right=(1, 2, 3, 4), more=more))


def _tally(of: list[FailureIn]) -> dict[str, Any]:
    """In how many traces and agents, how many worked later, and where the first was."""
    agents = {(one.trace.trace_id, one.failure.agent) for one in of}
    return {
        "traces": len({one.trace.trace_id for one in of}),
        "agents": len(agents),
        "mended": sum(one.failure.is_mended for one in of),
        "trace_id": of[0].trace.trace_id,
        "title": of[0].line.title,
        "event": of[0].failure.event,
    }
