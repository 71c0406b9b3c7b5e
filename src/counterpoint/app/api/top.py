"""`cpt.top`: where tokens, money and time went, by agent, role, tool, type or model.

Always true: rows are those of `audit.rollups`, all of them unless `limit` says otherwise; a figure nobody recorded is None.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from counterpoint.app.api.inputs import one_trace
from counterpoint.app.price_file import price_file
from counterpoint.app.side_words import sides_dict
from counterpoint.audits.facts import facts_of
from counterpoint.audits.rollups import By, Coverage, Row, behind, coverage, rollup
from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace import Event, Trace
from counterpoint.trace.sides import sides_of
from counterpoint.trace.tabular import Bar, Tabular

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import StorePlace

FIGURES: dict[str, tuple[str, str]] = {
    "tokens": ("tokens_own", "tokens_total"),
    "cost": ("cost_own", "cost_total"),
    "time": ("busy_s", "busy_total_s"),
    "events": ("events", "events"),
}
"""What rows are sorted by: its own figure, and the one with children."""
_PATH = {"s": "time", "tokens": "tokens", "steps": "steps", None: None}


@dataclass(frozen=True)
class Top(Tabular):
    """What each agent, role, tool, type or model spent and did."""

    TABLE: ClassVar = {
        "name": "string", "parent": "string", "depth": "int64", "role": "string", "events": "int64", "steps": "int64",
        "calls": "int64", "messages": "int64", "errors": "int64", "tokens_in": "int64", "tokens_out": "int64",
        "tokens_own": "int64", "tokens_total": "int64", "cost_own": "double", "cost_total": "double", "busy_s": "double",
        "busy_total_s": "double", "path": "double", "first_t": "double", "last_t": "double",
    }  # fmt: skip

    trace: Trace = field(repr=False)
    group: By
    """What a row is: agent, role, tool, type or model."""
    by: str
    """What decides the order: tokens, cost, time or events."""
    critical_path: tuple[float | None, str | None]
    """Its length and what that is measured in; None where the trace has none."""
    rows: tuple[Row, ...]
    coverage: Coverage
    """How many tokens the events account for."""

    @property
    def path(self) -> str | None:
        """What the shares of the critical path are shares of: time, tokens or steps."""
        return _PATH[self.critical_path[1]]

    @property
    def trace_id(self) -> str:
        """The trace that was looked at."""
        return self.trace.trace_id

    def events(self, name: str) -> list[Event]:
        """The events behind one row, in the story's order; `NotFound` for a name that has none."""
        return [self.trace.events[i] for i in behind(self.trace, self.group, name)]

    def as_dict(self) -> dict[str, Any]:
        """What `counterpoint top --json` prints."""
        length, unit = self.critical_path
        about: dict[str, Any] = {"trace_id": self.trace_id, "group": self.group, "by": self.by, "path": self.path}
        about |= {"critical_path": {"length": length, "unit": unit}}
        about |= {"tokens": self.trace.tokens, "cost_usd": self.trace.cost_usd, "unpriced": self.trace.unpriced}
        about |= {"sides": sides_dict(sides_of(self.trace)), "price_file": price_file(self.trace.unpriced) or None}
        return about | {"rows": msgspec.to_builtins(self.rows), "coverage": msgspec.to_builtins(self.coverage)}

    def picture(self) -> list[Bar]:
        """What each row has of its own."""
        own = FIGURES[self.by][0] if self.by in FIGURES else "events"
        return [(row.name or "(none)", getattr(row, own), None, None) for row in self.rows]

    def caption(self) -> str:
        """Which trace, by what."""
        about = f"{self.trace_id} by {self.group}"
        return about if self.path is None else f"{about}; path is a share of the critical path, in {self.path}"


def top(
    trace: Trace | str | os.PathLike[str],
    *,
    group: By = "agent",
    by: str | None = None,
    limit: int | None = None,
    store: StorePlace = None,
) -> Top:
    """Where tokens, money and time went, own and with children.

    A row for each `group` (agent, role, tool, type, model). Agents come as in the spawn tree; with `limit`, the largest by
    `by` (tokens, cost, time, events; the first that is recorded where it is not given).

    >>> import counterpoint as cpt
    >>> trace = cpt.world("W1", vote_items=12).run("reference", [0], log=True).trace(0)
    >>> where = cpt.top(trace)
    >>> sum(row.events for row in where.rows) == len(trace.events)
    True
    """
    return top_of(one_trace(trace, store), group=group, by=by, limit=limit)


def top_of(trace: Trace, *, group: By = "agent", by: str | None = None, limit: int | None = None) -> Top:
    """The same of a trace that is loaded."""
    if by is not None and by not in FIGURES:
        raise InputError(f"cannot sort by {by!r}", fix=did_you_mean(by, FIGURES))
    facts = facts_of(trace)
    rows = rollup(trace, group)
    by = by or next(f for f in FIGURES if f == "events" or any(getattr(r, FIGURES[f][0]) is not None for r in rows))
    ranked = sorted(rows, key=lambda r: -rank(r, by))[:limit] if limit else rows
    path = (None, None) if facts.path is None else (facts.path.length, facts.path.unit)
    return Top(trace, group, by, path, tuple(ranked), coverage(trace))


def rank(row: Row, by: str) -> float:
    """How large a row is: with children where there is such a figure, else its own."""
    own, total = FIGURES[by]
    return float(getattr(row, total) or getattr(row, own) or 0)
