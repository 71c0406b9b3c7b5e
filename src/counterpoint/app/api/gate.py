"""`cpt.gate`: limits for a set of runs, and a comparison with another set: for a build that must not make a team worse.

Always true: what was not measured breaks the limit that needs it, and says so; nothing is stored. Against a base, figures are
tested one-sided (score lower, cost higher, failures higher, and each lacking in more runs): tasks are the units (their runs are
averaged first; of one task alone the runs), shared tasks are compared task by task by signs at random, else the two sets by
permutation, and Holm's rule holds over them all (`trace.statistics`). An issue that the base does not have is new where chance
would hardly have put all its runs on one side: k runs of n + m all among the n with probability C(n, k) / C(n + m, k), at
Tarone's (1990) bound over all issues. Both tests are exact where the two sets are drawn alike; figures and issues have half of
the 5 % each where both are asked for.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Struct

from counterpoint.app.api.annotate import opened
from counterpoint.app.api.inputs import found_ids
from counterpoint.app.api.issues import Board, Issue, issues
from counterpoint.app.load_save import names_file, read
from counterpoint.app.search import matcher
from counterpoint.audits.symptoms import symptoms
from counterpoint.display import counted, money, number
from counterpoint.errors import InputError, NotFound
from counterpoint.store.place import is_store
from counterpoint.store.summary import Summary
from counterpoint.trace.statistics import difference_ends, flip_p, holm, mean_ends, shuffle_p
from counterpoint.trace.tabular import Tabular

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import StorePlace
    from counterpoint.store import Store

LEVEL = 0.05
"""The chance of an alarm over runs that are as the base, over all figures together."""
_UNKNOWN = {"", "unnamed"}
_SHOWN = 5


class Check(Struct, frozen=True, kw_only=True):
    """One thing that the gate asks."""

    name: str
    """`cost`, `failures`, `score`, `new issues`; against a base `score against`, ..."""
    ok: bool | None
    """None: it was not measured, which does not pass."""
    words: str
    value: float | None = None
    limit: float | None = None
    diff: float | None = None
    low: float | None = None
    high: float | None = None
    """The ends of the 95 % interval of the difference from the base, or of the value's mean."""
    p: float | None = None
    """How often runs as those of the base would look at least this much worse."""
    runs: tuple[str, ...] = ()
    """Where to look: the runs that weigh most."""

    @property
    def passed(self) -> bool:
        """Whether it was measured, and holds."""
        return self.ok is True


