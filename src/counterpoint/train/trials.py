"""Which of the last networks plays when it counts: the running means of the weights, tried on the same tasks.

Always true: trial tasks are of the training worlds, are neither those of training nor those that are held out, and are the same
for every network of a run, so that their returns are compared task by task; every call of a trial counts as spent. A network
takes the place of the best so far only where it is better by the mean over worlds, each in units of the first trial. A learner
that swings between updates ends with a good one of its last, not with its last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from counterpoint.envs.teamworld.world import TeamWorld
from counterpoint.train.policies.network import Network
from counterpoint.train.rollouts import play_out

_TASKS = 48
_FIRST = 900_000_000


class Trials:
    """The best network so far, and what its rivals got."""

    def __init__(self) -> None:
        self.best: dict[str, torch.Tensor] | None = None
        self.score = -np.inf
        self.units: list[float] = []
        self.seen: list[tuple[int, float]] = []
        """(update, score) of every trial."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return dict(vars(self))

    def restore(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        vars(self).update(state)

    def hold(self, net: Network, worlds: Sequence[TeamWorld], seed: int, update: int) -> dict[str, int]:
        """Play the trial tasks greedily; what that spent."""
        each = max(4, _TASKS // len(worlds))
        spent, means = {"episodes": 0, "calls": 0, "decisions": 0}, []
        for place, world in enumerate(worlds):
            seeds = _FIRST + (seed % 100_000) * 1_000 + place * each + np.arange(each)
            out = play_out(world.config, net, seeds, np.zeros(each, np.int64), greedy=True, name="trial")
            means.append(float(out.values.mean()))
            spent["episodes"] += each
            spent["calls"] += out.calls
            spent["decisions"] += out.decisions
        self.units = self.units or [max(abs(m), 1e-6) for m in means]
        score = float(np.mean([m / u for m, u in zip(means, self.units, strict=True)]))
        self.seen.append((update, score))
        if score > self.score:
            self.best, self.score = {k: v.clone() for k, v in net.state_dict().items()}, score
        return spent
