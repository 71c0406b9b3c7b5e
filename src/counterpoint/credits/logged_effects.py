"""The effect of a yes/no decision from many recorded runs, doubly robust, for any kind of decision: spawns, messages, stops.

Always true: a case is one decision of one run, with what was known before it (never what came of it), whether it was taken, and
the run's reward. A propensity is the logged one, or estimated where that was asked for, which the notes then say. What the gate
of `credit.doubly_robust` refuses has no number but a reason. Nothing is forked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from counterpoint.credits import doubly_robust as dr
from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace import Event, Trace

Features = Callable[[Trace, Event], Sequence[float]]
PROPENSITIES = ("logged", "estimate", "auto")


@dataclass(frozen=True)
class Cases:
    """Decisions in columns, one row each."""

    x_ND: np.ndarray
    """What was known before, for the outcome."""
    z_ND: np.ndarray
    """What was known before, for the chance of taking it; the same columns unless somebody says otherwise."""
    taken_N: np.ndarray
    propensity_N: np.ndarray
    """Logged chance of taking it; NaN where it was not logged."""
    reward_N: np.ndarray
    trace_N: np.ndarray
    """The run of each, which is never split between folds."""
    is_rule_N: np.ndarray
    """Whether a deterministic rule decided."""

    def __len__(self) -> int:
        return len(self.taken_N)


class LoggedEffects(NamedTuple):
    """tau of each case with its standard error, or why there is none."""

    tau_N: np.ndarray
    se_N: np.ndarray
    propensity_N: np.ndarray
    """The propensity that was used."""
    reasons: dict[int, str]


def logged_effects(
    cases: Cases,
    *,
    leaf_N: np.ndarray | None = None,
    bandwidth: float | None = None,
    propensity: str = "logged",
    folds: int = 5,
    penalty: float = 1.0,
) -> LoggedEffects:
    """tau at every case: the mean of psi over its leaf, or over a kernel of x; with the gate's reasons."""
    if propensity not in PROPENSITIES:
        raise InputError(f"no propensity {propensity!r}", fix=did_you_mean(propensity, PROPENSITIES))
    n, fold_N = len(cases), dr.folds_of(cases.trace_N, folds)
    tau_N, se_N = np.full(n, np.nan), np.full(n, np.nan)
    e_N = cases.propensity_N.astype(np.float64)
    if propensity == "estimate" or (propensity == "auto" and np.isnan(e_N).any()):
        e_N = dr.propensities(cases.z_ND, cases.taken_N, fold_N, penalty=penalty)
    known = np.flatnonzero(~np.isnan(e_N))
    reasons = {int(j): "no propensity was logged; log logp with every decision" for j in np.flatnonzero(np.isnan(e_N))}
    if not len(known):
        return LoggedEffects(tau_N, se_N, e_N, reasons)
    x, a, r, cluster, rule = (
        column[known] for column in (cases.x_ND, cases.taken_N, cases.reward_N, cases.trace_N, cases.is_rule_N)
    )
    e = e_N[known]
    usable = (np.minimum(e, 1 - e) >= dr.LEAST_PROPENSITY) & ~rule
    m1, m0 = dr.outcome_models(x, a, r, dr.folds_of(cluster, folds), penalty)
    scores = np.where(usable, dr.psi(a, e, r, m1, m0), np.nan)
    if leaf_N is not None:
        number = leaf_N[known]
        # one local mean per leaf is enough: all its cases share it
        names, place = np.unique(number, return_inverse=True)
        by_leaf = dr.local(scores, a, cluster, len(names), lambda q: dr.same_leaf(names[q], number))
        fit = dr.Local(*(column[place] for column in by_leaf))
    else:
        width = bandwidth or len(x) ** (-1 / (x.shape[1] + 4))
        fit = dr.local(scores, a, cluster, len(x), lambda q: dr.kernel(x[q], x, width))
    for j, value, error, why in zip(known.tolist(), fit.tau_Q, fit.se_Q, dr.gate(e, fit, rule), strict=True):
        if why is None:
            tau_N[j], se_N[j] = value, error
        else:
            reasons[j] = f"not identified: {why}"
    return LoggedEffects(tau_N, se_N, e_N, reasons)


# -- What was known before a decision -------------------------------------------------------------------------------------
# Always true: only events before the decision are read, and none of them by its reward but those of drafts and claims.


def prefix_features(trace: Trace, event: Event) -> list[float]:
    """What had happened before a decision: turn, agents spawned, returns, log of events, log of tokens. No hindsight."""
    before = trace.events[: trace.index[event.id]]
    tokens = sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in before)
    spawned, returned = (sum(e.type == kind for e in before) for kind in ("spawn", "return"))
    return [float(event.turn or 0), float(spawned), float(returned), math.log1p(len(before)), math.log1p(tokens)]


def task_features(trace: Trace, event: Event, about: Event | None = None) -> list[float]:
    """`prefix_features`, failures so far, and of the claims on the task that a message is about: how many, and their margin."""
    before, task = trace.events[: trace.index[event.id]], (about or event).task
    claims = [str(e.extra["claim"]) for e in before if e.extra and "claim" in e.extra and (task is None or e.task == task)]
    most = max(Counter(claims).values(), default=0)
    failed = sum(e.ok is False for e in before)
    return [*prefix_features(trace, event), float(failed), float(len(claims)), float(2 * most - len(claims))]


def draft_features(trace: Trace, event: Event) -> list[float]:
    """`prefix_features`, the score of the last draft, and the number of drafts since the scores last rose; 0, 0 before any. The
    score before the first draft is 0, so that a first one that gained nothing is no rise."""
    before = trace.events[: trace.index[event.id]]
    scores = [float(e.reward["draft"]) for e in before if e.type == "aggregate" and e.reward and "draft" in e.reward]
    rises = [i + 1 for i, (was, now) in enumerate(pairwise([0.0, *scores])) if now > was]
    since = len(scores) - max(rises, default=0)
    return [*prefix_features(trace, event), scores[-1] if scores else 0.0, float(since)]
