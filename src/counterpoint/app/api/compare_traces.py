"""Collections of traces against each other: totals, of what their change is made, and each figure's mean with an interval.

Always true: traces are only listed, not opened, but for those that an older store does not know the days of; where a side asks
for a time, only what was done in it counts; a number that a trace lacks is left out and counted, never taken for 0. Runs of
one task are not independent, so tasks are the units: their runs are averaged first (one task alone: its runs are the units, and
the interval is about that task; so is every trace whose task is not known). Tasks that two collections share are compared task
by task, else Welch's interval is taken. Intervals are Student's, see `trace.statistics`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from counterpoint.app.api.annotate import opened
from counterpoint.app.api.inputs import found_ids
from counterpoint.app.api.mix import FIGURES as CHANGING
from counterpoint.app.api.mix import Change, change_of
from counterpoint.app.api.sums import Period, Sum, sums_of_lines
from counterpoint.app.search import period_of
from counterpoint.errors import InputError
from counterpoint.store.summary import Summary
from counterpoint.trace.statistics import difference_ends, mean_ends
from counterpoint.trace.tabular import Bar, Tabular

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import StorePlace
    from counterpoint.store import Store

FIGURES = {
    "reward": "team_reward", "tokens": "tokens", "cost_usd": "cost_usd", "seconds": "wall_clock_s", "agents": "agents",
    "events": "events", "errors": "errors",
}  # fmt: skip
"""What is compared, and where a line of the list has it."""
_UNKNOWN = {"", "unnamed"}


@dataclass(frozen=True)
class FigureRow:
    """One figure of one side, and its difference from the first side."""

    label: str
    figure: str
    traces: int
    """Those that have the figure."""
    mean: float
    """Over the tasks; over the traces where all are of one task."""
    low: float | None
    """The lower end of the mean's 95 % interval; None where one trace, or one task, says nothing of it."""
    high: float | None
    diff: float | None
    """The mean less that of the first side; over shared tasks where there are two or more."""
    diff_low: float | None
    diff_high: float | None
    tasks: int
    """Shared tasks that the difference is over; 0: it is of the two means."""


@dataclass(frozen=True)
class TraceComparison(Tabular):
    """Collections of traces side by side."""

    TABLE: ClassVar = {
        "label": "string", "figure": "string", "traces": "int64", "mean": "double", "low": "double", "high": "double",
        "diff": "double", "diff_low": "double", "diff_high": "double", "tasks": "int64",
    }  # fmt: skip

    labels: tuple[str, ...]
    counts: tuple[int, ...]
    rows: tuple[FigureRow, ...]
    shared: int
    """Traces that are on more than one side."""
    of_one_task: tuple[str, ...] = ()
    """Sides of one task alone, whose runs are the units: their intervals say nothing of other tasks."""
    totals: tuple[Sum, ...] = ()
    """What each side amounts to."""
    projects: tuple[tuple[str, tuple[Sum, ...]], ...] = ()
    models: tuple[tuple[str, tuple[Sum, ...]], ...] = ()
    """The same by project and by model (of a trace with several: that of most tokens), the largest first."""
    changes: tuple[tuple[str, str, Change], ...] = ()
    """Side, figure, and of what its change from the first side is made."""

    def picture(self) -> list[Bar]:
        """The reward of each side with its interval, or what else comes first."""
        first = self.rows[0].figure if self.rows else ""
        return [(f"{row.label} {row.figure}", row.mean, row.low, row.high) for row in self.rows if row.figure == first]

    def caption(self) -> str:
        """The sides."""
        sides = (f"{label} ({count:,} traces)" for label, count in zip(self.labels, self.counts, strict=True))
        alone = f", runs as units of one task ({', '.join(self.of_one_task)})" if self.of_one_task else ""
        return " against ".join(sides) + "; Student's intervals, tasks as units" + alone

    def remark(self) -> str | None:
        """What traces on more than one side do to the differences; None where there are none."""
        if not self.shared:
            return None
        wide = any(not row.tasks and row.diff_low is not None and row.diff_low != row.diff_high for row in self.rows)
        many = f"{self.shared:,} traces are" if self.shared > 1 else "1 trace is"
        return f"{many} on more than one side" + (": the intervals of the differences are too wide" if wide else "")


