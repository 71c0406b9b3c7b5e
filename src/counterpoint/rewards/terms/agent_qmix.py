"""R8, Agent Q-Mix: the team's outcome less a price for tokens, up to a most.

    r = w_outcome R - w_tokens min(tokens / most, 1)

Always true: one row of unit team; none where the trace has no such reward. Tokens are those that the events read and wrote.

Source: Agent Q-Mix arXiv 2604.00344. Its training script sets w_outcome 1.5; 1.0 is the default of its class, and ours.
"""

from __future__ import annotations

from collections.abc import Iterator

from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.rewards.reward import Reward
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal


def priced(outcome: float, tokens: float, *, most: float = 10_000, w_outcome: float = 1.0, w_tokens: float = 0.1) -> float:
    """The outcome less the price of tokens."""
    if not most > 0:
        raise InputError(f"most is {most}", fix="above 0 tokens")
    return w_outcome * outcome - w_tokens * min(tokens / most, 1.0)


def _agent_qmix_signals(
    trace: Trace, *, channel: Channel = "team", most: float = 10_000, w_outcome: float = 1.0, w_tokens: float = 0.1
) -> Iterator[Signal]:
    outcome = trace.rewards.get(channel)
    if outcome is not None:
        tokens = sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in trace.events)
        yield Signal("team", "", "R8", priced(float(outcome), tokens, most=most, w_outcome=w_outcome, w_tokens=w_tokens))


agent_qmix = Reward(
    family="R8",
    unit="team",
    source="Agent Q-Mix, arXiv 2604.00344",
    score=_agent_qmix_signals,
    example=lambda: Example(rollouts(), {"most": 500}),
)
