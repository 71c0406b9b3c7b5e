"""Transcripts that Cursor keeps of its agents: JSON lines of messages, and the text of older versions.

Always true: no result of a tool is in the lines. A sub-agent that does not run in the background gives its last words back before
the next answer of the one that called it, which is inferred. Nothing raises on a strange line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from counterpoint.formats.importer import Session
from counterpoint.formats.importing.blocks import blocks_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import Answer, Dialogue, Entry
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.values import as_dict, seconds, string

_QUERY = re.compile(r"<user_query>\s*(.*?)\s*(?:</user_query>|\Z)", re.S)
_INJECTED = re.compile(
    r"<(timestamp|attached_files|open_and_recently_viewed_files|system_reminder|additional_data|user_info|project_layout|"
    r"git_status|rules|agent_skills|manually_attached_skills|external_links|cursor_commands|agent_transcripts|mcp_\w+|"
    r"always_applied_\w+|agent_requestable_\w+|terminal_files_information|linter_errors|current_file|edit_history)\b[^>]*>"
    r".*?(?:</\1>|\Z)",
    re.S,
)
_WHEN = re.compile(r"<timestamp>([^<]*)</timestamp>")
_ROLE = re.compile(r"^(user|assistant):[ \t]*$", re.M)
_MARK = re.compile(r"^\[(Thinking|Tool call|Tool result)\][ \t]*(.*)$", re.M)
_FIELD = re.compile(r"^  ([\w.-]+): ?", re.M)
_BEGINS = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:user|assistant):[ \t]*\r?\n")
_CLOCK = re.compile(
    r"([A-Z][a-z]{2,8}) (\d{1,2}), (\d{4}),? (\d{1,2}):(\d\d)\s*(AM|PM)(?: \(UTC([+-]\d{1,2})?(?::(\d\d))?\))?", re.I
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_REDACTED = "[REDACTED]"
_SPAWNS = frozenset({"Task", "task", "TaskV2", "Subagent", "task_v2"})


def is_transcript(head: bytes) -> bool:
    """Whether a file is JSON lines of messages that have nothing but a role beside them."""
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
    keys = first_keys(first if first.rstrip().endswith(b"}") else head)
    if keys.keys() == {"role", "message"}:
        return keys["role"].strip() in (b'"user"', b'"assistant"') and keys["message"].lstrip().startswith(b"{")
    return keys.get("type", b"").strip() == b'"turn_ended"' and "status" in keys


def is_text(head: bytes) -> bool:
    """Whether a file is the text of a transcript."""
    return _BEGINS.match(head) is not None and (b"<user_query>" in head or (b"[Tool call] " in head and b"\nassistant:" in head))


def words_of(text: str) -> str:
    """A person's words, without what the client put beside them."""
    queries = [query for query in _QUERY.findall(text) if query]
    return "\n".join(queries) if queries else _INJECTED.sub("", text).strip()


def transcript_entries(session: Session, file: File, unknown: Counter[str]) -> tuple[list[Entry], int]:
    """The entries of a transcript, and how many records it has."""
    entries: list[Entry] = []
    records = 0
    for number, record in session.records(file):
        records += 1
        message, name = as_dict(record.get("message")), f"m{number}"
        blocks = blocks_of(message.get("content"), unknown)
        if record.get("role") == "user":
            when = _WHEN.search(blocks.text)
            words = words_of(blocks.text)
            entries += [Entry("user", words, name, _moment(when[1]) if when else None)] if words else []
            entries += [Entry("tool", id=f"{name}.t", answers=blocks.answers)] if blocks.answers else []
        elif record.get("role") == "assistant":
            calls = [Call(call.id or f"{name}.{k}", call.tool, call.arguments) for k, call in enumerate(blocks.calls)]
            text = blocks.text.replace(_REDACTED, "").strip()
            extra = {"is_redacted": True} if _REDACTED in blocks.text else {}
            model = string(message.get("model")) or string(record.get("model"))
            entries.append(Entry("assistant", text, name, None, blocks.thinking, calls, model=model, extra=extra))
        elif record.get("type") == "turn_ended":
            entries += _ended(record, name)
        else:
            unknown[f"record of type {record.get('type') or record.get('role')}"] += 1
    return entries, records


