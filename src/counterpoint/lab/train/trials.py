"""Trials: the networks of a run play a few tasks greedily, to find the best of the last ones and the right sizes of its teams.

Always true: trial tasks are of the training worlds, are neither those of training nor those that are held out, and are the same
for every network of a run, so that returns are compared task by task; every call of a trial counts as spent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from counterpoint.lab.train.policies import features
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.rollouts import Rollout, play_out
from counterpoint.lab.train.spawn_critic import trust
from counterpoint.lab.train.spawn_head import fit_head
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.world import TeamWorld

_TASKS = 48
_FEWEST = 6
_PLAYS = 14
"""How often the trial tasks are played, about: to try teams, and to hold the network that comes of it to them."""
_SHARE = 0.2
"""Most of a budget that one round of trials may take."""
_DEARER = 1.5
"""A greedy episode costs about so much more than the mean of a run's."""
_FIRST = 900_000_000
_STEPS = float(np.log(1.6)), float(np.log(1.2))
"""How far the logarithm of a team's size is tried, up and down, at the start of a run and at its end."""
_ALIKE = 0.15
"""Rows of roles that differ by less, in the unit of their features, are one sort: a head cannot tell them apart."""
_SHIFTS = -3.0, 1.0
"""What is tried to be added to the logits of stopping and of spawning late."""
_FIRST_TEAMS = 6
"""Most teams that are tried where nobody comes."""
_DOUBT = 2.0
"""Standard errors by which a team has to be better than nobody, where nobody comes."""
_SURE = 2.5
"""The logit of a role that is in, or less it of one that is out."""


class Team(NamedTuple):
    """Who is asked to come at the start of an episode, by role."""

    gate: np.ndarray
    """Logits of coming at all; above 0 in greedy play."""
    size: np.ndarray
    """Logarithms of how many."""


class Room(NamedTuple):
    """What a round of trials may cost."""

    tasks: int
    most: float
    """What it may be charged in all."""
    expected: float
    """What it will be charged, about."""


def room_of(budget: int, spent: Mapping[str, int], tasks: int = 0) -> Room:
    """As many tasks as a fifth of the budget pays for, or as many as the rounds before had; without a budget all of them."""
    if not budget:
        return Room(_TASKS, math.inf, 0.0)
    each = _DEARER * spent["charged"] / max(spent["episodes"], 1)
    tasks = tasks or int(np.clip(_SHARE * budget / (_PLAYS * max(each, 1.0)), _FEWEST, _TASKS))
    most = min(_SHARE * budget, max(0.0, budget - spent["charged"]))
    return Room(tasks, most, min(_SHARE * budget, _PLAYS * tasks * each))


