"""COMA: the value of what an agent did minus the average value of what it might have done, others held fixed.

    A = Q(s, u) - sum_a pi(a) Q(s, (u_-i, a))

Always true: E_pi[A] = 0 at every decision, whatever Q. Q comes from a critic (`q(trace)` gives, by event id, an array along
the event's options); pi from `pi(trace)` in the same form. An event without options, without Q or without pi is refused.

Source: COMA arXiv 1705.08926; pymarl. Departure: the chosen option is read from the event (`extra["chosen"]`, else its
decision).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from counterpoint.credits.groups import Floats
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, actions, credit_of, event_unit, values_of
from counterpoint.credits.shared_options import Q
from counterpoint.errors import InputError
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "Q(s, u) - sum_a pi(a) Q(s, (u_-i, a))"


def counterfactual_advantages(q: ArrayLike, pi: ArrayLike) -> Floats:
    """A of every action: Q - sum_a pi(a) Q(a) along the last axis."""
    q_A, pi_A = np.asarray(q, np.float64), np.asarray(pi, np.float64)
    if q_A.shape != pi_A.shape or (pi_A < 0).any() or not np.allclose(pi_A.sum(-1), 1.0, rtol=0, atol=1e-6):
        raise InputError("pi is a distribution over the same actions as q")
    return q_A - (pi_A * q_A).sum(-1, keepdims=True)


def _chosen(event: Event) -> int | None:
    options = event.options or []
    for name in ((event.extra or {}).get("chosen"), event.decision):
        if name in options:
            return options.index(name)
    return None


def _coma_credit(
    traces: Sequence[Trace],
    *,
    q: Annotated[Callable[[Trace], Mapping[str, Any]] | None, Q] = None,
    pi: Callable[[Trace], Mapping[str, Any]] | None = None,
    chosen: Callable[[Event], int | None] = _chosen,
) -> Credit:
    rows: list[tuple[TraceUnit, float]] = []
    refused: dict[tuple[int, str], str] = {}
    for i, trace in enumerate(traces):
        q_of = values_of(trace, q, "a critic over the options of each decision (q=)")
        pi_of = values_of(trace, pi, "the policy's probabilities of the options (pi=)")
        for event in (trace.events[k] for k in actions(trace)):
            if not event.options:
                continue
            place = chosen(event)
            if place is None or event.id not in q_of or event.id not in pi_of:
                missing = "which option was taken" if place is None else "Q" if event.id not in q_of else "pi"
                refused[i, event.id] = f"not known: {missing}"
                continue
            advantages = counterfactual_advantages(q_of[event.id], pi_of[event.id])
            if len(advantages) != len(event.options):
                raise InputError(
                    f"{len(advantages)} values for {len(event.options)} options", where=f"{trace.trace_id} {event.id}"
                )
            rows.append((TraceUnit(i, event_unit(event), event.id), float(advantages[place])))
    return credit_of("coma", _ESTIMAND, traces, rows, unidentified=refused, fix="record options and the chosen one")


def _example() -> Example:
    """A critic to whom the first option is worth 1 and the others nothing, and a policy that takes each as often."""
    choices = lambda trace: ((e.id, len(e.options)) for e in trace.events if e.options)  # noqa: E731
    return Example(
        rollouts(),
        {
            "q": lambda trace: {at: [1.0] + [0.0] * (n - 1) for at, n in choices(trace)},
            "pi": lambda trace: {at: [1 / n] * n for at, n in choices(trace)},
        },
    )


coma = Mechanism(
    sees="round",
    unit="orchestrator",
    estimand=_ESTIMAND,
    assumptions="Q is right; the options are all that could have been done",
    cost="a critic over options",
    additive=False,
    source="COMA, arXiv 1705.08926; pymarl",
    run=_coma_credit,
    needs=("critic", "options"),
    example=_example,
    from_rows=True,
)
