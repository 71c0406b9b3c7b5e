"""CollabUIAgents: a critic scores every step; a better and a worse step at one place make a preference pair.

    credit of a step = the critic's score        pair (a, b): the same place, score a > score b

Always true: a pair is of one task, one role, one item and one place in the order of that role's steps on the item; where the
critic says the same everywhere there is no pair. The notes hold the pairs as "trace event", better first, as those of `malt`
do.

The critic is `critic(trace, event)` -> score or None, or the scores logged on the events (R4, R2 or R6, the first that an
event has).

Source: CollabUIAgents arXiv 2502.14496 (abstract). Departure: there a model makes the worse step up; here it is one that was
played at the same place in another rollout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, credit_of, event_unit, steps_of
from counterpoint.credits.shared_options import PaidSignals
from counterpoint.errors import NotIdentified
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "the critic's score of the step"
_CHANNELS = ("R4", "R2", "R6")


def pairs_of(scores: Sequence[tuple[str, float]]) -> list[tuple[str, str]]:
    """(better, worse) names among the steps at one place."""
    return [(a, b) for a, x in scores for b, y in scores if x > y]


def _logged(event: Event) -> float | None:
    return next((float(event.reward[c]) for c in _CHANNELS if event.reward and c in event.reward), None)


def _step_pairs_credit(
    traces: Sequence[Trace],
    *,
    critic: Callable[[Trace, Event], float | None] | None = None,
    signals: PaidSignals = None,
) -> Credit:
    paid: dict[tuple[str, str], float] = {}
    if signals is not None:
        names = (signals.trace_ids[i] for i in signals.trace.tolist())
        paid = dict(zip(zip(names, signals.unit_ids, strict=True), signals.values.tolist(), strict=True))
    rows: list[tuple[TraceUnit, float]] = []
    places: dict[Hashable, list[tuple[str, float]]] = {}
    for i, trace in enumerate(traces):
        nth: Counter[Hashable] = Counter()
        for event in (trace.events[k] for k in steps_of(trace)):
            if signals is not None:
                score = paid.get((trace.trace_id, event.id))
            else:
                score = critic(trace, event) if critic is not None else _logged(event)
            if score is None:
                continue
            place = (trace.task_id, event.role or event.agent, event.type, event.task)
            rows.append((TraceUnit(i, event_unit(event), event.id), float(score)))
            places.setdefault((*place, nth[place]), []).append((f"{trace.trace_id} {event.id}", float(score)))
            nth[place] += 1
    if not rows:
        raise NotIdentified("no step has a score", "give a critic, or traces with step rewards", where=traces[0].trace_id)
    pairs = [pair for scores in places.values() for pair in pairs_of(scores)]
    return credit_of("step_pairs", _ESTIMAND, traces, rows, notes={"pairs": pairs})


step_pairs = Mechanism(
    sees="item",
    unit="message",
    estimand=_ESTIMAND,
    assumptions="steps at one place are alternatives; the critic's scores of them are comparable",
    cost="one score of the critic per step",
    additive=False,
    source="CollabUIAgents, arXiv 2502.14496 (from the abstract)",
    run=_step_pairs_credit,
    needs=("critic, unless steps are scored",),
    example=lambda: Example(rollouts()),
    live={"critic": "task:reward"},
)
