"""Dr. MAS: every agent (or role) against itself, over all of its invocations in the rollouts of one task.

    A_ik = (R_ik - mu_k) / (sigma_k + eps)      mu_k, sigma_k over all invocations of agent k in the task's group

Always true: an agent is never compared with another one. Two calls in one rollout count twice (`count="rows"`); with
`count="episodes"` a rollout counts once. An invocation is a turn of the agent, or an action where no turns are recorded.

Source: Dr. MAS arXiv 2602.08847, key (task, agent), ddof 1, eps 1e-6. Departures: the survey says "within each rollout", the
code (and this) goes across the rollouts; a singleton keeps its raw reward there and is refused here unless
`singleton="keep"`.
`by="message", key="batch", convention="reinforce_pp"` is CoMAS' buffer of an agent's actions (arXiv 2510.08529);
`by="role", key="batch", convention="reinforce_pp"` is MAE's task-relative REINFORCE++ (arXiv 2510.23595); `by="agent"` with
Shapley rewards in `signals` is SHARP's normalisation (arXiv 2602.08335). `by="turn", state=True` is AT-GRPO's grouping (arXiv
2510.11062): what an agent did in a turn against its other candidates in that turn, after the very same turns of the team; a
candidate counts once, and its reward is the mean of what its agent was paid in the rollouts through it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Annotated

from counterpoint.credits.default import Beside, Default, no_reward
from counterpoint.credits.groups import Convention, convention_of, group_codes, group_stats, inflation_factor
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import (
    TraceUnit,
    credit_of,
    grouped_credit,
    keys_of,
    payments_of,
    step_units,
    tree_of,
    unit_events,
    words_of,
)
from counterpoint.credits.shared_options import DDOF, EPS, GroupConvention, GroupKey, PaidSignals, Singleton
from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, Signals

_STATE = "(R - mean of this agent's candidates in this turn and state) / std of them"
_ESTIMAND = "(R - mean of this agent) / std of this agent, over the rollouts of the task"


def _calls(trace: Trace, places: Sequence[int]) -> int:
    turns = [trace.events[i].turn for i in places]
    return len({t for t in turns if t is not None}) + sum(t is None for t in turns)


def inflation(values: Sequence[float], agents: Sequence[Hashable]) -> dict[Hashable, float]:
    """Agent to the factor by which one global mean and std inflate the second moment of its gradient (Dr. MAS' lemma)."""
    codes, names = group_codes(agents)
    own, whole = group_stats(values, codes, ddof=0), group_stats(values, [0] * len(codes), ddof=0)
    if not whole.std[0] > 0:
        return {}
    return {n: inflation_factor(own.mean[k], own.std[k], whole.mean[0], whole.std[0]) for k, n in enumerate(names)}


def _agent_wise_credit(
    traces: Sequence[Trace],
    *,
    by: str = "agent",
    convention: GroupConvention = "grpo",
    key: GroupKey = "task_id",
    channel: Channel = "team",
    signals: PaidSignals = None,
    ddof: Annotated[int | None, DDOF] = None,
    eps: Annotated[float | None, EPS] = None,
    singleton: Singleton = None,
    count: str | None = None,
    state: bool = False,
) -> Credit:
    if state:
        how = convention_of(convention, ddof=ddof, eps=eps, singleton=singleton, count=count)
        return _candidates(traces, keys_of(traces, key), by, channel, signals, how)
    if by not in ("agent", "role", "turn", "message"):
        raise InputError(f"nothing to compare by {by!r}", fix="agent, role, turn or message")
    how = convention_of(convention, ddof=ddof, eps=eps, singleton=singleton, count=count)
    units = [unit_events(t, by) for t in traces]
    rewards = payments_of(traces, units, by, channel=channel, signals=signals)
    rows, values, keys = [], [], []
    for i, (trace, task) in enumerate(zip(traces, keys_of(traces, key), strict=True)):
        for name, places in units[i].items():
            if name not in rewards[i]:
                continue
            who = trace.events[places[0]].agent if by in ("turn", "message") else name
            calls = _calls(trace, places)
            rows += [TraceUnit(i, by, name)] * calls
            values += [rewards[i][name]] * calls
            keys += [(task, who)] * calls
    if not rows:
        return credit_of("agent_wise", _ESTIMAND, traces, [], notes={"groups": {}})
    notes = {"inflation": {str(k): v for k, v in inflation(values, [who for _, who in keys]).items()}}
    credit = grouped_credit("agent_wise", _ESTIMAND, traces, rows, values, keys, how, notes=notes)
    once = {(r.trace, r.unit_id): (TraceUnit(r.trace, r.unit, r.unit_id), r.value) for r in credit.rows}
    return credit_of("agent_wise", _ESTIMAND, traces, once.values(), notes=credit.notes, unidentified=credit.unidentified)


def _candidates(
    traces: Sequence[Trace], keys: Sequence[Hashable], by: str, channel: str, signals: Signals | None, how: Convention
) -> Credit:
    """What an agent did in a turn against what it did in the same turn after the very same turns before; each counts once."""
    if by != "turn":
        raise InputError(f"candidates from one state are turns, not by={by!r}", fix='by="turn"')
    agents = [unit_events(t, "agent") for t in traces]
    paid = payments_of(traces, agents, "agent", channel=channel, signals=signals)
    tree = tree_of(traces, keys, [0.0] * len(traces), by="turn")
    found: dict[tuple[int, str, Hashable], list[tuple[TraceUnit, float]]] = {}
    for step in tree.steps:
        trace = traces[step.trace]
        for unit in step_units(traces, step, "turn"):
            who = unit.unit_id.rpartition("#")[0]
            if who in paid[step.trace]:
                own = [i for i in agents[step.trace][who] if trace.events[i].turn == trace.events[step.place].turn]
                found.setdefault((step.parent, who, words_of(trace, own)), []).append((unit, paid[step.trace][who]))
    units = [members[0][0] for members in found.values()]
    values = [sum(value for _, value in members) / len(members) for members in found.values()]
    if not units:
        return credit_of("agent_wise", _STATE, traces, [], notes={"groups": {}})
    credit = grouped_credit("agent_wise", _STATE, traces, units, values, [place[:2] for place in found], how)
    amount = {(r.trace, r.unit_id): r.value for r in credit.rows}
    refused = credit.unidentified
    rows, alone = [], {}
    for members in found.values():
        first = (members[0][0].trace, members[0][0].unit_id)
        for unit, _ in members:
            if first in amount:
                rows.append((unit, amount[first]))
            else:
                alone[unit.trace, unit.unit_id] = refused.get(first, "nothing else was done from this state")
    return credit_of("agent_wise", _STATE, traces, rows, notes=credit.notes, unidentified=alone)


def _no_group(traces: Sequence[Trace], beside: Beside) -> str | None:
    if len(traces) < 2:
        return "one run of the task was given: there is nothing to compare it with"
    alone = [task for task, n in Counter(t.task_id for t in traces).items() if n < 2]
    return f"task {alone[0]!r} was run once" if alone else no_reward(traces)


agent_wise = Mechanism(
    unit="agent",
    estimand=_ESTIMAND,
    assumptions="an agent's name (or role) means the same in every rollout of the task",
    cost="nothing beyond several traces per task",
    additive=False,
    source="Dr. MAS, arXiv 2602.08847; departures in the module",
    run=_agent_wise_credit,
    needs=("group",),
    example=lambda: Example(rollouts()),
    default=Default("several runs of the same task can be compared", _no_group),
)
