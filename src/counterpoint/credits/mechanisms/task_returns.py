"""Lambda returns along each task's own chain of calls: a call answers for its task, and for nothing else.

    A_k = sum_j lam^j d_{k+j},   d_k = r_k + W_{k+1} - W_k       along the calls on one task, in the order of time
    left_k = A_k - (Q_k - V_k)                                    what the brief and the agent made of it, where Q and V are given

Always true: nothing flows between tasks: the chain of a task is the causal cone of a call in a team whose tasks do not read each
other. A step that was forbidden to leave its task counts as left, which is worth 0, with the chance that it would have been.

The cone of `cone` (arXiv 1506.02438 is its chain case) where each event belongs to one task. What a call earned is in no trace
unless its events carry rewards, so a simulator that knows better gives `steps`; the flagship preset does, and its fast path on
rollout rows (`lab/train/returns.py`) is held to this mechanism by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import numpy as np

from counterpoint.credits.advantages import leaving_gae
from counterpoint.credits.example import running_mean
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, actions, credit_of, event_unit, paid_steps, values_of
from counterpoint.credits.shared_options import LAMBDA, VALUE
from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "A_k: lambda return of the call along its own task, less the critic before it"


class Step(NamedTuple):
    """One decision on a task."""

    event: str
    """The id of the event that it made; empty where it made none (a task that was left): it counts, and gets no row."""
    task: str
    reward: float
    value: float
    """W: what was expected of the task before the step."""
    leaves: float = 0.0
    """The chance that the task would have been left here, where that was forbidden."""
    explained: float = 0.0
    """Q - V of what was chosen: taken off where the row is to say what is left."""


def _steps(trace: Trace, value: Callable[[Trace], object] | None, channel: str) -> list[Step]:
    """The actions in the order of time, paid by the rewards of their events; those that name no task are on the trace's own."""
    critic = values_of(trace, value, "a critic (value=), or steps=")
    places = actions(trace)
    paid = paid_steps(trace, [[p] for p in places], channel)
    events = [trace.events[p] for p in places]
    return [Step(e.id, e.task or "", r, float(critic[e.id])) for e, r in zip(events, paid, strict=True)]


def _task_returns_credit(
    traces: Sequence[Trace],
    *,
    value: Annotated[Callable[[Trace], object] | None, VALUE] = None,
    steps: Callable[[Trace], Sequence[Step]] | None = None,
    lam: Annotated[float, LAMBDA] = 0.9,
    left: bool = False,
    channel: Channel = "team",
) -> Credit:
    if not 0 <= lam <= 1:
        raise InputError(f"lam is {lam}", fix="between 0 and 1")
    rows: list[tuple[TraceUnit, float]] = []
    silent = 0
    for i, trace in enumerate(traces):
        own = list(_steps(trace, value, channel) if steps is None else steps(trace))
        names = list(dict.fromkeys(s.task for s in own))
        own.sort(key=lambda s: names.index(s.task))  # stable: the order of time within a task
        columns = ([getattr(s, name) for s in own] for name in ("reward", "value", "leaves"))
        returns, _ = leaving_gae(*columns, segments=[names.index(s.task) for s in own], lam=lam)
        amounts = returns - np.array([s.explained for s in own]) if left else returns
        units = {e.id: event_unit(e) for e in trace.events}
        for step, amount in zip(own, amounts.tolist(), strict=True):
            if step.event in units:
                rows.append((TraceUnit(i, units[step.event], step.event), amount))
            elif step.event:
                raise InputError(f"a step names event {step.event!r}, which does not exist", where=trace.trace_id)
            silent += not step.event
    return credit_of("task_returns", _ESTIMAND, traces, rows, notes={"lam": lam, "left": left, "steps_without_event": silent})


task_returns = Mechanism(
    sees="draft",
    unit="message",
    estimand=_ESTIMAND,
    assumptions="tasks do not read each other; the critic is right on average before a step",
    cost="a critic",
    additive=False,
    source="ours; GAE, arXiv 1506.02438, along the chain of one task",
    run=_task_returns_credit,
    needs=("critic",),
    example=lambda: Example(rollouts(), {"value": running_mean}),
    from_rows=True,
)
