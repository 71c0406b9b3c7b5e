"""Group-relative credit: a rollout against the others of its task, by GRPO's formula or any peer's convention.

    A_i = (R_i - mean(R)) / (std(R) + eps)        every unit of rollout i gets A_i

Always true: only traces of one group are compared; the notes list every group, its members and the convention. Where the
baseline is the group's mean, the A of a group sum to 0. A group of one does what the convention says: by default it is
refused.

Sources: GRPO arXiv 2402.03300 (ddof and eps as in verl), Dr. GRPO 2503.20783, RLOO 2402.14740, SoftRankPO 2509.03817
(`soft_rank`, our reconstruction), and the code of verl, TRL, rLLM, OpenRLHF, C3, prime-rl, torchrl. Departure: a group of one
is refused unless the named code base does otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from counterpoint.credits.groups import convention_of, group_codes, soft_rank
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.rows import ALONE, ALONE_FIX, TraceUnit, credit_of, grouped_credit, keys_of, unit_events
from counterpoint.credits.shared_options import DDOF, EPS, GroupConvention, GroupKey, Singleton, Unit
from counterpoint.options import Channel, PositiveInt
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "(R_i - mean of the group) / std of the group: how much better than the same task's other rollouts"


def broadcast(credit: Credit, traces: Sequence[Trace], unit: str) -> Credit:
    """Team rows copied to every unit of their trace."""
    of_trace = {row.trace: row.value for row in credit.rows}
    rows = [(TraceUnit(i, unit, name), a) for i, a in of_trace.items() for name in unit_events(traces[i], unit)]
    refused = {(i, n): why for (i, _), why in credit.unidentified.items() for n in unit_events(traces[i], unit)}
    name, what, notes = credit.mechanism, credit.estimand, credit.notes
    return credit_of(name, what, traces, rows, why_not=ALONE, fix=ALONE_FIX, notes=notes, unidentified=refused)


def _group_relative_credit(
    traces: Sequence[Trace],
    *,
    convention: GroupConvention = "grpo",
    unit: Unit = "team",
    key: GroupKey = "task_id",
    channel: Channel = "team",
    size: PositiveInt | None = None,
    ddof: Annotated[int | None, DDOF] = None,
    eps: Annotated[float | None, EPS] = None,
    singleton: Singleton = None,
    tau: float = 0.1,
) -> Credit:
    rows = [TraceUnit(i, "team", "") for i in range(len(traces))]
    rewards, keys = [team_reward(t, channel) for t in traces], keys_of(traces, key)
    ranked = convention == "soft_rank"
    how = convention_of("reinforce" if ranked else convention, ddof=ddof, eps=eps, singleton=singleton)
    name = convention if isinstance(convention, str) else "custom"
    credit = grouped_credit("group_relative", _ESTIMAND, traces, rows, rewards, keys, how, size=size, notes={"convention": name})
    if ranked:
        _, amounts = soft_rank(rewards, group_codes(keys)[0], tau=tau)
        notes = {"convention": name, "tau": tau, "groups": credit.notes["groups"], "compared": credit.notes["compared"]}
        pairs = zip(rows, amounts.tolist(), strict=True)
        credit = credit_of("group_relative", _ESTIMAND, traces, pairs, why_not=ALONE, fix=ALONE_FIX, notes=notes)
    return broadcast(credit, traces, unit)


group_relative = Mechanism(
    unit="team",
    estimand=_ESTIMAND,
    assumptions="traces of a group are independent rollouts of one policy on one task",
    cost="nothing beyond several traces per task",
    additive=False,
    source="GRPO (arXiv 2402.03300) and its variants by name; see the module",
    run=_group_relative_credit,
    needs=("group",),
    example=lambda: Example(rollouts()),
)
