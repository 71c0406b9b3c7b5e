"""OpenCode: its database, exports, the storage folder, its event logs, and what `run --format json` prints.

| record | becomes |
|---|---|
| message of the user | `human_intervention`; `message` of the client where all of it is synthetic, or asks for a compaction |
| message of the assistant, up to each `step-finish` | one `orchestrator_decision` of the main agent |
| `tool` part | `tool_call`, `tool_result`; with the id of a child session in its metadata `spawn` and `return` |

Sessions are joined by `parentID` and by the child's id in the call; a child whose messages are elsewhere is an agent
without steps.

Tokens: those of each `step-finish`, as a message keeps its last step's alone; input leaves the cache out, and reasoning stands
beside the output unless the total says that it is inside. A cost of 0 is no price: the list's stands for it.

What is lost: snapshots, patches, files, permissions (counted in `left_out`).

Always true: of a part or message that was written several times the last copy counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.database import Database, has_tables
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.parents import root_of
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, count, decode, number, seconds, string, text_of
from counterpoint.trace import Trace

_PLACE = re.compile(r"(?:^|/)(session|message|part)/(?!(?:message|part)/)(?:[^/]+/)?([^/]+)/([^/]+)\.json$")
_DATABASE = re.compile(r"(?:^|/)opencode[^/]*\.db(?:-wal)?$")
_STORED = re.compile(r"(?:^|/)storage/(?:session/)?(?:info|message|part|session)/(?:[^/]+/){0,2}[^/]+\.json$")
_LOG = "-wal"
_PARENT = re.compile(rb'"parentID"\s*:\s*"(ses_[^"\\]+)"')
_PRINTED = frozenset({"text", "tool_use", "step_start", "step_finish", "error", "reasoning"})
_STEPS = frozenset({"step-start", "step-finish"})
_KNOWN = frozenset({"text", "reasoning", "tool", "file", "snapshot", "patch", "agent", "retry", "compaction", "subtask", *_STEPS})
_COUNTS = ("input", "output", "reasoning")


def _sniff(head: bytes) -> bool:
    if has_tables(head, "session", "message", "part", "message_id", "project_id"):
        return True
    keys = first_keys(head)
    if keys.keys() >= {"type", "properties"} and keys["type"].strip().startswith((b'"message.', b'"session.')):
        return b'"sessionID"' in head
    if keys.keys() >= {"aggregate_id", "type", "data"} or keys.keys() >= {"info", "messages"} or keys.keys() == {"info", "parts"}:
        return b'"sessionID"' in head or b'"projectID"' in head
    if keys.keys() >= {"id", "title", "time"} and ("projectID" in keys or "directory" in keys):
        return True
    if keys.keys() >= {"id", "sessionID", "role", "time"} or keys.keys() >= {"id", "messageID", "type"}:
        return True
    return keys.keys() >= {"type", "timestamp", "sessionID"} and ("part" in keys or "error" in keys)


def _group(files: Sequence[File]) -> Iterable[Session]:
    """A file is a session of its own; those of a storage folder go to the root of the session that they belong to."""
    logs = {file.name.removesuffix(_LOG): file for file in files if file.name.endswith(_LOG)}
    files = [file for file in files if not file.name.endswith(_LOG)]
    places = {file.name: match for file in files if (match := _PLACE.search(file.name))}
    owner = {m[3]: m[2] for m in places.values() if m[1] == "message"}
    parents: dict[str, str] = {}
    for file in files:
        match = places.get(file.name)
        if match and match[1] == "session" and (parent := _PARENT.search(file.head())):
            parents[match[3]] = parent[1].decode("utf-8", "replace")
    groups: dict[str, list[File]] = {}
    for file in files:
        match = places.get(file.name)
        name = file.name
        if match:
            name = {"session": match[3], "message": match[2], "part": owner.get(match[2], match[2])}[match[1]]
            name = root_of(name, parents)
        groups.setdefault(name, []).append(file)
    return [Session(name, [*some, *(logs[f.name] for f in some if f.name in logs)]) for name, some in groups.items()]


def _is_beside(name: str) -> bool:
    """Whether a file is OpenCode's by its place: the database or its latest pages, or a record of the storage folder."""
    return _DATABASE.search(name) is not None or _STORED.search(name) is not None


