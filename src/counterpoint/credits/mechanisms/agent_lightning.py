"""Agent Lightning: one advantage per rollout over the rollouts of a task, copied to all of its transitions.

    A_i = (R_i - mean) / (std + 1e-6) over ROLLOUTS;   weight of a token: 1 / (tokens of its rollout x transitions)

Always true: a rollout counts once in the statistics, however many transitions it has. Normalising over transitions instead
would pull the baseline towards long rollouts. The notes hold the divisor of each transition where its tokens are recorded.

Source: Agent Lightning arXiv 2508.03680, code v1.0 (`per_rollout_mean`). A transition is a turn: one call of the trained
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from counterpoint.credits.groups import Floats
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.mechanisms.group_relative import broadcast, group_relative
from counterpoint.credits.rows import unit_events
from counterpoint.credits.shared_options import GroupConvention, GroupKey, Singleton, Unit
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit


def token_divisors(rollouts: ArrayLike, tokens: ArrayLike) -> Floats:
    """(rows,) tokens of the row's rollout times the rows of the batch."""
    code = np.unique(np.asarray(rollouts), return_inverse=True)[1]
    own: Floats = np.bincount(code, np.asarray(tokens, np.float64)).astype(np.float64)
    return own[code] * len(code)


def _agent_lightning_credit(
    traces: Sequence[Trace],
    *,
    convention: GroupConvention = "verl",
    unit: Unit = "turn",
    key: GroupKey = "task_id",
    channel: Channel = "team",
    singleton: Singleton = None,
) -> Credit:
    credit = group_relative(traces, convention=convention, key=key, channel=channel, singleton=singleton)
    credit = broadcast(credit.renamed("agent_lightning"), traces, unit)
    units = [unit_events(t, unit) for t in traces]
    tokens = [sum(traces[i].events[k].tokens_out or 0 for k in places) for i, own in enumerate(units) for places in own.values()]
    rollouts = [i for i, own in enumerate(units) for _ in own]
    names = [f"{traces[i].trace_id} {name}" for i, own in enumerate(units) for name in own]
    divisors = token_divisors(rollouts, tokens).tolist() if tokens else []
    known = {name: d for name, d in zip(names, divisors, strict=True) if d > 0}
    return replace(credit, notes={**credit.notes, "token_divisors": known})


agent_lightning = Mechanism(
    unit="turn",
    estimand="(R_i - mean) / (std + eps) over rollouts, copied to every transition",
    assumptions="every transition of a rollout has the same reward",
    cost="nothing beyond several traces per task",
    additive=False,
    source="Agent Lightning, arXiv 2508.03680; code v1.0",
    run=_agent_lightning_credit,
    needs=("group",),
    example=lambda: Example(rollouts()),
)
