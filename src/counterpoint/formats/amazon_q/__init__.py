"""Amazon Q Developer CLI and Kiro: saved conversations, their database, sessions of Kiro's CLI and editor.

| record | becomes |
|---|---|
| `Prompt`, a person's words | `human_intervention` |
| `ToolUseResults`, `CancelledToolUses`, `ToolResults` | `tool_result`; words beside a cancellation are the person's |
| `Response`, `ToolUse`, `AssistantMessage`, `bot` | one `orchestrator_decision`, with a `tool_call` for each use of a tool |
| `latest_summary`, `Compaction` | `message` of the client |

A conversation is a trace, also in `data.sqlite3`, in which there is one for each folder. A session of Kiro's CLI is its `.jsonl`
with the `.json` beside it, which may state tokens and credits for each turn of the person: they stand on the turn's last step.

What is lost: tokens and prices of Amazon Q, which are in no file; pictures; what Kiro's editor ran (its logs lie apart).

Always true: a conversation keeps its own id, wherever it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.amazon_q.conversation import conversation_of
from counterpoint.formats.amazon_q.kiro_cli import kiro_session
from counterpoint.formats.amazon_q.kiro_editor import editor_session
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.database import Database, has_tables
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.values import as_dict, decode, string
from counterpoint.trace import Trace

_KINDS = frozenset({b'"Prompt"', b'"AssistantMessage"', b'"ToolResults"', b'"Compaction"', b'"ResetTo"', b'"CancelledPrompt"'})
_LOG = re.compile(r"(?:^|/)(?:amazon-q|kiro(?:-cli)?)/data\.sqlite3-wal$")
_PAIR = re.compile(rb'"user"\s*:\s*\{|"Prompt"\s*:\s*\{|"valid_history_range"\s*:|"transcript"\s*:\s*\[')
_TABLES = ("conversations_v2", "conversations")


def _sniff(head: bytes) -> bool:
    if has_tables(head, "conversations", "auth_kv"):
        return True
    keys = first_keys(head)
    if keys.keys() >= {"conversation_id", "history"}:
        return _PAIR.search(head) is not None
    if keys.keys() >= {"key", "value"}:
        return b'conversation_id\\"' in head and b'history\\"' in head
    if keys.keys() >= {"version", "kind", "data"}:
        return keys["kind"].strip() in _KINDS
    if keys.keys() >= {"session_id", "session_state"} or keys.keys() >= {"executionId", "chat"}:
        return True
    return keys.keys() >= {"sessionId", "workspaceDirectory", "history"} and b'"executionId"' in head


def _group(files: Sequence[File]) -> Iterable[Session]:
    """A database with its log, a session of Kiro's CLI with what is said about it; every other file alone."""
    groups: dict[str, list[File]] = {}
    for file in files:
        base = file.name.removesuffix("-wal")
        groups.setdefault(re.sub(r"\.jsonl?$", "", base), []).append(file)
    for name, some in groups.items():
        yield Session(name, sorted(some, key=lambda f: (not f.name.endswith(".jsonl"), f.name)))


def _read(session: Session) -> Iterator[Trace]:
    file = session.files[0]
    head = file.head()
    keys = first_keys(head)
    if has_tables(head, "conversations"):
        yield from _database(session, file)
    elif "kind" in keys and "data" in keys:
        yield from kiro_session(session, file, session.files[1] if len(session.files) > 1 else None)
    elif "session_state" in keys:
        session.report.lacks["the messages of a session: its .jsonl is not there"] += 1
    else:
        for value in session.documents(file):
            for record in value if isinstance(value, list) else [value]:
                yield from _one(session, as_dict(record), file)


def _one(session: Session, record: dict[str, Any], file: File) -> Iterator[Trace]:
    if "chat" in record or "workspaceDirectory" in record:
        yield from editor_session(session, record, file)
        return
    value, place = record, ""
    if "value" in record and "history" not in record:
        value, place = _decoded(session, file, record.get("value")), string(record.get("key")) or ""
    yield from conversation_of(session, value, place, file.name)


def _database(session: Session, file: File) -> Iterator[Trace]:
    log = next((other for other in session.files[1:] if other.name.endswith("-wal")), None)
    base = Database(file, log)
    met: set[str] = set()
    for table in (name for name in _TABLES if name in base.tables()):
        for row in base.table(table, order="key"):
            value = _decoded(session, file, row.get("value"))
            name = string(value.get("conversation_id")) or string(row.get("conversation_id")) or str(row.get("key"))
            if name not in met:
                session.report.records += 1
                met.add(name)
                yield from conversation_of(session, value, string(row.get("key")) or "", file.name)


def _decoded(session: Session, file: File, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    try:
        return as_dict(decode(str(value)))
    except InputError as error:
        session.report.broke(file.name, None, f"a conversation that {error.what}")
        return {}


def _is_log(name: str) -> bool:
    return _LOG.search(name) is not None


amazon_q = Importer(
    suffixes=(".chat", ".amazonq.json"),
    sniff=_sniff,
    sidecar=_is_log,
    signs=(
        "conversation_id",
        "history",
        "transcript",
        "request_metadata",
        "env_context",
        "tool_uses",
        "model_info",
        "next_message",
    ),
    system="amazon-q",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "Prompt": ("human_intervention",),
        "ToolUseResults, CancelledToolUses, ToolResults": ("tool_result",),
        "Response, ToolUse, AssistantMessage, bot": ("orchestrator_decision", "tool_call"),
        "latest_summary, Compaction": ("message",),
        "user_turn_metadatas": ("tokens_in", "tokens_out", "meta"),
    },
    lost="tokens and prices where no file states them, pictures, what Kiro's editor ran",
    versions="Amazon Q CLI 1.10 to 1.19, Kiro CLI 1 and 2, Kiro's editor of 2025",
    exact="tool calls with their results, times of each call, credits and tokens of a turn where they are stated",
)
"""Conversations of Amazon Q Developer CLI and Kiro."""
