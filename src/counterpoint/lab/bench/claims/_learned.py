"""Training runs for claims: many at once, each a function of its settings.

Always true: what comes back is the mean network of a finished run, and what it spent; nothing is read from or kept on disk. A
run here is the very loop of `counterpoint train`, without a folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.display import working
from counterpoint.lab.train.jobs import policy_from
from counterpoint.lab.train.runner import Job
from counterpoint.lab.train.runners.processes import Processes
from counterpoint.lab.worlds.teamworld.world import TeamWorld

_WORK = "counterpoint.lab.bench.claims._learned:work"
_MOST = 16


@dataclass(frozen=True)
class Learned:
    """A finished run."""

    weights: dict[str, np.ndarray]
    apart: bool
    calls: int
    charged: int
    updates: int


def work(payload: Mapping[str, Any], weights: Any) -> Learned:
    """One run, in whatever process."""
    from counterpoint.lab.train.jobs import play
    from counterpoint.lab.train.settings import settings_of
    from counterpoint.lab.train.training import Training

    training = Training(settings_of(payload))
    while not training.is_done:
        job = training.job(training.update, training.update, training.weights())
        training.learn([play(job.payload, job.weights)])
    held = {k: v.numpy().copy() for k, v in training.player().state_dict().items()}
    return Learned(held, training.preset.regime == "C", training.totals["calls"], training.totals["charged"], training.update)


def train_all(configs: Sequence[Mapping[str, Any]]) -> list[Learned]:
    """Every run, in the order given; as many at once as there are cores, 16 at most."""
    if not configs:
        return []
    found: dict[int, Learned] = {}
    with Processes(min(_MOST, os.cpu_count() or 1, len(configs))) as runner:
        numbers = [runner.submit(Job(work=_WORK, payload=dict(c))) for c in configs]
        with working("training runs", len(numbers)) as work:
            while len(found) < len(numbers):
                found.update({d.number: d.result for d in runner.collect()})
                work.at(len(found))
    return [found[n] for n in numbers]


def values_of(learned: Learned, world: TeamWorld, seeds: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(returns, agents spawned) of the learned policy, played greedily."""
    runs = world.run(policy_from(learned.weights, apart=learned.apart), np.asarray(seeds))
    return runs.values, runs.columns["agents"]


def share(learned: Learned, world: TeamWorld, seeds: Sequence[int] | np.ndarray) -> float:
    """Mean return over the certified bound."""
    return float(values_of(learned, world, seeds)[0].mean() / world.optimum().value)
