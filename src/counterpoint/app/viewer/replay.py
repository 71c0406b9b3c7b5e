"""Whether a trace can be forked, and what it was forked from.

Always true: looking at a trace imports no code that the trace names: the page never allows any, so only shipped worlds, tasks,
topologies and tools are looked up, by their plain names.
"""

from __future__ import annotations

from typing import Any

from counterpoint.app.replaying import replay_of
from counterpoint.errors import CounterpointError
from counterpoint.trace import Trace
from counterpoint.trace.replay import ManyReplay


def world_of(trace: Trace) -> Any:
    """The shipped world that made the trace, as a `Replay`; None where there is none, or where a trace names other code."""
    try:
        return replay_of(trace)
    except CounterpointError:
        return None


def can_fork(trace: Trace) -> bool:
    """Whether an edit of this trace can be followed."""
    return isinstance(world_of(trace), ManyReplay)


def parent_of(trace: Trace) -> str | None:
    """The trace that this one was forked from: the simulator adds `-ID` for every edit, the recorder says so in `meta`."""
    said = trace.meta.get("parent")
    if isinstance(said, str):
        return said
    edits = trace.meta.get("edits")
    last = edits[-1] if isinstance(edits, list) and edits else None
    tag = f"-{last['id']}" if isinstance(last, dict) and isinstance(last.get("id"), str) else None
    return trace.trace_id.removesuffix(tag) if tag and trace.trace_id.endswith(tag) else None
