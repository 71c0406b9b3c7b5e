"""The torch objective against the same formula in numpy: values, and gradients by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoint.errors import InputError  # noqa: E402
from counterpoint.lab.train.lm.objective import Objective  # noqa: E402

RNG = np.random.default_rng(0)
CALLS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 2])
LOGP, OLD, SAMPLER, REFERENCE = (-RNG.gamma(2.0, 0.7, len(CALLS)) for _ in range(4))
ADVANTAGES, WEIGHTS = RNG.normal(size=len(CALLS)), RNG.uniform(0.5, 1.5, len(CALLS))


def oracle(how: Objective, logp: np.ndarray) -> float:
    d = logp - OLD
    if how.level != "token":
        total = np.bincount(CALLS, d)
        d = (total / np.bincount(CALLS) if how.level == "geometric" else total)[CALLS]
    ratio = np.exp(np.minimum(d, 20))
    loss = np.maximum(-ADVANTAGES * ratio, -ADVANTAGES * np.clip(ratio, 1 - how.clip_low, 1 + how.clip_high))
    if how.dual is not None:
        loss = np.where(ADVANTAGES < 0, np.minimum(loss, -how.dual * ADVANTAGES), loss)
    if how.cap is not None:
        loss = np.minimum(np.exp(OLD - SAMPLER), how.cap) * loss
    x = logp - REFERENCE
    kl = {"k1": x, "k2": x**2 / 2, "k3": np.exp(-x) + x - 1}[how.kl]
    return float((WEIGHTS * (loss + how.beta * kl)).sum())


def told(how: Objective, logp: Any) -> tuple[Any, dict[str, float]]:
    column = lambda x: torch.as_tensor(x, dtype=torch.float64)  # noqa: E731
    return how(
        logp,
        column(OLD),
        column(ADVANTAGES),
        column(WEIGHTS),
        torch.as_tensor(CALLS),
        sampler=column(SAMPLER),
        reference=column(REFERENCE),
    )


@pytest.mark.parametrize("level", ["token", "geometric", "product"])
@pytest.mark.parametrize("dual", [None, 1.5])
@pytest.mark.parametrize("cap", [None, 1.2])
@pytest.mark.parametrize(("beta", "kl"), [(0.0, "k3"), (0.3, "k2"), (0.3, "k3")])
def test_it_has_the_oracles_value_and_slope(level: Any, dual: float | None, cap: float | None, beta: float, kl: Any) -> None:
    how = Objective(level=level, clip_low=0.3, clip_high=0.5, dual=dual, cap=cap, beta=beta, kl=kl)
    logp = torch.tensor(LOGP, dtype=torch.float64, requires_grad=True)
    loss, _ = told(how, logp)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(oracle(how, LOGP), rel=1e-9)
    for i in range(len(LOGP)):
        step = np.zeros(len(LOGP))
        step[i] = 1e-6
        slope = (oracle(how, LOGP + step) - oracle(how, LOGP - step)) / 2e-6
        assert float(logp.grad[i]) == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_a_mask_stops_the_gradient_of_tokens_that_moved_far() -> None:
    """By hand: log ratios 0.1, 0.9, -0.9 with mask [-0.5, 0.5], A 1, 1, -1, tau 0.25, weights 1."""
    logp = torch.tensor([0.1, 0.9, -0.9], dtype=torch.float64, requires_grad=True)
    zero, ones = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    how = Objective(mask=(-0.5, 0.5), pull=0.25)
    loss, _ = how(logp, zero, torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64), ones, torch.arange(3))
    loss.backward()
    squares = 0.25 * (0.01 + 0.81 + 0.81)
    assert float(loss.detach()) == pytest.approx(-np.exp(0.1) - np.exp(0.5) + np.exp(-0.5) + squares)
    assert logp.grad.tolist() == pytest.approx([-np.exp(0.1) + 0.05, 0.45, -0.45])


def test_without_a_ratio_the_loss_is_reinforce() -> None:
    """-A log pi, whatever the policy was that sampled: also where a ratio would be clipped."""
    logp = torch.tensor([-1.0, -0.2, -3.0], dtype=torch.float64, requires_grad=True)
    old, ones = torch.full((3,), -2.0, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    loss, _ = Objective(level="none", cap=None)(logp, old, torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), ones / 4, torch.arange(3))
    loss.backward()
    assert float(loss.detach()) == pytest.approx((1.0 - 0.4 + 1.5) / 4)
    assert logp.grad.tolist() == pytest.approx([-0.25, 0.5, -0.125])


def test_a_log_ratio_is_held_from_above() -> None:
    logp, zero = torch.tensor([5.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    held = Objective(level="geometric", log_max=3.0, cap=None)(logp, zero, -one, one, torch.zeros(1, dtype=torch.int64))[0]
    assert float(held) == pytest.approx(np.exp(3.0))


def test_what_is_reported() -> None:
    _, report = told(Objective(beta=0.1), torch.tensor(LOGP, dtype=torch.float64))
    d = LOGP - OLD
    assert report["kl_old"] == pytest.approx(float((np.expm1(d) - d).mean()))
    assert report["clipped"] == pytest.approx(float(((np.exp(d) < 0.8) | (np.exp(d) > 1.28)).mean()))
    assert report["mismatch"] == pytest.approx(float(np.abs(OLD - SAMPLER).mean()))
    assert report["kl_reference"] > 0


@pytest.mark.parametrize("wrong", [{"level": "word"}, {"kl": "k4"}, {"dual": 0.5}, {"kl": "k1", "beta": 0.1}, {"level": "none", "dual": 3.0}])
def test_what_it_does_not_know_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Objective(**wrong)
