"""Doubly robust effect of a yes/no decision from logged data, with a gate that refuses where the log cannot answer. Arrays only.

    psi = m1(x) - m0(x) + a (R - m1(x)) / e - (1 - a) (R - m0(x)) / (1 - e)
    tau(q) = sum_i w_qi psi_i / sum_i w_qi            w: same leaf, or a kernel of the distance in x
    se(q)^2 = n / (n - 1) sum_c (sum_{i in c} w_qi (psi_i - tau(q)))^2 / (sum_i w_qi)^2      c: traces, n their effective number

Always true: m1 and m0 are ridge regressions fitted on the other folds, and clusters are never split between folds. With the
logged propensity e, E[psi | x] = tau(x) for any m1, m0, where 0 < e < 1; with an estimated one (`propensities`) that holds
where either e or (m1, m0) is right, up to what e is off by where it is learned from few runs. Cases outside the gate's
propensities have weight 0: nothing is learned where one arm never occurs.

The gate answers only if the logged propensity of both arms is at least 0.02, the local effective sample size (sum w)^2 / sum w^2
of each arm at least 20, and no deterministic rule decided. Robins, Rotnitzky, Zhao 1994; cross-fitting: arXiv 1608.00060;
docs/lab/research/spawn-credit.md. Departure: refusals are answers, with a reason and what would fix it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from counterpoint.errors import InputError

# -- Ridge regression on flat arrays, and what it predicts ------------------------------------------------------------
#     z = (x - mean) / sd      beta = (Z'Z + lambda I)^-1 Z'(y - mean y)      f(x) = mean y + z beta
#
# Always true: the intercept is not shrunk, so that a regression on nothing predicts the mean; a column without spread has
# weight 0.


@dataclass(frozen=True)
class Ridge:
    """A fitted ridge regression."""

    mean_D: np.ndarray
    scale_D: np.ndarray
    beta_D: np.ndarray
    intercept: float

    def __call__(self, x_ND: np.ndarray) -> np.ndarray:
        """(N,) predictions."""
        x_ND = np.asarray(x_ND, np.float64)
        if x_ND.ndim != 2 or x_ND.shape[1] != len(self.beta_D):
            raise InputError(f"features of shape {x_ND.shape}", fix=f"one row per case, {len(self.beta_D)} columns")
        return self.intercept + (x_ND - self.mean_D) / self.scale_D @ self.beta_D


def ridge(x_ND: np.ndarray, y_N: np.ndarray, penalty: float = 1.0) -> Ridge:
    """The ridge regression of y on x."""
    x_ND, y_N = np.asarray(x_ND, np.float64), np.asarray(y_N, np.float64)
    if x_ND.ndim != 2 or len(x_ND) != len(y_N) or not len(y_N):
        raise InputError(f"{x_ND.shape} features for {len(y_N)} outcomes", fix="one row per outcome, at least one")
    if not penalty >= 0:
        raise InputError(f"penalty is {penalty}", fix="0 or more")
    mean_D, sd_D = x_ND.mean(axis=0), x_ND.std(axis=0)
    scale_D = np.where(sd_D > 1e-12, sd_D, 1.0)
    z_ND = np.where(sd_D > 1e-12, (x_ND - mean_D) / scale_D, 0.0)
    centre = float(y_N.mean())
    gram = z_ND.T @ z_ND + max(penalty, 1e-9) * np.eye(x_ND.shape[1])
    beta_D = np.where(sd_D > 1e-12, np.linalg.solve(gram, z_ND.T @ (y_N - centre)), 0.0)
    return Ridge(mean_D, scale_D, beta_D, centre)


def logistic(x_ND: np.ndarray, a_N: np.ndarray, *, penalty: float = 1.0) -> Callable[[np.ndarray], np.ndarray]:
    """The ridge-penalised logistic regression of yes/no on x, by Newton's method: features to the chance of a yes.

    The intercept is not shrunk, so that a regression on nothing predicts the share of yes. One arm alone is predicted as such.
    """
    x_ND, a_N = np.asarray(x_ND, np.float64), np.asarray(a_N, np.float64)
    if x_ND.ndim != 2 or len(x_ND) != len(a_N) or not len(a_N):
        raise InputError(f"{x_ND.shape} features for {len(a_N)} decisions", fix="one row per decision, at least one")
    mean_D, sd_D = x_ND.mean(axis=0), x_ND.std(axis=0)
    scale_D = np.where(sd_D > 1e-12, sd_D, np.inf)  # a column without spread says nothing
    z = np.column_stack([np.ones(len(x_ND)), (x_ND - mean_D) / scale_D])
    shrink = np.diag([1e-9, *[max(penalty, 1e-9)] * x_ND.shape[1]])
    beta = np.zeros(z.shape[1])
    share = np.clip(a_N.mean(), 1e-6, 1 - 1e-6)
    beta[0] = np.log(share / (1 - share))
    for _ in range(_NEWTON):
        chance = 1 / (1 + np.exp(-np.clip(z @ beta, -30, 30)))
        weight = np.maximum(chance * (1 - chance), 1e-9)
        step = np.linalg.solve((z * weight[:, None]).T @ z + shrink, z.T @ (a_N - chance) - shrink @ beta)
        beta += np.clip(step, -4, 4)
        if np.abs(step).max() < 1e-10:
            break

    def predict(x_ND: np.ndarray) -> np.ndarray:
        rows = np.column_stack([np.ones(len(x_ND)), (np.asarray(x_ND, np.float64) - mean_D) / scale_D])
        return 1 / (1 + np.exp(-np.clip(rows @ beta, -30, 30)))

    return predict


_NEWTON = 50
_STEPS = 8
LEAST_PROPENSITY = 0.02
LEAST_ESS = 20.0
_BLOCK = 512


class Local(NamedTuple):
    """Local averages at Q places."""

    tau_Q: np.ndarray
    se_Q: np.ndarray
    ess_taken_Q: np.ndarray
    ess_passed_Q: np.ndarray


def psi(a_N: np.ndarray, e_N: np.ndarray, r_N: np.ndarray, m1_N: np.ndarray, m0_N: np.ndarray) -> np.ndarray:
    """The doubly robust score of each case; NaN where a propensity of the arm taken is 0."""
    a_N, e_N = np.asarray(a_N, np.bool_), np.asarray(e_N, np.float64)
    if ((e_N < 0) | (e_N > 1)).any():
        raise InputError("a propensity lies outside 0 to 1", fix="exp(logp) of the decision")
    chance = np.where(a_N, e_N, 1 - e_N)
    gap = np.where(a_N, r_N - m1_N, m0_N - r_N)
    return m1_N - m0_N + np.divide(gap, chance, out=np.full(len(gap), np.nan), where=chance > 0)


def folds_of(cluster_N: np.ndarray, folds: int) -> np.ndarray:
    """(N,) the fold of each case: clusters in turn, in the order of their numbers."""
    _, number = np.unique(cluster_N, return_inverse=True)
    return number % folds


def outcome_models(
    x_ND: np.ndarray, a_N: np.ndarray, r_N: np.ndarray, fold_N: np.ndarray, penalty: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """(m1, m0) of each case, from ridge regressions on the cases of its arm in the other folds.

    Where the other folds lack an arm, the model is their mean outcome; the gate refuses there anyway.
    """
    a_N = np.asarray(a_N, np.bool_)
    out = np.full((2, len(r_N)), float(np.mean(r_N)))
    for fold in np.unique(fold_N):
        here = fold_N == fold
        for arm, row in ((True, 0), (False, 1)):
            there = ~here & (a_N == arm)
            if there.any():
                out[row, here] = ridge(x_ND[there], r_N[there], penalty)(x_ND[here])
            elif (~here).any():
                out[row, here] = r_N[~here].mean()
    return out[0], out[1]


def propensities(z_ND: np.ndarray, a_N: np.ndarray, fold_N: np.ndarray, *, penalty: float = 1.0) -> np.ndarray:
    """(N,) an estimated chance of the first arm, from a logistic regression on the other folds: of all of z, or, since what
    decides is often a table that no line fits, of the steps of one of its columns; whichever has the smallest log loss on cases
    that it was not fitted on (a discrete super learner: van der Laan, Polley, Hubbard 2007)."""
    z_ND, a_N = np.asarray(z_ND, np.float64), np.asarray(a_N, np.bool_)
    steps = (with_steps(z_ND[:, d : d + 1])(z_ND[:, d : d + 1]) for d in range(z_ND.shape[1]))
    tried = [_out_of_fold(x_ND, a_N, fold_N, penalty) for x_ND in (z_ND, *steps)]
    return min(tried, key=lambda e_N: -float(np.log(np.clip(np.where(a_N, e_N, 1 - e_N), 1e-6, 1)).sum()))


def _out_of_fold(x_ND: np.ndarray, a_N: np.ndarray, fold_N: np.ndarray, penalty: float) -> np.ndarray:
    """(N,) chances by regressions on the other folds; the share of yes where there are none."""
    out = np.full(len(a_N), float(np.mean(a_N)))
    for fold in np.unique(fold_N):
        here = fold_N == fold
        if (~here).any():
            out[here] = logistic(x_ND[~here], a_N[~here], penalty=penalty)(x_ND[here])
    return out


def with_steps(z_ND: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Features with an indicator beside them for every step 1[z_d > c]: c between neighbouring values of a column where there are
    few, else at its quantiles. Any table of one column's few values is linear in these."""
    cuts: list[tuple[int, float]] = []
    for d in range(z_ND.shape[1]):
        values = np.unique(z_ND[:, d])
        if len(values) > _STEPS + 1:
            values = np.unique(np.quantile(z_ND[:, d], np.linspace(0, 1, _STEPS + 2), method="nearest"))
        cuts += [(d, float(c)) for c in (values[1:] + values[:-1]) / 2]

    def wide(z_ND: np.ndarray) -> np.ndarray:
        z_ND = np.asarray(z_ND, np.float64)
        return np.column_stack([z_ND, *(z_ND[:, d] > c for d, c in cuts)])

    return wide


