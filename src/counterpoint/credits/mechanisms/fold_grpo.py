"""FoldGRPO (Context-Folding): the outcome plus a process term, clipped to [0, 1], against the group's outcomes.

    A_it = (clip(R_i + Q_it, 0, 1) - mean(R)) / std(R)        statistics over the outcomes only

Always true: with Q = 0 and outcomes in [0, 1] this is group-relative credit with the population std. Q is -1 on an action
whose tool call failed, -1 on actions of the main agent that open no branch (spawn or delegate) once its context passes half of
`context_limit`, -0.2 on all actions of an agent in `out_of_scope(trace)`, else 0; `process` replaces that rule. All outcomes
equal: no std, every A is 0. The context is what the action read (`tokens_in`), or, where no action of the main agent says so,
what it wrote and its own tools gave it so far: branches are folded away. `scope` is a judge without a model: agents whose
scores (R2) have a mean below it are out of scope.

The paper's outcomes are 0 or 1. Outside [0, 1] the clipped R + Q would be compared with a mean that is not clipped, and a whole
group could get one number, whoever was best; so such outcomes are refused, unless `rescale` maps them into [0, 1] first:

    "group": R <- (R - min) / (max - min) over the group;      (low, high): R <- (R - low) / (high - low), for all alike

Source: Context-Folding arXiv 2510.11967 (SECONDARY). Departures: rows are per action; `rescale` is ours; `int8=True` casts Q as
the release does, which turns -0.2 into 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from counterpoint.credits.groups import Floats, group_codes, group_stats
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.rows import ALONE, TraceUnit, actions, credit_of, event_unit, keys_of, main_of
from counterpoint.credits.shared_options import DDOF, GroupKey
from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_BRANCHES = ("spawn", "delegate")
_ESTIMAND = "(clip(R + Q, 0, 1) - mean R) / std R"


def fold_advantages(
    outcomes: ArrayLike, groups: ArrayLike, rollout_of_row: ArrayLike, process: ArrayLike, *, ddof: int = 0
) -> Floats:
    """(rows,) advantages; `outcomes` (in [0, 1]) and `groups` by rollout, the process term by row; NaN for a group of one."""
    r, row = np.asarray(outcomes, np.float64), np.asarray(rollout_of_row, np.int64)
    if outside := [x for x in r.tolist() if not -1e-9 <= x <= 1 + 1e-9]:
        fix = "rescale=group maps each group's outcomes to [0, 1], rescale=[low, high] those between two bounds"
        raise InputError(f"an outcome is {outside[0]:g}, and the clip to [0, 1] assumes outcomes in there", fix=fix)
    stats = group_stats(r, groups, ddof=ddof)
    of_row = stats.code[row]
    above = np.clip(r[row] + np.asarray(process, np.float64), 0.0, 1.0) - stats.mean[of_row]
    std = stats.std[of_row]
    with np.errstate(invalid="ignore", divide="ignore"):
        out = np.where(std > 0, above / std, 0.0)
    out[stats.size[of_row] < 2] = np.nan
    return out


def rescaled(outcomes: ArrayLike, groups: ArrayLike, how: str | Sequence[float] | None) -> Floats:
    """Outcomes mapped to [0, 1]: by the least and the most of their group, by two bounds, or (None) as they are.

    A group whose outcomes are all equal gets 0: it has no std, and no advantage either way.
    """
    r, code = np.asarray(outcomes, np.float64), np.asarray(groups, np.int64)
    if how is None:
        return r
    if how == "group":
        least, most = np.full(code.max(initial=0) + 1, np.inf), np.full(code.max(initial=0) + 1, -np.inf)
        np.minimum.at(least, code, r)
        np.maximum.at(most, code, r)
        span = (most - least)[code]
        return np.where(span > 0, (r - least[code]) / np.where(span > 0, span, 1.0), 0.0)
    if isinstance(how, str) or len(how) != 2 or not float(how[0]) < float(how[1]):
        raise InputError(f"rescale is {how!r}", fix="group, or two bounds such as [-1, 1]")
    low, high = float(how[0]), float(how[1])
    if beyond := [x for x in r.tolist() if not low <= x <= high]:
        what = f"an outcome is {beyond[0]:g}, outside of the bounds {low:g} and {high:g}"
        raise InputError(what, fix="wider bounds, or rescale=group")
    return (r - low) / (high - low)


def _contexts(trace: Trace, main: str) -> dict[str, float]:
    """Tokens in the main agent's context at each of its events: as recorded, or what it wrote and its tools gave it before."""
    own = [e for e in trace.events if e.agent == main]
    if any(e.tokens_in for e in own if e.type == "orchestrator_decision"):
        return {e.id: float(e.tokens_in or 0) for e in own}
    out, held = {}, 0.0
    for event in trace.events:
        if event.agent == main:
            out[event.id] = held
            held += (event.tokens_out or 0) + ((event.tokens_in or 0) if event.type == "tool_result" else 0)
    return out


