"""Rows that rooms exchange: `Signals` (what was paid) and `Credit` (who earned it), as columns over many traces, no padding.

Always true: a row names its trace, a unit of the survey (team, orchestrator, role, agent, turn, message, tool, token) and the
unit's id in that trace; what was not scored has no row, so that absent is never 0. Values are finite. Rows of one trace stand
together, in the order of the traces.

Unit ids: team `""`; orchestrator and agent: the agent's name; role: the role; turn: `agent#turn`; message, tool and decision: the
event's id; token: `event#place`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace.statistics import normal_ends
from counterpoint.trace.tabular import Bar, Tabular
from counterpoint.trace.vocabulary import UNITS


class Signal(NamedTuple):
    """One reward: what a plug-in of `reward/` gives for one trace."""

    unit: str
    unit_id: str
    channel: str
    value: float


class CreditRow(NamedTuple):
    """One amount of credit."""

    trace: int
    """Place of the trace among the traces judged."""
    unit: str
    unit_id: str
    value: float
    se: float | None = None
    """Standard error, where the amount is an estimate."""


class Shares(NamedTuple):
    """Who earned what one trace brought: agents and the unassigned rest add up to it."""

    method: str
    reward: float
    """What is shared out: the team reward; the whole result, which is 1, where a mechanism gives shares of the result."""
    agents: dict[str, float]
    unassigned: float
    """What the mechanism gives to nobody: the prior and luck, or what can be traced to nobody."""


class Cost(NamedTuple):
    """What a mechanism spent beyond the traces it was given."""

    forks: int = 0
    tokens: int = 0


def _check(unit: str, value: float, where: str) -> None:
    if unit not in UNITS:
        raise InputError(f"no unit {unit!r}", where=where, fix=did_you_mean(unit, UNITS))
    if not np.isfinite(value):
        raise InputError(f"{value} is not an amount", where=where, fix="leave out what was not scored")


@dataclass(frozen=True)
class Signals(Tabular):
    """Rewards of many traces: row i is paid to `unit_ids[i]` of trace `trace[i]`."""

    TABLE: ClassVar = {"trace_id": "string", "unit": "string", "unit_id": "string", "channel": "string", "value": "double"}

    trace_ids: tuple[str, ...]
    trace: np.ndarray
    units: tuple[str, ...]
    unit_ids: tuple[str, ...]
    channels: tuple[str, ...]
    values: np.ndarray

    @staticmethod
    def of(rows: Mapping[str, Iterable[Signal]]) -> Signals:
        """The signals of traces by their ids, in the order of the mapping."""
        flat = [(i, s) for i, signals in enumerate(rows.values()) for s in signals]
        for _, s in flat:
            _check(s.unit, s.value, f"{s.channel} of {s.unit} {s.unit_id!r}")
        return Signals(
            tuple(rows),
            np.array([i for i, _ in flat], np.int64),
            tuple(s.unit for _, s in flat),
            tuple(s.unit_id for _, s in flat),
            tuple(s.channel for _, s in flat),
            np.array([s.value for _, s in flat], np.float64),
        )

    def __len__(self) -> int:
        return len(self.values)

    def where(self, *, unit: str | None = None, channel: str | None = None) -> Signals:
        """The rows of a unit, of a channel, or of both."""
        keep = [
            i
            for i in range(len(self))
            if (unit is None or self.units[i] == unit) and (channel is None or self.channels[i] == channel)
        ]
        pick = lambda column: tuple(column[i] for i in keep)  # noqa: E731
        return Signals(
            self.trace_ids, self.trace[keep], pick(self.units), pick(self.unit_ids), pick(self.channels), self.values[keep]
        )

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per signal."""
        ids = (self.trace_ids[i] for i in self.trace.tolist())
        return zip(ids, self.units, self.unit_ids, self.channels, self.values.tolist(), strict=True)

    def row_count(self) -> int:
        """How many signals there are."""
        return len(self)

    def caption(self) -> str:
        """How many rewards of which channels."""
        return f"{len(self):,} rewards of {len(self.trace_ids):,} traces: {', '.join(dict.fromkeys(self.channels)) or 'none'}"

    def totals(self) -> np.ndarray:
        """(traces,) the sum of the rows of each trace; NaN for a trace without rows."""
        count = np.bincount(self.trace, minlength=len(self.trace_ids))
        sums = np.bincount(self.trace, self.values, len(self.trace_ids))
        return np.where(count > 0, sums, np.nan)


