"""A table of spawn logits: natural-gradient steps, shrunk by their standard error, and forks that force the arm nobody takes.

    theta_a += eta z_a,     z_a = shrink(Q_a - V) / sqrt(s^2 + max_a shrink(Q_a - V)^2),     V = sum_a pi_a Q_a
    shrink(x) = x max(0, 1 - se(x)^2 / x^2),     se(Q_a - V)^2 = sum_b (1[a = b] - pi_b)^2 s_b^2 / n_b

Always true: pure functions of arrays, randomness from a generator that is given. A softmax policy's natural gradient is the
advantage itself (Kakade 2002), so a rare arm moves as fast as a common one, once its worth is known; an arm never seen has no
estimate, no share in V, and does not move. The scale s is that of returns in the same bucket, so units cancel. |z| < 1.

Rows are (bucket, arm, return, propensity): those of the policy and those of forks alike. A fork plays the other arm at a prefix
of the batch, chosen uniformly; it is a rollout and is paid for. So an arm is seen at a prefix with probability
e = pi_a + (1 - pi_a) f / (K - 1), f the share of rows that are forked, and rows weigh 1 / e (balance heuristic, Veach 1997),
normalised within bucket and arm: this matters only where propensities differ inside a bucket.

docs/lab/research/spawn-credit.md. Departures: returns are remembered with a decay per update, as later decisions change; the
shrinkage is the positive part of James and Stein's for one number; variances are shrunk to their bucket's, and those to the
pooled one. The learner's own spawn head has features, not buckets: `train/spawn_head.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.errors import InputError

Floats = NDArray[np.float64]
FORK_SHARE = 0.06
_PRIOR_ROWS = 4.0


def softmax(logits_NA: ArrayLike) -> Floats:
    """Probabilities, row by row."""
    x = np.asarray(logits_NA, np.float64)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def shrink(x: ArrayLike, se: ArrayLike) -> Floats:
    """x max(0, 1 - se^2 / x^2): nothing within one standard error of 0, almost all of x far from it."""
    value, error = np.asarray(x, np.float64), np.asarray(se, np.float64)
    square = value * value
    kept = np.divide(square - error * error, square, out=np.zeros(np.broadcast(value, error).shape), where=square > 0)
    return value * np.maximum(0.0, kept)


@dataclass(frozen=True)
class SpawnStats:
    """What is known of each arm in each prefix class: decayed sums."""

    n_CA: Floats
    """Rows."""
    n2_CA: Floats
    """Squared weights of rows: n^2 / n2 is the effective number."""
    sum_CA: Floats
    square_CA: Floats

    @staticmethod
    def of(buckets: int, arms: int = 2) -> SpawnStats:
        """Nothing seen yet."""
        if buckets < 1 or arms < 2:
            raise InputError(f"{buckets} buckets and {arms} arms", fix="at least 1 and 2")
        return SpawnStats(*(np.zeros((buckets, arms)) for _ in range(4)))

    def updated(
        self,
        bucket: ArrayLike,
        arm: ArrayLike,
        returns: ArrayLike,
        *,
        propensity: ArrayLike | None = None,
        fork_share: float = FORK_SHARE,
        decay: float = 0.99,
    ) -> SpawnStats:
        """With the rows of one update; forced rows stand among the others.

        `propensity` is the policy's probability of the arm played, also where it was forced.
        """
        buckets, arms = self.n_CA.shape
        at = _buckets(bucket, buckets)
        a, r = np.asarray(arm, np.int64), np.asarray(returns, np.float64)
        if a.shape != r.shape or a.shape != at.shape:
            raise InputError("bucket, arm and returns have one entry per row")
        if len(a) and not (a.min() >= 0 and a.max() < arms):
            raise InputError(f"arms lie outside 0 to {arms - 1}")
        if not np.isfinite(r).all():
            raise InputError("a return is not finite")
        weight = np.ones(len(a)) if propensity is None else _balanced(at, a, propensity, fork_share, arms)
        w_NC = np.eye(buckets)[at] * weight[:, None]
        into = np.zeros((len(a), arms))
        into[np.arange(len(a)), a] = 1.0
        return SpawnStats(
            decay * self.n_CA + w_NC.T @ into,
            decay**2 * self.n2_CA + (w_NC**2).T @ into,
            decay * self.sum_CA + (w_NC * r[:, None]).T @ into,
            decay * self.square_CA + (w_NC * (r * r)[:, None]).T @ into,
        )

    def moments(self) -> tuple[Floats, Floats, Floats]:
        """(Q_CA, se_CA, s_C): means, their standard errors (infinite where nothing was seen), the scale of returns by class."""
        seen = self.n_CA > 0
        many = np.divide(self.n_CA**2, self.n2_CA, out=np.zeros_like(self.n_CA), where=self.n2_CA > 0)
        mean = np.divide(self.sum_CA, self.n_CA, out=np.zeros_like(self.n_CA), where=seen)
        spread = np.divide(self.square_CA, self.n_CA, out=np.zeros_like(self.n_CA), where=seen) - mean**2
        spread = np.maximum(spread, 0.0)
        free = np.maximum(many - 1, 0.0)
        total = many * spread  # a sum of squares, in units of effective rows
        pooled = float(total.sum()) / max(float(free.sum()), 1e-12) if free.sum() > 0 else float("inf")
        by_class = _toward(total.sum(axis=1), free.sum(axis=1), np.full(len(free), pooled))
        by_arm = _toward(total, free, by_class[:, None])
        se = np.sqrt(np.divide(by_arm, many, out=np.full_like(many, np.inf), where=many > 0))
        return mean, se, np.sqrt(by_class)


def _toward(total: Floats, free: Floats, prior: Floats) -> Floats:
    """(n s^2 + n0 s0^2) / (n + n0)."""
    return np.asarray((total + _PRIOR_ROWS * prior) / (free + _PRIOR_ROWS))


def _buckets(bucket: ArrayLike, buckets: int) -> NDArray[np.int64]:
    at = np.asarray(bucket)
    if at.ndim != 1 or at.dtype.kind not in "iu" or (len(at) and not (at.min() >= 0 and at.max() < buckets)):
        raise InputError("buckets are not whole numbers in range", fix=f"0 to {buckets - 1}, one per row")
    return at.astype(np.int64)


def _balanced(bucket: NDArray[np.int64], arm: NDArray[np.int64], propensity: ArrayLike, fork_share: float, arms: int) -> Floats:
    """1 / e per row, with mean 1 within (bucket, arm)."""
    p = np.asarray(propensity, np.float64)
    if p.shape != arm.shape or not ((p >= 0) & (p <= 1)).all() or not 0 <= fork_share < 1:
        raise InputError("propensities are probabilities, one per row, and fork_share is a share below 1")
    chance = p + (1 - p) * fork_share / (arms - 1)
    if not (chance > 0).all():
        raise InputError("an arm was played that has probability 0", fix="the policy's own probability, or a fork_share above 0")
    code = bucket * arms + arm
    mean = np.bincount(code, 1 / chance) / np.maximum(1, np.bincount(code))
    return np.asarray(1 / chance / mean[code])


class Advantages(NamedTuple):
    """What the arms are worth at N prefixes."""

    q_NA: Floats
    """Estimated return of each arm; the prefix's V where it was never seen."""
    v_N: Floats
    se_NA: Floats
    """Of Q_a - V; infinite where the arm was never seen."""
    shrunk_NA: Floats
    """shrink(Q_a - V), in the unit of returns."""
    z_NA: Floats
    """The same without a unit, in (-1, 1): the step of the logits, and the advantage for any other policy loss."""


