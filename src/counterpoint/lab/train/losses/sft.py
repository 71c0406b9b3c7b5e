"""Supervised fine-tuning on what was good: decisions whose credit is above a bar become likelier.

    loss = sum over types of  - sum_i w_i log pi(decision_i) / sum_i w_i,      w_i = 1 where credit_i > above, else 0

Always true: what fell below the bar has weight 0 and no gradient; a batch without anything above it changes nothing. What the
bar means is the credit's business: `group_relative` (better than the task's mean), `malt` (right in more than half of the
leaves, above = 0.5), `agreement` (said what the majority said: no outcome is read). With `weigh="credit"` the weight is what
is above the bar.

Filtered imitation as in MALT arXiv 2412.01928, OWL 2505.23885, SiriuS 2502.04780, multi-agent fine-tuning 2501.05707; its root is
reward-weighted regression (Peters and Schaal 2007).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.train.learner import LossRows, finite, log_probs, rows_of
from counterpoint.lab.train.loss import Learner, Loss
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.options import PositiveInt
from counterpoint.trace import Trace

_WEIGHTS = ("same", "credit")
_MAX_NORM = 1.0  # of the gradient


@dataclass(frozen=True)
class Options:
    """What is imitated, and how."""

    above: float = 0.0
    """The bar: decisions with more credit than this are imitated."""
    weigh: str = "same"
    """`same`: all that are above the bar count equally; `credit`: by how far they are above it."""
    steps: PositiveInt = 8
    """On the whole batch, per update."""

    def __post_init__(self) -> None:
        if self.weigh not in _WEIGHTS:
            raise InputError(f"option weigh is {self.weigh!r}", fix=did_you_mean(self.weigh, _WEIGHTS))


def row_weights(rows: Mapping[str, LossRows], above: float, weigh: str = "same") -> dict[str, np.ndarray]:
    """The weight of each row, by decision type; types in which nothing is above the bar are left out."""
    out: dict[str, np.ndarray] = {}
    for name, r in rows.items():
        over = np.maximum(r.advantage - above, 0.0)
        w = over if weigh == "credit" else (over > 0).astype(np.float64)
        if w.any():
            out[name] = w
    return out


def imitation_loss(logp: Mapping[str, Tensor], rows: Mapping[str, LossRows], weights: Mapping[str, np.ndarray]) -> Tensor:
    """The weighted mean of -log pi in each decision type, summed over types."""
    parts = []
    for name, w in weights.items():
        weight = torch.from_numpy(w.astype(np.float32))
        parts.append(-(weight * logp[name][torch.from_numpy(rows[name].at)]).sum() / weight.sum())
    return torch.stack(parts).sum()


def imitate(learner: Learner, out: Rollout, advantages: Mapping[str, np.ndarray], o: Options) -> dict[str, float]:
    """Steps that make what is above the bar likelier; the share of decisions that is."""
    rows = rows_of(out.tables, advantages, scale=False)
    weights = row_weights(rows, o.above, o.weigh)
    share = sum(float((w > 0).sum()) for w in weights.values()) / max(1, sum(r.advantage.size for r in rows.values()))
    if not weights:
        return {"loss": 0.0, "kept": 0.0}
    for _ in range(o.steps):
        loss = imitation_loss(log_probs(learner.net, out.tables)[0], rows, weights)
        learner.policy.zero_grad()
        finite(loss, "imitation").backward()
        torch.nn.utils.clip_grad_norm_(learner.net.policy_parameters(), _MAX_NORM)
        learner.policy.step()
    return {"loss": float(loss.detach()), "kept": share}


def _learn(learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace]) -> dict[str, float]:
    advantages, stats = learner.advantages(out, traces)
    return stats | imitate(learner, out, advantages, o)


sft = Loss(source="filtered imitation: MALT, arXiv 2412.01928; OWL, 2505.23885; SiriuS, 2502.04780", takes=Options, learn=_learn)
