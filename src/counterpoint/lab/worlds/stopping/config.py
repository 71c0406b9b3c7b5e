"""The numbers of the stopping worlds: wide search (S0, S1, S1b), verification votes (S2), saturation (S3).

Always true: a config that exists is possible; every impossible value was one `InputError`. Rounds are counted from 1, checkpoints
from 0 (before any round) to `horizon`; each round costs `price` points, and what it brings is a whole number, its increment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.world import parameter

# The largest tables: beyond them an exact optimum takes minutes, so such a world is refused when it is made.
_MOST_ITEMS, _MOST_ROUNDS = 10_000, 1_000
_CHANCE = "a chance is 0 to 1"


# Dials of several of these worlds, each declared once.
def _find() -> Any:
    return parameter(0.12, "1", "The chance that a round finds a given item that is still hidden.")


def _price(default: float) -> Any:
    return parameter(default, "points/round", "What each round costs; in votes, each vote.")


def _horizon() -> Any:
    return parameter(40, "rounds", "The most rounds of an episode; in votes, votes.")


def _number(name: str, value: Any, low: float, high: float, fix: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not low <= value <= high:
        raise InputError(f"{name} cannot be {value!r}", fix=fix)


def _rounds(horizon: Any, price: Any) -> None:
    if not isinstance(horizon, int) or isinstance(horizon, bool) or not 1 <= horizon <= _MOST_ROUNDS:
        raise InputError(f"horizon cannot be {horizon!r}", fix=f"a whole number of rounds, 1 to {_MOST_ROUNDS:,}")
    _number("price", price, 0, math.inf, "a price is 0 or more points per round")


def _items(most: float, fix: str) -> None:
    if most > _MOST_ITEMS:
        raise InputError(f"up to {most:,.0f} items are likely enough to matter, more than {_MOST_ITEMS:,}", fix=fix)


class _Rounds:
    """What a sum of increments is worth and shows; the same in all worlds but one."""

    def quality(self, cumulated: np.ndarray) -> np.ndarray:
        """Points of the draft answer, price apart: the sum itself."""
        return cumulated.astype(float)

    def evidence(self, cumulated: np.ndarray) -> np.ndarray:
        """What the orchestrator can see of the sum: all of it."""
        return cumulated

    def accepts(self, increment: int) -> bool:
        """Whether one round could bring this: any number of finds."""
        return increment >= 0


@dataclass(frozen=True)
class PoissonSearch(_Rounds):
    """S0: the number of items is Poisson, so what is left is independent of what was found.

    Y_t = found_t − price·t. Given the mean, finds of different rounds are independent Poisson numbers.
    """

    mean: float = parameter(20.0, "items", "The mean of the Poisson number of items that are there.")
    find: float = _find()
    price: float = _price(0.9)
    horizon: int = _horizon()

    def __post_init__(self) -> None:
        _rounds(self.horizon, self.price)
        _number("find", self.find, 0, 1, _CHANCE)
        _number("mean", self.mean, 0, math.inf, "0 or more items")
        _items(self.most_items, "lower the mean")

    @property
    def most_items(self) -> int:
        """More items than this have a chance below 1e-15."""
        return math.ceil(self.mean + 9 * math.sqrt(self.mean) + 40)


@dataclass(frozen=True)
class WideSearch(_Rounds):
    """S1 and S1b: γ ~ Gamma(shape, rate), items ~ Poisson(γ), so many finds promise more to find.

    Y_t = found_t − price·t. Posterior after t rounds and k finds: γ ~ Gamma(shape + k, rate + 1 − (1 − find)^t).
    """

    shape: float = parameter(2.0, "1", "Shape of the Gamma prior on the mean number of items.")
    rate: float = parameter(0.1, "1/items", "Rate of the Gamma prior on the mean number of items.")
    find: float = _find()
    price: float = _price(0.9)
    horizon: int = _horizon()

    def __post_init__(self) -> None:
        _rounds(self.horizon, self.price)
        _number("find", self.find, 0, 1, _CHANCE)
        for name in ("shape", "rate"):
            _number(name, getattr(self, name), 1e-9, math.inf, "above 0")
        _items(self.most_items, "lower the shape or raise the rate")

    @property
    def most_items(self) -> int:
        """More items than this have a chance below 1e-15 (the tail falls like (1 + rate)^−n)."""
        mean = self.shape / self.rate
        return math.ceil(mean + 9 * math.sqrt(mean * (1 + 1 / self.rate)) + 40 * (1 + 1 / self.rate))


@dataclass(frozen=True)
class Votes(_Rounds):
    """S2: one vote a round, each right with a reliability that nobody knows; the answer is the majority.

    Y_t = 1[majority right] − price·t. A tie has no majority and pays nothing. Seen: the size of the margin, not who is right.
    """

    reliabilities: tuple[float, ...] = parameter(
        (0.95, 0.75, 0.6, 0.5), "1", "The chances of a right vote that an episode may have."
    )
    weights: tuple[float, ...] = parameter((0.35, 0.3, 0.2, 0.15), "1", "How likely each of the reliabilities is.")
    price: float = _price(0.012)
    horizon: int = _horizon()

    def __post_init__(self) -> None:
        _rounds(self.horizon, self.price)
        for name in ("reliabilities", "weights"):
            values = getattr(self, name)
            if not isinstance(values, Sequence) or isinstance(values, str):
                raise InputError(f"{name} cannot be {values!r}", fix="a list of chances")
            object.__setattr__(self, name, tuple(values))
            for value in values:
                _number(name, value, 0, 1, _CHANCE)
        if not self.weights or len(self.reliabilities) != len(self.weights):
            fix = "one weight for each reliability"
            raise InputError(f"{len(self.reliabilities)} reliabilities and {len(self.weights)} weights", fix=fix)
        if abs(math.fsum(self.weights) - 1) > 1e-9:
            raise InputError(f"weights sum to {math.fsum(self.weights):g}", fix="weights sum to 1")

    def quality(self, cumulated: np.ndarray) -> np.ndarray:
        """Points of the draft answer: 1 when more votes are right than wrong."""
        return (cumulated > 0).astype(float)

    def evidence(self, cumulated: np.ndarray) -> np.ndarray:
        """What the orchestrator can see: by how many votes the leading answer leads."""
        return np.abs(cumulated)

    def accepts(self, increment: int) -> bool:
        """A vote is right (1) or wrong (-1)."""
        return increment in (1, -1)


@dataclass(frozen=True)
class Saturation(_Rounds):
    """S3: revisions improve a draft until a hidden moment, and spoil it from then on.

    Each round: an improving phase ends with chance `hazard`; then the level rises by 1 with chance `gain` if it still improves,
    and falls by 1 with chance `loss` if not. Y_t = level_t − price·t.
    """

    gain: float = parameter(0.5, "1", "The chance that a round of the improving phase adds a point.")
    hazard: float = parameter(0.08, "1/round", "The chance that the improving phase ends, at the start of each round.")
    loss: float = parameter(0.35, "1", "The chance that a round after that takes a point away.")
    price: float = _price(0.12)
    horizon: int = _horizon()

    def __post_init__(self) -> None:
        _rounds(self.horizon, self.price)
        for name in ("gain", "hazard", "loss"):
            _number(name, getattr(self, name), 0, 1, _CHANCE)

    def accepts(self, increment: int) -> bool:
        """A round moves the level by one at most."""
        return increment in (-1, 0, 1)


Config = PoissonSearch | WideSearch | Votes | Saturation
