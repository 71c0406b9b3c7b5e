"""Credit of events spread over the tokens they wrote: weights that sum to 1, rounding to the last token.

    c_j = c_event w_j,   w_j >= 0,   sum_j w_j = 1

Always true: the tokens of an event sum to the event's credit. An event that does not say how many tokens it wrote is refused
by name (a credit on it would be lost in silence), and so is one that wrote none.

Source: survey section 4, token unit; every broadcast of the formula sheet is this with `weights="last"` or the event's credit
undivided. `credit` is the credit of any mechanism with rows per event (message, tool, orchestrator decision); rows of other
units are left out, and credit that has no others is refused. `lost_credit` in the notes is what events without tokens had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.mechanisms.message_masked import message_masked
from counterpoint.credits.mechanisms.uniform import shares
from counterpoint.credits.rows import TraceUnit, credit_of
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "the event's credit times the token's weight"


def _weights(event: Event, n: int, weights: str | Callable[[Event], Sequence[float]]) -> Sequence[float]:
    if weights == "even":
        return [1.0] * n
    if weights == "last":
        return [0.0] * (n - 1) + [1.0]
    if isinstance(weights, str):
        raise InputError(f"no weights {weights!r}", fix="even, last, or a function of an event")
    some = [float(w) for w in weights(event)]
    if len(some) != n or not all(math.isfinite(w) and w >= 0 for w in some) or not any(some):
        raise InputError(f"{len(some)} weights for {n} tokens of event {event.id!r}", fix="one per token, at least 0, not all 0")
    return some


def _token_spread_credit(
    traces: Sequence[Trace], *, credit: Credit | None = None, weights: str | Callable[[Event], Sequence[float]] = "even"
) -> Credit:
    if credit is None:
        raise NotIdentified("there is nothing to spread", "give credit=, a mechanism with rows per event: --set credit=ledger")
    if credit.trace_ids != tuple(t.trace_id for t in traces):
        raise InputError("the credit is of other traces", fix="give the traces that it was computed from, in that order")
    rows: list[tuple[TraceUnit, float]] = []
    refused: dict[tuple[int, str], str] = {}
    declared, left_out = np.zeros(len(traces)), 0.0
    for row in credit.rows:
        place = traces[row.trace].index.get(row.unit_id) if row.unit in ("message", "tool", "orchestrator") else None
        if place is None:
            continue
        event = traces[row.trace].events[place]
        if not event.tokens_out:
            refused[row.trace, event.id] = "the event wrote no tokens" if event.tokens_out == 0 else "tokens_out is not recorded"
            left_out += row.value
            continue
        parts = shares(row.value, _weights(event, event.tokens_out, weights))
        declared[row.trace] += row.value
        rows += [(TraceUnit(row.trace, "token", f"{event.id}#{j}"), part) for j, part in enumerate(parts)]
    if credit.rows and not (rows or refused):
        units = ", ".join(sorted({row.unit for row in credit.rows}))
        raise NotIdentified(f"{credit.mechanism} has rows per {units}, none per event", "credit= of a mechanism that has")
    notes = {"of": credit.mechanism, "weights": weights if isinstance(weights, str) else "given", "lost": len(refused)}
    notes |= {"lost_credit": left_out} if refused else {}
    return credit_of(
        "token_spread", _ESTIMAND, traces, rows, declared=declared, unidentified=refused, notes=notes, fix="record tokens_out"
    )


def _example() -> Example:
    """The masked value of every message, over its four tokens."""
    traces = rollouts()
    return Example(traces, {"credit": message_masked(traces)})


token_spread = Mechanism(
    unit="token",
    estimand=_ESTIMAND,
    assumptions="tokens_out counts the tokens that the event's agent wrote",
    cost="nothing beyond the credit that is spread",
    additive=True,
    source="survey arXiv 2605.02801, section 4: the token unit",
    run=_token_spread_credit,
    needs=("credit", "tokens"),
    fallback={"credit": "ledger"},
    example=_example,
)
