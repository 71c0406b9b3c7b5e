"""R5, tool use: pay each successful call, charge each failed one; if asked, only where the team succeeded.

Always true: one row of unit tool per call whose success is known (the call's own `ok`, else that of every result it got; an
`error` is a failure); a call that nothing answered has no row.

`given_outcome` pays a success only in a trace whose team reward is above `threshold` (0 otherwise), so that calls which
helped nobody earn nothing; in a trace without that reward a success has no row. `price` is charged for every scored call, the
answer to tool spam. `logged` takes the amounts that the trace logged in channel R5 instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from counterpoint.rewards.reward import Reward, results_of, succeeded
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal


def _logged(call: Event, results: Sequence[Event]) -> float | None:
    paid = [float(e.reward["R5"]) for e in (call, *results) if e.reward and "R5" in e.reward]
    return sum(paid) if paid else None


def _tool_use_signals(
    trace: Trace,
    *,
    success: float = 1.0,
    failure: float = -0.5,
    price: float = 0.0,
    given_outcome: bool = False,
    threshold: float = 0.0,
    logged: bool = False,
) -> Iterator[Signal]:
    answers = results_of(trace) if trace.events else {}
    team = trace.rewards.get("team")
    for call in trace.events:
        if call.type != "tool_call":
            continue
        if logged:
            value = _logged(call, answers[call.id])
        else:
            ok = succeeded(call, answers[call.id])
            value = None if ok is None else success if ok else failure
            if ok and given_outcome:
                value = None if team is None else success if team > threshold else 0.0
        if value is not None:
            yield Signal("tool", call.id, "R5", value - price)


tool_use = Reward(
    family="R5",
    unit="tool",
    source="survey 2605.02801, section 3",
    score=_tool_use_signals,
    example=lambda: Example(rollouts()),
)
