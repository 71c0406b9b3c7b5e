"""The statistics of the house: Student's intervals, normal ones, Wilson's for a share, and Spearman's correlation.

Always true: pure functions; the interval of fewer than two numbers is (None, None), never a guess. There is no other table of t,
no other 1.96, no other ranking: what prints an interval takes it from here.

    mean:        m +- t(df) s / sqrt(n),                  df = n - 1
    difference:  m_a - m_b +- t(df) sqrt(v_a + v_b),      v = s^2 / n,
                 df = (v_a + v_b)^2 / (v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1))        (Welch-Satterthwaite)

Percentiles of bootstrap draws are too narrow for few numbers: 95 % ones hold the mean of 2, 3, 5, 10 normal numbers in about 50,
73, 82, 90 % of the cases.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ends = tuple[float | None, float | None]
NORMAL_95 = 1.959964
"""A normal number is within so many standard deviations of its mean in 95 % of the cases."""


def mean_ends(values: Sequence[float], level: float = 0.95) -> Ends:
    """The ends of the interval for the mean."""
    n = len(values)
    if n < 2:
        return None, None
    mean = math.fsum(values) / n
    half = student_quantile(n - 1, (1 + level) / 2) * statistics.stdev(values) / math.sqrt(n)
    return mean - half, mean + half


def difference_ends(a: Sequence[float], b: Sequence[float]) -> Ends:
    """The ends of Welch's 95 % interval for the mean of `a` less that of `b`, which have nothing to do with each other."""
    if min(len(a), len(b)) < 2:
        return None, None
    mean = math.fsum(a) / len(a) - math.fsum(b) / len(b)
    parts = [(statistics.variance(side) / len(side), len(side) - 1) for side in (a, b)]
    square = math.fsum(v for v, _ in parts)
    doubt = math.fsum(v * v / df for v, df in parts)
    if not doubt:  # nothing varies
        return mean, mean
    half = student_quantile(square * square / doubt) * math.sqrt(square)
    return mean - half, mean + half


def normal_ends(mean: float, se: float) -> tuple[float, float]:
    """The ends of the 95 % interval of an estimate with a known standard error."""
    return mean - NORMAL_95 * se, mean + NORMAL_95 * se


def wilson_ends(part: int, whole: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; from 0 to 1 of nothing."""
    if not whole:
        return 0.0, 1.0
    z, p = NORMAL_95, part / whole
    middle, half = p + z * z / (2 * whole), z * math.sqrt(p * (1 - p) / whole + z * z / (4 * whole * whole))
    return max((middle - half) / (1 + z * z / whole), 0.0), min((middle + half) / (1 + z * z / whole), 1.0)


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 0; equal values share the mean of theirs."""
    array = np.asarray(values, np.float64)
    order = np.sort(array)
    return np.asarray((np.searchsorted(order, array, "left") + np.searchsorted(order, array, "right") - 1) / 2, np.float64)


def correlation(a: ArrayLike, b: ArrayLike) -> float | None:
    """Pearson's correlation; None of fewer than two pairs, and where one side does not vary."""
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if len(x) < 2:
        return None
    x, y = x - x.mean(), y - y.mean()
    size = float(x @ x) * float(y @ y)
    return float(x @ y) / size**0.5 if size > 1e-24 else None


def spearman(a: ArrayLike, b: ArrayLike) -> float | None:
    """Spearman's correlation of ranks (1904); None where one side has no order."""
    return correlation(ranks(a), ranks(b))


def student_two_sided(t: float, df: float) -> float:
    """P(|T| >= |t|) for Student's T: the regularised incomplete beta I_x(df/2, 1/2) at x = df / (df + t^2)."""
    return _incomplete_beta(df / (df + t * t), df / 2, 0.5)


def student_quantile(df: float, level: float = 0.975) -> float:
    """The t that T stays below with this probability, by bisection."""
    low, high = 0.0, 1.0
    while student_two_sided(high, df) > 2 * (1 - level):
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if middle in (low, high):  # neighbours: nothing lies between them
            break
        low, high = (middle, high) if student_two_sided(middle, df) > 2 * (1 - level) else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b) by its continued fraction (Abramowitz and Stegun 26.5.8), from the side where that converges fast."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    f, c, d = 1.0, 1.0, 0.0
    for i in range(400):
        m = i // 2
        if i == 0:
            term = 1.0
        elif i % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / (1.0 + term * d or tiny)
        c = 1.0 + term / c or tiny
        f *= c * d
        if i and abs(1.0 - c * d) < 1e-14:
            break
    return front * (f - 1.0)
