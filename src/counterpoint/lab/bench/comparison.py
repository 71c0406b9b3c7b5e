"""Is one way of training better than another? Paired differences over training seeds and tasks, with honest intervals.

Always true: pure functions of arrays and a seed; the same call gives the same bytes; a difference with its sides swapped has
the opposite sign and the same p.

A side is a matrix y[s, t]: training seed s, held-out task t. Every seed plays the same tasks, so seeds and tasks are
*crossed*, and a draw of the bootstrap resamples rows and columns at once (the pigeonhole bootstrap; Owen 2007, Annals of
Applied Statistics 1, 386-411): resampling tasks anew inside each seed would treat one hard task as many. Two sides that share
training seeds and tasks are subtracted first, y[s, t] = a[s, t] - b[s, t], so that what they share cancels.

With few seeds the percentiles of such draws are too narrow: for 2, 3, 5, 10 seeds that carry all the variance, 95 % intervals
held the truth in 55, 76, 82, 90 % of 400 simulations. So the draws give the standard error, and the interval is Student's:

    se^2 = var(draws) + sum_i var(rows_i) / (n_i - 1)       the resampled mean of n rows has (n - 1)/n of the variance
    mean +- t(0.975, df) se,   p = 2 (1 - F_t(|mean| / se; df))
    df   = se^4 / (sum_i v_i^2 / (n_i - 1) + v_tasks^2 / (T - 1))          (Welch-Satterthwaite)

which held it in 95, 94, 94, 94 % of 1,000 (97 % where noise within a run is most of the variance). Several
tests of one call are adjusted by Holm (1979).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from counterpoint.errors import InputError, Refused, did_you_mean
from counterpoint.lab.train.folder import TOTALS, RunFolder
from counterpoint.store import Store
from counterpoint.trace.statistics import student_quantile, student_two_sided
from counterpoint.trace.steering import STEERED

DRAWS = 10_000
_CHUNK = 1_000
# Two floating-point means of the same episodes are the same task result.
_SAME = 1e-9


@dataclass(frozen=True)
class Side:
    """One method: what each of its runs got on each task."""

    label: str
    seeds: tuple[int, ...]
    """The training seed of each row."""
    values_ST: np.ndarray

    def __post_init__(self) -> None:
        if self.values_ST.ndim != 2 or self.values_ST.shape[0] != len(self.seeds) or not self.values_ST.size:
            raise InputError(f"{self.values_ST.shape} values for {len(self.seeds)} seeds", where=self.label, fix="seeds x tasks")
        if len(set(self.seeds)) != len(self.seeds):
            twice = next(s for s in self.seeds if self.seeds.count(s) > 1)
            raise InputError(f"training seed {twice} comes twice", where=self.label, fix="name each run once, with its own seed")
        if not np.isfinite(self.values_ST).all():
            raise InputError("holds values that are not numbers", where=self.label, fix="leave those tasks out on every side")


@dataclass(frozen=True)
class Estimate:
    """A mean and how sure it is; None where there is nothing to be sure by."""

    mean: float
    low: float | None
    high: float | None
    p: float | None
    """Two-sided, for a true mean of zero."""
    df: float | None
    over_seeds: bool
    """Whether the interval covers training seeds as well as tasks."""


@dataclass(frozen=True)
class Difference:
    """One side less the one it is held against."""

    label: str
    against: str
    estimate: Estimate
    p_holm: float | None
    paired_seeds: tuple[int, ...]
    """The training seeds that both have and that were subtracted one by one; none when rows were resampled apart."""
    by_task_T: np.ndarray
    """The mean difference on each task."""
    left_out: tuple[int, ...] = ()
    """Training seeds of this side that have no partner and did not enter; none when rows were resampled apart."""
    left_out_against: tuple[int, ...] = ()
    """Those of the other side."""

    def counts(self) -> tuple[int, int, int]:
        """Tasks with more, with less, and with the same."""
        more, less = int((self.by_task_T > _SAME).sum()), int((self.by_task_T < -_SAME).sum())
        return more, less, len(self.by_task_T) - more - less

    def losses(self, most: int = 3) -> list[int]:
        """The places of the tasks that lose the most, the worst first; none that does not lose."""
        order = np.argsort(self.by_task_T, kind="stable")[:most]
        return [int(i) for i in order if self.by_task_T[i] < -_SAME]


@dataclass(frozen=True)
class Comparison:
    """All sides, and every other one against the baseline."""

    means: tuple[Estimate, ...]
    differences: tuple[Difference, ...]


def compare(sides: Sequence[Side], *, baseline: int = 0, seed: int = 0, draws: int = DRAWS) -> Comparison:
    """Each side's mean; each side less the baseline, in the order given; Holm over these differences."""
    if len({side.values_ST.shape[1] for side in sides}) != 1:
        raise InputError("the sides have different numbers of tasks", fix="compare them on the tasks that all have")
    means = tuple(estimate([(1, side.values_ST)], seed=seed, draws=draws) for side in sides)
    found = [difference(s, sides[baseline], seed=seed, draws=draws) for i, s in enumerate(sides) if i != baseline]
    adjusted = holm([one.estimate.p for one in found])
    return Comparison(means, tuple(replace(one, p_holm=p) for one, p in zip(found, adjusted, strict=True)))


