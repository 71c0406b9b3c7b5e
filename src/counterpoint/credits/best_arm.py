"""Which of several changes helps most, with a budget of trials and a certificate: LUCB with bounds that hold at all times.

A trial of arm i gives a gain x: what the team got with the change less what it got without it, on the same noise. Doing nothing
is an arm of known gain 0. Each round the arm with the best mean and the one among the others with the highest upper bound are
tried again, until the lower bound of the first is above the upper bounds of all others, or nothing can be above 0, or the budget
is spent (LUCB: Kalyanakrishnan, Tewari, Auer and Stone, ICML 2012). After t trials with mean m and standard deviation s,

    m ± s sqrt( 2 (t r^2 + 1) / (t^2 r^2) · log( sqrt(t r^2 + 1) / a ) )        a = delta / arms

holds for all t at once with chance 1 - a, for large t (asymptotic confidence sequence: Waudby-Smith, Arbour, Sinha, Kennedy and
Ramdas, arXiv 2103.06476), so that looking after every trial costs nothing. r is set for t = 32.

Always true: with chance 1 - delta all intervals of one race hold at once. Departures: the variance of an arm is shrunk to that of
all arms by the weight of four trials, so that a few equal gains are not taken for certainty; intervals begin at the fourth trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from counterpoint.errors import InputError

LEAST = 4
"""Trials from which an arm has an interval."""
_TUNED = 32
Pull = Callable[[int, int, int], Sequence[float]]
"""(arm, the first trial, how many) to the gains; trial k of every arm is on the same noise. Fewer than asked for end the race."""


class Race(NamedTuple):
    """What a race ended with."""

    mean_A: np.ndarray
    low_A: np.ndarray
    high_A: np.ndarray
    trials_A: np.ndarray
    best: int
    """The arm with the highest mean gain; -1 for doing nothing, where none is above 0."""
    behind: float
    """With chance 1 - delta, no other arm is better than the best by more than this; 0: it is the best of all."""
    helps: bool
    """Whether the best arm's interval is above 0."""
    trials: int

    @property
    def is_certified(self) -> bool:
        """Whether the best arm is certainly the best."""
        return self.behind <= 0


def radius(t: int, sd: float, alpha: float) -> float:
    """Half the width of the interval after t trials."""
    if t < LEAST:
        return math.inf
    r2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha)) + 1) / _TUNED
    return sd * math.sqrt(2 * (t * r2 + 1) / (t * t * r2) * math.log(math.sqrt(t * r2 + 1) / alpha))


def race(pull: Pull, arms: int, *, budget: int, delta: float = 0.05, at_once: int = 4, within: float = 0.0) -> Race:
    """Try the arms until one is certainly within `within` of the best of all, or `budget` trials are spent.

    Where the budget does not give every arm four trials, the arms that come first are tried.
    """
    if arms < 1 or budget < LEAST or not 0 < delta < 1 or at_once < 1:
        what = f"{arms} arms, {budget} trials, delta {delta:g}, {at_once} at once"
        raise InputError(what, fix=f"an arm or more, {LEAST} trials or more, delta between 0 and 1")
    gains: list[list[float]] = [[] for _ in range(arms)]

    def trial_count() -> int:
        return sum(map(len, gains))

    is_over = False

    def trial(arm: int, count: int) -> None:
        nonlocal is_over
        count = min(count, budget - trial_count())
        if count > 0 and not is_over:
            new = [float(x) for x in pull(arm, len(gains[arm]), count)]
            gains[arm] += new
            is_over = len(new) < count

    for arm in range(arms):
        if budget - trial_count() >= LEAST:
            trial(arm, LEAST)
    while True:
        bounds = _bounds(gains, delta)
        if bounds.behind <= within or trial_count() >= budget or is_over:
            return bounds
        others = [arm for arm in range(arms) if arm != bounds.best and gains[arm]]
        rival = max(others, key=lambda arm: bounds.high_A[arm], default=bounds.best)
        for arm in sorted({bounds.best, rival} - {-1}):
            trial(arm, at_once)


def _bounds(gains: Sequence[Sequence[float]], delta: float) -> Race:
    tried = [g for g in gains if len(g) >= LEAST]
    pooled = float(np.mean([np.var(g, ddof=1) for g in tried])) if tried else 0.0
    mean, low, high = (np.full(len(gains), fill) for fill in (np.nan, -np.inf, np.inf))
    for arm, g in enumerate(gains):
        if not g:
            continue
        t, mean[arm] = len(g), float(np.mean(g))
        own = float(np.var(g, ddof=1)) if t > 1 else pooled
        half = radius(t, math.sqrt(((t - 1) * own + LEAST * pooled) / (t - 1 + LEAST)), delta / len(gains))
        low[arm], high[arm] = mean[arm] - half, mean[arm] + half
    known = np.where(np.isfinite(low), mean, -np.inf)
    best = int(np.argmax(known)) if known.max(initial=-np.inf) > 0 else -1
    floor = 0.0 if best < 0 else float(low[best])
    rivals = [float(high[arm]) for arm in range(len(gains)) if arm != best and gains[arm]]
    behind = max(0.0, max([0.0 if best >= 0 else -math.inf, *rivals], default=0.0) - floor) if gains else 0.0
    return Race(mean, low, high, np.array([len(g) for g in gains]), best, behind, best >= 0 and floor > 0, sum(map(len, gains)))
