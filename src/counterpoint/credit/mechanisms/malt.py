"""MALT: a step's value is the share of right answers below it; labels and preference pairs follow.

    V(step) = mean of its leaves;    right iff V > 0.5;    pairs: one right and one wrong sibling under the same prefix

Always true: 0.5 itself is wrong. Values lie between the least and the largest leaf. A pair is always (right, wrong) of one
parent and one agent. The notes hold labels and pairs as event ids, for SFT and DPO (`counterpoint.train.objectives.dpo`).
Source: MALT arXiv 2412.01928 v3. Departures: a tree of any depth; siblings are found by content, as in `c3`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from counterpoint.credit.groups import Floats
from counterpoint.credit.mechanism import Mechanism, team_reward
from counterpoint.credit.prefix_tree import tree_of
from counterpoint.credit.rows import Key, TraceUnit, credit_of, event_unit, keys_of
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "share of right answers among the traces that continue from the step"


def level_values(leaves: ArrayLike) -> list[Floats]:
    """Values of every level of a full tree, leaves first: each is the mean of the level below over its last axis."""
    out = [np.asarray(leaves, np.float64)]
    while out[-1].ndim > 1:
        out.append(out[-1].mean(-1))
    return out


def sibling_pairs(values: ArrayLike, *, threshold: float = 0.5) -> list[tuple[int, ...]]:
    """(parent's indices..., right, wrong) for every pair of siblings, along the last axis, whose labels differ."""
    is_right = np.asarray(values, np.float64) > threshold
    return [
        (*parent, right, wrong)
        for parent in np.ndindex(is_right.shape[:-1])
        for right, wrong in product(np.flatnonzero(is_right[parent]).tolist(), np.flatnonzero(~is_right[parent]).tolist())
    ]


def _run(
    traces: Sequence[Trace],
    *,
    threshold: float = 0.5,
    key: Key = "task_id",
    channel: str = "team",
    sample: Callable[[Event], Hashable] | None = None,
) -> Credit:
    tree = tree_of(traces, keys_of(traces, key), [team_reward(t, channel) for t in traces], sample)
    rows, is_right = [], {}  # type: list[tuple[TraceUnit, float]], dict[str, bool]
    for step in tree.steps:
        event = traces[step.trace].events[step.place]
        rows.append((TraceUnit(step.trace, event_unit(event), event.id), float(tree.value_N[step.node])))
        is_right[f"{traces[step.trace].trace_id} {event.id}"] = bool(tree.value_N[step.node] > threshold)
    siblings: dict[tuple[int, str], list[str]] = {}
    for step in (tree.steps[i] for i in tree.first_steps()):
        event = traces[step.trace].events[step.place]
        siblings.setdefault((step.parent, event.agent), []).append(f"{traces[step.trace].trace_id} {event.id}")
    pairs = [(a, b) for group in siblings.values() for a, b in product(group, group) if is_right[a] and not is_right[b]]
    return credit_of("malt", _ESTIMAND, traces, rows, notes={"threshold": threshold, "right": is_right, "pairs": pairs})


malt = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="the traces below a step are independent samples; rewards are 0 or 1",
    cost="n^depth rollouts per task",
    additive=False,
    source="MALT, arXiv 2412.01928 v3",
    run=_run,
    needs=("group", "contents"),
    example=lambda: Example(rollouts()),
)