def difference(side: Side, against: Side, *, seed: int = 0, draws: int = DRAWS) -> Difference:
    """`side - against`, on the training seeds that both have when those are most of each side, else with seeds apart."""
    shared = tuple(s for s in side.seeds if s in set(against.seeds))
    most = 2 * len(shared) > max(len(side.seeds), len(against.seeds))
    if most:
        a = side.values_ST[[side.seeds.index(s) for s in shared]]
        b = against.values_ST[[against.seeds.index(s) for s in shared]]
        parts, by_task = [(1, a - b)], (a - b).mean(0)
    else:
        parts = [(1, side.values_ST), (-1, against.values_ST)]
        by_task = side.values_ST.mean(0) - against.values_ST.mean(0)
    found = estimate(parts, seed=seed, draws=draws)
    alone = [tuple(s for s in one.seeds if most and s not in shared) for one in (side, against)]
    return Difference(side.label, against.label, found, found.p, shared if most else (), by_task, *alone)


def estimate(parts: Sequence[tuple[int, np.ndarray]], *, seed: int = 0, draws: int = DRAWS) -> Estimate:
    """The signed sum of the parts' means: rows of a part are resampled by themselves, columns (tasks) in all parts together."""
    mean = float(sum(sign * y.mean() for sign, y in parts))
    tasks = parts[0][1].shape[1]
    total, rows = _draws(parts, np.random.default_rng(seed), draws)
    sizes = [len(y) for _, y in parts]
    over_seeds = min(sizes) > 1
    if not over_seeds and tasks < 2:
        return Estimate(mean, None, None, None, None, False)
    spread = [float(r.var()) * n / (n - 1) if n > 1 else 0.0 for r, n in zip(rows, sizes, strict=True)]
    se2 = float(total.var()) + sum(v / n for v, n in zip(spread, sizes, strict=True))
    if se2 <= (1e-12 * max(1.0, abs(mean))) ** 2:  # nothing varies: not a measure of doubt, but there is none to be had
        return Estimate(mean, mean, mean, 1.0 if abs(mean) <= _SAME else 0.0, None, over_seeds)
    rest = max(se2 - sum(spread), 0.0)
    doubt = sum(v * v / (n - 1) for v, n in zip(spread, sizes, strict=True) if n > 1)
    doubt += rest * rest / (tasks - 1) if tasks > 1 else 0.0
    df, se = se2 * se2 / doubt, math.sqrt(se2)
    half = student_quantile(df) * se
    return Estimate(mean, mean - half, mean + half, student_two_sided(mean / se, df), df, over_seeds)


