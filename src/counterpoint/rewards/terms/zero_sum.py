"""R2, a game of two sides: the team is paid its outcome, the other side the opposite.

    r(role) = R for every role of the team,  -R for `against`

Always true: rows of unit role, one for each role of the trace; those of the two sides sum to 0. No row without an outcome.

Sources: SPIRAL arXiv 2506.24119 (zero-sum self-play), MARSHAL arXiv 2510.15414, MAGIC arXiv 2602.01539 (an attacker
against a defender; its further terms are not known).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from counterpoint.options import Channel
from counterpoint.rewards.reward import Reward
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal


def _zero_sum_signals(
    trace: Trace,
    *,
    against: str = "opponent",
    channel: Channel = "team",
) -> Iterator[Signal]:
    outcome = trace.rewards.get(channel)
    if outcome is None:
        return
    paid = float(outcome)
    for role in dict.fromkeys(e.role for e in trace.events if e.role is not None):
        yield Signal("role", role, "R2", -paid if role == against else paid)


def _example() -> Example:
    """The rollouts, in which w3 plays against the others."""
    return Example(
        [replace(t, events=[replace(e, role="opponent") if e.agent == "w3" else e for e in t.events]) for t in rollouts()]
    )


zero_sum = Reward(family="R2", unit="role", source="SPIRAL, arXiv 2506.24119", score=_zero_sum_signals, example=_example)
