"""What the first record of a Codex log says about its thread: who it is, who made it, what kind it is.

Always true: nothing here raises; a record that begins no log has no head. A thread's parent is the one that the source names,
never an inferred one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import Any

import zstandard

from counterpoint.errors import InputError
from counterpoint.formats.importing.files import File, Line, lines_of, part_of
from counterpoint.formats.importing.values import as_dict, count, decode, is_broken, seconds, string

ENVELOPE = frozenset(
    [
        "session_meta",
        "response_item",
        "event_msg",
        "turn_context",
        "compacted",
        "world_state",
        "inter_agent_communication",
        "inter_agent_communication_metadata",
        "security_risk_score",
    ]
)
"""The types of a rollout's lines."""
# Of these nothing is kept: they repeat another record, or say nothing about the team.
KNOWN_EVENTS = frozenset(
    [
        "agent_message",
        "agent_reasoning",
        "agent_reasoning_raw_content",
        "agent_reasoning_section_break",
        "context_compacted",
        "thread_settings_applied",
        "thread_goal_updated",
        "entered_review_mode",
        "background_event",
        "plan_update",
        "turn_diff",
        "session_configured",
        "raw_response_item",
        "undo_completed",
        "image_generation_end",
        "view_image_tool_call",
        "dynamic_tool_call_request",
        "dynamic_tool_call_response",
        "warning",
        "stream_error",
    ]
)
KNOWN_ITEMS = frozenset(
    ["compaction", "context_compaction", "compaction_summary", "compaction_trigger", "ghost_snapshot", "other"]
)
KNOWN_DONE = frozenset(
    [
        "AgentMessage",
        "CommandExecution",
        "McpToolCall",
        "FileChange",
        "Plan",
        "Reasoning",
        "WebSearch",
        "ImageGeneration",
        "ImageView",
        "ContextCompaction",
        "HookPrompt",
        "EnteredReviewMode",
        "ExitedReviewMode",
    ]
)
OLD_DOCUMENT = re.compile(rb'^\s*\{\s*"session"\s*:\s*\{[^{}]*"id"\s*:.*?"items"\s*:\s*\[', re.DOTALL)
"""How the oldest logs begin: one document instead of lines."""


@dataclass
class ThreadHead:
    """A thread, before its records are read."""

    id: str
    shape: str
    """`rollout`, `plain` (lines without an envelope), `document`, `exec` or `bundle`."""
    kind: str = "root"
    """`root`, `thread_spawn`, `fork`, or a sub-agent that Codex makes itself: `guardian`, `review`, `compact`, ..."""
    parent: str | None = None
    session: str | None = None
    """The root thread of the tree, where the source says."""
    forked_from: str | None = None
    role: str | None = None
    nickname: str | None = None
    path: str | None = None
    created: float | None = None
    start_ordinal: int | None = None
    """The first line of its own, in logs that number their lines."""
    about: dict[str, Any] | None = None
    project: str | None = None


def head_of(record: dict[str, Any]) -> ThreadHead | None:
    """The head in a log's first record; a rollout whose session_meta is missing has one without an id."""
    kind, payload = string(record.get("type")), record.get("payload")
    if isinstance(payload, dict) and kind in ENVELOPE:
        return head_of_meta(payload) if kind == "session_meta" else ThreadHead("", "rollout")
    if kind == "thread.started" and string(record.get("thread_id")):
        return ThreadHead(record["thread_id"], "exec")
    if is_bundle_event(record):
        return ThreadHead(string(record.get("rollout_id")) or "", "bundle")
    if "type" not in record and string(record.get("id")) and "instructions" in record:
        return ThreadHead(record["id"], "plain", created=seconds(record.get("timestamp")))
    return None


def is_bundle_event(record: dict[str, Any]) -> bool:
    """Whether a record is a line of a rollout-trace bundle."""
    typed = string(as_dict(record.get("payload")).get("type"))
    return bool(typed and "rollout_id" in record and "seq" in record and "wall_time_unix_ms" in record)


def peek(file: File) -> ThreadHead | None:
    """The head of a file, from its first line that is a record."""
    try:
        if OLD_DOCUMENT.match(file.head()):
            session = as_dict(as_dict(decode(file.data())).get("session"))
            return ThreadHead(string(session.get("id")) or file.stem, "document", created=seconds(session.get("timestamp")))
        for _, line in islice(file.lines(), _LINES_PEEKED):
            if line is not None and not is_broken(line) and isinstance(record := decode(line), dict):
                return head_of(record)
    except InputError:
        return None
    return None


