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
        kept = features[:, :, keep]
        flat = kept.reshape(-1, len(keep))
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
        return Basis(keep, mean, scale, knots, kept.min(axis=0), kept.max(axis=0), features.shape[1] - 1)

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
