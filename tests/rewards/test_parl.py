"""PARL's numbers: both formulas by name, the two terms at their edges, critical steps."""

from __future__ import annotations

import pytest

from counterpoint.errors import InputError
from counterpoint.rewards.schedules import linear
from counterpoint.rewards.terms import orchestration as parl


def test_the_additive_form() -> None:
    assert parl.additive(1.0, 0.5, 0.75, 0.2, 0.1) == pytest.approx(1.175)
    # half-way through a linear anneal from 0.1: 5 of 10 agents, 4 of 5 finished
    weight = linear(0.1, 100)(50)
    assert parl.additive(1.0, parl.parallel(5, 10), parl.finish(4, 5), weight, weight) == pytest.approx(1.065)


def test_the_mixture_form() -> None:
    assert parl.mixture(0.8, True, 0.5, 0.25) == pytest.approx(0.25 * 0.5 + 0.75 * 0.8)
    assert parl.mixture(0.8, False, 0.5, 0.25) == pytest.approx(0.125)
    parts = {"perf": 0.8, "r_parallel": 0.5, "r_finish": 1.0, "lambda1": 0.25, "lambda2": 9.0}
    assert parl.parl("mixture", **parts) == pytest.approx(0.725)
    assert parl.parl("mixture", **parts, success_above=0.9) == pytest.approx(0.125)
    assert parl.parl("additive", **parts) == pytest.approx(0.125 + 9 + 0.8)


def test_unknown_forms_and_impossible_counts() -> None:
    with pytest.raises(InputError, match="did you mean 'mixture'"):
        parl.parl("mixtur", perf=1, r_parallel=1, r_finish=1, lambda1=1, lambda2=1)
    with pytest.raises(InputError, match="in \\[0, 1\\]"):
        parl.mixture(1, True, 1, 1.5)
    with pytest.raises(InputError):
        parl.parallel(1, 0)
    with pytest.raises(InputError):
        parl.finish(2, 1)
    with pytest.raises(InputError):
        parl.speed_up(2, 1)


def test_the_terms_at_their_edges() -> None:
    assert parl.parallel(0, 5) == 0
    assert parl.parallel(50, 5) == 1
    assert parl.finish(0, 0) == 0
    assert parl.speed_up(0, 0) == 0


def test_speed_up() -> None:
    assert parl.speed_up(12, 17) == pytest.approx(5 / 17)
