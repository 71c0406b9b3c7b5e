"""ReMA: the summed rewards of a dialogue's turns, normalised over the task's rollouts, for both roles alike.

    A_i = (sum_t r_it - mean) / (std + 1e-6)        every turn of every role gets A_i

Always true: all turns of a rollout have one credit. Turn rewards are those on the events, else the team's reward (the last
turn's). The loss that goes with it clips the geometric-mean ratio of a turn: `counterpoint.lab.train.surrogates.joined_loss`.

Source: ReMA arXiv 2503.09501; official code (ddof 1, eps 1e-6; a group of one keeps its raw reward).
"""

from __future__ import annotations

from collections.abc import Sequence

from counterpoint.credits.groups import convention_of
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.mechanisms.group_relative import broadcast
from counterpoint.credits.rows import TraceUnit, grouped_credit, keys_of, paid_steps, unit_events
from counterpoint.credits.shared_options import GroupConvention, GroupKey, Singleton
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "(sum of turn rewards - mean) / (std + eps) over the task's rollouts, copied to every turn"


def _rema_credit(
    traces: Sequence[Trace],
    *,
    convention: GroupConvention = "verl",
    key: GroupKey = "task_id",
    channel: Channel = "team",
    singleton: Singleton = None,
) -> Credit:
    totals = [sum(paid_steps(t, list(unit_events(t, "turn").values()), channel)) for t in traces]
    rows = [TraceUnit(i, "team", "") for i in range(len(traces))]
    how = convention_of(convention, singleton=singleton)
    credit = grouped_credit("rema", _ESTIMAND, traces, rows, totals, keys_of(traces, key), how)
    return broadcast(credit, traces, "turn")


rema = Mechanism(
    unit="turn",
    estimand=_ESTIMAND,
    assumptions="both roles share the outcome",
    cost="nothing beyond several traces per task",
    additive=False,
    source="ReMA, arXiv 2503.09501; official code",
    run=_rema_credit,
    needs=("group", "turns"),
    example=lambda: Example(rollouts()),
)
