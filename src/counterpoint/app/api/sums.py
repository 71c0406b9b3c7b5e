"""Sums over many traces: tokens, money, time, calls and errors by trace, project, model, day, role, tool and more.

Always true: every event of every trace is in exactly one line, so that lines sum to the totals; what a trace states beyond its
events (`costs`) counts where lines are whole traces. A figure that nobody recorded is None. A day has what was recorded on it, in
this machine's time zone, so that a trace is in the line of every day on which it was at work, and once in the total; what it
states beyond its events is of no day where it was at work on several. With a period, only what was recorded in it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from counterpoint.app.price_file import price_file
from counterpoint.app.search import facet
from counterpoint.app.side_words import sides_dict
from counterpoint.audits.rollups import By, rollup
from counterpoint.display import zone
from counterpoint.errors import InputError, did_you_mean
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace
from counterpoint.trace.activity import sliced
from counterpoint.trace.quantities import uncounted
from counterpoint.trace.sides import Sides, sides_of
from counterpoint.trace.tabular import Tabular

WHOLE = ("trace", "project", "day", "system", "topology")
"""Groups of whole traces: what a list knows is enough."""
PARTS: tuple[By, ...] = ("model", "role", "tool", "agent", "type")
"""Groups of events within traces: the traces themselves are read."""
GROUPS = (*WHOLE, *PARTS)
FIGURES = {"cost": "cost_usd", "tokens": "tokens", "time": "seconds", "errors": "errors", "events": "events"}
"""What lines are sorted by."""


class Sum(Struct, kw_only=True):
    """One line: what several traces, or parts of them, amount to."""

    name: str | None
    """None for what belongs to no project, model, role or tool."""
    label: str | None = None
    """The title, where a line is a trace."""
    traces: int = 0
    events: int = 0
    calls: int | None = None
    errors: int = 0
    tokens: int | float | None = None
    cost_usd: float | None = None
    unpriced: dict[str, int] = {}
    """Tokens that no cost covers, by model."""
    uncounted: int = 0
    """Agents and model calls whose tokens are not, or not truly, known: tokens and cost are then at least what is said."""
    seconds: float | None = None
    """Wall clock of whole traces; busy time of their parts."""
    sides: Sides | None = None
    """What main transcripts and sub-agents spent, of whole traces."""

    def as_dict(self) -> dict[str, Any]:
        """The line as JSON has it."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told | {"sides": sides_dict(self.sides)}

    def add(self, other: Sum) -> None:
        """Count another line in."""
        self.traces += other.traces
        self.events += other.events
        self.errors += other.errors
        self.uncounted += other.uncounted
        if other.sides is not None:
            self.sides = other.sides if self.sides is None else self.sides.plus(other.sides)
        for field in ("calls", "tokens", "cost_usd", "seconds"):
            more = getattr(other, field)
            if more is not None:
                setattr(self, field, more + (getattr(self, field) or 0))
        self.unpriced = {m: self.unpriced.get(m, 0) + other.unpriced.get(m, 0) for m in (*self.unpriced, *other.unpriced)}