def _draws(parts: Sequence[tuple[int, np.ndarray]], rng: np.random.Generator, draws: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Resampled means of the whole; and of each part with its rows resampled only."""
    tasks = parts[0][1].shape[1]
    total, rows = np.zeros(draws), [np.zeros(draws) for _ in parts]
    # by content, so that two sides in the other order get the same draws
    order = sorted(range(len(parts)), key=lambda i: (len(parts[i][1]), parts[i][1].tobytes()))
    for begin in range(0, draws, _CHUNK):
        size = min(_CHUNK, draws - begin)
        at = slice(begin, begin + size)
        columns = _weights(tasks, size, rng)
        for i in order:
            sign, y = parts[i]
            weights = _weights(len(y), size, rng)
            total[at] += sign * ((weights @ y) * columns).sum(1)
            rows[i][at] = weights @ y.mean(1)
    return total, rows


def _weights(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """How often each of n is drawn, as shares, in `size` resamples of n."""
    drawn = rng.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n) / n


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment: the i-th smallest of m times m - i + 1, never below the one before; None is no test."""
    known = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    out: list[float | None] = [None] * len(ps)
    so_far = 0.0
    for rank, (p, i) in enumerate(known):
        so_far = max(so_far, min(1.0, p * (len(known) - rank)))
        out[i] = so_far
    return out


# -- May these runs be compared? From run folders to sides of a comparison, with every reason against it --------------
# Always true: a run counts with its last evaluation, never its best one (choosing by the held-out tasks would favour whoever
# looks most often); what differs between runs is said, not repaired. Budgets are what runs were charged (calls and rounds,
# forks included), and match within 5 %. A run that collapsed counts with its final value, and is said.

BUDGET = 0.05
# What people ask for -> the list in an evaluation.
_LISTS = {"value": "values", "calls": "calls_made"}


@dataclass
class Group:
    """The runs of one label: one method's training seeds."""

    label: str
    runs: list[RunFolder] = field(default_factory=list)

    @cached_property
    def finals(self) -> list[dict[str, Any]]:
        """The last evaluation of each run; a run without one cannot be compared at all."""
        found = [run.evals() for run in self.runs]
        for run, rows in zip(self.runs, found, strict=True):
            if not rows or not rows[-1]["values"]:
                fix = f"counterpoint train resume {run.path}"
                raise Refused("has no evaluation on held-out tasks yet", where=os.fspath(run.path), fix=fix)
        return [rows[-1] for rows in found]

    @property
    def seeds(self) -> list[int]:
        """The training seed of each run."""
        return [int(run.about["seed"]) for run in self.runs]

    @cached_property
    def spending(self) -> dict[str, float]:
        """What a run of this side cost: means of the totals."""
        found = [run.spending() for run in self.runs]
        return {name: math.fsum(one[name] for one in found) / len(found) for name in TOTALS}

    @property
    def collapsed(self) -> int:
        """How many runs ended with a team that calls nobody."""
        return sum(bool(run.about.get("collapsed")) for run in self.runs)

    @property
    def optimum(self) -> dict[str, Any]:
        """The optimum that the first run states; empty where it states none."""
        return self.runs[0].about.get("optimum") or {}

    def mean_of(self, metric: str) -> float | None:
        """The mean of a list over the last evaluations; None where one run lacks it."""
        lists = [final.get(_LISTS.get(metric, metric)) for final in self.finals]
        if any(not isinstance(one, list) for one in lists):
            return None
        numbers = [x for one in lists for x in one if x is not None]  # type: ignore[union-attr]
        return math.fsum(numbers) / len(numbers) if numbers else None


def _tasks(final: dict[str, Any]) -> range:
    return range(final["first_seed"], final["first_seed"] + len(final["values"]))


def budget_gap(groups: Sequence[Group], baseline: int = 0) -> float:
    """The largest share by which what a side's runs were charged differs from the baseline's."""
    base = groups[baseline].spending["charged"]
    gaps = [abs(group.spending["charged"] - base) for group in groups]
    return max(gap / base if base else math.inf if gap else 0.0 for gap in gaps)


def reasons(groups: Sequence[Group], baseline: int = 0) -> list[str]:
    """Why these runs are not comparable; empty when they are."""
    out = [reason for group in groups for run in group.runs for reason in _unfit(run)]
    first, final = groups[0].runs[0], groups[0].finals[0]
    for group in groups:
        for run, its_final in zip(group.runs, group.finals, strict=True):
            out += _differing(first, run)
            if _tasks(its_final) != _tasks(final):
                out.append(f"{run.path} was evaluated on {_words(_tasks(its_final))}, {first.path} on {_words(_tasks(final))}")
    base = groups[baseline]
    for group in groups:
        gap = budget_gap([base, group])
        if gap > BUDGET:
            its, theirs = (f"{g.spending['charged']:,.0f}" for g in (group, base))
            spent = f"{group.label} spent {its} calls and rounds a run, {base.label} {theirs}"
            out.append(f"{spent}: more than {BUDGET:.0%} apart (forks counted)")
    return out


def _words(tasks: range) -> str:
    return f"held-out seeds {tasks[0]} to {tasks[-1]}"


def _unfit(run: RunFolder) -> list[str]:
    """What is wrong with a run by itself."""
    about, out = run.about, []
    if about["status"] != "finished":
        why = f" ({about['why']})" if about.get("why") else ""
        out.append(f"{run.path} is {about['status']}, not finished{why}")
    if about.get(STEERED):
        out.append(f"{run.path} was steered by hand")
    elif count := _steered(run):
        out.append(f"{run.path} kept {count:,} {'trace that was' if count == 1 else 'traces that were'} steered by hand")
    return out


def is_steered(run: RunFolder) -> bool:
    """Whether somebody intervened in a run, or in one of the traces that it kept."""
    return bool(run.about.get(STEERED)) or _steered(run) > 0


def _steered(run: RunFolder) -> int:
    """How many of the traces that a run kept were steered."""
    if not run.store_path.is_dir() or not any(run.store_path.iterdir()):
        return 0
    with Store(run.store_path, create=False, read_only=True) as store:
        return sum(row.is_steered for row in store.rows())


def _differing(a: RunFolder, b: RunFolder) -> list[str]:
    """What two runs do not have in common and should."""
    out = []
    for key, words in (("world", "world"), ("world_version", "world version")):
        if a.about[key] != b.about[key]:
            out.append(f"{b.path} has {words} {b.about[key]}, {a.path} {a.about[key]}")
    one, other = a.about["world_config"], b.about["world_config"]
    names = [n for n in sorted({*one, *other}) if one.get(n) != other.get(n)]
    if names and a.about["world"] == b.about["world"]:
        shown = ", ".join(f"{n} {other.get(n)} against {one.get(n)}" for n in names[:3])
        out.append(f"{b.path} and {a.path} differ in {shown}" + (f" and {len(names) - 3} more" if len(names) > 3 else ""))
    return out


@dataclass(frozen=True)
class Sides:
    """What is compared: the sides, and the tasks that every run has a number for."""

    sides: list[Side]
    tasks: list[int]
    left_out: int
    """Tasks that some run has no number for, or was not evaluated on."""


def sides(groups: Sequence[Group], metric: str = "value") -> Sides:
    """The metric of every run on every task that all runs share."""
    finals = [final for group in groups for final in group.finals]
    rows = [_row(final, metric) for final in finals]
    every = set().union(*(set(_tasks(final)) for final in finals))
    tasks = sorted(t for t in every if all(math.isfinite(row.get(t, math.nan)) for row in rows))
    if not tasks:
        raise Refused("the runs have no held-out task in common with a number for it", fix="train them with the same eval seeds")
    place, out = iter(rows), []
    for group in groups:
        values = np.array([[row[t] for t in tasks] for row in (next(place) for _ in group.runs)], dtype=np.float64)
        out.append(Side(group.label, tuple(group.seeds), values))
    return Sides(out, tasks, len(every) - len(tasks))


def _row(final: dict[str, Any], metric: str) -> dict[int, float]:
    tasks = _tasks(final)
    name = _LISTS.get(metric, metric)
    known = [k for k, v in final.items() if isinstance(v, list) and len(v) == len(tasks) and _are_numbers(v)]
    if name not in known:
        words = {v: k for k, v in _LISTS.items()}
        fix = did_you_mean(metric, [words.get(k, k) for k in known])
        raise InputError(f"the evaluations have no {metric!r}", where="--metric", fix=fix)
    return {t: math.nan if x is None else float(x) for t, x in zip(tasks, final[name], strict=True)}


def _are_numbers(values: list[Any]) -> bool:
    return all(x is None or isinstance(x, (int, float)) for x in values)
