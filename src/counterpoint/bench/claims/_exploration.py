"""A spawn gate learnt from rollouts, with or without forced forks, in a table of worths or in TeamWorld.

Always true: an update costs the same number of rollouts with forks as without, forks counted; a fork plays the other arm at
the same prefix. The share of the optimum is computed from the policy and the known worths, not from draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoint.envs.teamworld.policies.parts import Parts, Team
from counterpoint.envs.worlds.wide_verify import wide_verify
from counterpoint.train.spawn_head import SpawnStats, forks, natural_step, reinforce_step, softmax

UPDATES = 400
SHARE = 0.95
Play = Callable[[np.random.Generator, NDArray[np.int64]], Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]]


@dataclass(frozen=True)
class GateWorld:
    """Buckets of prefixes, two arms (0 is noop, 1 is spawn), and how to play them."""

    worth_CA: np.ndarray
    """Expected return."""
    group: int
    """Rollouts per bucket and update."""
    play: Play
    """play(rng, buckets) begins episodes; what it returns plays (episodes, arms) and gives returns. The prefix is shared."""

    def share(self, spawn_C: np.ndarray) -> float:
        """Expected return as a share of the optimum's."""
        got = self.worth_CA[:, 0] * (1 - spawn_C) + self.worth_CA[:, 1] * spawn_C
        return float(got.mean() / self.worth_CA.max(axis=1).mean())


@dataclass(frozen=True)
class GateRun:
    """What learning gave."""

    reached: int | None
    """First update at 95 % of the optimum from which it was not lost again; None where it never came."""
    rollouts: int
    """Played, forks included."""


def table_world(worth_CA: np.ndarray, noise: float, group: int) -> GateWorld:
    """A known worth per bucket and arm, and noise that a fork does not share: the hard case for forks."""

    def play(rng: np.random.Generator, bucket: NDArray[np.int64]) -> Callable[..., NDArray[np.float64]]:
        return lambda episode, arm: worth_CA[bucket[episode], arm] + noise * rng.standard_normal(len(episode))

    return GateWorld(worth_CA, group, play)


def team_world(seed: int, sizes: tuple[int, ...], *, width: int, episodes: int, group: int) -> GateWorld:
    """W1 with few items: one worker, or `width` of them. Episodes of both arms have the same seeds, so forks are coupled.

    They are played beforehand, all at once; learning sees those that it asks for. Returns are in units of the better arm's mean
    at that size, so that every size counts alike.
    """
    seeds = np.random.default_rng([seed, 3]).integers(0, 2**31, episodes)
    values = np.empty((len(sizes), 2, episodes))
    for c, items in enumerate(sizes):
        world = wide_verify.replace(vote_items=items, max_agents=width)
        for arm, spawn in enumerate(("serial", "all")):
            values[c, arm] = world.run(Team(world.config, Parts(spawn=spawn), spawn), seeds).values

    values /= values.mean(axis=2).max(axis=1)[:, None, None]

    def play(rng: np.random.Generator, bucket: NDArray[np.int64]) -> Callable[..., NDArray[np.float64]]:
        which = rng.integers(0, episodes, len(bucket))
        return lambda episode, arm: values[bucket[episode], arm, which[episode]]

    return GateWorld(values.mean(axis=2), group, play)


def learn_gate(world: GateWorld, rng: np.random.Generator, *, start: float, fork_share: float, how: str = "natural") -> GateRun:
    """400 updates from a spawn probability, `how` natural or reinforce."""
    buckets = len(world.worth_CA)
    logits = np.tile([0.0, np.log(start / (1 - start))], (buckets, 1))
    stats, budget = SpawnStats.of(buckets), buckets * world.group
    forced = round(fork_share * budget)
    own, reached, rollouts = budget - forced, None, 0
    for update in range(UPDATES):
        pi = softmax(logits)
        bucket = rng.permutation(np.arange(own) % buckets)
        arm = (rng.random(own) < pi[bucket, 1]).astype(np.int64)
        rows, other = forks(rng, arm, 2, forced)
        episode, played = np.append(np.arange(own), rows), np.append(arm, other)
        returns = world.play(rng, bucket)(episode, played)
        rollouts += len(returns)
        if how == "reinforce":
            logits = reinforce_step(logits, bucket, arm, returns[:own])
        else:
            where = bucket[episode]
            stats = stats.updated(where, played, returns, propensity=pi[where, played], fork_share=forced / budget)
            logits = natural_step(logits, stats)
        reached = (reached or update + 1) if world.share(softmax(logits)[:, 1]) >= SHARE else None
    return GateRun(reached, rollouts)
