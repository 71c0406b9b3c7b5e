"""A time against the same length before it: this week against the week before, by project, system, model and role.

Always true: only what was done in each time counts, to the quarter of an hour; a run whose time is not known is in neither and is
counted; a figure that no run has is None, and has no change. The difference per run is that of the means over tasks, for runs of
one task are not independent (a run of no named task is a task of its own), with a 95 % interval where both sides have `ENOUGH`
tasks, else none: Student's of the differences where they share so many, and only these are compared, else Welch's. A run's reward
counts where the run was last at work.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from msgspec import Struct

from counterpoint.app.api.mix import FIGURES as LISTED
from counterpoint.app.api.mix import Change, change_of
from counterpoint.app.api.sums import Period
from counterpoint.app.search import period_of
from counterpoint.audits.rollups import Row, rollup
from counterpoint.errors import InputError
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace
from counterpoint.trace.activity import QUARTER_S, sliced
from counterpoint.trace.statistics import difference_ends, mean_ends

FIGURES = ("cost", "tokens", "time", "errors", "reward")
"""What is compared, in the order in which it is told."""
ENOUGH = 5
"""Tasks on either side from which on an interval says something."""
WEEK_S = 7 * 86400.0
_UNKNOWN = {"", "unnamed"}


class Figure(Struct, kw_only=True):
    """One figure before and now."""

    totals: tuple[float | None, float | None]
    """Sums; of the reward, means per run."""
    is_least: tuple[bool, bool]
    """Whether there is more than is known: tokens without a price, calls without a count."""
    runs: tuple[int, int]
    """Runs that have it."""
    means: tuple[float | None, float | None]
    """Per run, over tasks."""
    diff: float | None
    low: float | None
    high: float | None
    """The change per run, and the ends of its 95 % interval; None for too few runs to say."""


class Group(Struct, kw_only=True):
    """All runs, or what one project, model or role did in them."""

    by: str
    """`all`, `project`, `model` or `role`."""
    name: str
    runs: tuple[int, int]
    figures: dict[str, Figure]
    """Those that are measured on either side."""


class PeriodComparison(Struct, kw_only=True):
    """A time and the one before it."""

    query: str
    before: Period
    now: Period
    groups: list[Group]
    """All first, then by project, system, model and role, those that cost most first."""
    changes: dict[str, Change]
    """Of all runs: how much of a change is of more runs, of another mix of them, and of runs alike."""
    undated: int
    """Runs whose time is not known: in neither."""


class _Piece(NamedTuple):
    """What one run did in one time, or a model or role in it."""

    task: str
    figures: dict[str, float | None]
    is_least: bool


def periods_of(query: str, newest: float | None, *, now: float | None = None) -> tuple[Period, Period]:
    """The time that a query asks for and the same length before it; without dates the week that ends now.

    Where nothing ran in these two weeks, the week ends with the newest run (`newest`: when it was last at work).
    """
    at = time.time() if now is None else now
    begin, end = period_of(query) or (-math.inf, math.inf)
    if end == math.inf:
        end = at
        if begin == -math.inf and newest is not None and newest < at - 2 * WEEK_S:
            end = newest
        end = end // QUARTER_S * QUARTER_S + QUARTER_S
    if begin == -math.inf:
        begin = end - WEEK_S
    if begin >= end:
        raise InputError(f"no time lies in {query!r}", fix="as in last:7d, or 'since:2026-11-02 until:2026-11-08'")
    return (begin - (end - begin), begin), (begin, end)


class Comparing:
    """A comparison in the making: traces are taken one by one."""

    def __init__(self, query: str, before: Period, now: Period, undated: int = 0) -> None:
        """`undated`: runs of no known time that are not taken."""
        self._query, self._sides = query, (before, now)
        self._pieces: dict[tuple[str, str], tuple[list[_Piece], list[_Piece]]] = defaultdict(lambda: ([], []))
        self._lines: tuple[list[Summary], list[Summary]] = ([], [])
        self._undated = undated

    def take(self, trace: Trace, line: Summary | None = None) -> None:
        """Count a trace in; `line` is what the store lists of it."""
        line = line or Summary.of_trace(trace)
        if line.started is None and not line.is_open:
            self._undated += 1
            return
        for side, period in enumerate(self._sides):
            part = line.within(*period)
            if part is None:
                continue
            self._lines[side].append(part)
            is_last = period[0] <= line.pieces[-1].last < period[1]
            reward = float(line.team_reward) if line.team_reward is not None and is_last else None
            task = f"trace {line.id}" if line.task_id in _UNKNOWN else f"task {line.task_id}"
            self._take(side, task, part, trace if part is line else sliced(trace, *period), reward)

    def _take(self, side: int, task: str, part: Summary, trace: Trace, reward: float | None) -> None:
        figures: dict[str, float | None] = {
            "cost": part.cost_usd, "tokens": part.tokens, "time": part.wall_clock_s, "errors": part.errors, "reward": reward,
        }  # fmt: skip
        whole = _Piece(task, figures, bool(part.unpriced or part.uncounted))
        self._pieces["all", ""][side].append(whole)
        self._pieces["project", part.project or ""][side].append(whole)
        self._pieces["system", part.system or ""][side].append(whole)
        for row in rollup(trace, "model"):
            if row.name is not None or row.tokens_own:
                is_least = (row.name or "") in trace.unpriced
                self._pieces["model", row.name or ""][side].append(_Piece(task, _of_row(row, reward), is_least))
        for row in rollup(trace, "role"):
            is_least = bool(row.tokens_own) and row.cost_own is None
            self._pieces["role", row.name or ""][side].append(_Piece(task, _of_row(row, reward), is_least))

    def done(self) -> PeriodComparison:
        """The comparison of what was taken."""
        groups = [_group(by, name, sides) for (by, name), sides in self._pieces.items()]
        order = ("all", "project", "system", "model", "role")
        found = {name: change_of(*self._lines, field) for name, field in LISTED.items() if name in FIGURES and name != "reward"}
        return PeriodComparison(
            query=self._query, before=self._sides[0], now=self._sides[1], undated=self._undated,
            groups=sorted(groups, key=lambda g: (order.index(g.by), *_weight(g), g.name)),
            changes={name: change for name, change in found.items() if change is not None},
        )  # fmt: skip


def _of_row(row: Row, reward: float | None) -> dict[str, float | None]:
    return {"cost": row.cost_own, "tokens": row.tokens_own, "time": row.busy_s, "errors": row.errors, "reward": reward}


def _weight(group: Group) -> tuple[float, ...]:
    """The largest spend first, then the most tokens, then the most runs."""
    of = [max((t for t in f.totals if t is not None), default=0.0) if (f := group.figures.get(n)) else 0.0 for n in FIGURES[:2]]
    return (*(-value for value in of), -float(max(group.runs)))


def _group(by: str, name: str, sides: tuple[list[_Piece], list[_Piece]]) -> Group:
    figures = {one: made for one in FIGURES if (made := _figure(one, sides)) is not None}
    return Group(by=by, name=name, runs=(len(sides[0]), len(sides[1])), figures=figures)


def _figure(name: str, sides: tuple[list[_Piece], list[_Piece]]) -> Figure | None:
    """One figure of a group; None where no run has it."""
    known = [[(p.task, float(v)) for p in side if (v := p.figures[name]) is not None] for side in sides]
    if not any(known):
        return None
    units = [_by_task(side) for side in known]
    means = [fmean(side.values()) if side else None for side in units]
    sums = [math.fsum(value for _, value in side) if side else None for side in known]
    diff, low, high = _difference(*units)
    least = [name in ("cost", "tokens") and any(p.is_least for p in side) for side in sides]
    before, now = means if name == "reward" else sums
    return Figure(
        totals=(before, now), is_least=(least[0], least[1]), runs=(len(known[0]), len(known[1])),
        means=(means[0], means[1]), diff=diff, low=low, high=high,
    )  # fmt: skip


def _difference(before: dict[str, float], now: dict[str, float]) -> tuple[float | None, float | None, float | None]:
    """The change of the mean over tasks, with its interval; None where there are too few to say."""
    if min(len(before), len(now)) < ENOUGH:
        return None, None, None
    shared = before.keys() & now.keys()
    if len(shared) >= ENOUGH:
        changes = [now[task] - before[task] for task in sorted(shared)]
        return fmean(changes), *mean_ends(changes)
    one, two = [*before.values()], [*now.values()]
    return fmean(two) - fmean(one), *difference_ends(two, one)


def _by_task(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The mean of each task: what is independent."""
    of_task: dict[str, list[float]] = defaultdict(list)
    for task, value in values:
        of_task[task].append(value)
    return {task: fmean(found) for task, found in of_task.items()}


def compare_periods(traces: Iterable[Trace], query: str = "last:7d") -> PeriodComparison:
    """Compare what traces did in the time that a query asks for with the same length before it."""
    every: Sequence[Trace] = list(traces)
    newest = max((line.active for line in map(Summary.of_trace, every) if line.started is not None), default=None)
    making = Comparing(query, *periods_of(query, newest))
    for trace in every:
        making.take(trace)
    return making.done()
