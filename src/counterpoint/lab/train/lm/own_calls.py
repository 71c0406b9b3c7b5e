"""Which event of a team's own recording each call of the endpoint is, and what the endpoint knows of it: tokens and how likely
they were.

Always true: every call that was answered is one event of the trace: the model's step that was open where it was made, or a step
of its own of the agent that made it; calls of which no recording knows (of another language, say) are told apart by their
conversations, as the endpoint does. What the endpoint says of a call wins over what a framework made of it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from counterpoint.lab.lm.serving.backend import SpokenAnswer
from counterpoint.lab.lm.serving.callers import Caller
from counterpoint.lab.lm.serving.ledger import Ledger, answer_text, call_facts
from counterpoint.recorder.conversation import messages_of, question_of
from counterpoint.recorder.lanes import Scope, current
from counterpoint.recorder.memory_run import Captured
from counterpoint.trace import Edge, Event, Trace, content_ref, summed_costs
from counterpoint.trace.model_calls import model_call

CALL_NUMBER = "call_number"
"""In `extra`, between a worker and its parent: the number of the call that the event is."""

_ROLE_WORDS = 6


class CallNumbers:
    """Numbers of the calls that one team makes; in the worker."""

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
        place = max(range(len(self._captured.sessions)), key=lambda k: self._captured.sessions[k].recorder.count)
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


class AnsweredCall(NamedTuple):
    """A call that the endpoint has answered; in the parent."""

    number: int | None
    caller: Caller
    spoken: SpokenAnswer
    seconds: float
    """What it took."""
    at: float
    """When it was answered, in seconds."""


def with_calls(trace: Trace, calls: Sequence[AnsweredCall]) -> Trace:
    """The trace with what the endpoint knows at its calls, and with the calls that no recording knew of."""
    by_number: dict[int, list[AnsweredCall]] = {}
    for call in calls:
        if call.number is not None:
            by_number.setdefault(call.number, []).append(call)
    known = {number for event in trace.events if (number := _number(event)) is not None}
    others = [call for call in calls if call.number not in known]
    if others and not known:
        return _alone(trace, others)
    events, edges, contents = list[Event](), list(trace.edges), dict(trace.contents)
    into: dict[str, list[Edge]] = {}
    for edge in edges:
        into.setdefault(edge.dst, []).append(edge)
    for event in trace.events:
        answered = by_number.get(_number(event) or 0, [])
        events.append(_filled(event, answered[0] if answered else None, contents))
        for k, more in enumerate(answered[1:], 1):  # of several answers to one call (n=8) each is an event
            bare = Event(id=f"{event.id}.{k}", t=event.t, type="message", agent=event.agent, role=event.role, dur=event.dur,
                         extra={CALL_NUMBER: more.number, "aloud": True})  # fmt: skip
            events.append(_filled(bare, more, contents))
            edges += [Edge(edge.src, bare.id, edge.type) for edge in into.get(event.id, ())]
    whole = replace(trace, events=events, edges=edges, contents=contents)
    if others:
        whole = _joined(whole, _alone(replace(trace, events=[], edges=[]), others))
    return replace(whole, costs={**dict(summed_costs(whole.events)), **{k: v for k, v in trace.costs.items() if k == "cost_usd"}})


def _number(event: Event) -> int | None:
    found = (event.extra or {}).get(CALL_NUMBER)
    return found if isinstance(found, int) else None


def _filled(event: Event, answered: AnsweredCall | None, contents: dict[str, str]) -> Event:
    """An event with what is known of its call; a call that was never answered is none."""
    extra = {name: value for name, value in (event.extra or {}).items() if name != CALL_NUMBER}
    if answered is None:
        if _number(event) is not None and not (extra.get("call") or {}).get("failed"):
            extra.pop("call", None)
        return replace(event, extra=extra or None)
    spoken, text = answered.spoken, answer_text(answered.spoken)
    note = {name: value for name, value in (extra.get("call") or {}).items() if name != "failed"}
    note |= call_facts(spoken) | ({} if spoken.prompt_ids is None else {"prompt_ids": list(spoken.prompt_ids)})
    note["completion"] = _kept(spoken.text, contents)
    if "prompt" not in note:
        note["prompt"] = {"more": [_kept(str(m.get("content") or ""), contents) for m in spoken.messages]}
        note["prompt"]["fields"] = [{"role": str(m["role"])} for m in spoken.messages]
    ref = event.content_ref or _kept(text, contents)
    return replace(
        event, content_ref=ref, model=spoken.model, tokens_in=spoken.tokens_in, tokens_out=spoken.tokens_out,
        extra={**extra, "call": note},
    )  # fmt: skip


def _kept(text: str, contents: dict[str, str]) -> str:
    ref = content_ref(text)
    contents[ref] = text
    return ref


def _alone(trace: Trace, calls: Sequence[AnsweredCall]) -> Trace:
    """The calls alone, each of the agent that its conversation or its headers name."""
    now = [calls[0].at - calls[0].seconds]
    ledger = Ledger(None, task=trace.task_id, clock=lambda: now[0])
    for call in calls:
        now[0] = call.at
        role = call.caller.role or _role(call.spoken.messages)
        ledger.add(call.caller._replace(trace=trace.trace_id, event=None, role=role), call.spoken, call.seconds)
    told = ledger.finish(trace.trace_id)
    assert told is not None
    return replace(trace, events=told.events, edges=told.edges, contents={**trace.contents, **told.contents}, costs=told.costs)


def _role(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """A name that the role has in every run: the first words that the system says."""
    first = messages[0] if messages and messages[0]["role"] in ("system", "developer") else {}
    words = re.findall(r"\w+", str(first.get("content") or "").lower())
    return "-".join(words[:_ROLE_WORDS]) or None


def _joined(trace: Trace, more: Trace) -> Trace:
    """Two parts of one run as one trace: the events of the second keep their agents, and get ids of their own."""
    last = max((float(e.t) + float(e.dur or 0.0) for e in trace.events), default=0.0)
    names = {event.id: f"o{event.id}" for event in more.events}
    events = [_renamed(event, names, last) for event in more.events]
    edges = [Edge(names[e.src], names[e.dst], e.type) for e in more.edges]
    return replace(
        trace, events=[*trace.events, *events], edges=[*trace.edges, *edges], contents={**trace.contents, **more.contents}
    )


def _renamed(event: Event, names: Mapping[str, str], later: float) -> Event:
    note = model_call(event)
    extra = dict(event.extra or {})
    if note is not None and "prompt_ids" in note:
        ids = [[names[x[0]], *x[1:]] if isinstance(x, list) else x for x in note["prompt_ids"]]
        extra["call"] = {**note, "prompt_ids": ids}
    return replace(event, id=names[event.id], t=round(float(event.t) + later, 6), extra=extra or None)
