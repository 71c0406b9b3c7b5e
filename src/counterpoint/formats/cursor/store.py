"""The editor's database (`state.vscdb`): its composers, and the bubbles that they are made of.

Always true: bubbles come in the order of their composer's list; one that the editor has removed is counted as missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.cursor.transcript import words_of
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.database import Database, has_tables
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, decode, folder_name, seconds, string, text_of
from counterpoint.trace import Trace
from counterpoint.trace.keys import PROJECT

_TABLE = "cursorDiskKV"
_CHOSEN = f"SELECT key, value FROM {_TABLE} WHERE key LIKE 'composerData:%' OR key LIKE 'bubbleId:%'"
_USER = 1
_ENDED = {"completed": True, "success": True, "error": False, "cancelled": False, "rejected": False}
_MISSING = "messages that the editor has removed"


def is_store(head: bytes) -> bool:
    """Whether a file is such a database."""
    return has_tables(head, _TABLE)


def read_store(session: Session, file: File, log: File | None) -> Iterator[Trace]:
    """One trace for each composer that has messages."""
    composers: dict[str, dict[str, Any]] = {}
    bubbles: dict[tuple[str, str], dict[str, Any]] = {}
    for row in Database(file, log).rows(_CHOSEN):
        kind, _, rest = str(row.get("key")).partition(":")
        value = _object(row.get("value"))
        session.report.records += 1
        if kind == "composerData":
            composers[rest] = value
        elif value:
            composer, _, name = rest.partition(":")
            bubbles[composer, name] = value
    for name, about in composers.items():
        yield from _composer(session, name, about, bubbles)


def _object(value: Any) -> dict[str, Any]:
    try:
        return as_dict(decode(value)) if isinstance(value, str | bytes) else {}
    except InputError:
        return {}


def _composer(
    session: Session, name: str, about: dict[str, Any], bubbles: dict[tuple[str, str], dict[str, Any]]
) -> Iterator[Trace]:
    draft = session.draft(name, name, system="cursor")
    chosen = string(as_dict(about.get("modelConfig")).get("modelName"))
    model = None if chosen == "default" else chosen
    entries: list[Entry] = []
    inline = {str(as_dict(b).get("bubbleId")): as_dict(b) for b in as_list(about.get("conversation"))}
    for head in map(as_dict, as_list(about.get("fullConversationHeadersOnly")) or list(inline.values())):
        bubble = bubbles.get((name, str(head.get("bubbleId")))) or inline.get(str(head.get("bubbleId"))) or {}
        if not bubble:
            draft.report.lacks[_MISSING] += 1
            continue
        own = string(as_dict(bubble.get("modelInfo")).get("modelName"))
        model = own if own and own != "default" else model
        entries += _entries(bubble, head.get("type", bubble.get("type")), model)
    if not any(entry.role == "assistant" for entry in entries):
        return
    if title := string(about.get("name")):
        draft.meta["title"] = title
    if folder := folder_name(as_dict(as_dict(about.get("workspaceIdentifier")).get("uri")).get("fsPath")):
        draft.meta[PROJECT] = folder
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    yield from draft.traces()


def _entries(bubble: dict[str, Any], kind: Any, model: str | None) -> list[Entry]:
    name = string(bubble.get("bubbleId"))
    times = as_dict(bubble.get("timingInfo"))
    at = seconds(bubble.get("createdAt")) or seconds(times.get("clientEndTime")) or seconds(times.get("clientStartTime"))
    text = text_of(bubble.get("text") or bubble.get("rawText") or "")
    if kind == _USER:
        return [Entry("user", words_of(text), name, at)] if text else []
    thought = text_of(as_dict(bubble.get("thinking")).get("text") or "")
    entry = Entry("assistant", text, name, at, thought, model=model)
    tokens = as_dict(bubble.get("tokenCount"))
    into, out = count(tokens.get("inputTokens")), count(tokens.get("outputTokens"))
    entry.usage = Usage.whole(into or 0, out or 0) if into or out else None
    if tool := as_dict(bubble.get("toolFormerData")):
        call = string(tool.get("toolCallId")) or f"{name}.call"
        arguments = tool.get("rawArgs") or tool.get("params")
        entry.calls.append(Call(call, string(tool.get("name")) or "unnamed", arguments))
        entry.answers += _answer(tool, call)
    return [entry] if entry.text or entry.thinking or entry.calls or entry.usage else []


def _answer(tool: dict[str, Any], call: str) -> list[Answer]:
    status, result = string(tool.get("status")), text_of(tool.get("result") or "")
    error = text_of(_object(tool.get("error")).get("clientVisibleErrorMessage") or tool.get("error") or "")
    if status not in _ENDED and not result and not error:
        return []
    ok = False if error or tool.get("userDecision") == "rejected" else _ENDED.get(status or "")
    return [Answer(result or error, call, None, ok, (error or result[:500] or status or "error") if ok is False else None)]
