"""Data that another policy made: V-trace, capped weights, off-policy evaluation, and who finished in time.

Always true: on-policy data (all ratios 1) gives the plain return back; a question about an action that the data never shows
is refused (`NotIdentified`) and not answered with a bound. Weights are computed from log-probabilities, never from rounded
ratios.

V-trace (arXiv 1802.01561): v_s = V_s + sum_t gamma^(t-s) (prod c) d_t, d_t = min(rho_bar, rho_t)(r_t + gamma V_{t+1} - V_t).
TIS and masked IS as in verl; decoupled weights as in AReaL (arXiv 2505.24298). Inclusion weights: a rollout is kept when it
ends within the staleness limit; weighting kept ones by 1 / P(kept | what was known at launch) undoes that choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.credits.advantages import chain_ends, scan
from counterpoint.errors import InputError, NotIdentified

Floats = NDArray[np.float64]


def vtrace(
    rho: ArrayLike,
    rewards: ArrayLike,
    values: ArrayLike,
    *,
    segments: ArrayLike | None = None,
    bootstrap: ArrayLike = 0.0,
    gamma: float = 0.99,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    pg_rho_bar: float = 1.0,
    lam: float = 1.0,
) -> tuple[Floats, Floats]:
    """V-trace targets v_s and policy-gradient advantages min(pg_rho_bar, rho)(r + gamma v_{s+1} - V)."""
    w, r, v = (np.asarray(x, np.float64) for x in (rho, rewards, values))
    if not (w.shape == r.shape == v.shape) or w.ndim != 1:
        raise InputError("rho, rewards and values have one entry per step")
    if not (np.isfinite(w).all() and (w >= 0).all()):
        raise InputError("a ratio of probabilities is finite and at least 0")
    ends = chain_ends(segments, len(r))

    def after(x: Floats) -> Floats:
        out = np.append(x[1:], 0.0)[: len(x)]
        out[ends] = bootstrap
        return out

    delta = np.minimum(rho_bar, w) * (r + gamma * after(v) - v)
    targets = v + scan(delta, np.where(ends, 0.0, gamma * lam * np.minimum(c_bar, w)))
    return targets, np.minimum(pg_rho_bar, w) * (r + gamma * after(targets) - v)


def importance_weights(
    logp: ArrayLike,
    logp_behaviour: ArrayLike,
    *,
    cap: float = 2.0,
    mode: Literal["none", "truncate", "mask"] = "truncate",
    level: Literal["token", "sequence", "geometric"] = "token",
    sequences: ArrayLike | None = None,
    low: float | None = None,
    mean_one: bool = False,
) -> Floats:
    """pi / mu per token, capped at `cap` (TIS) or set to 0 outside [low, cap] (masked IS; low is 1 / cap).

    `level="sequence"` multiplies over the tokens of a sequence, `"geometric"` takes their geometric mean; log ratios are held
    within +-20. `mean_one` divides by the mean weight of the batch.
    """
    log = np.asarray(logp, np.float64) - np.asarray(logp_behaviour, np.float64)
    if not np.isfinite(log).all():
        raise NotIdentified("a log-probability is missing or infinite", "record logp of every token under both policies")
    if level != "token":
        code = np.zeros(len(log), np.int64) if sequences is None else np.unique(np.asarray(sequences), return_inverse=True)[1]
        total: Floats = np.bincount(code, log).astype(np.float64)
        log = (total if level == "sequence" else total / np.bincount(code))[code]
    w = np.exp(np.clip(log, -20, 20))
    if mode == "truncate":
        w = np.minimum(w, cap)
    elif mode == "mask":
        w = np.where((w >= (1 / cap if low is None else low)) & (w <= cap), w, 0.0)
    elif mode != "none":
        raise InputError(f"no mode {mode!r}", fix="none, truncate or mask")
    return w / w.mean() if mean_one and w.any() else w


def decoupled_weights(
    logp: ArrayLike, logp_proximal: ArrayLike, logp_behaviour: ArrayLike, *, cap: float | None = None, mask: bool = True
) -> tuple[Floats, Floats]:
    """AReaL's (pi_prox / pi_behave, pi / pi_prox): the first is a constant weight, the second the ratio that is clipped.

    With a cap, weights above it are set to 0 (`mask`) or to the cap; the loss keeps dividing by all tokens.
    """
    weight = importance_weights(logp_proximal, logp_behaviour, mode="none")
    ratio = importance_weights(logp, logp_proximal, mode="none")
    if cap is not None:
        weight = np.where(weight <= cap, weight, 0.0 if mask else cap)
    return weight, ratio


def effective_size(weights: ArrayLike) -> float:
    """(sum w)^2 / sum w^2; 0 when no weight is left."""
    w = np.asarray(weights, np.float64)
    square = float((w * w).sum())
    return float(w.sum()) ** 2 / square if square else 0.0


def step_scale(weights: ArrayLike, *, least: float = 0.1) -> float:
    """min(1, sqrt(ESS / B)) as the factor of a step; 0 (skip the step) where ESS / B is below `least`."""
    share = effective_size(weights) / max(1, len(np.asarray(weights)))
    return 0.0 if share < least else min(1.0, share**0.5)


class Evaluation(NamedTuple):
    """Off-policy estimates of a policy's value; None where the inputs for it were not given."""

    is_: float
    wis: float
    dm: float | None
    dr: float | None
    ess: float


