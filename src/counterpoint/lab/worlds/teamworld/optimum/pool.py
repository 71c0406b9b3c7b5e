"""The exact optimum of one pool of unknown richness: how long to search, and with how many (W2).

Always true: after K calls that find each hidden find with chance p, and k finds, (K, k) is sufficient: when a find came says
nothing about how many are left. With q = (1 − p)^K the chance to be still hidden, and prior(M) the Gamma-Poisson mixture
(negative binomial; Poisson if `pool_shape` is 0) whose tail beyond `pool_slots` sits on `pool_slots`,

    P(M | K, k) ∝ prior(M) · M!/(M−k)! · q^(M−k)
    G(k, q) = Σ_R prior(k+R) · C(k+R, k) · q^R
    P(k → k' in one call) = C(k', k) · (q·p)^(k'−k) · G(k', q·(1−p)) / G(k, q)

`value` searches one call at a time; `team_value` plays whole rounds of the world that is one pool, with spawns.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, inf, lgamma, log, log1p

import numpy as np

from counterpoint.lab.worlds.teamworld import optimum as offers
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.optimum.draft import Offer


@lru_cache(maxsize=64)
def prior(mean: float, shape: float, slots: int) -> np.ndarray:
    """P(M = 0..slots): Gamma-Poisson (Poisson if shape is 0), cut at `slots` with the tail's mass there."""
    m = np.arange(slots)
    out = np.zeros(slots + 1)
    if mean == 0:
        out[0] = 1.0
        return out
    factorial = np.array([lgamma(x + 1) for x in range(slots)])
    if shape == 0:
        logs = m * log(mean) - mean - factorial
    else:
        rise = np.array([lgamma(x + shape) for x in range(slots)]) - lgamma(shape)
        logs = rise - factorial + shape * log(shape / (shape + mean)) + m * log(mean / (shape + mean))
    out[:slots] = np.exp(logs)
    out[slots] = max(0.0, 1.0 - out[:slots].sum())
    return out


@lru_cache(maxsize=8)
def _log_choose(slots: int) -> np.ndarray:
    """log C(j, i) at [i, j]; −inf where i > j."""
    f = np.array([lgamma(x + 1) for x in range(slots + 1)])
    i, j = np.arange(slots + 1)[:, None], np.arange(slots + 1)[None]
    return np.where(j >= i, f[j] - f[i] - f[np.maximum(j - i, 0)], -inf)


