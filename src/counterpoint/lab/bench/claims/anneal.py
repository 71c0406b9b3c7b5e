"""The R7 scaffold leaves by itself: an indicator-driven lambda ends at zero, whatever its first value.

Always true: shares and spawn rates are exact values of the final policy; a row about the indicator shows the worst run over the
first values 0.1, 1 and 10. The two plain schedules stand beside it as they were measured.
The world: a tabular policy that spawns or not, per bucket; the primary reward is what that is worth plus noise, the scaffold pays
lambda for each spawn. Derivation: docs/lab/research/balancing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most
from counterpoint.rewards.schedules import Indicator, Scaffold, constant, linear


@dataclass(frozen=True)
class SpawnWorld:
    """What noop (column 0) and spawn (column 1) are worth in each bucket."""

    worth_CA: np.ndarray
    noise: float = 0.3

    @staticmethod
    def of(rng: np.random.Generator, *, buckets: int = 8, serial: bool = False) -> SpawnWorld:
        """Half of the buckets are better with spawns, by 0.15 to 0.5; none where `serial`."""
        noop = rng.uniform(0.3, 0.7, buckets)
        gain = rng.uniform(0.15, 0.5, buckets) * np.where((np.arange(buckets) % 2 == 0) & (not serial), 1, -1)
        return SpawnWorld(np.stack([noop, noop + gain], axis=1))

    def share(self, spawn_C: np.ndarray) -> float:
        """Expected primary reward as a share of the optimum."""
        got = self.worth_CA[:, 0] * (1 - spawn_C) + self.worth_CA[:, 1] * spawn_C
        return float(got.mean() / self.worth_CA.max(axis=1).mean())

    @property
    def best_rate(self) -> float:
        """The optimum's spawn rate."""
        return float((self.worth_CA[:, 1] > self.worth_CA[:, 0]).mean())


@dataclass(frozen=True)
class SpawnRun:
    """What training gave."""

    share: float
    """Final expected primary reward, as a share of the optimum."""
    rate: float
    """Final spawn rate, mean over buckets."""
    weight: float
    """Final lambda."""
    steps_to_95: int | None
    """First step at 95 % of the optimum from which it was not lost again; None where it never came."""


_GROUP, _RATE = 8, 0.25


def train_spawn(
    world: SpawnWorld, rng: np.random.Generator, schedule: Scaffold | Callable[[float], float] | None, *,
    start: float = 0.29, steps: int = 1500,
) -> SpawnRun:  # fmt: skip
    """Train from a spawn probability of `start`, one group per bucket and step, group-normalised, under a schedule of lambda."""
    if not 0 < start < 1:
        raise InputError(f"a spawn probability to learn from lies between 0 and 1, not {start}")
    buckets = len(world.worth_CA)
    logit_C = np.full(buckets, np.log(start / (1 - start)))
    state, bucket_N = Indicator.of(buckets), np.repeat(np.arange(buckets), _GROUP)
    weight, reached = 0.0, None
    for step in range(steps):
        spawn_C = 1 / (1 + np.exp(-logit_C))
        spawned = rng.random((buckets, _GROUP)) < spawn_C[:, None]
        primary = np.where(spawned, world.worth_CA[:, 1:], world.worth_CA[:, :1])
        primary = primary + world.noise * rng.standard_normal(primary.shape)
        if isinstance(schedule, Scaffold):
            weight = schedule.weight(state)
            state = schedule.update(state, bucket_N, spawned.ravel(), primary.ravel())
        elif schedule is not None:
            weight = schedule(step)
        paid = primary + weight * spawned
        advantage = (paid - paid.mean(axis=1, keepdims=True)) / paid.std(axis=1, keepdims=True)
        logit_C = logit_C + _RATE * (advantage * (spawned - spawn_C[:, None])).mean(axis=1)
        reached = (reached or step + 1) if world.share(1 / (1 + np.exp(-logit_C))) >= 0.95 else None
    spawn_C = 1 / (1 + np.exp(-logit_C))
    return SpawnRun(world.share(spawn_C), float(spawn_C.mean()), weight, reached)


RUNS, STEPS, FIRST = 3, 1500, (0.1, 1.0, 10.0)


def anneal(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Three worlds per seed, first value and start; 1,500 steps each."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    worlds = [(s, k) for s in range(seed, seed + seeds) for k in range(RUNS)]
    left = 0.0
    for start in (0.29, 0.02):
        runs = {first: [_anneal_run(w, Scaffold(first), start=start) for w in worlds] for first in FIRST}
        left = max([left, *(r.weight / first for first, rs in runs.items() for r in rs)])
        worst = min(r.share for rs in runs.values() for r in rs)
        yield at_least(f"indicator, first spawn rate {start}: final share of the optimum", worst, 0.99)
    serial = {first: [_anneal_run(w, Scaffold(first), serial=True) for w in worlds] for first in FIRST}
    left = max([left, *(r.weight / first for first, rs in serial.items() for r in rs)])
    yield at_most("indicator: final lambda / lambda0", left, 1e-3)
    for first, runs_ in serial.items():
        yield at_most(f"serial-only tasks, lambda0 {first:g}: final spawn rate", max(r.rate for r in runs_), 0.02)
    ours = fmean(r.share for r in [_anneal_run(w, Scaffold(1.0)) for w in worlds])
    for name, schedule in (("constant", constant(1.0)), ("linear over half the run", linear(1.0, STEPS / 2))):
        other = fmean(r.share for r in [_anneal_run(w, schedule) for w in worlds])
        yield at_least(f"indicator - {name}: final share of the optimum", ours - other, 0.0)


def _anneal_run(world: tuple[int, int], schedule: object, *, start: float = 0.29, serial: bool = False) -> SpawnRun:
    place = SpawnWorld.of(np.random.default_rng([*world, 0]), serial=serial)
    return train_spawn(place, np.random.default_rng([*world, 1]), schedule, start=start, steps=STEPS)  # type: ignore[arg-type]
