"""Balancing: the formula sheet's numbers, laws of scale and projection, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.errors import InputError
from counterpoint.rewards.balance import (
    Balance,
    GradientMemory,
    gdpo,
    normalised,
    one_sided,
    variance_weights,
    variation_weights,
    weighted,
)


def test_normalised_by_hand_and_flat_groups() -> None:
    found = normalised(np.array([[1.0, 0.0, 5.0, 5.0], [0.1 + 0.2, 0.3, 7.0, 9.0]]), [4, 4, 9, 9])
    assert found.tolist() == [[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0]]  # 0.1 + 0.2 and 0.3 differ by rounding only
    assert normalised(np.array([[1.0, 2.0]]), [0, 0], ddof=1)[0].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5])
    assert normalised(np.array([[3.0]]), [0]).tolist() == [[0.0]]


@given(st.lists(st.floats(-5, 5), min_size=4, max_size=12), st.floats(1e-3, 1e3))
def test_gdpo_does_not_hear_a_scale(values: list[float], scale: float) -> None:
    rows = np.array([values, values[::-1]]).round(3)
    group = np.arange(len(values)) % 2
    assert gdpo(rows * [[1], [scale]], group) == pytest.approx(gdpo(rows, group), abs=1e-6)


def test_gdpo_by_hand() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 10.0]])
    assert gdpo(rows, [0, 0], [3.0, 1.0], whiten=False).tolist() == pytest.approx([2 * 0.5**0.5, -2 * 0.5**0.5])
    assert gdpo(rows, [0, 0], [3.0, 1.0]).tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)])


def test_variance_and_variation_weights() -> None:
    rows = np.array([[0.0, 2.0, 5.0, 7.0], [0.0, 6.0, 0.0, 6.0]])  # variances inside groups 1 and 9
    assert variance_weights(rows, [0, 0, 1, 1]).tolist() == pytest.approx([0.2, 1.8])
    assert variance_weights(np.ones((2, 3)), [0, 0, 0]).tolist() == [1, 1]
    # std 1 at mean 2 and std 3 at mean 3: 0.5 and 1
    assert variation_weights(np.array([[1.0, 3.0], [0.0, 6.0]])).tolist() == pytest.approx([2 / 3, 4 / 3])
    assert np.isfinite(variation_weights(np.array([[-1.0, 1.0], [0.0, 6.0]]))).all()  # a mean of zero


def test_weighted_and_its_errors() -> None:
    assert weighted(np.array([[1.0, 2.0], [3.0, 4.0]]), [1.0, 0.5]).tolist() == [2.5, 4.0]
    with pytest.raises(InputError, match="3 weights for 2"):
        weighted(np.ones((2, 2)), [1, 1, 1])
    with pytest.raises(InputError, match="NaN or infinite"):
        weighted(np.array([[np.nan]]))
    with pytest.raises(InputError, match="no components"):
        weighted(np.ones((0, 2)))
    with pytest.raises(InputError, match="one group id per sample"):
        normalised(np.ones((1, 3)), [0, 1])


# -- ours -------------------------------------------------------------------------------------------------------------------


def test_one_step_by_hand() -> None:
    # component 1 at 45 degrees to the primary and wholly reliable: alpha^2 = 1/2, rho = 1, weight 1/2
    half = np.array([[1.0, 0.0], [7.0, 7.0]])
    found = Balance().step(GradientMemory.of(2, 2), half, half)
    assert found.weights_K == pytest.approx([1.0, 0.5])
    assert found.total_D == pytest.approx(np.array([1 + 3.5, 3.5]) / np.sqrt(1.25))
    # halves that disagree are not reliable, whatever their mean
    apart = Balance().step(GradientMemory.of(2, 2), half, np.array([[1.0, 0.0], [7.0, -7.0]]))
    assert apart.weights_K == pytest.approx([1.0, 0.0])


def test_opposition_gets_no_weight_and_cannot_push_back() -> None:
    half = np.array([[1.0, 0.0], [-50.0, 1.0]])
    found = Balance().step(GradientMemory.of(2, 2), half, half)
    assert found.weights_K.tolist() == [1.0, 0.0]
    assert found.total_D.tolist() == [1.0, 0.0]
    assert one_sided(half).tolist() == [[1.0, 0.0], [0.0, 1.0]]


GRADS = st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=24, max_size=24)


@given(GRADS)
def test_the_step_never_opposes_the_primary_and_never_gives_it_less_than_its_share(flat: list[float]) -> None:
    half1, half2 = np.array(flat).reshape(2, 3, 4)
    found = Balance().step(GradientMemory.of(3, 4), half1, half2)
    primary = 0.5 * (half1 + half2)[0]
    assert found.weights_K[0] == 1
    assert (found.weights_K >= 0).all()
    assert (found.weights_K <= 3).all()
    assert found.total_D @ primary >= primary @ primary / np.sqrt((found.weights_K**2).sum()) - 1e-9


@given(GRADS, st.floats(1e-3, 1e3))
def test_weights_do_not_hear_a_scale(flat: list[float], scale: float) -> None:
    half1, half2 = np.array(flat).reshape(2, 3, 4)
    factor = np.array([1.0, scale, 1.0])[:, None]
    plain, scaled = (Balance().step(GradientMemory.of(3, 4), half1 * f, half2 * f).weights_K for f in (1.0, factor))
    assert scaled == pytest.approx(plain, abs=1e-6)


def test_noise_gets_little_weight_and_runs_do_not_mix() -> None:
    rng = np.random.default_rng(0)
    signal = rng.standard_normal(40)
    memory, lone = GradientMemory.of(2, 40, (2,)), GradientMemory.of(2, 40)
    weights = []
    for _ in range(200):
        halves = rng.standard_normal((2, 2, 2, 40))
        halves[:, :, 0] += signal
        halves[:, 1, 1] += signal  # in run 1 the second component is the signal too
        found = Balance().step(memory, halves[0], halves[1])
        alone = Balance().step(lone, halves[0, 0], halves[1, 0])
        memory, lone = found.memory, alone.memory
        assert np.allclose(found.total_D[0], alone.total_D)
        weights.append(found.weights_K[:, 1])
    mean = np.mean(weights[20:], axis=0)
    assert mean[0] < 0.05
    assert 0.6 < mean[1] < 1.2


def test_gradients_of_rounding_agree_in_nothing() -> None:
    half = np.array([[1.0, 0.0], [1.0, 1.0]])
    first = Balance(decay=0.5).step(GradientMemory.of(2, 2), half, half)
    tiny = half * [[1.0], [1e-17]]
    second = Balance(decay=0.5).step(first.memory, tiny, tiny)
    assert second.memory.reliability_K[1] == pytest.approx(0.25)  # half of 0.5, and nothing added


def test_bad_balances() -> None:
    for bad in (lambda: Balance(decay=1.0), lambda: Balance(floor=0.0), lambda: GradientMemory.of(0, 3)):
        with pytest.raises(InputError):
            bad()
    with pytest.raises(InputError, match="is remembered"):
        Balance().step(GradientMemory.of(2, 3), np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(InputError, match="NaN or infinite"):
        Balance().step(GradientMemory.of(1, 1), np.array([[np.nan]]), np.ones((1, 1)))
    zero = Balance().step(GradientMemory.of(2, 2), np.zeros((2, 2)), np.zeros((2, 2)))
    assert zero.total_D.tolist() == [0.0, 0.0]
