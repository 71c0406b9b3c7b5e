"""Trials: the networks of a run play a few tasks greedily, to find the best of the last ones and the right sizes of its teams.

Always true: trial tasks are of the training worlds, are neither those of training nor those that are held out, and are the same
for every network of a run, so that returns are compared task by task; every call of a trial counts as spent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

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
_ALIKE = 0.15
"""Rows of roles that differ by less, in the unit of their features, are one sort: a head cannot tell them apart."""
_SURE = 2.5
"""The logit of a role that is in, or less it of one that is out."""


Change = Hashable
"""What is another about a team that is tried: worlds with the same change are compared."""


class Team(NamedTuple):
    """Who is asked to come at the start of an episode, by role."""

    gate: np.ndarray
    """Logits of coming at all; above 0 in greedy play."""
    size: np.ndarray
    """Logarithms of how many."""


def _tasks(seed: int, place: int, worlds: int, purpose: int) -> np.ndarray:
    """Trial tasks of a world; the two purposes have tasks of their own."""
    each = max(4, _TASKS // worlds)
    return _FIRST + (seed % 100_000) * 1_000 + 500 * purpose + place * each + np.arange(each)


def _tried(net: Network, world: TeamWorld, seeds: np.ndarray, spent: Counter[str]) -> Rollout:
    out = play_out(world.config, net, seeds, np.zeros(len(seeds), np.int64), greedy=True, name="trial")
    spent.update({"episodes": len(seeds), "calls": out.calls, "decisions": out.decisions, "charged": out.charged})
    return out


def try_teams(net: Network, worlds: Sequence[TeamWorld], seed: int, progress: float) -> dict[str, int]:
    """Move the make-up and then the sizes of teams to where greedy play of the same tasks is better; what that spent.

        gain(team) = sum_c shrunk(V_c(team) - V_c(present team)),   shrunk(d) = mean t^2 / (1 + t^2),  t = mean / standard error

    the parts c of a return (quality, calls, spawns, time, ...) each by itself, differences task by task: what a team costs is
    hardly noisy, what its answers are worth is, and size changes them little. Worlds in which the same change was tried lend
    each other evidence as far as they agree (`pooled`). Tried are: each sort of role taken in or left out, all sorts exchanged
    for the others, as many agents as before; then e^-step and e^step times as many. Gates and the logarithms of sizes move
    towards the better team by its gain's t^2 / (1 + t^2).

    What is drawn in training is no measure of a team: with choices drawn, items are dropped and called again by chance in every
    round, small teams have more rounds, and nobody learns to use a role that is rarely there. The tasks of a world differ in
    luck and not in what is seen at their start, so that one change of the heads is right for all of them.
    """
    spent: Counter[str] = Counter()
    step = _STEPS[0] + progress * (_STEPS[1] - _STEPS[0])
    trials = [_WorldTrials(net, world, _tasks(seed, place, len(worlds), 1), spent) for place, world in enumerate(worlds)]
    for change in (_WorldTrials.make_ups, lambda one: one.sizes(step)):
        for one in trials:
            one.compare(change(one) if (one.team.gate > 0).any() else {})
        _move(trials)
    x, gate, size = (np.concatenate(parts) for parts in zip(*((one.x, *one.team) for one in trials), strict=True))
    _set_heads(net, x, Team(gate, size))
    return dict(spent)


class _WorldTrials:
    """The team of one world, and others beside it."""

    def __init__(self, net: Network, world: TeamWorld, seeds: np.ndarray, spent: Counter[str]) -> None:
        self.net, self.world, self.seeds, self.spent = net, world, seeds, spent
        obs = Batch(world.config, seeds[:1]).observe()
        self.x = features.role_rows(obs, features.context(obs))[0].astype(np.float64)
        with torch.no_grad():
            heads = net.roles(torch.from_numpy(self.x.astype(np.float32)))
        self.team = Team(*(head.numpy().astype(np.float64) for head in heads))
        self.base: np.ndarray | None = None
        self.found: dict[Change, tuple[Team, np.ndarray]] = {}
        """By change: the other team, and (tasks, parts) of its returns less those of the present one, in shares of what that is
        worth."""

    def compare(self, others: Mapping[Change, Team]) -> None:
        """Play the tasks with every one of these teams; the network is left as it was."""
        if others and self.base is None:
            self.base = self._played(self.team)
        if self.base is not None:
            unit = max(abs(float(self.base.sum(axis=1).mean())), 1e-6)
            self.found = {change: (team, (self._played(team) - self.base) / unit) for change, team in others.items()}

    def _played(self, team: Team) -> np.ndarray:
        before = {k: v.clone() for k, v in self.net.state_dict().items()}
        _set_heads(self.net, self.x, team)
        parts = _parts(_tried(self.net, self.world, self.seeds, self.spent))
        self.net.load_state_dict(before)
        return parts

    def move(self, team: Team) -> None:
        """Be another team from now on."""
        self.team, self.base = team, None

    def sizes(self, step: float) -> dict[Change, Team]:
        """The same team, smaller and larger."""
        return {s: self.team._replace(size=self.team.size + s) for s in (-step, step)}

    def make_ups(self) -> dict[Change, Team]:
        """Other roles, as many agents."""
        is_in = tuple(self.team.gate > 0)
        return {(is_in, tuple(other.gate > 0)): other for other in _other_make_ups(self.x, self.team)}


def _move(trials: Sequence[_WorldTrials]) -> None:
    """Every world's team towards the best of its others, as far as that is sure."""
    best: dict[int, tuple[float, float, Team]] = {}
    for change in dict.fromkeys(change for one in trials for change in one.found):
        some = [i for i, one in enumerate(trials) if change in one.found]
        found = [trials[i].found[change] for i in some]
        mean = np.stack([d.mean(axis=0) for _, d in found])
        error = np.stack([d.std(axis=0, ddof=1) / np.sqrt(len(d)) for _, d in found])
        for i, (team, _), (gain, noise) in zip(some, found, map(_gain, *pooled(mean, error)), strict=True):
            if gain > (best[i][0] if i in best else 0.0):
                best[i] = gain, noise, team
    for i, (gain, noise, team) in best.items():
        old = trials[i].team
        moved = Team(*(a + trust(gain, noise) * (b - a) for a, b in zip(old, team, strict=True)))
        trials[i].move(moved if (moved.gate > 0).any() else team)