def evaluate(rho: ArrayLike, returns: ArrayLike, *, q_hat: ArrayLike | None = None, v_hat: ArrayLike | None = None) -> Evaluation:
    """IS mean(w G); WIS sum(w G) / sum(w); DM mean(V); DR mean(V + w (G - Q)); effective sample size."""
    w, g = np.asarray(rho, np.float64), np.asarray(returns, np.float64)
    if w.shape != g.shape or not len(w) or not np.isfinite(w).all() or (w < 0).any():
        raise InputError("rho and returns have one entry per rollout, and a ratio is finite and at least 0")
    if not w.any():
        raise NotIdentified("the policy never does what the data shows: all ratios are 0", "data that covers its actions")
    v = None if v_hat is None else np.asarray(v_hat, np.float64)
    q = None if q_hat is None else np.asarray(q_hat, np.float64)
    dr = None if v is None or q is None else float((v + w * (g - q)).mean())
    dm = None if v is None else float(v.mean())
    return Evaluation(float((w * g).mean()), float((w * g).sum() / w.sum()), dm, dr, effective_size(w))


def inclusion_weights(cells: ArrayLike, arms: ArrayLike, is_kept: ArrayLike, *, clip: float = 10.0) -> Floats:
    """(launches,) 1 / P(kept | launch), at most `clip`, summing to 1 within each arm; 0 for what was not kept.

    P is the share of kept ones among all launches, finished or not, with the same `cells` (a number for everything known at
    launch) and the same arm (the chosen width). An arm, or a cell of an arm, of which nothing was kept is refused: no weight
    can speak for it.
    """
    cell, arm, flags = np.asarray(cells), np.asarray(arms), np.asarray(is_kept, np.bool_)
    if not (cell.shape == arm.shape == flags.shape) or cell.ndim != 1 or not len(cell):
        raise InputError("cells, arms and is_kept have one entry per launch")
    arm_code = np.unique(arm, return_inverse=True)[1]
    cell_code = np.unique(cell, return_inverse=True)[1]
    both = np.unique(arm_code * (int(cell_code.max()) + 1) + cell_code, return_inverse=True)[1]
    share = np.bincount(both, flags) / np.bincount(both)
    if not share.all():
        bare = np.flatnonzero(share == 0)
        names = sorted({str(arm[np.argmax(both == b)]) for b in bare[:100]})
        raise NotIdentified(
            f"P(kept) is 0 for {len(bare)} kinds of launch of arm {', '.join(names)}",
            "a longer staleness limit, fewer launch features, or no comparison of that arm",
        )
    weight = np.where(flags, np.minimum(1 / share[both], clip), 0.0)
    return weight / np.bincount(arm_code, weight)[arm_code]


def inclusion_effect(
    returns: ArrayLike, cells: ArrayLike, arms: ArrayLike, is_kept: ArrayLike, *, clip: float = 10.0
) -> Mapping[float, float]:
    """Arm to its mean return, as if every launch had been kept; returns of launches that were not kept are never read."""
    weight = inclusion_weights(cells, arms, is_kept, clip=clip)
    value = np.where(np.asarray(is_kept, np.bool_), np.asarray(returns, np.float64), 0.0)
    names, code = np.unique(np.asarray(arms), return_inverse=True)
    return dict(zip(names.tolist(), np.bincount(code, weight * value).tolist(), strict=True))
