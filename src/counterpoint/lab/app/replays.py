"""Who can play a recorded team again: the world that made a trace, or the recording of a live team.

The laboratory's answers to the questions of the core's forks (entry points `counterpoint.hooks`).

Always true: an endpoint is never asked because a trace names it: only a model that is named anew. Code that a trace names is
imported where `allow` names it too, and else `Refused`. A world or team is loaded only when a trace of it is asked about.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import counterpoint.registry as registry
from counterpoint.errors import NotFound
from counterpoint.trace import Trace


def replay_of(trace: Trace, *, model: Any = None, allow: Collection[str] = ()) -> Any:
    """The world whose trace this is, or its recording, as a `Replay`; None where there is none."""
    if isinstance(trace.meta.get("team"), dict):
        from counterpoint.lab.team.live_replay import LiveReplay
        from counterpoint.lab.team.session import Spec

        Spec.of(trace.meta["team"]).check_consent(allow, where=trace.trace_id, with_model=False, is_fork=True)
        return LiveReplay(model=model, allow=tuple(allow))
    name = trace.meta.get("world")
    if not isinstance(name, str):
        return None
    from counterpoint.lab.worlds.packages import trusts
    from counterpoint.lab.worlds.world import world

    registry.check_consent([] if trusts(name) else [name], allow, where=trace.trace_id)
    try:
        return world(name)
    except NotFound:
        return None


def last_merge(trace: Trace) -> Any:
    """The last merge of a recorded live team, to be made again without a model; None where a trace is no such recording."""
    if not isinstance(trace.meta.get("team"), dict):
        return None
    from counterpoint.lab.team.remerge import Remerge
    from counterpoint.lab.team.session import Spec

    Spec.of(trace.meta["team"]).check_consent((), where=trace.trace_id, with_model=False, is_fork=True)
    return Remerge(trace)


def named_model(trace: Trace, live: Mapping[str, Any]) -> Any:
    """The model that was named for changed calls of a live team."""
    from counterpoint.lab.team.session import Spec, make_model

    spec = Spec.of(trace.meta.get("team") or {})
    spec.check_consent(live["allow"], where=trace.trace_id, with_model=False, is_fork=True)
    options = {name: live[name] for name in ("base_url", "key_env") if live[name] is not None}
    return make_model(live["model_name"], spec.make_task(), **options)
