"""Payoffs with less noise and the same mean: each round's gain replaced by what could be expected of it.

Always true: only payoffs of training traces change, never a feature; what stopping at 0 pays stays as it was.

For a stop time τ that depends on the features x_0..x_τ, E[Y_τ] = E[Y_0 + Σ_{t<τ} D_t] with D_t = E[Y_{t+1} − Y_t | x_t]
(Doob), and also with D_t = E[Y_{t+1} − Y_t | x_t, x_{t+1}], as far as x_t holds what the past says of the next gain. The first
form removes the luck of the round (S1: how many items were found), the second the luck of the score alone (S2: whether the
majority was right). Which has less noise depends on the world, so `calmest` compares the variance of what threshold rules gain
over the best cap.

D is fitted over all checkpoints at once, by ridge regression on the pooled basis or by a tree whose leaves may drift with
time: the tree, when it explains more of held-out traces, or among few traces as much, for it is exact where a gain is certain.
Where features do not predict the next gain better than the round alone does, D_t is the mean gain of round t; no rule can then
beat the best cap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoint.guard.stop_basis import Basis, ridge_cv
from counterpoint.guard.stop_paths import StopPaths
from counterpoint.guard.stop_rule import FOLDS, folds_of, paid_by_thresholds

_ENOUGH = 400  # traces for the test whether features tell anything
_ERRORS = 2.0
_MORE, _PREFERRED = 0.002, 2.0  # how much more a tree has to explain: that share, less two traces' worth
_DRIFT = 0.1  # penalty of a leaf's drift with time


def expected(paths: StopPaths, seed: int, *, after: bool) -> np.ndarray:
    """(E, H+1) payoffs from fitted gains given x_t, or with `after` given x_t and x_{t+1}."""
    gains = np.diff(paths.payoffs, axis=1)
    fold = np.repeat(folds_of(len(gains), seed), gains.shape[1])
    out = np.repeat(paths.payoffs[:, :1], paths.payoffs.shape[1], axis=1)
    out[:, 1:] += np.cumsum(_fitted(paths.features, gains, fold, after), axis=1)
    return out


def calmest(paths: StopPaths, seed: int) -> tuple[str, np.ndarray]:
    """The name of the form with the least noise (`raw` where none has less), and its payoffs."""
    forms = {"raw": paths.payoffs}
    forms["given now"] = expected(paths, seed, after=False)
    forms["given now and next"] = expected(paths, seed, after=True)
    cap = int(np.argmax(paths.payoffs.mean(axis=0)))
    noise = {}
    for name, payoffs in forms.items():
        gain = paid_by_thresholds(payoffs, paths.features) - payoffs[:, cap : cap + 1]
        noise[name] = gain.var(axis=0)
    moved = noise["raw"] > 1e-12
    if not moved.any():
        return "raw", paths.payoffs
    score = {name: float(np.log(v[moved] / noise["raw"][moved] + 1e-3).mean()) for name, v in noise.items()}
    best = min(score, key=lambda name: score[name])
    return best, forms[best]


def _fitted(features: np.ndarray, gains: np.ndarray, fold: np.ndarray, after: bool) -> np.ndarray:
    """The gains (E, H) as a ridge regression or a tree predicts them."""
    episodes, horizon = gains.shape
    basis = Basis.of(features)
    table, late = basis.table(features), basis.late
    plain = features[:, :, basis.keep]  # a tree splits on what tells traces apart; time is left to the drift of its leaves
    smooth, rough = table[:, :-1], plain[:, :-1]
    if after:
        smooth, late = np.concatenate([smooth, table[:, 1:]], axis=2), np.tile(late, 2)
        rough = np.concatenate([rough, plain[:, 1:]], axis=2)
    smooth, rough, flat = smooth.reshape(len(fold), -1), rough.reshape(len(fold), -1), gains.ravel()
    line = ridge_cv(smooth, flat, fold, late, slack=1 / episodes)
    tree = tree_cv(rough, flat, fold, slack=1 / episodes, least=max(5, episodes // 10))
    if tree.explained > line.explained * (1 + _MORE - _PREFERRED / episodes):
        when = np.tile(np.arange(horizon), episodes)
        return _drifting(tree.leaves(rough), when, flat, fold, horizon).reshape(gains.shape)
    if not after and not _tells(smooth, gains, fold, late, line.penalty):
        return np.repeat(gains.mean(axis=0)[None], episodes, axis=0)
    return line(smooth).reshape(gains.shape)


def _drifting(leaf: np.ndarray, t: np.ndarray, gains: np.ndarray, fold: np.ndarray, horizon: int) -> np.ndarray:
    """(n,) predictions of a tree whose leaves may each drift with log(1+t) and 1/(1+t)."""
    out = np.empty(len(gains))
    columns = np.stack([np.log1p(t) / np.log1p(horizon), 1 / (1 + t)], axis=1)
    for i in range(leaf.max() + 1):
        rows = leaf == i
        x, y = columns[rows], gains[rows]
        out[rows] = ridge_cv(x, y, fold[rows], np.zeros(2, bool), grid=((_DRIFT, 1.0),))(x)
    return out


def _tells(rows: np.ndarray, gains: np.ndarray, fold: np.ndarray, late: np.ndarray, penalty: tuple[float, float]) -> bool:
    """Whether features predict gains of held-out traces better than the mean gain of each round does, by two standard errors.

    Errors are compared trace by trace as a share of their sum, so that a few long-tailed traces do not decide.
    """
    episodes, horizon = gains.shape
    some = min(episodes, _ENOUGH)
    rows, fold, gains = rows[: some * horizon], fold[: some * horizon], gains[:some]
    better = np.zeros(some)
    for k in range(FOLDS):
        out = fold == k
        held = out[::horizon]
        fit = ridge_cv(rows[~out], gains[~held].ravel(), fold[~out], late, grid=(penalty,))
        error = ((gains[held] - fit(rows[out]).reshape(-1, horizon)) ** 2).sum(axis=1)
        plain = ((gains[held] - gains[~held].mean(axis=0)) ** 2).sum(axis=1)
        better[held] = (plain - error) / np.maximum(plain + error, 1e-300)
    return bool(better.mean() > _ERRORS * better.std(ddof=1) / np.sqrt(some))


_LEVELS, _LEAVES, _FOLDS = 24, 16, 3


@dataclass(frozen=True)
class Tree:
    """A small regression tree, grown best split first, its size chosen by cross-validation over traces.

    Rows of one trace are in one fold; a leaf's value is the mean of its rows. (Breiman and others, 1984, with the size by
    held-out error in place of pruning.) Splits are on at most 24 levels per column. They stand in the order in which they were
    made: leaf `at` keeps what is ≤ level, the rest becomes leaf number i + 1.
    """

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