def _rows(file: File, log: File | None) -> Iterator[dict[str, Any]]:
    """The records in the database, as its other forms have them."""
    database = Database(file, log)
    for row in database.table("session", order="time_created, id"):
        stated = {"parentID": row.get("parent_id"), "projectID": row.get("project_id")}
        yield {**row, **stated, "time": {"created": row.get("time_created"), "updated": row.get("time_updated")}}
    for row in database.table("message", order="time_created, id"):
        yield {"info": {**_opened(row), "id": row.get("id"), "sessionID": row.get("session_id")}}
    for row in database.table("part", order="message_id, id"):
        names = {"id": row.get("id"), "messageID": row.get("message_id"), "sessionID": row.get("session_id")}
        yield {**_opened(row), **names}


def _opened(row: dict[str, Any]) -> dict[str, Any]:
    try:
        return as_dict(decode(row.get("data") or "{}"))
    except InputError:
        return {}


def _placed(record: dict[str, Any], place: re.Match[str] | None) -> dict[str, Any]:
    """A record with the ids that older versions kept in its place alone."""
    if place is None or place[1] != "part":
        return record
    return {"messageID": place[2], "id": place[3], **record}


@dataclass
class _Chat:
    """One session of OpenCode's: what is known of it, and its messages by id, each with its parts by id."""

    about: dict[str, Any] = field(default_factory=dict)
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    parts: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)


def _read(session: Session) -> Iterator[Trace]:
    reader = _Reader(session)
    for file in session.files:
        unknown: Counter[str] = Counter()
        records = 0
        place = _PLACE.search(file.name)
        if file.name.endswith(_LOG):
            continue
        is_database = has_tables(file.head())
        log = next((f for f in session.files if f.name == file.name + _LOG), None)
        for value in _rows(file, log) if is_database else session.documents(file):
            for entry in value if isinstance(value, list) else [value]:
                records += 1
                session.report.records += is_database
                if not isinstance(entry, dict) or not reader.record(_placed(entry, place), place[2] if place else None):
                    unknown["record with " + ", ".join(sorted(map(str, as_dict(entry)))[:3])] += 1
        require_half(file.name, records, unknown)
        session.report.unknown.update(unknown)
    yield from reader.traces()


