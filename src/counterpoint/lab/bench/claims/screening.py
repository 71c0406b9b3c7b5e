"""Every released world hears a planted error in every sub-decision that it does not list as silent.

Always true: losses are paired differences on fresh seeds, as a share of the oracle's return; heard means at least 3 % at 5
standard errors. A sub-decision that a world lists as silent must indeed be silent, and none may be silent everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

import counterpoint.registry as registry
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.policies import play
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace.keyed import child_seed, purpose
from counterpoint.trace.statistics import normal_ends

# -- Does every sub-decision matter? Planted errors, one sub-decision at a time, on paired seeds ----------------------
#     loss(error) = mean_s [V_s(oracle) − V_s(oracle with one wrong part)] / |mean_s V_s(oracle)|
#
# Always true: a planted error differs from the oracle in one sub-decision only; a sub-decision is heard in a configuration if
# at least one of its planted errors loses 3 % at 5 standard errors of the paired difference, and silent otherwise.

LEAST_LOSS, LEAST_SE = 0.03, 5.0
SUB_DECISIONS = ("spawn", "delegate", "communicate", "aggregate", "stop")
_RIGHT = Parts(play="optimal")
PLANTED: dict[str, dict[str, Parts]] = {
    "spawn": {f"spawn {way}": replace(_RIGHT, spawn=way) for way in ("serial", "quarter", "fourfold", "all")},
    "delegate": {way: replace(_RIGHT, delegate=way) for way in ("blind", "cheap", "others")},
    "communicate": {f"brief {b}": replace(_RIGHT, brief=b) for b in (0, 1, 3)} | {"broadcast": replace(_RIGHT, broadcast=True)},
    "aggregate": {rule: replace(_RIGHT, aggregate=rule) for rule in ("lossy", "first", "naive", "majority", "weighted")},
    "stop": {f"cap {cap}": replace(_RIGHT, cap=cap) for cap in (1, 2, 3, 5, 10, 40, 1000)}
    | {"3 rounds": replace(_RIGHT, rounds=3)},
}


@dataclass(frozen=True)
class PlantedLoss:
    """What one planted error costs."""

    sub_decision: str
    error: str
    loss: float
    """As a share of the oracle's return."""
    se: float
    """Standard error of the loss, from the paired differences."""

    @property
    def is_heard(self) -> bool:
        """It loses enough, surely enough."""
        return self.loss >= LEAST_LOSS and self.loss >= LEAST_SE * self.se


def losses(config: Config, seeds: Sequence[int], sub_decisions: Sequence[str] = SUB_DECISIONS) -> list[PlantedLoss]:
    """Every planted error of the sub-decisions, on the same seeds."""
    right = play(config, ComposedPolicy(config, _RIGHT, "oracle"), seeds).value()
    scale, out = abs(float(right.mean())), []
    for name in sub_decisions:
        for error, parts in PLANTED[name].items():
            gap = (right - play(config, ComposedPolicy(config, parts, error), seeds).value()) / scale
            out.append(PlantedLoss(name, error, float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))))
    return out


def worst(config: Config, sub_decision: str, seed: int, *, episodes: Sequence[int] = (40, 160, 640)) -> PlantedLoss:
    """The planted error that is heard most clearly, with more episodes while none is heard; 5 standard errors allow the
    looking."""
    found = []
    for number in episodes:
        found = losses(config, range(seed, seed + number), [sub_decision])
        if any(loss.is_heard for loss in found):
            break
    heard = [loss for loss in found if loss.is_heard]
    return max(heard or found, key=lambda loss: loss.loss)


def screening(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Seven worlds, five sub-decisions, `seeds` repetitions of each; a row shows the repetition in which the loss was least
    clear."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    heard = dict.fromkeys(SUB_DECISIONS, 0)
    worlds = [w for w in (registry.get("world", name) for name in registry.ids("world")) if isinstance(w, TeamWorld)]
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
        for s in tracked(range(seed, seed + seeds), "seeds")
    ]
    least = min(found, key=lambda loss: loss.loss / max(loss.se, 1e-12))
    low, high = normal_ends(least.loss, least.se)
    name = f"{world.short} {sub_decision}: {least.error}"
    if sub_decision in world.silent:
        return ClaimRow(f"{name} (silent)", least.loss, low, high, f"< {LEAST_LOSS:g}", not any(loss.is_heard for loss in found))
    return ClaimRow(name, least.loss, low, high, f">= {LEAST_LOSS:g} at {LEAST_SE:g} se", all(loss.is_heard for loss in found))
