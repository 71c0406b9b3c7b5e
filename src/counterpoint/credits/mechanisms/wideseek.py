"""WideSeek-R1: one advantage per rollout for every agent; agents weigh the same, tokens too inside an agent.

    A_i = (R_i - mean) / (std + 1e-6);    a token of agent a weighs 1 / (N_i x tokens of a)

Always true: the token weights of a rollout sum to 1, so that a wide team weighs no more than a narrow one. The notes hold the
weight of one token by trace and agent; an agent whose tokens are not recorded has none.

Source: WideSeek-R1 arXiv 2602.04634; RLinf code (G = 8, ddof 1, eps 1e-6). Departure: which turns train on failure is the
trainer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.mechanisms.group_relative import broadcast, group_relative
from counterpoint.credits.rows import unit_events
from counterpoint.credits.shared_options import GroupConvention, GroupKey, Singleton
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit


def agent_token_weights(tokens: Sequence[float]) -> list[float]:
    """The weight of one token of each agent of a rollout, from the tokens each wrote; agents without tokens have 0."""
    writers = sum(t > 0 for t in tokens)
    return [1 / (writers * t) if t > 0 else 0.0 for t in tokens]


def _wideseek_credit(
    traces: Sequence[Trace],
    *,
    convention: GroupConvention = "rlinf",
    key: GroupKey = "task_id",
    channel: Channel = "team",
    singleton: Singleton = None,
) -> Credit:
    credit = group_relative(traces, convention=convention, key=key, channel=channel, singleton=singleton)
    credit = broadcast(credit.renamed("wideseek"), traces, "agent")
    weights = {}
    for trace in traces:
        own = unit_events(trace, "agent")
        tokens = [float(sum(trace.events[k].tokens_out or 0 for k in places)) for places in own.values()]
        weights[trace.trace_id] = {n: w for n, w in zip(own, agent_token_weights(tokens), strict=True) if w > 0}
    return replace(credit, notes={**credit.notes, "token_weights": weights})


wideseek = Mechanism(
    unit="agent",
    estimand="(R_i - mean) / (std + eps) of the rollout, for every agent",
    assumptions="lead and sub-agents share one policy and one outcome",
    cost="nothing beyond several traces per task",
    additive=False,
    source="WideSeek-R1, arXiv 2602.04634; RLinf code",
    run=_wideseek_credit,
    needs=("group",),
    example=lambda: Example(rollouts()),
)
