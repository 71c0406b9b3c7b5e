"""MATPO: planner rollouts of one task against each other; every worker inherits its planner's advantage.

    A_i = (R_i - mean) / (std + 1e-6) over planner rollouts;    a worker of rollout i gets A_i

Always true: workers never enter the statistics, so a planner with many workers weighs no more than one with none; all agents
of a rollout have one credit. A group of one keeps its raw reward, as verl does (`singleton` changes it).

Source: MATPO arXiv 2510.04678; official code. Departure: the scalar is copied and each worker keeps its own mask; the
released code copies the planner's masked tensor, which silences workers where the planner has tool output.
"""

from __future__ import annotations

from collections.abc import Sequence

from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.mechanisms.group_relative import broadcast, group_relative
from counterpoint.credits.shared_options import GroupConvention, GroupKey, Singleton
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit


def _matpo_credit(
    traces: Sequence[Trace],
    *,
    convention: GroupConvention = "verl",
    key: GroupKey = "task_id",
    channel: Channel = "team",
    singleton: Singleton = None,
) -> Credit:
    credit = group_relative(traces, convention=convention, key=key, channel=channel, singleton=singleton)
    return broadcast(credit.renamed("matpo"), traces, "agent")


matpo = Mechanism(
    unit="agent",
    estimand="(R_i - mean) / (std + eps) of the planner's rollouts, copied to its workers",
    assumptions="one policy plays planner and workers",
    cost="nothing beyond several traces per task",
    additive=False,
    source="MATPO, arXiv 2510.04678; official code, defect mended",
    run=_matpo_credit,
    needs=("group",),
    example=lambda: Example(rollouts()),
)
