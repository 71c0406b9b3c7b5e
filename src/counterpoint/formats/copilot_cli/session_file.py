"""Sessions of Copilot CLI as its first versions kept them: one document of chat messages, with a timeline beside them, or a
history alone.

Always true: a call is recorded once, though it stands in the messages and in the timeline.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Session, run_of
from counterpoint.formats.importing.chat import Call, message_of
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.values import as_dict, as_list, folder_name, seconds, string, text_of
from counterpoint.trace import Trace

_PERSON, _MODEL = frozenset({"user", "user_message"}), frozenset({"copilot", "assistant", "assistant_message"})
_FOLDERS = frozenset({"workspacePath", "workspace", "cwd", "workingDirectory"})
_HISTORY = frozenset({"history", "id", "sessionId", "title", "createdAt", "updatedAt", "version", "model"}) | _FOLDERS
_TURN = re.compile(rb'"role"\s*:\s*"(?:human|user|copilot|assistant)"')
_ROLES = {"human": "user", "user": "user", "assistant": "assistant", "copilot": "assistant", "system": "system"}
_OK = {"success": True, "failure": False, "error": False, "rejected": False, "denied": False}
_NOTES = frozenset({"info", "warning", "intention", "group_tool_call_requested", "group_tool_call_completed", "handoff"})


def is_history(head: bytes) -> bool:
    """Whether a file is a history: turns, and the folder they were in."""
    keys = first_keys(head)
    begins = keys.get("history", b"").lstrip().startswith(b"[")
    return begins and bool(keys.keys() & _FOLDERS) and keys.keys() <= _HISTORY and _TURN.search(head) is not None


def oldest_history(session: Session, value: dict[str, Any]) -> Iterator[Trace]:
    """The trace of a history."""
    turns = [as_dict(turn) for turn in as_list(value.get("history"))]
    name = string(value.get("sessionId")) or string(value.get("id")) or f"history-{run_of(turns[:2])}"
    unknown: Counter[str] = Counter()
    entries: list[Entry] = []
    for k, turn in enumerate(turns):
        role = _ROLES.get(str(turn.get("role")))
        text = text_of(turn.get("content") or turn.get("result") or turn.get("text") or "")
        if role is None:
            unknown[f"turn of role {turn.get('role')}"] += 1
        else:
            at = seconds(turn.get("time") or turn.get("timestamp"))
            entries.append(Entry(role, text, f"t{k}", at, model=string(turn.get("model")) if role == "assistant" else None))
    require_half(name, len(turns), unknown)
    session.report.unknown.update(unknown)
    if not entries:
        return
    draft = session.draft(name, name, system="copilot-cli")
    folder = folder_name(next((value[key] for key in sorted(_FOLDERS) if key in value), None))
    draft.meta.update({"project": folder} if folder else {})
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    yield from draft.traces()


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
