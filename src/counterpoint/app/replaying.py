"""Who can fork a trace: the world that made it, found by what the trace says of itself.

Always true: a trace that no shipped world made has no replay here; whoever needs one says so (`NotIdentified`) and names what
would help.
"""

from __future__ import annotations

from typing import Any

from counterpoint.errors import NotFound
from counterpoint.trace import Trace

__all__ = ["replay_of"]


def replay_of(trace: Trace) -> Any:
    """The world whose trace this is, as a `Replay`; None where there is none."""
    name = trace.meta.get("world")
    if not isinstance(name, str):
        return None
    from counterpoint.envs._find import world

    try:
        return world(name)
    except NotFound:
        return None
