"""Weights over training time: constant, linear, cosine, and one driven by a measured indicator.

Always true: a plain schedule is a function of the step alone, `schedule(step) -> weight`; the indicator's schedule is a pure
update `(state, observations) -> state`, whose state is a frozen value that can be stored. A weight is never negative and never
above its first value.

Indicator (ours). R7 terms are scaffolds: they should leave once the primary reward alone can rank spawn against noop. Per
context bucket c, and per arm, a decayed count W, mean and variance of the PRIMARY reward are kept (W <- d W + n, so that n
rewards from one update share one decay):

    t(c)        = |m_1 - m_0| / sqrt(v_1 / W_1 + v_0 / W_0)
    resolved(c) = clip((t - 1) / 2, 0, 1)  if both W > 4, else its last value times `fade`
    kappa       = mean over the buckets seen so far
    L           <- 0.98 L while kappa > 0.75, else min(1, 1.02 L)
    lambda      = lambda0 (1 - kappa) L

Derivation: docs/lab/research/balancing.md. Buckets never seen do not count in kappa; the decay d is 0.995. Limit: where
more than a quarter of the buckets are true ties kappa stays below 0.75 and the scaffold stays too; there it costs nothing in
the primary reward by definition. PARL (Kimi K2.5, arXiv 2602.02276) anneals to zero and publishes no schedule; `linear` is the
usual reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from counterpoint.errors import InputError, did_you_mean

Schedule = Callable[[float], float]
_FORMS = ("linear", "cosine")
_KEYS = {"from", "to", "until", "form"}


def weight_at(weight: float | Schedule | Mapping[str, Any], step: float, name: str = "reward") -> float:
    """A weight as data, at a step: a number, a schedule, or {"from": a, "to": b}, which is b from step `until` (1) on.

    `form` is linear, as it is where nothing is said, or cosine. In a preset a step is the share of the run that is over.
    """
    if callable(weight):
        return float(weight(step))
    if isinstance(weight, int | float) and not isinstance(weight, bool):
        return float(weight)
    if not isinstance(weight, Mapping) or not {"from", "to"} <= set(weight) <= _KEYS:
        fix = 'a number, or {"from": 0.2, "to": 0.0}, with "until" and "form" where wanted; in a preset also {"indicator": 0.2}'
        raise InputError(f"the weight of {name} is {weight!r}", fix=fix)
    form, until = weight.get("form", "linear"), weight.get("until", 1.0)
    if form not in _FORMS:
        raise InputError(f"no form {form!r} of a weight", fix=did_you_mean(str(form), _FORMS))
    if not until > 0:
        raise InputError(f"the weight of {name} ends at {until}", fix='"until" above 0')
    done = min(1.0, max(0.0, step / until))
    done = done if form == "linear" else 0.5 * (1.0 - math.cos(math.pi * done))
    return float(weight["from"] + (weight["to"] - weight["from"]) * done)


def _first(weight: float, end: float = 1.0) -> None:
    if not (math.isfinite(weight) and weight >= 0):
        raise InputError(f"a first weight is finite and at least 0, not {weight}")
    if not end > 0:
        raise InputError(f"a schedule ends after step 0, not at {end}")


def constant(weight: float) -> Schedule:
    """The same weight at every step."""
    _first(weight)
    return lambda step: weight


def linear(weight: float, end: float, *, last: float = 0.0) -> Schedule:
    """From `weight` at step 0 straight to `last` at step `end`, and `last` from there on."""
    _first(weight, end)
    return lambda step: last + (weight - last) * min(max(1.0 - step / end, 0.0), 1.0)


def cosine(weight: float, end: float, *, last: float = 0.0) -> Schedule:
    """From `weight` at step 0 along half a cosine to `last` at step `end`, and `last` from there on."""
    _first(weight, end)
    return lambda step: last + (weight - last) * 0.5 * (1.0 + math.cos(math.pi * min(max(step / end, 0.0), 1.0)))


# -- the indicator ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Indicator:
    """The state of the indicator's schedule; axes `_CA`: context bucket, arm (0 noop, 1 spawn)."""

    count_CA: np.ndarray
    """Decayed number of rewards."""
    mean_CA: np.ndarray
    square_CA: np.ndarray
    """Decayed mean and mean square of the primary reward."""
    resolved_C: np.ndarray
    seen_C: np.ndarray
    level: float = 1.0
    """L."""

    @staticmethod
    def of(buckets: int) -> Indicator:
        """Nothing seen yet."""
        if buckets < 1:
            raise InputError(f"there is at least one context bucket, not {buckets}")
        zero = np.zeros((buckets, 2))
        return Indicator(zero, zero, zero, np.zeros(buckets), np.zeros(buckets, np.bool_))

    @property
    def kappa(self) -> float:
        """How far the primary reward alone ranks the arms: mean of resolved over the buckets seen; 0 where none was."""
        return float(self.resolved_C[self.seen_C].mean()) if self.seen_C.any() else 0.0


