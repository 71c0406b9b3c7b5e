"""How well two judges agree: Cohen's kappa for labels, correlations for scores, each with an interval.

Always true: pairs are of one thing judged twice; an interval is over things, drawn again with replacement from a fixed seed; what
cannot be computed (one label only, fewer than two things) is None, never 0.

Cohen (1960): kappa = (p_o - p_e) / (1 - p_e), with p_o the share of things on which both say the same, and p_e the share expected
of two judges who each keep their own frequencies and do not look. 0 is chance, 1 is perfect. With p_e = 1 it is not defined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from counterpoint.trace.statistics import correlation, spearman

_DRAWS = 1_000
_LEAST = 3
"""Things below which no interval is given."""


class Figure(Struct, frozen=True, kw_only=True):
    """One measure of agreement."""

    name: str
    value: float | None
    low: float | None
    """The lower end of its 95 % interval."""
    high: float | None


class Agreement(Struct, frozen=True, kw_only=True):
    """What two judges have in common."""

    things: int
    """Judged by both."""
    figures: list[Figure]
    confusion: dict[str, dict[str, int]]
    """Labels only: what the first says to what the second says, counted."""


def of_labels(first: Sequence[str], second: Sequence[str]) -> Agreement:
    """Agreement on labels."""
    names = sorted({*first, *second})
    a, b = (np.array([names.index(x) for x in side], dtype=np.int64) for side in (first, second))
    table: dict[str, dict[str, int]] = {}
    for (x, y), count in sorted(Counter(zip(first, second, strict=True)).items()):
        table.setdefault(x, {})[y] = count
    figures = [
        _figure("share that agrees", lambda i: float(np.mean(a[i] == b[i])), len(a)),
        _figure("Cohen's kappa", lambda i: kappa(a[i], b[i], len(names)), len(a)),
    ]
    return Agreement(things=len(a), figures=figures, confusion=table)


def of_scores(first: Sequence[float], second: Sequence[float]) -> Agreement:
    """Agreement on scores: correlation, rank correlation, and by how much the first is above the second."""
    a, b = np.asarray(first, float), np.asarray(second, float)
    figures = [
        _figure("Pearson correlation", lambda i: correlation(a[i], b[i]), len(a)),
        _figure("Spearman correlation", lambda i: spearman(a[i], b[i]), len(a)),
        _figure("mean difference", lambda i: float(np.mean(a[i] - b[i])), len(a)),
        _figure("mean absolute difference", lambda i: float(np.mean(np.abs(a[i] - b[i]))), len(a)),
    ]
    return Agreement(things=len(a), figures=figures, confusion={})


def kappa(a: np.ndarray, b: np.ndarray, labels: int) -> float | None:
    """Cohen's kappa of two rows of label numbers."""
    if not len(a):
        return None
    p_a, p_b = (np.bincount(side, minlength=labels) / len(a) for side in (a, b))
    same, chance = float(np.mean(a == b)), float(p_a @ p_b)
    return None if 1 - chance < 1e-12 else (same - chance) / (1 - chance)


def _figure(name: str, measure: Callable[[np.ndarray], float | None], count: int) -> Figure:
    if not count:
        return Figure(name=name, value=None, low=None, high=None)
    rng = np.random.default_rng(0)
    low = high = None
    if count >= _LEAST:
        drawn = [measure(rng.integers(0, count, count)) for _ in range(_DRAWS)]
        known = [value for value in drawn if value is not None]
        if 2 * len(known) > _DRAWS:
            low, high = (float(x) for x in np.quantile(known, [0.025, 0.975]))
    return Figure(name=name, value=measure(np.arange(count)), low=low, high=high)
