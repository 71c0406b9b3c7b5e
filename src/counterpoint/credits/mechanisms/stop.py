"""Credit for stopping and for going on: what stopping here pays against what going on would bring.

    delta_t = Y_t - C_t      A(stop) = (1 - p_t) delta_t      A(continue) = -p_t delta_t        p_t: logged chance of stopping

Y_t is what stopping at checkpoint t pays (`reward["draft"]` of the last aggregate before it). C_t, the worth of going on:

    drafts, forced continuation:   C_t = U_{t+1},  U_t = p_t Y_t + (1 - p_t) U_{t+1},  U_H = Y_H     (all stop times, no sampling)
                                   H: the last checkpoint, or the draft that was left when the rounds ran out
    drafts, the team stopped:      C_t = R for decisions to go on; the stop itself is not identified
    forks:                         E[R | forced to continue], against E[R | forced to stop], k replicates
    doubly_robust:                 delta(x) = E[R | x, stop] - E[R | x, go on] from many runs, without drafts or forks:
                                   the local mean of psi (`credit.doubly_robust`), with its standard error and its gate

Always true: A has mean 0 under p, and U_t = V before the decision, so A(stop) = Y_t - V, the skill of the Doob ledger
(docs/lab/research/stopping.md). With `value` (a critic of the prefix) the skill is Y_t - V, or C_t - V, and no propensity is
needed. Hindsight-best labels are not used: they know the future. A decision with one option has no credit. Rows: unit
orchestrator, the event's id.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from counterpoint.credits.forks import Contrast, added, effects, needed, two_arms
from counterpoint.credits.logged_effects import Cases, Features, draft_features, logged_effects
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.own_scores import beside_drafts, unused
from counterpoint.credits.shared_options import (
    FEATURES,
    PROPENSITY_FEATURES,
    SEED,
    VALUE,
    Bandwidth,
    Coupled,
    Folds,
    LeafOf,
    Penalty,
    Propensity,
    ReplayOf,
    Replicates,
)
from counterpoint.errors import InputError, NotIdentified, did_you_mean
from counterpoint.options import Channel
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.replay import Force, Replay
from counterpoint.trace.rows import Cost, Credit, CreditRow
from counterpoint.trace.team import story

Value = Callable[[Trace, Event], float]
_ESTIMAND = "(1 - p)(Y - C) for a stop, -p (Y - C) for going on; Y: payoff of stopping here, C: worth of going on"
_ESTIMATORS = ("drafts", "forks", "doubly_robust")


_LOG_FIX = "estimator='forks' with a replay, or more runs, answers here"


class Checkpoint(NamedTuple):
    """One decision whether to stop."""

    event: Event
    is_stop: bool
    is_executed: bool
    """False for a stop that was logged while the team was made to go on."""
    chance: float | None
    """Logged chance of stopping; None where it is not known."""
    payoff: float | None
    """Y_t: the score of the draft at hand, None before any was scored."""


def all_stops(payoff_T: np.ndarray, chance_T: np.ndarray) -> np.ndarray:
    """(T,) U_t = p_t Y_t + (1 - p_t) U_{t+1}, with U = Y at the last checkpoint."""
    payoff_T, chance_T = np.asarray(payoff_T, np.float64), np.asarray(chance_T, np.float64)
    if payoff_T.shape != chance_T.shape:
        raise InputError(f"{len(payoff_T)} payoffs and {len(chance_T)} chances", fix="one of each per checkpoint")
    out = payoff_T.copy()
    for t in range(len(out) - 2, -1, -1):
        out[t] = chance_T[t] * payoff_T[t] + (1 - chance_T[t]) * out[t + 1]
    return out


def checkpoints(trace: Trace) -> list[Checkpoint]:
    """The stop decisions of a trace in the story's order, each with the payoff of the draft before it."""
    out: list[Checkpoint] = []
    payoff: float | None = None
    for i in story(trace).tolist():
        e = trace.events[i]
        if e.type == "aggregate" and e.reward and "draft" in e.reward:
            payoff = float(e.reward["draft"])
        elif _offers_stop(e):
            is_stop = e.decision == "stop"
            chance = None
            if e.logp is not None:
                chance_taken = min(1.0, math.exp(e.logp))
                chance = chance_taken if is_stop else 1 - chance_taken
            elif e.options == ["stop"]:
                chance = 1.0
            out.append(Checkpoint(e, is_stop, (e.extra or {}).get("executed") != "continue", chance, payoff))
    return out


def _offers_stop(e: Event) -> bool:
    if e.type != "orchestrator_decision":
        return False
    about = (e.extra or {}).get("sub_decision")
    return (
        about == "stop" if about is not None else e.decision == "stop" or (e.decision == "noop" and "stop" in (e.options or ()))
    )


Rows = tuple[list[CreditRow], dict[tuple[int, str], str], Cost]


