"""MarsRL: a pipeline stage against its samples on the same input, each stage paid by its own role's reward.

    A = (r - mean) / (std + eps)        over the steps of one role that share their input (the same transcript before them)

Always true: a verifier is compared only with verifiers that read the same solution, a corrector only with those that read the
same verdict. A step whose role was not paid has no row; a step that nobody shares its input with is refused.

Source: MarsRL arXiv 2511.11373 (grouped agentic rollouts; solver, verifier, corrector). The role rewards themselves (a
verifier is paid for a right verdict) come in as `signals` of unit role or message (the reward `marsrl`), or on the events.
ddof is not stated there; 1 and eps 1e-6 here. `inputs="any"` compares a stage over all rollouts of the task, whatever it read:
for rollouts that were not sampled from shared inputs. `others="team"` adds a row of unit team, the team's reward against the
task's other rollouts, for whoever no stage is: an orchestrator, which the paper does not have.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from counterpoint.credits.groups import Convention, convention_of
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.mechanisms.group_relative import group_relative
from counterpoint.credits.rows import (
    ALONE,
    ALONE_FIX,
    Key,
    TraceUnit,
    credit_of,
    event_unit,
    grouped_credit,
    keys_of,
    payments_of,
    steps_of,
    tree_of,
    unit_events,
)
from counterpoint.credits.shared_options import GroupConvention, GroupKey, PaidSignals, SampleOf, Singleton
from counterpoint.errors import InputError, NotIdentified
from counterpoint.options import Channel
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, Signals

_ESTIMAND = "(r of the stage - mean) / std over the stages that read the same input"


def _scored(traces: Sequence[Trace], channel: str, signals: Signals | None) -> Callable[[int, Event], tuple[float, str] | None]:
    """What a step was paid, and for what kind of work: the event's own signal, or else its role's reward."""
    if signals is not None and "message" in signals.units:
        columns = zip(signals.trace.tolist(), signals.unit_ids, signals.values.tolist(), signals.channels, strict=True)
        own = {(signals.trace_ids[i], unit_id): (value, kind) for i, unit_id, value, kind in columns}
        return lambda i, event: own.get((traces[i].trace_id, event.id))
    pay = payments_of(traces, [unit_events(t, "role") for t in traces], "role", channel=channel, signals=signals)
    return lambda i, event: (pay[i][event.role], "") if event.role in pay[i] else None


def _over_rollouts(
    traces: Sequence[Trace], tasks: Sequence[Hashable], scored: Callable[[int, Event], tuple[float, str] | None], how: Convention
) -> Credit:
    """Stages compared over the rollouts of a task, whatever came before: the n-th of a role's steps of one kind on one item."""
    rows, values, keys = [], [], []
    for i, trace in enumerate(traces):
        nth: Counter[Hashable] = Counter()
        for event in (trace.events[place] for place in steps_of(trace)):
            if (amount := scored(i, event)) is not None:
                stage = (tasks[i], event.role, amount[1], event.task)
                rows.append(TraceUnit(i, event_unit(event), event.id))
                values.append(amount[0])
                keys.append((*stage, nth[stage]))
                nth[stage] += 1
    return grouped_credit("marsrl", _ESTIMAND, traces, rows, values, keys, how)


def _marsrl_credit(
    traces: Sequence[Trace],
    *,
    convention: GroupConvention = "grpo",
    key: GroupKey = "task_id",
    channel: Channel = "team",
    signals: PaidSignals = None,
    singleton: Singleton = None,
    sample: SampleOf = None,
    inputs: str = "same",
    others: str | None = None,
) -> Credit:
    if inputs not in ("same", "any"):
        raise InputError(f"no inputs {inputs!r}", fix="same or any")
    if others not in (None, "team"):
        raise InputError(f"unknown others={others!r}", fix="team, or nothing")
    if others is None:
        return _stages(traces, convention, key, channel, signals, singleton, sample, inputs)
    team = group_relative(traces, convention=convention, key=key, channel=channel, singleton=singleton or "zero")
    try:
        credit = _stages(traces, convention, key, channel, signals, singleton, sample, inputs)
    except NotIdentified:  # no stage has anybody to be compared with: the team's reward is what is left
        return dataclasses.replace(team, mechanism="marsrl", estimand=_ESTIMAND)
    return dataclasses.replace(credit, rows=tuple(sorted([*credit.rows, *team.rows], key=lambda r: r.trace)))


def _stages(
    traces: Sequence[Trace],
    convention: str | Convention,
    key: Key,
    channel: str,
    signals: Signals | None,
    singleton: str | None,
    sample: Callable[[Event], Hashable] | None,
    inputs: str,
) -> Credit:
    """The rows of the stages."""
    scored, how, tasks = _scored(traces, channel, signals), convention_of(convention, singleton=singleton), keys_of(traces, key)
    if inputs == "any":
        return _over_rollouts(traces, tasks, scored, how)
    tree = tree_of(traces, tasks, [0.0] * len(traces), sample)
    rows, values, keys, nodes = [], [], [], []
    for step in (tree.steps[i] for i in tree.first_steps()):
        event = traces[step.trace].events[step.place]
        if (amount := scored(step.trace, event)) is not None:
            rows.append(TraceUnit(step.trace, event_unit(event), event.id))
            values.append(amount[0])
            keys.append((step.parent, event.role, amount[1]) if amount[1] else (step.parent, event.role))
            nodes.append(step.node)
    credit = grouped_credit("marsrl", _ESTIMAND, traces, rows, values, keys, how)
    amounts = {(r.trace, r.unit_id): r.value for r in credit.rows}
    of_node = {node: amounts.get((r.trace, r.unit_id)) for node, r in zip(nodes, rows, strict=True)}
    out, refused = [], {}
    for step in tree.steps:
        event = traces[step.trace].events[step.place]
        if (value := of_node.get(step.node)) is not None:
            out.append((TraceUnit(step.trace, event_unit(event), event.id), value))
        elif step.node in of_node:
            refused[step.trace, event.id] = "nobody else read the same input"
    return credit_of("marsrl", _ESTIMAND, traces, out, why_not=ALONE, fix=ALONE_FIX, notes=credit.notes, unidentified=refused)


marsrl = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="steps of a group are samples of one policy on one input; one step per role and stage",
    cost="several samples per stage input (8 in the paper)",
    additive=False,
    source="MarsRL, arXiv 2511.11373",
    run=_marsrl_credit,
    needs=("group", "contents"),
    example=lambda: Example(rollouts()),
)
