"""What is the best that can be done: the optimal stop rule, the best fixed cap and the prophet of each stopping world.

Always true: nothing here draws a number or shares code with the sampler. With Ȳ_t(s) the expected payoff of stopping in state s
at checkpoint t, and s a sufficient state:

    W_t(s) = max(0, E[Ȳ_{t+1} − Ȳ_t | s] + E[W_{t+1}(s') | s]),   W_H = 0,   J* = Y_0 + W_0,   Y_0 = 0;   stop where W_t(s) = 0.

| world | sufficient state | prophet |
|---|---|---|
| S0 | none: only time matters | walk of independent Poisson finds (`expected_maximum`) |
| S1, S1b | items found | the same given the mean, averaged over its Gamma prior by Gauss points |
| S2 | size of the margin | first round with a right majority: E[max(0, 1 − price·τ)] |
| S3 | rounds since the last gain; or "has lost" | walk that ends with the phase (`expected_maximum`) |

Sums are cut where what is left out has a chance below 1e-15; J* and the prophet are then right to about 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.stopping.config import Config, PoissonSearch, Saturation, Votes, WideSearch

_TAIL = 1e-15

Mean = Callable[[np.ndarray], np.ndarray]
"""f on the states of the next checkpoint to E[f | state] on the states of this one."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A stopping world, solved."""

    value: float
    """J*: points per episode of the optimal rule."""
    cap: float
    """Points per episode of the best fixed round."""
    cap_round: int
    """That round; the earliest of equals."""
    prophet: float
    """E[max_t Y_t]: points per episode of somebody who sees the future."""
    stop: np.ndarray
    """(H+1, S) whether to stop at checkpoint t in state s (`state_of`); equals stop."""
    worth: np.ndarray
    """(H+1, S) W: points that going on is worth above stopping now."""
    mean_round: float
    """The expected round at which the optimal rule stops."""

    @property
    def ceiling(self) -> float:
        """(J* − cap)/(prophet − cap): the share of the prophet gap that any rule can close; 0 where there is no gap."""
        gap = self.prophet - self.cap
        return (self.value - self.cap) / gap if gap > 1e-12 else 0.0


@lru_cache(maxsize=64)
def solve(config: Config) -> Solution:
    """Backward induction over the sufficient state, from the horizon."""
    horizon, states = config.horizon, _states(config)
    stop, worth = np.ones((horizon + 1, states), bool), np.zeros((horizon + 1, states))
    rounds = np.zeros(states)
    for t in range(horizon - 1, -1, -1):
        gain, mean = transitions(config, t)
        going_on = gain + mean(worth[t + 1])
        likely = len(gain)  # states beyond these have next to no chance at t: they do as the last one does
        stop[t, :likely], worth[t, :likely] = going_on <= 0, np.maximum(going_on, 0)
        stop[t, likely:], worth[t, likely:] = stop[t, likely - 1], worth[t, likely - 1]
        after = np.where(stop[t, :likely], 0.0, 1 + mean(rounds))
        rounds = np.concatenate([after, np.full(states - likely, after[-1])])
    fixed = mean_payoffs(config)
    for array in (stop, worth):
        array.setflags(write=False)
    cap_round = int(np.argmax(fixed))
    return Solution(
        value=float(worth[0, 0]),
        cap=float(fixed[cap_round]),
        cap_round=cap_round,
        prophet=prophet(config),
        stop=stop,
        worth=worth,
        mean_round=float(rounds[0]),
    )


def state_of(config: Config, features: np.ndarray) -> np.ndarray:
    """(E,) the column of `Solution.stop` for features (E, d) as the sampler names them: the sufficient state."""
    evidence, quiet, drop = features[:, 1].astype(int), features[:, 3].astype(int), features[:, 4]
    match config:
        case PoissonSearch():
            return np.zeros(len(features), int)
        case Saturation():
            return np.where(drop > 0, config.horizon + 1, quiet)
        case _:
            return np.minimum(evidence, _states(config) - 1)


