"""Keeping only rollouts that finish in time biases the effect of spawning; weights by inclusion undo it.

Always true: the true effect is known in closed form, and it is 0.21. Launches of ten difficulties spawn or not, at even odds;
hard and wide ones take longer, and gain more from spawning; a rollout is kept when it ends within the staleness limit, in
training steps.

    P(kept | a, x) = 1 - (1 - p(a, x))^(limit + 1),   p(0, u) = 0.62 - 0.34 u,   p(1, u) = 0.42 - 0.305 u,   u = x / 9
    E[R | a, x] = 0.3 + 0.2 u + a (0.02 + 0.38 u)

Held to: weighted within 2 % at limits 0, 1, 2 and 4; naive off by more than 10 % at limit 1; an arm that never finishes is
refused; the order of launches changes nothing; on-policy V-trace is the plain return; a baseline per width (a consequence of
the decision) erases the decision's credit, and one per launch does not. docs/lab/research/staleness.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.credits.advantages import reward_to_go
from counterpoint.credits.groups import group_advantages
from counterpoint.credits.off_policy import inclusion_effect, vtrace
from counterpoint.display import tracked
from counterpoint.errors import InputError, NotIdentified
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most

_EFFECT = 0.21
_LIMITS = (0, 1, 2, 4)
_LAUNCHES = 1_000_000


class _Launches(NamedTuple):
    level: NDArray[np.int64]
    arm: NDArray[np.int64]
    took: NDArray[np.int64]
    """Training steps until it ended."""
    returns: NDArray[np.float64]

    def at(self, rows: NDArray[np.int64]) -> _Launches:
        """These launches, in this order."""
        return _Launches(self.level[rows], self.arm[rows], self.took[rows], self.returns[rows])


def _launch(rng: np.random.Generator, n: int) -> _Launches:
    level, arm = rng.integers(0, 10, n), rng.integers(0, 2, n)
    u = level / 9
    quick = np.where(arm == 1, 0.42 - 0.305 * u, 0.62 - 0.34 * u)
    returns = 0.3 + 0.2 * u + arm * (0.02 + 0.38 * u) + rng.normal(0, 0.1, n)
    return _Launches(level, arm, rng.geometric(quick) - 1, returns)


def _weighted(runs: _Launches, limit: int) -> float:
    means = inclusion_effect(runs.returns, runs.level, runs.arm, runs.took <= limit)
    return means[1] - means[0]


def _naive(runs: _Launches, limit: int) -> float:
    kept = runs.took <= limit
    return float(runs.returns[kept & (runs.arm == 1)].mean() - runs.returns[kept & (runs.arm == 0)].mean())


def _refuses(runs: _Launches) -> float:
    """1 when an arm of which nothing was kept is refused."""
    try:
        inclusion_effect(runs.returns, runs.level, runs.arm, runs.arm == 0)
    except NotIdentified:
        return 1.0
    return 0.0


def _left(runs: _Launches, groups: NDArray[np.int64]) -> float:
    """The spawn effect that is left in advantages with the mean of these groups as their baseline."""
    a = group_advantages(runs.returns, groups, "dr_grpo")
    return float(abs(a[runs.arm == 1].mean() - a[runs.arm == 0].mean()))


def _vtrace_gap(rng: np.random.Generator) -> float:
    r, v, chains = rng.normal(size=4000), rng.normal(size=4000), np.arange(4000) // 100
    targets, _ = vtrace(np.ones(4000), r, v, segments=chains, gamma=0.99)
    return float(np.abs(targets - reward_to_go(r, segments=chains, gamma=0.99)).max())


def straggler(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """A million launches per seed."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    found: dict[str, list[float]] = {}
    for s in tracked(range(seed, seed + seeds), "seeds"):
        rng = np.random.default_rng([s, 7])
        runs = _launch(rng, _LAUNCHES)
        for limit in _LIMITS:
            found.setdefault(f"weighted {limit}", []).append(abs(_weighted(runs, limit) / _EFFECT - 1))
        found.setdefault("naive", []).append(abs(_naive(runs, 1) / _EFFECT - 1))
        found.setdefault("refused", []).append(_refuses(runs))
        few, mixed = runs.at(np.arange(20_000)), runs.at(rng.permutation(20_000))
        found.setdefault("order", []).append(abs(_weighted(few, 1) - _weighted(mixed, 1)))
        found.setdefault("width", []).append(_left(runs, runs.arm))
        found.setdefault("launch", []).append(_left(runs, runs.level))
        found.setdefault("vtrace", []).append(_vtrace_gap(rng))
    for limit in _LIMITS:
        yield at_most(f"weighted effect, relative error, limit {limit}", found[f"weighted {limit}"], 0.02)
    yield at_least("naive effect, relative error, limit 1", found["naive"], 0.1)
    yield at_least("an arm that never finishes is refused", found["refused"], 1)
    yield at_most("change when launches are reordered", found["order"], 1e-9)
    yield at_most("on-policy V-trace against the plain return", found["vtrace"], 1e-9)
    yield at_most("spawn effect left by a baseline per width", found["width"], 1e-9)
    yield at_least("spawn effect left by a baseline per launch", found["launch"], 0.2)
