"""A small regression tree, grown best split first, its size chosen by cross-validation over traces.

Always true: rows of one trace are in one fold; a leaf's value is the mean of its rows, so what is certain there is predicted
without error; the same numbers in, the same numbers out. (Breiman and others, 1984, with the size by held-out error in place
of pruning.) Splits are on at most 24 levels per column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_LEVELS, _LEAVES, _FOLDS = 24, 16, 3


@dataclass(frozen=True)
class Tree:
    """Splits in the order in which they were made: leaf `at` keeps what is ≤ level, the rest becomes leaf number i + 1."""

    first: float
    at: np.ndarray
    column: np.ndarray
    level: np.ndarray
    low: np.ndarray
    high: np.ndarray
    explained: float = 0.0
    """Squared error that it saves on held-out traces, against the mean."""

    def __call__(self, columns: np.ndarray) -> np.ndarray:
        return self.sizes(columns)[1]

    def sizes(self, columns: np.ndarray, y: np.ndarray | None = None) -> tuple[list[float], np.ndarray]:
        """The squared error to y with 1, 2, ... leaves, and the predictions with all of them."""
        leaf, out = np.zeros(len(columns), np.int64), np.full(len(columns), self.first)
        errors = [] if y is None else [float(((y - out) ** 2).sum())]
        for i in range(len(self.at)):
            rows = np.flatnonzero(leaf == self.at[i])
            over = columns[rows, self.column[i]] > self.level[i]
            leaf[rows[over]] = i + 1
            out[rows] = np.where(over, self.high[i], self.low[i])
            if y is not None:
                errors.append(float(((y - out) ** 2).sum()))
        return errors, out

    def leaves(self, columns: np.ndarray) -> np.ndarray:
        """(n,) the leaf of each row."""
        leaf = np.zeros(len(columns), np.int64)
        for i in range(len(self.at)):
            rows = np.flatnonzero(leaf == self.at[i])
            leaf[rows[columns[rows, self.column[i]] > self.level[i]]] = i + 1
        return leaf

    def cut(self, leaves: int, explained: float) -> Tree:
        """The tree as it was when it had so many leaves."""
        n = leaves - 1
        return Tree(self.first, self.at[:n], self.column[:n], self.level[:n], self.low[:n], self.high[:n], explained)


def tree_cv(columns: np.ndarray, y: np.ndarray, trace: np.ndarray, slack: float, least: int) -> Tree:
    """The smallest tree that explains all but a share `slack` of what the best size explains on held-out traces."""
    levels = [_levels(columns[:, j]) for j in range(columns.shape[1])]
    binned = np.stack([np.searchsorted(at, columns[:, j]) for j, at in enumerate(levels)], axis=1)
    whole = _grow(binned, y, levels, least)
    errors = np.zeros(_LEAVES)
    base = 0.0
    for fold in range(_FOLDS):
        held = trace % _FOLDS == fold
        part = _grow(binned[~held], y[~held], levels, max(1, least * (_FOLDS - 1) // _FOLDS))
        error = part.sizes(columns[held], y[held])[0]
        errors += error + [error[-1]] * (_LEAVES - len(error))
        base += error[0]
    explained = base - errors
    sizes = np.flatnonzero(explained >= explained.max() * (1 - slack))
    leaves = min(int(sizes[0]) + 1, len(whole.at) + 1)
    return whole.cut(leaves, float(explained[leaves - 1]))


def _levels(values: np.ndarray) -> np.ndarray:
    """Where to cut: between neighbours, at quantiles when there are many."""
    found = np.unique(values)
    if len(found) > _LEVELS + 1:
        found = np.unique(np.quantile(values, np.linspace(0, 1, _LEVELS + 1), method="nearest"))
    return (found[:-1] + found[1:]) / 2


def _grow(binned: np.ndarray, y: np.ndarray, levels: list[np.ndarray], least: int) -> Tree:
    rows = [np.arange(len(y))]
    best = [_best_split(binned, y, levels, rows[0], least)]
    made: list[tuple[int, int, float, float, float]] = []
    while len(rows) < _LEAVES:
        leaf = int(np.argmax([split[0] for split in best]))
        gain, column, at = best[leaf]
        if gain <= 1e-12:
            break
        over = binned[rows[leaf], column] > at
        low, high = rows[leaf][~over], rows[leaf][over]
        made.append((leaf, column, float(levels[column][at]), float(y[low].mean()), float(y[high].mean())))
        rows[leaf] = low
        rows.append(high)
        best[leaf] = _best_split(binned, y, levels, low, least)
        best.append(_best_split(binned, y, levels, high, least))
    parts = [np.array(part) for part in zip(*made, strict=True)] if made else [np.zeros(0)] * 5
    return Tree(float(y.mean()), parts[0].astype(int), parts[1].astype(int), *parts[2:])


def _best_split(
    binned: np.ndarray, y: np.ndarray, levels: list[np.ndarray], rows: np.ndarray, least: int
) -> tuple[float, int, int]:
    """(squared error saved, column, last bin of the lower part)."""
    found = (0.0, 0, 0)
    if len(rows) < 2 * least:
        return found
    values = y[rows]
    total, n = values.sum(), len(rows)
    for column, at in enumerate(levels):
        if not len(at):
            continue
        bins = binned[rows, column]
        count = np.cumsum(np.bincount(bins, minlength=len(at) + 1))[:-1]
        part = np.cumsum(np.bincount(bins, values, len(at) + 1))[:-1]
        ok = (count >= least) & (n - count >= least)
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(ok, part**2 / count + (total - part) ** 2 / (n - count) - total**2 / n, 0.0)
        if gain.max() > found[0]:
            found = float(gain.max()), column, int(np.argmax(gain))
    return found
