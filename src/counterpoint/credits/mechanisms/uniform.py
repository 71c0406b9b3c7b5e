"""Even shares: the team's reward split equally, or by tokens, among agents, roles, turns, messages or tools.

    c_u = R w_u / sum w        w_u = 1, or the tokens that u wrote

Always true: the shares of a trace sum to its team reward, to the last bit that a float has; nobody is judged, so this is the
floor that any other mechanism has to beat. A trace in which no such unit acts has no rows.

Source: the shared outcome of survey section 4 as an exact partition; departures: none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.rows import TraceUnit, credit_of, unit_events
from counterpoint.credits.shared_options import Unit
from counterpoint.errors import InputError, NotIdentified
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "R / n: an equal part of the team reward"


def shares(amount: float, weights: Sequence[float]) -> list[float]:
    """The amount split by non-negative weights; what rounding leaves over goes to the last."""
    total = math.fsum(weights)
    if not weights or not math.isfinite(total) or min(weights) < 0 or total <= 0:
        raise InputError("weights are finite, at least 0 and not all 0")
    out = [amount * (w / total) for w in weights[:-1]]
    return [*out, amount - math.fsum(out)]


def _uniform_credit(traces: Sequence[Trace], *, unit: Unit = "agent", by: str = "equal", channel: Channel = "team") -> Credit:
    if by not in ("equal", "tokens"):
        raise InputError(f"no weight {by!r}", fix="equal or tokens")
    rows: list[tuple[TraceUnit, float]] = []
    for i, trace in enumerate(traces):
        units = unit_events(trace, unit)
        if not units:
            continue
        weights = [1.0] * len(units)
        if by == "tokens":
            weights = [float(sum(trace.events[k].tokens_out or 0 for k in own)) for own in units.values()]
            if not any(weights):
                raise NotIdentified(
                    "no event says how many tokens it wrote", "record tokens_out, or by='equal'", where=trace.trace_id
                )
        parts = shares(team_reward(trace, channel), weights)
        rows += [(TraceUnit(i, unit, name), part) for name, part in zip(units, parts, strict=True)]
    declared = np.array([team_reward(t, channel) for t in traces])
    return credit_of("uniform", _ESTIMAND, traces, rows, declared=declared, notes={"unit": unit, "by": by})


uniform = Mechanism(
    unit="agent",
    estimand=_ESTIMAND,
    assumptions="none; it makes no claim about who did what",
    cost="nothing",
    additive=True,
    source="shared team outcome (arXiv 2605.02801, section 4); an exact partition of it",
    run=_uniform_credit,
    example=lambda: Example(rollouts()),
)
