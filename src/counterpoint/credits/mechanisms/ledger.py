"""Doob ledger over trace prefixes: team reward = prior + skill of every event + luck, for any critic.

Always true: prior + all rows of a level + luck + residual = R within 1e-9, however bad the critic: it only moves amounts between
accounts. Every event has a row, a decision that was passed over (`noop`) too. Events in topological order (file order where
that is one), V_0 the value before any, V_T := R:

    R = V_0 + sum_t (Q_t - V_{t-1}) [skill, on the event] + sum_t (V_t - Q_t) [luck, on the environment account of the event]

where Q_t is given, and all of delta_t = V_t - V_{t-1} on the event where it is not. The orchestrator so gets the expected gain
of a decision when it was taken, the worker the surprise against it. A stop is judged by what stopping pays: Q = Y_t, so its
skill is Y_t - V_{t-1}; as the last event it gets this without any rule of its own.

Where no critic is given, V_t is the last draft's score (`reward.draft` on aggregate events) and 0 before the first: a convention,
not an estimate of E[R | prefix]; it credits whoever joins the drafts, and leaves finer shares to a better critic. R is then the
run's own score, not a person's (`credit.own_scores`). Without draft scores the ledger is not identified and says so.

With `extensions=k`, delta is averaged over k antithetic pairs of random linear extensions, for events that ran in parallel; the
critic is then called as `value(trace, order)`.
"""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.credits.accounts import Account, Ledger
from counterpoint.credits.default import Beside, Default, no_reward
from counterpoint.credits.games import extension
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.own_scores import beside_drafts, unused
from counterpoint.credits.shared_options import SEED, VALUE, Q, Unit
from counterpoint.credits.team_games import roles_of
from counterpoint.errors import InputError, NotIdentified, did_you_mean
from counterpoint.options import Channel, NonNegativeInt
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, CreditRow
from counterpoint.trace.team import team_of

Floats = NDArray[np.float64]
Critic = Callable[..., ArrayLike] | ArrayLike | Sequence[ArrayLike] | None
LEVELS = ("role", "agent", "turn", "message")


class RewardParts(NamedTuple):
    """A reward taken apart, by event number."""

    prior: float
    skill_E: Floats
    luck_E: Floats
    split_E: NDArray[np.bool_]
    """Where a critic of the action parts the two."""


def doob(value_T: ArrayLike, reward: float, q_T: ArrayLike | None = None) -> RewardParts:
    """Skill and luck of events in order, from values (T + 1) before and after each; the last value is the reward."""
    v = np.array(value_T, np.float64)
    v[-1] = reward
    q_values = np.full(len(v) - 1, np.nan) if q_T is None else np.asarray(q_T, np.float64)
    split = ~np.isnan(q_values)
    q = np.where(split, q_values, v[1:])
    return RewardParts(float(v[0]), q - v[:-1], v[1:] - q, split)


def draft_values(trace: Trace) -> Floats:
    """The running draft score in topological order; 0 before the first."""
    drafts = [(trace.events[i].reward or {}).get("draft") for i in trace.graph.order.tolist()]
    if all(d is None for d in drafts):
        raise NotIdentified(
            "nothing says how the value of the trace's prefixes moves: no critic and no draft scores",
            "give value=(trace) -> numbers before and after every event",
            where=trace.trace_id,
        )
    out, here = np.zeros(len(drafts) + 1), 0.0
    for t, draft in enumerate(drafts):
        here = here if draft is None else float(draft)
        out[t + 1] = here
    return out


def parts_of(
    trace: Trace, k: int = 0, *, value: Critic = None, q: Critic = None, extensions: int = 0, seed: int = 0, channel: str = "team"
) -> RewardParts:
    """Prior, skill and luck of a trace, the k-th of those that the critic's numbers are given for."""
    reward, n = _reward(trace, value, channel), len(trace.events)
    if not extensions:
        order = trace.graph.order.astype(np.int64)
        parts = doob(_values(value, trace, k, None), reward, None if q is None else _called(q, trace, k, None, n, "q"))
        return RewardParts(parts.prior, *(_placed(x, order) for x in parts[1:]))
    if not callable(value) or (q is not None and not callable(q)):
        raise InputError("extensions need critics that can be called", fix="give value=(trace, order) -> numbers")
    rng, all_parts = np.random.default_rng([seed, k]), []
    for _ in range(extensions):
        keys = rng.random(n)
        for order in (np.array(extension(trace.graph, u), np.int64) for u in (keys, 1 - keys)):
            one = doob(_values(value, trace, k, order), reward, None if q is None else _called(q, trace, k, order, n, "q"))
            all_parts.append(RewardParts(one.prior, *(_placed(x, order) for x in one[1:])))
    return RewardParts(
        math.fsum(p.prior for p in all_parts) / len(all_parts),
        np.mean([p.skill_E for p in all_parts], axis=0),
        np.mean([p.luck_E for p in all_parts], axis=0),
        np.any([p.split_E for p in all_parts], axis=0),
    )


def _reward(trace: Trace, value: Critic, channel: str) -> float:
    """R: beside drafts as the run scored itself, as it did them; beside a critic, the trace's reward."""
    return beside_drafts(trace, channel) if value is None else team_reward(trace, channel)


