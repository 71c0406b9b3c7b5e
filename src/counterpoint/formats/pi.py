"""pi: sessions of the coding agent pi, and of those built on it, and what `--mode json` prints.

| record | becomes |
|---|---|
| `message` of the user, a command that the user ran | `human_intervention` |
| `message` of the assistant | `orchestrator_decision`, and a `tool_call` for each `toolCall` |
| `message` of role `toolResult` | `tool_result` |
| `compaction`, `branch_summary`, `custom_message` | `message` of the client |
| `message_end`, `compaction_end` of what is printed | as `message`, `compaction`; pieces before them say nothing else |

Tokens and costs: `usage` of each answer, in which the input leaves the cache out; that of a tool's
result or of a summary is a step of its own. In a session that branched from another, what
is older than its own head is a copy, and counts where it came from. All branches of a session's tree stay.

What is lost: images, settings and labels (counted in `left_out`).

Always true: an answer is one step, whether or not it was aborted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, count, number, seconds, string, text_of
from counterpoint.trace import Trace

_COUNTS = ("input", "output", "cacheRead", "cacheWrite")
_NOTES = frozenset({"model_change", "thinking_level_change", "label", "session_info", "custom", "context_transform", "ephemeral"})
_SUMMARIES = frozenset({"compaction", "branch_summary"})
_PIECES = re.compile(
    r"(?:agent|turn|message|tool_execution|compaction|auto_retry|auto_compaction)_(?:start|update|end)|queue_update|extension_\w+"
)
_COPIED = "records copied from another session: their tokens count there"


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    kind = keys.get("type", b"").strip()
    if kind == b'"agent_start"':  # what older versions print has no head
        return b'"turn_start"' in head and b'"message_end"' in head
    return kind == b'"session"' and keys.keys() >= {"id", "timestamp", "cwd"}


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        unknown: Counter[str] = Counter()
        reader: _Reader | None = None
        records = 0
        for number_, record in session.records(file):
            records += 1
            if record.get("type") == "session":
                if reader is None or string(record.get("id")) not in (None, reader.name):
                    yield from reader.traces() if reader else ()
                    reader = _Reader(session, record)
                continue
            if reader is None and record.get("type") == "agent_start":
                reader = _Reader(session, {})
            if reader is None or not reader.record(record, string(record.get("id")) or f"r{number_}"):
                unknown[f"record of type {record.get('type')}"] += 1
        require_half(file.name, records, unknown)
        session.report.unknown.update(unknown)
        yield from reader.traces() if reader else ()


class _Reader:
    """One session on its way to a trace."""

    def __init__(self, session: Session, head: dict[str, Any]) -> None:
        self.name = string(head.get("id")) or session.key
        self.draft = session.draft(self.name, self.name, system="pi")
        source = string(head.get("branchedFrom")) or string(head.get("parentSession"))
        self.begun = seconds(head.get("timestamp")) if source else None
        if source:
            self.draft.meta["forked_from"] = source.rsplit("/", 1)[-1]
        self.entries: list[Entry] = []
        self.left_out: Counter[str] = Counter()

    def record(self, record: dict[str, Any], name: str) -> bool:
        """Take a record; False where its kind is not known."""
        kind, at = string(record.get("type")), seconds(record.get("timestamp"))
        if kind in ("message", "message_end"):
            message = as_dict(record.get("message"))
            return self._message(message, name, at or seconds(message.get("timestamp")))
        if kind in ("compaction_end", "auto_compaction_end") and isinstance(record.get("result"), dict):
            return self.record({**record["result"], "type": "compaction"}, name)
        if kind in _SUMMARIES or kind == "custom_message":
            text = text_of(record.get("summary") or record.get("content"))
            kept = {"kept_from": record.get("firstKeptEntryId")}  # from there on the model reads what was said word for word
            extra = {"is_compaction": True, **kept} if kind == "compaction" else {}
            self._spent_by(record.get("usage"), f"{name}:usage", kind, at)
            self.entries.append(Entry("user", text, name, at, by="client", extra=extra))
        elif kind in _NOTES:
            self.left_out[str(kind)] += 1
        else:
            return _PIECES.fullmatch(kind or "") is not None
        return True

    def _message(self, message: dict[str, Any], name: str, at: float | None) -> bool:
        role, parts = string(message.get("role")), as_list(message.get("content"))
        self.left_out["image"] += sum(as_dict(p).get("type") == "image" for p in parts)
        texts = [p for p in parts if as_dict(p).get("type") == "text"] if parts else message.get("content")
        entry = Entry("user", text_of(texts), name, at)
        if role == "assistant":
            self._answer(entry, message, [as_dict(p) for p in parts])
        elif role == "toolResult":
            failed = message.get("isError")
            ok = not failed if isinstance(failed, bool) else None
            error = (entry.text[:500] or "error") if ok is False else None
            call, tool = string(message.get("toolCallId")), string(message.get("toolName"))
            self._spent_by(message.get("usage"), f"{name}:usage", tool, at)
            entry = Entry("tool", at=at, answers=[Answer(entry.text, call, tool, ok, error)])
        elif role == "bashExecution":
            entry.text = f"! {text_of(message.get('command'))}\n{text_of(message.get('output'))}"
        elif role == "system":
            entry.role = "system"
        elif role in ("custom", "hookMessage", "branchSummary", "compactionSummary"):
            entry.by, entry.text = "client", entry.text or text_of(message.get("summary"))
        elif role != "user":
            return False
        self.entries.append(entry)
        return True

    def _answer(self, entry: Entry, message: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        entry.usage, entry.cost = self._usage(message.get("usage"))
        if self.begun is not None and entry.at is not None and entry.at < self.begun:
            entry.usage = entry.cost = None
            self.draft.report.mended[_COPIED] += 1
        entry.role, entry.model, entry.stop_reason = "assistant", string(message.get("model")), string(message.get("stopReason"))
        entry.thinking = "\n".join(text_of(p.get("thinking")) for p in parts if p.get("type") == "thinking")
        calls = [p for p in parts if p.get("type") == "toolCall"]
        entry.calls = [Call(string(p.get("id")), string(p.get("name")) or "unnamed", p.get("arguments")) for p in calls]
        if entry.stop_reason in ("error", "aborted"):
            entry.error = string(message.get("errorMessage")) or entry.stop_reason

    def _usage(self, usage: Any) -> tuple[Usage | None, float | None]:
        got = as_dict(usage)
        self.draft.report.note_odd_counts(odd_counts(got, _COUNTS))
        fresh, out, read, wrote = (count(got.get(n)) for n in _COUNTS)
        if fresh is None and out is None:
            return None, None
        return Usage(fresh or 0, read or 0, wrote or 0, out or 0), number(as_dict(got.get("cost")).get("total")) or None

    def _spent_by(self, usage: Any, name: str, who: str | None, at: float | None) -> None:
        """What a tool's or a summary's own calls of a model spent: a step without words."""
        spent, cost = self._usage(usage)
        if spent and (self.begun is None or at is None or at >= self.begun):
            self.entries.append(Entry("assistant", "", name, at, usage=spent, cost=cost, extra={"spent_by": who}))

    def traces(self) -> Iterator[Trace]:
        play(self.draft, [Dialogue(entries=self.entries)])
        self.draft.lane(MAIN).stops()
        if left_out := {kind: n for kind, n in sorted(self.left_out.items()) if n}:
            self.draft.meta["left_out"] = left_out
        yield from self.draft.traces()


pi = Importer(
    suffixes=(".pi.jsonl",),
    sniff=_sniff,
    signs=("type", "timestamp", "cwd", "provider", "modelId", "thinkingLevel", "toolCallId", "stopReason"),
    system="pi",
    read_session=_read,
    rank=1,
    becomes={
        "message": ("human_intervention", "message", "orchestrator_decision", "tool_call", "tool_result"),
        "compaction, branch_summary, custom_message": ("message",),
    },
    versions="sessions of version 3, what pi 0.73 prints",
    exact="tokens, costs, calls",
    lost="images, settings, labels",
)
"""Sessions of pi."""
