"""Policy gradients for a stop head: over all stop times at once, and by sampling one (a baseline).

Always true: the head is linear in the pooled basis, p_t = σ(f(x_t)), and starts at the best cap; batches are drawn by the
seed.

All stops: with U_t = p_t Y_t + (1 − p_t) U_{t+1}, U_H = Y_H and J = E[U_0],

    ∂J/∂f_t = E[ Π_{s<t}(1 − p_s) · p_t (1 − p_t) · (Y_t − U_{t+1}) ],

the exact gradient, with no sampling noise in the stop time. Sampled: stop at τ ~ p, (Y_τ − baseline)·∇log P(τ) (REINFORCE,
Williams 1992), the baseline being the batch's mean. Both climb with Adam (Kingma and Ba, 2015) on payoffs divided by their
scale. The rule stops where p ≥ 1/2. (Source: docs/research/stopping.md.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from counterpoint.train.stopping.basis import Basis
from counterpoint.train.stopping.paths import HasPaths, StopPaths, checked
from counterpoint.train.stopping.rule import Rule
from counterpoint.train.stopping.simple import rule_of
from counterpoint.train.stopping.values import last_useful

_BATCH, _PENALTY = 200, 1e-4
_EXACT, _SAMPLED = (80, 0.25), (200, 0.05)  # steps, and the first step size: noise needs more and smaller ones
_SLOPE = 1.0  # of the first head, per checkpoint, around the cap

Gradient = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]


def _sigmoid(f: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(f, -40, 40)))


def stop_value(f: np.ndarray, payoffs: np.ndarray) -> np.ndarray:
    """(E, H+1) U_t for stop scores f (E, H); the last checkpoint stops."""
    p, u = _sigmoid(f), payoffs.copy()
    for t in range(f.shape[1] - 1, -1, -1):
        u[:, t] = p[:, t] * payoffs[:, t] + (1 - p[:, t]) * u[:, t + 1]
    return u


def all_stops_gradient(f: np.ndarray, payoffs: np.ndarray) -> np.ndarray:
    """(E, H) ∂U_0/∂f_t of each trace."""
    p, u = _sigmoid(f), stop_value(f, payoffs)
    reach = np.cumprod(np.concatenate([np.ones((len(f), 1)), 1 - p[:, :-1]], axis=1), axis=1)
    return reach * p * (1 - p) * (payoffs[:, :-1] - u[:, 1:])


def sampled_score(f: np.ndarray, payoffs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(E, H) the sampled estimate of the same: (Y_τ − mean)·(1[t = τ] − p_t) for t ≤ τ."""
    p = _sigmoid(f)
    stop = np.concatenate([rng.random(p.shape) < p, np.ones((len(p), 1), bool)], axis=1)
    at = stop.argmax(axis=1)
    got = payoffs[np.arange(len(p)), at]
    times = np.arange(p.shape[1])
    step = np.where(times == at[:, None], 1 - p, np.where(times < at[:, None], -p, 0.0))
    return (got - got.mean())[:, None] * step


def all_stops(paths: HasPaths, seed: int = 0) -> Rule:
    """The all-stops policy gradient."""
    given = checked(paths)
    return _climb(given, seed, lambda f, y, _: all_stops_gradient(f, y), "all_stops", *_EXACT)


def sampled_gradient(paths: HasPaths, seed: int = 0) -> Rule:
    """REINFORCE on the same head."""
    return _climb(checked(paths), seed, sampled_score, "sampled_gradient", *_SAMPLED)


def _climb(paths: StopPaths, seed: int, gradient: Gradient, name: str, steps: int, first_rate: float) -> Rule:
    rng = np.random.default_rng([seed % 2**63, 5])
    basis, last = Basis.of(paths.features), last_useful(paths.payoffs)
    table = basis.table(paths.features[:, :last])
    mean, scale = table.mean(axis=(0, 1)), table.std(axis=(0, 1))
    scale = np.where(scale > 1e-9, scale, np.inf)
    table = ((table - mean) / scale).astype(np.float32)
    spread = np.diff(paths.payoffs, axis=1).std() * np.sqrt(last)
    payoffs = paths.payoffs[:, : last + 1] / (spread if spread > 0 else 1.0)
    head = _first_head(basis, mean, scale, int(np.argmax(payoffs.mean(axis=0))))
    start, first, second = head.copy(), np.zeros_like(head), np.zeros_like(head)
    for step in range(1, steps + 1):
        some = slice(None) if len(table) <= _BATCH else rng.choice(len(table), _BATCH, replace=False)
        x, y = table[some], payoffs[some]
        g = gradient((x @ head[:-1].astype(np.float32) + head[-1]).astype(float), y, rng)
        pull = g.reshape(-1).astype(np.float32) @ x.reshape(-1, x.shape[2])
        up = np.append(pull, g.sum()) / len(y) - _PENALTY * (head - start)
        first, second = 0.9 * first + 0.1 * up, 0.99 * second + 0.01 * up * up
        rate = first_rate * (1 - step / (steps + 1))
        head = head + rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    coef = head[:-1] / scale
    # a rule goes on where its score is above 0: the stop score with the other sign
    arrays = {**basis.arrays, "coef": -coef, "intercept": float(mean @ coef) - head[-1], "last": last}
    return rule_of("pooled", name, paths, seed, arrays)


def _first_head(basis: Basis, mean: np.ndarray, scale: np.ndarray, cap: int) -> np.ndarray:
    """A head that stops around the cap: slope·(t − cap + 1/2), for column 0 is t/H."""
    head = np.zeros(len(mean) + 1)
    head[0] = _SLOPE * basis.horizon * (scale[0] if np.isfinite(scale[0]) else 0.0)
    head[-1] = _SLOPE * (mean[0] * basis.horizon - cap + 0.5)
    return head
