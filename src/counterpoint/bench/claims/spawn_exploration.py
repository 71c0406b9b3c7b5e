"""A spawn head that almost never spawns learns to, when six in a hundred of its rollouts are forced forks.

Always true: equal budgets, forks counted; 400 updates; a run succeeds when it is at 95 % of the optimum and stays there. Four
worlds per seed, so five seeds are twenty runs. The world of the first rows is that of research B6 (8 buckets, 8 rollouts each,
half of the buckets gain 0.15 to 0.5 from a spawn, noise 0.3); the other worlds draw 3 to 16 buckets, 4 to 12 rollouts each,
any share of gaining buckets, and noise 0.1 to 0.6 from the seed. In the tables, a fork shares nothing but its prefix.
TeamWorld is W1 with 2 to 48 items, one worker against a team of eight, every size counted alike, and a fork is the same seed
with the gate forced; its effects are so large that a lucky spawn or two can do without forks, hence a row on time and not on
success. One natural-gradient head (eta 0.25, decay 0.99) for all. Research notes B3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from counterpoint.bench.claim import Row, at_least, at_most, equal_within
from counterpoint.bench.claims._b6_spawn import SpawnWorld
from counterpoint.bench.claims._exploration import UPDATES, GateRun, GateWorld, learn_gate, table_world, team_world
from counterpoint.errors import InputError

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

    return {s: [run(s, k) for k in range(worlds)] for s in seeds}


def _hits(runs: Runs) -> list[float]:
    """Per seed, the share of its runs that got there."""
    return [float(np.mean([r.reached is not None for r in rs])) for rs in runs.values()]


def _updates(runs: Runs) -> list[float]:
    """Per seed, the mean number of updates; a run that never got there counts 401."""
    return [float(np.mean([r.reached or UPDATES + 1 for r in rs])) for rs in runs.values()]


def spawn_exploration(*, seed: int, seeds: int) -> Iterator[Row]:
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
