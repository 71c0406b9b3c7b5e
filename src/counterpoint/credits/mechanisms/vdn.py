"""VDN: the team's value as a plain sum of the agents' own values.

    Q_tot = sum_i Q_i        every agent moves Q_tot by exactly its own Q

Always true: the rows of a trace sum to Q_tot, which the notes compare with the reward (`residual` = R - Q_tot). The agents'
values come from a critic, `q(trace)` by agent; an agent without a value is one clear error, since a sum with a hole in it is
no sum.

Source: VDN arXiv 1706.05296; pymarl. Departure: only the decomposition; fitting Q is the trainer's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import numpy as np

from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, credit_of, unit_events
from counterpoint.credits.shared_options import Q
from counterpoint.errors import InputError, NotIdentified
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "Q_i, the agent's summand of Q_tot"


def agent_values(trace: Trace, q: Callable[[Trace], Mapping[str, float]] | None) -> dict[str, float]:
    """Agent to its value, for every agent that acts."""
    if q is None:
        raise NotIdentified("the agents' own values are not in a trace", "give q=, a function: trace -> value by agent")
    values, agents = q(trace), list(unit_events(trace, "agent"))
    for name in agents:
        if name not in values:
            raise InputError(f"q has no value for agent {name!r}", where=trace.trace_id, fix="one number per agent that acts")
    return {name: float(values[name]) for name in agents}


def _vdn_credit(
    traces: Sequence[Trace],
    *,
    q: Annotated[Callable[[Trace], Mapping[str, float]] | None, Q] = None,
    channel: Channel = "team",
) -> Credit:
    values = [agent_values(t, q) for t in traces]
    total = np.array([sum(v.values()) for v in values])
    residual = [t.rewards[channel] - float(s) if channel in t.rewards else None for t, s in zip(traces, total, strict=True)]
    rows = [(TraceUnit(i, "agent", name), v) for i, own in enumerate(values) for name, v in own.items()]
    return credit_of("vdn", _ESTIMAND, traces, rows, declared=total, notes={"residual": residual})


def _example() -> Example:
    """Every agent is worth 0.1 for each letter of its name."""
    return Example(rollouts(), {"q": lambda trace: {name: 0.1 * len(name) for name in trace.agents}})


vdn = Mechanism(
    sees="round",
    unit="agent",
    estimand=_ESTIMAND,
    assumptions="the team's value is a sum of the agents' values",
    cost="a critic per agent",
    additive=True,
    source="VDN, arXiv 1706.05296; pymarl",
    run=_vdn_credit,
    needs=("critic",),
    example=_example,
    from_rows=True,
)
