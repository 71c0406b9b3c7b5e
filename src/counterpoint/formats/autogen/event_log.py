"""AutoGen's structured log (`autogen_core.events`): one JSON event to a line, with or without a formatter's words before it.

Always true: the event of line n is `line{n}`; a message that is sent, delivered and passed on is put down once; tokens are
those of model calls, never those that messages repeat. An agent has read a published message where its text stands in the
agent's next prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.autogen.console import put_blocks, speaker_block
from counterpoint.formats.autogen.group_chat import is_leader, words
from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, decode, seconds, string

_NEEDED: dict[str, tuple[str, ...]] = {
    "LLMCall": ("messages", "response"),
    "LLMStreamStart": ("messages",),
    "LLMStreamEnd": ("response",),
    "ToolCall": ("tool_name", "arguments"),
    "Message": ("payload", "sender", "kind"),
    "MessageDropped": ("payload", "sender", "kind"),
    "MessageHandlerException": ("payload", "exception"),
    "AgentConstructionException": ("agent_id", "exception"),
    "OrchestrationEvent": ("source", "message"),
}
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_UUID = re.compile(r"_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_NOBODY = "unknown"
_WRAPPED = ("message", "msg", "body", "event")


@dataclass(slots=True)
class LoggedEvent:
    """One event, with its line and time."""

    line: int
    at: float | None
    event: dict[str, Any]


def is_event(value: Any) -> bool:
    """Whether a value is an event of the structured log."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    needed = _NEEDED.get(value["type"])
    return needed is not None and all(name in value for name in needed)


def event_in(line: str) -> tuple[dict[str, Any], float | None] | None:
    """The event in a line of a log and its time: bare, behind a formatter's words, or inside a formatter's object."""
    begin = line.find("{")
    if begin < 0:
        return None
    record = decode(line[begin:])
    if is_event(record):
        time = _TIME.search(line[:begin])
        return record, _moment(time[0]) if time else _stamp(record)
    for name in _WRAPPED:
        inner = as_dict(record).get(name)
        inner = decode(inner) if isinstance(inner, str) and inner.startswith("{") else inner
        if is_event(inner):
            return as_dict(inner), _stamp(record)
    return None


def _moment(text: str) -> float | None:
    return seconds(text.replace(",", "."))


def _stamp(record: dict[str, Any]) -> float | None:
    value = next((record[name] for name in ("timestamp", "time", "asctime", "created") if name in record), None)
    return _moment(value) if isinstance(value, str) else seconds(value)


def records_of(session: Session, file: File) -> Iterator[LoggedEvent]:
    """The events of a log; what other loggers wrote between them is passed over."""
    try:
        for number, raw in file.lines():
            if raw is None:
                session.report.broke(file.name, number, "a record beyond the size limit")
                continue
            line = raw.decode("utf-8", "replace").lstrip("\ufeff")
            try:
                event = event_in(line)
            except InputError as error:
                if '"type"' in line or line.startswith("{"):
                    session.report.broke(file.name, number, error.what)
                continue
            if event is not None:
                session.report.records += 1
                yield LoggedEvent(number, event[1], event[0])
    except InputError as error:
        session.report.broke(file.name, None, error.one_line())


def put_events(draft: Draft, records: list[LoggedEvent]) -> None:
    """Put a log down."""
    if any(r.event["type"] == "OrchestrationEvent" for r in records):
        _put_orchestration(draft, records)
        return
    log = _EventLog(draft, records)
    for record in records:
        _HANDLERS[record.event["type"]](log, record)


def _put_orchestration(draft: Draft, records: list[LoggedEvent]) -> None:
    """Logs of the first Magentic-One: who said what, with times, and model calls that name no agent."""
    blocks = []
    for record in records:
        event = record.event
        if event["type"] == "OrchestrationEvent":
            block = speaker_block(str(event["source"]), words(event["message"]))
            block.name, block.at = "user" if block.name == "UserProxy" else block.name, record.at
            blocks.append(block)
    put_blocks(draft, blocks)
    for record in records:
        if record.event["type"] in ("LLMCall", "LLMStreamEnd"):
            fields: dict[str, Any] = {"usage": _usage(record.event), "model": _answer(record.event.get("response"))[2]}
            draft.event("message", _NOBODY, id=f"line{record.line}", at=record.at, **fields)
            draft.report.lacks["the agent of a model call"] += 1


