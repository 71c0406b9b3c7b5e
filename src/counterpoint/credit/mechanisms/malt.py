"""MALT: a step's value is the share of right answers below it; labels and preference pairs follow.

    V(step) = mean of its leaves;    right iff V > 0.5;    pairs: one right and one wrong sibling under the same prefix

Always true: 0.5 itself is wrong. Values lie between the least and the largest leaf. A pair is always (right, wrong) of one
parent and one agent. The notes hold labels and pairs as event ids, for SFT and DPO (`counterpoint.train.objectives.dpo`).

Source: MALT arXiv 2412.01928 v3. Departures: a tree of any depth; siblings are found by content, as in `c3`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import product

from counterpoint.credit.mechanism import Mechanism, team_reward
from counterpoint.credit.rows import Key, TraceUnit, credit_of, event_unit, keys_of, tree_of
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "share of right answers among the traces that continue from the step"


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
