"""Means over seeds or runs with Student's 95 % interval, and how they are written.

Always true: an interval over fewer than two numbers is not made up; what is no number has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import SupportsFloat

import msgspec

from counterpoint.errors import InputError
from counterpoint.trace.statistics import mean_ends


class Estimate(msgspec.Struct, frozen=True):
    """A mean over runs, with its interval; None where there is none."""

    mean: float | None
    low: float | None
    high: float | None
    runs: int


def mean_interval(samples: Iterable[SupportsFloat]) -> tuple[float, float | None, float | None]:
    """The mean and the ends of Student's 95 % interval for it; None, None for one sample."""
    xs = [float(x) for x in samples]
    if not xs:
        raise InputError("there are no samples to take the mean of", fix="give one number per seed")
    if not all(map(math.isfinite, xs)):
        return math.nan, None, None
    mean = math.fsum(xs) / len(xs)
    return mean, *mean_ends(xs)


def estimate(values: Iterable[float | None]) -> Estimate:
    """Mean and interval of what is there."""
    there = [float(v) for v in values if v is not None and math.isfinite(v)]
    return Estimate(*mean_interval(there), len(there)) if there else Estimate(None, None, None, 0)


def interval_words(mean: float, low: float | None, high: float | None, show: Callable[[float], str]) -> str:
    """A mean with its interval behind it, where there is one."""
    return show(mean) if low is None or high is None else f"{show(mean)} [{show(low)}, {show(high)}]"
