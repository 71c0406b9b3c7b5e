"""Policy objectives in torch, entry by entry: clipped and masked ratios, KL estimates, means over units, preferences (DPO).

    clip     max(-A rho, -A clip(rho, 1 - low, 1 + high));   dual = c: at most -A c where A < 0
    mask     -A exp(clamp(log rho, low, high)): no gradient outside, whatever the sign of A                          (PARL)
    KL       of pi against a reference, from samples of pi, x = log pi - log ref:  k1 = x,  k2 = x^2 / 2,  k3 = exp(-x) + x - 1
             As a term of a loss, what counts is the expected gradient over those samples: of k1 it is 0 (E grad log pi = 0), of
             k2 that of KL(pi || ref), of k3 that of KL(ref || pi). So k1 belongs into the reward, and is refused in a loss.
    DPO      -log sigmoid(beta [(log pi/ref)(better) - (log pi/ref)(worse)])

Always true: a loss is minimised; one entry per decision, token, turn or sequence in, one out, and sums or means are taken by the
caller. Ratios are computed from log-probabilities, which the caller bounds. Networks (`surrogates.py`) and language models
(`lm/objective.py`) descend these lines and no others.

PPO arXiv 1707.06347, dual clip 1912.09729, clip-higher (DAPO) 2503.14476, GSPO 2507.18071, PARL (Kimi K2.5) 2602.02276, DPO
2305.18290.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from counterpoint.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

ESTIMATORS = ("k1", "k2", "k3")


def clip_loss(log_ratio: Tensor, advantages: Tensor, *, low: float, high: float, dual: float | None = None) -> Tensor:
    """Clipped policy loss, bounded by `dual` times the advantage where that is negative."""
    ratio = log_ratio.exp()
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - low, 1 + high))
    return loss if dual is None else torch.where(advantages < 0, torch.minimum(loss, -advantages * dual), loss)


def mask_loss(log_ratio: Tensor, advantages: Tensor, *, low: float, high: float) -> Tensor:
    """Policy loss without a gradient where the log ratio is outside."""
    return -advantages * log_ratio.clamp(low, high).exp()


def check_dual(dual: float | None) -> None:
    """Raise where a bound of the loss is not above 1."""
    if dual is not None and not dual > 1:
        raise InputError(f"a dual clip is above 1, not {dual}")


def check_kl(estimator: str, place: str, weight: float) -> None:
    """Raise where a KL with a weight teaches nothing in its place (`loss` or `reward`), or is not defined there."""
    if weight and place == "reward" and estimator != "k1":
        raise InputError(f"the KL in the reward is k1, not {estimator}", fix='kl="k1"')
    if weight and place == "loss" and estimator == "k1":
        fix = 'kl="k2" or kl="k3" in the loss, or k1 in the reward: kl_in="reward"'
        raise InputError("the KL in the loss is k1, whose expected gradient is 0", why="E[grad log pi] = 0", fix=fix)


def kl(log_to_ref: Tensor, estimator: str = "k3") -> Tensor:
    """An estimate of KL(pi || ref) per entry, where log pi - log ref is given."""
    if estimator == "k1":
        return log_to_ref
    return log_to_ref**2 / 2 if estimator == "k2" else torch.expm1(-log_to_ref) + log_to_ref


def unit_sums(entries: Tensor, unit: Tensor, units: int) -> Tensor:
    """(units,) the sum over the entries of each unit: a turn, a sequence or a call, numbered from 0."""
    return entries.new_zeros(units).index_add(0, unit, entries)


def unit_means(entries: Tensor, unit: Tensor, units: int) -> Tensor:
    """(units,) the mean over the entries of each unit: of log ratios, the log of their geometric mean."""
    return unit_sums(entries, unit, units) / torch.bincount(unit, minlength=units)


def dpo_loss(better: Tensor, better_ref: Tensor, worse: Tensor, worse_ref: Tensor, beta: float) -> Tensor:
    """One entry per pair."""
    return -F.logsigmoid(beta * ((better - better_ref) - (worse - worse_ref)))
