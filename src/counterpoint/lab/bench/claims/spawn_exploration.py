"""A spawn head that almost never spawns learns to, when six in a hundred of its rollouts are forced forks.

Always true: equal budgets, forks counted; 400 updates; a run succeeds when it is at 95 % of the optimum and stays there. Four
worlds per seed, so five seeds are twenty runs.

The world of the first rows is that of the claim `anneal` (8 buckets, 8 rollouts each, half of the buckets gain 0.15 to 0.5
from a spawn, noise 0.3); the other worlds draw 3 to 16 buckets, 4 to 12 rollouts each, any share of gaining buckets, and
noise 0.1 to 0.6 from the seed. In the tables, a fork shares nothing but its prefix. TeamWorld is W1 with 2 to 48 items, one
worker against a team of eight, every size counted alike, and a fork is the same seed with the gate forced; its effects are so
large that a lucky spawn or two can do without forks, hence a row on time and not on success. One natural-gradient head (eta
0.25, decay 0.99) for all (docs/lab/research/spawn-credit.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most, equal_within
from counterpoint.lab.bench.claims.anneal import SpawnWorld
from counterpoint.lab.bench.spawn_table import SpawnStats, forks, natural_step, reinforce_step, softmax
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.lab.worlds.wide_verify import wide_verify

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
            values[c, arm] = world.run(ComposedPolicy(world.config, Parts(spawn=spawn), spawn), seeds).values

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


_RARE, _FORKS, _WORLDS = 4e-4, 1 / 16, 4
_SIZES = (2, 8, 16, 24, 32, 48)


def _listed(s: int, k: int) -> GateWorld:
    world = SpawnWorld.of(np.random.default_rng([s, k, 0]))
    return table_world(world.worth_CA, world.noise, 8)


def _drawn(s: int, k: int) -> GateWorld:
    """Other parameters; at least one bucket gains from a spawn, as else there is nothing to find."""
    rng = np.random.default_rng([s, k, 2])
    buckets = int(rng.integers(3, 17))
    gains = rng.random(buckets) < rng.uniform(0.2, 0.8)
    gains[rng.integers(buckets)] = True
    noop, gain = rng.uniform(0.3, 0.7, buckets), rng.uniform(0.15, 0.5, buckets) * np.where(gains, 1, -1)
    return table_world(np.stack([noop, noop + gain], axis=1), float(rng.uniform(0.1, 0.6)), int(rng.integers(4, 13)))


@cache
def _team(s: int, k: int) -> GateWorld:
    return team_world(s, _SIZES, width=8, episodes=1000, group=8)


Make = Callable[[int, int], GateWorld]
Runs = dict[int, list[GateRun]]


def _runs(make: Make, seeds: range, start: float, fork_share: float, how: str = "natural", worlds: int = _WORLDS) -> Runs:
    def run(s: int, k: int) -> GateRun:
        return learn_gate(make(s, k), np.random.default_rng([s, k, 1]), start=start, fork_share=fork_share, how=how)

    return {s: [run(s, k) for k in range(worlds)] for s in tracked(seeds, "seeds")}


def _hits(runs: Runs) -> list[float]:
    """Per seed, the share of its runs that got there."""
    return [float(np.mean([r.reached is not None for r in rs])) for rs in runs.values()]


def _updates(runs: Runs) -> list[float]:
    """Per seed, the mean number of updates; a run that never got there counts 401."""
    return [float(np.mean([r.reached or UPDATES + 1 for r in rs])) for rs in runs.values()]


def spawn_exploration(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Twenty runs per row at five seeds (five in TeamWorld)."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    all_ = range(seed, seed + seeds)
    rare = _runs(_listed, all_, _RARE, _FORKS)
    yield at_least("from 0.0004, forks: runs at 95 % in 400 updates", _hits(rare), 1.0)
    yield at_most("from 0.0004, forks: updates to 95 %", _updates(rare), UPDATES)
    for start in (0.02, 0.29):
        runs = _runs(_listed, all_, start, _FORKS)
        yield at_least(f"from {start}, forks: runs at 95 % in 400 updates", _hits(runs), 1.0)
        yield at_most(f"from {start}, forks: updates to 95 %", _updates(runs), UPDATES)
    none = _runs(_listed, all_, _RARE, 0.0)
    plain = _runs(_listed, all_, _RARE, 0.0, "reinforce")
    yield at_most("from 0.0004, control without forks: such runs", _hits(none), 0.25)
    yield at_most("from 0.0004, control REINFORCE: such runs", _hits(plain), 0.25)
    spent = [sum(r.rollouts for r in rare[s]) / sum(r.rollouts for r in none[s]) for s in all_]
    yield equal_within("rollouts played, forks over no forks", spent, 1.0, 0.0)
    others = _runs(_drawn, all_, _RARE, _FORKS)
    yield at_least("other worlds, from 0.0004, forks: such runs", _hits(others), 1.0)
    yield at_most("other worlds, from 0.0004, forks: updates to 95 %", _updates(others), UPDATES)
    team = _runs(_team, all_, _RARE, _FORKS, worlds=1)
    yield at_least("TeamWorld W1, from 0.0004, forks: such runs", _hits(team), 1.0)
    yield at_most("TeamWorld W1, from 0.0004, forks: updates to 95 %", _updates(team), UPDATES)
    alone = _runs(_team, all_, _RARE, 0.0, worlds=1)
    saved = [b - a for a, b in zip(_updates(team), _updates(alone), strict=True)]
    yield at_least("TeamWorld W1: updates that forks save", saved, 100)