def _tasks(seed: int, place: int, worlds: int, purpose: int, tasks: int) -> np.ndarray:
    """Trial tasks of a world; the two purposes have tasks of their own."""
    each = max(4, tasks // worlds)
    return _FIRST + (seed % 100_000) * 1_000 + 500 * purpose + place * each + np.arange(each)


def _tried(net: Network, world: TeamWorld, seeds: np.ndarray, spent: Counter[str]) -> Rollout:
    out = play_out(world.config, net, seeds, np.zeros(len(seeds), np.int64), greedy=True, name="trial")
    spent.update({"episodes": len(seeds), "calls": out.calls, "decisions": out.decisions, "charged": out.charged})
    return out


def try_teams(
    net: Network, worlds: Sequence[TeamWorld], seed: int, progress: float, *, tasks: int = _TASKS, most: float = math.inf,
    dearest: float = 0.0,
) -> dict[str, int]:  # fmt: skip
    """Move stopping, late spawns, make-ups and sizes of teams to where greedy play of the same tasks is better; what that spent.

        gain(team) = sum_c shrunk(V_c(team) - V_c(present team)),   shrunk(d) = mean t^2 / (1 + t^2),  t = mean / standard error

    the parts c of a return (quality, calls, spawns, time, ...) each by itself, differences task by task: what a team costs is
    hardly noisy, what its answers are worth is, and size changes them little. Make-ups are tried in all worlds at once, since the
    head adds what a role is to what a task is: each sort of role taken in or left out, all sorts exchanged for the others, as
    many agents as before, the gain being the mean over the worlds in shares of what their teams are worth. Sizes are tried world
    by world, e^-step and e^step times as many. Before that, stopping and spawning later than at the start are made less and more
    likely, in all worlds at once. Logits and the logarithms of sizes move towards what is better by its gain's t^2 / (1 + t^2).
    A role that is in, or out, in all worlds gets one gate for all of them: its slope is noise, and would decide in larger tasks.

    What is drawn in training is no measure of a team: with choices drawn, items are dropped and called again by chance in every
    round, small teams have more rounds, and nobody learns to use a role that is rarely there. The tasks of a world differ in
    luck and hardly in what is seen at their start, so that one change of the heads is right for all of them; with several types
    of work they do differ, and the team of the first task stands for all.

    Where nobody comes in a world, some teams are tried first, and one comes that is better beyond doubt: what training saw of
    teams there was a beginner's play.

    What would be charged more than `most` in all, by the mean of the plays so far (where nobody comes: with `dearest` an
    episode), is not tried any more.
    """
    spent: Counter[str] = Counter()
    step = _STEPS[0] + progress * (_STEPS[1] - _STEPS[0])
    every = [_WorldTrials(net, world, _tasks(seed, place, len(worlds), 1, tasks), spent) for place, world in enumerate(worlds)]
    for logit in (net.stop.bias[:1], net.gate.weight[0, features.LATE : features.LATE + 1]):
        if _is_paid(every, 3, most):
            _shift(every, logit)
    _begin(every, most, dearest)
    some = [one for one in every if (one.team.gate > 0).any()]
    for roles in sorted({len(one.x) for one in some}):
        alike = [one for one in some if len(one.x) == roles]
        others = _other_make_ups(alike)
        if _is_paid(alike, 1 + len(others), most):
            _move(alike, [[one.made_up(is_in) for one in alike] for is_in in others])
            _level(alike)
    for one in some:
        if _is_paid([one], 3, most):
            _move([one], [[one.team._replace(size=one.team.size + s)] for s in (-step, step)])
    x, gate, size = (np.concatenate(parts) for parts in zip(*((one.x, *one.team) for one in every), strict=True))
    _set_heads(net, x, Team(gate, size))
    return dict(spent)


def _is_paid(worlds: Sequence[_WorldTrials], plays: int, most: float) -> bool:
    """Whether so many plays more in these worlds stay within `most`, by what the episodes so far were charged."""
    spent = worlds[0].spent
    each = spent["charged"] / max(spent["episodes"], 1)
    return spent["charged"] + plays * each * sum(len(one.seeds) for one in worlds) < most


class _WorldTrials:
    """The team of one world, and how others do on its tasks."""

    def __init__(self, net: Network, world: TeamWorld, seeds: np.ndarray, spent: Counter[str]) -> None:
        self.net, self.world, self.seeds, self.spent = net, world, seeds, spent
        obs = Batch(world.config, seeds[:1]).observe()
        self.x = features.role_rows(obs, features.context(obs))[0].astype(np.float64)
        with torch.no_grad():
            heads = net.roles(torch.from_numpy(self.x.astype(np.float32)))
        self.team = Team(*(head.numpy().astype(np.float64) for head in heads))
        self.played: np.ndarray | None = None
        """(tasks, parts) of the returns of the present team, once it has played."""

    def present(self) -> np.ndarray:
        """(tasks, parts) of the returns of the present team."""
        if self.played is None:
            self.played = self.play(self.team)
        return self.played

    def against(self, team: Team) -> tuple[np.ndarray, np.ndarray]:
        """What another team has more of each part, and the standard errors, in shares of what the present one is worth."""
        return _more(self.play(team), self.present())

    def play(self, team: Team) -> np.ndarray:
        """(tasks, parts) of the returns of a team. The network is left as it was."""
        before = {k: v.clone() for k, v in self.net.state_dict().items()}
        _set_heads(self.net, self.x, team)
        parts = _parts(_tried(self.net, self.world, self.seeds, self.spent))
        self.net.load_state_dict(before)
        return parts

    def made_up(self, is_in: np.ndarray) -> Team:
        """As many agents, of these roles; those who are new come as often as the others did."""
        was_in, number = self.team.gate > 0, np.exp(self.team.size)
        share = np.where(is_in, np.where(was_in, number, number[was_in].mean()), 0.0)
        log = np.log(np.maximum(share / share.sum() * number[was_in].sum(), 1e-3))
        return Team(np.where(is_in, _SURE, -_SURE), np.where(is_in, log, self.team.size))

    def begin(self, plays: int) -> None:
        """Where nobody comes: be the best of the first teams from now on, if it is better than nobody beyond doubt."""
        found = [(*_gain(*self.against(team)), team) for team in self._first_teams()[: max(plays, 0)]]
        gain, noise, best = max(found, key=lambda one: one[0], default=(0.0, 0.0, self.team))
        if gain > _DOUBT * noise:
            self.team, self.played = best, None

    def _first_teams(self) -> list[Team]:
        """Each sort of role alone: the square root of as many as there may be, all of them, one."""
        room = self.world.config.max_agents
        return [
            Team(np.where(is_in, _SURE, -_SURE), np.where(is_in, np.log(max(number / is_in.sum(), 1.0)), self.team.size))
            for number in dict.fromkeys((round(math.sqrt(room)), room, 1)) for is_in in _sorts(self.x)
        ]  # fmt: skip

    def move(self, team: Team, share: float) -> None:
        """Be nearer to another team from now on."""
        moved = Team(*(old + share * (new - old) for old, new in zip(self.team, team, strict=True)))
        self.team, self.played = moved if (moved.gate > 0).any() else team, None


def _more(other: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(means, standard errors) of what another play has more of each part, in shares of what the present one is worth."""
    more = (other - present) / max(abs(float(present.sum(axis=1).mean())), 1e-6)
    return more.mean(axis=0), more.std(axis=0, ddof=1) / np.sqrt(len(more))


def _over_worlds(each: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """(gain, its standard error): the mean over worlds of what is more in them."""
    mean, error = (np.stack(part) for part in zip(*each, strict=True))
    return _gain(mean.mean(axis=0), np.linalg.norm(error, axis=0) / len(each))


def _shift(worlds: Sequence[_WorldTrials], logit: torch.Tensor) -> None:
    """A number that all worlds share, changed in place towards the better of less and more."""
    before, found = logit.detach().clone(), []
    with torch.no_grad():
        for shift in _SHIFTS:
            logit.copy_(before + shift)
            others = [world.play(world.team) for world in worlds]
            logit.copy_(before)
            gain, noise = _over_worlds([_more(o, w.present()) for o, w in zip(others, worlds, strict=True)])
            found.append((gain, shift * trust(gain, noise)))
        gain, move = max(found, default=(0.0, 0.0))
        if gain > 0:
            logit.add_(move)
            for world in worlds:
                world.played = None


def _begin(worlds: Sequence[_WorldTrials], most: float, dearest: float) -> None:
    """A first team where nobody comes, if it pays: as many are tried as `most` allows, with `dearest` an episode."""
    for one in worlds:
        if not (one.team.gate > 0).any():
            one.begin(int(min(_FIRST_TEAMS, (most - one.spent["charged"]) / max(dearest * len(one.seeds), 1.0))))


def _level(worlds: Sequence[_WorldTrials]) -> None:
    """One gate for a role that is in, or out, in all worlds."""
    gates = np.stack([one.team.gate for one in worlds])
    is_one = (gates > 0).all(axis=0) | (gates <= 0).all(axis=0)
    for one in worlds:
        one.team = one.team._replace(gate=np.where(is_one, gates.mean(axis=0), one.team.gate))


def _move(worlds: Sequence[_WorldTrials], others: Sequence[Sequence[Team]]) -> None:
    """The teams of these worlds towards the best of the others (each a team for every world), as far as that is sure."""
    found = []
    for teams in others:
        gain, noise = _over_worlds([w.against(t) for w, t in zip(worlds, teams, strict=True)])
        found.append((gain, noise, teams))
    gain, noise, teams = max(found, key=lambda one: one[0], default=(0.0, 1.0, ()))
    if gain > 0:
        for world, team in zip(worlds, teams, strict=True):
            world.move(team, trust(gain, noise))


def _other_make_ups(worlds: Sequence[_WorldTrials]) -> list[np.ndarray]:
    """Who else could be in, by role: those of most worlds, where they differ; a sort more or less; all others; everybody."""
    x, is_in = np.mean([one.x for one in worlds], axis=0), np.mean([one.team.gate for one in worlds], axis=0) > 0
    others = {tuple(np.where(some, not is_in[some].all(), is_in)) for some in _sorts(x)}
    others |= {tuple(is_in), tuple(~is_in), (True,) * len(x)}
    present = {tuple(one.team.gate > 0) for one in worlds}
    return [np.array(other) for other in sorted(others) if any(other) and present != {other}]


def _sorts(x: np.ndarray) -> list[np.ndarray]:
    """Which roles are of each sort: those that a head cannot tell apart."""
    first = [x[i] for i in range(len(x)) if not (abs(x[:i] - x[i]).max(axis=1, initial=0.0) < _ALIKE).any()]
    return [np.array([abs(row - one).max() < _ALIKE for row in x]) for one in first]


def _set_heads(net: Network, x: np.ndarray, team: Team) -> None:
    fit_head(net.gate, x, team.gate, ridge=1e-5 * len(x))
    fit_head(net.size, x, team.size, np.where(team.gate > 0, 1.0, 0.01), ridge=1e-5 * len(x))


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
        self.tasks = 0
        """How many each of them has, once there was one."""
        self.is_over = False
        """Whether the last one was held: nothing is left for another update."""

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
            out = _tried(net, world, _tasks(seed, place, len(worlds), 0, self.tasks or _TASKS), spent)
            means.append(float(out.values.mean()))
        self.units = self.units or [max(abs(m), 1e-6) for m in means]
        score = float(np.mean([m / u for m, u in zip(means, self.units, strict=True)]))
        self.seen.append((update, score))
        if score > self.score:
            self.best, self.score = {k: v.clone() for k, v in net.state_dict().items()}, score
        return dict(spent)
