"""Longstaff-Schwartz by hand, its pooled form, and the returns that it regresses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.guard.stop_basis import GRID, ridge, ridge_cv
from counterpoint.guard.stop_paths import StopPaths
from counterpoint.lab.train.stopping.expected import tree_cv
from counterpoint.lab.train.stopping.values import last_useful, longstaff_schwartz, pooled, returns


def test_returns_by_hand() -> None:
    # gains 1, -2, 4. The rule stops at 2: from 0 on it gets 1 - 2 = -1 above stopping now, from 1 on -2, from 2 on 4
    gains, stops = np.array([[1.0, -2.0, 4.0]]), np.array([[False, False, True, True]])
    assert returns(gains, stops, None, 1.0).tolist() == [[-1.0, -2.0, 4.0]]
    # half of what comes later is taken from the predictions 10, 20, 30: y_1 = -2, y_0 = 1 + (−2 + 20)/2 = 10
    assert returns(gains, stops, np.array([[10.0, 20.0, 30.0]]), 0.5).tolist() == [[10.0, -2.0, 4.0]]


def test_per_time_by_hand() -> None:
    # x says whether the last payoff is 4 or -4: go on where it is 4. At 0, C − Y is ±4 with x = ±1, so the coefficient of x is about 4
    sign = np.tile([1.0, -1.0], 20)
    y = np.stack([np.zeros(40), 4 * sign], axis=1)
    rule = longstaff_schwartz(StopPaths(payoffs=y, features=np.repeat(sign[:, None, None], 2, axis=1)))
    assert rule.arrays["coef"].shape == (1, 3)  # 1, z, z²
    assert rule.arrays["coef"][0, 1] == pytest.approx(4, rel=0.01)
    assert rule.stop_times(np.array([[[1.0], [1.0]], [[-1.0], [-1.0]]])).tolist() == [1, 0]


def test_it_regresses_the_rule_and_not_the_best_of_the_future() -> None:
    # after checkpoint 0 a coin nobody sees decides between +1 then −9, or −1 then −1: waiting has mean below 0 whatever is done
    rng = np.random.default_rng(2)
    luck = rng.random(600) < 0.5
    y = np.stack([np.zeros(600), np.where(luck, 1.0, -1.5), np.where(luck, -9.0, -1.5)], axis=1)
    x = rng.normal(size=(600, 3, 1))
    for trainer in (longstaff_schwartz, pooled):
        assert trainer(StopPaths(payoffs=y, features=x)).value(y, x).mean() > -0.1


def test_the_pooled_form_finds_a_rule_that_holds_at_every_time() -> None:
    # a random walk that is worth its price while the feature is 1; the feature drops to 0 once and for all
    rng = np.random.default_rng(0)
    on = rng.random((300, 10)) < 0.8
    alive = np.cumprod(on, axis=1).astype(float)
    gain = np.where(alive, 1.0, -1.0)
    y = np.concatenate([np.zeros((300, 1)), np.cumsum(gain, axis=1)], axis=1)
    x = np.concatenate([np.ones((300, 1)), alive], axis=1)[..., None]
    rule = pooled(StopPaths(payoffs=y, features=x))
    assert rule.value(y, x).mean() == pytest.approx(y.max(axis=1).mean() - (alive[:, -1] == 0).mean(), abs=0.15)


def test_the_last_useful_checkpoint() -> None:
    y = np.zeros((300, 9))
    y[:, 3] = 1
    assert last_useful(y) == 4
    y[0, 8] = 2  # one in three hundred does not count
    assert last_useful(y) == 4
    assert last_useful(np.zeros((10, 2))) == 1


def test_ridge_by_hand() -> None:
    # two rows (1, -1) and (1, 1), y = 0, 2: the mean 1 is free, the slope is 2·1/(2 + 2·penalty)
    coef = ridge(np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([0.0, 2.0]), 1.0)
    assert coef == pytest.approx([1.0, 0.5])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_ridge_with_weights_is_ridge_with_rows_repeated(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y, w = rng.normal(size=(30, 4)), rng.normal(size=30), rng.integers(1, 4, 30)
    late, grid = np.array([False, False, True, True]), ((0.05, 3.0),)
    one = ridge_cv(x, y, np.zeros(30, int), late, w.astype(float), grid)
    many = ridge_cv(np.repeat(x, w, axis=0), np.repeat(y, w), np.zeros(w.sum(), int), late, None, grid)
    assert one.coef == pytest.approx(many.coef, abs=1e-9)
    assert one.intercept == pytest.approx(many.intercept, abs=1e-9)


def test_cross_validation_takes_little_penalty_for_signal_and_much_for_noise() -> None:
    rng = np.random.default_rng(0)
    x, trace = rng.normal(size=(600, 3)), np.repeat(np.arange(60), 10)
    late = np.zeros(3, bool)
    assert ridge_cv(x, x[:, 0] + 0.01 * rng.normal(size=600), trace, late).penalty[0] <= 1e-4
    assert ridge_cv(x, rng.normal(size=600), trace, late).penalty[0] == max(g[0] for g in GRID)


def test_a_tree_finds_cells_and_stops_there() -> None:
    rng = np.random.default_rng(0)
    x, trace = rng.integers(0, 4, (900, 2)).astype(float), np.repeat(np.arange(90), 10)
    y = np.where(x[:, 0] < 1, 2.0, 0.0) + np.where((x[:, 0] < 1) & (x[:, 1] > 2), 1.0, 0.0)
    tree = tree_cv(x, y, trace, 0.0, 5)
    assert len(tree.at) == 2
    assert np.allclose(tree(x), y)
    assert len(np.unique(tree.leaves(x))) == 3
    assert tree_cv(x, rng.normal(size=900), trace, 0.01, 5).explained < 0.01 * 900
