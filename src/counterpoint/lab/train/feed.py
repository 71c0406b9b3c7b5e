"""What a training loop learns from next: by launch order, or by who comes in time.

Always true: no rollout is consumed that is more than `staleness` versions old, and none twice.

`Ordered` consumes in the order of launch, in a window of (staleness + 1) batches: which job has which version, and which batch
it is in, follow from counting alone. So the same seed gives the same bytes, however long anything took; nobody is left out, so
there is nothing to correct. A straggler delays its own batch only when the window is used up.

`Deadline` consumes whoever has come, waits for nobody beyond a batch, and drops and counts what is too old. That is faster and
biased: slow arms are missing. Weights 1 / P(in time | arm, cell), fitted on launch versions whose fate is fully known, undo
it; an arm that never comes is refused. Timing decides the batches, so a run is not repeatable.

The loop: `feed.fill(make)`, `taken = feed.take(version)`, learn, version + 1. docs/lab/research/staleness.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.train.runner import Done, Job, Runner
from counterpoint.lab.train.staleness import Inclusion

Make = Callable[[int], Job]


@dataclass(frozen=True)
class RolloutBatch:
    """One batch to learn from."""

    version: int
    """Of the weights that are about to be updated."""
    done: tuple[Done, ...]
    """In the order of launch."""
    jobs: tuple[Job, ...]
    """What was launched, beside each."""
    weight_N: np.ndarray
    """Inclusion weights, at least 1; all 1 where nobody is left out."""
    dropped: int = 0
    """Launches found too old since the last batch."""

    @property
    def staleness_N(self) -> np.ndarray:
        """Versions between sampling and learning."""
        return self.version - np.array([d.version for d in self.done], np.int64)


class _Feed:
    """What both share: launching in a bounded window, from job numbers of one runner that nobody else uses."""

    def __init__(self, runner: Runner, *, batch: int, staleness: int, window: int | None = None) -> None:
        if batch < 1 or staleness < 0:
            raise InputError(
                f"a batch of {batch} and a staleness of {staleness}", fix="a batch of 1 or more, a staleness of 0 or more"
            )
        self.runner, self.batch, self.staleness = runner, batch, staleness
        self.window = (staleness + 1) * batch if window is None else window
        if self.window < batch:
            raise InputError(f"a window of {self.window} cannot hold a batch of {batch}")
        self.launched = 0
        self.first: int | None = None
        """The runner's number of the first launch."""
        self._jobs: dict[int, Job] = {}
        """Launched, not yet consumed or dropped."""

    @property
    def room(self) -> int:
        """How many jobs may be launched now."""
        return self.window - len(self._jobs)

    def launch(self, job: Job) -> None:
        """Launch one job."""
        if self.room < 1:
            raise InputError(f"{self.window} rollouts were launched and none of them was taken", fix="take a batch first")
        number = self.runner.submit(job)
        self.first = number if self.first is None else self.first
        self._jobs[number] = job
        self.launched += 1

    def fill(self, make: Make) -> None:
        """Launch `make(i)` into all the room there is; i counts launches from 0."""
        for _ in range(self.room):
            self.launch(make(self.launched))


class Ordered(_Feed):
    """Consumption in the order of launch."""

    def __init__(self, runner: Runner, *, batch: int, staleness: int = 1, start: int = 0) -> None:
        """`start` launches were consumed before (a run that resumes): counting goes on from there."""
        super().__init__(runner, batch=batch, staleness=staleness)
        self.launched = start
        self._ended: dict[int, Done] = {}

    def version_of(self, i: int) -> int:
        """The version that launch i has, whenever it is made; a run that resumes needs the weights of the last ones."""
        return max(0, i // self.batch - self.staleness)

    def take(self, version: int) -> RolloutBatch:
        """The oldest `batch` launches (fewer only where fewer are left), waiting for each."""
        numbers = list(self._jobs)[: self.batch]
        if not numbers:
            raise InputError("nothing was launched", fix="fill before take")
        while not all(n in self._ended for n in numbers):
            self._ended.update({d.number: d for d in self.runner.collect()})
        done = tuple(self._ended.pop(n) for n in numbers)
        jobs = tuple(self._jobs.pop(n) for n in numbers)
        oldest = min(j.version for j in jobs)
        if version - oldest > self.staleness:
            fix = "fill all the room with the present version before every take, and count versions by one"
            raise InputError(f"a rollout of version {oldest} at version {version}, staleness limit {self.staleness}", fix=fix)
        return RolloutBatch(version, done, jobs, np.ones(len(done)))


class Deadline(_Feed):
    """Consumption by arrival, with a limit on age and weights for who is left out."""

    def __init__(
        self,
        runner: Runner,
        *,
        batch: int,
        staleness: int = 1,
        window: int | None = None,
        clip: float = 10.0,
        prior: float = 1.0,
    ) -> None:
        """`window` launches are open at once ((staleness + 1) batches); `clip` and `prior` are those of `Inclusion`."""
        super().__init__(runner, batch=batch, staleness=staleness, window=window)
        self.inclusion = Inclusion(clip=clip, prior=prior)
        self.dropped = 0
        self._ready: list[Done] = []
        self._fates: dict[int, list[tuple[float, int, bool]]] = {}

    def take(self, version: int) -> RolloutBatch:
        """All that came in time, at least `batch` of them unless fewer can; may be empty when all of it was too old."""
        before = self.dropped
        self._drop(version)  # versions may be skipped
        self._gather(version, self.runner.collect(0.0))
        while len(self._ready) < self.batch and self._jobs.keys() - {d.number for d in self._ready}:
            self._gather(version, self.runner.collect())
        self._ready.sort(key=lambda d: d.number)
        done, self._ready = tuple(self._ready), []
        jobs = tuple(self._settle(d.number, is_kept=True) for d in done)
        self._drop(version + 1)
        self._learn(version + 1, {j.arm for j in jobs})
        weight = self.inclusion.weights([j.arm for j in jobs], [j.cell for j in jobs])
        return RolloutBatch(version, done, jobs, weight, self.dropped - before)

    def _gather(self, version: int, done: list[Done]) -> None:
        """Keep what is in time; what was given up as too old has been counted already."""
        self._ready += [d for d in done if d.number in self._jobs and version - d.version <= self.staleness]

    def _drop(self, version: int) -> None:
        """Give up what is too old, whether it has come or not: the room is free again, and its fate is known."""
        for number in [n for n, j in self._jobs.items() if version - j.version > self.staleness]:
            self._settle(number, is_kept=False)
            self.dropped += 1
        self._ready = [d for d in self._ready if d.number in self._jobs]

    def _settle(self, number: int, *, is_kept: bool) -> Job:
        job = self._jobs.pop(number)
        self._fates.setdefault(job.version, []).append((job.arm, job.cell, is_kept))
        return job

    def _learn(self, version: int, seen: set[float]) -> None:
        """Fit on versions of which every launch is settled: younger ones have shown their quick launches only."""
        for old in sorted(v for v in self._fates if v < version - self.staleness):
            self.inclusion.add(self._fates.pop(old))
        self.inclusion.refuse(besides=seen)