def _placed(x_T: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    out = np.empty_like(x_T)
    out[order] = x_T
    return out


def _values(value: Critic, trace: Trace, k: int, order: Any) -> Floats:
    values = draft_values(trace) if value is None else _called(value, trace, k, order, len(trace.events) + 1, "value")
    if not np.isfinite(values[:-1]).all():
        raise InputError("a value is NaN or infinite", where=trace.trace_id, fix="the critic answers for every prefix")
    return values


def _called(critic: Any, trace: Trace, k: int, order: Any, size: int, name: str) -> Floats:
    if callable(critic):
        if order is not None and len(inspect.signature(critic).parameters) < 2:
            raise InputError(f"{name} knows one order only", fix=f"extensions call {name}(trace, order)")
        values = critic(trace) if order is None else critic(trace, order)
    else:
        values = critic if np.ndim(critic[0]) == 0 else critic[k]
    out = np.asarray(values, np.float64)
    if out.shape != (size,):
        raise InputError(f"{name} has shape {out.shape}, not ({size},)", where=trace.trace_id, fix="value: events + 1; q: events")
    return out


def accounts(trace: Trace, parts: RewardParts, reward: float) -> Ledger:
    """The ledger of a trace: every event a leaf on its path, luck on the environment account of its event."""
    leaves: dict[Account, float] = {("prior",): parts.prior, ("unidentified",): 0.0}
    for path, event, skill, luck in zip(_paths(trace), trace.events, parts.skill_E.tolist(), parts.luck_E.tolist(), strict=True):
        leaves[path] = skill
        if luck:
            leaves["environment", f"event:{event.id}"] = luck
    if not parts.luck_E.any():
        leaves["environment",] = 0.0
    return Ledger.of(reward, leaves)


def _paths(trace: Trace) -> list[Account]:
    team, roles = team_of(trace), roles_of(trace)
    main = None if team.main is None else team.names[team.main]
    out: list[Account] = []
    for event, a in zip(trace.events, team.agent_E.tolist(), strict=True):
        who = team.names[a]
        part = f"orchestrator:{who}" if who == main else f"role:{roles.get(who, who)}"
        turn = "-" if event.turn is None else event.turn
        leaf = "tool" if event.type in ("tool_call", "tool_result") else "message"
        out.append((part, f"agent:{who}", f"turn:{who}#{turn}", f"{leaf}:{event.id}"))
    return out


def _ledger_credit(
    traces: list[Trace],
    *,
    value: Annotated[Critic, VALUE] = None,
    q: Annotated[Critic, Q] = None,
    extensions: NonNegativeInt = 0,
    seed: Annotated[NonNegativeInt, SEED] = 0,
    unit: Unit = "message",
    channel: Channel = "team",
) -> Credit:
    wanted = LEVELS if unit == "all" else (unit,)
    if unit != "all" and unit not in LEVELS:
        raise InputError(f"no rows by {unit!r}", fix=did_you_mean(unit, (*LEVELS, "all")))
    rows: list[CreditRow] = []
    declared, about = [], []
    for k, trace in enumerate(traces):
        parts = parts_of(trace, k, value=value, q=q, extensions=extensions, seed=seed, channel=channel)
        book = accounts(trace, parts, reward := _reward(trace, value, channel))
        error = book.check()
        roles = roles_of(trace)
        for level in wanted:
            rows += [CreditRow(k, level, name, amount) for name, amount in _level(book, level, roles).items()]
        fixed = book.fixed()
        declared.append(math.fsum([reward, *(-x for x in fixed.values())]))
        about.append({"reward": reward, **fixed, "error": error, "accounts": len(book.amounts)})
    return Credit(
        mechanism="ledger",
        estimand="prior + skill of each event + luck = team reward; rows are skill",
        additive=True,
        trace_ids=tuple(t.trace_id for t in traces),
        rows=tuple(rows),
        declared=np.array(declared),
        notes={"critic": "given", "traces": about}
        if value is not None
        else {"critic": "drafts", "traces": about, **unused(traces, channel)},
    )


def _level(book: Ledger, level: str, roles: dict[str, str]) -> dict[str, float]:
    """The amounts of a level by unit id; the orchestrator's account stands under its role."""
    gathered: dict[str, list[float]] = defaultdict(list)
    for account, amount in book.cut(level).items():
        if ":" not in account[-1] or account[0] == "environment":
            continue
        kind, _, name = account[-1].partition(":")
        gathered[roles.get(name, name) if kind == "orchestrator" else name].append(amount)
    return {name: math.fsum(amounts) for name, amounts in gathered.items()}


_LEAST_DRAFTS = 2
"""Scored drafts from which the way of their score says more than who merged them."""


def _few_drafts(traces: Sequence[Trace], beside: Beside) -> str | None:
    scored = min(sum(e.type == "aggregate" and "draft" in (e.reward or {}) for e in trace.events) for trace in traces)
    if 0 < scored < _LEAST_DRAFTS:
        return "one draft was scored: whoever merged it would get everything, and those whose work is in it nothing"
    return no_reward(traces)


ledger = Mechanism(
    unit="message",
    estimand="skill of each event: what it changed in the expected team reward; prior and luck are in the notes",
    assumptions="none for the sum; amounts mean what the critic knows (V_t near E[R | prefix]); draft scores by default",
    cost="a critic; nothing with draft scores",
    additive=True,
    source="ours: the Doob decomposition of the team reward over trace prefixes (Doob 1953), kept as accounts",
    run=_ledger_credit,
    needs=("critic, unless drafts are scored",),
    example=lambda: Example(rollouts()),
    live={"value": "task:value", "unit": "agent"},
    default=Default("drafts were scored on the way", _few_drafts, {"unit": "all"}, may_favour_one=True),
)
