"""Ridge regression with penalties chosen by cross-validation over traces, not rows.

Always true: rows of one trace are in one fold, for their noise is shared; the intercept is free; the same numbers in, the same
numbers out. Products (`late` columns) may be penalised by up to a thousand times more than the rest: a function that does not
change with time is then learned from all checkpoints at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
