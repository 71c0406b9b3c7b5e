"""R8, MATPO: the outcome and the formats that planner and workers kept.

    r = w_outcome R + (w_format f_main + w_format mean f_worker) / 2

Always true: one row of unit team; none where the trace has no outcome, or nothing says which format the planner kept. f is the
mean of an agent's events in the channel `format`; without a worker its half is 0. `format="tools"` reads no channel: f is the
share of an agent's tool calls that did not fail, 1 for a planner without calls.

Source: MATPO arXiv 2510.04678.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from counterpoint.options import Channel
from counterpoint.rewards.reward import Reward, amounts, gathered, tool_success_shares
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal
from counterpoint.trace.team import team_of


def mixed(outcome: float, main: float, workers: Sequence[float], *, w_outcome: float = 0.9, w_format: float = 0.1) -> float:
    """The formula."""
    mean = float(np.mean(workers)) if len(workers) else 0.0
    return w_outcome * outcome + 0.5 * (w_format * main + w_format * mean)


def _matpo_signals(
    trace: Trace, *, channel: Channel = "team", format: str = "format", w_outcome: float = 0.9, w_format: float = 0.1
) -> Iterator[Signal]:
    outcome, team = trace.rewards.get(channel), team_of(trace) if trace.events else None
    if outcome is None or team is None or team.main is None:
        return
    by_tools = format == "tools"
    stated = ((e.agent, paid) for e, paid in amounts(trace, [format]))
    scores = tool_success_shares(trace) if by_tools else gathered(stated, "mean")
    main = scores.pop(team.names[team.main], 1.0 if by_tools else None)
    if main is not None:
        value = mixed(float(outcome), main, list(scores.values()), w_outcome=w_outcome, w_format=w_format)
        yield Signal("team", "", "R8", value)


def _example() -> Example:
    """The rollouts, with a format that every action kept but a tool's failure."""
    marked = [[replace(e, reward={**(e.reward or {}), "format": float(e.ok is not False)}) for e in t.events] for t in rollouts()]
    return Example([replace(t, events=events) for t, events in zip(rollouts(), marked, strict=True)])


matpo = Reward(family="R8", unit="team", source="MATPO, arXiv 2510.04678", score=_matpo_signals, example=_example)