def _by_drafts(i: int, trace: Trace, channel: str, value: Value | None) -> Rows:
    points = checkpoints(trace)
    scored = [p for p in points if p.payoff is not None]
    silent = {(i, p.event.id): "not identified: no draft was scored before it" for p in points if p.payoff is None}
    stopped = [p for p in scored[:-1] if p.is_stop and p.is_executed]
    if not scored or stopped:
        why = "a team continues after it stopped" if scored else "no draft is scored"
        raise NotIdentified(why, 'reward={"draft": ...} on the aggregate of every checkpoint', where=trace.trace_id)
    last, is_forced = scored[-1], _is_forced(trace, scored)
    if is_forced and all(p.chance is not None for p in scored[:-1]):
        payoffs, chances = [p.payoff for p in scored], [p.chance or 0.0 for p in scored]
        end = _draft_at_the_end(trace, scored[-1].event)
        if end is not None and last.chance is not None:  # the episode ran out of rounds: one more payoff, and no choice left
            payoffs, chances = [*payoffs, end], [*chances, 1.0]
        u = all_stops(np.array(payoffs), np.array(chances))
        going_on = [*u[1:].tolist(), None][: len(scored)]
    elif is_forced and value is None:
        raise NotIdentified(
            "a stop decision has no propensity", "log logp with every decision, or give value=", where=trace.trace_id
        )
    elif is_forced:
        going_on = [*(float(value(trace, p.event)) if value else 0.0 for p in scored[1:]), None]
    else:
        r = beside_drafts(trace, channel)
        going_on = [None if p is last and p.is_stop else r for p in scored]
    rows = []
    for p, c in zip(scored, going_on, strict=True):
        amount = _amount(trace, p, c, value)
        if isinstance(amount, str):
            if len(p.event.options or ("stop", "continue")) > 1:
                silent[i, p.event.id] = amount
        else:
            rows.append(CreditRow(i, "orchestrator", p.event.id, amount))
    return rows, silent, Cost()


def _draft_at_the_end(trace: Trace, last: Event) -> float | None:
    """The score of a draft that was made after the last decision; None where there is none."""
    order = [trace.events[i] for i in story(trace).tolist()]
    after = order[next(i for i, e in enumerate(order) if e.id == last.id) + 1 :]
    drafts = [e.reward["draft"] for e in after if e.type == "aggregate" and e.reward and "draft" in e.reward]
    return float(drafts[-1]) if drafts else None


def _is_forced(trace: Trace, scored: Sequence[Checkpoint]) -> bool:
    """Forced continuation: the trace says so, or the last decision had no alternative, or stops were logged and not executed."""
    flag = trace.meta.get("forced")
    if flag is not None:
        return bool(flag)
    return scored[-1].event.options == ["stop"] or any(p.is_stop and not p.is_executed for p in scored)


def _amount(trace: Trace, p: Checkpoint, going_on: float | None, value: Value | None) -> float | str:
    """The credit of one decision, or why it has none."""
    payoff = p.payoff or 0.0
    if value is not None:
        worth = payoff if p.is_stop else going_on
        return "not identified: what going on brings is not known" if worth is None else worth - float(value(trace, p.event))
    if going_on is None:
        return "not identified: the team stopped here; record with forced continuation, or estimator='forks' with a replay"
    if p.chance is None:
        return "not identified: no propensity was logged; log logp with every decision, or give value="
    return two_arms(payoff - going_on, p.chance, is_taken=p.is_stop)


def _by_forks(i: int, trace: Trace, replay: Replay | None, k: int, seed: int, coupled: bool, channel: str) -> Rows:
    replay = needed(replay, "stop by forks")
    points = [p for p in checkpoints(trace) if len(p.event.options or ("stop", "continue")) > 1]
    reached = next((n for n, p in enumerate(points) if p.is_stop), len(points))
    silent = {(i, p.event.id): "not identified: the policy had stopped before it" for p in points[reached + 1 :]}
    points = points[: reached + 1]
    asked = [
        Contrast(p.event.id, None if p.is_stop else Force({"stop": True}), Force({"stop": False}) if p.is_stop else None)
        for p in points
    ]
    forked = effects(replay, trace, asked, k=k, seed=seed, coupled=coupled, channel=channel)
    rows = []
    for u, p in enumerate(points):
        if u in forked.refused:
            silent[i, p.event.id] = forked.refused[u]
        elif p.chance is None:
            silent[i, p.event.id] = "not identified: no propensity was logged; log logp with every decision"
        else:
            share = two_arms(1.0, p.chance, is_taken=p.is_stop)
            se = None if k == 1 else abs(share) * float(forked.se_U[u])
            rows.append(CreditRow(i, "orchestrator", p.event.id, share * float(forked.effect_U[u]), se))
    return rows, silent, forked.cost


