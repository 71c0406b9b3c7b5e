"""Spawn credit: the gate refuses what the log does not cover, and covers the truth where it answers.

Always true: in this world a prefix is a class (0 to 7) and a load in [0, 1]. Spawning helps by the class's effect, and the effect
reverses exactly in classes 6 and 7, where the logged policy always spawns; in class 5 it passes one time in a hundred. Elsewhere
it spawns the more, the higher the load, and load itself moves the outcome, not linearly: so association is confounded, and a
linear outcome model is wrong. The effect of a single spawn varies around its class's. Each run logs 2,400 decisions. Truth is
known; intervals are estimate plus and minus 1.96 se; errors are compared on the classes that the gate answered. Forks at refused
prefixes are eight pairs whose shared noise cancels. The doubly robust arithmetic is `credits/doubly_robust.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from counterpoint.credits import doubly_robust as dr
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most, equal_within
from counterpoint.trace.statistics import NORMAL_95

_TAU = np.array([0.1, 0.5, 0.2, 0.6, 0.3, 0.4, -0.5, -0.5])
_LEAN = np.array([-0.8, -0.4, 0.0, 0.3, 0.6])
_UNCOVERED = np.array([6, 7])
_CLASSES, _CASES, _RUNS, _FORKS, _NOISE, _SPREAD = 8, 2400, 700, 8, 0.4, 0.3


def _logged(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """(class, load, propensity, spawned, return) of one run."""
    kind = rng.integers(0, _CLASSES, _CASES)
    load = rng.random(_CASES)
    lean = np.append(_LEAN, np.zeros(3))[kind] + 3.0 * (load - 0.5)
    e = np.where(kind <= 4, np.clip(1 / (1 + np.exp(-lean)), 0.08, 0.92), np.where(kind == 5, 0.99, 1.0))
    a = rng.random(_CASES) < e
    effect = _TAU[kind] + _SPREAD * rng.standard_normal(_CASES)
    r = 0.3 * kind + 1.5 * np.sin(3.0 * load) * load + effect * a + _NOISE * rng.standard_normal(_CASES)
    return kind, load, e, a, r


def _estimates(rng: np.random.Generator, altered: float = 1.0) -> dict[str, np.ndarray]:
    """Every estimator's effect by class, in one run; NaN where it does not answer."""
    kind, load, e, a, r = _logged(rng)
    e_log = np.clip(altered * e, 0.0, np.where(e < 1, 0.99, 1.0)) if altered != 1.0 else e
    x = np.column_stack([kind, load]).astype(np.float64)
    m1, m0 = dr.outcome_models(x, a, r, dr.folds_of(np.arange(_CASES), 5))
    classes, each = np.arange(_CLASSES), np.arange(_CASES)
    weights = lambda q: dr.same_leaf(classes[q], kind)  # noqa: E731
    usable = np.minimum(e_log, 1 - e_log) >= dr.LEAST_PROPENSITY
    score, zero = dr.psi(a, e_log, r, m1, m0), np.zeros(_CASES)
    gated = dr.local(np.where(usable, score, np.nan), a, each, _CLASSES, weights)
    # the propensity of a class for the gate: its least covered case
    rest = np.array([np.minimum(e_log, 1 - e_log)[kind == c].min(initial=1.0) for c in classes])
    why = dr.gate(rest, gated, np.zeros(_CLASSES, np.bool_))
    answered = np.array([reason is None for reason in why])
    mean = lambda v: np.bincount(kind, v, _CLASSES) / np.maximum(1, np.bincount(kind, minlength=_CLASSES))  # noqa: E731
    arm = lambda keep: np.bincount(kind, r * keep, _CLASSES) / np.maximum(1, np.bincount(kind, keep, _CLASSES))  # noqa: E731
    forked = _TAU[:, None] + _SPREAD * rng.standard_normal((_CLASSES, _FORKS))
    return {
        "association": arm(a) - arm(~a),
        "ips": mean(np.nan_to_num(dr.psi(a, e_log, r, zero, zero))),
        "direct": mean(m1 - m0),
        "ungated": dr.local(score, a, each, _CLASSES, weights).tau_Q,
        "answered": np.where(answered, gated.tau_Q, np.nan),
        "with forks": np.where(answered, gated.tau_Q, forked.mean(axis=1)),
        "se": np.where(answered, gated.se_Q, np.nan),
    }


def spawn_gate(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Each seed: seven hundred logged runs."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    found = [_measured(s) for s in tracked(range(seed, seed + seeds), "seeds")]
    told = {name: [f[name] for f in found] for name in found[0]}
    yield ClaimRow(
        "answers where the log has no coverage", float(max(told["uncovered"])), None, None, "0", max(told["uncovered"]) == 0
    )
    yield at_least("answers where it has", told["covered"], 0.95)
    yield equal_within("95 % intervals that cover, where answered", told["coverage"], 0.95, 0.02)
    for name in ("association", "ips", "direct"):
        yield at_most(f"rmse where answered, doubly robust over {name}", told[name], 1.0)
    yield at_least("rmse of ungated answers, refused region over answered", told["refused"], 1.5)
    yield at_most("rmse everywhere, with 8 forks where refused, over ungated", told["with forks"], 1.0)
    yield at_least("sign right, with forks", told["sign"], 0.9)
    yield at_least("rmse, propensities logged 20 % too high, over true ones", told["altered"], 1.1)


def _measured(seed: int) -> dict[str, float]:
    runs = [_estimates(np.random.default_rng([seed % 2**63, i])) for i in range(_RUNS)]
    wrong = [_estimates(np.random.default_rng([seed % 2**63, i]), 1.2) for i in range(_RUNS // 5)]
    all_ = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    rmse = lambda tau: float(np.sqrt(np.nanmean((tau - _TAU) ** 2)))  # noqa: E731
    best, few = rmse(all_["answered"]), rmse(all_["answered"][: len(wrong)])
    gap = np.abs(all_["answered"] - _TAU)
    has = np.isfinite(gap)
    there = lambda name: rmse(np.where(has, all_[name], np.nan))  # noqa: E731
    return {
        "uncovered": float(has[:, _UNCOVERED].mean()),
        "covered": float(has[:, : len(_LEAN)].mean()),
        "coverage": float((gap[has] <= NORMAL_95 * all_["se"][has]).mean()),
        **{name: best / there(name) for name in ("association", "ips", "direct")},
        "refused": rmse(np.where(has, np.nan, all_["ungated"])) / best,
        "with forks": rmse(all_["with forks"]) / rmse(all_["ungated"]),
        "sign": float((np.sign(all_["with forks"]) == np.sign(_TAU)).mean()),
        "altered": rmse(np.array([run["answered"] for run in wrong])) / few,
    }