def pooled(mean: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of several worlds and their standard errors, each drawn to the common mean as far as the worlds agree.

        tau^2 = max(0, (Q - (k - 1)) / (sum w - sum w^2 / sum w)),   Q = sum w (x - mean_w)^2,  w = 1 / s^2
        x_i  ->  m + (tau^2 / (tau^2 + s_i^2)) (x_i - m),            m = sum x / (tau^2 + s^2) / sum 1 / (tau^2 + s^2)

    (DerSimonian and Laird 1986, Meta-analysis in clinical trials; the posterior mean of a random effect.) Axis 0: worlds.
    """
    square = np.maximum(error, 1e-6) ** 2
    w = 1 / square
    total = w.sum(axis=0)
    q = (w * (mean - (w * mean).sum(axis=0) / total) ** 2).sum(axis=0)
    spare = total - (w**2).sum(axis=0) / total
    tau = np.maximum(q - (len(mean) - 1), 0.0) / np.where(spare > 1e-9 * total, spare, np.inf)
    w = 1 / (tau + square)
    centre, own = (w * mean).sum(axis=0) / w.sum(axis=0), tau / (tau + square)
    return centre + own * (mean - centre), np.sqrt(own * square + (1 - own) ** 2 / w.sum(axis=0))


def _set_heads(net: Network, x: np.ndarray, team: Team) -> None:
    fit_head(net.gate, x, team.gate, ridge=1e-5 * len(x))
    fit_head(net.size, x, team.size, np.where(team.gate > 0, 1.0, 0.01), ridge=1e-5 * len(x))


def _other_make_ups(x: np.ndarray, team: Team) -> list[Team]:
    """The teams beside this one: a sort of roles more or less, or all others; as many agents."""
    gate, size = team
    is_in, total = gate > 0, np.exp(size[gate > 0]).sum()
    sorts = [x[i] for i in range(len(x)) if not (abs(x[:i] - x[i]).max(axis=1, initial=0.0) < _ALIKE).any()]
    of_sort = np.array([[abs(row - one).max() < _ALIKE for row in x] for one in sorts])
    others = {tuple(np.where(some, not is_in[some].all(), is_in)) for some in of_sort} | {tuple(~is_in)}
    out = []
    for other in sorted(others - {tuple(is_in)}):
        wanted = np.array(other)
        if wanted.any():
            share = np.where(wanted, np.where(is_in, np.exp(size), np.exp(size[is_in]).mean()), 0.0)
            log = np.log(np.maximum(share / share.sum() * total, 1e-3))
            out.append(Team(np.where(wanted, _SURE, -_SURE), np.where(wanted, log, size)))
    return out


def _parts(out: Rollout) -> np.ndarray:
    """(tasks, parts) of the returns: what was earned, and what each kind of cost took."""
    costs = [-np.asarray(column) for name, column in out.columns.items() if name.startswith("cost_")]
    return np.stack([out.values - np.sum(costs, axis=0), *costs], axis=1)


def _gain(mean: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """(gain, its standard error): means of the parts, each shrunk by its own error."""
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
