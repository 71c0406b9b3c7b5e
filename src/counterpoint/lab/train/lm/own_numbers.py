"""Which event of a team's own recording each call of the endpoint is: a number at both, told in the worker where it is made.

Always true: a call is the model's step that was open where it was made, or a step of its own of the agent that made it; where
nobody knows who makes it, it has no number. Nothing of the model is loaded here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from counterpoint.recorder.conversation import messages_of, question_of
from counterpoint.recorder.lanes import Scope, current
from counterpoint.recorder.memory_run import Captured
from counterpoint.trace import Trace

CALL_NUMBER = "call_number"
"""In `extra`, between a worker and its parent: the number of the call that the event is."""


class CallNumbers:
    """Numbers of the calls that one team makes."""

    def __init__(self, captured: Captured) -> None:
        self._captured, self._lock = captured, threading.Lock()
        self._events: dict[tuple[int, str], int] = {}
        """Session (its place) and event to the number."""
        self._count = 0

    def number(self, asked: Mapping[str, Any]) -> int | None:
        """The number of a call that is about to be made, or None where nobody knows who makes it."""
        scope = self._here()
        if scope is None:
            return None
        with self._lock:
            self._count += 1
            step = self._step(scope, asked)
            if step is not None and step.event is not None:
                self._take(step, self._count)
                return self._count
            made = self._new_step(scope, asked)
            if made is None:
                return None
            self._events[self._place(scope), made] = self._count
            return self._count

    def marked(self, trace: Trace) -> Trace:
        """The trace with the numbers at its events."""
        place = self._captured.sessions.index(self._captured.longest)
        events = []
        for event in trace.events:
            number = self._events.get((place, event.id))
            events.append(event if number is None else replace(event, extra={**(event.extra or {}), CALL_NUMBER: number}))
        return replace(trace, events=events)

    # -- where a call is made

    def _place(self, scope: Scope) -> int:
        return self._captured.sessions.index(scope.session)

    def _here(self) -> Scope | None:
        """The scope that acts here; None where that is the code around a team of which nothing is recorded."""
        at = current.get()
        if at is None or at.session not in self._captured.sessions or at.session.is_over:
            return None
        found = next((s for locate in at.session.locators if (s := locate()) is not None and s.session is at.session), at)
        is_bare = found is at.session.root and at.session is self._captured.sessions[0] and not found.has_inner
        return None if is_bare and len(at.session.lanes.lanes) == 1 else found

    def _step(self, scope: Scope, asked: Mapping[str, Any]) -> Scope | None:
        """The model's step that the call is: the scope itself, or the one that is open there and was asked the same."""
        if scope.call is not None:
            return scope
        texts = [one.text for one in messages_of(asked.get("messages") or asked.get("prompt")) or ()]
        place = self._place(scope)
        free = [s for s in scope.lane.scopes if s.call is not None and (place, s.event) not in self._events]
        same = [s for s in free if s.call is not None and [m.text for m in s.call.question.messages or ()] == texts]
        return same[0] if same else free[0] if len(free) == 1 else None

    def _take(self, step: Scope, number: int) -> None:
        """The step is this call; the one that it was until now (an answer that did not suit) becomes a step before it."""
        key = self._place(step), str(step.event)
        if key in self._events and step.outer is not None:
            made = self._new_step(step.outer, {})
            if made is not None:
                self._events[key[0], made] = self._events[key]
        self._events[key] = number

    def _new_step(self, scope: Scope, asked: Mapping[str, Any]) -> str | None:
        """A step of its own, whose words are filled in when they are known."""
        lanes, question = scope.session.lanes, question_of((), (), dict(asked))
        step = scope.session.do(lanes.begin_step, scope, question, model=str(asked.get("model") or "model"))
        scope.session.do(lanes.end, step, None) if step is not None else None
        return None if step is None else str(step.event)