def mean_payoffs(config: Config) -> np.ndarray:
    """(H+1,) E[Y_t]: what stopping at a fixed round pays."""
    t = np.arange(config.horizon + 1)
    match config:
        case PoissonSearch():
            quality = config.mean * (1 - (1 - config.find) ** t)
        case WideSearch():
            quality = config.shape / config.rate * (1 - (1 - config.find) ** t)
        case Votes():
            quality = sum(
                (w * _majority(r, config.horizon) for r, w in zip(config.reliabilities, config.weights, strict=True)), 0.0 * t
            )
        case Saturation():
            lasts = (1 - config.hazard) ** t[1:]
            quality = np.concatenate([[0.0], np.cumsum(lasts * config.gain - (1 - lasts) * config.loss)])
    return np.asarray(quality - config.price * t)


def _majority(reliability: float, horizon: int) -> np.ndarray:
    """(H+1,) the chance that more than half of t votes are right, by the law of the margin."""
    law, right = np.zeros(2 * horizon + 1), np.zeros(horizon + 1)
    law[horizon] = 1
    for t in range(1, horizon + 1):
        law = reliability * np.roll(law, 1) + (1 - reliability) * np.roll(law, -1)
        right[t] = law[horizon + 1 :].sum()
    return right


# -- one step ahead ------------------------------------------------------------------------------------------------------


def _states(config: Config) -> int:
    match config:
        case PoissonSearch():
            return 1
        case WideSearch():
            return _most_found(config, config.horizon) + 1
        case Votes():
            return config.horizon + 1
        case Saturation():
            return config.horizon + 2


def transitions(config: Config, t: int) -> tuple[np.ndarray, Mean]:
    """For the states at t: the expected gain of one more round, price paid, and the mean over the next state."""
    match config:
        case PoissonSearch():
            return np.array([config.mean * config.find * (1 - config.find) ** t - config.price]), lambda f: f
        case WideSearch():
            return _search_ahead(config, t)
        case Votes():
            return votes_transitions(config, t)
        case Saturation():
            return _saturation_ahead(config)


def _search_ahead(config: WideSearch, t: int) -> tuple[np.ndarray, Mean]:
    """Next finds given k: negative binomial, shape a = shape + k, odds c/b with b = rate + 1 − q^t, c = find·q^t."""
    unfound = (1 - config.find) ** t
    b, c = config.rate + 1 - unfound, config.find * unfound
    k, states = np.arange(_most_found(config, t) + 1), _states(config)
    if c == 0:
        return np.full(len(k), -config.price), lambda f: f[: len(k)]
    n = np.arange(_longest(config.shape + k[-1], c / b) + 1)
    log_gamma = np.array([math.lgamma(config.shape + j) for j in range(len(k) + len(n))])
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(n[1:]))])
    law = log_gamma[k[:, None] + n] - log_gamma[k, None] - log_factorial
    law += (config.shape + k[:, None]) * math.log(b / (b + c)) + n * (math.log(c) - math.log(b + c))
    np.exp(law, out=law)
    law /= law.sum(axis=1, keepdims=True)
    to = np.minimum(k[:, None] + n, states - 1)
    return (config.shape + k) * c / b - config.price, lambda f: np.einsum("kn,kn->k", law, f[to])


@lru_cache(maxsize=4096)
def _most_found(config: WideSearch, t: int) -> int:
    """More finds than this by round t have next to no chance: found ~ negative binomial(shape, (1 − q^t)/rate)."""
    return _longest(config.shape, (1 - (1 - config.find) ** t) / config.rate)


def _longest(shape: float, odds: float) -> int:
    """Where the tail of the negative binomial with this shape and mean shape·odds ends, to the precision that is needed."""
    if odds <= 0:
        return 0
    log_ratio, n, log_p = math.log(odds) - math.log1p(odds), 0, -shape * math.log1p(odds)
    top = (shape - 1) * odds  # the mode: the law rises up to here and falls after it
    while n < top or log_p > math.log(_TAIL) - math.log1p(odds):
        log_p += math.log((shape + n) / (n + 1)) + log_ratio
        n += 1
    return n


