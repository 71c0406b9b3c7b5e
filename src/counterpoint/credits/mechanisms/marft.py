"""MARFT: GAE over agents in turn; after an agent's action comes the next agent's action of the same step.

    chain: step 1 agent 1, step 1 agent 2, ..., step 2 agent 1, ...      A as in GAE over that chain

Always true: the chain of a trace is its actions in order, whoever takes them; the reward stands where the events say, or on
the last action. `normalise` uses mean and std (ddof 0, eps 1e-8) of the entries that are not exactly 0, applied to all, as
released.

Source: MARFT arXiv 2504.16129; official code (action level; gamma 0.99, lambda 0.95). Departure: one row per agent and
action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from counterpoint.credits import advantages
from counterpoint.credits.example import running_mean
from counterpoint.credits.groups import Floats, whiten
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, actions, credit_of, event_unit, paid_steps, values_of
from counterpoint.credits.shared_options import LAMBDA, VALUE, Discount
from counterpoint.options import Channel, Share
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "A: GAE over the chain of agents"


def non_zero_normalised(advantages: ArrayLike) -> Floats:
    """(A - mean) / (std + 1e-8) with the statistics of the non-zero entries; as they are when fewer than two differ from 0."""
    a = np.asarray(advantages, np.float64)
    if (a != 0).sum() < 2:
        return a
    return whiten(a, over=a != 0, ddof=0, eps=1e-8, eps_at="add")


def _marft_credit(
    traces: Sequence[Trace],
    *,
    value: Annotated[Callable[[Trace], Any] | None, VALUE] = None,
    gamma: Discount = 0.99,
    lam: Annotated[Share, LAMBDA] = 0.95,
    normalise: bool = True,
    channel: Channel = "team",
) -> Credit:
    rows, rewards, values, segments = [], [], [], []  # type: list[TraceUnit], list[float], list[float], list[int]
    for i, trace in enumerate(traces):
        critic, own = values_of(trace, value, "a critic (value=)"), actions(trace)
        rewards += paid_steps(trace, [[p] for p in own], channel)
        values += [float(critic[trace.events[p].id]) for p in own]
        rows += [TraceUnit(i, event_unit(trace.events[p]), trace.events[p].id) for p in own]
        segments += [i] * len(own)
    amounts, _ = advantages.gae(rewards, values, segments=segments, gamma=gamma, lam=lam)
    if normalise:
        amounts = non_zero_normalised(amounts)
    notes = {"gamma": gamma, "lam": lam, "normalise": normalise}
    return credit_of("marft", _ESTIMAND, traces, zip(rows, amounts.tolist(), strict=True), notes=notes)


marft = Mechanism(
    sees="round",
    unit="message",
    estimand=_ESTIMAND,
    assumptions="agents act one after another; the critic is right on average",
    cost="a critic",
    additive=False,
    source="MARFT, arXiv 2504.16129; official code",
    run=_marft_credit,
    needs=("critic",),
    example=lambda: Example(rollouts(), {"value": running_mean}),
    relative=True,
    live={"value": "task:value_before"},
)