@dataclass(frozen=True)
class Sums(Tabular):
    """Lines, the largest first, and their total."""

    TABLE: ClassVar = {
        "name": "string", "label": "string", "traces": "int64", "events": "int64", "calls": "int64", "errors": "int64",
        "tokens": "double", "cost_usd": "double", "unpriced_tokens": "int64", "seconds": "double",
    }  # fmt: skip

    group: str
    by: str
    rows: tuple[Sum, ...]
    total: Sum

    def as_dict(self) -> dict[str, Any]:
        """What `counterpoint top --json` prints of many traces."""
        rows, total = [row.as_dict() for row in self.rows], self.total.as_dict()
        about = {"group": self.group, "by": self.by} | ({"zone": zone()} if self.group == "day" else {})
        return about | {"rows": rows, "total": total, "price_file": price_file(self.total.unpriced) or None}

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per line."""
        for s in self.rows:
            tokens, left = None if s.tokens is None else float(s.tokens), sum(s.unpriced.values())
            yield (s.name, s.label, s.traces, s.events, s.calls, s.errors, tokens, s.cost_usd, left, s.seconds)

    def caption(self) -> str:
        """How many traces, by what."""
        return f"{self.total.traces:,} traces by {self.group}" + (f" of {zone()}" if self.group == "day" else "")


Period = tuple[float, float]
"""From when to before when, seconds since the epoch, both on a quarter of an hour."""


def sums_of_lines(lines: Iterable[Summary], group: str, by: str | None = None, *, period: Period | None = None) -> Sums:
    """Whole traces, or what they did in a period, from what lists know of them."""
    if group not in WHOLE:
        raise InputError(f"cannot sum whole traces by {group!r}", fix=did_you_mean(group, WHOLE))
    total, found = Sum(name=None), {}  # type: Sum, dict[str | None, Sum]
    for whole in lines:
        line = whole if period is None else whole.within(*period)
        if line is None:
            continue
        for piece in _days(line) if group == "day" else [_piece(line, _name(line, group), group)]:
            found.setdefault(piece.name, Sum(name=piece.name, label=piece.label)).add(piece)
        total.add(_piece(line, None, group))
    return _ranked(group, by, found, total)


def _name(line: Summary, group: str) -> str | None:
    return line.id if group == "trace" else next(iter(facet(line, group)), None)


def _piece(line: Summary, name: str | None, group: str) -> Sum:
    return Sum(
        name=name, label=line.title if group == "trace" else None, traces=1, events=line.events, errors=line.errors,
        calls=sum(q.calls for q in line.quarters) if line.quarters else None,
        tokens=line.tokens, cost_usd=None if line.cost_usd is None else float(line.cost_usd), unpriced=dict(line.unpriced),
        seconds=None if line.wall_clock_s is None else float(line.wall_clock_s), uncounted=line.uncounted, sides=line.sides,
    )  # fmt: skip


def _days(line: Summary) -> list[Sum]:
    """A trace day by day; what has no day is no trace of its own where the rest of it has one."""
    days = line.by_day()
    pieces = [_piece(part, day, "day") for day, part in days.items()]
    if None in days and len(days) > 1:
        pieces[-1].traces = 0
    return pieces


def sums_of_traces(traces: Iterable[Trace], group: By, by: str | None = None, *, period: Period | None = None) -> Sums:
    """Parts of traces: events by model, role, tool, agent or type."""
    total, found = Sum(name=None), {}  # type: Sum, dict[str | None, Sum]
    for whole in traces:
        trace = whole if period is None else sliced(whole, *period)
        count = 0
        for row in rollup(trace, group):
            name = row.label or row.name
            piece = Sum(
                name=name, traces=1, events=row.events, calls=row.calls, errors=row.errors, tokens=row.tokens_own,
                cost_usd=row.cost_own, unpriced=dict(row.unpriced), seconds=row.busy_s,
            )  # fmt: skip
            found.setdefault(name, Sum(name=name)).add(piece)
            total.add(piece)
            count += 1
        total.traces += 1 - count
        total.uncounted += uncounted(trace.meta)
        sides = sides_of(trace)
        total.sides = sides if total.sides is None else total.sides.plus(sides)
    return _ranked(group, by, found, total)


def _ranked(group: str, by: str | None, found: dict[str | None, Sum], total: Sum) -> Sums:
    if by is not None and by not in FIGURES:
        raise InputError(f"cannot sort by {by!r}", fix=did_you_mean(by, FIGURES))
    by = by or next(name for name, field in FIGURES.items() if name == "events" or getattr(total, field))
    field = FIGURES[by]
    rows = sorted(found.values(), key=lambda s: (-float(getattr(s, field) or 0), -float(s.tokens or 0), s.name or ""))
    if group == "day":
        rows = sorted(found.values(), key=lambda s: s.name or "")
    return Sums(group, by, tuple(rows), total)