@dataclass(frozen=True)
class Scaffold:
    """The constants of the indicator's schedule: `update` a state, read the `weight`."""

    first: float
    """lambda0."""
    decay: float = 0.995
    """Of the counts and means, per update. At 0.98 a settled policy forgets its rare arm before L has fallen (measured)."""
    fade: float = 0.9999
    """Of a bucket's last value while an arm has too few rewards."""
    least: float = 4.0
    """The decayed count above which an arm is judged."""
    enough: float = 0.75
    """The kappa above which L falls."""
    fall: float = 0.98
    rise: float = 1.02

    def __post_init__(self) -> None:
        _first(self.first)
        if not (0 <= self.decay < 1 and 0 <= self.fade <= 1):
            raise InputError(f"decay lies in [0, 1) and fade in [0, 1], not {self.decay} and {self.fade}")

    def weight(self, state: Indicator) -> float:
        """lambda0 (1 - kappa) L."""
        return self.first * (1.0 - state.kappa) * state.level

    def update(self, state: Indicator, bucket_N: np.ndarray, spawned_N: np.ndarray, primary_N: np.ndarray) -> Indicator:
        """The state after one batch of (bucket, spawned or not, primary reward)."""
        bucket_N, arm_N = np.asarray(bucket_N, np.int64), np.asarray(spawned_N, np.bool_).astype(np.int64)
        primary_N = np.asarray(primary_N, np.float64)
        buckets = len(state.resolved_C)
        if not bucket_N.shape == arm_N.shape == primary_N.shape or bucket_N.ndim != 1:
            raise InputError(f"one bucket, arm and reward per choice, not {bucket_N.shape}, {arm_N.shape}, {primary_N.shape}")
        if not np.isfinite(primary_N).all():
            raise InputError("a primary reward is NaN or infinite", fix="leave out what was not scored")
        if len(bucket_N) and not (bucket_N.min() >= 0 and bucket_N.max() < buckets):
            raise InputError(f"buckets run from 0 to {buckets - 1}")
        cell_N = bucket_N * 2 + arm_N
        count, mean, square = (
            np.bincount(cell_N, weights, buckets * 2).reshape(buckets, 2)
            for weights in (np.ones_like(primary_N), primary_N, primary_N**2)
        )
        kept_CA = self.decay * state.count_CA
        count_CA = kept_CA + count
        divisor_CA = np.maximum(count_CA, 1e-300)
        mean_CA = (kept_CA * state.mean_CA + mean) / divisor_CA
        square_CA = (kept_CA * state.square_CA + square) / divisor_CA
        is_judged_C = (count_CA > self.least).all(axis=1)
        now_C = resolved(mean_CA, square_CA - mean_CA**2, divisor_CA)
        resolved_C = np.where(is_judged_C, now_C, self.fade * state.resolved_C)
        seen_C = state.seen_C | (count.sum(axis=1) > 0)
        after = replace(state, count_CA=count_CA, mean_CA=mean_CA, square_CA=square_CA, resolved_C=resolved_C, seen_C=seen_C)
        level = state.level * self.fall if after.kappa > self.enough else min(1.0, state.level * self.rise)
        return replace(after, level=level)


def scaffold_of(weight: Any, name: str = "reward") -> Scaffold | None:
    """The indicator's schedule of a weight given as data, {"indicator": 0.2}: 0.2 at first, with other constants of `Scaffold`
    where wanted; None for a weight that is not driven by the indicator."""
    if not isinstance(weight, Mapping) or "indicator" not in weight:
        return None
    known = ["indicator", *(f.name for f in fields(Scaffold) if f.name != "first")]
    for key, value in weight.items():
        if key not in known:
            raise InputError(f"the weight of {name} has no {key!r}", fix=did_you_mean(key, known))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{key} of the weight of {name} is {value!r}", fix="a number")
    return Scaffold(float(weight["indicator"]), **{k: float(v) for k, v in weight.items() if k != "indicator"})


def resolved(mean_CA: np.ndarray, var_CA: np.ndarray, count_CA: np.ndarray) -> np.ndarray:
    """(C,) clip((|t| - 1) / 2, 0, 1) of two arms; equal arms without variance are unresolved, unequal ones resolved."""
    gap_C = np.abs(mean_CA[:, 1] - mean_CA[:, 0])
    error_C = np.sqrt((np.maximum(var_CA, 0.0) / count_CA).sum(axis=1))
    t_C = np.divide(gap_C, error_C, out=np.where(gap_C > 1e-12, np.inf, 0.0), where=error_C > 1e-12)
    return np.clip((t_C - 1.0) / 2.0, 0.0, 1.0)
