"""Functions of what is known at a checkpoint: the columns that linear stop rules are made of.

Always true: a row of columns is a function of the checkpoint's number and its features alone, so no rule built on them can
look ahead; a basis is plain arrays, and the same arrays give the same columns.

Quadratic, for one regression per checkpoint: 1, z_i and z_i z_j of the standardised features. Pooled over all checkpoints:
time (t/H, its square, log, 1/(1+t)); each feature with kinks (z − q)+ at its quantiles and steps 1[z > q] at its lowest
values; and, marked `late`, products of features with time and with each other, which a fit may penalise more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

_KINKS, _STEPS, _TIMED_STEPS = 6, 3, 2
_MANY = 12  # features beyond which products of two are left out
_CONSTANT = 1e-9
_ARRAYS = ("keep", "mean", "scale", "knots", "low", "high")


def quadratic(z: np.ndarray) -> np.ndarray:
    """(n, 1 + F + F(F+1)/2) the quadratic basis of z (n, F)."""
    i, j = np.triu_indices(z.shape[1])
    return np.concatenate([np.ones((len(z), 1)), z, z[:, i] * z[:, j]], axis=1)


@dataclass(frozen=True)
class Basis:
    """The pooled basis of some training features."""

    keep: np.ndarray
    """(K,) the features that tell traces apart; what is the same in all of them at every checkpoint is time."""
    mean: np.ndarray
    scale: np.ndarray
    knots: np.ndarray
    """(K, Q) standardised places of kinks and steps, ascending; padded with inf."""
    low: np.ndarray
    high: np.ndarray
    """(H+1, K) the range of the features at each checkpoint: what lies outside is read as the nearest that was seen there."""
    horizon: int

    @staticmethod
    def of(features: np.ndarray) -> Basis:
        """The basis for features (E, H+1, F)."""
        keep = np.flatnonzero(np.ptp(features, axis=0).max(axis=0) > _CONSTANT)
        columns = features[:, :, keep]
        flat = columns.reshape(-1, len(keep))
        mean, scale = flat.mean(axis=0), flat.std(axis=0)
        rows = []
        for k in range(len(keep)):
            values = np.unique(flat[:, k])
            if len(values) > _KINKS + 2:
                spread = np.quantile(flat[:, k], np.linspace(0, 1, _KINKS + 2))
                values = np.unique(np.concatenate([values[:_STEPS], spread]))
            rows.append((values[:-1] - mean[k]) / scale[k])
        knots = np.full((len(keep), max(map(len, rows), default=0)), np.inf)
        for k, row in enumerate(rows):
            knots[k, : len(row)] = row
        return Basis(keep, mean, scale, knots, columns.min(axis=0), columns.max(axis=0), features.shape[1] - 1)

    @staticmethod
    def load(arrays: Mapping[str, np.ndarray]) -> Basis:
        """The basis that `arrays` were of."""
        return Basis(**{name: arrays[name] for name in _ARRAYS}, horizon=int(arrays["horizon"]))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """As plain arrays."""
        return {name: getattr(self, name) for name in _ARRAYS} | {"horizon": np.array(self.horizon)}

    @property
    def late(self) -> np.ndarray:
        """(P,) which columns are products."""
        flags = [False] * 4
        for k in range(len(self.keep)):
            n = int(np.isfinite(self.knots[k]).sum())
            flags += [False] * (1 + max(n - 1, 0) + min(n, _STEPS)) + [True] * (3 + 2 * min(n, _TIMED_STEPS))
        return np.array(flags + [True] * len(self._pairs()[0]))

    def columns(self, t: np.ndarray, x: np.ndarray) -> np.ndarray:
        """(n, P) for checkpoints t (n,) and features x (n, F)."""
        z = (np.clip(x[:, self.keep], self.low[t], self.high[t]) - self.mean) / self.scale
        t = np.asarray(t, np.float64)
        u, log, inverse = t / self.horizon, np.log1p(t) / np.log1p(self.horizon), 1 / (1 + t)
        out = [u, u * u, log, inverse]
        for k in range(z.shape[1]):
            a, q = z[:, k], self.knots[k][np.isfinite(self.knots[k])]
            steps = [(a > at + _CONSTANT).astype(float) for at in q[:_STEPS]]
            out += [a, *(np.maximum(a - at, 0) for at in q[1:]), *steps]
            out += [a * u, a * log, a * inverse, *(s * w for s in steps[:_TIMED_STEPS] for w in (log, inverse))]
        i, j = self._pairs()
        out += [z[:, a] * z[:, b] for a, b in zip(i, j, strict=True)]
        return np.stack(out, axis=1) if len(t) else np.zeros((0, len(self.late)))

    def table(self, features: np.ndarray) -> np.ndarray:
        """(E, T, P) for features (E, T, F) of the first T checkpoints."""
        episodes, times, width = features.shape
        rows = self.columns(np.tile(np.arange(times), episodes), features.reshape(-1, width))
        return rows.reshape(episodes, times, -1)

    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        k = len(self.keep)
        return np.triu_indices(k) if k <= _MANY else (np.arange(k), np.arange(k))


# -- Ridge regression with penalties chosen by cross-validation over traces, not rows ---------------------------------
# Always true: rows of one trace are in one fold, for their noise is shared; the intercept is free; the same numbers in, the
# same numbers out. Products (`late` columns) may be penalised by up to a thousand times more than the rest: a function that
# does not change with time is then learned from all checkpoints at once.

GRID = tuple((light, heavy) for light in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1) for heavy in (1.0, 30.0, 1000.0))
"""(penalty of a standardised column per row, how many times that for products)."""
_FOLDS = 3


@dataclass(frozen=True)
class Linear:
    """x ↦ x·coef + intercept, and the penalty it was fitted with."""

    coef: np.ndarray
    intercept: float
    penalty: tuple[float, float]
    explained: float = 0.0
    """Squared error that it saves on held-out traces, against the mean."""

    def __call__(self, columns: np.ndarray) -> np.ndarray:
        return np.asarray(columns @ self.coef + self.intercept)


def ridge(columns: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
    """Coefficients of y on columns whose first is 1 (not penalised): (X'X + n·penalty·I)⁻¹X'y."""
    gram = columns.T @ columns
    weight = np.full(len(gram), penalty * len(y))
    weight[0] = 1e-12 * len(y)
    return np.linalg.solve(gram + np.diag(weight + 1e-12), columns.T @ y)


def ridge_cv(
    columns: np.ndarray,
    y: np.ndarray,
    trace: np.ndarray,
    late: np.ndarray,
    weights: np.ndarray | None = None,
    grid: tuple[tuple[float, float], ...] = GRID,
    slack: float = 0.0,
) -> Linear:
    """Weighted ridge; the penalty of the grid with the least squared error on held-out traces (one entry: no search).

    With slack, the largest penalty of products that explains all but this share of what the best explains.
    """
    w = np.ones(len(y)) if weights is None else weights
    total = float(w.sum())
    mean, y_mean = (w @ columns) / total, float(w @ y) / total
    root = np.sqrt(w)
    rows = np.append(columns, (y - y_mean)[:, None], axis=1)
    rows *= root[:, None]
    parts = [rows[trace % _FOLDS == fold] for fold in range(_FOLDS)] if len(grid) > 1 else [rows]
    heads = [root[trace % _FOLDS == fold] for fold in range(_FOLDS)] if len(grid) > 1 else [root]
    # sums of squares and products, centred and scaled afterwards: the big arrays are read once
    shift = np.append(mean, 0.0)
    squares = [_centred(part, head, shift) for part, head in zip(parts, heads, strict=True)]
    scale = np.sqrt(np.maximum(sum(np.diag(g)[:-1] for g in squares) / total, 0.0))
    # a column that is the same everywhere: what its sum of squares leaves over, after centring, is rounding
    scale = np.where(scale > 1e-9 + 1e-6 * np.abs(mean), scale, np.inf)
    grams = [g[:-1, :-1] / np.outer(scale, scale) for g in squares]
    rights = [g[:-1, -1] / scale for g in squares]
    gram, right = np.sum(grams, axis=0), np.sum(rights, axis=0)
    ties = [light * np.where(late, heavy, 1.0) * total for light, heavy in grid]
    best, explained = 0, 0.0
    if len(grid) > 1:
        errors = np.array([_held_out(gram, right, grams, rights, tie) for tie in ties])  # what is explained, with a minus
        best = int(np.argmin(errors))
        most = errors[best] + slack * abs(errors[best])
        close = [i for i, (light, _) in enumerate(grid) if light <= grid[best][0] and errors[i] <= most]
        best = max(close, key=lambda i: (grid[i][1], grid[i][0])) if slack else best
        explained = -float(errors[best])
    coef = np.linalg.solve(gram + np.diag(ties[best]), right) / scale
    return Linear(coef, y_mean - float(mean @ coef), grid[best], explained)


def _centred(rows: np.ndarray, root: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Σ w (x − shift)(x − shift)' of rows √w·x."""
    sums, weight = root @ rows, float(root @ root)
    cross = np.outer(sums, shift)
    return np.asarray(rows.T @ rows - cross - cross.T + weight * np.outer(shift, shift))


def _held_out(gram: np.ndarray, right: np.ndarray, grams: list[np.ndarray], rights: list[np.ndarray], tie: np.ndarray) -> float:
    """The squared error on each fold of the fit to the others, up to a constant: c'Gc − 2c'r."""
    error = 0.0
    share = (len(grams) - 1) / len(grams)
    for g, r in zip(grams, rights, strict=True):
        coef = np.linalg.solve(gram - g + np.diag(tie * share), right - r)
        error += float(coef @ g @ coef - 2 * coef @ r)
    return error