def advantages(stats: SpawnStats, bucket: ArrayLike, policy_NA: ArrayLike) -> Advantages:
    """Shrunk advantages of all arms at prefixes of these buckets, under a policy's probabilities."""
    at = _buckets(bucket, len(stats.n_CA))
    pi = np.asarray(policy_NA, np.float64)
    if pi.shape != (len(at), stats.n_CA.shape[1]) or not np.allclose(pi.sum(axis=1), 1.0):
        raise InputError(f"the policy has shape {pi.shape}", fix=f"({len(at)}, {stats.n_CA.shape[1]}), each row summing to 1")
    mean, se, scale = stats.moments()
    q, variance = mean[at], se[at] ** 2
    seen = np.isfinite(variance)
    share = np.where(seen, pi, 0.0)
    total = share.sum(axis=1, keepdims=True)
    # where the policy has put everything on an arm that was never seen, the arms that were are compared evenly
    share = np.where(total > 0, share / np.where(total > 0, total, 1.0), seen / np.maximum(1, seen.sum(axis=1, keepdims=True)))
    v = (share * np.where(seen, q, 0.0)).sum(axis=1)
    known = np.where(seen, variance, 0.0)
    others = (share**2 * known).sum(axis=1, keepdims=True)
    se_a = np.sqrt(np.where(seen, others + (1 - 2 * share) * known, np.inf))
    small = shrink(np.where(seen, q - v[:, None], 0.0), np.where(seen, se_a, 0.0))
    unit = np.sqrt(scale[at, None] ** 2 + (small**2).max(axis=1, keepdims=True))
    z = np.divide(small, unit, out=np.zeros_like(small), where=(unit > 0) & np.isfinite(unit))
    return Advantages(np.where(seen, q, v[:, None]), v, se_a, small, z)