def votes_transitions(config: Votes, t: int) -> tuple[np.ndarray, Mean]:
    """The margin m goes to m + 1 when the next vote is for the leader, else to |m − 1|; from 0 it goes to 1."""
    m = np.arange(t + 1)
    right, wrong = _leads(config, t)
    chance = np.asarray(config.reliabilities)[:, None]
    up = _share((right * chance + wrong * (1 - chance)).sum(axis=0), (right + wrong).sum(axis=0))
    now, then = chance_right(config, t), chance_right(config, t + 1)
    return up * then[m + 1] + (1 - up) * then[abs(m - 1)] - now - config.price, lambda f: up * f[m + 1] + (1 - up) * f[abs(m - 1)]


def _leads(config: Votes, t: int) -> tuple[np.ndarray, np.ndarray]:
    """(R, t+1) the joint weight of reliability r, margin m and a right (wrong) leader, up to a common factor of each m.

    With b = (t − m)/2 votes against the leader: weight·(r(1 − r))^b·r^m, and (1 − r)^m in place of r^m when the leader is wrong.
    """
    r, m = np.asarray(config.reliabilities)[:, None], np.arange(t + 1)
    pair = r * (1 - r) / (max((r * (1 - r)).max(), 1e-300))
    weight = np.asarray(config.weights)[:, None] * pair ** ((t - m) / 2)
    return weight * r**m, weight * (1 - r) ** m


def chance_right(config: Votes, t: int) -> np.ndarray:
    """(t+1,) the chance that the majority is right at each margin; a tie is not."""
    right, wrong = (x.sum(axis=0) for x in _leads(config, t))
    return np.where(np.arange(t + 1) > 0, _share(right, right + wrong), 0.0)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, and a half where the whole is nothing: a margin that cannot come about."""
    return np.divide(part, whole, out=np.full(len(whole), 0.5), where=whole > 0)


def improving(config: Saturation) -> np.ndarray:
    """(H+1,) the posterior chance that the coming round still improves, after z quiet ones and no loss."""
    improves, total = np.ones(config.horizon + 1), 1.0
    for z in range(config.horizon + 1):
        improves[z] = total * (1 - config.hazard)
        quiet = improves[z] * (1 - config.gain)
        total = quiet / nothing if (nothing := quiet + (1 - improves[z]) * (1 - config.loss)) > 0 else 0.0
    return improves


def _saturation_ahead(config: Saturation) -> tuple[np.ndarray, Mean]:
    """States: z rounds since the last gain, z = 0..H, then "has lost": no gain can come any more."""
    improves = improving(config)
    up, down = improves * config.gain, (1 - improves) * config.loss
    gain = np.append(up - down, -config.loss) - config.price

    def mean(f: np.ndarray) -> np.ndarray:
        later = np.append(f[1:-1], f[-2])
        return np.append(up * f[0] + down * f[-1] + (1 - up - down) * later, f[-1])

    return gain, mean


# -- somebody who sees the future ----------------------------------------------------------------------------------------


def prophet(config: Config) -> float:
    """E[max_t Y_t]."""
    match config:
        case PoissonSearch():
            return float(_search_prophet(config, np.array([config.mean]))[0])
        case WideSearch():
            points, weights = gamma_nodes(config.shape, config.rate, 1 - (1 - config.find) ** config.horizon)
            return float(weights @ _search_prophet(config, points))
        case Votes():
            pairs = zip(config.reliabilities, config.weights, strict=True)
            return float(sum(weight * _votes_prophet(config, r) for r, weight in pairs))
        case Saturation():
            law = np.array([[1 - config.gain, config.gain]])
            reach = np.arange(config.horizon, -1, -1) * max(1 - config.price, 0.0)
            return float(expected_maximum([law] * config.horizon, config.price, config.hazard, reach)[0])


def _search_prophet(config: PoissonSearch | WideSearch, means: np.ndarray) -> np.ndarray:
    """Given the mean, finds of round t + 1 are Poisson(mean·find·q^t), independent of each other."""
    unfound = (1 - config.find) ** np.arange(config.horizon + 1)
    pmfs = [poisson_pmf(means * config.find * x) for x in unfound[:-1]]
    reach = np.array([poisson_pmf(means.max(keepdims=True) * (x - unfound[-1])).shape[1] - 1.0 for x in unfound])
    return expected_maximum(pmfs, config.price, 0.0, reach)


def _votes_prophet(config: Votes, reliability: float) -> float:
    """Σ_t P(the majority is right for the first time at t)·max(0, 1 − price·t): walks below zero, and their first step above."""
    law, total = np.zeros(config.horizon + 2), 0.0  # law[i]: margin −i
    law[0] = 1
    for t in range(1, config.horizon + 1):
        total += reliability * law[0] * max(0.0, 1 - config.price * t)
        law = np.append(reliability * law[1:], 0.0) + np.concatenate([[0.0], (1 - reliability) * law[:-1]])
    return total


# -- the prophet: the expected maximum of a walk -----------------------------------------------------------------------


_DIGITS = 12
# Chances below this are left out: far below what a float can add to the results.
_NOTHING = 1e-16
_LARGE_SHAPE = 6.0


def expected_maximum(pmfs: list[np.ndarray], price: float, hazard: float, reach: np.ndarray) -> np.ndarray:
    """(G,) the prophet's value for each of G laws: `pmfs[t]` is (G, N+1), the law of what round t + 1 brings.

    `reach[t]` is the most that the rounds after t can still add; `hazard` ends all gains, at the start of a round. A backward
    pass: where the increments are independent (given a mean, in wide search; while the phase lasts, in saturation) the state is
    d = running maximum − Y_t alone, and with X = N − price

        D_t(d) = hazard·d + (1 − hazard)·Σ_n P(N = n)·[ X + D_{t+1}(max(0, d − X)) ],     D_H(d) = d,     prophet = Y_0 + D_0(0).

    d lives on the finite set {price·i − j ≥ 0}, which is enumerated forwards; above the most that can still come, D_t(d) = d.
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
    likely = weights > _NOTHING
    return np.maximum(points[likely], 0) / tilted, weights[likely] / weights[likely].sum()


