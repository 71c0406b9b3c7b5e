"""Learning from rollouts of older weights: two ratios kept apart, a gate on the step, and weights for who came in time.

    mismatch  = pi_old(recomputed) / mu(sampled)      what the sampling engine said against what the trainer says, same weights
    staleness = pi_now / pi_old(recomputed)           what the updates since have changed
    step      = min(1, sqrt(ESS / B)), and 0 where ESS / B < 0.1      of the product of both

Always true: the log-probabilities of sampling are never overwritten by recomputed ones; on-policy data with an exact engine
has all ratios 1, so the step is whole. Inclusion is judged from what was known at launch, over
all launches whose fate is known, and an arm of which nothing ever came in time is refused (`NotIdentified`), not guessed.

V-trace arXiv 1802.01561, truncated importance sampling as in verl, decoupling as in AReaL 2505.24298,
docs/lab/research/staleness.md; the
arithmetic is `credits/off_policy.py`. Departure: inclusion shares are shrunk to their arm's share by `prior` launches, so that
a launch of a kind that was never seen has a weight; with a prior of 0 the weights are those of `credit`, up to their sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.credits.off_policy import decoupled_weights, effective_size, step_scale
from counterpoint.errors import InputError, NotIdentified

Floats = NDArray[np.float64]
ENOUGH = 20
"""Launches of an arm, none of them in time, from which on we say that it never is."""


class Correction(NamedTuple):
    """How far a batch is from the present policy."""

    mismatch_N: Floats
    """pi_old / mu, untruncated."""
    staleness_N: Floats
    """pi_now / pi_old, untruncated."""
    weight_N: Floats
    """The two, each truncated at its cap, multiplied: a constant in the loss."""
    ess_share: float
    """Effective sample size of the untruncated product, over B."""
    step: float
    """The factor on the step; 0 means skip it."""


def correct(
    logp_now: ArrayLike,
    logp_recomputed: ArrayLike,
    logp_sampled: ArrayLike,
    *,
    mismatch_cap: float = 2.0,
    staleness_cap: float = 1.0,
    weights: ArrayLike | None = None,
    least: float = 0.1,
) -> Correction:
    """Both factors of every decision, their truncated product, and what is left of the step.

    `logp_sampled` is what the sampling engine reported, `logp_recomputed` the same decisions under the behaviour weights in the
    trainer, `logp_now` under the present ones. `weights` (inclusion, say) enter the effective sample size.
    """
    now, old, sampled = (np.asarray(x, np.float64) for x in (logp_now, logp_recomputed, logp_sampled))
    if not (now.shape == old.shape == sampled.shape) or now.ndim != 1 or not len(now):
        raise InputError("logp_now, logp_recomputed and logp_sampled have one entry per decision")
    if min(mismatch_cap, staleness_cap) <= 0:
        raise InputError(f"caps are {mismatch_cap:g} and {staleness_cap:g}", fix="more than 0")
    mismatch, staleness = decoupled_weights(now, old, sampled)
    whole = mismatch * staleness * (1.0 if weights is None else np.asarray(weights, np.float64))
    kept = np.minimum(mismatch, mismatch_cap) * np.minimum(staleness, staleness_cap)
    return Correction(mismatch, staleness, kept, effective_size(whole) / len(whole), step_scale(whole, least=least))


class Inclusion:
    """The share of launches that came in time, by arm (the chosen width) and cell (all else known at launch)."""

    def __init__(self, *, clip: float = 10.0, prior: float = 1.0) -> None:
        if clip < 1 or prior < 0:
            raise InputError(f"clip is {clip:g} and prior {prior:g}", fix="a clip of at least 1, a prior of at least 0")
        self.clip, self.prior = clip, prior
        self._cells: dict[tuple[float, int], list[int]] = {}
        self._arms: dict[float, list[int]] = {}

    def add(self, launches: Iterable[tuple[float, int, bool]]) -> None:
        """(arm, cell, came in time) of launches whose fate is known: kept, or too late whether finished or not."""
        for arm, cell, kept in launches:
            for found in (self._cells.setdefault((arm, cell), [0, 0]), self._arms.setdefault(arm, [0, 0])):
                found[0] += 1
                found[1] += kept

    @property
    def launches(self) -> int:
        """How many fates are known."""
        return sum(n for n, _ in self._arms.values())

    @property
    def arrivals(self) -> int:
        """How many of them came in time."""
        return sum(k for _, k in self._arms.values())

    def share(self, arm: float, cell: int) -> float:
        """P(in time | arm, cell); 1 before anything is known of the arm."""
        n_arm, k_arm = self._arms.get(arm, (0, 0))
        if not n_arm:
            return 1.0
        n, k = self._cells.get((arm, cell), (0, 0))
        whole = n + self.prior
        return (k + self.prior * k_arm / n_arm) / whole if whole else k_arm / n_arm

    def refuse(self, enough: int = ENOUGH, besides: Iterable[float] = ()) -> None:
        """Raise where an arm was launched `enough` times and never came in time: no weight can speak for it."""
        seen = set(besides)
        for arm, (n, kept) in sorted(self._arms.items()):
            if n >= enough and not kept and arm not in seen:
                raise NotIdentified(
                    f"none of {n} launches of arm {arm:g} came in time",
                    "a longer staleness limit, more workers, or consumption by launch order",
                )

    def weights(self, arms: ArrayLike, cells: ArrayLike) -> Floats:
        """1 / P(in time) of kept rollouts, at most `clip`; normalise within each arm for an effect."""
        arm, cell = np.asarray(arms, np.float64), np.asarray(cells, np.int64)
        if arm.shape != cell.shape or arm.ndim != 1:
            raise InputError("arms and cells have one entry per rollout")
        share = np.array([self.share(a, c) for a, c in zip(arm.tolist(), cell.tolist(), strict=True)], np.float64)
        # a rollout that is here came in time, whatever was known before: its share is not 0, but small
        return np.minimum(1 / np.maximum(share, 1 / self.clip), self.clip)
