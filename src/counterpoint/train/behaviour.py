"""What a learned orchestrator does, sub-decision by sub-decision, counted over greedy episodes.

Always true: everything here is counted from episodes that were played, by the learned policy and by the one it is set beside,
on the same seeds; nothing is read off the network's weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.envs.teamworld.config import FAMILIES, KINDS, RULES, Config
from counterpoint.envs.teamworld.play import play
from counterpoint.envs.teamworld.world import TeamWorld
from counterpoint.train.evaluate import scaled
from counterpoint.train.policies.network import Network
from counterpoint.train.rollouts import play_out


@dataclass(frozen=True)
class Behaviour:
    """Numbers per sub-decision."""

    spawn: list[tuple[int, float, float]]
    """O1: items of the task, agents that the learned policy spawns, agents that the other one does."""
    delegate: dict[str, dict[str, float]]
    """O2: by kind of item, the share of its calls that each family gets."""
    communicate: dict[int, float]
    """O3: share of calls by size of brief."""
    aggregate: dict[str, float]
    """O4: share of rounds by rule."""
    stop: dict[str, tuple[float, float]]
    """O5: by kind of item, calls before it is left: learned, and the other policy's."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "spawn": [{"items": n, "learned": a, "other": b} for n, a, b in self.spawn],
            "delegate": self.delegate,
            "communicate": {str(k): v for k, v in self.communicate.items()},
            "aggregate": self.aggregate,
            "stop": {k: {"learned": a, "other": b} for k, (a, b) in self.stop.items()},
        }


def _per_kind(config: Config, calls: np.ndarray) -> dict[str, float]:
    """Mean calls per item, by kind that has items."""
    ends = np.cumsum(config.counts)
    return {k: float(calls[:, end - n : end].mean()) for k, n, end in zip(KINDS, config.counts, ends, strict=True) if n}


def behaviour(
    net: Network, world: TeamWorld, seeds: range, *, beside: str = "reference", factors: tuple[float, ...] = (0.25, 0.5, 1, 2)
) -> Behaviour:  # fmt: skip
    """Count what the network does on these seeds, and what a hand-made policy does."""
    numbers = np.asarray(seeds)
    config = world.config
    out = play_out(config, net, numbers, np.zeros(len(numbers), np.int64), greedy=True)
    other = play(config, world.policy(beside), numbers)
    item = out.tables["item"]
    called = np.flatnonzero(item["agent"] >= 0)
    kind = item["x"][called, :5].argmax(axis=1)
    family = item["agent_x"][called, :2].argmax(axis=1)
    share = {KINDS[k]: {name: float((family[kind == k] == f).mean()) for f, name in enumerate(FAMILIES)} for k in np.unique(kind)}
    told = item["agent"][called] > 0
    brief = item["brief"][called][told]
    rule = out.tables["rule"]["choice"] if "rule" in out.tables else np.zeros(0, np.int64)
    made = np.zeros((len(numbers), config.items))
    np.add.at(made, (item["ep"][called], item["item"][called]), 1)
    mine, theirs = _per_kind(config, made), _per_kind(config, other.state.calls)
    return Behaviour(
        spawn=[_width(net, scaled(world, f), numbers[:12], beside) for f in factors],
        delegate=share,
        communicate={b: float((brief == b).mean()) if len(brief) else 0.0 for b in range(4)},
        aggregate={name: float((rule == r).mean()) if len(rule) else 0.0 for r, name in enumerate(RULES)},
        stop={k: (mine[k], theirs[k]) for k in mine},
    )


def _width(net: Network, world: TeamWorld, seeds: np.ndarray, beside: str) -> tuple[int, float, float]:
    """Items, and the team sizes of both policies."""
    out = play_out(world.config, net, seeds, np.zeros(len(seeds), np.int64), greedy=True)
    other = play(world.config, world.policy(beside), seeds)
    return world.config.items, float(out.columns["agents"].mean()), float(other.state.spawned.mean())
