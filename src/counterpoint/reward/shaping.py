"""Potential-based shaping, F_t = gamma Phi_t - Phi_(t-1), which leaves every optimal policy as it was.

Ng, Harada and Russell, 1999.

Always true (the telescoping law): along one episode sum_t gamma^t F_t = gamma^T Phi_T - Phi_0; with the last potential set to
0, as the law of unchanged policies asks, it is -Phi_0: a constant, whatever was done in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from counterpoint.errors import InputError


def shaping(
    potential_T: Sequence[float] | np.ndarray, *, first: float = 0.0, gamma: float = 1.0, ends_at_zero: bool = False
) -> np.ndarray:
    """(T,) shaping rewards of T steps: `potential_T[t]` is the potential AFTER step t, `first` the one before all.

    `ends_at_zero` puts the last potential to 0; without it the sum keeps gamma^T Phi_T, which is what pays for progress made.
    """
    after_T = np.array(potential_T, np.float64)
    if after_T.ndim != 1:
        raise InputError(f"potentials form one row, not shape {after_T.shape}")
    if not (np.isfinite(after_T).all() and np.isfinite(first)):
        raise InputError("a potential is not a number", fix="leave out the steps that were not scored")
    if not 0 <= gamma <= 1:
        raise InputError(f"gamma lies in [0, 1], not {gamma}")
    if ends_at_zero and len(after_T):
        after_T[-1] = 0.0
    before_T = np.concatenate(([first], after_T[:-1])) if len(after_T) else after_T
    return gamma * after_T - before_T


def discounted(rewards_T: Sequence[float] | np.ndarray, gamma: float) -> float:
    """sum_t gamma^t r_t, t from 0."""
    rewards_T = np.asarray(rewards_T, np.float64)
    return float((rewards_T * gamma ** np.arange(len(rewards_T))).sum())