def compare_traces(*sides: str, store: StorePlace = None) -> TraceComparison:
    """Compare what queries find, such as `in:before` and `in:after`: each figure with a 95 % interval, and the differences."""
    if len(sides) < 2:
        raise InputError("a comparison has two sides or more", fix="counterpoint compare traces in:before in:after")
    with opened(store) as place:
        listed = {row.id: row for row in place.rows()}
        groups = [_lines(place, [listed[name] for name in found_ids(place, side)], period_of(side)) for side in sides]
    sides_of: dict[str, int] = defaultdict(int)
    for group in groups:
        for row in group:
            sides_of[row.id] += 1
    rows = [
        made
        for figure, attribute in FIGURES.items()
        for label, group in zip(sides, groups, strict=True)
        if (made := _row(label, figure, attribute, group, groups[0])) is not None
    ]
    shared = sum(count > 1 for count in sides_of.values())
    labels = tuple(map(os.fspath, sides))
    alone = tuple(label for label, group in zip(labels, groups, strict=True) if _is_of_one_task(group))
    return TraceComparison(
        labels, tuple(map(len, groups)), tuple(rows), shared, alone,
        totals=tuple(sums_of_lines(group, "trace").total for group in groups),
        projects=_by(groups, lambda line: line.project or "(none)"),
        models=_by(groups, lambda line: line.models[0] if line.models else "(none)"),
        changes=tuple(
            (label, name, change)
            for label, group in zip(labels[1:], groups[1:], strict=True)
            for name, field in CHANGING.items()
            if name != "reward" and (change := change_of(groups[0], group, field)) is not None
        ),
    )  # fmt: skip


def _lines(place: Store, rows: list[Summary], period: Period | None) -> list[Summary]:
    """What the traces of a side did in the time that it asks for."""
    if period is None:
        return rows
    known = [Summary.of_trace(place.get(row.id)) if row.quarters is None else row for row in rows]
    return [part for row in known if (part := row.within(*period)) is not None]


def _by(groups: list[list[Summary]], name: Callable[[Summary], str]) -> tuple[tuple[str, tuple[Sum, ...]], ...]:
    """What each side amounts to, by something that each trace has one of."""
    parts: list[dict[str, list[Summary]]] = [defaultdict(list) for _ in groups]
    for part, group in zip(parts, groups, strict=True):
        for line in group:
            part[name(line)].append(line)
    rows = [(one, tuple(sums_of_lines(part.get(one, []), "trace").total for part in parts)) for one in set().union(*parts)]
    return tuple(
        sorted(rows, key=lambda row: (-max(s.cost_usd or 0 for s in row[1]), -max(s.tokens or 0 for s in row[1]), row[0]))
    )


def _is_of_one_task(group: list[Summary]) -> bool:
    """Whether several runs are all of one task that is known."""
    return len(group) > 1 and len({row.task_id for row in group}) == 1 and group[0].task_id not in _UNKNOWN


def _row(label: str, figure: str, attribute: str, group: list[Summary], first: list[Summary]) -> FigureRow | None:
    values, against = _by_task(group, attribute), _by_task(first, attribute)
    if not values:
        return None
    units, others = _units(values), _units(against)
    mean, (low, high) = fmean(units), mean_ends(units)
    diff = diff_low = diff_high = None
    common = sorted(values.keys() & against.keys())
    is_paired = len(common) > 1
    if group is not first and against:
        if is_paired:
            by_task = [fmean(values[task]) - fmean(against[task]) for task in common]
            diff, (diff_low, diff_high) = fmean(by_task), mean_ends(by_task)
        else:
            diff, (diff_low, diff_high) = mean - fmean(others), difference_ends(units, others)
    tasks = len(common) if is_paired and group is not first else 0
    count = sum(map(len, values.values()))
    return FigureRow(label, figure, count, mean, low, high, diff, diff_low, diff_high, tasks)


def _by_task(rows: list[Summary], attribute: str) -> dict[str, list[float]]:
    """What the runs of each task have; a trace whose task is not known is a task of its own."""
    out: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        value = getattr(row, attribute)
        if value is not None:
            out[f"trace {row.id}" if row.task_id in _UNKNOWN else f"task {row.task_id}"].append(float(value))
    return out


def _units(values: dict[str, list[float]]) -> list[float]:
    """What is independent: the mean of each task, or the runs of the only one."""
    return next(iter(values.values())) if len(values) == 1 else [fmean(of_task) for of_task in values.values()]
