"""What a claim about language models varies: the model that learning starts from, the runs of each start, the held-out tasks.

Always true: run k of a claim begins with start k mod 3 and has the seed of its number, whatever the number of runs. So the first
runs of a claim are the same however many it has, and a claim that was cut off is read with fewer `--seeds`. Held-out tasks are
drawn by the claim's seed, and are the same for all that is compared.

A row's interval is the crossed bootstrap of `compare` over starts and tasks. The runs of a start are a cluster: its mean is one
number for each task, whose spread from start to start holds that of the runs (resampling runs as well would count it twice;
Davison and Hinkley 1997, section 3.8). What has no starts (a demonstrator) varies over tasks alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.display import counted
from counterpoint.lab.bench.claim import ClaimRow, Measured, reported
from counterpoint.lab.bench.claims._language import go_on, last_eval, side_by_side, usual
from counterpoint.lab.bench.comparison import estimate
from counterpoint.lab.train.folder import RunFolder

STARTS, RUNS = 3, 4
"""What a claim asks for: models to start from, and runs of each."""
_TASKS_APART, _SEEDS_APART = 1_000, 1_000


def first_held_out(seed: int) -> int:
    """The first held-out task of a claim's seed: seeds that differ by no multiple of 1,000 share none."""
    return seed % _SEEDS_APART * _TASKS_APART


@dataclass(frozen=True)
class Starts:
    """The starts and runs of one claim."""

    folder: Path
    seed: int
    count: int
    """Runs."""

    @property
    def first(self) -> int:
        """The first held-out task."""
        return first_held_out(self.seed)

    @property
    def starts(self) -> list[Path]:
        """The models that runs start from."""
        return [self.folder / f"start-{self.seed}-{s}" for s in range(min(STARTS, self.count))]

    def runs(self, name: str) -> list[Path]:
        """The runs of one way to learn."""
        return [self.folder / f"{name}-{self.seed}-{k % STARTS}-{k // STARTS}" for k in range(self.count)]

    def begin(self, settings: Mapping[str, Any], *, at_once: int) -> list[Path]:
        """Imitate, each start its own demonstrations."""
        told = {**settings, "learn": {"updates": 0}, "eval_first": self.first}
        given = [(start, usual(self.seed + s, at_once, **told)) for s, start in enumerate(self.starts)]
        side_by_side(go_on, given, at_once=at_once)
        return self.starts

    def orders(self, name: str, settings: Mapping[str, Any], *, at_once: int) -> list[tuple[Path, dict[str, Any]]]:
        """The runs of one way to learn and their settings, each from its start."""
        told = {"imitate": {"steps": 0}, **settings, "eval_first": self.first}
        own = [(run, str(self.starts[k % STARTS])) for k, run in enumerate(self.runs(name))]
        return [(run, usual(self.seed + k, at_once, model=start, **told)) for k, (run, start) in enumerate(own)]

    # -- rows

    def of_runs(self, y: ArrayLike) -> Measured:
        """One row of numbers, or one number, for each run: the mean and its interval."""
        values = _rows(y)
        many = [len(values[s::STARTS]) for s in range(min(STARTS, len(values)))]
        runs = f"{min(many)} to {max(many)} runs" if min(many) < max(many) else counted(many[0], "run")
        over = f"{counted(len(many), 'start')} by {runs}"
        few = f" (it asks for {STARTS} by {RUNS})" if len(values) < STARTS * RUNS else ""
        return _measured(by_start(values), over, few)

    def of_starts(self, y: ArrayLike) -> Measured:
        """The same of what there is once for each start."""
        few = f" (it asks for {STARTS})" if len(_rows(y)) < STARTS else ""
        return of_rows(y, "start", few)

    def solved_rows(self, name: str, runs: Sequence[Path], of: str = "runs") -> Iterator[ClaimRow]:
        """Solved shares of some runs, or of the starts, sampled and greedy."""
        measured = self.of_runs if of == "runs" else self.of_starts
        yield reported(f"{name}, solved, sampled", measured(per_task(runs, "successes")))
        yield reported(f"{name}, solved, greedy", measured(per_task(runs, "greedy_successes")))


def of_rows(y: ArrayLike, one: str, few: str = "") -> Measured:
    """The mean and its interval where every row is drawn by itself, with what `one` of them is called."""
    values = _rows(y)
    return _measured(values, counted(len(values), one), few)


def of_tasks(y: ArrayLike) -> Measured:
    """The mean of one number for each task, with its interval over tasks alone."""
    return _measured(np.asarray(y, np.float64)[None], "", "")


def by_start(y: ArrayLike) -> NDArray[np.float64]:
    """From what each run got, the means of each start's runs: [starts, tasks]."""
    values = _rows(y)
    return np.stack([values[s::STARTS].mean(0) for s in range(min(STARTS, len(values)))])


def per_task(runs: Sequence[Path], key: str) -> NDArray[np.float64]:
    """What each run got on each held-out task in its last evaluation: [runs, tasks]."""
    return np.array([last_eval(run)[key] for run in runs], np.float64)


def per_run(runs: Sequence[Path], key: str, *, after: int = 0) -> NDArray[np.float64]:
    """The mean of a metric over each run's updates of reinforcement but the first `after`; where an update has none, it is 0."""
    rows = [[row.get(key, 0.0) for row in RunFolder.open(run).metrics() if row.get("phase") == "learn"] for run in runs]
    return np.array([np.mean(one[after:]) for one in rows])


def _rows(y: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(y, np.float64)
    return values if values.ndim == 2 else values[:, None]


def _measured(values: NDArray[np.float64], over: str, few: str) -> Measured:
    tasks = counted(values.shape[1], "task") if values.shape[1] > 1 else ""
    found = estimate([(1, values)])
    return Measured(found.mean, found.low, found.high, "over " + ", ".join(x for x in (over, tasks) if x) + few)
