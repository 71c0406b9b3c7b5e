"""One run of a race, and all of them: trained, held to tasks along the way, and written row by row.

Always true: a row depends on its settings and the code alone, wherever and when it ran (but for seconds); a run that fails is a
row with its error; an interruption loses only what was under way. Points of the grid are chosen by tuning runs only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoint.errors import CounterpointError, Refused
from counterpoint.lab.bench.race.judging import best_points, chosen_point
from counterpoint.lab.bench.race.plan import CURVE, IDLE, PUBLISHED, Method, Race, RaceRun, grid
from counterpoint.lab.bench.race.rows import Claim, RaceFolder
from counterpoint.lab.train.runner import Job, Runner

if TYPE_CHECKING:
    from counterpoint.lab.train.training import Training

WORK = "counterpoint.lab.bench.race.running:work"
_LOOK_S = 1.0
"""How often to look whether another process has finished what this one waits for."""


def work(payload: Mapping[str, Any], _weights: Any = None) -> dict[str, Any]:
    """The result of one run; a run that fails says why."""
    cpu = time.process_time()
    try:
        found = _trained(payload)
    except Exception as error:  # a method that fails is a row; the race goes on
        line = error.one_line() if isinstance(error, CounterpointError) else f"{type(error).__name__}: {error}"
        status = "refused" if isinstance(error, Refused) else "failed"
        found = {"status": status, "error": " ".join(line.split())[:500]}
    return found | {"cpu_s": round(time.process_time() - cpu, 2), "ended": round(time.time())}


def _trained(payload: Mapping[str, Any]) -> dict[str, Any]:
    from counterpoint.lab.train.jobs import play
    from counterpoint.lab.train.settings import settings_of
    from counterpoint.lab.train.training import Training

    training = Training(settings_of(payload["settings"]))
    first, count = payload["tasks"]
    tasks, points = first + np.arange(count), list(CURVE)
    curve: list[list[float]] = []
    idle = 0
    while True:
        is_over = training.is_done or idle >= IDLE
        if is_over or training.progress >= points[0]:
            points = [share for share in points if training.progress < share]
            values, columns = _played(training, tasks)
            value, calls = float(values.mean()), float(columns["calls"].mean())
            if not all(np.isfinite(held).all() for held in (np.asarray(value), *training.weights().values())):
                raise CounterpointError(f"values or weights are not finite numbers after {training.update} updates")
            curve.append([training.totals["charged"], round(value, 6), round(calls, 3)])
        if is_over:
            break
        before = dict(training.totals)
        job = training.job(training.update, training.update, training.weights())
        training.learn([play(job.payload, job.weights)])
        made = {k: n - before[k] for k, n in training.totals.items()}
        idle = idle + 1 if made["calls"] < made["episodes"] else 0
    means = {name: round(float(columns[name].mean()), 4) for name in ("agents", "rounds", "calls", "quality")}
    return {
        "status": "done", "value": value, "curve": curve, "updates": training.update,
        "spent": dict(training.totals), "means": means, "collapsed": idle >= IDLE or _is_collapsed(curve),
    }  # fmt: skip


def _played(training: Training, tasks: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns, and further numbers, of the network as it plays now; task i is of variant i modulo their number."""
    from counterpoint.lab.train.policies.acting import TeamPolicy

    policy, variants = TeamPolicy(training.player()), len(training.worlds)
    runs = [world.run(policy, tasks[tasks % variants == v]) for v, world in enumerate(training.worlds)]
    return np.concatenate([r.values for r in runs]), {k: np.concatenate([r.columns[k] for r in runs]) for k in runs[0].columns}


def _is_collapsed(curve: Sequence[Sequence[float]]) -> bool:
    """Whether the team ended up calling nobody: under one call per held-out episode over the last tenth of the budget."""
    late = [calls for spent, _, calls in curve if spent >= 0.9 * curve[-1][0]]
    return sum(late) < len(late)


# -- all of them -------------------------------------------------------------------------------------------------------


@dataclass
class RaceProgress:
    """How far a race is."""

    total: int = 0
    """Runs that there are, as far as that is known: what tuning chooses may add published ones."""
    done: int = 0
    failed: int = 0
    budget_left: int = 0
    """Of the runs that are still to do."""
    budget_run: int = 0
    """Of the runs that ended in this process."""
    began: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float | None:
        """Seconds left at the pace of this process; None before its first row."""
        return (time.monotonic() - self.began) / self.budget_run * self.budget_left if self.budget_run else None


Tell = Callable[[str, Mapping[str, Any]], None]
"""Told ("start" | "row" | "wait" | "end", fields) as a race goes on."""


