"""Losses: the sheet's numbers, and what each clip does and does not do."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.lab.train.objectives import clip_loss, dpo, kl, ratios, token_weights, turn_loss
from credits import vectors as v

close = lambda x: pytest.approx(x, abs=v.TOLERANCE)  # noqa: E731


def test_clips() -> None:
    ratio, advantage, loss = v.CLIP
    assert clip_loss(ratio, advantage, dual=3.0) == close(loss)
    assert clip_loss(ratio, advantage)[3] == close(4.0)  # without the dual clip
    ratio, advantage, loss = v.CLIP_HIGHER
    assert clip_loss(ratio, advantage, eps_low=0.2, eps_high=0.28) == close(loss)
    with pytest.raises(InputError, match="dual"):
        clip_loss([1.0], [1.0], dual=0.5)
    with pytest.raises(InputError, match="shapes"):
        clip_loss([1.0, 2.0], [1.0, 2.0, 3.0])


@given(st.floats(0.01, 10), st.floats(-5, 5))
def test_a_clip_never_lowers_the_loss_and_at_ratio_one_it_does_nothing(ratio: float, advantage: float) -> None:
    assert clip_loss([ratio], [advantage])[0] >= -advantage * ratio - 1e-12
    assert clip_loss([1.0], [advantage])[0] == pytest.approx(-advantage)


def test_token_weights() -> None:
    for scheme, expected in v.WEIGHTS.items():
        assert token_weights([2, 4, 4, 10], scheme, constant=10) == close(expected)  # type: ignore[arg-type]
    tokens, weights = v.WIDESEEK_TOKENS
    assert token_weights(tokens, "agent_mean", rollouts=[0, 0]) == close(weights)
    rollouts, lengths, divisors = v.LIGHTNING
    assert 1 / token_weights(lengths, "rollout_mean", rollouts=rollouts) == close(divisors)
    for call in (lambda: token_weights([2, 0]), lambda: token_weights([2], "constant"), lambda: token_weights([2], "agent_mean")):
        with pytest.raises(InputError):
            call()


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9))
def test_weights_of_all_tokens_sum_to_one(lengths: list[int]) -> None:
    rollouts = [i // 2 for i in range(len(lengths))]
    for scheme in ("seq_mean_token_mean", "token_mean", "agent_mean"):
        w = token_weights(lengths, scheme, rollouts=rollouts)  # type: ignore[arg-type]
        assert (w * np.array(lengths)).sum() == pytest.approx(1)


def test_kl_estimators() -> None:
    logp, ref, expected = v.K3
    assert kl(logp, ref) == close(expected)
    assert kl(logp, ref, estimator="k1") == pytest.approx([0.5, -0.1])
    assert kl(logp, ref, estimator="k2") == pytest.approx([0.125, 0.005])
    with pytest.raises(InputError, match="k3"):
        kl([0], [0], estimator="k4")  # type: ignore[arg-type]


@given(st.floats(-20, 0), st.floats(-20, 0))
def test_k3_is_never_negative(p: float, ref: float) -> None:
    assert kl([p], [ref])[0] >= 0


def test_ratios_of_turns_and_sequences() -> None:
    dlogp, turns, ratio, loss, mean = v.REMA
    assert ratios(dlogp, turns, level="geometric") == close(ratio)
    got, whole = turn_loss(dlogp, turns, 1.0)
    assert got == close(loss)
    assert whole == close(mean)
    dlogp, one = v.GSPO
    assert ratios(dlogp, level="geometric") == close([one])
    assert ratios(dlogp, level="product") == close([np.exp(0.15)])
    assert ratios([0.0, 50.0]) == pytest.approx([1.0, np.exp(20.0)])


def test_preferences() -> None:
    for numbers, loss in (v.MALT_DPO, v.OWL_DPO):
        assert dpo(*numbers, beta=0.1) == close(loss)
    assert dpo(0, 0, 0, 1e6) < dpo(0, 0, 0, 0) == pytest.approx(np.log(2))


# -- by hand, at the limits


def test_a_ratio_is_clipped_on_both_sides_where_it_would_gain() -> None:
    # A = 1: above 1.2 the gain stops; below nothing is clipped. A = -1: below 0.8 it stops, above nothing is.
    assert clip_loss([1.5, 0.5, 1.2], [1.0, 1.0, 1.0]) == pytest.approx([-1.2, -0.5, -1.2])
    assert clip_loss([1.5, 0.5, 0.8], [-1.0, -1.0, -1.0]) == pytest.approx([1.5, 0.8, 0.8])
    assert clip_loss([1.5, 0.5], [1.0, -1.0], eps_low=0.3) == pytest.approx([-1.3, 0.7])
    assert clip_loss([1.5], [1.0], eps_low=0.1, eps_high=0.4) == pytest.approx([-1.4])


def test_a_dual_clip_bounds_one_sign_or_both() -> None:
    assert clip_loss([9.0, 9.0], [-1.0, 1.0], dual=3.0) == pytest.approx([3.0, -1.2])
    assert clip_loss([9.0, 0.1], [-2.0, 2.0], dual=1.5, dual_both_signs=True) == pytest.approx([3.0, -0.2])
    with pytest.raises(InputError, match="above 1, not 1"):
        clip_loss([1.0], [1.0], dual=1.0)
    assert clip_loss([5.0], [0.0], dual=2.0) == [0.0]


def test_weights_by_hand() -> None:
    assert token_weights([1, 3]) == pytest.approx([0.25, 0.25])
    assert token_weights([1, 3], "seq_mean_token_mean") == pytest.approx([1 / 2, 1 / 6])
    assert token_weights([1, 3], "constant", constant=5) == pytest.approx([0.1, 0.1])
    assert token_weights([1, 3, 2], "agent_mean", rollouts=[7, 7, 4]) == pytest.approx([1 / 4, 1 / 12, 1 / 4])
    assert token_weights([1, 3, 2], "rollout_mean", rollouts=[7, 7, 4]) == pytest.approx([1 / 12, 1 / 12, 1 / 6])
    for wrong in ({"constant": 0}, {"constant": -1}, {}):
        with pytest.raises(InputError, match="constant above 0"):
            token_weights([1], "constant", **wrong)
    for lengths in ([], [[1]], [0], [-1]):
        with pytest.raises(InputError, match="lengths are above 0"):
            token_weights(lengths)
    with pytest.raises(InputError, match="no weights for scheme 'mean'"):
        token_weights([1], "mean", rollouts=[0])  # type: ignore[arg-type]


def test_ratios_by_hand() -> None:
    d = np.log([2.0, 8.0, 3.0])
    assert ratios(d) == pytest.approx([2, 8, 3])
    assert ratios(d, [1, 1, 0], level="geometric") == pytest.approx([3, 4])
    assert ratios(d, [1, 1, 0], level="product") == pytest.approx([3, 16])
    assert ratios(d, level="product") == pytest.approx([48])
    assert ratios([5.0, -50.0], log_max=1.0) == pytest.approx([np.e, np.exp(-50)])
    assert ratios([3.0, 3.0], level="product", log_max=4.0) == pytest.approx([np.exp(4)])
    with pytest.raises(InputError, match="no level 'sum'"):
        ratios([0.0], level="sum")  # type: ignore[arg-type]


def test_a_turns_loss_by_hand() -> None:
    d = np.log([2.0, 8.0, 0.25])
    losses, mean = turn_loss(d, [0, 0, 1], [1.0, -1.0])
    assert losses == pytest.approx([-1.2, 0.8])
    assert mean == pytest.approx(-0.2)
    losses, _ = turn_loss([9.0, 9.0], [0, 1], [-1.0, -1.0])
    assert losses == pytest.approx([3.0, 3.0])
    losses, _ = turn_loss([9.0], [0], [-1.0], dual=None)
    assert losses == pytest.approx([np.exp(3.0)])
    losses, _ = turn_loss([9.0], [0], [1.0], eps=0.5)
    assert losses == pytest.approx([-1.5])


def test_preferences_by_hand() -> None:
    assert dpo([-1.0], [-2.0], [-3.0], [-3.5]) == pytest.approx([np.log1p(np.exp(-0.1 * (1 - 0.5)))])
    assert dpo(0.0, 0.0, 0.0, 5.0, beta=2.0) == pytest.approx(np.log1p(np.exp(-10)))


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match=r"ratio \(2,\), advantages \(3,\)"):
        clip_loss([1.0, 1.0], [1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("parts", 0, "a whole number of 1 or more"),
        ("epochs", 0, "a whole number of 1 or more"),
        ("epochs", -2, "a whole number of 1 or more"),
        ("clip", -0.5, "a number above 0"),
        ("clip", math.nan, "a number above 0"),
        ("max_norm", 0.0, "a number above 0"),
        ("max_norm", -1.0, "a number above 0"),
        ("kl_weight", -5.0, "a number of 0 or more"),
        ("dual", 0.5, "a number above 1"),
    ],
)
def test_numbers_that_make_no_step_are_refused(name: str, value: float, takes: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"loss: {name} is {value!r}; {name} takes {takes}")):
        registry.get("loss", "clip").resolved({name: value})
    assert registry.get("loss", "clip").resolved({"max_norm": math.inf, "dual": None, "kl_weight": 0}).dual is None
