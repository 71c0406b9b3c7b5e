"""Which events are messages, and which of them somebody asks about.

Always true: a message is an event of type message or return (a return is a worker's message to whoever spawned it); the order is
the file's. An id that is not in any of the traces is one clear error, except where several traces are judged at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from counterpoint.errors import InputError, NotFound
from counterpoint.trace import Event, Trace

MESSAGES = ("message", "return")


def messages_of(trace: Trace, types: Collection[str] = MESSAGES, ids: Collection[str] | None = None) -> list[Event]:
    """The messages of a trace, of these types and among these ids."""
    wrong = set(types) - set(MESSAGES)
    if wrong:
        raise InputError(f"{sorted(wrong)[0]!r} is not a type of message", fix="message, return, or both")
    return [e for e in trace.events if e.type in types and (ids is None or e.id in ids)]


def check_ids(traces: Sequence[Trace], ids: Collection[str] | None) -> None:
    """Every id asked about is an event of some trace."""
    for at in ids or ():
        if not any(at in trace.index for trace in traces):
            raise NotFound(f"no event {at!r}", where=traces[0].trace_id, fix="ids of messages or returns")
