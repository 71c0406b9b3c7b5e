"""Chains of steps: the sheet's GAE numbers, the scan against a plain loop, and what is skipped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.credits.advantages import gae, reward_to_go, scan, td_lambda, td_targets
from counterpoint.credits.mechanisms.marft import non_zero_normalised
from counterpoint.credits.mechanisms.puppeteer import step_costs
from counterpoint.errors import InputError
from credits import vectors as v

close = lambda x: pytest.approx(x, abs=v.TOLERANCE)  # noqa: E731


@pytest.mark.parametrize("name", v.GAE)
def test_the_published_numbers(name: str) -> None:
    rewards, values, gamma, lam, expected = v.GAE[name]
    advantages, returns = gae(rewards, values, gamma=gamma, lam=lam)
    assert advantages == close(expected)
    assert returns == pytest.approx(advantages + np.array(values))


def test_returns_are_taken_before_whitening() -> None:
    rewards, values, gamma, lam, _ = v.GAE["ppo_gae"]
    assert gae(rewards, values, gamma=gamma, lam=lam)[1] == close(v.PPO_RETURNS)


def test_marft() -> None:
    rewards, values, gamma, lam, expected = v.GAE["marft.action_level_gae"]
    assert gae(rewards, values, gamma=gamma, lam=lam)[0] == close(expected)
    assert non_zero_normalised(expected) == close(v.MARFT_NORMALISED)
    assert non_zero_normalised([0.0, 0.7, 0.0]) == pytest.approx([0, 0.7, 0])


def test_tool_tokens_are_skipped_and_absent() -> None:
    mask = np.array([1, 0, 0, 1, 1], bool)
    a, returns = gae([0, 0, 0, 0, 1], [0.2, 9, 9, 0.4, 0.6], gamma=1.0, lam=0.95, is_policy=mask)
    assert a[mask] == close([0.751, 0.58, 0.4])
    assert np.isnan(a[~mask]).all()
    assert np.isnan(returns[~mask]).all()
    with pytest.raises(InputError, match="did not take"):
        gae([0, 1, 0], [0, 0, 0], is_policy=[True, False, True])


def test_chains_do_not_touch() -> None:
    a, _ = gae([0, 0, 1, 0, 1], [0.2, 0.4, 0.6, 0.3, 0.6], segments=[5, 5, 5, 2, 2], gamma=0.99, lam=0.95)
    alone = [gae([0, 0, 1], [0.2, 0.4, 0.6], gamma=0.99, lam=0.95)[0], gae([0, 1], [0.3, 0.6], gamma=0.99, lam=0.95)[0]]
    assert a == pytest.approx(np.concatenate(alone))
    assert a[3:] == close(v.GAE["ippo.local_gae"][4])
    with pytest.raises(InputError, match="stand together"):
        gae([0, 0, 0], [0, 0, 0], segments=[1, 2, 1])


def test_bootstrap_is_the_value_after_the_end() -> None:
    assert gae([1.0, 1.0], [0.0, 0.0], gamma=0.5, lam=1.0, bootstrap=4.0)[0] == pytest.approx([2.5, 3.0])
    two = gae([1.0, 1.0], [0.0, 0.0], segments=[0, 1], gamma=0.5, lam=1.0, bootstrap=[4.0, 8.0])[0]
    assert two == pytest.approx([3.0, 5.0])


def test_td_lambda_and_td_targets() -> None:
    c = v.COMA_TD
    assert td_lambda(c["r"], c["next_q"], gamma=0.99, lam=0.8, done=c["done"]) == close(c["targets"])
    assert td_targets([0.1, 0.2, 1.0], [0.6, 0.7, 0.0], gamma=1.0) == close([0.7, 0.9, 1.0])
    assert td_targets(0.5, 2.0, gamma=0.95, done=0) == close([2.4])  # MADDPG
    # a chain that is not finished ends on its last Q, whatever lambda
    assert td_lambda([0.0], [0.5], gamma=0.9, lam=0.8, done=[0]) == pytest.approx([0.45])


def test_reward_to_go() -> None:
    costs = step_costs([1, 1, 1], phi=4)
    assert costs == close(v.PUPPETEER["costs"])
    assert reward_to_go([-0.1 * costs[0], -0.1 * costs[1], 1 - 0.1 * costs[2]], gamma=0.99) == close(v.PUPPETEER["returns"])
    rewards, returns = v.PUPPETEER_RELEASED
    assert reward_to_go(rewards, gamma=0.99) == close(returns)


def _loop(d: np.ndarray, k: np.ndarray) -> np.ndarray:
    y, after = np.zeros(len(d)), 0.0
    for t in range(len(d) - 1, -1, -1):
        after = y[t] = d[t] + k[t] * after
    return y


@given(st.integers(0, 9000), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.01, 0.5]))
def test_the_scan_is_the_loop(n: int, seed: int, ends: float) -> None:
    rng = np.random.default_rng(seed)
    d, k = rng.normal(size=n), np.where(rng.random(n) < ends, 0.0, rng.random(n))
    np.testing.assert_allclose(scan(d, k), _loop(d, k), rtol=1e-9, atol=1e-9)


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_with_lambda_one_the_advantage_is_return_minus_value(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, value, s = rng.normal(size=n), rng.normal(size=n), np.sort(rng.integers(0, 5, n))
    a, returns = gae(r, value, segments=s, gamma=0.9, lam=1.0)
    np.testing.assert_allclose(returns, reward_to_go(r, segments=s, gamma=0.9), atol=1e-9)
    np.testing.assert_allclose(a + value, returns, atol=1e-12)
