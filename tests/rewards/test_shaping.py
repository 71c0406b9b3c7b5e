"""Potential-based shaping: the telescoping law, and numbers by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.errors import InputError
from counterpoint.rewards.terms.process import shaping

PHI = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


def discounted(rewards: np.ndarray, gamma: float) -> float:
    return float((rewards * gamma ** np.arange(len(rewards))).sum())


@given(PHI, st.floats(-100, 100), st.floats(0, 1))
def test_it_telescopes(potential: list[float], first: float, gamma: float) -> None:
    total = discounted(shaping(potential, first=first, gamma=gamma), gamma)
    assert total == pytest.approx(gamma ** len(potential) * potential[-1] - first, abs=1e-8)


@given(PHI, st.floats(-100, 100), st.floats(0, 1))
def test_with_an_end_at_zero_nothing_that_was_done_matters(potential: list[float], first: float, gamma: float) -> None:
    assert discounted(shaping(potential, first=first, gamma=gamma, ends_at_zero=True), gamma) == pytest.approx(-first, abs=1e-8)


def test_by_hand() -> None:
    assert shaping([2.0, 1.0], first=1.0, gamma=0.5).tolist() == [0.0, -1.5]
    assert shaping([2.0, 1.0], ends_at_zero=True).tolist() == [2.0, -2.0]
    assert shaping([]).tolist() == []


def test_bad_input() -> None:
    for bad in (lambda: shaping([math.nan]), lambda: shaping([1.0], gamma=2), lambda: shaping([[1.0]])):  # type: ignore[list-item]
        with pytest.raises(InputError):
            bad()
