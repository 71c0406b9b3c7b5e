"""A language model's score gradient, kept small: some thousand numbers for each parameter group, that keep lengths and angles.

    S g = sum over d of sign(d) g_d e_{bucket(d)}        sign and bucket drawn for every parameter d by a keyed seed, k buckets

    E <S a, S b> = <a, b>,   Var <S a, S b> <= (|a|^2 |b|^2 + <a, b>^2) / k

so that a cosine is off by about sqrt((1 + cos^2) / k): 1.6 to 2.2 points at k = 4,096. It has the moments of as many random
directions of +1 and -1, for one pass over the gradient. Charikar, Chen and Farach-Colton 2002; Weinberger et al. 2009.

Always true: it is linear, so that a mean of sketches is the sketch of the mean; the same seed and names give the same directions
on every device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from counterpoint.lab.train.lm.packing import on_device
from counterpoint.trace.keyed import child_seed, purpose

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from counterpoint.lab.train.lm.learner import CallTokens, LanguageLearner

_GROUPS = {"qkv": "attention", "o": "attention", "gate_up": "feed-forward", "down": "feed-forward", "words": "words"}


def group_of(name: str) -> str:
    """Of a weight: attention, feed-forward, words; norms and biases are the rest."""
    return _GROUPS.get(name.rpartition(".")[2], "rest")


class Sketch:
    """The directions for the weights of one model."""

    def __init__(self, directions: int = 4_096, seed: int = 0) -> None:
        self.directions, self.seed = directions, seed
        self._codes: dict[str, Tensor] = {}

    def _code(self, name: str, gradient: Tensor) -> Tensor:
        """Twice the bucket of each parameter, and one more where its sign is minus."""
        if name not in self._codes:
            drawn = torch.Generator().manual_seed(child_seed(self.seed, purpose(name)) >> 1)
            code = torch.randint(0, 2 * self.directions, (gradient.numel(),), generator=drawn, dtype=torch.int32)
            self._codes[name] = code.to(gradient.device)
        return self._codes[name]

    def of(self, gradients: Mapping[str, Tensor]) -> dict[str, NDArray[np.float64]]:
        """(k,) by parameter group."""
        out: dict[str, Tensor] = {}
        for name, gradient in gradients.items():
            code, flat = self._code(name, gradient), gradient.detach().reshape(-1).float()
            into = out.setdefault(group_of(name), torch.zeros(self.directions, device=flat.device))
            into.index_add_(0, torch.div(code, 2, rounding_mode="floor"), torch.where(code % 2 == 0, flat, -flat))
        return {group: found.double().cpu().numpy() for group, found in out.items()}


def score_sketch(
    learner: LanguageLearner, calls: Sequence[CallTokens], sketch: Sketch, teams: int
) -> dict[str, NDArray[np.float64]]:  # fmt: skip
    """1 / teams x sum over the calls' tokens of A grad log pi, by parameter group: no clip, no scale. Without calls, none."""

    def loss(logp: Tensor, batch: Sequence[int]) -> tuple[Tensor, dict[str, Tensor]]:
        given = np.concatenate([_known(calls[i]) for i in batch]) / teams
        return (on_device(given.astype(np.float32), logp.device) * logp).sum(), {}

    if not calls:
        return {}
    learner._fitting(calls, lambda: learner._gradient(calls, loss))
    found = {name: w.grad for name, w in learner.weights.items() if w.grad is not None}
    out = sketch.of(found)
    learner.optimizer.zero_grad(set_to_none=True)
    return out


def _known(call: CallTokens) -> NDArray[np.float64]:
    assert call.advantages is not None
    return call.advantages
