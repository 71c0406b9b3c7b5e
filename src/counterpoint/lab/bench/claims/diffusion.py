"""Uniform credit diffuses: its correlation with true contributions falls as one over the root of their number.

Always true: T independent contributions of equal variance make up the reward, and uniform credit gives each R / T. Then

    corr(R / T, c_t) = cov(sum c, c_t) / (T sd(R / T) sd(c)) = 1 / sqrt(T)

The correlation is over all (episode, event) pairs. Contributions are normal in one row and skewed in the other: the law asks for
independence and equal variance alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, equal_within
from counterpoint.trace.keyed import child_seed, purpose

Floats = NDArray[np.float64]
_EPISODES, _AT_ONCE = 10_000, 1000
_DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "skewed": lambda rng, shape: rng.exponential(size=shape) - 1,
}


def diffusion(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """T = 10, 100 and 1000."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    for kind in _DRAWS:
        for events in (10, 100, 1000):
            law = events**-0.5
            found = [_correlation(kind, events, s) for s in tracked(range(seed, seed + seeds), "seeds")]
            yield equal_within(f"T = {events}, {kind}: corr(uniform credit, contribution)", found, law, 0.06 * law)


def _correlation(kind: str, events: int, seed: int) -> float:
    rng = np.random.default_rng(child_seed(seed, purpose(f"diffusion {kind} {events}")))
    sums = np.zeros(5)  # of u, c, u^2, c^2, u c
    for _ in range(_EPISODES // _AT_ONCE):
        c = _DRAWS[kind](rng, (_AT_ONCE, events))
        u = np.repeat(c.mean(axis=1), events)
        flat = c.ravel()
        sums += [u.sum(), flat.sum(), u @ u, flat @ flat, u @ flat]
    mean_u, mean_c, uu, cc, uc = sums / (_EPISODES * events)
    return float((uc - mean_u * mean_c) / np.sqrt((uu - mean_u**2) * (cc - mean_c**2)))
