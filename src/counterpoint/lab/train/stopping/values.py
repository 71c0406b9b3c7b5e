"""Longstaff-Schwartz: learn what going on is worth above stopping now, from the payoffs that a rule would really get.

Always true: what is regressed is the advantage C − Y_t, never the level; C is the realised payoff of the rule that was learned
for later checkpoints, never the maximum of a fitted value; stop where the prediction is ≤ 0.

Per time (Longstaff and Schwartz, 2001), backwards for t = H−1..0: ridge regression of C − Y_t on the quadratic basis of the
features at t, then C ← Y_t where the rule stops. It needs about ten traces per column. Pooled: one regression over all
checkpoints, on the time-dependent basis, and policy iteration: play the rule, regress, stop where the prediction is ≤ 0, again.
Departures: rows that the rule does not reach are thinned out; rows where the outcome is surer weigh more (two-step generalised
least squares); C may be mixed with the prediction one round ahead, y_t = ΔY_t + [goes on](μ·y_{t+1} + (1 − μ)·f_{t+1}), where
μ = 1 is the plain form; of the later half of the iterations, and the mean of their coefficients, the one that pays best is kept.
"""

from __future__ import annotations

import numpy as np

from counterpoint.guard.stop_basis import GRID, Basis, Linear, quadratic, ridge, ridge_cv
from counterpoint.guard.stop_paths import HasPaths, StopPaths, checked
from counterpoint.guard.stop_rule import Rule, first_stop, folds_of, payoff_at, rule_of

_PENALTY = 1e-3
_ROUNDS, _SEARCHED = 8, 3
_REACH, _UNREACHED = 2, 0.05
_SEEN = 0.995
_KEEP = 0.7  # μ
_SUREST = 0.01  # the least variance that a row may have, as a share of the mean


def longstaff_schwartz(paths: HasPaths, seed: int = 0) -> Rule:
    """One regression per checkpoint, backwards."""
    given = checked(paths)
    y, x = given.payoffs, given.features
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 1e-9, scale, np.inf)
    cash, coefs = y[:, -1].copy(), []
    for t in range(y.shape[1] - 2, -1, -1):
        columns = quadratic((x[:, t] - mean[t]) / scale[t])
        coef = ridge(columns, cash - y[:, t], _PENALTY)
        cash = np.where(columns @ coef <= 0, y[:, t], cash)
        coefs.append(coef)
    arrays = {"mean": mean, "scale": scale, "low": x.min(axis=0), "high": x.max(axis=0), "coef": np.array(coefs[::-1])}
    return rule_of("per_time", "longstaff_schwartz", given, seed, arrays)


def pooled(paths: HasPaths, seed: int = 0) -> Rule:
    """One regression over all checkpoints, by policy iteration."""
    return mixed(paths, seed, keep=1.0)


def mixed(paths: HasPaths, seed: int = 0, *, keep: float = _KEEP) -> Rule:
    """The same with μ = keep."""
    given = checked(paths)
    basis, fit = pooled_fit(given, seed, keep)
    arrays = {**basis.arrays, "coef": fit.coef, "intercept": fit.intercept, "last": last_useful(given.payoffs)}
    return rule_of("pooled", "pooled", given, seed, arrays)


def last_useful(payoffs: np.ndarray) -> int:
    """The checkpoint by which all but one in two hundred traces have seen their best payoff: later ones teach nothing."""
    return int(min(max(np.quantile(np.argmax(payoffs, axis=1), _SEEN) + 1, 1), payoffs.shape[1] - 1))


def returns(gains: np.ndarray, stops: np.ndarray, ahead: np.ndarray | None, keep: float) -> np.ndarray:
    """(E, H) y_t: what going on at t brings above stopping there, for gains ΔY (E, H) and a rule's stops (E, H+1).

    `ahead` (E, H) holds predictions of the same; they are mixed in with weight 1 − keep.
    """
    out, later = np.empty_like(gains), np.zeros(len(gains))
    for t in range(gains.shape[1] - 1, -1, -1):
        out[:, t] = gains[:, t] + later
        mixed = out[:, t] if ahead is None else keep * out[:, t] + (1 - keep) * ahead[:, t]
        later = np.where(stops[:, t], 0.0, mixed)
    return out


def pooled_fit(paths: StopPaths, seed: int, keep: float = _KEEP, *, sure: bool = True) -> tuple[Basis, Linear]:
    """The basis, and the worth of going on as a linear function of it: for its sign when `sure`, else for its size.

    For the sign, surer rows weigh more, and what pays best is kept.
    """
    horizon = last_useful(paths.payoffs)
    payoffs, episodes = paths.payoffs[:, : horizon + 1], len(paths.payoffs)
    gains = np.diff(payoffs, axis=1)
    basis = Basis.of(paths.features)
    table = basis.table(paths.features[:, :horizon]).reshape(episodes * horizon, -1)
    fold = np.repeat(folds_of(episodes, seed), horizon)
    rng = np.random.default_rng([seed % 2**63, 7])
    stops = np.tile(np.arange(horizon + 1) >= np.argmax(payoffs.mean(axis=0)), (episodes, 1))
    stops[:, -1] = True
    surer, grid, fits = np.ones(len(table)), GRID, []
    ahead: np.ndarray | None = None
    for i in range(_ROUNDS):
        y = returns(gains, stops, ahead, keep).ravel()
        reached = (np.arange(horizon) <= first_stop(stops)[:, None] + _REACH).ravel()
        some = np.flatnonzero(reached | (rng.random(len(table)) < _UNREACHED))  # of the rest, a sample
        rows, y, of = table[some], y[some], fold[some]
        fit = ridge_cv(rows, y, of, basis.late, surer[some], grid)
        fits.append(fit)
        surer = _surer(rows, y - fit(rows), of, basis.late, table) if sure else surer
        grid = GRID if i + 1 < _SEARCHED else (fit.penalty,)
        ahead = fit(table).reshape(episodes, horizon)
        stops[:, :-1] = ahead <= 0
    half = fits[_ROUNDS // 2 :]
    mean = Linear(np.mean([f.coef for f in half], axis=0), float(np.mean([f.intercept for f in half])), half[-1].penalty)

    def worth(fit: Linear) -> float:
        stops[:, :-1] = fit(table).reshape(episodes, horizon) <= 0
        return float(payoff_at(payoffs, first_stop(stops)).mean())

    # Policy iteration may go round in circles, so the best of what it passed is kept; the mean of the later half comes first.
    return basis, max([mean, *half], key=worth) if sure else mean


def _surer(rows: np.ndarray, errors: np.ndarray, fold: np.ndarray, late: np.ndarray, table: np.ndarray) -> np.ndarray:
    """One over the variance of each row of the table, by a regression of the log of squared errors of some rows."""
    square = errors**2
    mean = float(square.mean())
    if mean <= 0:
        return np.ones(len(table))
    fit = ridge_cv(rows, np.log(square / mean + 1e-3), fold, late, None, ((1e-3, 30.0),))
    weight = 1 / (np.exp(np.clip(fit(table), -7, 7)) + _SUREST)
    return np.asarray(weight / weight.mean())
