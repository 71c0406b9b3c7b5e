"""Group statistics and conventions: the formula sheet's numbers, the peers' numbers, and the laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from counterpoint.credits.groups import (
    CONVENTIONS,
    Convention,
    convention_of,
    ema_advantages,
    group_advantages,
    group_codes,
    group_stats,
    inflation_factor,
    leave_one_out,
    soft_rank,
    whiten,
)
from counterpoint.errors import InputError, NotIdentified
from credits import vectors as v

close = lambda x: pytest.approx(x, abs=v.TOLERANCE)  # noqa: E731


@pytest.mark.parametrize("name", v.GROUPS)
def test_the_published_numbers(name: str) -> None:
    rewards, convention, changes, expected = v.GROUPS[name]
    how = convention_of(convention, **changes)
    assert group_advantages(rewards, [7] * len(rewards), how) == close(expected)
    # beside another group, and in another order, nothing changes
    both = group_advantages([*rewards, 5.0, 9.0], [3] * len(rewards) + [8, 8], how)
    assert both[: len(rewards)] == close(expected)


def test_dr_mas_compares_an_agent_with_itself() -> None:
    codes, names = group_codes(v.DR_MAS["keys"])
    assert names == ["q|solver", "q|verifier"]
    assert group_advantages(v.DR_MAS["rewards"], codes, "dr_mas") == close(v.DR_MAS["advantages"])
    numbers, factor = v.DR_MAS["inflation"]
    assert inflation_factor(*numbers) == pytest.approx(factor)


def test_a_group_of_one_does_what_the_convention_says() -> None:
    x, g = [3.0, 1.0, 0.0], [0, 1, 1]
    assert group_advantages(x, g, "verl")[0] == pytest.approx(3 / (1 + 1e-6), abs=1e-12)
    assert group_advantages(x, g, "trl")[0] == 0
    assert np.isnan(group_advantages(x, g, "grpo")[0])
    assert group_advantages(x, g, "dr_grpo")[0] == 0
    assert group_advantages(x, g, "reinforce")[0] == 3
    with pytest.raises(NotIdentified, match="group"):
        group_advantages(x, g, "openrlhf")


def test_where_eps_stands() -> None:
    x = [0.0, 2.0]  # std with ddof 1: sqrt 2, variance 2
    assert group_advantages(x, [0, 0], Convention(eps=1.0))[1] == pytest.approx(1 / (2**0.5 + 1))
    assert group_advantages(x, [0, 0], Convention(eps=1.0, eps_at="inside"))[1] == pytest.approx(1 / 3**0.5)
    assert group_advantages(x, [0, 0], Convention(eps=5.0, eps_at="clamp"))[1] == pytest.approx(0.2)


def test_batch_scale_uses_all_rows() -> None:
    x = [0.0, 2.0, 10.0, 12.0]
    a = group_advantages(x, [0, 0, 1, 1], Convention(scale="batch", eps=0.0))
    assert a == pytest.approx(np.array([-1, 1, -1, 1]) / np.std(x, ddof=1))


def test_episodes_count_once() -> None:
    # rollout 0 speaks three times with 1, rollout 1 once with 0: rows say mean .75, episodes say .5
    x, g, e = [1, 1, 1, 0], [0] * 4, [0, 0, 0, 1]
    by_rows = group_advantages(x, g, "dr_grpo")
    by_episodes = group_advantages(x, g, convention_of("dr_grpo", count="episodes"), episodes=e)
    assert by_rows == pytest.approx([0.25, 0.25, 0.25, -0.75])
    assert by_episodes == pytest.approx([0.5, 0.5, 0.5, -0.5])
    with pytest.raises(InputError, match="episode"):
        group_advantages(x, g, convention_of("dr_grpo", count="episodes"))


def test_dr_mas_team_mode_of_the_peer_study() -> None:
    rows, episodes = [1, 1, 1, 0, 0, 0.5, 0.5], [0, 0, 0, 1, 1, 2, 2]
    a = group_advantages(rows, [0] * 7, convention_of("verl", count="episodes"), episodes=episodes)
    assert a == pytest.approx([1, 1, 1, -1, -1, 0, 0], abs=1e-4)


def test_leave_one_out_is_the_mean_of_the_others() -> None:
    out = leave_one_out([1.0, 2.0, 6.0, 5.0], [4, 4, 4, 9])
    assert out[:3] == pytest.approx([4.0, 3.5, 1.5])
    assert np.isnan(out[3])


def test_ema_subtracts_the_old_baseline() -> None:
    rewards, advantages, after = v.SPIRAL
    a, b = ema_advantages(rewards, [0] * 4)
    assert a == close(advantages)
    assert b == close(after)


def test_ema_of_the_peer_study() -> None:
    # order: e0 proposer 1, solvers 1, 0; e1 proposer 0, solvers 1, 1
    a, _ = ema_advantages([1, 1, 0, 0, 1, 1], [0, 1, 1, 0, 1, 1], decay=0.9)
    assert a == close([v.RAE_PEER[i] for i in (0, 1, 2, 3, 4, 5)])


def test_whitening() -> None:
    assert whiten([0.751, 0.58, 0.4]) == close(v.PPO_WHITENED)
    values, active, expected = v.MAPPO_NORM
    assert whiten(values, over=np.array(active, bool), ddof=0, eps=1e-5, eps_at="add") == close(expected)
    with pytest.raises(NotIdentified, match="spread"):
        whiten([1.0])


def test_soft_ranks() -> None:
    rewards, shares, quantiles = v.SOFT_RANK
    percentiles, advantages = soft_rank(rewards, [0] * 4)
    assert percentiles == close(shares)
    assert advantages == close(quantiles)
    # only order matters far apart, and groups do not see each other
    far = soft_rank([0, 1e6, 5, 7], [0, 0, 1, 1], tau=0.1)[0]
    assert far == pytest.approx([0.25, 0.75, 0.25, 0.75])


def test_group_numbers_may_be_anything() -> None:
    x, big = [1.0, 0.0, 4.0, 2.0], [10**15, 10**15, -7, -7]
    assert group_advantages(x, big, "dr_grpo") == pytest.approx([0.5, -0.5, 1, -1])
    assert len(group_advantages([], [], "grpo")) == 0


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: group_advantages([1.0, np.nan], [0, 0]), "finite"),
        (lambda: group_advantages([1.0, 2.0], [0]), "group numbers"),
        (lambda: group_advantages([1.0, 2.0], [0.5, 1.0]), "group numbers"),
        (lambda: convention_of("gropo"), "did you mean 'grpo'"),
        (lambda: Convention(ddof=2), "ddof"),
        (lambda: Convention(eps=-1), "eps"),
        (lambda: ema_advantages([1.0], [0], decay=2), "decay"),
        (lambda: soft_rank([1.0], [0], tau=0), "tau"),
        (lambda: inflation_factor(1, 1, 1, 0), "sigma"),
    ],
)
def test_what_is_wrong_is_said(call: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        call()  # type: ignore[operator]


_NUMBERS = st.floats(-1e3, 1e3, allow_nan=False)


@st.composite
def _tables(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(1, 30))
    return draw(arrays(np.float64, n, elements=_NUMBERS)), draw(arrays(np.int64, n, elements=st.integers(0, 6)))


@given(_tables(), st.sampled_from(["verl", "dr_grpo", "rloo", "rllm", "trl", "c3_magrpo", "m_grpo", "collm_maac"]))
def test_advantages_of_a_group_have_mean_zero(table: tuple[np.ndarray, np.ndarray], name: str) -> None:
    x, g = table
    a = group_advantages(x, g, convention_of(name, singleton="zero"))
    for group in set(g.tolist()):
        own = a[g == group]
        assert abs(own.sum()) <= 1e-9 * max(1.0, np.abs(own).sum())


@given(_tables(), st.sampled_from(sorted(CONVENTIONS)), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(table: tuple[np.ndarray, np.ndarray], name: str, random: object) -> None:
    x, g = np.round(table[0], 3), table[1]
    how = convention_of(name, singleton="refuse")
    order = np.array(random.sample(range(len(x)), len(x)))  # type: ignore[attr-defined]
    np.testing.assert_allclose(
        group_advantages(x[order], g[order], how), group_advantages(x, g, how)[order], rtol=1e-6, atol=1e-6
    )


@given(st.floats(-1e6, 1e6), st.integers(2, 9), st.sampled_from(sorted(set(CONVENTIONS) - {"reinforce"})))
def test_equal_rewards_earn_exactly_nothing(reward: float, n: int, name: str) -> None:
    assert not group_advantages([reward] * n, [0] * n, name).any()


@given(_tables())
def test_stats_agree_with_numpy(table: tuple[np.ndarray, np.ndarray]) -> None:
    x, g = table
    stats = group_stats(x, g, ddof=1)
    for group in set(g.tolist()):
        own = x[g == group]
        assert stats.size[group] == len(own)
        assert stats.mean[group] == pytest.approx(own.mean(), abs=1e-9)
        if len(own) > 1:
            assert stats.std[group] == pytest.approx(own.std(ddof=1), abs=1e-7)
        else:
            assert np.isnan(stats.std[group])