def same_leaf(leaf_Q: np.ndarray, leaf_N: np.ndarray) -> np.ndarray:
    """(Q, N) weight 1 in the same leaf, 0 elsewhere."""
    return (np.asarray(leaf_Q)[:, None] == np.asarray(leaf_N)[None]).astype(np.float64)


def kernel(x_QD: np.ndarray, x_ND: np.ndarray, bandwidth: float) -> np.ndarray:
    """(Q, N) Gaussian weights of the distance, each column in units of its standard deviation over N; 0 beyond 3 bandwidths."""
    if not bandwidth > 0:
        raise InputError(f"bandwidth is {bandwidth}", fix="more than 0, in standard deviations of the features")
    sd = x_ND.std(axis=0)
    scale = np.where(sd > 1e-12, sd, 1.0) * bandwidth
    z_QD, z_ND = (x_QD - x_ND.mean(axis=0)) / scale, (x_ND - x_ND.mean(axis=0)) / scale
    square = np.maximum(0.0, (z_QD**2).sum(axis=1)[:, None] + (z_ND**2).sum(axis=1)[None] - 2 * z_QD @ z_ND.T)
    return np.where(square <= 9, np.exp(-square / 2), 0.0)


def local(
    psi_N: np.ndarray, a_N: np.ndarray, cluster_N: np.ndarray, places: int, weights: Callable[[slice], np.ndarray]
) -> Local:
    """Local averages of psi with cluster-robust standard errors, and the effective sample size of each arm.

    `weights` gives the rows of the (places, N) weights, a block at a time. Cases whose psi is NaN have none.
    """
    a_N, has_N = np.asarray(a_N, np.bool_), np.isfinite(psi_N)
    use_N = np.where(has_N, psi_N, 0.0)
    _, number = np.unique(cluster_N, return_inverse=True)
    rows = [slice(i, min(i + _BLOCK, places)) for i in range(0, places, _BLOCK)]
    blocks = [_local(use_N, a_N, number, np.where(has_N, weights(block), 0.0)) for block in rows]
    return Local(*(np.concatenate([b[j] for b in blocks]) if blocks else np.zeros(0) for j in range(4)))


