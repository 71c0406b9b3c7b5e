"""The spawn world of research B6: a tabular policy that spawns or not, per bucket, under a paid scaffold.

Always true: pure numpy, every number from the seed. The primary reward is what spawn or noop is worth in that bucket plus
noise; the scaffold pays lambda for each spawn and nothing else. Optimum and spawn rates are exact, from the policy and not from
draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from counterpoint.errors import InputError
from counterpoint.reward.schedules import Indicator, Scaffold


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


def train_spawn(
    world: SpawnWorld, rng: np.random.Generator, schedule: Scaffold | Callable[[float], float] | None, *,
    start: float = 0.29, steps: int = 1500, group: int = 8, lr: float = 0.25,
) -> SpawnRun:  # fmt: skip
    """Train from a spawn probability of `start`, one group per bucket and step, group-normalised, under a schedule of lambda."""
    if not 0 < start < 1:
        raise InputError(f"a spawn probability to learn from lies between 0 and 1, not {start}")
    buckets = len(world.worth_CA)
    logit_C = np.full(buckets, np.log(start / (1 - start)))
    state, bucket_N = Indicator.of(buckets), np.repeat(np.arange(buckets), group)
    weight, reached = 0.0, None
    for step in range(steps):
        spawn_C = 1 / (1 + np.exp(-logit_C))
        spawned = rng.random((buckets, group)) < spawn_C[:, None]
        primary = np.where(spawned, world.worth_CA[:, 1:], world.worth_CA[:, :1])
        primary = primary + world.noise * rng.standard_normal(primary.shape)
        if isinstance(schedule, Scaffold):
            weight = schedule.weight(state)
            state = schedule.update(state, bucket_N, spawned.ravel(), primary.ravel())
        elif schedule is not None:
            weight = schedule(step)
        paid = primary + weight * spawned
        advantage = (paid - paid.mean(axis=1, keepdims=True)) / paid.std(axis=1, keepdims=True)
        logit_C = logit_C + lr * (advantage * (spawned - spawn_C[:, None])).mean(axis=1)
        reached = (reached or step + 1) if world.share(1 / (1 + np.exp(-logit_C))) >= 0.95 else None
    spawn_C = 1 / (1 + np.exp(-logit_C))
    return SpawnRun(world.share(spawn_C), float(spawn_C.mean()), weight, reached)
