"""Credit for spawning and for not spawning: the decision's effect at its own prefix, shared by the arms.

    tau(G) = E[R | G, spawn] - E[R | G, noop]      A(spawn) = (1 - pi) tau      A(noop) = -pi tau,   pi = pi(spawn | G)

Always true: E_pi[A] = 0 whatever tau is, so a decision passed over has its own credit. Baselines use the prefix before the
decision only, never the shape of the trace that it caused. pi is the logged propensity (exp of `logp`; 1 - exp(logp) where the
agent passed), never an estimate. Where tau is not identified, the decision has no row but a reason.

Estimators: `forks` (k replicates of both arms at the prefix), `doubly_robust` (logged data alone, see `credit.doubly_robust`:
gate at propensity 0.02, effective sample size 20 per arm, no decision that a rule forced), `both` (forks where the gate refuses).
Derivation: docs/lab/research/spawn-credit.md. Departure from practice: a refusal, no extrapolation. Rows: unit orchestrator,
the event's id.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from counterpoint.credits.example import Recount
from counterpoint.credits.forks import Contrast, added, effects, needed, two_arms
from counterpoint.credits.logged_effects import Cases, Features, logged_effects, prefix_features
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.own_scores import unused
from counterpoint.credits.shared_options import FEATURES, SEED, Bandwidth, Coupled, Folds, LeafOf, Penalty, ReplayOf, Replicates
from counterpoint.errors import InputError, NotIdentified, did_you_mean
from counterpoint.options import Channel
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.replay import Delete, Force, Replay
from counterpoint.trace.rows import Cost, Credit, CreditRow

_ESTIMAND = "(1 - pi) tau for a spawn, -pi tau for a noop; tau = E[R | prefix, spawn] - E[R | prefix, noop]"
_ESTIMATORS = ("forks", "doubly_robust", "both")
_FORKS_FIX = "estimator='forks' with a replay answers here"


class Point(NamedTuple):
    """One decision whether to spawn."""

    trace: int
    event: Event
    is_spawn: bool
    propensity: float | None
    """pi(spawn | prefix), None where it was not logged."""


def spawn_points(traces: Sequence[Trace]) -> list[Point]:
    """Every decision point at which spawning was possible, in the traces' order."""
    return [Point(i, e, _is_spawn(e), _propensity(e)) for i, t in enumerate(traces) for e in t.events if _offers(e, "spawn")]


def _offers(e: Event, name: str) -> bool:
    if e.type != "orchestrator_decision":
        return False
    about = (e.extra or {}).get("sub_decision")
    return about == name if about is not None else e.decision == name or (e.decision == "noop" and name in (e.options or ()))


def _is_spawn(e: Event) -> bool:
    return e.decision == "spawn" and (e.extra or {}).get("chosen", "spawn") == "spawn"


def _propensity(e: Event) -> float | None:
    if e.logp is None:
        return None
    chance = min(1.0, math.exp(e.logp))
    return chance if _is_spawn(e) else 1 - chance


class _Tau(NamedTuple):
    tau: np.ndarray
    se: np.ndarray
    reasons: dict[int, str]
    cost: Cost


def _by_forks(
    traces: Sequence[Trace], points: Sequence[Point], replay: Replay | None, action: Mapping[str, Any], **options: Any
) -> _Tau:
    """tau by forks: what was done is kept in one arm, and the other arm is forced."""
    replay = needed(replay, "spawn by forks")
    tau, se = np.full(len(points), np.nan), np.full(len(points), np.nan)
    reasons: dict[int, str] = {}
    costs = []
    for i, trace in enumerate(traces):
        mine = [j for j, p in enumerate(points) if p.trace == i]
        asked = [_contrast(points[j], action) for j in mine]
        forked = effects(replay, trace, asked, **options)
        tau[mine], se[mine] = forked.effect_U, forked.se_U
        reasons |= {mine[u]: why for u, why in forked.refused.items()}
        costs.append(forked.cost)
    return _Tau(tau, se, reasons, added(costs))


def _contrast(p: Point, action: Mapping[str, Any]) -> Contrast:
    return Contrast(p.event.id, None, Delete()) if p.is_spawn else Contrast(p.event.id, Force(action), None)


def _by_log(
    traces: Sequence[Trace],
    points: Sequence[Point],
    channel: str,
    features: Features,
    leaf: Callable[[Trace, Event], Hashable] | None,
    bandwidth: float | None,
    folds: int,
    penalty: float,
) -> _Tau:
    """tau doubly robust from the log, where the gate allows."""
    known = [j for j, p in enumerate(points) if p.propensity is not None]
    reasons = {j: "no propensity was logged; log logp with every decision" for j, p in enumerate(points) if p.propensity is None}
    if not known:
        raise NotIdentified("no spawn decision has a propensity", f"log logp with every decision, or {_FORKS_FIX}")
    rows = [(traces[points[j].trace], points[j].event) for j in known]
    x = np.array([list(features(t, e)) for t, e in rows], np.float64)
    cases = Cases(
        x,
        x,
        np.array([points[j].is_spawn for j in known]),
        np.array([points[j].propensity for j in known], np.float64),
        np.array([team_reward(t, channel) for t, _ in rows]),
        np.array([points[j].trace for j in known]),
        np.array([ev.policy == "forced" for _, ev in rows]),
    )
    number = None
    if leaf is not None:
        codes = {name: n for n, name in enumerate(dict.fromkeys(leaf(t, ev) for t, ev in rows))}
        number = np.array([codes[leaf(t, ev)] for t, ev in rows])
    fit = logged_effects(cases, leaf_N=number, bandwidth=bandwidth, folds=folds, penalty=penalty)
    tau, se = np.full(len(points), np.nan), np.full(len(points), np.nan)
    tau[known], se[known] = fit.tau_N, fit.se_N
    reasons |= {known[k]: f"{why}; {_FORKS_FIX}" for k, why in fit.reasons.items()}
    return _Tau(tau, se, reasons, Cost())


