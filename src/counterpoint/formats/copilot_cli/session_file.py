"""Sessions of Copilot CLI as its first versions kept them: one document of chat messages, with a timeline beside them.

Always true: a call is recorded once, though it stands in the messages and in the timeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Session
from counterpoint.formats.importing.chat import Call, message_of
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.values import as_dict, as_list, seconds, string, text_of
from counterpoint.trace import Trace

_PERSON, _MODEL = frozenset({"user", "user_message"}), frozenset({"copilot", "assistant", "assistant_message"})
_OK = {"success": True, "failure": False, "error": False, "rejected": False, "denied": False}
_NOTES = frozenset({"info", "warning", "intention", "group_tool_call_requested", "group_tool_call_completed", "handoff"})


def older_session(session: Session, value: dict[str, Any]) -> Iterator[Trace]:
    """The trace of one document."""
    name = string(value.get("sessionId")) or session.key
    draft = session.draft(name, name, system="copilot-cli")
    timeline = [as_dict(item) for item in as_list(value.get("timeline"))]
    messages = [as_dict(item) for item in as_list(value.get("chatMessages"))]
    unknown: Counter[str] = Counter()
    entries = _messages(messages, timeline, unknown) if messages else _timeline(timeline, unknown)
    require_half(name, len(messages) or len(timeline), unknown)
    session.report.unknown.update(unknown)
    model = string(value.get("selectedModel")) or string(value.get("model"))
    for entry in entries:
        entry.model = model if entry.role == "assistant" else None
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    yield from draft.traces()


def _messages(messages: list[dict[str, Any]], timeline: list[dict[str, Any]], unknown: Counter[str]) -> list[Entry]:
    done = {call: item for item in timeline if (call := string(item.get("callId")))}
    said = [item for item in timeline if string(item.get("type")) in _PERSON | _MODEL]
    entries: list[Entry] = []
    for k, raw in enumerate(messages):
        message = message_of(raw)
        if message is None or message.role not in ("system", "developer", "user", "assistant", "tool"):
            unknown[f"message of role {raw.get('role')}"] += 1
            continue
        role = "system" if message.role == "developer" else message.role
        entry = Entry(role, message.text, f"m{k}", thinking=message.thinking, calls=message.calls)
        if role == "tool":
            item = done.get(message.call or "", {})
            entry.answers = [_answer(item, message.text, message.call)]
            entry.at, entry.text = entry.answers[0].at, ""
        else:
            _date(entry, said)
        entries.append(entry)
    return entries


def _date(entry: Entry, said: list[dict[str, Any]]) -> None:
    """The time of a message, and a person's own words without what the client wrote around them, by the timeline."""
    kinds = _PERSON if entry.role == "user" else _MODEL
    for k, item in enumerate(said):
        text = text_of(item.get("text") or item.get("content"))
        if string(item.get("type")) in kinds and text and text in entry.text:
            entry.at = seconds(item.get("timestamp"))
            entry.text = text if entry.role == "user" else entry.text
            del said[: k + 1]
            return


def _answer(item: dict[str, Any], text: str, call: str | None) -> Answer:
    result = as_dict(item.get("result"))
    ok = _OK.get(str(result.get("type")))
    text = text or text_of(result.get("log") or "")
    error = (text[:500] or str(result.get("type"))) if ok is False else None
    extra = {"is_rejected": True} if string(result.get("type")) in ("rejected", "denied") else {}
    return Answer(text, call, string(item.get("name")), ok, error, seconds(item.get("timestamp")), extra)


def _timeline(timeline: list[dict[str, Any]], unknown: Counter[str]) -> list[Entry]:
    entries: list[Entry] = []
    for k, item in enumerate(timeline):
        kind, at, name = string(item.get("type")), seconds(item.get("timestamp")), string(item.get("id")) or f"t{k}"
        text = text_of(item.get("text") or item.get("content"))
        if kind in _PERSON:
            entries.append(Entry("user", text, name, at))
        elif kind in _MODEL:
            entries.append(Entry("assistant", text, name, at))
        elif kind == "error":
            entries.append(Entry("error", text, name, at))
        elif kind in ("tool_call_requested", "tool_call_completed"):
            _called(entries, item, name, at)
        elif kind not in _NOTES:
            unknown[f"timeline item of type {kind}"] += 1
    return entries


def _called(entries: list[Entry], item: dict[str, Any], name: str, at: float | None) -> None:
    call = string(item.get("callId")) or name
    if not any(c.id == call for e in entries for c in e.calls):
        if not entries or entries[-1].role not in ("assistant", "tool"):
            entries.append(Entry("assistant", "", name, at))
        step = next(e for e in reversed(entries) if e.role == "assistant")
        step.calls.append(Call(call, string(item.get("name")) or "unnamed", item.get("arguments")))
    if item.get("type") == "tool_call_completed":
        entries.append(Entry("tool", at=at, answers=[_answer(item, "", call)]))
