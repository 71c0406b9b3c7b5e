"""Schedules: values by hand, the indicator's update by hand, and when the scaffold leaves, stays and returns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.rewards.schedules import Indicator, Scaffold, constant, cosine, linear, resolved, weight_at
from counterpoint.trace.example import rollouts


def test_plain_schedules() -> None:
    anneal = linear(0.2, 100)
    assert [anneal(s) for s in (0, 50, 100, 150)] == pytest.approx([0.2, 0.1, 0.0, 0.0])
    assert [linear(1.0, 10, last=0.5)(s) for s in (0, 5, 99)] == pytest.approx([1.0, 0.75, 0.5])
    assert [cosine(0.2, 100)(s) for s in (0, 25, 50, 100, 150)] == pytest.approx([0.2, 0.1707107, 0.1, 0.0, 0.0])
    assert constant(0.3)(1e9) == 0.3


@given(st.floats(0, 10), st.integers(1, 1000), st.floats(0, 2000), st.floats(0, 2000))
def test_plain_schedules_never_rise(first: float, end: int, a: float, b: float) -> None:
    for make in (linear, cosine):
        schedule = make(first, end)
        assert 0 <= schedule(max(a, b)) <= schedule(min(a, b)) + 1e-12 <= first + 2e-12


def test_bad_schedules() -> None:
    for bad in (lambda: linear(-1, 5), lambda: cosine(1, 0), lambda: constant(float("nan")), lambda: Scaffold(1, decay=1.0)):
        with pytest.raises(InputError):
            bad()


def test_resolved_by_hand() -> None:
    # gap 0.6, variances 0.09 on 4 and 5 * 0.09 on 20: error sqrt(0.0225 + 0.0225) = 0.2121, t = 2.828
    found = resolved(
        np.array([[0.0, 0.6], [0.5, 0.5], [0.0, 1.0]]), np.array([[0.09, 0.45], [0, 0], [0, 0]]), np.array([[4.0, 20]] * 3)
    )
    assert found == pytest.approx([(0.6 / np.sqrt(0.045) - 1) / 2, 0.0, 1.0])


def test_one_update_by_hand() -> None:
    plan = Scaffold(2.0, decay=0.5)
    first = plan.update(Indicator.of(2), np.array([0, 0, 0]), np.array([1, 1, 0]), np.array([1.0, 0.0, 0.5]))
    assert first.count_CA.tolist() == [[1, 2], [0, 0]]
    assert first.mean_CA[0].tolist() == [0.5, 0.5]
    assert first.square_CA[0].tolist() == [0.25, 0.5]
    assert first.seen_C.tolist() == [True, False]
    assert first.kappa == 0  # fewer than four rewards per arm: nothing is judged
    assert plan.weight(first) == 2.0  # L cannot rise above 1
    second = plan.update(first, np.array([0]), np.array([1]), np.array([1.0]))
    assert second.count_CA[0].tolist() == [0.5, 2.0]
    assert second.mean_CA[0, 1] == pytest.approx((1 * 0.5 + 1.0) / 2)


def _feed(plan: Scaffold, state: Indicator, gap: float, updates: int, arms: tuple[int, ...] = (0, 1), seed: int = 0) -> Indicator:
    rng = np.random.default_rng(seed)
    arm = np.tile(arms, 8)
    for _ in range(updates):
        state = plan.update(state, np.zeros(len(arm), int), arm, gap * arm + 0.1 * rng.standard_normal(len(arm)))
    return state


def test_the_scaffold_leaves_when_the_primary_ranks_the_arms() -> None:
    plan = Scaffold(10.0)
    state = _feed(plan, Indicator.of(1), gap=0.5, updates=400)
    assert state.kappa == 1
    assert plan.weight(state) == 0
    assert state.level < 1e-3


def test_it_stays_while_they_cannot_be_ranked() -> None:
    plan = Scaffold(10.0)
    one_arm = _feed(plan, Indicator.of(1), gap=0.5, updates=400, arms=(0,))
    assert plan.weight(one_arm) == 10.0
    assert plan.weight(Indicator.of(3)) == 10.0  # nothing seen


def test_lost_coverage_keeps_what_was_resolved_and_forgets_it_slowly() -> None:
    plan = Scaffold(10.0, fade=0.99)
    known = _feed(plan, Indicator.of(1), gap=0.5, updates=30)
    lost = _feed(plan, known, gap=0.5, updates=2000, arms=(0,))
    assert known.kappa == 1
    assert lost.kappa < 0.01
    assert plan.weight(lost) > 9  # unresolved again: the scaffold is back


def test_bad_observations() -> None:
    plan, state = Scaffold(1.0), Indicator.of(2)
    for bucket, arm, reward in (([2], [0], [1.0]), ([-1], [0], [1.0]), ([0], [0], [float("nan")]), ([0, 1], [0], [1.0])):
        with pytest.raises(InputError):
            plan.update(state, np.array(bucket), np.array(arm), np.array(reward))
    assert plan.update(state, np.array([], int), np.array([]), np.array([])).kappa == 0
    with pytest.raises(InputError):
        Indicator.of(0)


def test_a_weight_as_data() -> None:
    assert weight_at(2, 0.5) == weight_at(lambda step: 4 * step, 0.5) == 2.0
    line = {"from": 1.0, "to": 0.0, "until": 0.5}
    assert [weight_at(line, step) for step in (-1.0, 0.0, 0.25, 0.5, 1.0)] == [1.0, 1.0, 0.5, 0.0, 0.0]
    bow = {"from": 1.0, "to": 0.0, "form": "cosine"}
    assert [weight_at(bow, step) for step in (0.0, 1 / 3, 0.5, 1.0)] == pytest.approx([1.0, 0.75, 0.5, 0.0])
    for wrong, says in [
        ({"from": 1.0}, "the weight of r is"),
        ({**line, "form": "sine"}, "did you mean 'cosine'"),
        ({**line, "until": 0}, "ends at 0"),
        (True, "is True"),
    ]:
        with pytest.raises(InputError, match=says):
            weight_at(wrong, 0.0, "r")


def test_a_reward_takes_a_weight_as_data() -> None:
    trace = rollouts()[0]
    half = {"team_outcome": {"weight": {"from": 1.0, "to": 0.0}}}
    assert [s.value for s in registry.get("reward", "hybrid")(trace, terms=half, step=0.5)] == [0.5]
    form = {"form": "additive", "lambda1": {"from": 1.0, "to": 0.0}, "lambda2": 0.0, "step": 0.25}
    assert [s.value for s in registry.get("reward", "orchestration")(trace, **form)] == pytest.approx([0.75 * 0.3])
