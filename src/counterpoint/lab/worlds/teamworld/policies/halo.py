"""HALO as a policy: a search over teams, by UCB, with simulations that are paid for; nothing is learned.

    UCB     mean + 1.4 sqrt(ln(visits of the parent) / visits); infinite where it was never visited
    update  visits += 1, value <- (value visits + x + sum of the children's values) / (visits + number of children)
    x       0.7 where a simulation is above the mean of those before it, else -0.3;     5 simulations per expansion

Always true: the tree has two levels, how many agents and of which families; everything else is the reference's. Simulations
play seeds of their own, never the episode's, so that the search depends on the configuration alone; each episode is charged
for all of them (`Searched.calls`). With chance EPSILON another team of the tree is taken than the best, and the
log-probability says so: such traces can be used to judge teams off-policy.

HALO arXiv 2505.13516; official code. `as_released` does as that code does: the value, a mean already, is divided by the visits
again, and what a simulation teaches below the first level is lost. Departures: HALO searches over roles and sub-tasks of a
text task, and a model says whether a simulation succeeded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from counterpoint.lab.worlds.teamworld.action import DECISIONS, Action, Calls, Spawns
from counterpoint.lab.worlds.teamworld.config import KINDS, Config
from counterpoint.lab.worlds.teamworld.observation import Observation
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts, Size

EXPLORATION = 1.4
GOOD, BAD = 0.7, -0.3
SIMULATIONS = 5
EXPANSIONS = 12
EPSILON = 0.05
_MIXES = (0.5, 0.0, 1.0)  # of family B
_SPAWN = DECISIONS.index("spawn")
Simulate = Callable[[ComposedPolicy, int, int], tuple[np.ndarray, int]]
"""(policy, number of the first simulation, how many) -> (returns, calls)."""


def ucb(value: float, visits: int, parent_visits: int, *, as_released: bool = False) -> float:
    """What selection maximises; `as_released` divides the mean by the visits again."""
    if visits == 0:
        return math.inf
    return (value / visits if as_released else value) + EXPLORATION * math.sqrt(math.log(parent_visits) / visits)


@dataclass
class Node:
    """A choice in the tree; `options` are those below it that nobody has tried."""

    visits: int = 0
    value: float = 0.0
    options: list[int] = field(default_factory=list)
    children: dict[int, Node] = field(default_factory=dict)

    def learn(self, is_success: bool) -> None:
        """Take one simulation in."""
        self.visits += 1
        below = sum(child.value for child in self.children.values())
        total = self.value * self.visits + (GOOD if is_success else BAD) + below
        self.value = total / (self.visits + len(self.children))


@dataclass(frozen=True)
class Searched:
    """What a search found."""

    teams: tuple[tuple[int, int], ...]
    """(agents of A, agents of B) of every team in the tree, the best first."""
    calls: int
    """What the simulations cost."""


def team_numbers(config: Config) -> list[int]:
    """The sizes that are searched: doubling up to all that may be spawned; nobody, where the orchestrator can work itself."""
    doubled = [2**k for k in range(16) if 2**k < config.max_agents]
    return [*([0] if config.orchestrator_works else []), *doubled, *([config.max_agents] if config.max_agents else [])]


def _team(number: int, mix: int) -> tuple[int, int]:
    b = round(number * _MIXES[mix])
    return number - b, b


def search(config: Config, simulate: Simulate, *, as_released: bool = False) -> Searched:
    """The tree after `EXPANSIONS` expansions; the best team is the most visited number and, below it, the most visited mix."""
    numbers = team_numbers(config)
    history: list[float] = []
    root, calls = Node(options=list(range(len(numbers)))), 0
    for turn in range(EXPANSIONS):
        path = _selected(root, as_released)
        chosen = [choice for choice, _ in path]
        mix = chosen[1] if len(chosen) > 1 else 0
        policy = SizedPolicy(config, _team(numbers[chosen[0]], mix), "simulated")
        values, spent = simulate(policy, turn * SIMULATIONS, SIMULATIONS)
        calls += spent
        for value in values.tolist():
            is_success = value > (float(np.mean(history)) if history else 0.0)
            history.append(value)
            for _, node in [*reversed(path), (0, root)]:
                node.learn(is_success)
        if as_released:  # selection walked a copy: what hangs below the first level is gone
            for child in root.children.values():
                child.children.clear()
                child.options = list(range(len(_MIXES)))
    return Searched(_ranked(root, numbers), calls)


def _selected(root: Node, as_released: bool) -> list[tuple[int, Node]]:
    """The way down to a node that was never tried, or to the end of the tree."""
    path: list[tuple[int, Node]] = []
    node = root
    for level in range(2):
        if node.options:
            choice = node.options.pop(0)
            node.children[choice] = Node(options=list(range(len(_MIXES))) if level == 0 else [])
            path.append((choice, node.children[choice]))
            break
        scores = {c: ucb(n.value, n.visits, node.visits, as_released=as_released) for c, n in node.children.items()}
        choice = max(scores, key=lambda c: scores[c])
        node = node.children[choice]
        path.append((choice, node))
    return path


def _ranked(root: Node, numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """Teams in the tree, by the visits of their number and then of their mix; a number without mixes counts as half and half."""
    best = lambda node: sorted(node.children, key=lambda c: (-node.children[c].visits, -node.children[c].value, c))  # noqa: E731
    teams = [_team(numbers[n], mix) for n in best(root) for mix in best(root.children[n]) or [0]]
    return tuple(dict.fromkeys(teams))


class SizedPolicy(ComposedPolicy):
    """The reference with a given team."""

    def __init__(self, config: Config, families: tuple[int, int], name: str) -> None:
        super().__init__(config, Parts(), name)
        self.families = families

    @cached_property
    def size(self) -> Size:
        """The team as given, with middle-sized briefs; time is priced as in a middle-sized team, so that tables are made once."""
        extra = self.config.round_price / (max(1, math.isqrt(self.config.max_agents)) * self.config.calls_per_round)
        return Size(self.config, self.families, extra, (2,) * len(KINDS))


class Halo:
    """Plays the team that the search found; now and then another one."""

    def __init__(self, config: Config, searched: Searched, name: str = "halo") -> None:
        self.config, self.found, self.name = config, searched, name
        self.simulated_calls = searched.calls
        self._policies = [SizedPolicy(config, team, name) for team in searched.teams]
        self._teams = np.array(searched.teams)

    def act(self, obs: Observation) -> Action:
        """What the team of each episode would do; in the first round the team is drawn."""
        logp = np.zeros((obs.episodes, len(DECISIONS)))
        if obs.round == 0:
            n = len(self._teams)
            u = obs.uniform("spawn", 0)
            other = np.minimum((u / EPSILON * n).astype(np.int64), n - 1)
            arm = np.where(u < EPSILON, other, 0)
            logp[:, _SPAWN] = np.log(np.where(arm == 0, 1 - EPSILON + EPSILON / n, EPSILON / n))
        else:
            there = np.stack([(obs.alive[:, 1:] & (obs.family[:, 1:] == f)).sum(axis=1) for f in (0, 1)], axis=1)
            arm = np.abs(there[:, None] - self._teams[None]).sum(axis=2).argmin(axis=1)
        return replace(self._joined(obs, arm), logp=logp)

    def _joined(self, obs: Observation, arm: np.ndarray) -> Action:
        """The action of each episode's own policy."""
        used = np.unique(arm)
        actions = {int(k): self._policies[k].act(obs) for k in used}
        if len(used) == 1:
            return actions[int(used[0])]
        flags = {name: np.zeros(obs.episodes, np.bool_) for name in ("stop", "broadcast", "full_return")}
        calls, spawns = [], []
        for k, action in actions.items():
            mine = arm == k
            for name, flag in flags.items():
                own = getattr(action, name)
                flag[mine] = False if own is None else own[mine]
            calls.append(action.calls.where(mine[action.calls.ep]))
            s = action.spawns
            spawns.append([getattr(s, n)[mine[s.ep]] for n in ("ep", "number", "family", "type", "parent")])
        joined = Spawns(*(np.concatenate(column) for column in zip(*spawns, strict=True)))
        parts = {"calls": Calls.joined(calls), "spawns": joined, "rule": actions[int(used[0])].rule}
        return replace(actions[int(used[0])], **flags, **parts)
