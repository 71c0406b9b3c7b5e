"""What failed, as sections: for the terminal and for agents that ask.

Always true: a failed call and its result are one failure; the counts are those of `ls`, `top` and the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from counterpoint.answer import Section
from counterpoint.audits.failures import Failure, failures
from counterpoint.display import counted, duration, local_day
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace
from counterpoint.trace.activity import moments


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


def failures_of(traces: Iterable[Trace], period: tuple[float, float] | None = None) -> Iterator[FailureIn]:
    """The failures of some traces; with a period, those in it and those without a date."""
    begin, end = period or (-math.inf, math.inf)
    for trace in traces:
        if trace.failures:
            line, when = Summary.of_trace(trace), moments(trace.events, trace.meta)
            every = (FailureIn(trace, line, failure, when[trace.index[failure.event]]) for failure in failures(trace))
            yield from (one for one in every if one.at is None or begin <= one.at < end)


def each_section(every: Sequence[Failure], most: int | None) -> Section:
    """Each failure on a line, in the order it happened."""
    if not every:
        return Section(words="nothing failed")
    rows = []
    for f in every[:most]:
        what, later = f.tool or f.type.replace("_", " "), "worked later" if f.is_mended else ""
        rows.append((f.event, duration(f.t), f.name, what, f.tried or "", f.reason or "-", later))
    mended = sum(one.is_mended for one in every)
    left = 0 if most is None else len(every) - most
    more = f"{counted(len(every), 'failure')}, {mended:,} of them in a tool that worked later"
    more += f"; {left:,} more: --rows" if left > 0 else ""
    return Section(head=("event", "at", "agent", "tool", "tried", "why", ""), rows=rows, right=(1,), more=more)


def grouped(every: Sequence[FailureIn], group: str) -> list[tuple[str, list[FailureIn]]]:
    """The failures of each kind, the most frequent kind first."""
    name = GROUPS[group]
    groups: dict[str, list[FailureIn]] = {}
    for one in every:
        groups.setdefault(name(one), []).append(one)
    return sorted(groups.items(), key=lambda row: (-len(row[1]), row[0]))


def counts_section(ordered: Sequence[tuple[str, list[FailureIn]]], group: str, traces: int, most: int | None) -> Section:
    """How often each kind happened in so many traces."""
    tallies = [(key, len(of), tally(of)) for key, of in ordered[:most]]
    cells = [(key, n, t["traces"], t["agents"], t["mended"], t["title"] or t["trace_id"]) for key, n, t in tallies]
    head = (group, "failures", "traces", "agents", "worked later", "first in")
    every = [one for _, of in ordered for one in of]
    failed = len({one.trace.trace_id for one in every})
    more = f"… {len(ordered) - len(cells):,} more lines (--rows); " if len(cells) < len(ordered) else ""
    more += f"{counted(len(every), 'failure')} in {failed:,} of {counted(traces, 'trace')}"
    return Section(head=head, rows=cells, right=(1, 2, 3, 4), more=more)


def tally(of: Sequence[FailureIn]) -> dict[str, Any]:
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
