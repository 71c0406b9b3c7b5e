"""Whether a run has ended, and what was under way where its record breaks off: a run that goes on, or a tool that hangs.

Always true: a recorder says which events are open. The log of a coding session does not: there a call counts as under way when
it has no answer, and neither its agent nor any above that agent took a step after it, nor was it interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from counterpoint.trace.line_records import OPEN_EVENTS, UNFINISHED
from counterpoint.trace.naming import agent_names
from counterpoint.trace.records import Event
from counterpoint.trace.trace import Trace

_SESSIONS = frozenset({"claude_code", "claude-code", "codex", "kimi"})
"""Sources whose logs are written while the session runs, each call before its answer."""
_CALLS = frozenset({"tool_call", "spawn"})
_INTERRUPTED = "[Request interrupted"


def is_unfinished(meta: Mapping[str, Any]) -> bool:
    """Whether no end is recorded: the run is still going, or was interrupted."""
    return bool(meta.get(UNFINISHED))


def under_way(trace: Trace) -> list[Event]:
    """Events that began and did not end."""
    named = trace.meta.get(OPEN_EVENTS)
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    events = [trace.events[trace.index[name]] for name in names if name in trace.index]
    return events or (_unanswered(trace) if _is_session(trace) else [])


def _is_session(trace: Trace) -> bool:
    about = trace.meta.get("import")
    return trace.system in _SESSIONS or (isinstance(about, dict) and about.get("format") in _SESSIONS)


def _unanswered(trace: Trace) -> list[Event]:
    """Calls without an answer, behind which nothing was done by those who wait for it."""
    calls = [e for e in trace.events if e.type in _CALLS and e.dur is None and e.ok is None and e.error is None]
    calls = [e for e in calls if not (e.extra and e.extra.get("is_nested"))]
    if not calls:
        return []
    heard = {edge.src for edge in trace.edges if edge.type == "tool_dependency"}
    back = {e.from_ or e.agent for e in trace.events if e.type in ("return", "despawn")}
    back |= {e.to for e in trace.events if e.type == "despawn" and e.to}
    above = {e.to: e.agent for e in trace.events if e.type == "spawn" and e.to and e.to != e.agent}
    latest = _latest_steps(trace.events, trace)
    out = []
    for call in calls:
        if call.id in heard or (call.type == "spawn" and (call.to is None or call.to in back)) or call.agent in back:
            continue
        agent: str | None = call.agent
        met: set[str] = set()
        while agent is not None and agent not in met and latest.get(agent, -1.0) <= call.t:
            met.add(agent)
            agent = above.get(agent)
        if agent is None or agent in met:
            out.append(call)
    return out


def _latest_steps(events: Sequence[Event], trace: Trace) -> dict[str, float]:
    """Agent to when it last took a step, or was interrupted."""
    out: dict[str, float] = {}
    for e in events:
        stops = bool(e.extra and "turn_aborted" in e.extra)
        if e.type == "human_intervention" and e.to and not stops:
            stops = (trace.text(e) or "").lstrip().startswith(_INTERRUPTED)
        who = e.to if e.type == "human_intervention" and stops else e.agent
        if who and (stops or e.turn is not None):
            # what interrupts a call may bear the call's own time
            out[who] = max(out.get(who, -1.0), float(e.t) + (1e-6 if stops else 0.0))
    return out


_SHOWN = 3


def ending_words(trace: Trace) -> list[str]:
    """What to say of a run without an end, or with events without one; nothing of any other."""
    events = under_way(trace)
    names = agent_names(trace, {e.agent for e in events}) if events else {}
    shown = [" ".join(filter(None, (e.id, e.tool or e.model or e.type, "of", names[e.agent]))) for e in events[:_SHOWN]]
    more = [f"and {len(events) - _SHOWN:,} more"] if len(events) > _SHOWN else []
    begin = ["the end is not recorded: the run is still going, or was interrupted"] if is_unfinished(trace.meta) else []
    return begin + (["without an end: " + ", ".join([*shown, *more])] if events else [])
