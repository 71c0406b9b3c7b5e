"""What the endpoint knows of a team's calls, put at their events: tokens and how likely they were.

Always true: every call that was answered is one event of the trace; calls of which no recording knows (of another language, say)
are told apart by their conversations, as the endpoint does. What the endpoint says of a call wins over what a framework made of
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from counterpoint.lab.lm.serving.backend import SpokenAnswer
from counterpoint.lab.lm.serving.callers import Caller
from counterpoint.lab.lm.serving.ledger import Ledger, answer_text, call_facts
from counterpoint.lab.train.lm.own_numbers import CALL_NUMBER
from counterpoint.recorder.conversation import messages_of
from counterpoint.trace import Edge, Event, Trace, content_ref, summed_costs
from counterpoint.trace.model_calls import model_call

_ROLE_WORDS = 6


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
    read = messages_of(list(spoken.messages)) or []  # what was read, and not what a decorated function was given
    note["prompt"] = {"more": [_kept(one.text, contents) for one in read], "fields": [one.fields for one in read]}
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
