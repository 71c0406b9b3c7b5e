"""Who can play a recorded team again: the world that made a trace, or the recording of a live team.

The laboratory's answers to the questions of the core's forks (entry points `counterpoint.hooks`).

Always true: an endpoint is never asked because a trace names it: only a model that is named anew. Code that a trace names is
imported where `allow` names it too, and else `Refused`. A world or team is loaded only when a trace of it is asked about.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import counterpoint.registry as registry
from counterpoint.errors import InputError, NotFound
from counterpoint.trace import Trace


def replay_of(trace: Trace, *, model: Any = None, allow: Collection[str] = (), log: Mapping[str, Any] | None = None) -> Any:
    """The world whose trace this is, or its recording, as a `Replay`; None where there is none.

    `log`, options of `LogReplay`, asks for the model that answers anew in a logged session, whoever ran that."""
    if log is not None:
        from counterpoint.lab.team.log_replay import LogReplay

        return LogReplay(model, allow=allow, **log)
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
    """The model that was named for changed calls of a live team, or for a logged session."""
    from counterpoint.lab.team.session import Spec, make_model

    if not isinstance(trace.meta.get("team"), dict):
        return _plain_model(live)
    spec = Spec.of(trace.meta["team"])
    spec.check_consent(live["allow"], where=trace.trace_id, with_model=False, is_fork=True)
    options = {name: live[name] for name in ("base_url", "key_env") if live[name] is not None}
    return make_model(live["model_name"], spec.make_task(), **options)


def _plain_model(live: Mapping[str, Any]) -> Any:
    """A model that answers for itself, without a task of ours."""
    from counterpoint.lab.team.session import make_model

    if live["model_name"].partition(":")[0] == "fake":
        fix = "openai:NAME or anthropic:NAME, with --base-url for an endpoint of your own"
        raise InputError("a fake plays our own tasks, and no logged session", where="--model", fix=fix)
    options = {name: live[name] for name in ("base_url", "key_env") if live[name] is not None}
    return make_model(live["model_name"], None, **options)  # type: ignore[arg-type]  # only a fake player needs a task
