"""Balancing and schedules over several steps, by hand: what is remembered, the floors and limits, and every constant."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

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
from counterpoint.rewards.schedules import Indicator, Scaffold, constant, cosine, linear, resolved

# -- values ------------------------------------------------------------------------------------------------------


def test_normalised_keeps_groups_and_components_apart() -> None:
    rows = np.array([[0.0, 4.0, 10.0, 10.0, 40.0], [1.0, 1.0, 3.0, 3.0, 3.0]])
    found = normalised(rows, ["x", "x", "y", "y", "y"])
    assert found[0] == pytest.approx([-1, 1, -1 / math.sqrt(2), -1 / math.sqrt(2), math.sqrt(2)])
    assert found[1].tolist() == [0.0] * 5
    assert normalised(rows[0], [0, 0, 1, 1, 1]) == pytest.approx(found[0])  # one row is one component
    deep = normalised(np.stack([rows, rows * 2]), [0, 0, 1, 1, 1])
    assert deep.shape == (2, 2, 5)
    assert deep[1, 0] == pytest.approx(found[0])
    assert normalised(np.array([[0.0, 4.0]]), [0, 0], ddof=1)[0] == pytest.approx([-(0.5**0.5), 0.5**0.5])
    assert normalised(np.array([[5.0, 0.0, 4.0]]), [0, 1, 1], ddof=1)[0] == pytest.approx(
        [0, -(0.5**0.5), 0.5**0.5]
    )  # one alone has no deviation


def test_what_varies_by_rounding_does_not_vary() -> None:
    assert normalised(np.array([[1e6, 1e6 + 1e-7]]), [0, 0]).tolist() == [[0.0, 0.0]]
    assert normalised(np.array([[1e6, 1e6 + 1e-4]]), [0, 0])[0] == pytest.approx([-1.0, 1.0], abs=1e-4)
    assert normalised(np.array([[-1e6, -1e6 - 1e-7]]), [0, 0]).tolist() == [[0.0, 0.0]]
    assert normalised(np.array([[0.0, 2e-3]]), [0, 0])[0] == pytest.approx([-1.0, 1.0])


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda x: normalised(x, [0, 0]), "values"),
        (lambda x: variance_weights(x, [0, 0]), "values"),
        (variation_weights, "values"),
        (weighted, "components"),
        (lambda x: weighted(np.ones((2, 2)), x[0] if len(x) else []), "weights"),
    ],
)
def test_values_that_are_no_numbers_are_refused(call: Any, what: str) -> None:
    for wrong in ([[1.0, math.nan]], [[math.inf, 1.0]]):
        with pytest.raises(InputError, match=f"some {what} are NaN or infinite"):
            call(np.array(wrong))
    with pytest.raises(InputError, match=f"there are no {what}"):
        call(np.empty((0, 2)))


def test_lists_are_taken_as_arrays() -> None:
    assert variance_weights([[0, 2], [0, 6]], [0, 0]).tolist() == pytest.approx([0.2, 1.8])  # type: ignore[arg-type]
    assert variation_weights([[1, 3], [0, 6]]).tolist() == pytest.approx([2 / 3, 4 / 3])  # type: ignore[arg-type]
    assert weighted([[1, 2], [3, 4]]).tolist() == [4, 6]  # type: ignore[arg-type]


def test_weights_of_small_amounts_are_shares_too() -> None:
    tiny = np.array([[0.0, 0.2], [0.0, 0.6]])  # variances 0.01 and 0.09, together far below 1
    assert variance_weights(tiny, [0, 0]) == pytest.approx([0.2, 1.8])
    assert variation_weights(np.full((3, 2), 5.0)).tolist() == [1, 1, 1]
    # a mean of zero: the deviation is measured against 1e-8 of itself
    assert variation_weights(np.array([[-1.0, 1.0], [0.0, 6.0]])) == pytest.approx([2 * 1e8 / (1e8 + 1), 2 / (1e8 + 1)])
    assert variation_weights(np.array([[-1.0, -3.0], [0.0, 6.0]])) == pytest.approx([2 / 3, 4 / 3])


def test_gdpo_sums_before_it_whitens() -> None:
    rows = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    plain = gdpo(rows, [0, 0, 1, 1], whiten=False)
    assert plain == pytest.approx([0.5**0.5, -(0.5**0.5), -(0.5**0.5), 0.5**0.5])
    white = gdpo(rows, [0, 0, 1, 1])
    assert white == pytest.approx(np.array([1, -1, -1, 1]) * math.sqrt(3 / 4))
    assert gdpo(rows, [0, 0, 1, 1], ddof=0) == pytest.approx([1, -1, -1, 1])
    cancelled = gdpo(np.array([[0.3, 0.1, 0.7], [-0.3, -0.1, -0.7]]), [0, 0, 0])
    assert cancelled.tolist() == [0, 0, 0]
    assert gdpo(np.array([[0.3, 0.1, 0.7], [-0.9, -0.3, -2.1]]), [0, 0, 0], [2.0, 2.0]).tolist() == [0, 0, 0]
    assert gdpo(np.array([[0.3, 0.1, 0.7], [-0.9, -0.3, -2.1]]), [0, 0, 0], [-2.0, -2.0]).tolist() == [0, 0, 0]
    assert gdpo(np.array([[1.0, 0.0], [1.0, 0.0]]), [0, 0], [1.0, -0.5], whiten=False) == pytest.approx(
        [0.5 * 0.5**0.5, -0.5 * 0.5**0.5]
    )


# -- ours --------------------------------------------------------------------------------------------------------


def test_two_steps_by_hand() -> None:
    """decay 1/2: after two steps the averages are (1/2 old + 1/2 new), corrected by 1 - 1/4."""
    balance = Balance(decay=0.5)
    one = np.array([[1.0, 0.0], [1.0, 0.0]])
    two1, two2 = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [0.0, -1.0]])
    first = balance.step(GradientMemory.of(2, 2), one, one)
    assert first.memory.steps == 1
    assert first.memory.mean_KD.tolist() == [[0.5, 0.0], [0.5, 0.0]]
    assert first.memory.reliability_K.tolist() == [0.5, 0.5]
    assert first.weights_K == pytest.approx([1.0, 1.0])
    second = balance.step(first.memory, two1, two2)
    assert second.memory.steps == 2
    assert second.memory.mean_KD.tolist() == [[0.75, 0.0], [0.25, 0.25]]
    assert second.memory.reliability_K.tolist() == [0.75, -0.25]
    assert second.weights_K.tolist() == [1.0, 0.0]  # rho is below zero
    third = balance.step(second.memory, one, one)
    # rho: (0.5 * [0.75, -0.25] + 0.5) / (7/8) = [1, 3/7]; mean (0.875, 0), (0.625, 0.125)
    assert third.memory.reliability_K.tolist() == [0.875, 0.375]
    alpha2 = 0.625**2 / (0.625**2 + 0.125**2)
    assert third.weights_K == pytest.approx([1.0, alpha2 * 3 / 7])
    w = alpha2 * 3 / 7
    assert third.total_D == pytest.approx(np.array([1 + w, 0.0]) / math.sqrt(1 + w * w))


def test_the_floor_and_the_limit_of_a_weight() -> None:
    sure = np.array([1.0, 0.0, 0.0])
    # A primary whose halves are nearly at right angles, rho_0 = 0.1, and a component along its mean with rho 1.
    h1, h2 = np.array([1.0, 1.0, 0.0]), np.array([1.0, -0.8181818181818182, 0.0])
    cos = float(h1 @ h2 / np.linalg.norm(h1) / np.linalg.norm(h2))
    mean = (h1 + h2) / 2
    found = Balance(most=100.0).step(GradientMemory.of(2, 3), np.stack([h1, mean]), np.stack([h2, mean]))
    assert 0.05 < cos < 1 / 3
    assert found.weights_K == pytest.approx([1.0, 1 / cos])
    assert Balance().step(GradientMemory.of(2, 3), np.stack([h1, mean]), np.stack([h2, mean])).weights_K == pytest.approx([1.0, 3.0])
    assert Balance(floor=0.5).step(GradientMemory.of(2, 3), np.stack([h1, mean]), np.stack([h2, mean])).weights_K == pytest.approx(
        [1.0, 2.0]
    )
    opposed = Balance(most=100.0).step(
        GradientMemory.of(2, 3), np.stack([h1, mean]), np.stack([np.array([0.9, -1.0, 0.0]), np.array([1.0, 0.0, 0.0])])
    )
    assert opposed.weights_K[1] <= 20.0  # rho_0 below zero counts as the floor, 0.05
    assert opposed.weights_K[1] > 3.0
    assert (Balance().decay, Balance().floor, Balance().most) == (0.9, 0.05, 3.0)
    one = Balance().step(GradientMemory.of(1, 3), sure[None], sure[None])
    assert (one.total_D.tolist(), one.weights_K.tolist()) == ([1.0, 0.0, 0.0], [1.0])
    assert Balance(most=0.0).step(GradientMemory.of(2, 3), np.stack([sure, sure]), np.stack([sure, sure])).weights_K.tolist() == [
        1.0,
        0.0,
    ]
    assert Balance(decay=0.0).step(GradientMemory.of(1, 3), sure[None], sure[None]).memory.reliability_K.tolist() == [1.0]


def test_the_total_has_the_length_of_one_gradient() -> None:
    half = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    found = Balance().step(GradientMemory.of(3, 2), half, half)
    assert found.weights_K == pytest.approx([1.0, 1.0, 1.0])
    assert found.total_D == pytest.approx([6 / math.sqrt(3), 0.0])


def test_one_sided_takes_only_what_opposes() -> None:
    g = np.array([[2.0, 0.0], [-3.0, 1.0], [3.0, 1.0], [0.0, 5.0]])
    assert one_sided(g).tolist() == [[2.0, 0.0], [0.0, 1.0], [3.0, 1.0], [0.0, 5.0]]
    assert one_sided(np.array([[0.0, 0.0], [-3.0, 1.0]])).tolist() == [[0.0, 0.0], [-3.0, 1.0]]
    assert one_sided(np.array([[[1.0, 1.0], [-1.0, 0.0]]])).tolist() == [[[1.0, 1.0], [-0.5, 0.5]]]


def test_halves_at_the_size_of_rounding() -> None:
    """Below 1e-9 of what is remembered a half is rounding; above, it counts."""
    half = np.array([[1.0, 0.0], [1.0, 0.0]])
    first = Balance(decay=0.5).step(GradientMemory.of(2, 2), half, half).memory  # remembers 0.5
    for size, agrees in ((0.4e-9, False), (0.6e-9, True)):
        tiny = half * [[1.0], [size]]
        assert Balance(decay=0.5).step(first, tiny, half).memory.reliability_K[1] == (0.75 if agrees else 0.25)
        assert Balance(decay=0.5).step(first, half, tiny).memory.reliability_K[1] == (0.75 if agrees else 0.25)
    zero = np.zeros((2, 2))
    assert Balance().step(GradientMemory.of(2, 2), zero, half).memory.reliability_K.tolist() == [0.0, 0.0]


def test_bad_balances_one_by_one() -> None:
    for wrong in ({"decay": -0.1}, {"decay": 1.0}, {"floor": 0.0}, {"floor": -1.0}, {"most": -0.1}):
        with pytest.raises(InputError, match=r"decay in \[0, 1\), floor > 0, most >= 0"):
            Balance(**wrong)
    for components, parameters in ((0, 1), (1, 0), (-1, 1)):
        with pytest.raises(InputError, match="at least one component and one parameter"):
            GradientMemory.of(components, parameters)
    memory = GradientMemory.of(2, 3, (4,))
    assert (memory.mean_KD.shape, memory.reliability_K.shape, memory.steps) == ((4, 2, 3), (4, 2), 0)
    for one, two in ((np.ones((2, 2)), np.ones((2, 3))), (np.ones((2, 3)), np.ones((2, 2)))):
        with pytest.raises(InputError, match="is remembered"):
            Balance().step(GradientMemory.of(2, 3), one, two)
    for one, two in ((np.full((1, 1), np.nan), np.ones((1, 1))), (np.ones((1, 1)), np.full((1, 1), np.nan))):
        with pytest.raises(InputError, match="some gradients are NaN or infinite"):
            Balance().step(GradientMemory.of(1, 1), one, two)
    for record in (Balance(), memory, Scaffold(1.0), Indicator.of(1)):
        with pytest.raises(FrozenInstanceError):
            record.steps = 3  # type: ignore[union-attr,misc]


# -- schedules ---------------------------------------------------------------------------------------------------


def test_plain_schedules_at_their_ends() -> None:
    for make in (linear, cosine):
        assert [make(2.0, 10, last=1.0)(s) for s in (-5, 0, 10, 11)] == pytest.approx([2.0, 2.0, 1.0, 1.0])
        assert make(0.0, 10)(5) == 0.0
        for wrong in ((-0.1, 5), (math.inf, 5), (math.nan, 5), (1, 0), (1, -1)):
            with pytest.raises(InputError):
                make(*wrong)
    assert cosine(2.0, 10, last=1.0)(5) == pytest.approx(1.5)
    assert cosine(1.0, 3)(1) == pytest.approx(0.75)
    assert constant(0.0)(3) == 0.0
    with pytest.raises(InputError, match="a first weight is finite and at least 0"):
        constant(-1)


def test_scaffold_constants_and_refusals() -> None:
    plan = Scaffold(1.0)
    assert (plan.decay, plan.fade, plan.least, plan.enough, plan.fall, plan.rise) == (0.995, 0.9999, 4.0, 0.75, 0.98, 1.02)
    assert Scaffold(0.0, decay=0.0, fade=0.0).weight(Indicator.of(1)) == 0.0
    assert Scaffold(1.0, fade=1.0).fade == 1.0
    for wrong in ({"decay": -0.1}, {"decay": 1.0}, {"fade": -0.1}, {"fade": 1.1}, {"first": -1.0}, {"first": math.nan}):
        with pytest.raises(InputError):
            Scaffold(**{"first": 1.0} | wrong)
    with pytest.raises(InputError, match="at least one context bucket, not 0"):
        Indicator.of(0)
    assert len(Indicator.of(1).seen_C) == 1


def batch(plan: Scaffold, state: Indicator, rows: list[tuple[int, int, float]]) -> Indicator:
    bucket, arm, primary = zip(*rows, strict=True)
    return plan.update(state, np.array(bucket), np.array(arm), np.array(primary))


def test_an_arm_is_judged_above_the_least_count() -> None:
    plan = Scaffold(1.0)
    four = [(0, arm, float(arm)) for arm in (0, 1) for _ in range(4)]
    at = batch(plan, Indicator.of(1), four)
    assert at.kappa == 0.0  # four is not above four
    above = batch(plan, Indicator.of(1), [*four, (0, 0, 0.0), (0, 1, 1.0)])
    assert above.kappa == 1.0
    one_short = batch(plan, Indicator.of(1), [*four, (0, 0, 0.0)])
    assert one_short.kappa == 0.0


def test_kappa_is_over_the_buckets_seen_and_l_follows_it() -> None:
    plan = Scaffold(8.0)
    good = [(0, arm, float(arm)) for arm in (0, 1) for _ in range(5)]
    tied = [(1, arm, 0.5) for arm in (0, 1) for _ in range(5)]
    state = batch(plan, Indicator.of(3), good)
    assert state.seen_C.tolist() == [True, False, False]
    assert (state.kappa, state.level) == (1.0, 0.98)
    assert plan.weight(state) == 0.0
    state = batch(plan, state, tied)
    assert state.resolved_C.tolist() == [1.0, 0.0, 0.0]  # its counts, 4.975, still judge the first
    assert (state.kappa, state.level) == (0.5, pytest.approx(0.98 * 1.02))
    assert plan.weight(state) == pytest.approx(8.0 * 0.5 * 0.98 * 1.02)
    half = Scaffold(1.0, enough=0.5)
    assert batch(half, batch(half, Indicator.of(3), good), tied).level == pytest.approx(0.98 * 1.02)  # at `enough` L rises
    assert batch(plan, Indicator.of(3), tied).level == 1.0  # and never above 1


def test_a_bucket_that_lost_an_arm_fades() -> None:
    plan = Scaffold(1.0, decay=0.5, fade=0.9)
    state = batch(plan, Indicator.of(1), [(0, arm, float(arm)) for arm in (0, 1) for _ in range(5)])
    assert state.kappa == 1.0
    state = batch(plan, state, [(0, 0, 0.0)] * 5)
    assert state.count_CA.tolist() == [[7.5, 2.5]]
    assert state.kappa == pytest.approx(0.9)
    assert state.mean_CA.tolist() == [[0.0, 1.0]]
    assert state.square_CA.tolist() == [[0.0, 1.0]]


def test_means_of_an_empty_arm_are_zero() -> None:
    state = batch(Scaffold(1.0), Indicator.of(2), [(1, 1, 3.0)])
    assert state.mean_CA.tolist() == [[0.0, 0.0], [0.0, 3.0]]
    assert state.square_CA.tolist() == [[0.0, 0.0], [0.0, 9.0]]
    assert state.seen_C.tolist() == [False, True]


def test_a_mean_outlives_its_count_and_lists_are_taken() -> None:
    plan = Scaffold(1.0, decay=0.5)
    state = plan.update(Indicator.of(1), [0], [1], [3])  # type: ignore[arg-type]
    state = plan.update(state, [0], [0], [1])  # type: ignore[arg-type]
    assert state.count_CA.tolist() == [[1.0, 0.5]]
    assert (state.mean_CA.tolist(), state.square_CA.tolist()) == ([[1.0, 3.0]], [[1.0, 9.0]])


def test_resolved_in_between_and_without_variance() -> None:
    one = np.ones((1, 2))
    # variances 0.5 and 0.5 on 1: error 1, so t is the gap
    for gap, found in ((0.5, 0.0), (1.0, 0.0), (2.0, 0.5), (3.0, 1.0), (4.0, 1.0), (-2.0, 0.5)):
        assert resolved(np.array([[0.0, gap]]), one / 2, one).tolist() == [found]
    assert resolved(np.array([[0.0, 1e-13]]), one * 0, one).tolist() == [0.0]
    assert resolved(np.array([[0.0, 1e-11]]), one * 0, one).tolist() == [1.0]
    assert resolved(np.array([[0.0, 2.0]]), np.array([[-1.0, 1.0]]), one).tolist() == [0.5]  # rounding below zero is zero
    assert resolved(np.array([[1.0, 3.0]]), np.array([[2.0, 6.0]]), np.array([[4.0, 12.0]])).tolist() == [0.5]


def test_observations_are_refused_one_by_one() -> None:
    plan, state = Scaffold(1.0), Indicator.of(2)
    for bucket in ([2], [-1]):
        with pytest.raises(InputError, match="buckets run from 0 to 1"):
            plan.update(state, np.array(bucket), np.array([0]), np.array([1.0]))
    for shape in (([0, 1], [0], [1.0]), ([0], [0, 1], [1.0]), ([0], [0], [1.0, 2.0]), ([[0]], [[0]], [[1.0]])):
        with pytest.raises(InputError, match="one bucket, arm and reward per choice"):
            plan.update(state, *map(np.array, shape))
    for value in (math.nan, math.inf):
        with pytest.raises(InputError, match="a primary reward is NaN or infinite"):
            plan.update(state, np.array([0]), np.array([0]), np.array([value]))
    assert batch(plan, state, [(1, 0, 1.0)]).count_CA.tolist() == [[0, 0], [1, 0]]
