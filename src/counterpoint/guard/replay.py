"""An old session, played again through a guard: when each limit would have refused a call for the first time.

Always true: a call is judged by what was written before it; what was done after a refusal is told as it was, for nobody knows
what an agent would have done instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from counterpoint.guard.hook import ModelPrices
from counterpoint.guard.limits import GuardCall, GuardLimits, refusal
from counterpoint.guard.reader import SessionReader


@dataclass
class Refusal:
    """A limit that would have refused a call."""

    limit: str
    at: float | None
    agent: str
    tool: str
    text: str
    """What the agent would have read."""
    counts: dict[str, float]
    """What the session had used by then."""
    calls: int = 0
    """Calls that it would have refused, had nothing else changed."""


@dataclass
class ReplayResult:
    """What came of it."""

    reader: SessionReader
    fired: dict[str, Refusal] = field(default_factory=dict)
    """Limit to when it fired first, in that order."""


def replay(reader: SessionReader, transcript: str, limits: GuardLimits) -> ReplayResult:
    """Play a session."""
    out, price = ReplayResult(reader), ModelPrices(reader.state, limits.prices, at=reader.tally.last_at)
    for agent, record, at in reader.in_order(transcript):
        for name, tool, args in reader.calls_of(record):
            call = GuardCall(agent, tool, reader.key(tool, args), is_spawn=reader.is_spawn(tool), depth=reader.depth(agent))
            why = refusal(limits, reader.tally, call, at, price)
            if why is not None:
                counts = reader.tally.counts("session", at, price)
                first = out.fired.setdefault(why[0], Refusal(why[0], at, agent, tool, why[1], counts))
                first.calls += 1
            elif call.is_spawn:
                reader.grant(name, tool, agent, args, at)
        reader.take(record, agent)
    return out
