"""V-trace, capped weights, off-policy evaluation and inclusion weights: the sheet's numbers and the laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.credits.advantages import reward_to_go
from counterpoint.credits.off_policy import (
    decoupled_weights,
    effective_size,
    evaluate,
    importance_weights,
    inclusion_effect,
    inclusion_weights,
    step_scale,
    vtrace,
)
from counterpoint.errors import InputError, NotIdentified
from credits import vectors as v

close = lambda x: pytest.approx(x, abs=v.TOLERANCE)  # noqa: E731


def test_vtrace_of_two_steps() -> None:
    targets, advantages = vtrace(v.VTRACE["rho"], v.VTRACE["r"], v.VTRACE["v"], gamma=0.99)
    assert targets == close(v.VTRACE["vs"])
    assert advantages == close(v.VTRACE["pg"])


@given(st.integers(1, 400), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_on_policy_vtrace_is_the_plain_return(n: int, seed: int, gamma: float) -> None:
    rng = np.random.default_rng(seed)
    r, value, s = rng.normal(size=n), rng.normal(size=n), np.sort(rng.integers(0, 4, n))
    targets, _ = vtrace(np.ones(n), r, value, segments=s, gamma=gamma)
    np.testing.assert_allclose(targets, reward_to_go(r, segments=s, gamma=gamma), atol=1e-9)


def test_vtrace_stops_at_an_impossible_action() -> None:
    targets, advantages = vtrace([1.0, 0.0, 1.0], [0, 0, 100.0], [1.0, 2.0, 3.0], gamma=1.0)
    assert targets[1] == 2.0  # its own value: nothing after it counts
    assert advantages[1] == 0
    with pytest.raises(InputError, match="ratio"):
        vtrace([-1.0], [0], [0])


def test_truncated_and_masked_weights() -> None:
    log, zero = np.array(v.TIS["log"]), np.zeros(3)
    assert importance_weights(log, zero, mode="none") == close(v.TIS["raw"])
    assert importance_weights(log, zero) == close(v.TIS["tis"])
    assert importance_weights(log, zero, mode="mask") == close(v.TIS["mis"])
    assert importance_weights(log, zero, mean_one=True).mean() == pytest.approx(1)
    two = importance_weights([0.1, 0.2, -1.0], zero, level="sequence", sequences=[0, 0, 1], mode="none")
    assert two == pytest.approx(np.exp([0.3, 0.3, -1.0]))
    assert importance_weights(log, zero, level="geometric", mode="none") == pytest.approx(np.exp(np.full(3, -0.1)))
    assert importance_weights([100.0], [0.0], mode="none") == pytest.approx(np.exp([20.0]))
    with pytest.raises(NotIdentified, match="log-prob"):
        importance_weights([np.nan], [0.0])


def test_decoupled_weights() -> None:
    weight, ratio = decoupled_weights(v.AREAL["theta"], v.AREAL["prox"], v.AREAL["behave"])
    assert weight == close(v.AREAL["weight"])
    assert ratio == close(v.AREAL["ratio"])
    capped, _ = decoupled_weights(v.AREAL["theta"], v.AREAL["prox"], v.AREAL["behave"], cap=1.0)
    assert capped == close([0, 0.367879])
    clamped, _ = decoupled_weights(v.AREAL["theta"], v.AREAL["prox"], v.AREAL["behave"], cap=1.0, mask=False)
    assert clamped == close([1, 0.367879])


def test_evaluation() -> None:
    o = v.OPE
    assert evaluate(o["rho"], o["returns"], q_hat=o["q_hat"], v_hat=o["v_hat"]) == close(o["expected"])
    bare = evaluate(o["rho"], o["returns"])
    assert bare.dm is None
    assert bare.dr is None
    with pytest.raises(NotIdentified, match="never"):
        evaluate([0.0, 0.0], [1.0, 1.0])


@given(st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_doubly_robust_with_a_perfect_model_needs_no_weights(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    g, w = rng.normal(size=n), rng.random(n) + 0.1
    assert evaluate(w, g, q_hat=g, v_hat=g).dr == pytest.approx(g.mean())


def test_effective_size_and_the_gate() -> None:
    assert effective_size([1, 1, 1, 1]) == 4
    assert effective_size([0.0, 0.0]) == 0
    assert step_scale([1, 1, 1, 1]) == 1
    assert step_scale([2.0, 0, 0, 0]) == 0.5
    assert step_scale([1.0] + [0.0] * 19) == 0


def test_inclusion_weights_undo_who_finished() -> None:
    # arm 1: easy launches always finish, hard ones one time in two; hard ones are worth 1, easy ones 0
    cells, arms = [0, 0, 1, 1, 0, 1], [1, 1, 1, 1, 0, 0]
    kept, returns = [1, 1, 1, 0, 1, 1], [0, 0, 1, np.nan, 0, 0]
    w = inclusion_weights(cells, arms, kept)
    assert w == pytest.approx([0.25, 0.25, 0.5, 0, 0.5, 0.5])
    assert inclusion_effect(returns, cells, arms, kept) == pytest.approx({0: 0.0, 1: 0.5})  # kept alone would say 1/3
    assert inclusion_weights([0] * 20, [0] * 20, [1] + [0] * 19, clip=10)[0] == 1


def test_an_arm_that_never_finishes_is_refused() -> None:
    with pytest.raises(NotIdentified, match="arm wide"):
        inclusion_weights([0, 0, 0], np.array(["narrow", "wide", "wide"]), [1, 0, 0])


@given(st.integers(4, 60), st.integers(0, 2**32 - 1))
def test_the_order_of_launches_changes_nothing(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells, arms, kept, returns = rng.integers(0, 2, n), rng.integers(0, 2, n), rng.random(n) < 0.7, rng.normal(size=n)
    order = rng.permutation(n)
    try:
        first = inclusion_effect(returns, cells, arms, kept)
    except NotIdentified:
        with pytest.raises(NotIdentified):
            inclusion_effect(returns[order], cells[order], arms[order], kept[order])
        return
    assert inclusion_effect(returns[order], cells[order], arms[order], kept[order]) == pytest.approx(first)
