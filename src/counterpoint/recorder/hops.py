"""Calls that leave this process: the trace context that goes with them, and what a recording on the other side keeps of it.

Always true: nothing here raises; a program that traces with OpenTelemetry keeps its own `traceparent`, and ours goes along in
`tracestate`; a request that says nothing, or something that is no trace context, makes a recording of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from counterpoint.recorder.lanes import RecordingSession, Scope
from counterpoint.trace.hops import CALLER, HOPS, Hop, hop_of, run_key, span_key

_runs: WeakKeyDictionary[RecordingSession, str] = WeakKeyDictionary()
"""Recordings that were made for a call, each with the run that it is a part of."""
_callers: WeakKeyDictionary[RecordingSession, bool] = WeakKeyDictionary()
"""Recordings that have called another process."""


def caller_meta(carrier: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a recording is told of who called, as its `meta`: `record(task=..., meta=caller_meta(request.headers))`."""
    hop = hop_of(carrier)
    return {} if hop is None else {CALLER: hop._asdict()}


def begin(session: RecordingSession, hop: Hop | None) -> None:
    """A recording begins that was called."""
    if hop is not None:
        _runs[session] = hop.run


def meta_of(session: RecordingSession) -> dict[str, Any]:
    """What the `meta` of a recording says at its end."""
    return {HOPS: True} if session in _callers else {}


def context_of(scope: Scope) -> dict[str, str]:
    """The headers of a call that is made here; none where nothing has been recorded that could have made it."""
    session, at = scope.session, scope
    while at.event is None and at.outer is not None:
        at = at.outer
    event = at.event or scope.lane.latest
    if event is None:
        return {}
    _callers[session] = True
    own = session.run.trace_id
    hop = Hop(_runs.get(session) or run_key(own), span_key(own, event))
    return hop.carrier(*_ambient())


def _ambient() -> tuple[str | None, str]:
    """`traceparent` and `tracestate` of the span that is current, where the program traces."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None, ""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None, ""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}", span.trace_state.to_header()


@contextmanager
def propagation(carrier: Mapping[str, str]) -> Iterator[None]:
    """While a library of others makes the call: what it sends of its own accord is what goes with the call."""
    if not carrier or sys.modules.get("opentelemetry.trace") is None:
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = context.attach(TraceContextTextMapPropagator().extract(dict(carrier), context.get_current()))
    try:
        yield
    finally:
        context.detach(token)
