"""MarsRL: a pipeline stage against its samples on the same input, each stage paid by its own role's reward.

    A = (r - mean) / (std + eps)        over the steps of one role that share their input (the same transcript before them)

Always true: a verifier is compared only with verifiers that read the same solution, a corrector only with those that read the
same verdict. A step whose role was not paid has no row; a step that nobody shares its input with is refused.

Source: MarsRL arXiv 2511.11373 (grouped agentic rollouts; solver, verifier, corrector). The role rewards themselves (a
verifier is paid for a right verdict) come in as `signals` of unit role, or on the events. ddof is not stated there; 1 and eps
1e-6 here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from counterpoint.credit.groups import Convention, convention_of
from counterpoint.credit.mechanism import Mechanism
from counterpoint.credit.rows import Key, TraceUnit, credit_of, event_unit, grouped_credit, keys_of, paid, tree_of, unit_events
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, Signals

_ESTIMAND = "(r of the stage - mean) / std over the stages that read the same input"


def _run(
    traces: Sequence[Trace],
    *,
    convention: str | Convention = "grpo",
    key: Key = "task_id",
    channel: str = "team",
    signals: Signals | None = None,
    singleton: str | None = None,
    sample: Callable[[Event], Hashable] | None = None,
) -> Credit:
    units = [unit_events(t, "role") for t in traces]
    pay = paid(traces, units, "role", channel=channel, signals=signals)
    tree = tree_of(traces, keys_of(traces, key), [0.0] * len(traces), sample)
    kept = [
        i for i in tree.first_steps() if traces[tree.steps[i].trace].events[tree.steps[i].place].role in pay[tree.steps[i].trace]
    ]
    rows, values, keys = [], [], []
    for step in (tree.steps[i] for i in kept):
        event = traces[step.trace].events[step.place]
        rows.append(TraceUnit(step.trace, event_unit(event), event.id))
        values.append(pay[step.trace][event.role or ""])
        keys.append((step.parent, event.role))
    how = convention_of(convention, singleton=singleton)
    credit = grouped_credit("marsrl", _ESTIMAND, traces, rows, values, keys, how)
    amount = {(r.trace, r.unit_id): r.value for r in credit.rows}
    of_node = {tree.steps[i].node: amount.get((r.trace, r.unit_id)) for i, r in zip(kept, rows, strict=True)}
    out, refused = [], {}
    for step in tree.steps:
        event = traces[step.trace].events[step.place]
        if (value := of_node.get(step.node)) is not None:
            out.append((TraceUnit(step.trace, event_unit(event), event.id), value))
        elif step.node in of_node:
            refused[step.trace, event.id] = "nobody else read the same input"
    return credit_of("marsrl", _ESTIMAND, traces, out, notes=credit.notes, unidentified=refused)


marsrl = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="steps of a group are samples of one policy on one input; one step per role and stage",
    cost="several samples per stage input (8 in the paper)",
    additive=False,
    source="MarsRL, arXiv 2511.11373",
    run=_run,
    needs=("group", "contents"),
    example=lambda: Example(rollouts()),
)
