"""R4, process reward: each turn is paid by a process model, by logged amounts, or by the gain of a potential.

Always true: rows of unit turn (`agent#turn`), one per turn that was scored; the amounts of a turn's events add up. An event
without a turn number belongs to no turn and gives no row. With `potential` the pay is shaping, F_t = gamma Phi_t - Phi_(t-1)
over the scored events in the story's order (Ng, Harada, Russell 1999): it telescopes, so steps that only pad earn nothing in
sum. A potential is a channel of logged values, or a callable (trace, event) -> value of the state after the event. FoldGRPO's
turn penalties (arXiv 2510.11967) are `_published_steps.fold_process`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from counterpoint.errors import InputError
from counterpoint.reward.logged import Judge, amounts, chosen, gathered, turn_of
from counterpoint.reward.reward import Reward
from counterpoint.reward.shaping import shaping
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal

_STEPS = ("orchestrator_decision", "message", "tool_call", "aggregate", "return")


def _judged(trace: Trace, judge: Judge, types: Sequence[str]) -> list[tuple[Event, float]]:
    return [(e, float(score)) for e in chosen(trace, types) if (score := judge(trace, e)) is not None]


def _score(
    trace: Trace,
    *,
    model: Judge | None = None,
    channel: str = "R4",
    potential: str | Judge | None = None,
    first: float = 0.0,
    gamma: float = 1.0,
    ends_at_zero: bool = False,
    types: Sequence[str] = _STEPS,
) -> Iterator[Signal]:
    if model is not None and potential is not None:
        raise InputError("a step is paid by a model or by a potential, not both", fix="give one; combine them with hybrid")
    if potential is not None:
        valued = amounts(trace, [potential]) if isinstance(potential, str) else _judged(trace, potential, types)
        shaped = shaping([v for _, v in valued], first=first, gamma=gamma, ends_at_zero=ends_at_zero)
        paid = [(e, float(f)) for (e, _), f in zip(valued, shaped, strict=True)]
    else:
        paid = amounts(trace, [channel]) if model is None else _judged(trace, model, types)
    for turn, value in gathered(((turn_of(e), amount) for e, amount in paid), "sum").items():
        yield Signal("turn", turn, "R4", value)


process = Reward(
    family="R4",
    unit="turn",
    source="survey 2605.02801, section 3; shaping: Ng, Harada, Russell 1999",
    score=_score,
    example=lambda: Example(rollouts()),
)
