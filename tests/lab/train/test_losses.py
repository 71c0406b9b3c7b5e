"""Losses: the sheet's numbers, and what each clip does and does not do."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.lab.train import objectives
from counterpoint.lab.train.objectives import check_dual, dpo_loss, kl, mask_loss, unit_means, unit_sums
from counterpoint.lab.train.surrogates import Steps
from credits import vectors as v

close = lambda x: pytest.approx(x, abs=v.TOLERANCE)  # noqa: E731
t = lambda x: torch.as_tensor(x, dtype=torch.float64)  # noqa: E731


def clip_loss(
    ratio: Sequence[float], advantages: Sequence[float], low: float = 0.2, high: float | None = None, dual: float | None = None
) -> np.ndarray:
    found = objectives.clip_loss(t(ratio).log(), t(advantages), low=low, high=low if high is None else high, dual=dual)
    return found.numpy()


def dpo(*logps: float, beta: float = 0.1) -> float:
    return float(dpo_loss(*(t(x) for x in logps), beta=beta))


def test_clips() -> None:
    ratio, advantage, loss = v.CLIP
    assert clip_loss(ratio, advantage, dual=3.0) == close(loss)
    assert clip_loss(ratio, advantage)[3] == close(4.0)  # without the dual clip
    ratio, advantage, loss = v.CLIP_HIGHER
    assert clip_loss(ratio, advantage, low=0.2, high=0.28) == close(loss)
    for wrong in (0.5, 1.0):
        with pytest.raises(InputError, match=f"a dual clip is above 1, not {wrong}"):
            check_dual(wrong)
    check_dual(None)
    check_dual(1.01)


@given(st.floats(0.01, 10), st.floats(-5, 5))
def test_a_clip_never_lowers_the_loss_and_at_ratio_one_it_does_nothing(ratio: float, advantage: float) -> None:
    assert clip_loss([ratio], [advantage])[0] >= -advantage * ratio - 1e-9
    assert clip_loss([1.0], [advantage])[0] == pytest.approx(-advantage)


def test_kl_estimators() -> None:
    logp, ref, expected = v.K3
    gap = t(logp) - t(ref)
    assert kl(gap).numpy() == close(expected)
    assert kl(gap, "k1").numpy() == pytest.approx([0.5, -0.1])
    assert kl(gap, "k2").numpy() == pytest.approx([0.125, 0.005])


def test_expected_gradients_of_the_kl_estimators() -> None:
    """Over all choices, weighed by pi: of k1 it is 0, of k2 that of KL(pi || ref), of k3 that of KL(ref || pi)."""
    scores, ref = np.array([0.4, -0.7, 1.1, 0.0]), np.log([0.1, 0.5, 0.15, 0.25])

    def divergences(x: np.ndarray) -> np.ndarray:
        logp = x - np.log(np.exp(x).sum())
        return np.array([(np.exp(logp) * (logp - ref)).sum(), (np.exp(ref) * (ref - logp)).sum()])

    step = 1e-6
    slopes = np.stack([(divergences(scores + step * e) - divergences(scores - step * e)) / (2 * step) for e in np.eye(4)], 1)
    for name, slope in (("k1", np.zeros(4)), ("k2", slopes[0]), ("k3", slopes[1])):
        x = torch.tensor(scores, requires_grad=True)
        logp = x.log_softmax(-1)
        (logp.detach().exp() * kl(logp - torch.tensor(ref), name)).sum().backward()
        assert x.grad is not None
        assert x.grad.numpy() == pytest.approx(slope, abs=1e-8), name
    assert np.abs(slopes).max() > 0.1
    with pytest.raises(InputError, match="k1, whose expected gradient is 0"):
        Steps(kl="k1", kl_weight=0.1)


@given(st.floats(-20, 0), st.floats(-20, 0))
def test_k3_is_never_negative(p: float, ref: float) -> None:
    assert float(kl(t(p) - t(ref))) >= 0


def test_means_and_sums_of_units() -> None:
    dlogp, turns, ratio, loss, _ = v.REMA
    codes = torch.as_tensor(np.unique(turns, return_inverse=True)[1])
    of_turns = unit_means(t(dlogp), codes, len(ratio))
    assert of_turns.exp().numpy() == close(ratio)
    assert clip_loss(of_turns.exp().tolist(), [1.0] * len(ratio), dual=3.0) == close(loss)
    dlogp, one = v.GSPO
    whole = torch.zeros(len(dlogp), dtype=torch.int64)
    assert unit_means(t(dlogp), whole, 1).exp().numpy() == close([one])
    assert unit_sums(t(dlogp), whole, 1).exp().numpy() == close([np.exp(0.15)])
    d = t(np.log([2.0, 8.0, 3.0]))
    assert unit_means(d, torch.tensor([1, 1, 0]), 2).exp().numpy() == pytest.approx([3, 4])
    assert unit_sums(d, torch.tensor([1, 1, 0]), 2).exp().numpy() == pytest.approx([3, 16])


def test_preferences() -> None:
    for numbers, loss in (v.MALT_DPO, v.OWL_DPO):
        assert dpo(*numbers) == close(loss)
    assert dpo(0, 0, 0, 1e6) < dpo(0, 0, 0, 0) == pytest.approx(np.log(2))
    assert dpo(-1.0, -2.0, -3.0, -3.5) == pytest.approx(np.log1p(np.exp(-0.1 * (1 - 0.5))))
    assert dpo(0.0, 0.0, 0.0, 5.0, beta=2.0) == pytest.approx(np.log1p(np.exp(-10)))


# -- by hand, at the limits


def test_a_ratio_is_clipped_on_both_sides_where_it_would_gain() -> None:
    # A = 1: above 1.2 the gain stops; below nothing is clipped. A = -1: below 0.8 it stops, above nothing is.
    assert clip_loss([1.5, 0.5, 1.2], [1.0, 1.0, 1.0]) == pytest.approx([-1.2, -0.5, -1.2])
    assert clip_loss([1.5, 0.5, 0.8], [-1.0, -1.0, -1.0]) == pytest.approx([1.5, 0.8, 0.8])
    assert clip_loss([1.5, 0.5], [1.0, -1.0], low=0.3) == pytest.approx([-1.3, 0.7])
    assert clip_loss([1.5], [1.0], low=0.1, high=0.4) == pytest.approx([-1.4])


def test_a_dual_clip_bounds_the_loss_where_the_advantage_is_negative() -> None:
    assert clip_loss([9.0, 9.0], [-1.0, 1.0], dual=3.0) == pytest.approx([3.0, -1.2])
    assert clip_loss([5.0], [0.0], dual=2.0) == [0.0]


def test_a_mask_holds_the_ratio_whatever_the_sign() -> None:
    found = mask_loss(t([0.1, 0.9, -0.9]), t([1.0, 1.0, -1.0]), low=-0.5, high=0.6)
    assert found.numpy() == pytest.approx([-np.exp(0.1), -np.exp(0.6), np.exp(-0.5)])


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("epochs", 0, "a whole number of 1 or more"),
        ("epochs", -2, "a whole number of 1 or more"),
        ("clip", -0.5, "a number above 0"),
        ("clip", math.nan, "a number above 0"),
        ("log_max", 0.0, "a number above 0"),
        ("log_max", -1.0, "a number above 0"),
        ("kl_weight", -5.0, "a number of 0 or more"),
        ("dual", 0.5, "a number above 1"),
    ],
)
def test_numbers_that_make_no_step_are_refused(name: str, value: float, takes: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"loss: {name} is {value!r}; {name} takes {takes}")):
        registry.get("loss", "clip").resolved({name: value})
    assert registry.get("loss", "clip").resolved({"log_max": math.inf, "dual": None, "kl_weight": 0}).dual is None
