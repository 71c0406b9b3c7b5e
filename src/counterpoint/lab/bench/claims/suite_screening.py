"""Every sub-decision is worth at least 10 % of the bound in some world of the suites, beyond a fixed rule.

Always true: for each world of the full suite and each of the five sub-decisions, the whole family of fixed rules (`fixed_rules`)
plays with the other four as the best known play has them. The known play is attained, not a bound: it plays the same tasks, and
differences are paired. A repetition is one seed, with tasks of its own; intervals are Student's over the repetitions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most, reported
from counterpoint.lab.worlds.teamworld.suites import DECISIONS, SUITES, SuiteWorld, screen
from counterpoint.trace.keyed import bits, purpose

LEAST = 0.10
_TASKS, _MORE = 32, {"campaign": 4}  # of each sort, world and repetition; so many times as many where 32 leave it to chance
_REHEARSED = 8
_CORE = {world.name for world in SUITES["core"]}


def suite_screening(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Every world of the suites; then, for each sub-decision, how many worlds of the core are about it."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    held = dict.fromkeys(DECISIONS, 0)
    for world in SUITES["full"]:
        for decision, row in _rows(world, seed, seeds):
            if decision in world.decisions and world.name in _CORE:
                held[decision] += row.ok
            yield row
    for decision, count in held.items():
        yield at_least(f"core worlds that hold {decision}", count, 1)


def _numbers(world: SuiteWorld, seed: int, what: str, each: int) -> np.ndarray:
    """`each` fresh seeds of every sort of task: a seed's rest by the number of sorts says which it is."""
    sorts = len(world.mix)
    drawn = bits(seed, purpose(f"{what} {world.name}"), np.arange(each * sorts)).astype(np.uint64) >> np.uint64(24)
    return (drawn.astype(np.int64) // sorts) * sorts + np.arange(each * sorts) % sorts


def _rows(world: SuiteWorld, seed: int, seeds: int) -> Iterator[tuple[str, ClaimRow]]:
    every = range(seed, seed + seeds)
    numbers = np.concatenate([_numbers(world, s, "suite", _TASKS * _MORE.get(world.name, 1)) for s in every])
    rehearsal = _numbers(world, seed, "suite rehearsal", _REHEARSED)
    known = world.values(world.known, numbers)
    per_seed = (len(every), -1)
    share = known.reshape(per_seed).mean(axis=1) / world.bound
    yield "", at_most(f"{world.name}: known play, share of the bound", share, 1.0, by="low" if seeds > 1 else "mean")
    for decision in DECISIONS:
        found = screen(world, decision, numbers, rehearsal, known)
        gap = ((found.known - found.fixed).reshape(per_seed).mean(axis=1) / world.bound).tolist()
        name = f"{world.name}, {decision}: known - {found.rule}"
        is_about = decision in world.decisions
        yield decision, at_least(name, gap, LEAST, by="low" if seeds > 1 else "mean") if is_about else reported(name, gap)
