"""The bracket: above the optimum for any W, tight for a good one, below it for any rule; no bound from traces alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint import registry
from counterpoint.errors import InputError, NotIdentified
from counterpoint.guard.stop_rule import best_cap
from counterpoint.lab.train.stopping.certificate import bracket, dual
from counterpoint.lab.train.stopping.choice import stacked
from counterpoint.lab.worlds.stopping.optimum import state_of

S1, S2, S3 = (registry.get("world", name).replace(horizon=12) for name in ("s1", "s2", "s3"))


@pytest.mark.parametrize("world", [S1, S2, S3], ids=["s1", "s2", "s3"])
def test_with_the_exact_value_the_bound_is_the_optimum(world) -> None:  # type: ignore[no-untyped-def]
    solved = world.solution()
    x = world.paths(range(150)).features
    top = dual(world, lambda t, rows: solved.worth[t][state_of(world.config, rows)], x, 256, 0).max(axis=1)
    assert top.mean() == pytest.approx(solved.value, rel=0.02)
    assert top.std() < 0.15 * world.paths(range(150)).payoffs.max(axis=1).std()


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 100), st.floats(-1, 1), st.floats(-0.5, 0.5))
def test_any_w_bounds_from_above(seed: int, level: float, slope: float) -> None:
    x = S2.paths(range(seed * 400, seed * 400 + 400)).features
    top = dual(S2, lambda t, rows: level + slope * rows[:, 1], x, 4, seed).max(axis=1)
    error = top.std() / 20
    assert top.mean() >= S2.solution().value - 3 * error


def test_the_bracket_holds_and_is_narrow() -> None:
    train = S1.paths(range(400))
    rule = stacked(train, 0)
    found = bracket(S1, rule, train, seeds=range(5000, 5240), forks=32)
    exact = S1.solution().value
    assert found.lower - 3 * found.lower_error <= exact <= found.upper + 3 * found.upper_error
    assert 0 <= found.width < 0.05
    assert found == bracket(S1, rule, train, seeds=range(5000, 5240), forks=32)
    worse = bracket(S1, best_cap(train), train, seeds=range(5000, 5240), forks=32)
    assert worse.upper == found.upper
    assert worse.lower < found.lower


def test_what_cannot_be_bounded() -> None:
    train = S3.paths(range(60))
    rule = best_cap(train)
    with pytest.raises(NotIdentified, match="one next round per prefix"):
        bracket(train, rule, train, seeds=range(10))
    with pytest.raises(InputError, match="among the fresh ones"):
        bracket(S3, rule, train, seeds=range(50, 150))
    with pytest.raises(InputError, match="forks"):
        bracket(S3, rule, train, seeds=range(100, 200), forks=0)
    with pytest.raises(InputError, match="too few for a bound"):
        bracket(S3, rule, train, seeds=range(100, 102))
    assert np.isfinite(bracket(S3, rule, train, seeds=range(100, 160), forks=2).width)