@lru_cache(maxsize=8)
def steps(mean: float, shape: float, slots: int, p: float, calls: int) -> np.ndarray:
    """P(k' | k) of one call after K calls, (calls, slots + 1, slots + 1); a row that cannot be reached stays where it is."""
    choose, gap = _log_choose(slots), np.maximum(np.arange(slots + 1)[None] - np.arange(slots + 1)[:, None], 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_prior = np.log(prior(mean, shape, slots))

        def log_g(q: float) -> np.ndarray:
            terms = choose + log_prior[None] + _log_power(q, gap)
            top = np.maximum(terms.max(axis=1), -1e300)
            return np.asarray(top + np.log(np.exp(terms - top[:, None]).sum(axis=1)))

        out, here = np.empty((calls, slots + 1, slots + 1)), log_g(1.0)
        for done in range(calls):
            q = (1 - p) ** done
            ahead = log_g(q * (1 - p))
            row = np.exp(choose + _log_power(q * p, gap) + ahead[None] - here[:, None])
            lost = ~np.isfinite(here)
            row[lost] = np.eye(slots + 1)[lost]
            out[done], here = row / row.sum(axis=1, keepdims=True), ahead
    out.flags.writeable = False
    return out


def _log_power(x: float, n: np.ndarray) -> np.ndarray:
    """log x^n with 0^0 = 1."""
    return np.where(n == 0, 0.0, n * (log(x) if x > 0 else -inf))


def _steps(config: Config, p: float, calls: int) -> np.ndarray:
    return steps(config.pool_mean, config.pool_shape, config.pool_slots, p, calls)


@lru_cache(maxsize=4096)
def fixed_value(config: Config, p: float, price: float, calls: int) -> float:
    """Points of one pool searched call by call, each finding with p and costing `price`, `calls` at most.

    V(K, k) = max(weight · k, −price + Σ_k' P(k'|k) · V(K+1, k')), V at the last K is weight · k.
    """
    return float(_backward(config, p, price, calls)[0][0, 0])


def _backward(config: Config, p: float, price: float, calls: int) -> tuple[np.ndarray, np.ndarray]:
    """(V (calls + 1, slots + 1) with the finds so far paid, whether to go on (calls, slots + 1))."""
    move, stop_value = _steps(config, p, calls), config.pool_weight * np.arange(config.pool_slots + 1.0)
    best, on = np.repeat(stop_value[None], calls + 1, axis=0), np.zeros((calls, len(stop_value)), dtype=bool)
    for done in range(calls - 1, -1, -1):
        go = move[done] @ best[done + 1] - price
        on[done] = go > stop_value
        best[done] = np.maximum(stop_value, go)
    return best, on


def value(config: Config, b: int, extra: float = 0.0) -> float:
    """The optimum of one pool with workers of one family, the better of the two, at brief b and `extra` points more per call."""
    terms = offers.single(offers.workers(config, b))
    return max(fixed_value(config, config.pool_find[f] * g, price + extra, config.pool_calls) for f, (g, price) in terms)


def rule(config: Config, b: int, extra: float, family: int) -> np.ndarray:
    """Whether to call again after K calls and k finds of one family, bool (pool_calls, pool_slots + 1)."""
    g, price = offers.single(offers.workers(config, b))[family][1]
    return _backward(config, config.pool_find[family] * g, price + extra, config.pool_calls)[1]


def bound(config: Config, offer: Offer, extra: float = 0.0) -> float:
    """No policy gets more of one pool on these terms, however it mixes the families.

    Measure search by its hazard h_f = −log(1 − p_f): then a call of f is a stretch of length h_f of one continuous search, and
    pays at least r · h_f with r = min_f price_f / h_f. Who may stop anywhere in that search at r per unit gets at most what calls
    of the cheapest family f* get, plus one call's price: run on to the end of the stretch, which loses no find. (Its number of
    calls is raised so that the hazard of `pool_calls` calls of the strongest family fits in.) Also valid: the best p at the least
    price.
    """
    terms = [(config.pool_find[f] * g, price + extra) for f, (g, price) in offers.single(offer)]
    p, price = max(t[0] for t in terms), min(t[1] for t in terms)
    relaxed = fixed_value(config, p, price, config.pool_calls)
    if (p, price) in terms or p >= 1 - 1e-9:
        return relaxed
    p_star, price_star = min((t for t in terms if t[0] > 0), key=lambda t: t[1] / -log1p(-t[0]))
    calls = ceil(config.pool_calls * log1p(-p) / log1p(-p_star) - 1e-9)
    if calls > 20 * config.pool_calls:
        return relaxed
    return min(relaxed, fixed_value(config, p_star, price_star, calls) + price_star)


def team_value(config: Config, b: int | None = None, family: int | None = None) -> float:
    """The optimum of the world that is one pool (W2), over policies that fix family and brief; the best of those not given.

    Candidates whose relaxation (rounds ≥ calls / n) is below the best so far are skipped.
    """

    def relaxed(bf: tuple[int, int]) -> float:
        g, price = offers.single(offers.workers(config, bf[0]))[bf[1]][1]
        p, most = config.pool_find[bf[1]] * g, _most_agents(config)
        return max(
            fixed_value(config, p, price + config.round_price / n, config.pool_calls)
            - config.spawn_price * n
            - config.round_price
            for n in range(1, most + 1)
        )

    pairs = [(bb, f) for bb in range(4) for f in (0, 1) if b in (None, bb) and family in (None, f)]
    top, best = sorted(((relaxed(pair), pair) for pair in pairs), reverse=True), 0.0
    for limit, pair in top:
        if limit > best:
            best = max(best, _rounds_value(config, *pair))
    return best


def _most_agents(config: Config) -> int:
    """More agents than calls can never all work: an agent takes at most one call of a pool in a round."""
    return min(config.max_agents, config.pool_calls)


@lru_cache(maxsize=64)
def _rounds_value(config: Config, b: int, family: int) -> float:
    """Backward induction over (K calls, k finds, n agents), whole rounds.

    V(K,k,n) = max( w·k, max over n' ≥ n and m ≤ n of −round − spawn·(n'−n) − price·m + E[ V(K+m, k', n') | K, k, m calls ] )

    n' is chosen before the round's finds are seen and works from the next round on. A blind batch of m calls is m single steps:
    B_m(K) = P(K) · B_{m−1}(K+1), B_0 = V, so that one matrix product per K serves all m and n'.
    """
    (g, price), most, slots = offers.single(offers.workers(config, b))[family][1], _most_agents(config), config.pool_slots
    move = _steps(config, config.pool_find[family] * g, config.pool_calls)
    stop_value = config.pool_weight * np.arange(slots + 1.0)
    spawn = config.spawn_price * np.arange(most + 1.0)
    batches = np.empty((0, slots + 1, most + 1))  # B_m(K+1, k, n'), m = 0..
    for done in range(config.pool_calls, -1, -1):
        if len(batches):
            rows = batches.transpose(1, 0, 2).reshape(slots + 1, -1)
            ahead = (move[done] @ rows).reshape(slots + 1, len(batches), most + 1).transpose(1, 0, 2)
        else:
            ahead = batches
        here = np.repeat(stop_value[:, None], most + 1, axis=1)
        if len(ahead):
            m = np.arange(1, len(ahead) + 1)
            later = np.maximum.accumulate((ahead - spawn)[:, :, ::-1], axis=2)[:, :, ::-1] + spawn - (price * m)[:, None, None]
            later = np.where(m[:, None, None] <= np.arange(most + 1), later, -inf)
            here = np.maximum(here, later.max(axis=0) - config.round_price)
        for n in range(most - 1, -1, -1):  # a round without calls, only to spawn
            grown = (here[:, n + 1 :] - (spawn[n + 1 :] - spawn[n])).max(axis=1) - config.round_price
            here[:, n] = np.maximum(here[:, n], grown)
        batches = np.concatenate([here[None], ahead])[:most]
    return float(here[0, 0])
