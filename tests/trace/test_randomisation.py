"""Tests by signs and by dealing out at random, and Holm's rule: by hand, by enumeration, and their laws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.trace.statistics import flip_p, holm, shuffle_p

NUMBERS = st.integers(-6, 6).map(float)


def test_by_hand() -> None:
    assert flip_p([1.0, 2.0, 3.0]) == 1 / 8  # all signs as they are
    assert flip_p([1.0, 2.0, -3.0]) == 5 / 8  # sum 0: +++ ++- +-+ -++ and --- flipped thrice give 0 or more: 6 0 2 4 0
    assert flip_p([0.0, 0.0]) == 1.0
    assert flip_p([]) == 1.0
    assert shuffle_p([3.0, 4.0], [1.0, 2.0]) == 1 / 6
    assert shuffle_p([1.0, 2.0], [3.0, 4.0]) == 1.0
    assert shuffle_p([1.0, 1.0], [1.0]) == 1.0
    assert shuffle_p([], [1.0]) == shuffle_p([1.0], []) == 1.0
    assert holm([0.01, 0.04, 0.03]) == [True, False, False]  # 0.01 <= 0.05 / 3, 0.03 > 0.05 / 2
    assert holm([0.01, 0.02, 0.03]) == [True, True, True]
    assert holm([]) == []


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_signs_are_all_gone_through(values: list[float]) -> None:
    sums = [sum(s * v for s, v in zip(signs, values, strict=True)) for signs in itertools.product((1, -1), repeat=len(values))]
    assert flip_p(values) == pytest.approx(np.mean([one >= sum(values) for one in sums]))


@given(st.lists(NUMBERS, min_size=1, max_size=4), st.lists(NUMBERS, min_size=1, max_size=4))
def test_deals_are_all_gone_through(a: list[float], b: list[float]) -> None:
    ways = [sum(one) for one in itertools.combinations(a + b, len(a))]
    assert shuffle_p(a, b) == pytest.approx(np.mean([one >= sum(a) for one in ways]))


@given(st.lists(NUMBERS, min_size=2, max_size=5), st.lists(NUMBERS, min_size=2, max_size=5), st.floats(0, 5))
def test_more_of_a_difference_is_no_less_sure(a: list[float], b: list[float], more: float) -> None:
    assert shuffle_p([x + more for x in a], b) <= shuffle_p(a, b) + 1e-9
    assert flip_p([x + more for x in a]) <= flip_p(a) + 1e-9


def test_draws_come_near_to_all() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(0.4, 1, 12).tolist(), rng.normal(0, 1, 12).tolist()  # 2.7 million deals
    drawn = [shuffle_p(a, b, seed=seed) for seed in range(5)]
    assert max(drawn) - min(drawn) < 0.02
    assert all(p == shuffle_p(a, b, seed=seed) for seed, p in enumerate(drawn))
    pairs = rng.normal(0.3, 1, 13).tolist()
    exact, twin = flip_p(pairs), flip_p([*pairs, 0.0])  # a pair that is equal changes nothing, and makes it draw
    assert twin == pytest.approx(exact, abs=0.02)


@given(st.lists(st.floats(0.0001, 1), min_size=1, max_size=6))
def test_holm_rejects_no_more_than_each_alone_and_no_less_than_bonferroni(p: list[float]) -> None:
    for one, is_rejected in zip(p, holm(p), strict=True):
        assert not is_rejected or one <= 0.05
        assert is_rejected or one > 0.05 / len(p)