class _EventLog:
    def __init__(self, draft: Draft, records: list[LoggedEvent]) -> None:
        self.draft = draft
        self.agents = {a for r in records for a in (r.event.get("agent_id"), r.event.get("sender")) if isinstance(a, str) and a}
        self._sent: dict[tuple[str, str, str], str] = {}
        """Kind, sender and payload of each message to its event, so that its delivery is not a second one."""
        self._known: dict[str, str] = {}
        """AgentChat's id of a message to the event where it was first said."""
        self._aloud: list[tuple[str, str, str]] = []
        self._unheard: dict[str, list[tuple[str, str]]] = {}
        self._heard_until: dict[str, int] = {}
        self._began: dict[str, float | None] = {}
        self._texts: dict[str, tuple[str, str]] = {}

    def lane(self, agent: Any) -> Lane:
        name = agent if isinstance(agent, str) and agent else _NOBODY
        role = _UUID.sub("", name.split("/", 1)[0])
        return self.draft.lane(name, role=role, leads=is_leader(role))

    # -- models and tools --------------------------------------------------------------------------------------------------

    def started(self, record: LoggedEvent) -> None:
        self._began[str(record.event.get("agent_id"))] = record.at

    def call(self, record: LoggedEvent) -> None:
        event = record.event
        lane = self.lane(event.get("agent_id"))
        if lane.agent == _NOBODY:
            self.draft.report.lacks["the agent of a model call"] += 1
        self._catch_up(lane, event.get("messages"))
        text, calls, model = _answer(event.get("response"))
        usage, id = _usage(event), f"line{record.line}"
        if usage is None:
            self.draft.report.lacks["the tokens of a model call"] += 1
        at = self._began.pop(str(event.get("agent_id")), None)
        step = lane.step(at=at, end=record.at, text=text, usage=usage, model=model, id=id, only_calls=bool(calls))
        if step is not None and text:
            self._texts[lane.agent] = step, text

    def _catch_up(self, lane: Lane, messages: Any) -> None:
        """What was said aloud and stands in this prompt was heard."""
        waiting = self._unheard.setdefault(lane.agent, [])
        waiting += [
            (event, text) for event, speaker, text in self._aloud[self._heard_until.get(lane.agent, 0) :] if speaker != lane.agent
        ]
        self._heard_until[lane.agent] = len(self._aloud)
        prompt = {words(as_dict(message).get("content")).strip() for message in as_list(messages)}
        unread = []
        for event, text in waiting:
            if text.strip() in prompt:
                lane.hears(event, "message")
            else:
                unread.append((event, text))
        self._unheard[lane.agent] = unread

    def tool(self, record: LoggedEvent) -> None:
        event, id = record.event, f"line{record.line}"
        lane = self.lane(event.get("agent_id"))
        lane.call(str(event.get("tool_name")), compact(event.get("arguments")), call=id, id=id, at=record.at)
        lane.result(id, words(event.get("result")), id=f"{id}:result", at=record.at)

    # -- messages ----------------------------------------------------------------------------------------------------------

    def message(self, record: LoggedEvent) -> None:
        event = record.event
        kind = _last(event.get("kind"))
        sender, receiver = string(event.get("sender")), string(event.get("receiver"))
        payload = compact(event.get("payload"))
        key = kind, str(sender), payload
        if _last(event.get("delivery_stage")) == "deliver" and key in self._sent:
            return
        messages = _chat_messages(event.get("payload"))
        ids = [id for m in messages if (id := string(m.get("id")))]
        if ids and all(id in self._known for id in ids):
            self._sent[key] = self._known[ids[0]]
            return
        text = "\n".join(words(m.get("content")) for m in messages) if messages else _plain(event.get("payload"))
        at = record.at if record.at is not None else next((seconds(m.get("created_at")) for m in messages), None)
        event_id = self._put(record, kind, sender, receiver, messages, text, at)
        if event_id is not None:
            self._sent[key] = event_id
            self._known.update(dict.fromkeys(ids, event_id))

    def _put(
        self,
        record: LoggedEvent,
        kind: str,
        sender: str | None,
        receiver: str | None,
        messages: list[dict[str, Any]],
        text: str,
        at: float | None,
    ) -> str | None:
        id, to = f"line{record.line}", receiver if receiver in self.agents else None
        extra = {"topic": receiver if to is None else None, "delivery": kind}
        if not sender:
            return self._from_outside(id, at, to, messages, text, extra)
        lane = self.lane(sender)
        own = self._texts.get(lane.agent)
        if kind == "respond":
            return lane.returns(to, text, at=at, id=id) if text or to else None
        if own is not None and own[1] == text and own[0] == lane.last:
            self.draft.set(own[0], to=to, extra=extra)
            event_id = own[0]
            if to is not None:
                self.lane(to).hears(event_id, "message")
        elif text or to:
            event_id = lane.send(to, text, at=at, id=id, extra=extra)
        else:
            return None
        if to is None and text:
            self._aloud.append((event_id, lane.agent, text))
        return event_id

    def _from_outside(
        self, id: str, at: float | None, to: str | None, messages: list[dict[str, Any]], text: str, extra: dict[str, Any]
    ) -> str | None:
        """The program around the team speaks: for its user, where the message says so."""
        if not text:
            return None
        is_human = any(m.get("source") == "user" for m in messages)
        kind, who, source = ("human_intervention", "user", "user") if is_human else ("message", "runtime", "system")
        fields: dict[str, Any] = {"role": who, "from_": who, "to": to, "source": source, "trusted": True, "extra": extra}
        event_id = self.draft.event(kind, who, id=id, at=at, text=text, **fields)
        if to is not None:
            self.lane(to).hears(event_id, "message")
        self._aloud.append((event_id, who, text))
        return event_id

    # -- what went wrong -----------------------------------------------------------------------------------------------------

    def dropped(self, record: LoggedEvent) -> None:
        event = record.event
        key = _last(event.get("kind")), str(event.get("sender")), compact(event.get("payload"))
        if key in self._sent:
            self.draft.set(self._sent[key], ok=False, error="dropped")
            return
        lane, to = self.lane(event.get("sender")), string(event.get("receiver"))
        lane.send(to, _plain(event.get("payload")), at=record.at, id=f"line{record.line}", heard=False, ok=False, error="dropped")

    def failed(self, record: LoggedEvent) -> None:
        event = record.event
        lane = self.lane(event.get("handling_agent"))
        error = words(event.get("exception"))
        lane.step(at=record.at, text=error, id=f"line{record.line}", ok=False, error=error, kind="message")

    def unmade(self, record: LoggedEvent) -> None:
        event = record.event
        fields: dict[str, Any] = {
            "ok": False,
            "error": words(event.get("exception")),
            "extra": {"agent_id": event.get("agent_id")},
        }
        self.draft.event("spawn", "runtime", id=f"line{record.line}", at=record.at, **fields)


