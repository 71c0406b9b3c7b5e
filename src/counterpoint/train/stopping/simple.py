"""Stop rules with few numbers: the best fixed cap, tuned scalar thresholds, and hindsight labels (a baseline that must lose).

Always true: every number is chosen on the training traces alone; equals go to the earlier cap and the earlier feature.

A threshold stops when a feature, or the feature per round, has risen to a level or has fallen to it: confidence is a threshold
on the margin, patience one on the quiet rounds, a rate of gain one on finds per round. Feature and direction are chosen by
3-fold cross-validation, the level then on all traces. Hindsight labels say 1 from the best moment max_t Y_t on; a pooled ridge
regression predicts them and the rule stops at 1/2. They use what nobody could know, so the rule waits for luck that does not
come. (Source: docs/research/stopping.md.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from counterpoint.train.stopping._fit import ridge_cv
from counterpoint.train.stopping.basis import Basis
from counterpoint.train.stopping.paths import HasPaths, StopPaths, checked
from counterpoint.train.stopping.rule import Rule, paid

_LEVELS = 30
FOLDS = 3


def rule_of(kind: str, trainer: str, paths: StopPaths, seed: int, arrays: dict[str, Any]) -> Rule:
    """A rule that says where it comes from."""
    about = {**paths.about, "trainer": trainer, "seed": int(seed), "traces": len(paths.payoffs)}
    plain = {name: np.asarray(value) for name, value in arrays.items()}
    _, checkpoints, width = paths.features.shape
    return Rule(kind=kind, arrays=plain, horizon=checkpoints - 1, width=width, about=about)


def folds_of(traces: int, seed: int) -> np.ndarray:
    """(E,) the fold of each trace, equally many in each, by the seed."""
    return np.random.default_rng([seed % 2**63, 3]).permutation(np.arange(traces) % FOLDS)


def best_cap(paths: HasPaths, seed: int = 0) -> Rule:
    """The checkpoint with the highest mean payoff."""
    given = checked(paths)
    return rule_of("cap", "best_cap", given, seed, {"cap": int(np.argmax(given.payoffs.mean(axis=0)))})


def threshold(paths: HasPaths, seed: int = 0) -> Rule:
    """The best level of one feature."""
    given = checked(paths)
    fold = folds_of(len(given.payoffs), seed)
    best: tuple[float, dict[str, Any]] = (-np.inf, {})
    for which, values, levels in _families(given.features):
        got = _paid_at(given.payoffs, values, levels)
        total = sum(float(got[fold == k, np.argmax(got[fold != k].mean(axis=0))].sum()) for k in range(FOLDS))
        if total > best[0] + 1e-9 * abs(total):
            best = total, {**which, "level": which["sign"] * levels[np.argmax(got.mean(axis=0))]}
    if not best[1]:
        return best_cap(given, seed)
    return rule_of("threshold", "threshold", given, seed, best[1])


def paid_by_thresholds(payoffs: np.ndarray, features: np.ndarray) -> np.ndarray:
    """(E, rules) what every threshold rule would be paid."""
    return np.concatenate([_paid_at(payoffs, values, levels) for _, values, levels in _families(features)], axis=1)


def _families(features: np.ndarray) -> Iterator[tuple[dict[str, Any], np.ndarray, np.ndarray]]:
    """Feature, direction and whether per round; its values (E, H+1), times the sign; the levels to try."""
    for feature in range(features.shape[2]):
        for per_round in (False, True):
            values = features[:, :, feature] / (1 + np.arange(features.shape[1]) if per_round else 1)
            if np.ptp(values) < 1e-12:
                continue
            levels = np.unique(np.quantile(values, np.linspace(0, 1, _LEVELS), method="nearest"))
            for sign in (1, -1):
                yield {"feature": feature, "per_round": per_round, "sign": sign}, sign * values, sign * levels


def _paid_at(payoffs: np.ndarray, values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """(E, L) what stopping pays at the first value that reaches each level; the last checkpoint where none does."""
    peak = np.maximum.accumulate(values, axis=1)
    return np.stack(
        [paid(payoffs, np.minimum((peak < level - 1e-9).sum(axis=1), payoffs.shape[1] - 1)) for level in levels], axis=1
    )


def hindsight(paths: HasPaths, seed: int = 0) -> Rule:
    """Regression on labels that know the future: stop from argmax_t Y_t on."""
    given = checked(paths)
    basis = Basis.of(given.features)
    table = basis.table(given.features)
    episodes, times, width = table.shape
    label = np.arange(times) >= np.argmax(given.payoffs, axis=1)[:, None]
    trace = np.repeat(folds_of(episodes, seed), times)
    fit = ridge_cv(table.reshape(-1, width), label.ravel().astype(float), trace, basis.late)
    arrays = {**basis.arrays, "coef": -fit.coef, "intercept": 0.5 - fit.intercept, "last": times - 1}
    return rule_of("pooled", "hindsight", given, seed, arrays)
