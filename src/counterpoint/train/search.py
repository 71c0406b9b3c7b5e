"""Choices without learning: HALO's tree search (2505.13516) and AgentSpawn's trigger (2602.07072).

Always true: plain numbers in, plain numbers out. HALO's released code keeps a mean in `value` and divides it by the visits once
more in its UCB; that is `as_released=True`, the default is UCB1. AgentSpawn is known from its abstract: the names and weights
of its measures are ours, the depth cap of 3 is second-hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from counterpoint.errors import InputError


def halo_ucb(value: float, visits: int, parent_visits: int, *, w: float = 1.4, as_released: bool = False) -> float:
    """value + w sqrt(ln N_parent / visits); an unvisited child comes first. As released: value / visits + ..."""
    if visits == 0:
        return math.inf
    mean = value / visits if as_released else value
    return mean + w * math.sqrt(math.log(parent_visits) / visits)


def halo_backprop(
    value: float, visits: int, children: Sequence[float], *, success: bool, gain: float = 0.7, loss: float = -0.3
) -> tuple[float, int]:
    """(value, visits) after one more visit: (value·visits' + x + Σ children) / (visits' + children), visits' = visits + 1."""
    seen = visits + 1
    return (value * seen + (gain if success else loss) + sum(children)) / (seen + len(children)), seen


def spawn_trigger(
    metrics: Sequence[float], weights: Sequence[float], *, threshold: float, depth: int, max_depth: int = 3
) -> tuple[float, bool]:
    """(score, spawn): spawn when the weighted complexity reaches the threshold and the team may grow deeper."""
    if len(metrics) != len(weights):
        raise InputError(f"{len(metrics)} metrics and {len(weights)} weights", fix="one weight per metric")
    score = sum(m * w for m, w in zip(metrics, weights, strict=True))
    return score, score >= threshold and depth < max_depth
