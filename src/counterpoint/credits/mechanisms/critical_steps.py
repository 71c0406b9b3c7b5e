"""PARL (Kimi K2.5): only the orchestrator earns, centred in its group, under a budget of critical steps.

    A_j = r_j - mean(r);      critical steps = sum over stages of (S_main + max_i S_sub,i)

Always true: sub-agents get no row, since they are frozen there. Critical steps are at most all steps. A trace over `budget`
is out of the group and named as refused: the budget is a constraint, not a term of the reward.

Source: Kimi K2.5 arXiv 2602.02276, PARL. Departures: nested teams count the critical steps of a sub-agent's own subtree (see
`counterpoint.trace.team`); what the paper does with an episode that is over budget is not said.
"""

from __future__ import annotations

from collections.abc import Sequence

from counterpoint.credits.groups import convention_of
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.rows import ALONE, ALONE_FIX, TraceUnit, credit_of, grouped_credit, keys_of, main_of
from counterpoint.credits.shared_options import GroupConvention, GroupKey, Singleton
from counterpoint.errors import NotIdentified
from counterpoint.options import Channel, NonNegativeInt
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit
from counterpoint.trace.team import critical_steps as steps_of
from counterpoint.trace.team import team_of

_ESTIMAND = "r - mean(r) of the task's rollouts within the budget, for the orchestrator alone"


def _critical_steps_credit(
    traces: Sequence[Trace],
    *,
    budget: NonNegativeInt | None = None,
    convention: GroupConvention = "dr_grpo",
    key: GroupKey = "task_id",
    channel: Channel = "team",
    singleton: Singleton = None,
) -> Credit:
    steps = [steps_of(team_of(t)) for t in traces]
    within = [i for i, s in enumerate(steps) if budget is None or s.critical <= budget]
    if not within:
        raise NotIdentified(f"no trace is within {budget} critical steps", "a larger budget")
    rows = [TraceUnit(i, "orchestrator", main_of(traces[i])) for i in within]
    keys = keys_of(traces, key)
    notes = {"critical": [s.critical for s in steps], "total": [s.total for s in steps], "budget": budget}
    values = [team_reward(traces[i], channel) for i in within]
    how = convention_of(convention, singleton=singleton)
    credit = grouped_credit("critical_steps", _ESTIMAND, traces, rows, values, [keys[i] for i in within], how, notes=notes)
    over = {(i, main_of(t)): f"over the budget of {budget} critical steps" for i, t in enumerate(traces) if i not in within}
    pairs = [(TraceUnit(r.trace, r.unit, r.unit_id), r.value) for r in credit.rows]
    refused = {**credit.unidentified, **over}
    about = credit.notes
    return credit_of("critical_steps", _ESTIMAND, traces, pairs, why_not=ALONE, fix=ALONE_FIX, notes=about, unidentified=refused)


critical_steps = Mechanism(
    unit="orchestrator",
    estimand=_ESTIMAND,
    assumptions="sub-agents are frozen, so that all that differs is the orchestration",
    cost="nothing beyond several traces per task",
    additive=False,
    source="Kimi K2.5 (PARL), arXiv 2602.02276",
    run=_critical_steps_credit,
    needs=("group",),
    example=lambda: Example(rollouts()),
)
