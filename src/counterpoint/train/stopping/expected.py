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

import numpy as np

from counterpoint.train.stopping._fit import ridge_cv
from counterpoint.train.stopping._tree import tree_cv
from counterpoint.train.stopping.basis import Basis
from counterpoint.train.stopping.paths import StopPaths
from counterpoint.train.stopping.simple import FOLDS, folds_of, paid_by_thresholds

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