# -- One round ahead, given only what was observed: what bounds and exact losses need ---------------------------------
# Always true: nothing here sees the hidden part of an episode (its items, its reliability, its phase).
#
# Draws come from the posterior predictive law of the next round, and they are independent of what the episode's own next round
# brings; that is what makes the sum of W(x_t) − E[W(x_t) | x_0..x_{t−1}] a martingale for those who only observe. (A fork of
# the episode would keep its hidden part, and condition on it.) Draws are stratified: one from each of n equal slices of the
# law, so that their mean is unbiased and has little noise. Laws, with k the evidence after t rounds and q = 1 − find:
#
# | world | next round |
# |---|---|
# | S0 | finds ~ Poisson(mean·find·q^t) |
# | S1, S1b | finds ~ Poisson(γ·find·q^t), γ ~ Gamma(shape + k, rate + 1 − q^t) |
# | S2 | the leader's margin grows with its posterior chance, else shrinks; from a tie it is 1 |
# | S3 | +1, 0, −1 by the posterior chance that the draft still improves, after that many quiet rounds |


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
    unfound = (1 - getattr(config, "find", 0.0)) ** t
    match config:
        case PoissonSearch():
            mean = config.mean * config.find * unfound
            return np.searchsorted(np.cumsum(poisson_pmf(np.array([mean]))[0]), u * (1 - 1e-15))
        case WideSearch():
            return _finds(config.shape + k, config.find * unfound / (config.rate + 1 - unfound), u)
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


def observed_scores(config: Config, features: np.ndarray) -> np.ndarray:
    """(...,) E[Y_t | what was observed], for features (..., 5): the payoff, but for votes, where nobody sees who is right."""
    x = _features(features, None)
    t, evidence = x[..., 0].astype(int), x[..., 1]
    if not isinstance(config, Votes):
        return np.asarray(evidence - config.price * t)
    return np.asarray(_right(config)[t, evidence.astype(int)] - config.price * t)


def regret(config: Config, features: np.ndarray, times: np.ndarray) -> np.ndarray:
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
