"""The stopping worlds: simulation agrees with the exact optimum, cap and prophet, and with the known ceilings.

Always true: the exact numbers share no code with the sampler, so their agreement checks both. An agreement row pools all episodes
of all repetitions; its target is 4.5 standard errors, which chance alone breaks about once in 150,000 rows.
The ceiling is (J* − J_cap)/(J_prophet − J_cap): the share of the prophet gap that the best possible rule closes
(docs/lab/research/stopping.md; the last digit of S2 depends on what a tie pays, here nothing).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_most, equal_within
from counterpoint.lab.worlds.stopping.world import StoppingWorld
from counterpoint.trace.keyed import bits, purpose
from counterpoint.trace.statistics import normal_ends

_EPISODES = 20_000
_ERRORS = 4.5
_WORLDS = ("s0", "s1", "s1b", "s2", "s3")
_CEILINGS = {"s1": 0.45, "s1b": 0.68, "s2": 0.16, "s3": 0.59}


def stopping_worlds(*, seed: int, seeds: int) -> Iterator[dict[str, Any]]:
    """Every stopping world at its default parameters, 20,000 fresh episodes per repetition."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    for name in _WORLDS:
        for row in _rows(registry.get("world", name), seed, seeds):
            yield row.as_dict()


def _rows(world: StoppingWorld, seed: int, seeds: int) -> Iterator[ClaimRow]:
    exact = world.solution()
    played: dict[str, list[np.ndarray]] = {"optimum": [], "best_cap": [], "prophet": []}
    for repetition in tracked(range(seed, seed + seeds), "seeds"):
        episodes = (
            bits(repetition, purpose(f"stopping worlds claim {world.name}"), np.arange(_EPISODES)) >> np.uint64(1)
        ).astype(np.int64)
        for policy in ("optimum", "best_cap"):
            played[policy].append(world.run(policy, episodes).values)
        played["prophet"].append(world.paths(episodes).payoffs.max(axis=1))
    for what, value in (("optimum", exact.value), ("best_cap", exact.cap), ("prophet", exact.prophet)):
        yield _agrees(f"{world.short} {what.replace('_', ' ')}, simulated", np.concatenate(played[what]), value)
    if world.name in _CEILINGS:
        yield equal_within(
            f"{world.short} ceiling: optimum as share of the prophet gap", exact.ceiling, _CEILINGS[world.name], 0.01
        )
    else:
        yield at_most(f"{world.short} optimum above best cap", abs(exact.value - exact.cap), 1e-9)


def _agrees(name: str, values: np.ndarray, exact: float) -> ClaimRow:
    mean, error = float(values.mean()), float(values.std(ddof=1)) / len(values) ** 0.5
    is_near = bool(abs(mean - exact) <= _ERRORS * error)
    return ClaimRow(name, mean, *normal_ends(mean, error), f"within {_ERRORS:g} se of exact {exact:.4f}", is_near)
