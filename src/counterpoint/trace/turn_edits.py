"""Where a logged session is forked: the turn that is answered anew, and the trace as the edit leaves it.

An edit changes what the model of that turn had heard (a message, a result, one message more), or what it answered (its words, a
call, all of it).

Always true: the trace that is given is not touched; a call keeps its answer: a result can be changed, and not taken away; an
event that no model decided or read is an `InputError` that names what can be forked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from counterpoint.errors import InputError, NotFound
from counterpoint.trace.conversation import Conversation, Reply, conversation_at, object_text, tool_of
from counterpoint.trace.records import Edge, Event
from counterpoint.trace.replay import Delete, Do, Force, Insert, Substitute
from counterpoint.trace.trace import Trace, content_ref

INSERTED = "fork-message"
_FORCE = '--decide \'{"tool": "Bash", "arguments": {"command": "ls"}}\', or {"text": "..."}'


@dataclass(frozen=True)
class Start:
    """Where a fork of a session begins."""

    trace: Trace
    """With what was changed."""
    conversation: Conversation
    turn: int
    forced: Reply | None = None
    """What is answered in this turn; None asks the model."""


def start_of(trace: Trace, at: str, do: Do | None) -> Start:
    """The turn that is answered anew, and with what before it."""
    if at not in trace.index:
        raise NotFound(f"no event {at!r}", where=trace.trace_id, fix="counterpoint show lists events")
    if isinstance(do, Insert):
        return _with_message(trace, at, str(do.value))
    reader = None if do is None or (isinstance(do, Substitute) and do.value is None) else _reader(trace, at)
    if reader is not None and not isinstance(do, Force):
        return _start(_changed(trace, at, do), *reader)
    conversation, turn = conversation_at(trace, at)
    forced = None if do is None else _forced(conversation, turn, at, do)
    return Start(trace, conversation, turn, forced)


def _start(trace: Trace, agent: str, turn: str) -> Start:
    conversation = Conversation(trace, agent)
    place = conversation.turn_of(turn)
    assert place is not None
    return Start(trace, conversation, place)


def _reader(trace: Trace, at: str) -> tuple[str, str] | None:
    """Who read an event, and the first event of the turn that read it first; None where it is a decision, or nobody did."""
    own = trace.events[trace.index[at]].agent
    for agent in sorted(trace.agents, key=lambda name: name != own):
        conversation = Conversation(trace, agent)
        if agent == own and conversation.turn_of(at) is not None:
            return None
        found = conversation.reader_of(at)
        if found is not None:
            return agent, conversation.turns[found].events[0].id
    return None


def _changed(trace: Trace, at: str, do: Any) -> Trace:
    """The trace with another text at an event, or without the event."""
    event = trace.events[trace.index[at]]
    if isinstance(do, Delete):
        if event.type in ("tool_result", "return"):
            fix = "change it: --substitute 'another answer'"
            raise InputError("a call needs its answer, so a result cannot be taken away", where=at, fix=fix)
        events = [e for e in trace.events if e.id != at]
        return replace(trace, events=events, edges=[e for e in trace.edges if at not in (e.src, e.dst)])
    text = do.value if isinstance(do.value, str) else json.dumps(do.value, ensure_ascii=False)
    return _with_text(trace, event, text)


def _with_text(trace: Trace, event: Event, text: str) -> Trace:
    ref = content_ref(text)
    edited = replace(event, content_ref=ref, extra={**(event.extra or {}), "edited": True})
    events = [edited if e.id == event.id else e for e in trace.events]
    return replace(trace, events=events, contents={**trace.contents, ref: text})


def _with_message(trace: Trace, at: str, text: str) -> Start:
    """One more message of the user, heard by the turn at the event, or by the turn that read the event."""
    if not text.strip():
        raise InputError("the message has no words", where=at, fix="as in --message 'Run the tests first.'")
    reader = _reader(trace, at)
    if reader is None:
        conversation, turn = conversation_at(trace, at)
        reader = conversation.agent, conversation.turns[turn].events[0].id
    agent, first = reader
    place = trace.index[first]
    ref = content_ref(text)
    said = Event(
        id=INSERTED, t=trace.events[place].t, type="human_intervention", agent="user", role="user", from_="user", to=agent,
        content_ref=ref, trusted=True, source="user", key=INSERTED, extra={"edited": True},
    )  # fmt: skip
    events = [*trace.events[:place], said, *trace.events[place:]]
    edges = [*trace.edges, Edge(INSERTED, first, "message")]
    return _start(replace(trace, events=events, edges=edges, contents={**trace.contents, ref: text}), agent, first)


def _forced(conversation: Conversation, turn: int, at: str, do: Any) -> Reply | None:
    """The answer that an edit gives in place of the model's."""
    said = conversation.reply(turn)
    if isinstance(do, Force):
        return _decided(dict(do.action))
    if isinstance(do, Substitute) and do.value is None:
        return None
    calls = list(said.calls)
    place = next((k for k, event in enumerate(conversation.turns[turn].calls) if event.id == at), None)
    if isinstance(do, Delete):
        text = said.text if place is not None else ""
        calls = [call for k, call in enumerate(calls) if k != place]
        if not text and not calls:
            raise InputError("nothing would be left of this answer", where=at, fix="--do redraw asks the model again")
        return Reply(text, tuple(calls))
    text = do.value if isinstance(do.value, str) else json.dumps(do.value, ensure_ascii=False)
    if place is None:
        return Reply(text, said.calls)
    event = conversation.turns[turn].calls[place]
    if event.type == "tool_call":
        arguments = object_text(text)
    else:
        fields = json.loads(conversation.arguments(event))
        word = next((name for name in ("prompt", "message") if name in fields), "message")
        arguments = json.dumps({**fields, word: text}, ensure_ascii=False)
    calls[place] = (tool_of(event, conversation.trace), arguments)
    return Reply(said.text, tuple(calls))


def _decided(action: dict[str, Any]) -> Reply:
    """An answer as `--decide` writes it: `text`, one `tool` with `arguments`, or a list of such `calls`."""
    calls = action.pop("calls", None) or ([action] if "tool" in action else [])
    text = action.get("text", "")
    if not isinstance(calls, list) or not isinstance(text, str) or not (calls or text):
        raise InputError(f"no answer of an agent: {json.dumps(action)[:120]}", where="--decide", fix=_FORCE)
    out = []
    for call in calls:
        tool = call.get("tool") if isinstance(call, dict) else None
        arguments = call.get("arguments", {}) if isinstance(call, dict) else None
        if not isinstance(tool, str) or not tool or not isinstance(arguments, dict):
            raise InputError(f"no call: {json.dumps(call)[:120]}", where="--decide", fix=_FORCE)
        out.append((tool, json.dumps(arguments, ensure_ascii=False)))
    return Reply(text, tuple(out))