def _by_log(
    traces: Sequence[Trace],
    channel: str,
    features: Features,
    propensity_features: Features | None,
    leaf: Callable[[Trace, Event], Hashable] | None,
    **options: Any,
) -> tuple[Rows, dict[tuple[int, str], float]]:
    """delta of every decision from all runs together, shared by its two arms; refused where the gate does."""
    points = [(i, p) for i, t in enumerate(traces) for p in checkpoints(t) if len(p.event.options or ("stop", "continue")) > 1]
    if not points:
        raise NotIdentified("no decision offered to stop", "log passed-over stops as noop, with their options")
    x = np.array([list(features(traces[i], p.event)) for i, p in points], np.float64)
    z = x if propensity_features is None else np.array([list(propensity_features(traces[i], p.event)) for i, p in points])
    cases = Cases(
        x,
        z,
        np.array([p.is_stop for _, p in points]),
        np.array([np.nan if p.chance is None else p.chance for _, p in points]),
        np.array([team_reward(traces[i], channel) for i, _ in points]),
        np.array([i for i, _ in points]),
        np.array([p.event.policy == "forced" or not p.is_executed for _, p in points]),
    )
    leaf_N = None
    if leaf is not None:
        codes = {name: n for n, name in enumerate(dict.fromkeys(leaf(traces[i], p.event) for i, p in points))}
        leaf_N = np.array([codes[leaf(traces[i], p.event)] for i, p in points])
    fit = logged_effects(cases, leaf_N=leaf_N, **options)
    rows: list[CreditRow] = []
    silent: dict[tuple[int, str], str] = {}
    for j, (i, p) in enumerate(points):
        if j in fit.reasons or not np.isfinite(fit.tau_N[j]):
            silent[i, p.event.id] = f"{fit.reasons.get(j, 'not identified: no comparable case')}; {_LOG_FIX}"
            continue
        share = two_arms(1.0, float(fit.propensity_N[j]), is_taken=p.is_stop)
        se = abs(share) * float(fit.se_N[j]) if np.isfinite(fit.se_N[j]) else None
        rows.append(CreditRow(i, "orchestrator", p.event.id, share * float(fit.tau_N[j]), se))
    delta = {(i, p.event.id): float(t) for (i, p), t in zip(points, fit.tau_N, strict=True) if np.isfinite(t)}
    return (rows, silent, Cost()), delta


def _stop_credit(
    traces: Sequence[Trace],
    *,
    estimator: str = "drafts",
    value: Annotated[Value | None, VALUE] = None,
    replay: ReplayOf = None,
    k: Replicates = 2,
    seed: Annotated[int, SEED] = 0,
    coupled: Coupled = True,
    channel: Channel = "team",
    features: Annotated[Features, FEATURES] = draft_features,
    propensity_features: Annotated[Features | None, PROPENSITY_FEATURES] = None,
    propensity: Propensity = "logged",
    leaf: LeafOf = None,
    bandwidth: Bandwidth = None,
    folds: Folds = 5,
    penalty: Penalty = 1.0,
) -> Credit:
    if estimator not in _ESTIMATORS:
        raise InputError(f"no estimator {estimator!r}", fix=did_you_mean(estimator, _ESTIMATORS))
    notes: dict[str, Any] = {"estimator": estimator, **(unused(traces, channel) if estimator != "doubly_robust" else {})}
    if estimator == "doubly_robust":
        fit = {"propensity": propensity, "bandwidth": bandwidth, "folds": folds, "penalty": penalty}
        part, notes["delta"] = _by_log(traces, channel, features, propensity_features, leaf, **fit)
        parts, notes["propensity"] = [part], propensity
    elif estimator == "forks":
        parts = [_by_forks(i, t, replay, k, seed, coupled, channel) for i, t in enumerate(traces)]
    else:
        parts = [_by_drafts(i, t, channel, value) for i, t in enumerate(traces)]
    rows = [row for part in parts for row in part[0]]
    silent = {where: why for part in parts for where, why in part[1].items()}
    if silent and not rows:
        raise NotIdentified(next(iter(silent.values())).removeprefix("not identified: "), "forced continuation, or forks")
    cost, ids = added([part[2] for part in parts]), tuple(t.trace_id for t in traces)
    return Credit("stop", _ESTIMAND, False, ids, tuple(rows), cost=cost, unidentified=silent, notes=notes)


stop = Mechanism(
    unit="orchestrator",
    estimand=_ESTIMAND,
    assumptions="drafts: the score of a draft is what stopping there pays, and going on does not depend on the logged intention; "
    "forks: the replay goes on as the policy would; doubly_robust: the logged propensity is the true one (or, estimated, it or "
    "the outcome model is right), and what decided is in the features",
    cost="drafts: rounds of forced continuation, training traces only; forks: 2k - 1 per decision; doubly_robust: none",
    additive=False,
    source="ours, docs/lab/research/stopping.md (all stops at once; skill of a stop = Y_t - V); doubly robust: Robins, "
    "Rotnitzky, Zhao 1994, cross-fitting arXiv 1608.00060. Departures: both arms get credit; a gate",
    run=_stop_credit,
    needs=("logp", "drafts", "replay"),
    example=lambda: Example(rollouts()),
)
