"""Who can fork a trace: the world that made it, or the recording of the live team, found by what the trace says of itself.

Always true: a trace that neither a shipped world nor a live team made has no replay here; whoever needs one says so
(`NotIdentified`) and names what would help. An endpoint is never asked because a trace names it: only a model that is named anew.
"""

from __future__ import annotations

from typing import Any

from counterpoint.errors import NotFound
from counterpoint.trace import Trace

__all__ = ["replay_of"]


def replay_of(trace: Trace) -> Any:
    """The world whose trace this is, or its recording, as a `Replay`; None where there is none."""
    if isinstance(trace.meta.get("team"), dict):
        from counterpoint.team.replay import LiveReplay

        return LiveReplay()
    name = trace.meta.get("world")
    if not isinstance(name, str):
        return None
    from counterpoint.envs._find import world

    try:
        return world(name)
    except NotFound:
        return None
