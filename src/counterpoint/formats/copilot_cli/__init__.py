"""GitHub Copilot CLI: the events of a session (`session-state/<id>/events.jsonl`), and its older session files.

| event | becomes |
|---|---|
| `user.message` | `human_intervention`; `message` of the client where its source is no person |
| `system.message`, `system.notification`, `session.compaction_complete` | `message` of the system or the client |
| `assistant.message` | one `orchestrator_decision` of the main agent, `message` of another; with its `tool_call`s |
| `tool.execution_complete` | `tool_result` |
| `subagent.started`, `subagent.completed`, `subagent.failed` | `spawn`, `return` |
| `abort` | `human_intervention`, interrupted |
| `session.error` | `error` of the step before |

Read are, too, the lines that hooks log (`hook_events.py`), and documents of the versions before events (`session_file.py`).

Tokens: see `totals.py`. What is lost: prices (it counts AI units and premium requests, kept in `meta`), client bookkeeping
(counted in `left_out`).

Always true: an event id counts once; messages of one API call are one step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.formats.copilot_cli.events import SessionEvents
from counterpoint.formats.copilot_cli.hook_events import hook_log, is_hook_log
from counterpoint.formats.copilot_cli.session_file import is_history, older_session, oldest_history
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.dialogue import require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.values import as_dict, as_list, string
from counterpoint.trace import Trace

_FAMILY = re.compile(rb'\s*"(?:session|user|assistant|tool|subagent|system|hook|skill|permission|model)\.[a-z_.]+"')
_WORKSPACE = re.compile(r"(?:^|/)session-state/[^/]+/workspace\.yaml$")


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if keys.keys() >= {"sessionId", "startTime"} and ("chatMessages" in keys or "timeline" in keys):
        return True
    if is_history(head) or is_hook_log(head):
        return True
    if keys.keys() == {"events"}:
        return b'"assistant.message"' in head and b'"data"' in head
    return keys.keys() >= {"type", "data", "timestamp", "id"} and _FAMILY.match(keys["type"]) is not None


def _group(files: Sequence[File]) -> Iterable[Session]:
    """Each file is a session, with the `workspace.yaml` beside it."""
    beside = {file.name.rpartition("/")[0]: file for file in files if _WORKSPACE.search(file.name)}
    for file in files:
        if not _WORKSPACE.search(file.name):
            about = beside.get(file.name.rpartition("/")[0]) if file.last == "events.jsonl" else None
            yield Session(file.name, [file, about] if about else [file])


def _read(session: Session) -> Iterator[Trace]:
    file = session.files[0]
    if "startTime" in first_keys(file.head()):
        for value in session.documents(file):
            yield from older_session(session, as_dict(value))
        return
    if is_history(file.head()):
        for value in session.documents(file):
            yield from oldest_history(session, as_dict(value))
        return
    if is_hook_log(file.head()):
        yield from hook_log(session, file)
        return
    about = session.files[1].data().decode("utf-8", "replace") if len(session.files) > 1 else ""
    unknown: Counter[str] = Counter()
    sessions: list[SessionEvents] = []
    seen: set[str] = set()
    records = 0
    for number, record in _records(session, file):
        records += 1
        kind, name = string(record.get("type")), string(record.get("id")) or f"r{number}"
        data = as_dict(record.get("data"))
        began = string(data.get("sessionId")) if kind == "session.start" else None
        if not sessions or (began and sessions[-1].has_start and began != sessions[-1].name):
            sessions.append(SessionEvents(_name_of(file)))
        if began:
            sessions[-1].name, sessions[-1].has_start = began, True
        if name in seen:
            session.report.mended["copied records"] += 1
        elif not sessions[-1].take(kind, name, data, record):
            unknown[f"event {kind}"] += 1
        seen.add(name)
    require_half(file.name, records, unknown)
    session.report.unknown.update(unknown)
    for one in sessions:
        yield from one.traces(session, about)


def _records(session: Session, file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events on the lines of a file, or in the document that its SDK gives."""
    if first_keys(file.head()).keys() == {"events"}:
        yield from enumerate(map(as_dict, as_list(as_dict(session.document(file)).get("events"))), 1)
    else:
        yield from session.records(file)


def _name_of(file: File) -> str:
    return file.name.rsplit("/", 2)[-2] if file.last == "events.jsonl" and "/" in file.name else file.stem or "session"


def _is_beside(name: str) -> bool:
    return _WORKSPACE.search(name) is not None


copilot_cli = Importer(
    suffixes=(".copilot.jsonl",),
    sniff=_sniff,
    sidecar=_is_beside,
    signs=("type", "data", "parentId", "timestamp", "toolCallId", "toolRequests", "interactionId", "copilotVersion"),
    system="copilot-cli",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "user.message": ("human_intervention", "message"),
        "system.message, system.notification, session.compaction_complete": ("message",),
        "assistant.message": ("orchestrator_decision", "aggregate", "message", "tool_call", "spawn"),
        "tool.execution_complete": ("tool_result", "return"),
        "subagent.started, subagent.completed, subagent.failed": ("spawn", "return"),
        "abort": ("human_intervention",),
        "session.shutdown": ("tokens_in", "tokens_out", "meta"),
    },
    lost="what went into each call (stated for the run alone), prices, attachments, hooks and other bookkeeping",
    versions="0.0.3xx to 1.0.65, the event types of its SDK 1.0.14, older history-session-state files, logs of hooks",
    exact="sub-agents, what each call wrote, the tokens of the run for each model, tool results, AI units",
)
"""Sessions of GitHub Copilot CLI."""
