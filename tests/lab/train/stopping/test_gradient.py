"""The all-stops gradient: by hand, against autograd and finite differences; sampling agrees on average."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.guard.stop_paths import StopPaths
from counterpoint.lab.train.stopping.choice import all_stops, all_stops_gradient, sampled_gradient, sampled_score, stop_value


def test_the_value_and_its_gradient_by_hand() -> None:
    # p = 1/2 twice, Y = 1, 2, 4: U_2 = 4, U_1 = (2 + 4)/2 = 3, U_0 = (1 + 3)/2 = 2
    f, y = np.zeros((1, 2)), np.array([[1.0, 2.0, 4.0]])
    assert stop_value(f, y).tolist() == [[2.0, 3.0, 4.0]]
    # dU_0/df_0 = 1/4 (1 - 3) = -1/2; dU_0/df_1 = 1/2 · 1/4 (2 - 4) = -1/4
    assert all_stops_gradient(f, y).tolist() == [[-0.5, -0.25]]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_the_formula_is_the_derivative(seed: int, horizon: int) -> None:
    rng = np.random.default_rng(seed)
    f, y = rng.normal(size=(1, horizon)), rng.normal(size=(1, horizon + 1))
    found = all_stops_gradient(f, y)[0]
    for t in range(horizon):
        up, down = f.copy(), f.copy()
        up[0, t] += 1e-5
        down[0, t] -= 1e-5
        slope = (stop_value(up, y)[0, 0] - stop_value(down, y)[0, 0]) / 2e-5
        assert found[t] == pytest.approx(slope, abs=1e-7)


def test_the_formula_is_what_autograd_finds() -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    rng = np.random.default_rng(3)
    f, y = rng.normal(size=(5, 4)), rng.normal(size=(5, 5))
    score = torch.tensor(f, requires_grad=True)
    p, u = torch.sigmoid(score), torch.tensor(y[:, -1])
    for t in range(3, -1, -1):
        u = p[:, t] * torch.tensor(y[:, t]) + (1 - p[:, t]) * u
    u.sum().backward()
    assert np.allclose(score.grad.numpy(), all_stops_gradient(f, y), atol=1e-12)


def test_sampling_has_the_same_mean() -> None:
    rng = np.random.default_rng(1)
    f, y = np.array([[0.3, -0.4, 0.1]]), np.array([[0.0, 1.0, -1.0, 2.0]])
    many = np.repeat(f, 200_000, axis=0), np.repeat(y, 200_000, axis=0)
    assert sampled_score(*many, rng).mean(axis=0) == pytest.approx(all_stops_gradient(f, y)[0], abs=0.01)


@pytest.mark.parametrize("trainer", [all_stops, sampled_gradient])
def test_both_learn_what_the_feature_says(trainer) -> None:  # type: ignore[no-untyped-def]
    # in half of the traces the second checkpoint pays 3 and a feature at the first says so; in the others it pays -3
    good = np.arange(60) % 2
    y = np.stack([np.zeros(60), np.where(good, 3.0, -3.0), np.full(60, -5.0)], axis=1)
    x = np.repeat(good[:, None, None], 3, axis=1).astype(float)
    rule = trainer(StopPaths(payoffs=y, features=x), 0)
    assert rule.value(y, x).mean() > 1.3  # the best is 1.5, the best cap 0
