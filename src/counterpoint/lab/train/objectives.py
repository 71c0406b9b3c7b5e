"""Losses as pure functions of flat arrays: clipped policy losses, token weights, KL, ratios, DPO.

Always true: a loss is minimised; one entry per token (or turn, or sequence) in, one out, and sums or
means are taken by the caller with weights from `token_weights`. Nothing here reads a file, a clock or a model. Ratios are
computed from log-probabilities. These are values, not gradients: a trainer writes the same line in its own array library and
tests it against this.

Sources: PPO arXiv 1707.06347, dual clip 1912.09729, clip-higher (DAPO) 2503.14476, GSPO 2507.18071, AReaL 2505.24298, ReMA
2503.09501, DPO 2305.18290; verl's and OpenRLHF's code.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.errors import InputError

Floats = NDArray[np.float64]


def _one_shape(**columns: ArrayLike) -> list[Floats]:
    arrays = [np.asarray(c, np.float64) for c in columns.values()]
    try:
        return list(np.broadcast_arrays(*arrays))
    except ValueError as error:
        shapes = ", ".join(f"{n} {a.shape}" for n, a in zip(columns, arrays, strict=True))
        raise InputError(f"shapes do not fit: {shapes}") from error


def clip_loss(
    ratio: ArrayLike,
    advantages: ArrayLike,
    *,
    eps_low: float = 0.2,
    eps_high: float | None = None,
    dual: float | None = None,
    dual_both_signs: bool = False,
) -> Floats:
    """max(-A rho, -A clip(rho, 1 - eps_low, 1 + eps_high)); `eps_high` is eps_low unless given (clip-higher).

    `dual` = c > 1 bounds the loss by -A c where A < 0 (verl), or by c |A| for either sign (`dual_both_signs`, AReaL).
    """
    if dual is not None and not dual > 1:
        raise InputError(f"a dual clip is above 1, not {dual}")
    rho, a = _one_shape(ratio=ratio, advantages=advantages)
    loss = np.maximum(-a * rho, -a * np.clip(rho, 1 - eps_low, 1 + (eps_low if eps_high is None else eps_high)))
    if dual is None:
        return loss
    bound = np.minimum(loss, dual * np.abs(a))
    return bound if dual_both_signs else np.where(a < 0, bound, loss)


def token_weights(
    lengths: ArrayLike,
    scheme: Literal["seq_mean_token_mean", "token_mean", "constant", "agent_mean", "rollout_mean"] = "token_mean",
    *,
    constant: float | None = None,
    rollouts: ArrayLike | None = None,
) -> Floats:
    """(sequences,) the weight of ONE token of each sequence; the loss is the weighted sum over tokens.

    seq_mean_token_mean: mean in a sequence, then over sequences (GRPO). token_mean: over all tokens (verl, DAPO). constant: sum
    over a constant, then mean over sequences (Dr. GRPO). agent_mean: a sequence is an agent of `rollouts`; equal weight to
    rollouts, then agents, then tokens (WideSeek-R1). rollout_mean: 1 / (tokens of the rollout x sequences) (Agent Lightning).
    """
    n = np.asarray(lengths, np.float64)
    if n.ndim != 1 or not len(n) or (n <= 0).any():
        raise InputError("lengths are above 0, one per sequence", fix="leave out sequences without tokens")
    if scheme == "seq_mean_token_mean":
        return 1 / (n * len(n))
    if scheme == "token_mean":
        return np.full(len(n), 1 / n.sum())
    if scheme == "constant":
        if constant is None or not constant > 0:
            raise InputError("scheme 'constant' needs a constant above 0", fix="the longest generation allowed")
        return np.full(len(n), 1 / (constant * len(n)))
    if scheme not in ("agent_mean", "rollout_mean") or rollouts is None:
        known = "seq_mean_token_mean, token_mean, constant, agent_mean or rollout_mean; the last two need rollouts"
        raise InputError(f"no weights for scheme {scheme!r}", fix=known)
    code = np.unique(np.asarray(rollouts), return_inverse=True)[1]
    if scheme == "rollout_mean":
        return 1 / (np.bincount(code, n)[code] * len(n))
    return 1 / (n * np.bincount(code)[code] * (code.max() + 1))


def kl(logp: ArrayLike, logp_ref: ArrayLike, *, estimator: Literal["k1", "k2", "k3"] = "k3") -> Floats:
    """Per-token estimates of KL(pi || ref), samples of pi: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1, d = log ref - log pi."""
    p, ref = _one_shape(logp=logp, logp_ref=logp_ref)
    d = ref - p
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d * d / 2
    if estimator != "k3":
        raise InputError(f"no estimator {estimator!r}", fix="k1, k2 or k3")
    return np.expm1(d) - d


def ratios(
    log_ratio: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    level: Literal["token", "geometric", "product"] = "token",
    log_max: float = 20.0,
) -> Floats:
    """pi / pi_old per token, or one per group (turn or sequence): geometric mean over its tokens (GSPO, ReMA) or product.

    Groups come out in the order of their numbers. The log is held at `log_max` from above.
    """
    d = np.asarray(log_ratio, np.float64)
    if level == "token":
        return np.exp(np.minimum(d, log_max))
    if level not in ("geometric", "product"):
        raise InputError(f"no level {level!r}", fix="token, geometric or product")
    code = np.zeros(len(d), np.int64) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    total = np.bincount(code, d)
    return np.exp(np.minimum(total / np.bincount(code) if level == "geometric" else total, log_max))


def turn_loss(
    log_ratio: ArrayLike,
    turns: ArrayLike,
    advantage: ArrayLike,
    *,
    eps: float = 0.2,
    dual: float | None = 3.0,
    log_max: float = 3.0,
) -> tuple[Floats, float]:
    """ReMA: the clipped loss of each turn's geometric-mean ratio, and their mean over the trajectory."""
    losses = clip_loss(ratios(log_ratio, turns, level="geometric", log_max=log_max), advantage, eps_low=eps, dual=dual)
    return losses, float(losses.mean())


def dpo(logp_w: ArrayLike, logp_w_ref: ArrayLike, logp_l: ArrayLike, logp_l_ref: ArrayLike, *, beta: float = 0.1) -> Floats:
    """-log sigmoid(beta [(log pi/ref)(preferred) - (log pi/ref)(rejected)])."""
    w, wr, lose, lr = _one_shape(logp_w=logp_w, logp_w_ref=logp_w_ref, logp_l=logp_l, logp_l_ref=logp_l_ref)
    return np.logaddexp(0.0, -beta * ((w - wr) - (lose - lr)))
