"""Cline, Roo Code and Kilo Code: their tasks, sessions of Cline's CLI and SDK, tasks saved as Markdown.

| record | becomes |
|---|---|
| message of the user | `human_intervention`: what stands in `<task>`, `<feedback>`, `<answer>`, without what the client adds |
| message of the assistant | one `orchestrator_decision` of the main agent, with `tool_call`s, native or written as XML |
| result of a tool | `tool_result`; of `new_task`, `spawn_agent`, `use_subagents` the `return` of the sub-agent |
| `api_req_started` | tokens, cost, time and failure of the answer that it made; one without an answer is a step of its own |
| `condense_context`, a summary | a step, or a message of the client |

`task.py` reads a task (`api_conversation_history.json` with the tokens of `ui_messages.json`), `screen.py` one of which only
`ui_messages.json` is there, `sdk.py` `<session>.messages.json`, `printed.py` what `--json` prints. A task of
Roo Code and those it delegated to are one trace.

Tokens: Cline's input leaves the cache out; Roo Code's newer versions and Cline's SDK have it inside, which the numbers show.

What is lost: images, checkpoints, notes of the client (counted in `left_out`), results that only the screen showed.

Always true: each request counts once; what the client wrote around a person's words is not theirs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.cline.markdown import is_markdown, markdown_messages
from counterpoint.formats.cline.printed import is_printed, read_printed
from counterpoint.formats.cline.sdk import read_sdk
from counterpoint.formats.cline.task import Task, read_tasks
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.values import as_dict, as_list, decode, string
from counterpoint.trace import Trace

_OWN = re.compile(r"(?:^|/)(?:api_conversation_history|ui_messages|claude_messages)\.json$")
_BESIDE = re.compile(r"(?:^|/)tasks/[^/]+/(?:task_metadata|history_item)\.json$")
_INDEX = re.compile(r"(?:^|/)(?:state/taskHistory|tasks/_index)\.json$")
_SAID = re.compile(rb'^\s*\[?\s*\{(?:[^{}]|\{[^{}]*\})*?"type"\s*:\s*"(?:ask|say)"')
_HAS_KIND = re.compile(rb'"(?:ask|say)"\s*:\s*"[a-z_]+"')
_ASKED = re.compile(rb'^\s*\[\s*\{\s*"role"\s*:\s*"user"')
_FOLDERS = ("history_item.json", "task_metadata.json")


def _kind(head: bytes) -> str | None:
    """What a file is by its content: ui, api, sdk, manifest, printed or markdown."""
    keys = first_keys(head)
    if keys.keys() >= {"version", "sessionId", "messages"} and ("agent" in keys or "updated_at" in keys):
        return "sdk"
    if keys.keys() >= {"version", "session_id", "started_at", "provider", "model"} and "enable_tools" in keys:
        return "manifest"
    if keys.keys() >= {"ts", "type"} and ("say" in keys or "ask" in keys) and _SAID.match(head) and _HAS_KIND.search(head):
        return "ui"
    if keys.keys() == {"type", "taskId"} and keys["type"].strip() == b'"task_started"':
        return "ui"  # what `--json` prints
    if _ASKED.match(head) and b"<environment_details>" in head and (b"<task>" in head or b"<user_message>" in head):
        return "api"
    return "markdown" if is_markdown(head) else "printed" if is_printed(head) else None


def _sniff(head: bytes) -> bool:
    return _kind(head) is not None


def _sidecar(name: str) -> bool:
    return any(pattern.search(name) for pattern in (_OWN, _BESIDE, _INDEX))


def _folder(file: File) -> str:
    return file.name.rpartition("/")[0]


def _group(files: Sequence[File]) -> Iterable[Session]:
    """A task with those that it delegated to; a session of the SDK with its sub-agents; else a file of its own."""
    parents = _parents(files)
    groups: dict[tuple[str, str], list[File]] = {}
    for file in files:
        if _INDEX.search(file.name):
            continue
        if _OWN.search(file.name) or file.last in _FOLDERS:
            above, _, name = _folder(file).rpartition("/")
            met: set[str] = set()
            while name in parents and name not in met:
                met.add(name)
                name = parents[name]
            groups.setdefault((above, name), []).append(file)
        elif _kind(file.head()) in ("sdk", "manifest"):
            groups.setdefault(("sdk", file.stem.split("__")[0]), []).append(file)
        else:
            groups.setdefault((file.name, file.stem), []).append(file)
    times = Counter(name for _, name in groups)
    return [Session(name if name and times[name] == 1 else f"{place}/{name}", some) for (place, name), some in groups.items()]


def _parents(files: Sequence[File]) -> dict[str, str]:
    """Which task made which, as the histories say."""
    parents: dict[str, str] = {}
    for file in files:
        if file.last != "history_item.json" and not _INDEX.search(file.name):
            continue
        try:
            value = decode(file.data())
        except InputError:
            continue  # it is counted when the task is read
        for item in value if isinstance(value, list) else as_list(as_dict(value).get("entries")) or [value]:
            name, parent = (string(as_dict(item).get(key)) for key in ("id", "parentTaskId"))
            if name and parent and name != parent:
                parents[name] = parent
    return parents


def _read(session: Session) -> Iterator[Trace]:
    kinds = {file.name: _kind(file.head()) for file in session.files}
    if {"sdk", "manifest"} & set(kinds.values()):
        yield from read_sdk(session)
        return
    if "printed" in kinds.values():
        yield from read_printed(session, session.files[0])
        return
    tasks: dict[str, Task] = {}
    for file in session.files:
        name = _folder(file).rpartition("/")[2] if _OWN.search(file.name) or file.last in _FOLDERS else file.stem
        task = tasks.setdefault(name, Task(name or session.key))
        if kinds[file.name] == "markdown":
            task.api = markdown_messages(file.data().decode("utf-8", "replace"))
            session.report.records += len(task.api)
        elif file.last in _FOLDERS:
            about = as_dict(session.document(file))
            task.item.update(about if file.last == "history_item.json" else {})
            task.models += as_list(about.get("model_usage")) if file.last == "task_metadata.json" else []
        else:
            _messages(session, file, task)
    yield from read_tasks(session, tasks)


def _messages(session: Session, file: File, task: Task) -> None:
    """The messages of a conversation, or of the screen: whichever a file holds, by its first one."""
    found: list[Any] = []
    for value in session.documents(file):
        found += value if isinstance(value, list) else as_list(value["messages"]) if "messages" in as_dict(value) else [value]
    session.report.records += max(len(found) - 1, 0) if not file.name.endswith("l") else 0
    kept = [message for message in found if isinstance(message, dict)]
    if len(kept) < len(found):
        session.report.unknown["message that is not an object"] += len(found) - len(kept)
    if any("role" in message for message in kept):
        task.api += kept
    else:
        task.name = next((name for m in kept if m.get("type") == "task_started" and (name := string(m.get("taskId")))), task.name)
        task.ui += [message for message in kept if message.get("type") != "task_started"]


cline = Importer(
    suffixes=(".cline.json",),
    sniff=_sniff,
    sidecar=_sidecar,
    signs=("ts", "type", "say", "ask", "api_req_started", "tokensIn", "conversationHistoryIndex", "tool_use_id"),
    system="cline",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "message of the user": ("human_intervention", "message", "tool_result", "return"),
        "message of the assistant": ("orchestrator_decision", "aggregate", "message", "tool_call", "spawn"),
        "api_req_started": ("orchestrator_decision", "message"),
        "history_item": ("meta",),
    },
    lost="images, checkpoints, notes of the client, results that only the screen showed",
    versions="Cline 2 to 3 and 4 (messages v1), what its CLI 3 prints, Roo Code 3, Kilo Code 4",
    exact="tokens, costs, times, tools; sub-agents where their id or session is stated",
)
"""Tasks of Cline, Roo Code and Kilo Code."""
