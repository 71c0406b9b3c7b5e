"""R2, individual outcome: each agent is paid for its own result, as logged on its events or as `outcome` says.

Always true: one row of unit agent per agent that was scored, none for the others. Logged amounts of an agent are combined by
`how` (mean, sum, last, ...). MAPoRL's form of it is the reward `maporl`, SHARP's the credit mechanism
`sharp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from counterpoint.options import Channel
from counterpoint.rewards.reward import Reward, amounts, gathered, members
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal


def _individual_signals(
    trace: Trace,
    *,
    outcome: Callable[[Trace, str], float | bool | None] | None = None,
    channel: Channel = "R2",
    how: str = "mean",
) -> Iterator[Signal]:
    if outcome is None:
        values = gathered(((e.agent, paid) for e, paid in amounts(trace, [channel])), how)
    else:
        scores = {agent: outcome(trace, agent) for agent in members(trace)}
        values = {agent: float(score) for agent, score in scores.items() if score is not None}
    for agent, value in values.items():
        yield Signal("agent", agent, "R2", value)


individual = Reward(
    family="R2",
    unit="agent",
    source="survey 2605.02801, section 3; MAPoRL 2502.18439",
    score=_individual_signals,
    example=lambda: Example(rollouts()),
)
