"""MALT: a step's value is the share of right answers below it; labels and preference pairs follow.

    V(step) = mean of its leaves;    right iff V > 0.5;    pairs: one right and one wrong sibling under the same prefix

Always true: 0.5 itself is wrong. Values lie between the least and the largest leaf. A pair is always (right, wrong) of one
parent and one agent. The notes hold labels and pairs as event ids, for SFT and DPO.

`leaf="better"` counts a rollout as right where its reward is above the mean of its task: for rewards that are not 0 or 1.
`by="turn"` takes all that the team did in a turn as one step; labels and pairs then name the turn.

Source: MALT arXiv 2412.01928 v3. Departures: a tree of any depth; siblings are found by content, as in `c3`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from counterpoint.credits.groups import group_advantages, group_codes
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.rows import TraceUnit, credit_of, keys_of, step_units, tree_of
from counterpoint.credits.shared_options import GroupKey, SampleOf, StepBy
from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "share of right answers among the traces that continue from the step"


def _malt_credit(
    traces: Sequence[Trace],
    *,
    threshold: float = 0.5,
    key: GroupKey = "task_id",
    channel: Channel = "team",
    sample: SampleOf = None,
    by: StepBy = "action",
    leaf: str = "reward",
) -> Credit:
    if leaf not in ("reward", "better"):
        raise InputError(f"no leaf {leaf!r}", fix="reward, or better: 1 where the reward is above the mean of the task")
    leaves, keys = [team_reward(t, channel) for t in traces], keys_of(traces, key)
    if leaf == "better":
        leaves = (group_advantages(leaves, group_codes(keys)[0], "dr_grpo") > 0).astype(np.float64).tolist()
    tree = tree_of(traces, keys, leaves, sample, by)
    rows: list[tuple[TraceUnit, float]] = []
    is_right: dict[str, bool] = {}
    for step in tree.steps:
        units = step_units(traces, step, by)
        rows += [(unit, float(tree.value_N[step.node])) for unit in units]
        is_right[f"{traces[step.trace].trace_id} {units[0].unit_id}"] = bool(tree.value_N[step.node] > threshold)
    siblings: dict[tuple[int, str], list[str]] = {}
    for step in (tree.steps[i] for i in tree.first_steps()):
        who = traces[step.trace].events[step.place].agent if by == "action" else ""
        name = f"{traces[step.trace].trace_id} {step_units(traces, step, by)[0].unit_id}"
        siblings.setdefault((step.parent, who), []).append(name)
    pairs = [(a, b) for group in siblings.values() for a, b in product(group, group) if is_right[a] and not is_right[b]]
    return credit_of("malt", _ESTIMAND, traces, rows, notes={"threshold": threshold, "right": is_right, "pairs": pairs})


malt = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="the traces below a step are independent samples; rewards are 0 or 1",
    cost="n^depth rollouts per task",
    additive=False,
    source="MALT, arXiv 2412.01928 v3",
    run=_malt_credit,
    needs=("group", "contents"),
    example=lambda: Example(rollouts()),
)