@dataclass(frozen=True)
class Credit(Tabular):
    """Credit of many traces, and what kind of number it is."""

    TABLE: ClassVar = {"trace_id": "string", "unit": "string", "unit_id": "string", "value": "double", "se": "double"}

    mechanism: str
    estimand: str
    """What is estimated, in words or a formula."""
    additive: bool
    """The rows of a unit sum to `declared`, trace by trace."""
    trace_ids: tuple[str, ...]
    rows: tuple[CreditRow, ...]
    declared: np.ndarray | None = None
    """(traces,) what the rows of an additive mechanism sum to."""
    cost: Cost = field(default_factory=Cost)
    unidentified: Mapping[tuple[int, str], str] = field(default_factory=dict)
    """(trace, unit id) to the reason why there is no answer; such a unit has no row."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What a reader should see beside the numbers: groups and their sizes, conventions, residuals."""

    def __post_init__(self) -> None:
        for row in self.rows:
            _check(row.unit, row.value, f"{self.mechanism}: {row.unit} {row.unit_id!r}")
        if self.additive:
            self._add_up()

    def _add_up(self) -> None:
        if self.declared is None:
            raise InputError(f"{self.mechanism} is additive and does not declare what its rows sum to", fix="give `declared`")
        for unit in {row.unit for row in self.rows}:
            of_unit = [row for row in self.rows if row.unit == unit]
            sums = np.bincount([r.trace for r in of_unit], [r.value for r in of_unit], len(self.trace_ids))
            size = np.bincount([r.trace for r in of_unit], [abs(r.value) for r in of_unit], len(self.trace_ids))
            has = np.isin(np.arange(len(self.trace_ids)), [r.trace for r in of_unit])
            gap = np.abs(sums - self.declared)[has]
            if (gap > 1e-9 * np.maximum(1.0, size[has])).any():
                raise InputError(
                    f"{self.mechanism}: the {unit} rows miss their sum by {gap.max():.3g}",
                    fix="a bug in Counterpoint: please report it",
                )

    @property
    def units(self) -> tuple[str, ...]:
        """The units that have rows, coarse to fine."""
        return tuple(u for u in UNITS if any(row.unit == u for row in self.rows))

    def of(self, trace: int, unit: str | None = None) -> dict[str, float]:
        """Unit id to amount, of one trace (and one unit, where there are several)."""
        return {r.unit_id: r.value for r in self.rows if r.trace == trace and (unit is None or r.unit == unit)}

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per unit that has an answer."""
        return ((self.trace_ids[r.trace], r.unit, r.unit_id, r.value, r.se) for r in self.rows)

    def picture(self) -> list[Bar]:
        """The largest units of the coarsest kind, with two standard errors; of several traces the mean of each unit's credit."""
        units = [unit for unit in self.units if unit != "team"] or list(self.units)
        by_unit: dict[str, list[CreditRow]] = {}
        for row in self.rows:
            if units and row.unit == units[0]:
                by_unit.setdefault(row.unit_id, []).append(row)
        out: list[Bar] = []
        for name, rows in by_unit.items():
            mean, se = sum(row.value for row in rows) / len(rows), rows[0].se if len(rows) == 1 else None
            out.append((name, mean, *((None, None) if se is None else normal_ends(mean, se))))
        return sorted(out, key=lambda bar: -abs(bar[1] or 0.0))

    def caption(self) -> str:
        """The mechanism, what it estimates, and how many units it has no answer for."""
        refused = f"; {len(self.unidentified):,} units not identified" if self.unidentified else ""
        return f"{self.mechanism}: {self.estimand}{refused}"

    def renamed(self, mechanism: str) -> Credit:
        """The same credit under another name."""
        return replace(self, mechanism=mechanism)


def rows_of(trace: int, unit: str, amounts: Mapping[str, float], se: Mapping[str, float] | None = None) -> Sequence[CreditRow]:
    """Rows of one trace and unit from a mapping."""
    return [CreditRow(trace, unit, name, float(value), None if se is None else se.get(name)) for name, value in amounts.items()]
