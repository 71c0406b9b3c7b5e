"""A world with rules of its own that is no template: a lead opens ferries, each chooses among its piers, and the lead goes on or stops.

Always true: piers and what they hold depend on the seed alone; the best is to open three ferries in every round, each at its best pier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.lab.worlds.rules.decision import Decision
from counterpoint.lab.worlds.rules.world import RulesWorld
from counterpoint.lab.worlds.world import Optimum, parameter

NUMBERS, PIERS = ("one", "two", "three"), 5


@dataclass(frozen=True)
class Config:
    """The numbers of the ferries."""

    rounds: int = parameter(2, "rounds", "The most of an episode.")
    fee: float = parameter(40.0, "coins", "Of each ferry that is opened.")


class Trip:
    """One episode."""

    def __init__(self, config: Config, seed: int) -> None:
        rng = np.random.default_rng(seed)
        sizes = rng.integers(2, PIERS + 1, (config.rounds, 3))
        self.coins = [[rng.integers(0, 1000, n).tolist() for n in row] for row in sizes]
        self.config, self.round, self.number, self.moored, self.is_over = config, 0, 0, 0, False

    def decision(self) -> Decision | None:
        if self.is_over:
            return None
        state = (self.round, self.config.fee, self.moored)
        if not self.number:
            return Decision(kind="spawn", state=state, options=[(n + 1, 0) for n in range(3)], names=NUMBERS)
        if self.moored < self.number:
            piers = self.coins[self.round][self.moored]
            names = [f"pier {k}" for k in range(len(piers))]
            who = f"ferry-{self.moored}"
            return Decision(kind="delegate", state=state, options=[(0, n) for n in piers], names=names, agent=who, role="ferry")
        return Decision(kind="stop", state=state, options=((1, 1), (2, 2)), names=("stop", "go on"))

    def act(self, option: int) -> float:
        if not self.number:
            self.number = option + 1
            return -self.config.fee * self.number
        if self.moored < self.number:
            self.moored += 1
            return float(self.coins[self.round][self.moored - 1][option])
        self.round, self.number, self.moored = self.round + 1, 0, 0
        self.is_over = option == 0 or self.round == self.config.rounds
        return 0.0


def best(config: Config) -> Optimum:
    """The largest of k numbers below 1000, k from 2 to 5."""
    mean = np.mean([sum(1 - (n / 1000) ** k for n in range(1, 1000)) for k in range(2, PIERS + 1)])
    value = config.rounds * 3 * (float(mean) - config.fee)
    return Optimum(value=value, kind="exact", over="every policy", how="three ferries at their best piers, in every round")


def largest(decision: Decision) -> int:
    """The option whose numbers are the largest: three ferries, the best pier, go on."""
    return int(np.argmax([sum(numbers) for numbers in decision.options]))


ferry = RulesWorld(name="ferry", config=Config(), begin=Trip, best=best, rules={"largest": largest})


class Broken:
    """A ferry of which one thing is wrong, from its fourth decision on."""

    def __init__(self, config: Config, seed: int, **wrong: Any) -> None:
        self.inner, self.wrong, self.count = Trip(config, seed), wrong, 0

    def decision(self) -> Any:
        due, wrong = self.inner.decision(), self.wrong
        if self.count < 3:
            return due
        if "decision" in wrong:
            return wrong["decision"]
        if "raises" in wrong:
            raise wrong["raises"]
        if due is None:
            return None
        told = {name: getattr(due, name) for name in ("kind", "state", "options", "names", "agent", "role")}
        return Decision(**told | {name: value for name, value in wrong.items() if name in told})

    def act(self, option: int) -> Any:
        self.count += 1
        paid = self.inner.act(option)
        self.inner.is_over = self.inner.is_over and "endless" not in self.wrong
        if "endless" in self.wrong:
            self.inner.round = 0
        return self.wrong["reward"] if self.count > 3 and "reward" in self.wrong else paid


def broken(**wrong: Any) -> RulesWorld:
    """The ferries with something wrong."""
    return RulesWorld(name="broken", config=Config(), begin=lambda c, s: Broken(c, s, **wrong), best=best)
