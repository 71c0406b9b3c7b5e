"""Returns and advantages along chains of steps: GAE per token, turn or agent, TD(lambda), reward to go.

Always true: a chain is the rows of one segment in their order, and nothing flows between segments. Steps that the policy did
not take (tool output) are skipped: they are no step, carry no reward and get NaN, which is absent and not 0.

    A_t = d_t + gamma lam A_{t+1},  d_t = r_t + gamma V_{t+1} - V_t     (GAE, arXiv 1506.02438; masking rule as in verl)

Every recurrence here is y_t = d_t + k_t y_{t+1}, solved by `scan` in blocks: about four passes over the data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.errors import InputError, NotIdentified

Floats = NDArray[np.float64]
_BLOCK = 32


def scan(d: ArrayLike, k: ArrayLike) -> Floats:
    """y with y_t = d_t + k_t y_{t+1} and y = 0 past the end; a chain ends where k is 0."""
    y, k = np.asarray(d, np.float64), np.asarray(k, np.float64)
    n = len(y)
    if n <= _BLOCK:
        y = y.copy()
        for t in range(n - 2, -1, -1):
            y[t] += k[t] * y[t + 1]
        return y
    y_BM, k_BM = _blocks(y), _blocks(k)
    for t in range(_BLOCK - 2, -1, -1):
        y_BM[t] += k_BM[t] * y_BM[t + 1]
        k_BM[t] *= k_BM[t + 1]
    k_BM *= np.append(scan(y_BM[0], k_BM[0])[1:], 0.0)
    y_BM += k_BM
    return y_BM.T.ravel()[:n]


def _blocks(x: Floats) -> Floats:
    """(place in the block, block), padded with zeros: a step back in all blocks is one row."""
    whole, rest = divmod(len(x), _BLOCK)
    out = np.zeros((_BLOCK, whole + (rest > 0)))
    out[:, :whole] = x[: whole * _BLOCK].reshape(whole, _BLOCK).T
    out[:rest, whole:] = x[whole * _BLOCK :, None]
    return out


def chain_ends(segments: ArrayLike | None, n: int) -> NDArray[np.bool_]:
    """(rows,) whether a row is the last of its segment; the rows of a segment stand together."""
    if segments is None:
        return np.arange(n) == n - 1
    s = np.asarray(segments)
    if s.shape != (n,):
        raise InputError(f"{n} rows need {n} segment numbers")
    ends = np.append(s[1:] != s[:-1], True)[:n]
    if ends.sum() != len(np.unique(s[ends])):
        raise InputError("the rows of a segment do not stand together", fix="sort the rows by segment, stably")
    return ends


def _columns(*columns: ArrayLike) -> list[Floats]:
    out = [np.asarray(c, np.float64) for c in columns]
    if any(c.ndim != 1 or c.shape != out[0].shape or not np.isfinite(c).all() for c in out):
        raise InputError("columns are finite, of one dimension and of one length", fix="one row per step")
    return out


def _next(values: Floats, ends: NDArray[np.bool_], bootstrap: ArrayLike) -> Floats:
    """The value after each step; after the last of a chain, its bootstrap (one number, or one per chain)."""
    out = np.empty(len(values))
    out[:-1] = values[1:]
    out[ends] = bootstrap
    return out


def gae(
    rewards: ArrayLike,
    values: ArrayLike,
    *,
    segments: ArrayLike | None = None,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: ArrayLike = 0.0,
    is_policy: ArrayLike | None = None,
) -> tuple[Floats, Floats]:
    """Advantages and returns (A + V) of every step; NaN where `is_policy` is False."""
    r, v = _columns(rewards, values)
    ends = chain_ends(segments, len(r))
    if is_policy is not None:
        own = np.asarray(is_policy, np.bool_)
        if own.shape != r.shape:
            raise InputError("is_policy has one entry per step")
        if (r[~own] != 0).any():
            raise InputError(
                "a reward stands on a step that the policy did not take", fix="put it on the policy's last step before"
            )
        if np.ndim(bootstrap) and len(np.unique(np.cumsum(ends)[own] - ends[own])) != ends.sum():
            raise NotIdentified("a chain without any step of the policy", "leave that chain out")
        inner = np.arange(len(r)) if segments is None else np.asarray(segments)
        inside = gae(r[own], v[own], segments=None if segments is None else inner[own], gamma=gamma, lam=lam, bootstrap=bootstrap)
        out = np.full((2, len(r)), np.nan)
        out[:, own] = inside
        return out[0], out[1]
    delta = _next(v, ends, bootstrap)
    delta *= gamma
    delta += r
    delta -= v
    advantages = scan(delta, np.where(ends, 0.0, gamma * lam))
    return advantages, advantages + v


def leaving_gae(
    rewards: ArrayLike, values: ArrayLike, leaves: ArrayLike, *, segments: ArrayLike | None = None, lam: float = 0.9
) -> tuple[Floats, Floats]:
    """GAE in which a step may have been forbidden to leave, which is worth 0, and counts as left with the chance p:

    G_k = r_k + (1 - lam) W_{k+1} + lam (1 - p_{k+1}) G_{k+1},  A_k = G_k - W_k;  the return of such a step is (1 - p_k) G_k
    """
    r, w, p = _columns(rewards, values, leaves)
    ends = chain_ends(segments, len(r))
    later, gone = (np.where(ends, 0.0, np.append(column[1:], 0.0)) for column in (w, p))
    adv = scan(r + later - w - lam * gone * later, np.where(ends, 0.0, lam * (1 - gone)))
    return adv, (1 - p) * (adv + w)


def reward_to_go(rewards: ArrayLike, *, segments: ArrayLike | None = None, gamma: float = 1.0) -> Floats:
    """G_t = r_t + gamma G_{t+1}."""
    (r,) = _columns(rewards)
    return scan(r, np.where(chain_ends(segments, len(r)), 0.0, gamma))


def td_targets(rewards: ArrayLike, next_values: ArrayLike, *, gamma: float, done: ArrayLike = 0.0) -> Floats:
    """y = r + gamma (1 - done) V': MADDPG's critic target, Agent Q-Mix' TD target, CoLLM-MAAC's with V' of the next turn."""
    r, v = np.atleast_1d(np.asarray(rewards, np.float64)), np.atleast_1d(np.asarray(next_values, np.float64))
    return r + gamma * (1 - np.asarray(done, np.float64)) * v


def td_lambda(
    rewards: ArrayLike, next_q: ArrayLike, *, gamma: float, lam: float, done: ArrayLike, segments: ArrayLike | None = None
) -> Floats:
    """y_t = r_t + gamma (1 - done_t) [(1 - lam) Q_{t+1} + lam y_{t+1}]; an unfinished chain ends on its last Q (COMA, pymarl)."""
    r, q, d = _columns(rewards, next_q, np.asarray(done, np.float64))
    ends = chain_ends(segments, len(r))
    own = np.where(ends, 1.0, 1 - lam)
    return scan(r + own * gamma * (1 - d) * q, np.where(ends, 0.0, lam * gamma * (1 - d)))
