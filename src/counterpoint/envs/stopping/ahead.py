"""One round ahead, given only what was observed: what bounds and exact losses need.

Always true: nothing here sees the hidden part of an episode (its items, its reliability, its phase).

Draws come from the posterior predictive law of the next round, and they are independent of what the episode's own next round
brings; that is what makes the sum of W(x_t) − E[W(x_t) | x_0..x_{t−1}] a martingale for those who only observe. (A fork of the
episode would keep its hidden part, and condition on it.) Draws are stratified: one from each of n equal slices of the law, so
that their mean is unbiased and has little noise. Laws, with k the evidence after t rounds and q = 1 − find:

| world | next round |
|---|---|
| S0 | finds ~ Poisson(mean·find·q^t) |
| S1, S1b | finds ~ Poisson(γ·find·q^t), γ ~ Gamma(shape + k, rate + 1 − q^t) |
| S2 | the leader's margin grows with its posterior chance, else shrinks; from a tie it is 1 |
| S3 | +1, 0, −1 by the posterior chance that the draft still improves, after that many quiet rounds |
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from counterpoint.envs.stopping.config import Config, PoissonSearch, Saturation, Votes, WideSearch
from counterpoint.envs.stopping.optimum import (
    chance_right,
    improving,
    poisson_pmf,
    solve,
    state_of,
    transitions,
    votes_transitions,
)
from counterpoint.errors import InputError


def ahead(config: Config, t: int, features: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(E, draws, 5) features that checkpoint t + 1 may have, for features (E, 5) at t."""
    if not 0 <= t < config.horizon:
        raise InputError(f"no round after checkpoint {t}", fix=f"0 to {config.horizon - 1}")
    if draws < 1:
        raise InputError(f"draws is at least 1, not {draws}")
    x = _features(features, 2)
    evidence, quiet, drop = x[:, 1], x[:, 3], x[:, 4]
    then = evidence[:, None] + _change(config, t, evidence, quiet, drop, draws, rng)
    best = np.maximum((evidence + drop)[:, None], then)
    out = np.empty((*then.shape, 5))
    out[..., 0], out[..., 1] = t + 1, then
    out[..., 2] = then - evidence[:, None]
    out[..., 3] = np.where(out[..., 2] > 0, 0.0, quiet[:, None] + 1)
    out[..., 4] = best - then
    return out


def _change(
    config: Config, t: int, k: np.ndarray, quiet: np.ndarray, drop: np.ndarray, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """(E, draws) how the evidence moves in the next round: quantiles of its law, one in each of `draws` equal parts of (0, 1)."""
    u = (np.arange(draws) + rng.random((len(k), draws))) / draws
    left = (1 - getattr(config, "find", 0.0)) ** t
    match config:
        case PoissonSearch():
            mean = config.mean * config.find * left
            return np.searchsorted(np.cumsum(poisson_pmf(np.array([mean]))[0]), u * (1 - 1e-15))
        case WideSearch():
            return _finds(config.shape + k, config.find * left / (config.rate + 1 - left), u)
        case Votes():
            grows = votes_transitions(config, t)[1](np.arange(t + 2.0))  # E[next margin] = margin − 1 + 2·chance, above 0
            margin = k.astype(int)
            chance = np.where(margin > 0, (grows[margin] - margin + 1) / 2, 1.0)
            return np.where(u < chance[:, None], 1, -1)
        case Saturation():
            better = np.where(drop > 0, 0.0, improving(config)[quiet.astype(int)])
            up, down = (better * config.gain)[:, None], ((1 - better) * config.loss)[:, None]
            return np.where(u < up, 1, np.where(u >= 1 - down, -1, 0))


def _finds(shape: np.ndarray, odds: float, u: np.ndarray) -> np.ndarray:
    """(E, draws) quantiles of the negative binomial laws with shapes (E,) and mean shape·odds; P(n+1)/P(n) by recurrence."""
    out = np.zeros(u.shape, np.int64)
    if odds == 0:
        return out
    for a in np.unique(shape):
        n = np.arange(int(a * odds + 12 * np.sqrt(a * odds * (1 + odds)) + 40 * (1 + odds)))
        steps = np.log((a + n) / (n + 1) * odds / (1 + odds))
        pmf = np.exp(np.concatenate([[0.0], np.cumsum(steps)]) - a * np.log1p(odds))
        cdf = np.cumsum(pmf)
        rows = shape == a
        out[rows] = np.searchsorted(cdf, u[rows] * min(1.0, cdf[-1]) * (1 - 1e-15), side="right")
    return out


def scores_seen(config: Config, features: np.ndarray) -> np.ndarray:
    """(...,) E[Y_t | what was observed], for features (..., 5): the payoff, but for votes, where nobody sees who is right."""
    x = _features(features, None)
    t, evidence = x[..., 0].astype(int), x[..., 1]
    if not isinstance(config, Votes):
        return np.asarray(evidence - config.price * t)
    return np.asarray(_right(config)[t, evidence.astype(int)] - config.price * t)


def lost(config: Config, features: np.ndarray, times: np.ndarray) -> np.ndarray:
    """(E,) expected points lost to the optimal rule by stopping features (E, H+1, 5) at these checkpoints, exactly.

    J* − E[Y_τ] = E[ W_τ + Σ_{t<τ} (W_t − G_t) ], with G_t what going on is worth and W_t = max(0, G_t): what was still to be won
    at the stop, and what every round cost that should not have been played. The mean over episodes has little noise.
    """
    x = _features(features, 3)
    worth, wasted = solve(config).worth, _wasted(config)
    episodes = np.arange(len(x))
    out = np.zeros(len(x))
    for t in range(config.horizon + 1):
        here, on = episodes[times == t], episodes[times > t]
        out[here] += worth[t][state_of(config, x[here, t])]
        out[on] += wasted[t][state_of(config, x[on, t])]
    return out


@lru_cache(maxsize=64)
def _wasted(config: Config) -> np.ndarray:
    """(H+1, S) what one more round costs where the optimal rule stops; 0 where it goes on."""
    worth = solve(config).worth
    out = np.zeros_like(worth)
    for t in range(config.horizon):
        gain, mean = transitions(config, t)
        cost = np.maximum(0.0, -(gain + mean(worth[t + 1])))
        out[t, : len(cost)], out[t, len(cost) :] = cost, cost[-1]
    out.setflags(write=False)
    return out


@lru_cache(maxsize=64)
def _right(config: Votes) -> np.ndarray:
    """(H+1, H+1) the chance that the majority is right, by round and margin."""
    out = np.zeros((config.horizon + 1, config.horizon + 1))
    for t in range(config.horizon + 1):
        out[t, : t + 1] = chance_right(config, t)
    out.setflags(write=False)
    return out


def _features(features: np.ndarray, axes: int | None) -> np.ndarray:
    x = np.asarray(features, np.float64)
    if x.ndim < 1 or x.shape[-1] != 5 or (axes is not None and x.ndim != axes):
        raise InputError(f"features of shape {x.shape}", fix="the five features of a stopping world in the last axis")
    return x
