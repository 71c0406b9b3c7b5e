"""Who can fork a trace: the world that made it, or the recording of the live team, found by what the trace says of itself.

Always true: a trace that neither a shipped world nor a live team made has no replay here; whoever needs one says so
(`NotIdentified`) and names what would help. An endpoint is never asked because a trace names it: only a model that is named anew.
Code that a trace names is imported where `allow` names it too, and else `Refused`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import counterpoint.registry as registry
from counterpoint.errors import NotFound
from counterpoint.trace import Trace


def replay_of(trace: Trace, *, model: Any = None, allow: Collection[str] = ()) -> Any:
    """The world whose trace this is, or its recording, as a `Replay`; None where there is none."""
    if isinstance(trace.meta.get("team"), dict):
        from counterpoint.team.live_replay import LiveReplay
        from counterpoint.team.session import Spec

        Spec.of(trace.meta["team"]).check_consent(allow, where=trace.trace_id, with_model=False, is_fork=True)
        return LiveReplay(model=model, allow=tuple(allow))
    name = trace.meta.get("world")
    if not isinstance(name, str):
        return None
    registry.check_consent([name], allow, where=trace.trace_id)
    from counterpoint.envs.world import world

    try:
        return world(name)
    except NotFound:
        return None
