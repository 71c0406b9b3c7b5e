"""A policy trained on W1 with at most 64 questions is used, as it is, with 256, 1,024 and 4,096.

Always true: training sees tasks of 16, 32 and 64 questions and nothing larger; no parameter of the optimum is read; the
network is not changed afterwards. A share is the mean return over the certified bound of the larger world (which may spawn as
many agents as it wants). Controls are hand-made policies on the same tasks. Survey arXiv 2605.02801, P5: trained at k agents,
used at k'.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import counterpoint.registry as registry
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._learned import share, train_all
from counterpoint.lab.worlds.teamworld.world import TeamWorld

SMALL = ({"vote_items": 16}, {"vote_items": 32}, {"vote_items": 64})
_SIZES = {64: (200, 0.93), 256: (60, 0.93), 1024: (16, 0.9), 4096: (6, 0.9)}
UPDATES = 100
_CONTROLS = ("reference", "spawn_all", "random")


def generalise(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """One run per seed on small tasks; shares of the bound at four sizes."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    w1: TeamWorld = registry.get("world", "wide_verify")
    runs = train_all(
        [
            {
                "preset": "counterpoint",
                "world": "W1",
                "seed": s,
                "mix": [dict(m) for m in SMALL],
                "updates": UPDATES,
                "budget_calls": 0,
            }
            for s in range(seed, seed + seeds)
        ]
    )
    worst: list[float] = []
    for size, (episodes, target) in _SIZES.items():
        world = w1.replace(vote_items=size, max_agents=512)
        found = [share(r, world, np.arange(episodes) + 500_000) for r in runs]
        worst.append(min(found))
        yield at_least(f"trained at N <= 64, used at N={size}: share of the bound", found, target)
        for name in _CONTROLS:
            by_hand = world.run(name, np.arange(episodes) + 500_000).values.mean() / world.optimum().value
            yield reported(f"N={size}: {name}, by hand", float(by_hand))
    for size, least in zip(_SIZES, worst, strict=True):
        yield at_least(f"the worst seed at N={size}", least, 0.9)