class _Reader:
    """The sessions in some files on their way to traces."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.chats: dict[str, _Chat] = {}
        self.owner: dict[str, str] = {}
        """Message id to session id."""
        self.left_out: Counter[str] = Counter()

    def record(self, record: dict[str, Any], place: str | None) -> bool:
        data = as_dict(record.get("data")) if "aggregate_id" in record else as_dict(record.get("properties")) or record
        info = as_dict(data.get("info"))
        if info and "parts" in data:
            data = {"info": {"id": info.get("sessionID")}, "messages": [data]}
            info = data["info"]
        if "messages" in data and info:
            self._session(info)
            for message in map(as_dict, as_list(data["messages"])):
                self._message(as_dict(message.get("info")), None)
                for part in map(as_dict, as_list(message.get("parts"))):
                    self._part(part, string(as_dict(message.get("info")).get("id")))
            return True
        if "part" in data:
            return self._part(as_dict(data["part"]), None, data)
        if info or ("role" in data and "sessionID" in data):
            return self._message(info or data, place) if "role" in (info or data) else self._session(info)
        if "messageID" in data and string(data.get("type")) in _KNOWN:
            return self._part(data, place)
        if "aggregate_id" in record or "properties" in record or (data.get("type") == "error" and "sessionID" in data):
            self.left_out[str(record.get("type"))] += 1
            return True
        return self._session(data) if "title" in data and "time" in data else False

    def _session(self, info: dict[str, Any]) -> bool:
        if name := string(info.get("id")):
            self.chats.setdefault(name, _Chat()).about.update(info)
        return name is not None

    def _message(self, info: dict[str, Any], place: str | None) -> bool:
        name, owner = string(info.get("id")), string(info.get("sessionID")) or place
        if name is None or owner is None:
            return False
        self.owner[name] = owner
        self.chats.setdefault(owner, _Chat()).messages.setdefault(name, {}).update(info)
        return True

    def _part(self, part: dict[str, Any], message: str | None, event: dict[str, Any] | None = None) -> bool:
        message = string(part.get("messageID")) or message or self._printed(event)
        owner = string(part.get("sessionID")) or string(as_dict(event).get("sessionID")) or self.owner.get(message or "")
        if message is None or string(part.get("type")) not in _KNOWN:
            return False
        chat = self.chats.setdefault(owner or self.session.key, _Chat())
        parts = chat.parts.setdefault(message, {})
        parts[string(part.get("id")) or f"p{len(parts)}"] = part
        return True

    def _printed(self, event: dict[str, Any] | None) -> str | None:
        """The message of a part that is printed without ids: one for the whole run."""
        name = string(as_dict(event).get("sessionID"))
        return f"{name}:printed" if name and string(as_dict(event).get("type")) in _PRINTED else None

    def traces(self) -> Iterator[Trace]:
        roots: dict[str, list[str]] = {}
        named = {name: string(chat.about.get("parentID")) for name, chat in self.chats.items()}
        parents = {name: parent for name, parent in named.items() if parent in self.chats and parent is not None}
        for name in self.chats:
            roots.setdefault(root_of(name, parents), []).append(name)
        for root, names in roots.items():
            names.sort(key=lambda name: name != root)
            draft = self.session.draft(root, root, system="opencode")
            dialogues = {name: Dialogue(MAIN if name == root else name) for name in names}
            for name in names:
                self._chat(self.chats[name], dialogues[name], dialogues)
            if title := string(self.chats[root].about.get("title")):
                draft.meta["title"] = title
            odd = [
                odd_counts(as_dict(p.get("tokens")), _COUNTS)
                for n in names
                for ps in self.chats[n].parts.values()
                for p in ps.values()
            ]
            draft.report.note_odd_counts(sum(odd))
            play(draft, list(dialogues.values()))
            draft.lane(MAIN).stops()
            if self.left_out:
                draft.meta["left_out"] = dict(sorted(self.left_out.items()))
            yield from draft.traces()

    def _chat(self, chat: _Chat, dialogue: Dialogue, dialogues: dict[str, Dialogue]) -> None:
        names = list(dict.fromkeys([*chat.messages, *chat.parts]))
        names.sort(key=lambda n: number(as_dict(as_dict(chat.messages.get(n)).get("time")).get("created")) or 0.0)
        for name in names:
            info = chat.messages.get(name) or {"role": "assistant"}
            parts = (
                [part for _, part in sorted(chat.parts.get(name, {}).items())]
                if _is_ordered(chat.parts.get(name))
                else list(chat.parts.get(name, {}).values())
            )
            if info.get("role") == "user":
                dialogue.entries.append(_asked(name, info, parts))
                continue
            dialogue.role = dialogue.role or string(info.get("agent")) or string(info.get("mode"))
            self._steps(name, info, parts, dialogue, dialogues)

    def _steps(
        self, name: str, info: dict[str, Any], parts: list[dict[str, Any]], dialogue: Dialogue, dialogues: dict[str, Dialogue]
    ) -> None:
        """The steps of one message: each ends at its `step-finish`."""
        times = as_dict(info.get("time"))
        steps: list[Entry] = []
        entry = Entry("assistant", id=name, model=string(info.get("modelID")))
        for part in parts:
            kind = part["type"]
            if kind == "text":
                entry.text = "\n".join(filter(None, (entry.text, text_of(part.get("text")))))
            elif kind == "reasoning":
                entry.thinking = "\n".join(filter(None, (entry.thinking, text_of(part.get("text")))))
            elif kind == "tool":
                self._tool(part, entry, dialogues)
            elif kind == "step-finish":
                entry.usage, entry.cost = _usage(part.get("tokens")), number(part.get("cost")) or None
                entry.stop_reason = string(part.get("reason"))
                steps.append(entry)
                entry = Entry("assistant", id=f"{name}.{len(steps)}", model=entry.model)
            elif kind not in _STEPS:
                self.left_out[kind] += 1
        if entry.text or entry.thinking or entry.calls or not steps:
            if not steps:
                entry.usage, entry.cost = _usage(info.get("tokens")), number(info.get("cost")) or None
            steps.append(entry)
        steps[-1].error = _failure(info.get("error"))
        if info.get("summary") is True:
            steps[-1].extra["is_compaction"] = True
        steps[-1].at = seconds(times.get("completed")) or seconds(times.get("created"))
        dialogue.entries += steps

    def _tool(self, part: dict[str, Any], entry: Entry, dialogues: dict[str, Dialogue]) -> None:
        state = as_dict(part.get("state"))
        call, tool = string(part.get("callID")) or string(part.get("id")) or "call", string(part.get("tool")) or "unnamed"
        entry.calls.append(Call(call, tool, state.get("input")))
        known = as_dict(state.get("metadata"))
        child = string(known.get("sessionId")) or string(known.get("sessionID"))
        if child and tool == "task":
            told = dialogues.setdefault(child, Dialogue(child))
            told.call, told.rule = told.call or call, "the session that the call states"
            told.name = told.name or string(as_dict(state.get("input")).get("description"))
            told.role = string(as_dict(state.get("input")).get("subagent_type")) or told.role
        times = as_dict(state.get("time"))
        status, at = state.get("status"), seconds(times.get("end"))
        entry.at = entry.at or seconds(times.get("start"))
        if status == "completed":
            entry.answers.append(Answer(text_of(state.get("output")), call, tool, True, at=at))
        elif status == "error":
            error = text_of(state.get("error"))
            entry.answers.append(Answer(error, call, tool, False, error[:500] or "error", at))


def _is_ordered(parts: dict[str, Any] | None) -> bool:
    """Whether part ids sort in the order of their making."""
    return bool(parts) and all(name.startswith("prt_") for name in parts or ())


def _asked(name: str, info: dict[str, Any], parts: list[dict[str, Any]]) -> Entry:
    texts = [p for p in parts if p["type"] == "text" and p.get("ignored") is not True]
    is_compaction = any(p["type"] == "compaction" for p in parts)
    is_client = is_compaction or bool(texts and all(p.get("synthetic") is True for p in texts))
    text = "\n".join(filter(None, (text_of(p.get("text")) for p in texts)))
    task = "\n".join(text_of(p.get("prompt")) for p in parts if p["type"] == "subtask")
    entry = Entry(
        "user", text or task, name, seconds(as_dict(info.get("time")).get("created")), by="client" if is_client else None
    )
    entry.extra = {"is_compaction": True} if is_compaction else {}
    return entry


def _usage(tokens: Any) -> Usage | None:
    got = as_dict(tokens)
    cache = as_dict(got.get("cache"))
    fresh, out, thought, total = (count(got.get(name)) for name in (*_COUNTS, "total"))
    if fresh is None and out is None:
        return None
    read, wrote = count(cache.get("read")) or 0, count(cache.get("write")) or 0
    fresh, out, thought = fresh or 0, out or 0, thought or 0
    is_inside = total is not None and thought <= out and total < fresh + read + wrote + out + thought
    return Usage(fresh, read, wrote, out if is_inside else out + thought, thought)


def _failure(error: Any) -> str | None:
    got = as_dict(error)
    return (text_of(as_dict(got.get("data")).get("message")) or string(got.get("name")) or "error") if got else None


opencode = Importer(
    suffixes=(".opencode.json",),
    sniff=_sniff,
    signs=("info", "messages", "parts", "sessionID", "messageID", "modelID", "providerID"),
    system="opencode",
    group=_group,
    sidecar=_is_beside,
    read_session=_read,
    rank=1,
    becomes={
        "message of the user": ("human_intervention", "message"),
        "message of the assistant": (
            "orchestrator_decision",
            "aggregate",
            "message",
            "tool_call",
            "tool_result",
            "spawn",
            "return",
        ),
        "session": ("meta",),
    },
    lost="snapshots, patches, files, permissions",
    versions="storage and exports of 0.3 to 1.1, the database since 1.2",
    exact="tokens and costs of each step, tools, errors, sub-agents, times",
)
"""Sessions of OpenCode."""
