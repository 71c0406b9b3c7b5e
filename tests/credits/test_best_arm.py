"""The race between changes: the interval by hand, the right winner, no false certificate, and budgets that are kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

from counterpoint.credits.best_arm import LEAST, race, radius
from counterpoint.errors import InputError


def test_the_interval_by_hand() -> None:
    alpha, t, sd = 0.01, 9, 2.0
    r2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha)) + 1) / 32
    by_hand = sd * math.sqrt(2 * (t * r2 + 1) / (t**2 * r2) * math.log(math.sqrt(t * r2 + 1) / alpha))
    assert radius(t, sd, alpha) == pytest.approx(by_hand)
    assert radius(LEAST - 1, sd, alpha) == math.inf
    widths = [radius(t, 1.0, 0.05) for t in (4, 8, 32, 128)]
    assert widths == sorted(widths, reverse=True)


def test_the_best_arm_is_found_and_the_others_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    gains = np.array([-1.0, 0.0, 1.0, -0.5])[:, None] + 0.5 * rng.standard_normal((4, 400))
    asked: list[tuple[int, int, int]] = []

    def pull(arm: int, start: int, count: int) -> np.ndarray:
        asked.append((arm, start, count))
        return gains[arm, start : start + count]

    found = race(pull, 4, budget=400)
    assert (found.best, found.is_certified, found.helps) == (2, True, True)
    assert found.trials == found.trials_A.sum() < 100
    assert found.trials_A[0] == LEAST  # clearly worse: not tried again
    for arm in range(4):  # trials of an arm come one after another, and none twice
        mine = [(start, count) for a, start, count in asked if a == arm]
        assert [start for start, _ in mine] == np.cumsum([0, *(c for _, c in mine)])[:-1].tolist()


def test_no_certificate_where_nothing_differs() -> None:
    wrong = misses = 0
    for run in range(60):
        rng = np.random.default_rng([1, run])
        gains = rng.choice([-1.0, 1.0], (5, 400))
        found = race(lambda arm, start, count, gains=gains: gains[arm, start : start + count], 5, budget=200)  # type: ignore[misc]
        wrong += found.helps
        misses += bool(((found.low_A > 0) | (found.high_A < 0)).any())
    assert wrong <= 4
    assert misses <= 6


def test_doing_nothing_wins_where_all_hurt_and_budgets_are_kept() -> None:
    rng = np.random.default_rng(2)
    gains = -2.0 + 0.3 * rng.standard_normal((3, 100))
    found = race(lambda arm, start, count: gains[arm, start : start + count], 3, budget=60)
    assert (found.best, found.is_certified, found.helps) == (-1, True, False)
    alike = rng.standard_normal((3, 100))
    spent = race(lambda arm, start, count: alike[arm, start : start + count], 3, budget=31)
    assert spent.trials == 31
    assert not spent.is_certified
    assert spent.behind > 0
    over = race(lambda arm, start, count: alike[arm, start : start + min(count, 2)], 3, budget=31)
    assert over.trials == 2  # whoever tries says that it is over
    with pytest.raises(InputError, match="0 arms"):
        race(lambda *_: [], 0, budget=8)