class RaceSession:
    """A race under way in one folder; other processes may work on the same one."""

    def __init__(self, race: Race, folder: RaceFolder, tell: Tell = lambda kind, row: None) -> None:
        self.race, self.folder, self._tell = race, folder, tell
        self.progress = RaceProgress()
        self._found: dict[str, dict[str, Any]] = {}
        """Rows by the name of their run, as far as they were looked for."""

    def go(self, runner: Runner | None = None, workers: int = 1) -> RaceProgress:
        """Until every row is there. `runner` computes so many rows at once; without one it is done here."""
        for method in self.race.methods:
            if method.preset is None:
                self._tell("row", {"method": method.name, "status": "failed", "error": method.problem})
        under_way: dict[int, tuple[RaceRun, Claim]] = {}
        self._count()
        self._tell("start", self._progress())
        try:
            while True:
                self._launch(under_way, runner, workers)
                if runner is not None and under_way:
                    for done in runner.collect():
                        self._take(*under_way.pop(done.number), done.result)
                elif not self.remaining():
                    break
                elif runner is not None or not self._one_here():
                    self._tell("wait", self._progress())
                    time.sleep(_LOOK_S)
        finally:
            for _, claim in under_way.values():
                claim.close()
        self._tell("end", self._progress())
        return self.progress

    def remaining(self) -> list[RaceRun]:
        """The runs that can be done now and are not, those first that make all methods comparable soonest."""
        order = {name: i for i, name in enumerate(("tune", "confirm", "final"))}
        places = {w.name: i for i, w in enumerate(self.race.worlds)}
        found = [run for method in self._able() for run in self._next(method)[0]]
        return sorted(found, key=lambda r: (order[r.phase], r.seed, places.get(r.world.name, 0)))

    def _able(self) -> list[Method]:
        return [method for method in self.race.methods if method.preset is not None]

    def _next(self, method: Method) -> tuple[list[RaceRun], list[RaceRun]]:
        """What can be done now of a method, and what comes after it, as far as that is known."""
        finals, tuning = self.race.final(method, PUBLISHED), self.race.tuning(method)
        if not tuning or method.preset is None:
            return self._missing(finals), []
        if left := self._missing(tuning):
            return left, [*self.race.confirming(method, grid(method.preset)[:2]), *finals]
        confirming = self.race.confirming(method, best_points(self._rows(tuning))[:2])
        if left := self._missing(confirming):
            return left, finals
        return self._missing(self.race.final(method, chosen_point(self._rows([*tuning, *confirming])))), []

    def _rows(self, runs: Sequence[RaceRun]) -> list[dict[str, Any]]:
        return [self._found[run.name] for run in runs]

    def _missing(self, runs: Sequence[RaceRun]) -> list[RaceRun]:
        out = []
        for run in runs:
            if run.name not in self._found:
                row = self.folder.row(run)
                if row is None:
                    out.append(run)
                else:
                    self._found[run.name] = row
        return out

    def _launch(self, under_way: dict[int, tuple[RaceRun, Claim]], runner: Runner | None, workers: int) -> None:
        if runner is None or len(under_way) >= workers:
            return
        taken = {run.name for run, _ in under_way.values()}
        for run, claim in self._claims(taken):
            under_way[runner.submit(Job(work=WORK, payload=run.payload()))] = (run, claim)
            if len(under_way) >= workers:
                return

    def _one_here(self) -> bool:
        for run, claim in self._claims(set()):
            try:
                self._take(run, claim, work(run.payload()))
            finally:
                claim.close()
            return True
        return False

    def _claims(self, taken: set[str]) -> Iterator[tuple[RaceRun, Claim]]:
        """Runs that nobody else is at, each claimed."""
        for run in self.remaining():
            claim = None if run.name in taken else self.folder.claim(run)
            if claim is not None:
                yield run, claim

    def _take(self, run: RaceRun, claim: Claim, result: Mapping[str, Any]) -> None:
        row = self.folder.keep(run, result)
        claim.close()
        self._found[run.name] = row
        self.progress.budget_run += run.budget if row["status"] == "done" else 0
        self._count()
        self._tell("row", {**row, **self._progress()})

    def _count(self) -> None:
        """How many runs there are, how many are done."""
        s = self.progress
        left = [run for method in self._able() for some in self._next(method) for run in some]
        s.budget_left = sum(run.budget for run in left)
        s.done, s.failed = len(self._found), sum(row["status"] == "failed" for row in self._found.values())
        s.total = s.done + len(left)

    def _progress(self) -> dict[str, Any]:
        s = self.progress
        left = s.left_s
        return {
            "rows_done": s.done,
            "rows_total": s.total,
            "rows_failed": s.failed,
            "left_s": None if left is None else round(left),
        }
