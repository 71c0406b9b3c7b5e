"""The optimum of a chain: against recursion over histories, by hand, and by playing the table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld import optimum
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.optimum import chain
from lab.worlds.teamworld.other_rules import ruled

TWO = ruled(chain_items=1, chain_hops=2, hop_attempts=2, hop_checks=2, chain_weight=2.0, price=(0.02, 0.1), check_price=0.05)


class _Walk:
    """Brute force over histories: weights are P(history, accepted all right or not, attempt right or not)."""

    def __init__(self, config: Config, terms: list[tuple[float, float]], extra: float) -> None:
        self.config, self.terms, self.check = config, terms, config.check_price + extra

    def start(self) -> float:
        return max(0.0, self.attempt(0, 1.0, 0.0, 0))

    def attempt(self, hop: int, good: float, bad: float, tries: int) -> float:
        """The best family for a new attempt, with P(history and accepted right) = good."""
        return max(self.go(hop, good * p, good * (1 - p), bad, 0, tries + 1) - price * (good + bad) for p, price in self.terms)

    def go(self, hop: int, right: float, wrong: float, bad: float, checks: int, tries: int, odds: float | None = None) -> float:
        """`right`, `wrong`: accepted right and this attempt right or wrong; `bad`: accepted wrong (its attempt tracked by `odds`)."""
        c, odds = self.config, (right / (right + wrong) if right + wrong else 0.0) if odds is None else odds
        last = hop == c.chain_hops - 1
        best = c.chain_weight * right if last else 0.0
        if not last:
            best = max(best, self.attempt(hop + 1, right, wrong + bad, 0))
        if tries < c.hop_attempts:
            best = max(best, self.attempt(hop, right + wrong, bad, tries))
        if checks < c.hop_checks:
            total = -self.check * (right + wrong + bad)
            for yes, no in ((1 - c.check_false_reject, c.check_false_accept), (c.check_false_reject, 1 - c.check_false_accept)):
                seen = odds * yes + (1 - odds) * no
                if seen:
                    total += self.go(hop, right * yes, wrong * no, bad * seen, checks + 1, tries, odds * yes / seen)
            best = max(best, total)
        return best


def _terms(config: Config, b: int, extra: float) -> list[tuple[float, float]]:
    return [(config.hop_right[f] * config.brief_factor[b], config.price[f] + config.brief_price * b + extra) for f in (0, 1)]


@pytest.mark.parametrize(("b", "extra"), [(2, 0.0), (1, 0.03), (0, 0.0)])
def test_equals_recursion_over_histories(b: int, extra: float) -> None:
    expected = max(_Walk(TWO, [term], extra).start() for term in _terms(TWO, b, extra))
    assert chain.value(TWO, b, extra) == pytest.approx(expected, abs=1e-12)
    assert expected > 0


def test_own_work_is_family_b_without_brief() -> None:
    assert chain.value(TWO, 0, 0.01, own=True) == pytest.approx(_Walk(TWO, [(0.9, 0.11)], 0.01).start(), abs=1e-12)


def test_bound_covers_mixed_families_tightly() -> None:
    for extra in (0.0, 0.05):
        mixed = _Walk(TWO, _terms(TWO, 2, extra), extra).start()
        assert mixed >= chain.value(TWO, 2, extra) - 1e-12
        assert mixed - 1e-12 <= chain.bound(TWO, optimum.workers(TWO, 2), extra) <= mixed + 1e-4


def test_without_checks_by_hand() -> None:
    """Three hops of B at 0.9, no checks, weight 10: 10·0.729 − 3·0.0274 = 7.2078; a redo without a check learns nothing."""
    config = ruled(chain_items=1, chain_hops=3, hop_checks=0)
    assert chain.value(config, 2) == pytest.approx(7.2078, abs=1e-12)
    assert chain.decide(config).first == chain.ANSWER
    worthless = ruled(chain_items=1, chain_hops=3, hop_checks=0, chain_weight=0.02)
    assert chain.value(worthless, 2) == 0
    assert chain.decide(worthless).first == chain.STOP


def test_one_checked_hop_by_hand() -> None:
    """One hop, one check, two attempts, p = 0.5, r = a = 0.2: keep a passed attempt (0.8), redo a failed one (0.5): with the check of the
    second useless (keep either way), E = ½·0.8·w + ½·(0.5·w − price) − price − check = 0.65w − 1.5·price − check."""
    config = ruled(chain_items=1, chain_hops=1, hop_attempts=2, hop_checks=1, hop_right=(0.0, 0.5), check_false_reject=0.2,
                    check_false_accept=0.2, price=(9.0, 0.1), brief_price=0.0, check_price=0.2, chain_weight=10.0)  # fmt: skip
    assert chain.value(config, 2) == pytest.approx(6.5 - 0.15 - 0.2, abs=1e-12)
    table = chain.decide(config)
    assert table.action[0, 0, table.local[0, 0]] == chain.VERIFY
    assert table.action[0, 0, table.local[0, 1]] == chain.ANSWER
    assert table.action[0, 0, table.local[1, 0]] == table.action[0, 1, table.local[0, 0]] == chain.STOP


def test_the_table_earns_its_value_when_played() -> None:
    """20,000 chains at once, by lookups alone."""
    config, size, rng = Config(chain_items=1), 20_000, np.random.default_rng(5)
    table = chain.decide(config, extra=0.02)
    p, price = config.hop_right[table.family], config.price[table.family] + 2 * config.brief_price + 0.02
    index, tries, passes, fails = (np.zeros(size, dtype=int) for _ in range(4))
    tries, paid, sound, right, on = (
        tries + 1,
        np.full(size, price),
        np.ones(size, dtype=bool),
        rng.random(size) < p,
        np.ones(size, dtype=bool),
    )
    while on.any():
        local = table.local[passes, fails]
        act = np.where(on, table.action[index, tries - 1, local], chain.STOP)
        on = act != chain.STOP
        paid += np.where(act == chain.VERIFY, config.check_price + 0.02, price) * on
        ok = rng.random(size) < np.where(right, 1 - config.check_false_reject, config.check_false_accept)
        check, go, new = act == chain.VERIFY, act == chain.NEXT, (act == chain.NEXT) | (act == chain.ANSWER)
        sound &= ~go | right
        index = np.where(go, table.after[index, local], index)
        tries = np.where(go, 1, tries + (act == chain.ANSWER))
        right = np.where(new, rng.random(size) < p, right)
        passes, fails = np.where(new, 0, passes + (check & ok)), np.where(new, 0, fails + (check & ~ok))
    points = config.chain_weight * (sound & right & (table.hop[index] == config.chain_hops - 1)) - paid
    assert abs(points.mean() - table.value) < 4 * points.std() / size**0.5
    assert table.confidence[0] == 1
    assert len(table.confidence) == 462  # multisets of at most 5 of 6 local states


def test_too_many_confidences_are_refused_but_bounded() -> None:
    long = ruled(chain_items=1, chain_hops=60, hop_checks=4)
    with pytest.raises(InputError, match="confidences"):
        chain.value(long, 2)
    assert 0 <= chain.bound(long, optimum.workers(long, 2), 0.0) <= long.chain_weight


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 0.5), st.floats(0, 0.5), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))
def test_falls_convexly_in_the_price_and_rises_in_attempts(x: float, y: float, hops: int, attempts: int, checks: int) -> None:
    config, more = (ruled(chain_items=1, chain_hops=hops, hop_attempts=n, hop_checks=checks) for n in (attempts, attempts + 1))
    low, high = sorted((x, y))
    ends = chain.value(config, 2, low), chain.value(config, 2, high)
    assert ends[0] >= ends[1] >= 0
    assert chain.value(config, 2, (low + high) / 2) <= sum(ends) / 2 + 1e-12
    assert chain.value(more, 2, low) >= ends[0] - 1e-12
    assert chain.bound(config, optimum.workers(config, 2), low) >= ends[0] - 1e-9