def _spawn_credit(
    traces: Sequence[Trace],
    *,
    estimator: str = "forks",
    replay: ReplayOf = None,
    k: Replicates = 2,
    seed: Annotated[int, SEED] = 0,
    coupled: Coupled = True,
    action: Mapping[str, Any] | None = None,
    value: str = "advantage",
    features: Annotated[Features, FEATURES] = prefix_features,
    leaf: LeafOf = None,
    bandwidth: Bandwidth = None,
    folds: Folds = 5,
    penalty: Penalty = 1.0,
    channel: Channel = "team",
) -> Credit:
    if estimator not in _ESTIMATORS:
        raise InputError(f"no estimator {estimator!r}", fix=did_you_mean(estimator, _ESTIMATORS))
    if value not in ("advantage", "effect"):
        raise InputError(f"no value {value!r}", fix="advantage or effect")
    points = spawn_points(traces)
    if not points:
        raise NotIdentified("no decision point offered a spawn", "log passed-over decisions as noop, with their options")
    forks = {"k": k, "seed": seed, "coupled": coupled, "channel": channel}
    force = {"spawn": 1} if action is None else action
    if estimator == "forks":
        tau = _by_forks(traces, points, replay, force, **forks)
    else:
        tau = _by_log(traces, points, channel, features, leaf, bandwidth, folds, penalty)
        if estimator == "both":
            tau = _filled(tau, traces, points, replay, force, forks)
    return _credit(traces, points, tau, value, {"estimator": estimator, **_forked_note(traces, channel, tau.cost)})


def _forked_note(traces: Sequence[Trace], channel: str, cost: Cost) -> dict[str, Any]:
    return unused(traces, channel) if cost.forks else {}


def _filled(
    tau: _Tau, traces: Sequence[Trace], points: Sequence[Point], replay: Replay | None, force: Any, forks: dict[str, Any]
) -> _Tau:
    """Forks where the log did not answer."""
    open = sorted(tau.reasons)
    more = _by_forks(traces, [points[j] for j in open], replay, force, **forks)
    tau.tau[open], tau.se[open] = more.tau, more.se
    return _Tau(tau.tau, tau.se, {open[u]: why for u, why in more.reasons.items()}, more.cost)


def _credit(traces: Sequence[Trace], points: Sequence[Point], effect: _Tau, value: str, about: dict[str, Any]) -> Credit:
    rows: list[CreditRow] = []
    silent: dict[tuple[int, str], str] = {}
    for j, p in enumerate(points):
        if j in effect.reasons or not np.isfinite(effect.tau[j]):
            silent[p.trace, p.event.id] = effect.reasons.get(j, "not identified: no comparable case")
        elif value == "advantage" and p.propensity is None:
            silent[p.trace, p.event.id] = "not identified: no propensity was logged; log logp, or ask for value='effect'"
        else:
            share = 1.0 if value == "effect" else two_arms(1.0, p.propensity or 0.0, is_taken=p.is_spawn)
            se = None if not np.isfinite(effect.se[j]) else abs(share) * float(effect.se[j])
            rows.append(CreditRow(p.trace, "orchestrator", p.event.id, share * float(effect.tau[j]), se))
    if not rows:
        why = next(iter(silent.values())).removeprefix("not identified: ").removesuffix(f"; {_FORKS_FIX}")
        raise NotIdentified(why, f"more traces with logp, or {_FORKS_FIX}")
    tau = {(p.trace, p.event.id): float(t) for p, t in zip(points, effect.tau, strict=True) if np.isfinite(t)}
    notes = {**about, "value": value, "tau": tau, "points": len(points), "answered": len(rows)}
    trace_ids = tuple(t.trace_id for t in traces)
    return Credit("spawn", _ESTIMAND, False, trace_ids, tuple(rows), cost=effect.cost, unidentified=silent, notes=notes)


spawn = Mechanism(
    unit="orchestrator",
    estimand=_ESTIMAND,
    assumptions="forks: the replay goes on as the policy would. Log: the logged propensity is the true one; cases with like "
    "features are comparable",
    cost="forks: 2k - 1 continuations per decision; doubly robust: none",
    additive=False,
    source="ours, docs/lab/research/spawn-credit.md; doubly robust: Robins, Rotnitzky, Zhao 1994; cross-fitting arXiv "
    "1608.00060. Departure: a gate",
    run=_spawn_credit,
    needs=("logp", "replay"),
    example=lambda: Example(rollouts(), {"replay": Recount()}),
)