@dataclass(frozen=True)
class Gate(Tabular):
    """What a gate found."""

    TABLE: ClassVar = {
        "name": "string", "ok": "bool", "words": "string", "value": "double", "limit": "double", "diff": "double",
        "low": "double", "high": "double", "p": "double",
    }  # fmt: skip

    checks: tuple[Check, ...]
    query: str
    runs: int
    base: str | None = None
    base_runs: int = 0

    @property
    def passed(self) -> bool:
        """Whether every check holds."""
        return all(check.passed for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """What `counterpoint gate --json` prints."""
        about = {"query": self.query, "runs": self.runs, "against": self.base, "base_runs": self.base_runs}
        return {"passed": self.passed, **about, "checks": msgspec.to_builtins(self.checks)}

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per check."""
        for c in self.checks:
            yield c.name, c.ok, c.words, c.value, c.limit, c.diff, c.low, c.high, c.p

    def caption(self) -> str:
        """The verdict."""
        broken = [check.name for check in self.checks if not check.passed]
        against = f" against {counted(self.base_runs, 'run')} of {self.base}" if self.base is not None else ""
        return f"{'passed' if not broken else 'broken: ' + ', '.join(broken)}; {counted(self.runs, 'run')}{against}"


def gate(
    query: str = "",
    *,
    against: str | None = None,
    max_cost: float | None = None,
    max_failures: float | None = None,
    min_score: float | None = None,
    no_new_issues: bool = False,
    store: StorePlace = None,
) -> Gate:
    """Hold the runs that a query finds to limits, and to those of `against`: a query, another store's folder, or a file.

    `max_cost` is dollars and `max_failures` failed calls of all the runs together, `min_score` the least mean team reward;
    `no_new_issues` allows no issue that the base does not have, and no regression.
    """
    if max_cost is None and max_failures is None and min_score is None and not no_new_issues and against is None:
        raise InputError("a gate needs something to hold the runs to", fix="--min-score 0.8, --max-cost 5, or --against QUERY")
    if no_new_issues and against is None:
        raise InputError("which issues are new is told by a base", fix="--against QUERY, or a store's folder")
    for name, limit in (("--max-cost", max_cost), ("--max-failures", max_failures), ("--min-score", min_score)):
        if limit is not None and not math.isfinite(limit):
            raise InputError(f"{name} {limit} is no limit", fix="give a finite number")
    with opened(store) as place:
        matches = matcher(query, place.datasets())
        rows = [row for row in place.rows() if matches(row)]
        if not rows:
            raise NotFound(f"no run matches {query!r}" if query else "there are no runs", where=os.fspath(place.path),
                           fix="a gate over nothing would pass whatever came: run the team first")  # fmt: skip
        board = issues(query, store=place) if no_new_issues else None
        base = None if against is None else _base(against, place, wants_issues=no_new_issues)
    checks = [*limit_checks(rows, max_cost, max_failures, min_score)]
    if base is not None:
        same = {row.id for row in rows} & {row.id for row in base.rows}
        if same:
            raise InputError(f"{counted(len(same), 'run')} on both sides", where=against, fix="a base of other runs")
        level = LEVEL if board is None else LEVEL / 2
        checks += base_checks(rows, base.rows, level)
        if board is not None:
            checks.append(_new_issues(board, base, level))
    return Gate(tuple(checks), query or "all runs", len(rows), against, 0 if base is None else len(base.rows))


class _Base(NamedTuple):
    """What the runs are held against: its runs, and in how many of them each issue is."""

    rows: Sequence[Summary]
    issues: Mapping[str, int]


def _base(against: str, place: Store, *, wants_issues: bool) -> _Base:
    if is_store(Path(against)):
        with opened(against) as other:
            return _Base(other.rows(), _counts(issues(store=other)) if wants_issues else {})
    if names_file(against, place):
        traces = list(read(against))
        found = Counter(key for trace in traces for key in {one.key for one in symptoms(trace)}) if wants_issues else {}
        return _Base([Summary.of_trace(trace) for trace in traces], found)
    ids = set(found_ids(place, against))
    return _Base([row for row in place.rows() if row.id in ids], _counts(issues(against, store=place)) if wants_issues else {})


def _counts(board: Board) -> dict[str, int]:
    return {one.id: one.runs for one in board}


# -- limits ------------------------------------------------------------------------------------------------------------


def limit_checks(
    rows: Sequence[Summary], max_cost: float | None, max_failures: float | None, min_score: float | None
) -> Iterator[Check]:
    """One check for each limit that is given."""
    if max_cost is not None:
        yield _cost(rows, max_cost)
    if max_failures is not None:
        count = sum(row.errors for row in rows)
        worst = sorted((row for row in rows if row.errors), key=lambda row: (-row.errors, row.id))
        words = f"{counted(count, 'failed call')}, at most {number(max_failures)}"
        yield Check(name="failures", ok=count <= max_failures, words=words, value=count, limit=max_failures, runs=_ids(worst))
    if min_score is not None:
        yield _score(rows, min_score)


def _cost(rows: Sequence[Summary], limit: float) -> Check:
    """Unpriced and uncounted tokens can only add: a sum over the limit is broken, one below it may not be the whole."""
    costs = [float(row.cost_usd) for row in rows if row.cost_usd is not None]
    total = math.fsum(costs)
    partial = [row for row in rows if row.cost_usd is None or row.unpriced or row.uncounted]
    worst = sorted(rows, key=lambda row: (-float(row.cost_usd or 0.0), row.id))
    words = f"{money(total)}{'+' if partial else ''}, at most {money(limit)}"
    ok: bool | None = total <= limit
    if ok and partial:
        silent = sum(row.cost_usd is None and not row.tokens for row in partial)
        priced = len(partial) - silent
        words += f"; {counted(priced, 'run')} with tokens that no price or count covers (--prices FILE)" if priced else ""
        words += f"; {counted(silent, 'run')} in which no model call is recorded" if silent else ""
        ok = None
        worst = partial
    return Check(name="cost", ok=ok, words=words, value=total, limit=limit, runs=_ids(worst))


def _score(rows: Sequence[Summary], limit: float) -> Check:
    units = _units(_by_task(rows, "team_reward"))
    missing = [row for row in rows if row.team_reward is None]
    if not units:
        words = "no run has a team reward: counterpoint notes score, or cpt.record(...).reward"
        return Check(name="score", ok=None, words=words, limit=limit, runs=_ids(missing))
    mean, (low, high) = fmean(units), mean_ends(units)
    words = f"mean team reward {number(mean, 3)}, at least {number(limit)}"
    ok: bool | None = mean >= limit
    if missing:
        ok, words = (None if ok else False), words + f"; {counted(len(missing), 'run')} without one"
    lowest = sorted((row for row in rows if row.team_reward is not None), key=lambda row: (float(row.team_reward or 0.0), row.id))
    return Check(name="score", ok=ok, words=words, value=mean, limit=limit, low=low, high=high, runs=_ids(missing or lowest))


def _ids(rows: Sequence[Summary]) -> tuple[str, ...]:
    return tuple(row.id for row in rows[:_SHOWN])


# -- against a base ----------------------------------------------------------------------------------------------------

_FIGURES = (("score", "team_reward", -1.0), ("cost", "cost_usd", 1.0), ("failures", "errors", 1.0))
"""What is compared, where a line has it, and which way is worse."""


class _Figure(NamedTuple):
    check: Check
    least: float
    """The smallest p that so few runs could have."""
    lack_p: float | None
    """How often runs as those of the base would lack the figure at least this much more."""


def base_checks(rows: Sequence[Summary], base: Sequence[Summary], level: float) -> list[Check]:
    """One check for each figure that either side has: broken where it is worse, not measured where more of it is lacking."""
    made = [figure for name, field, sign in _FIGURES if (figure := _figure(name, field, sign, rows, base)) is not None]
    tests = [(k, False, one.check.p) for k, one in enumerate(made) if one.check.p is not None]
    tests += [(k, True, one.lack_p) for k, one in enumerate(made) if one.lack_p is not None]
    found = {test[:2] for test, worse in zip(tests, holm([p for *_, p in tests], level), strict=True) if worse}
    out = []
    for k, (check, least, _) in enumerate(made):
        if (k, False) in found:
            check = msgspec.structs.replace(check, ok=False)
        elif (k, True) in found:
            check = msgspec.structs.replace(check, ok=None, words=f"{check.words}, more than in the base")
        elif check.p is not None and least > level / len(tests):
            check = msgspec.structs.replace(check, words=f"{check.words}; too few to find a difference, however large")
        out.append(check)
    return out


def _figure(name: str, field: str, sign: float, rows: Sequence[Summary], base: Sequence[Summary]) -> _Figure | None:
    values, others = _by_task(rows, field), _by_task(base, field)
    if not values and not others:
        return None
    if not values or not others:
        where = "these runs" if not values else "the base"
        return _Figure(Check(name=f"{name} against", ok=None, words=f"no {name} is known of {where}"), 1.0, None)
    apart = _apart(values, others, sign)
    low, high = apart.ends
    show = money if name == "cost" else lambda one: number(one, 3)
    between = "" if low is None or high is None else f" [{show(low)}, {show(high)}]"
    diff = f"{'+' if apart.diff >= 0 else ''}{show(apart.diff)}"
    words = f"{name} {diff}{between} a run, {apart.units}; p = {number(apart.p, 2)} of being worse"
    lacks = sum(_lacks(row, field) for row in rows), sum(_lacks(row, field) for row in base)
    if any(lacks):
        words += f"; not all known of {counted(lacks[0], 'run')} here and {lacks[1]:,} of the base"
    check = Check(
        name=f"{name} against", ok=True, words=words, value=fmean(_units(values)), diff=apart.diff, low=low, high=high, p=apart.p
    )
    return _Figure(check, apart.least, _lack_p(rows, base, field) if lacks[0] else None)


class _Apart(NamedTuple):
    """How far two sets are apart, by what is independent in them."""

    diff: float
    ends: tuple[float | None, float | None]
    p: float
    least: float
    units: str


def _apart(values: Mapping[str, list[float]], others: Mapping[str, list[float]], sign: float) -> _Apart:
    common = sorted(values.keys() & others.keys())
    if len(common) > 1:
        by_task = [fmean(values[task]) - fmean(others[task]) for task in common]
        left = len(values.keys() | others.keys()) - len(common)
        units = counted(len(common), "shared task") + (f" ({left:,} of one side alone left out)" if left else "")
        return _Apart(fmean(by_task), mean_ends(by_task), flip_p([sign * one for one in by_task]), 0.5 ** len(common), units)
    mine, theirs = _units(values), _units(others)
    p = shuffle_p([sign * one for one in mine], [sign * one for one in theirs])
    units = f"{len(mine):,} against {len(theirs):,} {'runs' if common else 'tasks, none shared'}"
    least = 1 / math.comb(len(mine) + len(theirs), len(mine))
    return _Apart(fmean(mine) - fmean(theirs), difference_ends(mine, theirs), p, least, units)


def _lacks(row: Summary, field: str) -> bool:
    return getattr(row, field) is None or (field == "cost_usd" and bool(row.unpriced or row.uncounted))


def _lack_p(rows: Sequence[Summary], base: Sequence[Summary], field: str) -> float:
    """How often runs as those of the base would lack a figure at least this much more: a team that crashes has no score."""
    here, there = (_tasks([(row, float(_lacks(row, field))) for row in side]) for side in (rows, base))
    return _apart(here, there, 1.0).p


def _by_task(rows: Sequence[Summary], field: str) -> dict[str, list[float]]:
    """What the runs of each task have, where they have it."""
    return _tasks([(row, float(value)) for row in rows if (value := getattr(row, field)) is not None])


def _tasks(pairs: Sequence[tuple[Summary, float]]) -> dict[str, list[float]]:
    """By task; a run whose task is not known is a task of its own."""
    out: dict[str, list[float]] = defaultdict(list)
    for row, value in pairs:
        out[f"run {row.id}" if row.task_id in _UNKNOWN else f"task {row.task_id}"].append(value)
    return out


def _units(values: Mapping[str, list[float]]) -> list[float]:
    """What is independent: the mean of each task, or the runs of the only one."""
    return next(iter(values.values())) if len(values) == 1 else [fmean(of_task) for of_task in values.values()]


def _new_issues(board: Board, base: _Base, level: float) -> Check:
    """Issues that the base does not have beyond chance, and those that came back after somebody resolved them."""
    n, m = board.runs, len(base.rows)
    open_ = [one for one in board if one.open and one.state != "ignored"]
    totals = [one.runs + base.issues.get(one.id, 0) for one in board]
    totals += [runs for key, runs in base.issues.items() if all(one.id != key for one in board)]
    bound = _tarone([_all_here(n, m, k) for k in totals], level)
    absent = [one for one in open_ if one.id not in base.issues and one.state != "regressed"]
    new = [one for one in open_ if one.state == "regressed"] + [o for o in absent if _all_here(n, m, o.runs) <= bound]
    maybe = [one for one in absent if one not in new]
    words = f"{counted(len(new), 'new issue')}" + "".join(f"; {_said(one)}" for one in new[:_SHOWN])
    chance = ", ".join(_said(one) for one in maybe[:_SHOWN])
    words += f"; {len(maybe):,} more are not in the base and may be chance: {chance}" if maybe else ""
    words += f"; {counted(len(board.unread), 'run')} could not be read" if board.unread else ""
    runs = tuple(dict.fromkeys(e.trace_id for one in new for e in one.examples))[:_SHOWN]
    ok = None if board.unread and not new else not new
    return Check(name="new issues", ok=ok, words=words, value=len(new), limit=0, runs=runs)


def _said(issue: Issue) -> str:
    came = ", came back" if issue.state == "regressed" else ""
    return f"{issue.id} {issue.name} ({counted(issue.runs, 'run')}{came})"


def _all_here(n: int, m: int, k: int) -> float:
    """How often all k runs with an issue are among the n of n + m, if it has nothing to do with the side."""
    return math.comb(n, k) / math.comb(n + m, k) if k <= n else 1.0


def _tarone(least: Sequence[float], level: float) -> float:
    """Bonferroni's bound over those tests alone that could reach it (Tarone 1990): `least` is each one's smallest p."""
    for count in range(1, len(least) + 2):
        if sum(p <= level / count for p in least) <= count:
            return level / count
    return level / max(len(least), 1)
