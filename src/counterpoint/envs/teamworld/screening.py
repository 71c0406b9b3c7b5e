"""Does every sub-decision matter? Planted errors, one sub-decision at a time, on paired seeds.

    loss(error) = mean_s [V_s(oracle) − V_s(oracle with one wrong part)] / |mean_s V_s(oracle)|

Always true: a planted error differs from the oracle in one sub-decision only; a sub-decision is heard in a configuration if at
least one of its planted errors loses 3 % at 5 standard errors of the paired difference, and silent otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.play import play
from counterpoint.envs.teamworld.policies.composed import ComposedPolicy, Parts

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
