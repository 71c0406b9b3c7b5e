"""The conversations in Claude Code's files: records merged into the model's replies, each agent's own in its own order.

Always true: one API message is one `Reply` however many records it was split over, with its usage once (that of the record
with the most output); a record that was copied (same uuid) counts where it came first; records keep the order of the file,
because its clock cannot be trusted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, seconds, string

SYNTHETIC = "<synthetic>"
# Titles, modes, queues and snapshots: what the client notes for itself. Counted, not part of the story.
_NOTES = {
    *("summary", "ai-title", "custom-title", "agent-name", "mode", "permission-mode", "last-prompt", "pr-link", "bridge-session"),
    *("frame-link", "file-history-snapshot", "cost-state", "queue-operation", "progress", "started", "result"),
}
_TITLES = {"summary": "summary", "ai-title": "title", "custom-title": "customTitle"}


@dataclass(slots=True)
class Reply:
    """One answer of the model."""

    id: str
    model: str | None
    begin: float | None
    end: float | None
    usage: Usage | None = None
    blocks: list[tuple[dict[str, Any], float | None]] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)
    """The first of its records."""


@dataclass
class Conversation:
    """One agent's conversation."""

    agent: str
    items: list[Reply | dict[str, Any]] = field(default_factory=list)
    source: str = "file"
    """Where it stood: a `file` of its own, `mirrored` as progress, or `inline` in the main file."""
    tool_use: str | None = None
    """The call that spawned it, where a sidecar or progress record says so."""
    role: str | None = None
    about: dict[str, Any] = field(default_factory=dict)
    """What the sidecar says."""

    def prompt(self) -> str:
        """The first thing it was told."""
        first = next((i for i in self.items if isinstance(i, dict) and i.get("type") == "user"), None)
        return user_text(first) if first else ""


class Conversations:
    """All conversations of a session."""

    def __init__(self, session: Session, seen: set[str]) -> None:
        """`seen` holds the uuids of records that a session this one was resumed from has already."""
        self.session = session
        self.main = Conversation("main")
        self.others: dict[str, Conversation] = {}
        self.notes: Counter[str] = Counter()
        self.titles: list[str] = []
        self.facts: dict[str, Any] = {}
        self._seen = seen
        self._messages: dict[tuple[str, str], Reply] = {}
        self._owner: dict[str, str] = {}
        self._roots: dict[str, str] = {}
        self.copied = 0

    def read(self, file: File, conversation: Conversation) -> None:
        """Take in the records of a file, whose own conversation is `conversation`."""
        for _, record in self.session.records(file):
            kind = record.get("type")
            if kind == "progress":
                self._progress(record)
            if kind in _NOTES:
                self._note(str(kind), record)
                continue
            self._record(record, self._whose(record, conversation))

    def _note(self, kind: str, record: dict[str, Any]) -> None:
        self.notes[kind] += 1
        title = string(record.get(_TITLES.get(kind, "")))
        if title and title not in self.titles:
            self.titles.append(title)

    def _whose(self, record: dict[str, Any], conversation: Conversation) -> Conversation:
        """Sub-agents of old versions stand in the main file: by their id, or by the root their records hang on."""
        if conversation is not self.main or not record.get("isSidechain"):
            return conversation
        name = string(record.get("agentId"))
        if name is None:
            uuid, parent = str(record.get("uuid")), record.get("parentUuid")
            root = self._roots.get(parent, uuid) if isinstance(parent, str) else uuid
            self._roots[uuid] = root
            name = f"sidechain-{root}"
        return self.other(name, "inline")

    def other(self, name: str, source: str) -> Conversation:
        """The conversation of a sub-agent, made on first use."""
        if name not in self.others:
            self.others[name] = Conversation(name, source=source)
        return self.others[name]

    def _progress(self, record: dict[str, Any]) -> None:
        """A sub-agent's record mirrored in its parent's file; what the sub-agent's own file holds is believed first."""
        data = as_dict(record.get("data"))
        name, inner = string(data.get("agentId")), as_dict(data.get("message"))
        if data.get("type") != "agent_progress" or name is None:
            return
        conversation = self.other(name, "mirrored")
        conversation.tool_use = conversation.tool_use or string(record.get("parentToolUseID"))
        if conversation.source == "mirrored" and inner:
            self._record({**inner, "type": inner.get("type")}, conversation)

    def _record(self, record: dict[str, Any], conversation: Conversation) -> None:
        kind, uuid = record.get("type"), record.get("uuid")
        if isinstance(uuid, str):
            if uuid in self._seen:
                self.copied += 1
                return
            self._seen.add(uuid)
        if kind == "assistant":
            self._assistant(record, conversation)
        elif kind in ("user", "system", "attachment"):
            conversation.items.append(record)
        else:
            self.session.report.unknown[str(kind)] += 1
            return
        if conversation is self.main and not self.facts and record.get("version"):
            self.facts = {k: record[k] for k in ("cwd", "gitBranch", "version", "entrypoint", "slug") if record.get(k)}

    def _assistant(self, record: dict[str, Any], conversation: Conversation) -> None:
        inner = as_dict(record.get("message"))
        name = string(inner.get("id")) or string(record.get("uuid")) or f"{conversation.agent}-{len(conversation.items)}"
        at = seconds(record.get("timestamp"))
        if self._owner.setdefault(name, conversation.agent) != conversation.agent:
            self.copied += 1
            return
        message = self._messages.get((conversation.agent, name))
        if message is None:
            message = Reply(name, string(inner.get("model")), at, at, record=record)
            self._messages[conversation.agent, name] = message
            conversation.items.append(message)
        usage = Usage.anthropic(inner.get("usage"))
        if usage is not None and (message.usage is None or usage.output >= message.usage.output):
            message.usage = usage
        content = inner.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
        message.blocks += [(block, at) for block in blocks if isinstance(block, dict)]
        if at is not None:
            message.end = at if message.end is None else max(message.end, at)


def user_text(record: dict[str, Any]) -> str:
    """The words of a user record, tool results left out."""
    content = as_dict(record.get("message")).get("content")
    if isinstance(content, str):
        return content
    parts = [b if isinstance(b, str) else as_dict(b).get("text") for b in as_list(content)]
    return "\n".join(part for part in parts if isinstance(part, str))
