"""Balancing a mixed reward (R8): fixed, GDPO, variance, variation, and ours (docs/lab/research/balancing.md).

Always true: pure functions of arrays. Values are flat, `_KN`: component, sample, with a group id per sample; gradients are
`_KD`: component, parameter, with any axes before (independent runs). Component 0 is the primary reward: the verified outcome.

Ours. g_k is the gradient of the group-normalised advantage of component k, computed on two halves of the batch:

    rho_k   = EMA cos(g_k of half 1, g_k of half 2)                     reliability: is there a signal at all
    alpha_k = cos(EMA g_k, EMA g_0)                                     alignment: does it point where the outcome points
    w_k     = clip(max(alpha_k, 0)^2 max(rho_k, 0) / max(rho_0, floor), 0, 3),   w_0 = 1
    g_k     <- g_k - min(<g_k, g_0>, 0) g_0 / |g_0|^2                   one-sided projection
    g       = sum_k w_k g_k / sqrt(sum_k w_k^2)

so a component's scale cancels, noise and opposition get no weight, and the primary is never scaled down against another
component. Departures: both EMAs are corrected for their start; halves shorter than 1e-9 of the remembered mean are rounding and
agree in nothing. GDPO is arXiv 2601.05242; `variance_weights` and `variation_weights` are short forms of the ideas of DVAO
(2605.25604) and SAW (2606.07705), not of those methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from counterpoint.errors import InputError

_TINY = 1e-300


def _finite(values: np.ndarray, what: str) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if not values.size:
        raise InputError(f"there are no {what}", fix="give at least one")
    if not np.isfinite(values).all():
        raise InputError(f"some {what} are NaN or infinite", fix="leave out what was not scored")
    return values


# -- values -----------------------------------------------------------------------------------------------------------------


def normalised(values_KN: np.ndarray, group_N: Sequence[int] | np.ndarray, *, ddof: int = 0) -> np.ndarray:
    """Each component minus its group's mean, over its group's standard deviation; 0 where a group does not vary.

    What varies by less than rounding (1e-12 of the group's largest value) does not vary.
    """
    values_KN = _finite(values_KN, "values")
    kind_N = np.unique(np.asarray(group_N), return_inverse=True)[1]
    if kind_N.shape != values_KN.shape[-1:]:
        raise InputError(f"one group id per sample, not {kind_N.shape} for {values_KN.shape}")
    flat = values_KN.reshape(-1, values_KN.shape[-1])
    out = np.empty_like(flat)
    count_G = np.bincount(kind_N)
    for k, row in enumerate(flat):
        centred = row - (np.bincount(kind_N, row) / count_G)[kind_N]
        std_G = np.sqrt(np.bincount(kind_N, centred**2) / np.maximum(count_G - ddof, 1))
        size_G = np.zeros(len(count_G))
        np.maximum.at(size_G, kind_N, np.abs(row))
        varies_N = (std_G > 1e-12 * size_G)[kind_N]
        out[k] = np.where(varies_N, centred / np.maximum(std_G, _TINY)[kind_N], 0.0)
    return out.reshape(values_KN.shape)


def weighted(parts_KD: np.ndarray, weights_K: Sequence[float] | np.ndarray | None = None) -> np.ndarray:
    """Fixed weights: sum_k w_k part_k; all 1 unless given."""
    parts_KD = _finite(parts_KD, "components")
    weights_K = np.ones(parts_KD.shape[-2]) if weights_K is None else _finite(np.asarray(weights_K), "weights")
    if weights_K.shape[-1] != parts_KD.shape[-2]:
        raise InputError(f"{weights_K.shape[-1]} weights for {parts_KD.shape[-2]} components", fix="one weight per component")
    out: np.ndarray = (weights_K[..., None] * parts_KD).sum(axis=-2)
    return out


def gdpo(
    values_KN: np.ndarray,
    group_N: Sequence[int] | np.ndarray,
    weights_K: Sequence[float] | np.ndarray | None = None,
    *,
    whiten: bool = True,
    ddof: int = 1,
) -> np.ndarray:
    """GDPO's advantage: each reward normalised in its group, then the weighted sum, then (`whiten`) the batch normalised.

    Components that cancel up to rounding cancel: whitening would blow the rest up.
    """
    parts_KN = normalised(values_KN, group_N, ddof=ddof)
    total_N = weighted(parts_KN, weights_K)
    total_N[np.abs(total_N) <= 1e-12 * weighted(np.abs(parts_KN), None if weights_K is None else np.abs(weights_K))] = 0.0
    return normalised(total_N[None], np.zeros(len(total_N)), ddof=ddof)[0] if whiten else total_N


def variance_weights(values_KN: np.ndarray, group_N: Sequence[int] | np.ndarray) -> np.ndarray:
    """(K,) weights in proportion to the mean variance inside groups, summing to K; all 1 where nothing varies."""
    values_KN = _finite(values_KN, "values")
    kind_N = np.unique(np.asarray(group_N), return_inverse=True)[1]
    count_G = np.bincount(kind_N)
    centred = np.stack([row - (np.bincount(kind_N, row) / count_G)[kind_N] for row in values_KN])
    return _shares((centred**2).mean(axis=-1))


def variation_weights(values_KN: np.ndarray) -> np.ndarray:
    """(K,) weights in proportion to the batch's coefficient of variation, std / |mean|, summing to K; all 1 where none varies."""
    values_KN = _finite(values_KN, "values")
    mean_K, std_K = np.abs(values_KN.mean(axis=-1)), values_KN.std(axis=-1)
    return _shares(std_K / np.maximum(mean_K, 1e-8 * np.maximum(std_K, _TINY)))


def _shares(amount_K: np.ndarray) -> np.ndarray:
    total = amount_K.sum()
    return amount_K * (len(amount_K) / total) if total > 0 else np.ones(len(amount_K))


# -- gradients --------------------------------------------------------------------------------------------------------------


# -- ours -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientMemory:
    """What `Balance` remembers: the moving averages, and how often they moved."""

    mean_KD: np.ndarray
    """EMA of g_k, not yet corrected for its start."""
    reliability_K: np.ndarray
    """EMA of the cosine of the halves, likewise."""
    steps: int = 0

    @staticmethod
    def of(components: int, parameters: int, runs: Sequence[int] = ()) -> GradientMemory:
        """Nothing seen yet."""
        if components < 1 or parameters < 1:
            raise InputError(f"there is at least one component and one parameter, not {components} and {parameters}")
        return GradientMemory(np.zeros((*runs, components, parameters)), np.zeros((*runs, components)))


class Balanced(NamedTuple):
    """One step of `Balance`."""

    total_D: np.ndarray
    """The gradient to follow."""
    weights_K: np.ndarray
    memory: GradientMemory


@dataclass(frozen=True)
class Balance:
    """Our weights: reliability times squared alignment, one-sided projection, the primary at 1."""

    decay: float = 0.9
    """Of both moving averages."""
    floor: float = 0.05
    """The least reliability of the primary that others are measured against."""
    most: float = 3.0
    """The largest weight."""

    def __post_init__(self) -> None:
        if not (0 <= self.decay < 1 and self.floor > 0 and self.most >= 0):
            raise InputError(f"decay in [0, 1), floor > 0, most >= 0; not {self.decay}, {self.floor}, {self.most}")

    def step(self, memory: GradientMemory, half1_KD: np.ndarray, half2_KD: np.ndarray) -> Balanced:
        """The balanced gradient of one batch, from the gradients of its two halves."""
        half1_KD, half2_KD = _finite(half1_KD, "gradients"), _finite(half2_KD, "gradients")
        if not half1_KD.shape == half2_KD.shape == memory.mean_KD.shape:
            raise InputError(f"gradients of shape {half1_KD.shape} and {half2_KD.shape}; {memory.mean_KD.shape} is remembered")
        g_KD = 0.5 * (half1_KD + half2_KD)
        steps, keep = memory.steps + 1, self.decay
        mean_KD = keep * memory.mean_KD + (1 - keep) * g_KD
        least_K = 1e-9 * _length(memory.mean_KD)
        agree_K = np.where(np.minimum(_length(half1_KD), _length(half2_KD)) > least_K, _cosine(half1_KD, half2_KD), 0.0)
        reliability_K = keep * memory.reliability_K + (1 - keep) * agree_K
        rho_K = reliability_K / (1 - keep**steps)
        alpha_K = _cosine(mean_KD, mean_KD[..., :1, :])
        w_K = np.maximum(alpha_K, 0) ** 2 * np.maximum(rho_K, 0) / np.maximum(rho_K[..., :1], self.floor)
        w_K = np.clip(w_K, 0.0, self.most)
        w_K[..., 0] = 1.0
        total_D = weighted(one_sided(g_KD), w_K) / np.sqrt((w_K**2).sum(axis=-1, keepdims=True))
        return Balanced(total_D, w_K, GradientMemory(mean_KD, reliability_K, steps))


def one_sided(g_KD: np.ndarray) -> np.ndarray:
    """Gradients without what opposes component 0's; component 0 is untouched."""
    first = g_KD[..., :1, :]
    norm = np.maximum((first**2).sum(axis=-1, keepdims=True), _TINY)
    against = np.minimum((g_KD * first).sum(axis=-1, keepdims=True), 0.0)
    return g_KD - against / norm * first


def _length(g_KD: np.ndarray) -> np.ndarray:
    out: np.ndarray = np.sqrt((g_KD**2).sum(axis=-1))
    return out


def _cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine along the last axis; 0 where either is zero."""
    size = _length(a) * _length(b)
    out: np.ndarray = np.where(size > 0, (a * b).sum(axis=-1) / np.maximum(size, _TINY), 0.0)
    return out
