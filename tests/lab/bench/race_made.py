"""A small race: one tiny world, few held-out tasks, budgets of two or three updates."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterpoint.lab.bench.race.plan import PLANS, Plan, Race, methods
from counterpoint.lab.train.jobs import world_of

TINY = {"vote_items": 6, "max_agents": 4}
SHORT = {**TINY, "max_rounds": 8}


@dataclasses.dataclass(frozen=True)
class TinyWorld:
    """W1 with six questions, and with four."""

    name: str = "tiny"
    world: str = "W1"
    set: Mapping[str, Any] = dataclasses.field(default_factory=lambda: dict(SHORT))
    decision: str = "O1"
    mix: tuple[Mapping[str, Any], ...] = ({}, {"vote_items": 4})

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def bound(self) -> float:
        return float(np.mean([world_of(self.world, {**self.set, **task}).optimum().value for task in self.mix]))


class TinyRace(Race):
    """A race that is tuned on its own worlds."""

    @property
    def tuned_on(self) -> Any:
        return self.worlds[: self.plan.tune_worlds]


def tiny(
    only: Sequence[str], *, seeds: int = 2, budget: int = 60, plan: str = "screening", world: Any = None, **changes: Any
) -> Race:
    """Some presets in the tiny world, or another; tuned where a plan with a budget for it is named."""
    changes = {**({"tune_budget": 0, "published_seeds": 5} if plan == "screening" else {}), **changes}
    of_plan: Plan = dataclasses.replace(PLANS[plan].with_budget(budget), tasks=4, **changes)
    return TinyRace(of_plan, "core", tuple(methods(only)), (world or TinyWorld(),), seeds)


def row(method: str, seed: int, value: float, **fields: Any) -> dict[str, Any]:
    """A row by hand: bound 10, budget 100, a straight curve from 0."""
    base = {"phase": "final", "method": method, "point": "published", "world": "w", "seed": seed, "budget": 100, "bound": 10.0}
    found = {"status": "done", "value": value, "curve": [[0, 0.0], [100, value]], "cpu_s": 2.0, "collapsed": False, "code": "c"}
    return {**base, **found, "spent": {"charged": 100}, **fields}
