"""The optimum of a pool: against recursion over histories with the hidden number summed out, and by hand."""

from __future__ import annotations

from math import comb, exp, factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lab.worlds.teamworld import optimum
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.optimum import pool

TINY = Config(pool_items=1, pool_mean=1.5, pool_slots=3, pool_calls=4, pool_find=(0.3, 0.5), price=(0.05, 0.15))


def _found(left: int, j: int, p: float) -> float:
    return comb(left, j) * p**j * (1 - p) ** (left - j) if j <= left else 0.0


def _recursion(config: Config, terms: list[tuple[float, float]], weight: np.ndarray, calls: int = 0, k: int = 0) -> float:
    """Value to go times P(history): `weight[M]` = P(M and the finds so far). Any family at any call."""
    best = 0.0
    if calls < config.pool_calls:
        for p, price in terms:
            total = -price * weight.sum()
            for j in range(config.pool_slots - k + 1):
                ahead = np.array([w * _found(m - k, j, p) if m >= k else 0.0 for m, w in enumerate(weight)])
                total += config.pool_weight * j * ahead.sum() + _recursion(config, terms, ahead, calls + 1, k + j)
            best = max(best, total)
    return best


def _rounds(config: Config, p: float, price: float, weight: np.ndarray, calls: int = 0, k: int = 0, n: int = 0) -> float:
    """The same in whole rounds: spawn up to n', let m of the n old agents call, finds joined."""
    best = 0.0
    for grown in range(n, config.max_agents + 1):
        for m in range(min(n, config.pool_calls - calls) + 1):
            if m == 0 and grown == n:
                continue
            total = -(config.round_price + config.spawn_price * (grown - n) + price * m) * weight.sum()
            for j in range(config.pool_slots - k + 1 if m else 1):
                ahead = np.array([w * _found(i - k, j, 1 - (1 - p) ** m) if i >= k else 0.0 for i, w in enumerate(weight)])
                total += config.pool_weight * j * ahead.sum() + _rounds(config, p, price, ahead, calls + m, k + j, grown)
            best = max(best, total)
    return best


def test_prior_is_the_gamma_mixture_of_poissons() -> None:
    """Trapezoid rule on γ for Gamma(shape 2, mean 1.5)."""
    gamma = np.linspace(0, 60, 200_001)
    density = gamma * (2 / 1.5) ** 2 * np.exp(-gamma * 2 / 1.5)
    by_hand = [np.trapezoid(density * np.exp(-gamma) * gamma**m / factorial(m), gamma) for m in range(3)]
    assert pool.prior(1.5, 2.0, 3) == pytest.approx([*by_hand, 1 - sum(by_hand)], abs=1e-7)
    poisson = [exp(-1.5), 1.5 * exp(-1.5)]
    assert pool.prior(1.5, 0.0, 2) == pytest.approx([*poisson, 1 - sum(poisson)])
    assert pool.prior(0.0, 2.0, 2).tolist() == [1, 0, 0]


@pytest.mark.parametrize("shape", [0.0, 0.6, 2.0])
def test_equals_recursion_over_histories(shape: float) -> None:
    config = Config(**{**vars(TINY), "pool_shape": shape})
    prior = pool.prior(1.5, shape, 3)
    for b in (0, 2):
        expected = max(
            _recursion(config, [(config.pool_find[f] * config.brief_factor[b], config.price[f] + 0.0012 * b + 0.02)], prior)
            for f in (0, 1)
        )
        assert pool.value(config, b, 0.02) == pytest.approx(expected, abs=1e-12)
    assert pool.value(config, 2, 0.02) > 0


def test_bound_covers_mixed_families_tightly() -> None:
    prior = pool.prior(1.5, 2.0, 3)
    for extra in (0.0, 0.02, 0.1, 0.3):
        terms = [(find, price + 0.0024 + extra) for find, price in zip(TINY.pool_find, TINY.price, strict=True)]
        mixed, bound = _recursion(TINY, terms, prior), pool.bound(TINY, optimum.workers(TINY, 2), extra)
        assert mixed >= pool.value(TINY, 2, extra) - 1e-12
        assert mixed - 1e-12 <= bound <= mixed + 0.45


def test_team_equals_recursion_over_rounds() -> None:
    config = Config(**{**vars(TINY), "pool_slots": 2, "pool_calls": 3, "max_agents": 3, "spawn_price": 0.03, "round_price": 0.04})
    for shape in (0.0, 2.0):
        now = Config(**{**vars(config), "pool_shape": shape})
        for f in (0, 1):
            expected = _rounds(now, now.pool_find[f], now.price[f] + 0.0024, pool.prior(1.5, shape, 2))
            assert pool.team_value(now, 2, f) == pytest.approx(expected, abs=1e-12)
            assert expected > 0


def test_a_sure_search_by_hand() -> None:
    """p = 1: one call takes all of E min(M, 96) ≈ 20 finds; a second is never worth its price."""
    config = Config(pool_items=1, pool_find=(1.0, 1.0), price=(0.5, 0.5), brief_price=0.0)
    mean = float(pool.prior(20.0, 2.0, 96) @ np.arange(97))
    assert pool.value(config, 2) == pytest.approx(mean - 0.5, abs=1e-9)
    assert not pool.rule(config, 2, 0.0, 0)[1].any()


def test_poisson_stops_at_a_fixed_time() -> None:
    """Without a Gamma the finds left do not depend on those found (S0): the rule is a number of calls, cut at the slots."""
    config = Config(pool_items=1, pool_shape=0.0, pool_mean=8.0, pool_slots=60)
    go = pool.rule(config, 2, 0.1, 1)
    assert np.all(go[:, :30] == go[:, :1])
    assert 0 < go[:, 0].sum() < config.pool_calls


def test_default_pool() -> None:
    config = Config(pool_items=1)
    assert pool.team_value(config) == pytest.approx(17.6051, abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 4), st.sampled_from([0.0, 0.6, 2.0]))
def test_falls_convexly_in_the_price(x: float, y: float, mean: float, shape: float) -> None:
    config = Config(pool_items=1, pool_mean=mean, pool_shape=shape, pool_slots=12, pool_calls=9)
    low, high = sorted((x, y))
    ends = pool.value(config, 1, low), pool.value(config, 1, high)
    assert ends[0] >= ends[1] >= 0
    assert pool.value(config, 1, (low + high) / 2) <= sum(ends) / 2 + 1e-12
    assert pool.bound(config, optimum.workers(config, 1), low) >= ends[0] - 1e-12
    assert pool.steps(mean, shape, 12, 0.3, 9).sum(axis=2) == pytest.approx(1.0)
