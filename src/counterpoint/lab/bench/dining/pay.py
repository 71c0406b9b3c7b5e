"""What a team of language models at the table is paid: the reward of the small networks, from the measures of a trace.

    R = meals / 30 * fairness - deadlock

Always true: one row of unit team; a trace without the package's measures has no row.
"""

from __future__ import annotations

from collections.abc import Iterator

from counterpoint.lab.bench.dining.tables import STEPS
from counterpoint.rewards.reward import Reward
from counterpoint.trace import Trace
from counterpoint.trace.rows import Signal


def _score(trace: Trace) -> Iterator[Signal]:
    found = trace.metrics or {}
    if {"task_meals", "task_fairness", "task_deadlock"} <= found.keys():
        paid = found["task_meals"] / STEPS * found["task_fairness"] - found["task_deadlock"]
        yield Signal("team", "", "meals and fairness", float(paid))


meals_and_fairness = Reward(
    family="R2", unit="team", source="ours: dpbench's throughput and fairness (arXiv:2602.13255)", score=_score
)
