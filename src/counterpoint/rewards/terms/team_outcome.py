"""R1, shared team outcome: the trace's own reward, or a verifier's score of the trace, paid to the team.

Always true: one row of unit team, or none where the trace has no such reward and the verifier none to give. Mixes of an
outcome with formats and penalties are rewards of their own: `wideseek`, `matpo`, `agent_qmix`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from counterpoint.options import Channel
from counterpoint.rewards.reward import Reward
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal


def _team_outcome_signals(
    trace: Trace, *, channel: Channel = "team", verifier: Callable[[Trace], float | bool | None] | None = None, scale: float = 1.0
) -> Iterator[Signal]:
    value = trace.rewards.get(channel) if verifier is None else verifier(trace)
    if value is not None:
        yield Signal("team", "", "R1", scale * float(value))


team_outcome = Reward(
    family="R1",
    unit="team",
    source="survey 2605.02801, section 3; GRPO 2402.03300",
    score=_team_outcome_signals,
    example=lambda: Example(rollouts()),
)