_LINES_PEEKED = 20
_BEGINS = re.compile(rb'"(?:session_meta|thread\.started|instructions)"')
_BLOCK = 1 << 20


def threads_in(file: File) -> list[File]:
    """The threads in a log, each as a file; the file itself where it is one thread.

    A log that was forked repeats, right behind its own head, the heads of the threads that it was forked from; every other head
    of another thread begins the log of that thread, which somebody put into the same file.
    """
    if not _may_be_several(file):
        return [file]
    parts: list[tuple[str, list[Line]]] = []
    above: set[str | None] = set()
    is_head = False
    for line, data in lines_of(file):
        head = _begins(data)
        is_new = head is not None and (not parts or head.id != parts[-1][0])
        if head is not None and is_new and not (is_head and head.id in above):
            parts.append((head.id, []))
            above = set()
        if head is not None:
            above |= {head.forked_from, head.parent, head.session}
        is_head = head is not None or (is_head and data.isspace())
        if not parts:
            parts.append(("", []))
        parts[-1][1].append(line)
    return [file] if len({name for name, _ in parts if name}) < 2 else [part_of(file, name, lines) for name, lines in parts]


def _may_be_several(file: File) -> bool:
    """Whether words that begin a thread's log stand in more than one place."""
    heads = 0
    try:
        with file.unpacked() as stream:
            while heads < 2 and (data := stream.read(_BLOCK)):
                heads += len(_BEGINS.findall(data + stream.readline()))
    except (InputError, OSError, EOFError, zstandard.ZstdError):
        pass
    return heads > 1


def _begins(data: bytes) -> ThreadHead | None:
    """The head in a line that begins a thread's log."""
    if not _BEGINS.search(data):
        return None
    try:
        head = head_of(as_dict(decode(data)))
    except InputError:
        return None
    return head if head is not None and head.id and head.shape in ("rollout", "plain", "exec") else None


def head_of_meta(meta: dict[str, Any]) -> ThreadHead:
    """The head in the payload of a session_meta."""
    source = meta.get("source")
    subagent = as_dict(source).get("subagent") if isinstance(source, dict) else None
    spawn = as_dict(as_dict(subagent).get("thread_spawn"))
    forked = string(meta.get("forked_from_id"))
    parent = string(meta.get("parent_thread_id")) or string(spawn.get("parent_thread_id"))
    kind = _kind(subagent, spawn, meta)
    if kind == "root" and forked:
        kind, parent = "fork", parent or forked
    path = string(meta.get("agent_path")) or string(spawn.get("agent_path"))
    role = next((r for m in (meta, spawn) for k in ("agent_role", "agent_type") if (r := string(m.get(k)))), None)
    named = path.rsplit("/", 1)[-1] if path else None
    about = {k: meta[k] for k in ("cli_version", "originator", "model_provider", "multi_agent_version") if string(meta.get(k))}
    return ThreadHead(
        id=string(meta.get("id")) or "",
        shape="rollout",
        kind=kind,
        parent=parent,
        session=string(meta.get("session_id")),
        forked_from=forked,
        role=role or named or ("agent" if kind == "thread_spawn" else kind),
        nickname=string(meta.get("agent_nickname")) or string(spawn.get("agent_nickname")),
        path=path or ("/root" if kind == "root" else None),
        created=seconds(meta.get("timestamp")),
        start_ordinal=count(meta.get("subagent_history_start_ordinal")),
        about=about,
        project=_project(meta),
    )


def _project(meta: dict[str, Any]) -> str | None:
    """The last folder of where the thread ran; the repository's name where that is not said."""
    where = string(meta.get("cwd")) or (string(as_dict(meta.get("git")).get("repository_url")) or "").removesuffix(".git")
    return where.replace("\\", "/").rstrip("/").rpartition("/")[2] or None


def _kind(subagent: Any, spawn: dict[str, Any], meta: dict[str, Any]) -> str:
    if spawn:
        return "thread_spawn"
    if isinstance(subagent, str) and subagent:
        return subagent
    if isinstance(subagent, dict):
        return string(subagent.get("other")) or next(iter(subagent), "subagent")
    if string(meta.get("parent_thread_id")) and meta.get("thread_source") == "subagent":
        return "thread_spawn"
    return "root"
