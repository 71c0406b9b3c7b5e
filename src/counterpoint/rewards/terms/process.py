"""R4, process reward: each turn is paid by a process model, by logged amounts, or by the gain of a potential.

Always true: rows of unit turn (`agent#turn`), one per turn that was scored; the amounts of a turn's events add up. An event
without a turn number belongs to no turn and gives no row.

With `potential` the pay is shaping, F_t = gamma Phi_t - Phi_(t-1) over the scored events in the story's order (Ng, Harada,
Russell 1999): sum_t gamma^t F_t = gamma^T Phi_T - Phi_0 whatever was done in between, so steps that only pad earn nothing in
sum, and with the last potential at 0 no policy becomes better. A potential is a channel of logged values, or a callable
(trace, event) -> value of the state after the event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.rewards.reward import Judge, Reward, amounts, events_of_types, gathered, turn_of
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal

_STEPS = ("orchestrator_decision", "message", "tool_call", "aggregate", "return")


def shaping(
    potential_T: Sequence[float] | np.ndarray, *, first: float = 0.0, gamma: float = 1.0, ends_at_zero: bool = False
) -> np.ndarray:
    """(T,) shaping rewards of T steps: `potential_T[t]` is the potential AFTER step t, `first` the one before all.

    `ends_at_zero` puts the last potential to 0; without it the sum keeps gamma^T Phi_T, which is what pays for progress made.
    """
    after_T = np.array(potential_T, np.float64)
    if after_T.ndim != 1:
        raise InputError(f"potentials form one row, not shape {after_T.shape}")
    if not (np.isfinite(after_T).all() and np.isfinite(first)):
        raise InputError("a potential is NaN or infinite", fix="leave out the steps that were not scored")
    if not 0 <= gamma <= 1:
        raise InputError(f"gamma lies in [0, 1], not {gamma}")
    if ends_at_zero and len(after_T):
        after_T[-1] = 0.0
    before_T = np.concatenate(([first], after_T[:-1])) if len(after_T) else after_T
    return gamma * after_T - before_T


def _judged(trace: Trace, judge: Judge) -> list[tuple[Event, float]]:
    return [(e, float(score)) for e in events_of_types(trace, _STEPS) if (score := judge(trace, e)) is not None]


def _process_signals(
    trace: Trace,
    *,
    model: Judge | None = None,
    channel: Channel = "R4",
    potential: str | Judge | None = None,
    first: float = 0.0,
    gamma: float = 1.0,
    ends_at_zero: bool = False,
) -> Iterator[Signal]:
    if model is not None and potential is not None:
        raise InputError("a step is paid by a model or by a potential, not both", fix="give one; combine them with hybrid")
    if potential is not None:
        valued = amounts(trace, [potential]) if isinstance(potential, str) else _judged(trace, potential)
        shaped = shaping([v for _, v in valued], first=first, gamma=gamma, ends_at_zero=ends_at_zero)
        paid = [(e, float(f)) for (e, _), f in zip(valued, shaped, strict=True)]
    else:
        paid = amounts(trace, [channel]) if model is None else _judged(trace, model)
    for turn, value in gathered(((turn_of(e), amount) for e, amount in paid), "sum").items():
        yield Signal("turn", turn, "R4", value)


process = Reward(
    family="R4",
    unit="turn",
    source="survey 2605.02801, section 3; shaping: Ng, Harada, Russell 1999",
    score=_process_signals,
    example=lambda: Example(rollouts()),
)
