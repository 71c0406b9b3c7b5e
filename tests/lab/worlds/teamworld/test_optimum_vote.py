"""The optimum of a question: against explicit recursion over histories, and by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.optimum import vote
from lab.worlds.teamworld.every_way import panel_accuracy

V_PANEL = Config(
    vote_items=1,
    skill_a=(0.85,) * 3,
    misconception_a=(0.35,) * 3,
    skill_b=(0.75,) * 3,
    misconception_b=(0.0,) * 3,
    right_if_misled=0.08,
)


def _history_chance(config: Config, history: tuple[tuple[int, str], ...], y: int, g: float, critic: bool = False) -> float:
    """P(y and this ordered history of (family, outcome)), straight from the rules."""
    total = 0.0
    for z, ma, mb in product(range(3), (0, 1), (0, 1)):
        p = 0.5 * config.difficulty_shares[z]
        for f, misled in ((0, ma), (1, mb)):
            p *= config.misconception[f][z] if misled else 1 - config.misconception[f][z]
        for f, seen in history:
            right = g * (config.right_if_misled if (ma, mb)[f] else config.skill[f][z]) + (1 - g) / 2
            ok, bad = right, 1 - right
            if critic:
                ok, bad = right * (1 - config.critic_false_reject), (1 - right) * config.critic_false_accept
            p *= {"yes": ok if y else bad, "no": bad if y else ok, "rejected": 1 - ok - bad}[seen]
        total += p
    return total


def _recursion(
    config: Config, b: int, extra: float, limit: tuple[int, int], critic: bool = False, history: tuple[tuple[int, str], ...] = ()
) -> float:
    """The optimum to go by brute force, times P(history)."""
    g = config.brief_factor[b]
    one, zero = (_history_chance(config, history, y, g, critic) for y in (1, 0))
    best = config.vote_weight * max(one, zero)
    for f in (0, 1):
        if len(history) < config.max_votes and sum(h[0] == f for h in history) < limit[f]:
            price = config.price[f] + config.brief_price * b + extra + (config.critic_price if critic else 0)
            seen = ("yes", "no", "rejected") if critic else ("yes", "no")
            ahead = sum(_recursion(config, b, extra, limit, critic, (*history, (f, s))) for s in seen)
            best = max(best, ahead - price * (one + zero))
    return best


@pytest.mark.parametrize("b", [0, 1, 2, 3])
def test_equals_recursion_over_histories(b: int) -> None:
    config = Config(vote_items=1, max_votes=3, price=(0.002, 0.01))
    assert vote.value(config, b, 0.004) == pytest.approx(_recursion(config, b, 0.004, (9, 9)), abs=1e-12)


def test_panel_equals_recursion_with_few_agents() -> None:
    config = Config(vote_items=1, max_votes=4, price=(0.002, 0.005), votes_per_agent=1)
    for clones, independents in ((0, 0), (2, 1), (1, 2), (3, 0)):
        expected = _recursion(config, 2, 0.001, (clones, independents))
        assert vote.panel_value(config, clones, independents, 2, 0.001) == pytest.approx(expected, abs=1e-12)
    assert vote.panel_value(config, 0, 0, 2) == 0.5


def test_critic_equals_recursion() -> None:
    config = Config(vote_items=1, max_votes=3, price=(0.002, 0.01), critic_price=0.002)
    assert vote.critic_value(config, 2, 0.001) == pytest.approx(_recursion(config, 2, 0.001, (9, 9), critic=True), abs=1e-12)


def test_a_critic_that_passes_everything_is_silent() -> None:
    config = Config(vote_items=1, critic_false_accept=1.0, critic_false_reject=0.0, critic_price=0.0)
    assert vote.critic_value(config, 2, 0.003) == pytest.approx(vote.value(config, 2, 0.003), abs=1e-12)


def test_one_vote_by_hand() -> None:
    """B, one vote: right with Σ share · ((1−m)·q + m·0.08) = 0.5·0.9032 + 0.3·0.7792 + 0.2·0.658 = 0.81696; B costs 0.025 + 0.0024."""
    config = Config(vote_items=1, max_votes=1)
    table = vote.tables(config, 2)
    assert table.go_B[0] == pytest.approx(0.81696 - 0.0274, abs=1e-12)
    # A: 0.5·0.913 + 0.3·0.605 + 0.2·0.3935 = 0.7167, less 0.0044
    assert table.go_A[0] == pytest.approx(0.7167 - 0.0044, abs=1e-12)
    assert table.action[0] == vote.CALL_B
    assert table.posterior[table.index(0, 0, 1, 0)] == pytest.approx(0.81696, abs=1e-12)
    assert table.posterior[table.index(0, 0, 0, 1)] == pytest.approx(1 - 0.81696, abs=1e-12)


def test_tables_are_consistent() -> None:
    table = vote.tables(Config(vote_items=512), 2, 0.0875 / 31)
    assert len(table.value) == 11**4
    assert np.array_equal(table.value, np.maximum(table.stop, np.maximum(table.go_A, table.go_B)))
    assert np.array_equal(table.action > 0, table.gain > 0)
    assert table.calls[0] == pytest.approx(2.58, abs=0.005)  # research.md, Appendix C: 2.6 calls, accuracy 0.90
    assert table.accuracy[0] == pytest.approx(0.907, abs=0.001)
    assert table.calls == pytest.approx(table.calls_A + table.calls_B)
    # value = accuracy − price · calls, as B alone is asked
    assert table.value[0] == pytest.approx(table.accuracy[0] - (0.0274 + 0.0875 / 31) * table.calls[0], abs=1e-12)
    yes = table.index(np.array([1, 0]), np.array([0, 0]), np.array([2, 1]), np.array([1, 0]))
    no = table.index(np.array([0, 0]), np.array([1, 0]), np.array([1, 0]), np.array([2, 1]))
    assert table.posterior[yes] == pytest.approx(1 - table.posterior[no], abs=1e-12)


def test_panel_of_the_research_notes() -> None:
    """research.md 5.3: 8 clones + 3 independents 0.650 / 0.781 / 0.854; 16 clones 0.650 / 0.664 / 0.864."""
    for clones, numbers in ((8, (0.650, 0.781, 0.854)), (16, (0.650, 0.664, 0.864))):
        for rule, number in zip(("majority", "naive", "bayes"), numbers, strict=True):
            assert panel_accuracy(V_PANEL, clones, 3, rule) == pytest.approx(number, abs=6e-4)


def test_panel_of_three_by_hand() -> None:
    """Three independents with q = 0.75: majority is right with q³ + 3q²(1−q) = 0.84375, and for these Bayes is majority."""
    for rule in ("majority", "naive", "bayes"):
        assert panel_accuracy(V_PANEL, 0, 3, rule) == pytest.approx(0.84375, abs=1e-12)
    assert panel_accuracy(V_PANEL, 0, 2, "majority") == pytest.approx(0.75, abs=1e-12)  # a tie is a coin
    with pytest.raises(ValueError, match="no exact panel"):
        panel_accuracy(V_PANEL, 1, 1, "first")


def test_a_free_sequential_panel_is_the_one_shot_bayes_panel() -> None:
    free = Config(**{**{f: getattr(V_PANEL, f) for f in ("skill_a", "skill_b", "misconception_a", "misconception_b")},
                     "vote_items": 1, "price": (0.0, 0.0), "brief_price": 0.0, "votes_per_agent": 1, "max_votes": 11})  # fmt: skip
    assert vote.panel_value(free, 8, 3, 2) == pytest.approx(panel_accuracy(free, 8, 3, "bayes"), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 0.2), st.floats(0, 0.2), st.integers(0, 3), st.integers(1, 6))
def test_falls_convexly_in_the_price_and_rises_in_votes(x: float, y: float, b: int, votes: int) -> None:
    config = Config(vote_items=1, max_votes=votes)
    low, high = sorted((x, y))
    ends = vote.value(config, b, low), vote.value(config, b, high)
    assert ends[0] >= ends[1] >= 0.5
    assert vote.value(config, b, (low + high) / 2) <= sum(ends) / 2 + 1e-12
    assert vote.value(Config(vote_items=1, max_votes=votes + 1), b, low) >= ends[0] - 1e-12