def _moment(text: str) -> float | None:
    """Seconds of a time such as "Monday, Mar 2, 2026, 9:05 AM (UTC+1)"."""
    match = _CLOCK.search(text)
    if match is None or match[1][:3].title() not in _MONTHS:
        return seconds(text.strip())
    hour = int(match[4]) % 12 + (12 if match[6].upper() == "PM" else 0)
    zone = timedelta(hours=int(match[7] or 0), minutes=int(f"{(match[7] or '+')[0]}{match[8] or 0}"))
    try:
        moment = datetime(int(match[3]), _MONTHS.index(match[1][:3].title()) + 1, int(match[2]), hour, int(match[5]), tzinfo=UTC)
    except ValueError:
        return None
    return (moment - zone).timestamp()


def _ended(record: dict[str, Any], name: str) -> list[Entry]:
    status = string(record.get("status"))
    if status in (None, "success", "completed"):
        return []
    return [Entry("error", string(record.get("error")) or str(status), name)]


def text_entries(text: str) -> list[Entry]:
    """The entries of a transcript that is text."""
    parts = _ROLE.split(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    entries: list[Entry] = []
    for k, (role, body) in enumerate(zip(parts[1::2], parts[2::2], strict=False)):
        if role == "user":
            entries += [Entry("user", words, f"m{k}")] if (words := words_of(body)) else []
        else:
            entries += _said(body, f"m{k}")
    return entries


def _said(body: str, name: str) -> list[Entry]:
    """What an agent said, with its thoughts, its calls and their results."""
    marks = list(_MARK.finditer(body))
    step = Entry("assistant", body[: marks[0].start() if marks else len(body)].strip(), name)
    entries = [step]
    for k, mark in enumerate(marks):
        rest = body[mark.end() : marks[k + 1].start() if k + 1 < len(marks) else len(body)]
        if mark[1] == "Thinking":
            thought, _, words = f"{mark[2]}{rest}".strip().partition("\n\n")
            step.thinking = "\n".join(filter(None, (step.thinking, thought)))
            step.text = "\n".join(filter(None, (step.text, words.strip())))
        elif mark[1] == "Tool call":
            step.calls.append(Call(f"{name}.{k}", mark[2].strip() or "unnamed", _fields(rest)))
        else:
            tool = mark[2].strip() or None
            call = next((c.id for c in step.calls if c.tool == tool and c.id not in {a.call for a in step.answers}), None)
            if call is not None or rest.strip():
                step.answers.append(Answer(rest.strip(), call, tool))
    return entries if step.text or step.thinking or step.calls else []


def _fields(body: str) -> dict[str, str]:
    parts = _FIELD.split(body)
    return {name: value.strip("\n") for name, value in zip(parts[1::2], parts[2::2], strict=False)}


def link_agents(dialogues: Sequence[Dialogue]) -> None:
    """Say which call made which agent: the one whose prompt its transcript begins with."""
    rows = [(e, call) for dialogue in dialogues for e in dialogue.entries for call in e.calls if call.tool in _SPAWNS]
    taken: set[str | None] = set()
    for child in dialogues[1:]:
        words = next((entry.text for entry in child.entries if entry.role == "user"), "").strip()
        for entry, call in rows:
            prompt = (string(as_dict(call.arguments).get("prompt")) or "").strip()
            if call.id not in taken and prompt and words and (prompt in words or words in prompt):
                child.call, child.rule, child.is_exact = call.id, "the words of its prompt", False
                child.role = string(as_dict(call.arguments).get("subagent_type"))
                child.name = string(as_dict(call.arguments).get("description"))
                taken.add(call.id)
                if as_dict(call.arguments).get("run_in_background") is not True and call.id not in {
                    a.call for a in entry.answers
                }:
                    last = next((e.text for e in reversed(child.entries) if e.role == "assistant" and e.text), "")
                    entry.answers.append(Answer(last, call.id))
                break
