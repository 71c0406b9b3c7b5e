"""The prophet: the expected maximum of a walk, E[max_t Y_t], by a backward pass that carries the running maximum.

Always true: nothing here draws a number. Where the increments are independent (given a mean, in wide search; while the phase
lasts, in saturation) the state is d = running maximum − Y_t alone, and with X = N − price

    D_t(d) = hazard·d + (1 − hazard)·Σ_n P(N = n)·[ X + D_{t+1}(max(0, d − X)) ],     D_H(d) = d,     prophet = Y_0 + D_0(0).

d lives on the finite set {price·i − j ≥ 0}, which is enumerated forwards; above the most that can still come, D_t(d) = d.
"""

from __future__ import annotations

import numpy as np

_DIGITS = 12
# Chances below this are left out: far below what a float can add to the results.
_NOTHING = 1e-16
_LARGE_SHAPE = 6.0


def expected_maximum(pmfs: list[np.ndarray], price: float, hazard: float, reach: np.ndarray) -> np.ndarray:
    """(G,) the prophet's value for each of G laws: `pmfs[t]` is (G, N+1), the law of what round t + 1 brings.

    `reach[t]` is the most that the rounds after t can still add; `hazard` ends all gains, at the start of a round.
    """
    grids: list[np.ndarray] = [np.zeros(1)]
    for t, pmf in enumerate(pmfs):
        ahead = grids[-1][:, None] + price - np.arange(pmf.shape[1])
        grid = np.unique(np.round(np.maximum(ahead, 0), _DIGITS))
        grids.append(grid[grid <= reach[t + 1]])
    later: np.ndarray = np.broadcast_to(grids[-1], (pmfs[0].shape[0], len(grids[-1])))
    for t in range(len(pmfs) - 1, -1, -1):
        d, after = grids[t], grids[t + 1]
        now = np.zeros((later.shape[0], len(d)))
        for n, chance in enumerate(pmfs[t].T):
            moved: np.ndarray = np.round(np.maximum(d + price - n, 0), _DIGITS)
            inside = moved <= reach[t + 1]
            place = np.minimum(np.searchsorted(after, moved), max(len(after) - 1, 0))
            value = np.where(inside, later[:, place], moved) if len(after) else moved
            now += chance[:, None] * (n - price + value)
        later = hazard * d + (1 - hazard) * now
    return later[:, 0]


def poisson_pmf(means: np.ndarray) -> np.ndarray:
    """(G, N+1) the Poisson law of each mean, up to where every tail is nothing; rows sum to 1."""
    most = float(means.max())
    n = np.arange(int(most + 9 * np.sqrt(most) + 20) + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(n[1:]))])
    with np.errstate(divide="ignore", invalid="ignore"):
        pmf = np.exp(np.where(n == 0, 0.0, n * np.log(means)[:, None]) - means[:, None] - log_factorial)
    pmf = pmf[:, : 1 + np.flatnonzero(pmf.max(axis=0) > _NOTHING).max()]
    return np.asarray(pmf / pmf.sum(axis=1, keepdims=True))


def gamma_nodes(shape: float, rate: float, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights for E[f(γ)], γ ~ Gamma(shape, rate), right to about 1e-12 for sums of polynomial·exp(−u·γ), u ≤ reach.

    The Gauss-Laguerre rule of the tilted law Gamma(shape, r), r² = rate·(rate + reach), times the ratio of the two densities: an
    n-point rule is wrong by ρ^(2n) on exp(−u·γ), and the tilt makes ρ = (r − rate)/(r + rate) equally small at both ends. (With a
    large shape these exponentials are next to nothing, and no tilt is needed.) Points are the eigenvalues of the recurrence
    (Golub and Welsch, 1969), weights are 1/Σ p_k² (Christoffel).
    """
    tilted = (rate * (rate + reach)) ** 0.5 if shape < _LARGE_SHAPE else rate
    nodes = 20 + int(18 / -np.log((tilted - rate) / (tilted + rate) + 1e-6)) if shape < _LARGE_SHAPE else 100
    k = np.arange(nodes)
    side = np.sqrt(k[1:] * (k[1:] + shape - 1))
    points = np.linalg.eigvalsh(np.diag(2 * k + shape) + np.diag(side, 1) + np.diag(side, -1))
    before, now = np.zeros(nodes), np.ones(nodes)
    total = now**2
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(nodes - 1):
            before, now = now, ((points - 2 * j - shape) * now - (side[j - 1] * before if j else 0)) / side[j]
            total = total + now**2
    log_ratio = shape * np.log(rate / tilted) + (1 - rate / tilted) * points
    weights = np.where(np.isfinite(total), np.exp(log_ratio - np.log(total)), 0.0)
    kept = weights > _NOTHING
    return np.maximum(points[kept], 0) / tilted, weights[kept] / weights[kept].sum()