def _local(psi_N: np.ndarray, a_N: np.ndarray, number_N: np.ndarray, w_QN: np.ndarray) -> Local:
    total = w_QN.sum(axis=1)
    share = np.divide(w_QN, total[:, None], out=np.zeros_like(w_QN), where=total[:, None] > 0)
    tau = np.where(total > 0, share @ psi_N, np.nan)
    clusters = int(number_N.max(initial=-1)) + 1
    order = np.argsort(number_N, kind="stable")
    starts = np.searchsorted(number_N[order], np.arange(clusters))
    gap = share * (psi_N[None] - np.nan_to_num(tau)[:, None])
    by_cluster = np.add.reduceat(gap[:, order], starts, axis=1)
    n = 1 / np.maximum((np.add.reduceat(share[:, order], starts, axis=1) ** 2).sum(axis=1), 1e-300)
    few = (n < 1 + 1e-9) | (total <= 0)
    se = np.sqrt((by_cluster**2).sum(axis=1) * np.where(few, np.nan, n) / np.where(few, 1.0, n - 1))
    return Local(tau, se, _ess(w_QN[:, a_N]), _ess(w_QN[:, ~a_N]))


def _ess(w_QN: np.ndarray) -> np.ndarray:
    """(sum w)^2 / sum w^2, 0 where there is no weight."""
    square = (w_QN**2).sum(axis=1)
    return np.divide(w_QN.sum(axis=1) ** 2, square, out=np.zeros(len(w_QN)), where=square > 0)


def gate(
    e_Q: np.ndarray,
    fit: Local,
    is_rule_Q: np.ndarray,
    *,
    least_propensity: float = LEAST_PROPENSITY,
    least_ess: float = LEAST_ESS,
) -> list[str | None]:
    """Why each place gets no answer; None where it gets one."""
    out: list[str | None] = []
    for e, treated, passed, rule in zip(e_Q, fit.ess_taken_Q, fit.ess_passed_Q, is_rule_Q, strict=True):
        if rule:
            out.append("a deterministic rule decided here, so the other arm never occurs")
        elif not min(e, 1 - e) >= least_propensity:
            out.append(f"the logged propensity is {e:.3g}; both arms need {least_propensity:g}")
        elif not min(treated, passed) >= least_ess:
            out.append(f"effective sample sizes are {treated:.1f} and {passed:.1f}; both arms need {least_ess:g}")
        else:
            out.append(None)
    return out
