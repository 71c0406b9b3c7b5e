"""Many tables of dining philosophers at once: the rules of dpbench 0.2.1 in arrays, and the package's own episodes side by side.

What a simultaneous step does, as the package has it (fork i lies to the left of philosopher i, fork i + 1 to its right):

1. who releases puts down what it holds;
2. who grabs a fork that is free then asks for it; of two who ask the lower number gets it, and the other gets nothing;
3. in the order of numbers: who was eating is hungry again and both its forks are free; else who holds both forks eats (one meal).

So a meal takes two grabs, and its forks are free again one step after it. An episode ends in a deadlock: all hungry, each with
exactly one fork. An eater's RELEASE frees its forks for others in (2), and (3) frees them once more under the one who took them:
a neighbour with a lower number then eats with a fork that is nobody's. That flaw of the package is kept here, and used by nobody
unless a policy chooses RELEASE while it eats.

Always true: `Tables` and the package agree in every state and measure (tests/lab/bench/test_dining.py plays both). (B, N) are
episodes and philosophers; a fork's holder is -1 where it is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from counterpoint.lab.worlds.packages import Episode, package_world

ACTIONS = ("GRAB_LEFT", "GRAB_RIGHT", "RELEASE", "WAIT")
LEFT, RIGHT, RELEASE, WAIT = range(4)
STEPS = 30


@dataclass(frozen=True)
class Sight:
    """What every philosopher is told before a step, each (B, N)."""

    eating: np.ndarray
    left: np.ndarray
    """Whether the left fork is free or its own."""
    right: np.ndarray
    holds_left: np.ndarray
    holds_right: np.ndarray
    meals: np.ndarray

    @property
    def possible(self) -> np.ndarray:
        """(B, N, 4) actions that can do something: a grab at a fork that is free, a release of what is held, and to wait; who
        eats waits, as all else does nothing in the published rules."""
        held = self.holds_left | self.holds_right
        out = np.stack([self.left & ~self.holds_left, self.right & ~self.holds_right, held, np.ones_like(held)], axis=-1)
        out[self.eating] = (False, False, False, True)
        return out


class Board(Protocol):
    """Tables that can be played."""

    size: int
    is_dead: np.ndarray
    """(B,) which ended in a deadlock."""

    @property
    def count(self) -> int:
        """How many tables."""

    def sight(self) -> Sight:
        """What everybody is told now."""

    def step(self, actions: np.ndarray) -> None:
        """One step of the (B, N) numbers of actions; tables in deadlock stay as they are."""


class Tables:
    """B tables of N philosophers, all hungry, all forks free."""

    def __init__(self, count: int, size: int) -> None:
        self.size = size
        free, no = np.full((count, size), -1, np.int64), np.zeros((count, size), np.bool_)
        self.fork, self.eating, self.meals = free, no, np.zeros((count, size), np.int64)
        self.has_left, self.has_right = no, no
        self.is_dead, self.played = np.zeros(count, np.bool_), np.zeros(count, np.int64)

    @property
    def count(self) -> int:
        """B."""
        return len(self.fork)

    def _arrays(self) -> dict[str, np.ndarray]:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def subset(self, at: np.ndarray) -> Tables:
        """Copies of some tables."""
        new = Tables(0, self.size)
        new.__dict__ |= {name: value[at] for name, value in self._arrays().items()}
        return new

    def joined(self, other: Tables) -> Tables:
        """These tables, and others of the same size."""
        new, more = Tables(0, self.size), other._arrays()
        new.__dict__ |= {name: np.concatenate([value, more[name]]) for name, value in self._arrays().items()}
        return new

    def sight(self) -> Sight:
        """What everybody is told now."""
        me = np.arange(self.size)
        open_ = self.fork[:, [*range(1, self.size), 0]]
        left, right = (self.fork < 0) | (self.fork == me), (open_ < 0) | (open_ == me)
        return Sight(self.eating, left, right, self.has_left, self.has_right, self.meals)

    def step(self, actions: np.ndarray) -> None:
        """One step of the whole team."""
        fork, live = self._grabbed(actions), ~self.is_dead
        eating, meals, held = np.zeros_like(self.eating), self.meals.copy(), np.zeros((2, *self.eating.shape), np.bool_)
        for i in range(self.size):
            both = [i, (i + 1) % self.size]
            has = fork[:, both] == i
            over = self.eating[:, i]
            fork[np.flatnonzero(over)[:, None], both] = -1
            eating[:, i] = ~over & has.all(axis=1)
            held[:, :, i] = (has & ~over[:, None]).T
        meals += eating
        on = live[:, None]
        self.fork, self.meals = np.where(on, fork, self.fork), np.where(on, meals, self.meals)
        self.eating = np.where(on, eating, self.eating)
        self.has_left, self.has_right = np.where(on, held[0], self.has_left), np.where(on, held[1], self.has_right)
        self.played = self.played + live
        self.is_dead = self.is_dead | live & (~self.eating & (self.has_left != self.has_right)).all(axis=1)

    def _grabbed(self, actions: np.ndarray) -> np.ndarray:
        """Who holds what once all have released and grabbed."""
        me = np.arange(self.size)
        before = (me - 1) % self.size
        gone = actions == RELEASE
        fork = np.where((gone & self.has_left) | np.roll(gone & self.has_right, 1, axis=1), -1, self.fork)
        own, other = (actions == LEFT) & (fork < 0), np.roll(actions == RIGHT, 1, axis=1) & (fork < 0)
        by_low, by_high = np.where(me < before, own, other), np.where(me < before, other, own)
        return np.where(by_low, np.minimum(me, before), np.where(by_high, np.maximum(me, before), fork))


class PackageTables:
    """Episodes of the package itself, side by side, behind the seam of worlds from packages."""

    def __init__(self, name: str, seeds: Sequence[int]) -> None:
        """`name`: a condition as `dpbench:sim_n5_nocomm`."""
        self.episodes: list[Episode] = []
        for seed in seeds:
            episode = package_world(name)
            episode.reset(seed)
            self.episodes.append(episode)
        self.count, self.size = len(self.episodes), len(self.episodes[0].agents)
        self.is_dead = np.zeros(self.count, np.bool_)

    def sight(self) -> Sight:
        """What everybody is told now, out of the arrays of the seam."""
        told = np.array([[episode.array(agent) for agent in episode.agents] for episode in self.episodes])
        eating, left, right, holds_left, holds_right = (told[..., k] > 0.5 for k in range(5))
        return Sight(eating, left, right, holds_left, holds_right, np.rint(told[..., 5] * STEPS).astype(np.int64))

    def step(self, actions: np.ndarray) -> None:
        """The package's own step."""
        for i, episode in enumerate(self.episodes):
            if episode.turn():
                episode.step({agent: ACTIONS[a] for agent, a in zip(episode.agents, actions[i].tolist(), strict=True)})
                self.is_dead[i] = not episode.turn() and episode.measures()["deadlock"] > 0

    def measures(self) -> dict[str, np.ndarray]:
        """(B,) each of the package's own measures."""
        all_ = [episode.measures() for episode in self.episodes]
        return {name: np.array([one[name] for one in all_]) for name in all_[0]}


def fairness(meals: np.ndarray) -> np.ndarray:
    """(B,) the package's fairness: 1 - G N / (N - 1), G the Gini index of the meals; 1 where nobody ate.

    G = 2 sum_i i x_i / (N sum x) - (N + 1) / N,   x ascending, i from 1
    """
    size, total = meals.shape[1], meals.sum(axis=1)
    rank = (np.arange(1, size + 1) * np.sort(meals, axis=1)).sum(axis=1)
    gini = 2 * rank / np.maximum(size * total, 1) - (size + 1) / size
    return np.where(total == 0, 1.0, np.clip(1 - gini * size / (size - 1), 0, 1))


def measures(tables: Tables) -> dict[str, np.ndarray]:
    """(B,) the package's measures: deadlock, meals by steps played, fairness, how many never ate."""
    return {
        "deadlock": tables.is_dead.astype(np.float64),
        "throughput": tables.meals.sum(axis=1) / np.maximum(tables.played, 1),
        "fairness": fairness(tables.meals),
        "starvation": (tables.meals == 0).sum(axis=1).astype(np.float64),
    }


def means(found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Each measure's mean over episodes."""
    return {name: float(np.mean(value)) for name, value in found.items()}
