"""Pools to search (W2): nobody knows how many relevant finds are hidden, so when to stop is the question.

    M = min(slots, Poisson(γ)),  γ ~ Gamma(shape, mean)  (a negative binomial), or Poisson alone when the shape is 0
    a call finds each hidden find with pool_find[family]·g

Hidden: present. Seen: found.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, lgamma, log

import numpy as np

from counterpoint.envs.keyed import mixed, purpose, uniform
from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.work import Returns, Work

_COUNT, _FIND = purpose("pool count"), purpose("pool find")


@lru_cache(maxsize=64)
def _cumulative(mean: float, shape: float, slots: int) -> np.ndarray:
    """P(M <= m) for m = 0 .. slots-1."""
    if mean == 0:
        return np.ones(slots)
    if shape == 0:
        mass = [exp(m * log(mean) - mean - lgamma(m + 1)) for m in range(slots)]
    else:
        p = shape / (shape + mean)
        mass = [
            exp(lgamma(shape + m) - lgamma(shape) - lgamma(m + 1) + shape * log(p) + m * log(mean / (shape + mean)))
            for m in range(slots)
        ]
    return np.cumsum(mass)


@dataclass
class PoolState:
    """Axes: E episodes, n pools, M slots for finds."""

    first_item: int
    present: np.ndarray  # (E, n, M) bool
    found: np.ndarray  # (E, n, M) bool
    news: np.ndarray  # (E, n) finds of the last round in which something came back
    callers: np.ndarray  # (E, n, calls) int16

    @classmethod
    def start(cls, config: Config, seed: np.ndarray, first_item: int) -> PoolState:
        """Draw how much each pool hides."""
        e, n, m = len(seed), config.pool_items, config.pool_slots
        u = uniform(seed[:, None], _COUNT, np.arange(first_item, first_item + n)[None])
        count = np.searchsorted(_cumulative(config.pool_mean, config.pool_shape, m), u, side="right")
        return cls(
            first_item=first_item,
            present=np.arange(m) < count[:, :, None],
            found=np.zeros((e, n, m), np.bool_),
            news=np.zeros((e, n), np.int64),
            callers=np.full((e, n, config.pool_calls), -1, np.int16),
        )

    def refusals(self, config: Config, ep: np.ndarray, item: np.ndarray, purpose: np.ndarray) -> np.ndarray:
        """Calls that the state of the item forbids: none here."""
        return np.zeros(len(ep), np.bool_)

    def work(self, w: Work) -> Returns:
        """Search: each find that is hidden still, each with its own draw."""
        base = (w.draw(_FIND) * 2.0**53).astype(np.uint64)
        u = (mixed(base[:, None], np.arange(w.config.pool_slots)[None]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        chance = np.array(w.config.pool_find)[w.family] * w.know
        hidden = self.present[w.ep, w.item] & ~self.found[w.ep, w.item]
        finds = hidden & (u < chance[:, None])
        claim = finds.sum(axis=1)
        return Returns(claim, claim > 0, finds)

    def absorb(self, ep: np.ndarray, item: np.ndarray, finds: np.ndarray) -> None:
        """Join what was found; finds of several calls are counted once."""
        before = self.found[ep, item].sum(axis=1)
        np.logical_or.at(self.found, (ep, item), finds)
        self.news[ep, item] = self.found[ep, item].sum(axis=1) - before

    def worth(self, config: Config) -> np.ndarray:
        """(E, n) points for what was found in each."""
        return config.pool_weight * self.found.sum(axis=2)
