"""Incidents: the effects that untrusted content reached, as `counterpoint audit --taint` finds them.

Always true: they are worked out once for a trace; where that takes long, not before somebody asks.
"""

from __future__ import annotations

from counterpoint.app.viewer.prepared import Prepared
from counterpoint.audit.authority import Sink, authority
from counterpoint.audit.taint import MayTaint, may_taint

# Looking for every argument in every text: beyond this many characters it is not done unasked.
_UNASKED = 2_000_000_000


def is_dear(look: Prepared) -> bool:
    """Whether judging the sinks takes so long that it is left until somebody asks."""
    if look.is_large:
        return True
    calls = sum(1 for e in look.trace.events if e.type == "tool_call" and e.extra and "args" in e.extra)
    return calls * sum(map(len, look.trace.contents.values())) > _UNASKED


def sinks(look: Prepared) -> tuple[MayTaint, list[Sink]]:
    """What the audit says: layer 1 of taint, and every sink that untrusted content reaches."""
    if "sinks" not in look.kept:
        may = may_taint(look.trace, facts=look.facts)
        look.kept["sinks"] = may, authority(look.trace, may, facts=look.facts)
    kept: tuple[MayTaint, list[Sink]] = look.kept["sinks"]
    return kept
