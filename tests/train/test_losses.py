"""Losses: the sheet's numbers, and what each clip does and does not do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.errors import InputError
from counterpoint.train.losses import (
    clip_loss,
    decoupled_loss,
    dpo,
    kl,
    parl_objective,
    polyak,
    ratios,
    reinforce,
    token_weights,
    turn_loss,
    value_loss,
)
from credit import vectors as v

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


def test_decoupled_loss() -> None:
    assert decoupled_loss(v.AREAL["theta"], v.AREAL["prox"], v.AREAL["behave"], [1, 1]) == close(v.AREAL["loss"])


def test_preferences() -> None:
    for numbers, loss in (v.MALT_DPO, v.OWL_DPO):
        assert dpo(*numbers, beta=0.1) == close(loss)
    assert dpo(0, 0, 0, 1e6) < dpo(0, 0, 0, 0) == pytest.approx(np.log(2))


def test_parl() -> None:
    log_ratio, advantage, objective, mask = v.PARL
    value, keeps = parl_objective(log_ratio, advantage, log_low=-0.693147, log_high=0.693147, tau=0.1)
    assert value == close(objective)
    assert keeps.tolist() == [bool(m) for m in mask]


def test_values_and_the_rest() -> None:
    new, old, ret, loss = v.MAPPO_VALUE
    assert value_loss(new, old, ret, clip=0.2, huber=10.0) == close(loss)
    assert value_loss(new, old, ret, clip=None) == pytest.approx(0.005)
    assert value_loss(20.0, 0.0, 0.0, clip=None, huber=10.0) == pytest.approx(150)
    assert polyak(1.0, 2.0, tau=0.01) == close(1.01)
    assert reinforce([-1.0, -2.0, -3.0], [1.0, 1.0, -1.0], [0, 0, 1]) == pytest.approx(0.0)
