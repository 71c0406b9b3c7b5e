"""Whether a run has ended, and what was under way where its record breaks off: a run that goes on, or a tool that hangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterpoint.trace.line_records import OPEN_EVENTS, UNFINISHED
from counterpoint.trace.records import Event
from counterpoint.trace.trace import Trace


def is_unfinished(meta: Mapping[str, Any]) -> bool:
    """Whether no end is recorded: the run goes on, or was cut off."""
    return bool(meta.get(UNFINISHED))


def under_way(trace: Trace) -> list[Event]:
    """Events that began and did not end."""
    named = trace.meta.get(OPEN_EVENTS)
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    return [trace.events[trace.index[name]] for name in names if name in trace.index]


def ending_words(trace: Trace, most: int = 3) -> list[str]:
    """What to say of a run without an end, or with events without one; nothing of any other."""
    events = under_way(trace)
    shown = [" ".join(filter(None, (e.id, e.tool or e.model or e.type, "of", e.agent))) for e in events[:most]]
    more = [f"and {len(events) - most:,} more"] if len(events) > most else []
    begin = ["the end is not recorded: it goes on, or was cut off"] if is_unfinished(trace.meta) else []
    return begin + (["without an end: " + ", ".join([*shown, *more])] if events else [])
