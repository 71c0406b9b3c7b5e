"""Ridge regression on flat arrays, and what it predicts.

    z = (x - mean) / sd      beta = (Z'Z + lambda I)^-1 Z'(y - mean y)      f(x) = mean y + z beta

Always true: the intercept is not shrunk, so that a regression on nothing predicts the mean; a column without spread has weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoint.errors import InputError


@dataclass(frozen=True)
class Ridge:
    """A fitted ridge regression."""

    mean_D: np.ndarray
    scale_D: np.ndarray
    beta_D: np.ndarray
    intercept: float

    def __call__(self, x_ND: np.ndarray) -> np.ndarray:
        """(N,) predictions."""
        x_ND = np.asarray(x_ND, np.float64)
        if x_ND.ndim != 2 or x_ND.shape[1] != len(self.beta_D):
            raise InputError(f"features of shape {x_ND.shape}", fix=f"one row per case, {len(self.beta_D)} columns")
        return self.intercept + (x_ND - self.mean_D) / self.scale_D @ self.beta_D


def ridge(x_ND: np.ndarray, y_N: np.ndarray, penalty: float = 1.0) -> Ridge:
    """The ridge regression of y on x."""
    x_ND, y_N = np.asarray(x_ND, np.float64), np.asarray(y_N, np.float64)
    if x_ND.ndim != 2 or len(x_ND) != len(y_N) or not len(y_N):
        raise InputError(f"{x_ND.shape} features for {len(y_N)} outcomes", fix="one row per outcome, at least one")
    if not penalty >= 0:
        raise InputError(f"penalty is {penalty}", fix="0 or more")
    mean_D, sd_D = x_ND.mean(axis=0), x_ND.std(axis=0)
    scale_D = np.where(sd_D > 1e-12, sd_D, 1.0)
    z_ND = np.where(sd_D > 1e-12, (x_ND - mean_D) / scale_D, 0.0)
    centre = float(y_N.mean())
    gram = z_ND.T @ z_ND + max(penalty, 1e-9) * np.eye(x_ND.shape[1])
    beta_D = np.where(sd_D > 1e-12, np.linalg.solve(gram, z_ND.T @ (y_N - centre)), 0.0)
    return Ridge(mean_D, scale_D, beta_D, centre)
