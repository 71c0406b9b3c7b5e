"""May these runs be compared? From run folders to sides of a comparison, with every reason against it.

Always true: a run counts with its last evaluation, never its best one (choosing by the held-out tasks would favour whoever
looks most often); what differs between runs is said, not repaired. Budgets are calls per run, forks included, and match within
5 %.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from counterpoint.bench.comparison import Side
from counterpoint.errors import InputError, Refused, did_you_mean
from counterpoint.store import Store
from counterpoint.trace.steered import STEERED
from counterpoint.train.folder import TOTALS, RunFolder

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
                fix = f"counterpoint train --resume {run.path}"
                raise Refused("has no evaluation on held-out tasks yet", where=os.fspath(run.path), fix=fix)
        return [rows[-1] for rows in found]

    @property
    def seeds(self) -> list[int]:
        """The training seed of each run."""
        return [int(run.about["seed"]) for run in self.runs]

    @cached_property
    def spent(self) -> dict[str, float]:
        """What a run of this side cost: means of the totals."""
        found = [run.spent() for run in self.runs]
        return {name: math.fsum(one[name] for one in found) / len(found) for name in TOTALS}

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
    """The largest share by which a side's calls per run differ from the baseline's."""
    base = groups[baseline].spent["calls"]
    gaps = [abs(group.spent["calls"] - base) for group in groups]
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
            spent = f"{group.label} spent {group.spent['calls']:,.0f} calls a run, {base.label} {base.spent['calls']:,.0f}"
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