_HANDLERS: dict[str, Callable[[_EventLog, LoggedEvent], None]] = {
    "LLMCall": _EventLog.call,
    "LLMStreamStart": _EventLog.started,
    "LLMStreamEnd": _EventLog.call,
    "ToolCall": _EventLog.tool,
    "Message": _EventLog.message,
    "MessageDropped": _EventLog.dropped,
    "MessageHandlerException": _EventLog.failed,
    "AgentConstructionException": _EventLog.unmade,
}


def _last(value: Any) -> str:
    """`MessageKind.DIRECT` and `Direct` mean the same."""
    return str(value).rpartition(".")[2].lower()


def _usage(event: dict[str, Any]) -> Usage | None:
    return Usage.whole(event.get("prompt_tokens"), event.get("completion_tokens"))


def _answer(response: Any) -> tuple[str, list[Any], str | None]:
    """Words, calls and model of a response, as OpenAI writes it or plain."""
    if isinstance(response, str):
        return response, [], None
    got = as_dict(response)
    message = as_dict(as_dict(next(iter(as_list(got.get("choices"))), None)).get("message")) or got
    content = message.get("content")
    calls = as_list(message.get("tool_calls"))
    if isinstance(content, list) and content and all("arguments" in as_dict(part) for part in content):
        return "", content, string(got.get("model"))
    return words(content), calls, string(got.get("model"))


def _chat_messages(payload: Any) -> list[dict[str, Any]]:
    """The chat messages in a payload: alone, several, or as the response of an agent."""
    got = _object(payload)
    response = as_dict(got.get("response"))
    candidates = [got.get("message"), got.get("chat_message"), response.get("chat_message"), *as_list(got.get("messages"))]
    inside = [m for m in candidates if isinstance(m, dict) and "content" in m]
    return inside or ([got] if "content" in got and "source" in got else [])


def _plain(payload: Any) -> str:
    got = _object(payload)
    return (
        words(got["content"]) if "content" in got else "" if not got and payload in ("{}", "null", None, {}) else compact(payload)
    )


def _object(payload: Any) -> dict[str, Any]:
    try:
        return as_dict(decode(payload)) if isinstance(payload, str) else as_dict(payload)
    except InputError:
        return {}