def _outside(trace: Trace, scope: float) -> set[str]:
    """Agents whose scores have a mean below `scope`."""
    paid: dict[str, list[float]] = {}
    for event in trace.events:
        if event.reward and "R2" in event.reward:
            paid.setdefault(event.agent, []).append(event.reward["R2"])
    return {agent for agent, own in paid.items() if np.mean(own) < scope}


def _default(trace: Trace, context_limit: float | None, outside: Collection[str]) -> dict[str, float]:
    main = main_of(trace) if context_limit is not None else None
    context = {} if main is None else _contexts(trace, main)
    failed = {(e.agent, e.turn) for e in trace.events if e.type in ("tool_call", "tool_result") and e.ok is False}
    out = {}
    for place in actions(trace):
        event = trace.events[place]
        is_failed = event.ok is False if event.turn is None else (event.agent, event.turn) in failed
        is_long = context_limit is not None and context.get(event.id, 0.0) > context_limit / 2
        q = -1.0 if is_failed or (is_long and event.decision not in _BRANCHES) else 0.0
        out[event.id] = min(q, -0.2 if event.agent in outside else 0.0)
    return out


def _fold_grpo_credit(
    traces: Sequence[Trace],
    *,
    process: Callable[[Trace], Mapping[str, float]] | None = None,
    context_limit: float | None = None,
    out_of_scope: Callable[[Trace], Collection[str]] | None = None,
    scope: float | None = None,
    int8: bool = False,
    rescale: str | Sequence[float] | None = None,
    ddof: Annotated[int, DDOF] = 0,
    key: GroupKey = "task_id",
    channel: Channel = "team",
) -> Credit:
    rows, terms = [], []  # type: list[TraceUnit], list[float]
    for i, trace in enumerate(traces):
        outside = set(out_of_scope(trace)) if out_of_scope is not None else set()
        outside |= _outside(trace, scope) if scope is not None else set()
        own = process(trace) if process is not None else _default(trace, context_limit, outside)
        for place in actions(trace):
            event = trace.events[place]
            rows.append(TraceUnit(i, event_unit(event), event.id))
            terms.append(float(own.get(event.id, 0.0)))
    q = np.trunc(terms) if int8 else np.asarray(terms)
    codes, names = group_codes(keys_of(traces, key))
    outcomes = rescaled([team_reward(t, channel) for t in traces], codes, rescale)
    amounts = fold_advantages(outcomes, codes, [r.trace for r in rows], q, ddof=ddof)
    sizes = np.bincount(codes, minlength=len(names)).tolist()
    notes: dict[str, Any] = {"ddof": ddof, "int8": int8} | ({} if rescale is None else {"rescale": rescale})
    notes["groups"] = {str(n): size for n, size in zip(names, sizes, strict=True)}
    return credit_of(
        "fold_grpo",
        _ESTIMAND,
        traces,
        zip(rows, amounts.tolist(), strict=True),
        why_not=ALONE,
        fix="several traces per task",
        notes=notes,
    )


fold_grpo = Mechanism(
    sees="item",
    unit="message",
    estimand=_ESTIMAND,
    assumptions="outcomes lie in [0, 1], or are rescaled to it; several rollouts per task",
    cost="nothing beyond several traces per task",
    additive=False,
    source="Context-Folding, arXiv 2510.11967; departures in the module",
    run=_fold_grpo_credit,
    needs=("group",),
    example=lambda: Example(rollouts()),
)
