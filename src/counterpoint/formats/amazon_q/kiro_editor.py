"""Sessions of Kiro's editor: an execution (`.chat`), or the history of a session in a workspace.

Always true: instructions that the editor wrote in a person's name are the system's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Session, run_of
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import as_dict, as_list, seconds, string, text_of
from counterpoint.trace import Trace

_INSTRUCTIONS = ("# System Prompt", "# Identity", "<identity>", "## Included Rules", "You are operating in a workspace")
_AGREED = "I will follow these instructions."


def editor_session(session: Session, value: dict[str, Any], file: File) -> Iterator[Trace]:
    """The trace of an execution, or of a session."""
    unknown: Counter[str] = Counter()
    about = as_dict(value.get("metadata"))
    if "chat" in value:
        name = string(value.get("executionId")) or f"kiro-{run_of(value)}"
        rows = [(as_dict(m), as_dict(m)) for m in as_list(value.get("chat"))]
    else:
        name = string(value.get("sessionId")) or f"kiro-{run_of(value)}"
        rows = [(as_dict(as_dict(h).get("message")), as_dict(h)) for h in as_list(value.get("history"))]
    entries = []
    for k, (message, row) in enumerate(rows):
        entry = _entry(message, row, f"m{k}")
        if entry is None:
            unknown[f"message of role {message.get('role')}"] += 1
        elif not (entry.role == "assistant" and entry.text == _AGREED):
            entries.append(entry)
    require_half(file.name, len(rows), unknown)
    session.report.unknown.update(unknown)
    if not entries:
        return
    steps = [entry for entry in entries if entry.role == "assistant"]
    for step in steps:
        step.model = string(about.get("modelId"))
    entries[0].at = seconds(about.get("startTime")) or None
    if steps:
        steps[-1].at = seconds(about.get("endTime")) or None
    draft = session.draft(name, name, system="kiro")
    if string(value.get("title")):
        draft.meta["title"] = value["title"]
    if place := string(value.get("workspaceDirectory")):
        draft.meta["project"] = place.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    yield from draft.traces()


def _entry(message: dict[str, Any], row: dict[str, Any], name: str) -> Entry | None:
    role, content = string(message.get("role")), message.get("content")
    parts = [p for p in content if as_dict(p).get("type") in ("text", None)] if isinstance(content, list) else content
    text = text_of(parts).strip()
    if role in ("human", "user"):
        text = text.removeprefix("<kiro-ide-message>").removesuffix("</kiro-ide-message>").strip()
        return Entry("system" if text.startswith(_INSTRUCTIONS) else "user", text, name)
    if role in ("bot", "assistant"):
        told = [text_of(as_dict(log).get("completion") or "") for log in as_list(row.get("promptLogs"))]
        return Entry("assistant", "\n".join(filter(None, told)).strip() or text, name)
    if role == "tool":
        return Entry("tool", id=name, answers=[Answer(text)])
    return Entry("system", text, name) if role == "system" else None
