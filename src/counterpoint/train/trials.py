"""Trials: the networks of a run play a few tasks greedily, to find the best of the last ones and the right sizes of its teams.

Always true: trial tasks are of the training worlds, are neither those of training nor those that are held out, and are the same
for every network of a run, so that returns are compared task by task; every call of a trial counts as spent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from counterpoint.envs.teamworld.engine import Batch
from counterpoint.envs.teamworld.world import TeamWorld
from counterpoint.train.policies import features
from counterpoint.train.policies.network import Network
from counterpoint.train.rollouts import Rollout, play_out
from counterpoint.train.spawn_critic import trust
from counterpoint.train.spawn_head import fit_head

_TASKS = 48
_FIRST = 900_000_000
_STEPS = float(np.log(1.6)), float(np.log(1.2))
"""How far the logarithm of a team's size is tried, up and down, at the start of a run and at its end."""


def _tasks(seed: int, place: int, worlds: int, purpose: int) -> np.ndarray:
    """Trial tasks of a world; the two purposes have tasks of their own."""
    each = max(4, _TASKS // worlds)
    return _FIRST + (seed % 100_000) * 1_000 + 500 * purpose + place * each + np.arange(each)


def _tried(net: Network, world: TeamWorld, seeds: np.ndarray, spent: Counter[str]) -> Rollout:
    out = play_out(world.config, net, seeds, np.zeros(len(seeds), np.int64), greedy=True, name="trial")
    spent.update({"episodes": len(seeds), "calls": out.calls, "decisions": out.decisions, "charged": out.charged})
    return out


def size_teams(net: Network, worlds: Sequence[TeamWorld], seed: int, progress: float) -> dict[str, int]:
    """Move the sizes of teams to where greedy play of the same tasks is better; what that spent.

        gain(s) = sum_c shrunk(V_c(sizes e^s) - V_c(sizes)),    shrunk(d) = mean t^2 / (1 + t^2),  t = mean / standard error

    for s = -step and +step, the parts c of a return (quality, calls, spawns, time, ...) each by itself, differences task by task:
    what a team costs is hardly noisy, what its answers are worth is, and size changes them little. The logarithm of the sizes
    moves by the better s, itself shrunk. What is drawn in training is no measure of size: with choices drawn, items are dropped
    and called again by chance in every round, and small teams have more rounds. The tasks of a world differ in luck and not in
    what is seen at their start, so that one change of the head is right for all of them.
    """
    spent: Counter[str] = Counter()
    step = _STEPS[0] + progress * (_STEPS[1] - _STEPS[0])
    rows, gates, sizes = [], [], []
    for place, world in enumerate(worlds):
        seeds = _tasks(seed, place, len(worlds), 1)
        with torch.no_grad():
            obs = Batch(world.config, seeds[:1]).observe()
            x = features.role_rows(obs, features.context(obs))[0]
            gate, size = (v.numpy().astype(np.float64) for v in net.roles(torch.from_numpy(x)))
        rows.append(x.astype(np.float64))
        gates.append(gate)
        sizes.append(size + (_better(net, world, seeds, step, spent) if (gate > 0).any() else 0.0))
    x, open_ = np.concatenate(rows), np.concatenate(gates) > 0
    fit_head(net.size, x, np.concatenate(sizes), np.where(open_, 1.0, 0.01), ridge=1e-5 * len(x))
    return dict(spent)


def _better(net: Network, world: TeamWorld, seeds: np.ndarray, step: float, spent: Counter[str]) -> float:
    """By how much the logarithm of the team's size should change."""
    tried = []
    for s in (0.0, -step, step):
        with torch.no_grad():
            net.size.bias.add_(s)
            tried.append(_parts(_tried(net, world, seeds, spent)))
            net.size.bias.sub_(s)
    (down, down_error), (up, up_error) = (_gain(one - tried[0]) for one in tried[1:])
    s, gain, error = max((-step, down, down_error), (step, up, up_error), key=lambda found: found[1])
    return 0.0 if gain <= 0 else float(s * trust(gain, error))


def _parts(out: Rollout) -> np.ndarray:
    """(tasks, parts) of the returns: what was earned, and what each kind of cost took."""
    costs = [-np.asarray(column) for name, column in out.columns.items() if name.startswith("cost_")]
    return np.stack([out.values - np.sum(costs, axis=0), *costs], axis=1)


def _gain(difference: np.ndarray) -> tuple[float, float]:
    """(gain, its standard error): means of the parts, each shrunk by its own error."""
    mean, error = difference.mean(axis=0), difference.std(axis=0, ddof=1) / np.sqrt(len(difference))
    kept = trust(mean, error)
    return float(kept @ mean), float(np.linalg.norm(kept * error))


class Trials:
    """Which of the last networks plays when it counts: the running means of the weights, tried on the same tasks.

    A network takes the place of the best so far only where it is better by the mean over worlds, each in units of the first
    trial. A learner that swings between updates ends with a good one of its last, not with its last.
    """

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
        spent: Counter[str] = Counter()
        means = []
        for place, world in enumerate(worlds):
            out = _tried(net, world, _tasks(seed, place, len(worlds), 0), spent)
            means.append(float(out.values.mean()))
        self.units = self.units or [max(abs(m), 1e-6) for m in means]
        score = float(np.mean([m / u for m, u in zip(means, self.units, strict=True)]))
        self.seen.append((update, score))
        if score > self.score:
            self.best, self.score = {k: v.clone() for k, v in net.state_dict().items()}, score
        return dict(spent)
