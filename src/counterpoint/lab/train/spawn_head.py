"""The spawn head: natural-gradient logits, shrunk by their standard error, and forks that force the arm nobody takes.

    theta_a += eta z_a,     z_a = shrink(Q_a - V) / sqrt(s^2 + max_a shrink(Q_a - V)^2),     V = sum_a pi_a Q_a
    shrink(x) = x max(0, 1 - se(x)^2 / x^2),     se(Q_a - V)^2 = sum_b (1[a = b] - pi_b)^2 s_b^2 / n_b

Always true: pure functions of arrays, randomness from a generator that is given. A softmax policy's natural gradient is the
advantage itself (Kakade 2002), so a rare arm moves as fast as a common one, once its worth is known; an arm never seen has no
estimate, no share in V, and does not move. The scale s is that of returns at the same prefix class, so units cancel. |z| < 1.

Rows are (bucket or membership, arm, return, propensity): those of the policy and those of forks alike. A fork plays the other
arm at a prefix of the batch, chosen uniformly; it is a rollout and is paid for. So an arm is seen at a prefix with probability
e = pi_a + (1 - pi_a) f / (K - 1), f the share of rows that are forked, and rows weigh 1 / e (balance heuristic, Veach 1997),
normalised within bucket and arm: this matters only where propensities differ inside a bucket.

Prefix classes: a bucket per row, or memberships (N, C) that sum to 1 (`hats` for one number), which interpolate between
classes. docs/lab/research/spawn-credit.md. Departures: returns are remembered with a decay per update, as later decisions change;
the shrinkage is the positive part of James and Stein's for one number; variances are shrunk to their bucket's, and those to the
pooled one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from counterpoint.errors import InputError
from counterpoint.lab.train.policies.features import ROLE
from counterpoint.lab.train.policies.network import Network

# -- Natural gradient of the spawn head, with memory ------------------------------------------------------------------
# Evidence on who should come, and how many, adds up over updates.
#
# y = sum_r [ (go_r - p_r) w . x_r + go_r (s_r - m_r) v . x_r ] + noise   r: roles, p: chance of going, s: log size, m: its mean
#
# Always true: p is the chance under which the arm was drawn, a half where it was forced, so both regressors have mean 0
# whatever the features are, and w . x, v . x estimate the gain of spawning and of a larger team at the prefix: Kakade's
# compatible features, for which the natural gradient of the logit is w itself. Old evidence fades by `memory` per update. A
# step is the estimate times t^2 / (1 + t^2), t its size in standard errors, so that noise moves little; no logit moves by more
# than `most` in an update.

Table = Mapping[str, np.ndarray]
_RIDGE = 0.5


class SpawnGradient:
    """What has been learned of roles so far."""

    def __init__(self, *, memory: float = 0.9) -> None:
        self.memory = memory
        self.square = np.zeros((2 * ROLE, 2 * ROLE))
        self.cross = np.zeros(2 * ROLE)
        self.energy, self.count = 0.0, 0.0

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return dict(vars(self))

    def restore(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        vars(self).update(state)

    def add(self, net: Network, t: Table, advantage: np.ndarray, *, spread: float | None = None) -> None:
        """The evidence of one batch: spawn rows, and the advantage of the decision each belongs to (in points). `spread`: their
        unit, where the batch is too small to have one of its own."""
        with torch.no_grad():
            _, size = net.roles(torch.from_numpy(t["x"]))
        x = t["x"].astype(np.float64)
        go = t["choice"].astype(np.float64)
        chance = np.where(t["forced"], 0.5, np.where(t["choice"], np.exp(t["logp"]), 1 - np.exp(t["logp"])))
        rows = np.concatenate([(go - chance)[:, None] * x, (go * (t["size"] - size.numpy()))[:, None] * x], axis=1)
        which, first = _codes(t)
        phi = np.zeros((len(first), 2 * ROLE))
        np.add.at(phi, which, rows)
        y = advantage[first]
        y = y / max(float(y.std()) if spread is None else spread, 1e-6)
        self.square = self.memory * self.square + phi.T @ phi
        self.cross = self.memory * self.cross + phi.T @ y
        self.energy = self.memory * self.energy + float(y @ y)
        self.count = self.memory * self.count + len(y)

    def estimate(self, x: np.ndarray, part: int) -> tuple[np.ndarray, np.ndarray]:
        """(gain, its standard error) of rows: part 0 of spawning, part 1 of a larger team, in spreads of the return."""
        inverse = np.linalg.inv(self.square + _RIDGE * np.eye(2 * ROLE))
        w = inverse @ self.cross
        noise = max(self.energy - float(w @ self.cross), 1e-6) / max(self.count - 2 * ROLE, 1.0)
        at = slice(part * ROLE, (part + 1) * ROLE)
        gain = x @ w[at]
        return gain, np.sqrt(noise * np.einsum("rf,fg,rg->r", x, inverse[at, at], x)) + 1e-9

    def step(
        self, net: Network, t: Table, room: int, *, left: float = 1.0, eta: float = 1.0, eta_size: float = 0.6, most: float = 0.5,
        cap: float = 2.5,
    ) -> None:  # fmt: skip
        """Move gate and size of the batch's roles along their gains, by `left` of a whole step."""
        x = t["x"].astype(np.float64)
        fit_heads(net, x, *self.targets(net, x, room, left=left, eta=eta, eta_size=eta_size, most=most, cap=cap))

    def targets(
        self, net: Network, x: np.ndarray, room: int, *, left: float = 1.0, eta: float = 1.0, eta_size: float = 0.6,
        most: float = 0.5, cap: float = 2.5, least: float | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Where gate and size of these roles should go; a mean size beyond the room would feel nothing any more."""
        with torch.no_grad():
            gate, size = (v.numpy().astype(np.float64) for v in net.roles(torch.from_numpy(x.astype(np.float32))))
        found: list[np.ndarray] = []
        for part, (old, rate, limit) in enumerate(((gate, eta, most), (size, eta_size, most / 2))):
            gain, error = self.estimate(x, part)
            square = (gain / error) ** 2
            found.append(old + left * np.clip(rate * gain * square / (1 + square), -limit, limit))
        low = -cap if least is None else np.minimum(gate, least)  # the least holds, and pulls nobody back
        return np.clip(found[0], low, cap), np.clip(found[1], 0.0, float(np.log(max(room, 1))))


def fit_heads(net: Network, x: np.ndarray, gate: np.ndarray, size: np.ndarray, weight: np.ndarray | None = None) -> None:
    """Change gate and size by as little as gives these rows their targets; sizes of rows count by their weight."""
    ridge = 1e-3 * len(x) if weight is None else 1e-5 * len(x)
    fit_head(net.gate, x, gate, ridge=ridge)
    fit_head(net.size, x, size, weight, ridge=ridge)


def fit_head(head: torch.nn.Linear, x: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None, *, ridge: float) -> None:
    """The least change of a linear head that gives these rows their targets."""
    full = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    part = full if weight is None else full * weight[:, None]
    with torch.no_grad():
        old = np.concatenate([head.weight.numpy()[0], head.bias.numpy()]).astype(np.float64)
        new = old + np.linalg.solve(part.T @ full + ridge * np.eye(ROLE + 1), part.T @ (target - full @ old))
        head.weight.copy_(torch.tensor(new[None, :-1], dtype=torch.float32))
        head.bias.copy_(torch.tensor(new[-1:], dtype=torch.float32))


def _codes(t: Table) -> tuple[np.ndarray, np.ndarray]:
    """(decision of each row, first row of each decision): the roles of one episode and round are one decision."""
    _, first, which = np.unique(t["ep"] * 100_000 + t["round"], return_index=True, return_inverse=True)
    return which, first


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


def hats(x: ArrayLike, centres: ArrayLike) -> Floats:
    """(N, C) memberships of a number in classes with these centres, linear between two neighbours; constant beyond the ends."""
    at, c = np.asarray(x, np.float64), np.asarray(centres, np.float64)
    if at.ndim != 1 or c.ndim != 1 or not len(c) or (np.diff(c) <= 0).any():
        raise InputError("centres are numbers that grow", fix="such as [2, 4, 8], and one number per row")
    return np.stack([np.interp(at, c, row) for row in np.eye(len(c))], axis=1)


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
        """With the rows of one update: `bucket` (N,) or memberships (N, C); forced rows stand among the others.

        `propensity` is the policy's probability of the arm played, also where it was forced.
        """
        buckets, arms = self.n_CA.shape
        phi = _membership(bucket, buckets)
        a, r = np.asarray(arm, np.int64), np.asarray(returns, np.float64)
        if a.shape != r.shape or a.shape != (len(phi),):
            raise InputError("bucket, arm and returns have one entry per row")
        if len(a) and not (a.min() >= 0 and a.max() < arms):
            raise InputError(f"arms lie outside 0 to {arms - 1}")
        if not np.isfinite(r).all():
            raise InputError("a return is not finite")
        weight = np.ones(len(a)) if propensity is None else _balanced(phi, a, propensity, fork_share, arms)
        w_NC = phi * weight[:, None]
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


def _membership(bucket: ArrayLike, buckets: int) -> Floats:
    given = np.asarray(bucket)
    if given.ndim == 2:
        phi = given.astype(np.float64)
        if phi.shape[1] != buckets or (phi < 0).any() or not np.allclose(phi.sum(axis=1), 1.0):
            raise InputError(f"memberships have shape {phi.shape}", fix=f"(rows, {buckets}), each row summing to 1")
        return phi
    if given.ndim != 1 or given.dtype.kind not in "iu" or (len(given) and not (given.min() >= 0 and given.max() < buckets)):
        raise InputError("buckets are not whole numbers in range", fix=f"0 to {buckets - 1}, one per row")
    return np.asarray(np.eye(buckets)[given])


def _balanced(phi: Floats, arm: NDArray[np.int64], propensity: ArrayLike, fork_share: float, arms: int) -> Floats:
    """1 / e per row, with mean 1 within (nearest bucket, arm)."""
    p = np.asarray(propensity, np.float64)
    if p.shape != arm.shape or not ((p >= 0) & (p <= 1)).all() or not 0 <= fork_share < 1:
        raise InputError("propensities are probabilities, one per row, and fork_share is a share below 1")
    chance = p + (1 - p) * fork_share / (arms - 1)
    if not (chance > 0).all():
        raise InputError("an arm was played that has probability 0", fix="the policy's own probability, or a fork_share above 0")
    code = phi.argmax(axis=1) * arms + arm if len(arm) else arm
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
    """Shrunk advantages of all arms at prefixes (buckets or memberships) under a policy's probabilities."""
    phi = _membership(bucket, len(stats.n_CA))
    pi = np.asarray(policy_NA, np.float64)
    if pi.shape != (len(phi), stats.n_CA.shape[1]) or not np.allclose(pi.sum(axis=1), 1.0):
        raise InputError(f"the policy has shape {pi.shape}", fix=f"({len(phi)}, {stats.n_CA.shape[1]}), each row summing to 1")
    mean, se, scale = stats.moments()
    q, variance = phi @ mean, _mixed(phi**2, se**2)
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
    unit = np.sqrt(_mixed(phi, scale[:, None] ** 2) + (small**2).max(axis=1, keepdims=True))
    z = np.divide(small, unit, out=np.zeros_like(small), where=(unit > 0) & np.isfinite(unit))
    return Advantages(np.where(seen, q, v[:, None]), v, se_a, small, z)


def _mixed(phi: Floats, value: Floats) -> Floats:
    """phi @ value, where nothing times infinity is nothing."""
    finite = np.isfinite(value)
    out = phi @ np.where(finite, value, 0.0)
    return np.asarray(np.where((phi > 0).astype(np.float64) @ (~finite).astype(np.float64) > 0, np.inf, out))


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
    phi = _membership(bucket, len(logits))
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
