"""What the main transcript of a run spent, and what its sub-agents did.

A sub-agent is an agent that another one spawned, and one that its importer knows for one though no spawn names it (`meta.
sub_agents`); everything else is the main side. What a parent states of a sub-agent without a transcript is the sub-agent's.

Always true: the two sides are what the events carry, each event on one side; what a source states of the whole beyond its
events is on neither. A side without any record of tokens, or of money, has None.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from counterpoint.trace.keys import SUB_AGENTS
from counterpoint.trace.quantities import money_total
from counterpoint.trace.records import Event
from counterpoint.trace.trace import Trace

_MOST = 1 << 62


class Side(Struct, frozen=True, array_like=True, gc=False):
    """What some agents spent."""

    tokens: int | None = None
    cost_usd: float | None = None
    unpriced: int = 0
    """Tokens that no cost covers."""

    def plus(self, other: Side) -> Side:
        """The two together; what one of them does not know is that of the other."""
        tokens = None if self.tokens is None and other.tokens is None else (self.tokens or 0) + (other.tokens or 0)
        paid = [usd for usd in (self.cost_usd, other.cost_usd) if usd is not None]
        return Side(tokens, money_total(paid) if paid else None, self.unpriced + other.unpriced)


class Sides(Struct, frozen=True, array_like=True, gc=False):
    """The main transcript and its sub-agents."""

    sub_agents: int
    """How many sub-agents there are, those without a transcript included."""
    main: Side
    subs: Side

    def plus(self, other: Sides) -> Sides:
        """Of two runs together."""
        return Sides(self.sub_agents + other.sub_agents, self.main.plus(other.main), self.subs.plus(other.subs))


NO_SIDES = Sides(0, Side(), Side())


def sub_agents(trace: Trace) -> frozenset[str]:
    """The agents that another one spawned, and those that the importer knows for sub-agents though no spawn names them."""
    spawns = [e for e in trace.events if e.type == "spawn" and e.to is not None and e.to != e.agent]
    spawned = {e.to for e in spawns if e.to is not None}
    stated = trace.meta.get(SUB_AGENTS)
    known = {name for name in stated if isinstance(name, str)} if isinstance(stated, list) else set()
    if spawned and not known and not {e.agent for e in spawns} - spawned:
        return frozenset()  # nobody is above those who spawn each other
    return frozenset(spawned | known)


def sides_of(trace: Trace) -> Sides:
    """What the main transcript carries and what sub-agents do; no sub-agents where nobody was spawned."""
    subs = sub_agents(trace)
    has_price_of_whole = not trace.unpriced
    main = [e for e in trace.events if e.agent not in subs]
    others = [e for e in trace.events if e.agent in subs] if subs else []
    return Sides(len(subs), side_of(main, has_price_of_whole), side_of(others, has_price_of_whole))


def side_of(events: Iterable[Event], has_price_of_whole: bool) -> Side:
    """What some events carry; where the source states the cost of the whole, no tokens are without a price."""
    tokens, paid, unpriced, is_counted = 0, [], 0, False
    for e in events:
        if e.tokens_in is not None or e.tokens_out is not None:
            count = (e.tokens_in or 0) + (e.tokens_out or 0)
            tokens, is_counted = tokens + count, True
            unpriced += count if e.cost_usd is None else 0
        if e.cost_usd is not None:
            paid.append(_dollars(e.cost_usd))
    return Side(
        min(tokens, _MOST) if is_counted else None,
        money_total(paid) if paid else None,
        0 if has_price_of_whole else min(unpriced, _MOST),
    )


def _dollars(paid: float) -> float:
    try:
        return float(paid)
    except OverflowError:
        return 0.0
