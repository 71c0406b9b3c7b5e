"""Budgets of a month, and what the month will have cost at its end: from the spend of each day.

Always true: budgets stand in `budgets.toml` of the store, dollars a calendar month of this machine's time zone, and are held
against all that the store holds, whatever is asked. The forecast is what is spent plus draws for the days left; its interval is
made to hold the end of the month in four months of five. Under `LEAST_DAYS` days with spend among the last `HISTORY_DAYS` there
is none. A cost of no known day is in no month.

The draw is a bootstrap in two steps, so that a short history widens the interval: of the n days known, n are drawn with
replacement, and from these the days left. Working days and weekends are drawn apart where, over the days known, the mean of the
own kind without the day itself is nearer to the day than the mean of all.
"""

from __future__ import annotations

import calendar
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from counterpoint.display import zone
from counterpoint.errors import InputError
from counterpoint.files import read_toml
from counterpoint.store.summary import Summary

NAME = "budgets.toml"
LEAST_DAYS, HISTORY_DAYS = 7, 28
_DRAWS, _LEVEL = 4_000, 0.9
"""The share of the draws in the interval: draws from few days are too narrow, and nine tenths of them hold four ends of five."""
_APART_FROM = 14
"""Days known from which on working days and weekends may be drawn apart."""
_LIKELY = 0.5
_FIX = 'write month = 500 for all of the store, and below [project] lines such as "shop" = 120'


class Budget(Struct, kw_only=True):
    """A month's budget and what comes of it."""

    project: str | None
    """None: all of the store."""
    budget: float
    month: str
    """As in 2026-11."""
    zone: str
    spent: float
    is_least: bool
    """Whether there is spend whose price is not known."""
    days: int
    """Days with spend that the forecast rests on."""
    forecast: float | None = None
    """The middle of the draws for the end of the month; None: cannot say."""
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    """The share of the draws that pass the budget."""

    @property
    def state(self) -> str:
        """`passed`, `likely` to be passed, `kept`, or `unknown`."""
        if self.spent > self.budget:
            return "passed"
        return "unknown" if self.chance is None else "likely" if self.chance >= _LIKELY else "kept"


def read_budgets(store: Path) -> dict[str | None, float]:
    """Dollars a month by project, None for all; empty where the store has no file of budgets."""
    path = store / NAME
    if not path.exists():
        return {}
    table = read_toml(path, fix=_FIX)
    if unknown := [key for key in table if key not in ("month", "project")]:
        raise InputError(f"{unknown[0]!r} is no setting of a budget", where=str(path), fix=_FIX)
    projects = table.get("project", {})
    if not isinstance(projects, dict):
        raise InputError("project is not a table", where=str(path), fix=_FIX)
    asked: dict[str | None, object] = {None: table["month"]} if "month" in table else {}
    asked.update(projects)
    return {name: _dollars(value, name, path) for name, value in asked.items()}


def _dollars(value: object, name: str | None, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        what = "month" if name is None else f"project {name!r}"
        raise InputError(f"{what} is {value!r}, not a number of dollars above 0", where=str(path), fix=_FIX)
    return float(value)


def budgets(rows: Iterable[Summary], asked: Mapping[str | None, float], *, now: float | None = None) -> list[Budget]:
    """Each budget with what is spent of it; those passed, or likely to be, first."""
    if not asked:
        return []
    at = datetime.fromtimestamp(time.time() if now is None else now)
    spend: dict[str | None, dict[str, float]] = {name: {} for name in asked}
    least = dict.fromkeys(asked, False)
    for row in rows:
        for name in {None, row.project or ""} & asked.keys():
            for day, part in row.by_day().items():
                if day is None:
                    continue
                least[name] |= day[:7] == f"{at:%Y-%m}" and bool(part.unpriced or part.uncounted)
                if part.cost_usd is not None:
                    spend[name][day] = spend[name].get(day, 0.0) + float(part.cost_usd)
    told = [_budget(name, dollars, spend[name], least[name], at) for name, dollars in asked.items()]
    order = ("passed", "likely", "unknown", "kept")
    return sorted(told, key=lambda b: (order.index(b.state), -(b.chance or 0.0), -b.spent / b.budget, b.project or ""))


def _budget(name: str | None, dollars: float, by_day: Mapping[str, float], is_least: bool, at: datetime) -> Budget:
    month, today = f"{at:%Y-%m}", at.date()
    spent = math.fsum(cost for day, cost in by_day.items() if day[:7] == month and day <= today.isoformat())
    known = _history(by_day, today)
    paid = sum(cost > 0 for _, cost in known)
    made = Budget(project=name, budget=dollars, month=month, zone=zone(), spent=spent, is_least=is_least, days=paid)
    if paid < LEAST_DAYS:
        return made
    ends = spent + left_of_month(known, at, np.random.default_rng(0))
    low, middle, high = np.quantile(ends, [(1 - _LEVEL) / 2, 0.5, (1 + _LEVEL) / 2])
    made.forecast, made.low, made.high = float(middle), float(low), float(high)
    made.chance = float(np.mean(ends > dollars))
    return made


def _history(by_day: Mapping[str, float], today: date) -> list[tuple[date, float]]:
    """The whole days before today, from the first that anything was spent on; at most `HISTORY_DAYS`."""
    days = [today - timedelta(days=back) for back in range(HISTORY_DAYS, 0, -1)]
    first = min((day for day, cost in by_day.items() if cost > 0), default="9999")
    return [(day, by_day.get(day.isoformat(), 0.0)) for day in days if day.isoformat() >= first]


def left_of_month(known: Sequence[tuple[date, float]], at: datetime, draw: np.random.Generator) -> NDArray[np.float64]:
    """Draws of what the rest of the month costs; of today, the part that is left."""
    last = calendar.monthrange(at.year, at.month)[1]
    of_today = 1.0 - (at.hour * 3600 + at.minute * 60 + at.second) / 86400
    left = [(at.date(), of_today), *((at.date() + timedelta(days=k), 1.0) for k in range(1, last - at.day + 1))]
    kinds = {False, True} if differ_by_weekend(known) else {None}
    total = np.zeros(_DRAWS)
    for kind in kinds:
        costs = np.array([cost for day, cost in known if kind in (None, _is_weekend(day))])
        shares = np.array([share for day, share in left if kind in (None, _is_weekend(day))])
        if not len(shares):
            continue
        drawn = costs[draw.integers(len(costs), size=(_DRAWS, len(costs)))]
        days = draw.integers(len(costs), size=(_DRAWS, len(shares)))
        total += (np.take_along_axis(drawn, days, axis=1) * shares).sum(axis=1)
    return total


def differ_by_weekend(known: Sequence[tuple[date, float]]) -> bool:
    """Whether the mean of its own kind, working day or weekend, foretells a day better than the mean of all other days."""
    costs = np.array([cost for _, cost in known])
    is_weekend = np.array([_is_weekend(day) for day, _ in known])
    if len(costs) < _APART_FROM or min(is_weekend.sum(), (~is_weekend).sum()) < 3:
        return False
    own = np.empty(len(costs))
    for kind in (is_weekend, ~is_weekend):
        own[kind] = (costs[kind].sum() - costs[kind]) / (kind.sum() - 1)
    every = (costs.sum() - costs) / (len(costs) - 1)
    return float(np.square(costs - own).sum()) < float(np.square(costs - every).sum())


def _is_weekend(day: date) -> bool:
    return day.weekday() >= 5
