"""Every released world hears a planted error in every sub-decision that it does not list as silent.

Always true: losses are paired differences on fresh seeds, as a share of the oracle's return; heard means at least 3 % at 5
standard errors. A sub-decision that a world lists as silent must indeed be silent, and none may be silent everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import counterpoint.registry as registry
from counterpoint.bench.claim import ClaimRow
from counterpoint.envs.keyed import child_seed, purpose
from counterpoint.envs.teamworld.screening import LEAST_LOSS, LEAST_SE, SUB_DECISIONS, worst
from counterpoint.envs.teamworld.world import TeamWorld
from counterpoint.errors import InputError


def screening(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Seven worlds, five sub-decisions, `seeds` repetitions of each; a row shows the repetition in which the loss was least
    clear."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    heard = dict.fromkeys(SUB_DECISIONS, 0)
    worlds = [w for w in (registry.get("env", name) for name in registry.ids("env")) if isinstance(w, TeamWorld)]
    for world in worlds:
        for sub_decision in SUB_DECISIONS:
            row = _row(world, sub_decision, seed, seeds)
            heard[sub_decision] += sub_decision not in world.silent and row.ok
            yield row
    for sub_decision, count in heard.items():
        yield ClaimRow(f"worlds that hear {sub_decision}", float(count), None, None, ">= 1", count >= 1)


def _row(world: TeamWorld, sub_decision: str, seed: int, seeds: int) -> ClaimRow:
    found = [
        worst(world.config, sub_decision, child_seed(s, purpose(f"screening {world.name} {sub_decision}")) >> 16)
        for s in range(seed, seed + seeds)
    ]
    least = min(found, key=lambda loss: loss.loss / max(loss.se, 1e-12))
    low, high = least.loss - 1.96 * least.se, least.loss + 1.96 * least.se
    name = f"{world.short} {sub_decision}: {least.error}"
    if sub_decision in world.silent:
        return ClaimRow(f"{name} (silent)", least.loss, low, high, f"< {LEAST_LOSS:g}", not any(loss.is_heard for loss in found))
    return ClaimRow(name, least.loss, low, high, f">= {LEAST_LOSS:g} at {LEAST_SE:g} se", all(loss.is_heard for loss in found))
