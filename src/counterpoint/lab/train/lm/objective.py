"""The policy objective of language models, in torch: the lines of `train/objectives.py`, with gradients.

Always true: with the same numbers it has the value of the numpy oracle, term by term. Weights, old log-probabilities, those of
the sampler and of the reference carry no gradient.

    L = sum_t w_t [ c_t max(-A_t rho_t, -A_t clip(rho_t, 1 - low, 1 + high)) + beta kl_t ]
    L = sum_t w_t [ c_t (-A_t exp(clip(log rho_t, mask)) + pull (log rho_t)^2) + beta kl_t ]     with a mask

rho_t is pi / pi_old of the token, or of its call: the geometric mean (GSPO, arXiv 2507.18071; a call is a turn in ReMA,
2503.09501) or the product over its tokens. c_t = min(pi_old / pi_sampler, cap) corrects what the engine that sampled computes
otherwise than the learner (truncated importance sampling). Clip-higher: DAPO 2503.14476; dual clip: 1912.09729.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from counterpoint.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

_LOG_MAX = 20.0


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What an update minimises."""

    level: Literal["token", "geometric", "product"] = "token"
    """What a ratio is of: a token, or a call by the geometric mean or the product over its tokens."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual: float | None = None
    """Bounds the loss of tokens with a negative advantage at this many times its size; above 1."""
    cap: float | None = 2.0
    """The most that the correction for the sampler weighs a token; None: no correction."""
    mask: tuple[float, float] | None = None
    """PARL's mask (arXiv 2602.02276) instead of clipping: tokens whose log ratio is outside have no policy gradient."""
    pull: float = 0.0
    """tau of PARL's tau (log rho)^2."""
    beta: float = 0.0
    """Weight of the divergence from the reference."""
    kl: Literal["k1", "k2", "k3"] = "k3"

    def __post_init__(self) -> None:
        if self.level not in ("token", "geometric", "product"):
            raise InputError(f"no level {self.level!r}", fix="token, geometric or product")
        if self.kl not in ("k1", "k2", "k3"):
            raise InputError(f"no estimator {self.kl!r}", fix="k1, k2 or k3")
        if self.mask is not None and not self.mask[0] < 0 < self.mask[1]:
            raise InputError(f"a mask of log ratios is around 0, not {self.mask}", fix="[-0.5, 0.5]")
        if self.dual is not None and not self.dual > 1:
            raise InputError(f"a dual clip is above 1, not {self.dual}")

    def __call__(
        self,
        logp: Tensor,
        old: Tensor,
        advantages: Tensor,
        weights: Tensor,
        calls: Tensor,
        *,
        sampler: Tensor | None = None,
        reference: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss of flat tokens, and what to report; `calls` numbers each token's call from 0."""
        log_ratio = logp - old
        logs = self._levelled(log_ratio, calls)
        ratio = logs.exp()
        if self.mask is not None:
            clipped = logs.clamp(*self.mask).exp()
            loss = -advantages * clipped
        else:
            clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
            loss = torch.maximum(-advantages * ratio, -advantages * clipped)
        if self.pull:
            loss = loss + self.pull * logs**2
        if self.dual is not None:
            loss = torch.where(advantages < 0, torch.minimum(loss, self.dual * advantages.abs()), loss)
        report = _report(log_ratio.detach(), ratio.detach(), clipped.detach())
        if self.cap is not None and sampler is not None:
            gap = old - sampler
            loss = gap.exp().clamp(max=self.cap) * loss
            report |= {"mismatch": float(gap.abs().mean()), "mismatch_max": float(gap.abs().max())}
        total = (weights * loss).sum()
        if self.beta and reference is not None:
            divergence = divergence_of(logp, reference, self.kl)
            total = total + self.beta * (weights * divergence).sum()
            report["kl_reference"] = float((weights * divergence).sum().detach() / weights.sum())
        return total, report

    def _levelled(self, log_ratio: Tensor, calls: Tensor) -> Tensor:
        """Log ratios of tokens, or of their calls."""
        if self.level == "token":
            return log_ratio.clamp(max=_LOG_MAX)
        count = int(calls.max()) + 1
        total = log_ratio.new_zeros(count).index_add(0, calls, log_ratio)
        if self.level == "geometric":
            total = total / torch.bincount(calls, minlength=count)
        return total.clamp(max=_LOG_MAX)[calls]


def divergence_of(logp: Tensor, reference: Tensor, estimator: str) -> Tensor:
    """Per-token estimates of KL(pi || reference) from samples of pi."""
    d = reference - logp
    return {"k1": lambda: -d, "k2": lambda: d * d / 2, "k3": lambda: torch.expm1(d) - d}[estimator]()


def _report(log_ratio: Tensor, ratio: Tensor, clipped: Tensor) -> dict[str, float]:
    return {"kl_old": float((torch.expm1(log_ratio) - log_ratio).mean()), "clipped": float((ratio != clipped).float().mean())}
