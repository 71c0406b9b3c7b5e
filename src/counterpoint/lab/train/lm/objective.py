"""The policy objective of language models: the losses of `train/objectives.py`, weighed by token.

Always true: weights, old log-probabilities, those of the sampler and of the reference carry no gradient.

    L = sum_t w_t [ c_t max(-A_t rho_t, -A_t clip(rho_t, 1 - low, 1 + high)) + beta kl_t ]
    L = sum_t w_t [ -c_t A_t log pi_t + beta kl_t ]                                              without a ratio: REINFORCE
    L = sum_t w_t [ c_t (-A_t exp(clip(log rho_t, mask)) + pull (log rho_t)^2) + beta kl_t ]     with a mask

rho_t is pi / pi_old of the token, or of its call: the geometric mean (GSPO, arXiv 2507.18071; a call is a turn in ReMA,
2503.09501) or the product over its tokens. c_t = min(pi_old / pi_sampler, cap) corrects what the engine that sampled computes
otherwise than the learner (truncated importance sampling). Clip-higher: DAPO 2503.14476; dual clip: 1912.09729.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from counterpoint.errors import InputError
from counterpoint.lab.train.objectives import ESTIMATORS, check_dual, check_kl, clip_loss, kl, mask_loss, unit_means, unit_sums

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What an update minimises."""

    level: Literal["token", "geometric", "product", "none"] = "token"
    """What a ratio is of: a token, or a call by the geometric mean or the product over its tokens; none: no ratio (REINFORCE)."""
    log_max: float = 20.0
    """Log ratios are held at this from above."""
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
    """Its estimator: k2 or k3 where it has a weight; the expected gradient of k1 is 0."""

    def __post_init__(self) -> None:
        if self.level not in ("token", "geometric", "product", "none"):
            raise InputError(f"no level {self.level!r}", fix="token, geometric, product or none")
        if self.level == "none" and (self.mask is not None or self.pull or self.dual is not None):
            raise InputError("without a ratio there is nothing to mask, pull or bound", fix="level = token")
        if self.kl not in ESTIMATORS:
            raise InputError(f"no estimator {self.kl!r}", fix="k1, k2 or k3")
        if self.mask is not None and not self.mask[0] < 0 < self.mask[1]:
            raise InputError(f"a mask of log ratios is around 0, not {self.mask}", fix="[-0.5, 0.5]")
        check_dual(self.dual)
        check_kl(self.kl, "loss", self.beta)

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
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of flat tokens, and means to report; `calls` numbers each token's call from 0."""
        log_ratio = logp - old
        logs = self._by_level(log_ratio, calls)
        if self.level == "none":
            loss = -advantages * logp
        elif self.mask is not None:
            loss = mask_loss(logs, advantages, low=self.mask[0], high=self.mask[1])
        else:
            loss = clip_loss(logs, advantages, low=self.clip_low, high=self.clip_high, dual=self.dual)
        if self.pull:
            loss = loss + self.pull * logs**2
        report = {"kl_old": kl(-log_ratio.detach()).mean(), "clipped": self._share_clipped(logs.detach())}
        if self.cap is not None and sampler is not None:
            gap = old - sampler
            loss = gap.exp().clamp(max=self.cap) * loss
            report |= {"mismatch": gap.abs().mean(), "mismatch_max": gap.abs().max()}
        total = (weights * loss).sum()
        if self.beta and reference is not None:
            divergence = kl(logp - reference, self.kl)
            total = total + self.beta * (weights * divergence).sum()
            report["kl_reference"] = (weights * divergence).sum().detach() / weights.sum()
        return total, report

    def _by_level(self, log_ratio: Tensor, calls: Tensor) -> Tensor:
        """Log ratios of tokens, or of their calls."""
        if self.level in ("token", "none"):
            return log_ratio.clamp(max=self.log_max)
        reduce = unit_means if self.level == "geometric" else unit_sums
        return reduce(log_ratio, calls, int(calls.max()) + 1).clamp(max=self.log_max)[calls]

    def _share_clipped(self, logs: Tensor) -> Tensor:
        """The share of tokens whose ratio is outside."""
        ratio = logs.exp()
        inside = ratio.clamp(1 - self.clip_low, 1 + self.clip_high) if self.mask is None else logs.clamp(*self.mask).exp()
        return (ratio != inside).float().mean()
