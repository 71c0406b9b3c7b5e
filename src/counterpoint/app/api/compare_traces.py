"""Collections of traces against each other: reward, tokens, cost, time, errors, each with an interval.

Always true: traces are only listed, not opened; a number that a trace lacks is left out and counted, never taken for 0; tasks
that two collections share are compared task by task, else trace by trace. The same call gives the same numbers.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from counterpoint.app.api.annotate import opened
from counterpoint.app.api.inputs import found_ids
from counterpoint.errors import InputError
from counterpoint.store.summary import Summary
from counterpoint.trace.tabular import Bar, Tabular

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import StorePlace

FIGURES = {
    "reward": "team_reward", "tokens": "tokens", "cost_usd": "cost_usd", "seconds": "wall_clock_s", "agents": "agents",
    "events": "events", "errors": "errors",
}  # fmt: skip
"""What is compared, and where a line of the list has it."""
_DRAWS = 4_000


@dataclass(frozen=True)
class FigureRow:
    """One figure of one side, and its difference from the first side."""

    label: str
    figure: str
    traces: int
    """Those that have the figure."""
    mean: float
    low: float | None
    """The lower end of the mean's 95 % interval; None where one trace, or one task, says nothing of it."""
    high: float | None
    diff: float | None
    """The mean less that of the first side; over shared tasks where there are two or more."""
    diff_low: float | None
    diff_high: float | None
    tasks: int
    """Shared tasks that the difference is over; 0: it is over all traces."""


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

    def picture(self) -> list[Bar]:
        """The reward of each side with its interval, or what else comes first."""
        first = self.rows[0].figure if self.rows else ""
        return [(f"{row.label} {row.figure}", row.mean, row.low, row.high) for row in self.rows if row.figure == first]

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per side and figure."""
        return (tuple(getattr(row, name) for name in self.TABLE) for row in self.rows)

    def row_count(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    def caption(self) -> str:
        """The sides."""
        sides = (f"{label} ({count:,} traces)" for label, count in zip(self.labels, self.counts, strict=True))
        return " against ".join(sides) + f"; {_DRAWS:,} bootstrap draws"


def compare_traces(*sides: str, store: StorePlace = None, seed: int = 0) -> TraceComparison:
    """Compare what queries find, such as `in:before` and `in:after`: each figure with a 95 % interval, and the differences."""
    if len(sides) < 2:
        raise InputError("a comparison has two sides or more", fix="counterpoint compare --traces in:before in:after")
    with opened(store) as place:
        listed = {row.id: row for row in place.rows()}
        groups = [[listed[name] for name in found_ids(place, side)] for side in sides]
    sides_of: dict[str, int] = defaultdict(int)
    for group in groups:
        for row in group:
            sides_of[row.id] += 1
    rows = [
        made
        for figure, attribute in FIGURES.items()
        for label, group in zip(sides, groups, strict=True)
        if (made := _row(label, figure, attribute, group, groups[0], np.random.default_rng(seed))) is not None
    ]
    shared = sum(count > 1 for count in sides_of.values())
    return TraceComparison(tuple(map(os.fspath, sides)), tuple(map(len, groups)), tuple(rows), shared)


def _row(
    label: str, figure: str, attribute: str, group: list[Summary], first: list[Summary], rng: np.random.Generator
) -> FigureRow | None:
    values, against = _by_task(group, attribute), _by_task(first, attribute)
    flat = np.array([v for of_task in values.values() for v in of_task])
    if not len(flat):
        return None
    mean, low, high = float(flat.mean()), *_ends(_drawn(flat, rng))
    diff = diff_low = diff_high = None
    common = sorted(values.keys() & against.keys())
    is_paired = len(common) > 1
    if group is not first and against:
        if is_paired:
            by_task = np.array([np.mean(values[task]) - np.mean(against[task]) for task in common])
            diff, ends = float(by_task.mean()), _ends(_drawn(by_task, rng))
        else:
            other = np.array([v for of_task in against.values() for v in of_task])
            draws = [_drawn(side, rng) for side in (flat, other)]
            ends = (None, None) if any(d is None for d in draws) else _ends(draws[0] - draws[1])  # type: ignore[operator]
            diff = mean - float(other.mean())
        diff_low, diff_high = ends
    tasks = len(common) if is_paired and group is not first else 0
    return FigureRow(label, figure, len(flat), mean, low, high, diff, diff_low, diff_high, tasks)


def _by_task(rows: list[Summary], attribute: str) -> dict[str, list[float]]:
    out: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        value = getattr(row, attribute)
        if value is not None:
            out[row.task_id].append(float(value))
    return out


def _drawn(values: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Means of samples drawn with replacement; None for one value."""
    if len(values) < 2:
        return None
    return np.array([values[rng.integers(0, len(values), len(values))].mean() for _ in range(_DRAWS)])


def _ends(draws: np.ndarray | None) -> tuple[float | None, float | None]:
    if draws is None:
        return None, None
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)