def target_logits(logits_NA: ArrayLike, found: Advantages, *, eta: float = 0.25, cap: float = 10.0) -> Floats:
    """Where the natural gradient wants these logits: centred, and no arm more than `cap` below the best.

    A table takes them; a network is fitted to them (centre its logits, mean squared difference, or cross-entropy to their
    softmax).
    """
    if not (eta > 0 and cap > 0):
        raise InputError(f"eta is {eta:g} and cap {cap:g}", fix="more than 0")
    theta = np.asarray(logits_NA, np.float64) + eta * found.z_NA
    theta = np.maximum(theta, theta.max(axis=1, keepdims=True) - cap)
    return np.asarray(theta - theta.mean(axis=1, keepdims=True))


def natural_step(logits_CA: ArrayLike, stats: SpawnStats, *, eta: float = 0.25, cap: float = 10.0) -> Floats:
    """One update of a table of logits, one row per bucket."""
    logits = np.asarray(logits_CA, np.float64)
    return target_logits(logits, advantages(stats, np.arange(len(logits)), softmax(logits)), eta=eta, cap=cap)


def reinforce_step(logits_CA: ArrayLike, bucket: ArrayLike, arm: ArrayLike, returns: ArrayLike, *, lr: float = 0.25) -> Floats:
    """The baseline: group-normalised REINFORCE per bucket, theta += lr mean(A (1[a] - pi)). Rows of the policy only, no forks."""
    logits = np.asarray(logits_CA, np.float64)
    phi = np.eye(len(logits))[_buckets(bucket, len(logits))]
    a, r = np.asarray(arm, np.int64), np.asarray(returns, np.float64)
    n = np.maximum(1.0, phi.sum(axis=0))
    gap = r - phi @ (phi.T @ r / n)
    spread = phi @ np.sqrt(phi.T @ gap**2 / n)
    advantage = np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0)
    score = np.eye(logits.shape[1])[a] - phi @ softmax(logits)
    return np.asarray(logits + lr * (phi.T @ (advantage[:, None] * score)) / n[:, None])


def forks(rng: np.random.Generator, arm: ArrayLike, arms: int, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows, forced arms): `number` different rows of the batch, chosen uniformly, each with another arm than it had."""
    a = np.asarray(arm, np.int64)
    if not 0 <= number <= len(a):
        raise InputError(f"{number} forks of {len(a)} rows", fix=f"0 to {len(a)}")
    rows = rng.choice(len(a), number, replace=False)
    return rows, (a[rows] + rng.integers(1, arms, number)) % arms
