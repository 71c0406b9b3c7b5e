"""Goose: sessions as it exports, keeps (JSON lines of old, the database `sessions.db`) and prints them.

| record | becomes |
|---|---|
| message of the user | `human_intervention`; `message` of the client where only the agent sees it |
| message of the assistant | one `orchestrator_decision` of the main agent, with a `tool_call` for each `toolRequest` |
| `toolResponse` | `tool_result`; with `subagent_session_id` the `return` of that sub-agent |
| session | `meta`; its totals stand on the last step where no call states its tokens |

A session of type `sub_agent` joins the one that its `parent_session_id` names, linked by the id in the response of the call.

Tokens: `usage_ledger` of the database has those of each call; else the accumulated ones of the session. Input includes the cache.

What is lost: images, notifications, extensions and recipes (counted in `left_out`).

Always true: messages of one answer that were kept apart stay one step for each message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.database import Database, has_tables
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import (
    as_dict,
    as_list,
    count,
    folder_name,
    json_field,
    number,
    seconds,
    string,
    text_of,
)
from counterpoint.trace import Trace
from counterpoint.trace.keys import PROJECT

_PARENT = re.compile(rb'"parent_session_id"\s*:\s*"([^"\\]+)"')
_CHILD = re.compile(rb'"session_type"\s*:\s*"sub_agent"')
_OWN_ID = re.compile(rb'\A\s*\{\s*"id"\s*:\s*"([^"\\]+)"')
_PART = re.compile(rb'"type"\s*:\s*"(?:text|toolRequest|toolResponse|thinking|image)"')
_ENDED = re.compile(r"\ASubagent (\S+) (completed|failed)(?:: |\n\n)(.*)\Z", re.S)
_COUNTS = ("total_tokens", "input_tokens", "output_tokens")
_DROPPED = frozenset(
    {
        "image", "toolConfirmationRequest", "actionRequired", "systemNotification", "redactedThinking", "contextLengthExceeded",
        "summarizationRequested", "conversationCompacted", "frontendToolRequest",
    }
)  # fmt: skip
_LOG = re.compile(r"(?:^|/)sessions\.db-wal$")
_EVENTS = frozenset({"message", "notification", "error", "complete", "model_change"})


def _sniff(head: bytes) -> bool:
    if has_tables(head, "sessions", "messages", "content_json", "created_timestamp"):
        return True
    keys = first_keys(head)
    if keys.keys() >= {"working_dir"} and keys.keys() & {
        "message_count",
        "conversation",
        "session_type",
        "accumulated_total_tokens",
    }:
        return True
    if keys.keys() >= {"session_id", "role", "content_json"}:
        return True
    if keys.keys() >= {"role", "created", "content"} and _PART.search(head):
        return True
    if keys.get("type", b"").strip() == b'"message"' and "message" in keys:
        if keys.keys() == {"type", "message"} and (b'"toolRequest"' in head or b'"type":"complete"' in head):
            return True
        return b'"created"' in head and b'"content"' in head and (b'"userVisible"' in head or b'"toolRequest"' in head)
    return keys.keys() >= {"messages", "metadata"} and b'"created"' in head and _PART.search(head) is not None


def _group(files: Sequence[File]) -> Iterable[Session]:
    """A session with those of its sub-agents, which name it."""
    parents: dict[str, str] = {}
    names: dict[str, str] = {}
    logs = {file.name.removesuffix("-wal"): file for file in files if _LOG.search(file.name)}
    files = [file for file in files if not _LOG.search(file.name)]
    for file in files:
        head = file.head()
        own = _OWN_ID.search(head)
        names[file.name] = own[1].decode("utf-8", "replace") if own else file.name
        if own and _CHILD.search(head):
            try:
                parent = _PARENT.search(file.data())  # it stands behind the conversation
            except InputError:
                continue
            if parent:
                parents[names[file.name]] = parent[1].decode("utf-8", "replace")
    groups: dict[str, list[File]] = {}
    known = set(names.values())
    for file in files:
        name = names[file.name]
        met: set[str] = set()
        while parents.get(name) in known and name not in met:
            met.add(name)
            name = parents[name]
        groups.setdefault(name, []).extend([file, *([log] if (log := logs.get(file.name)) else [])])
    return [Session(name, some) for name, some in groups.items()]


@dataclass
class _Chat:
    """One session of Goose's."""

    name: str
    about: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    ledger: list[dict[str, Any]] = field(default_factory=list)
    """What each call of a model spent."""


def _read(session: Session) -> Iterator[Trace]:
    chats: dict[str, _Chat] = {}
    unknown: Counter[str] = Counter()
    records = 0
    logs = {file.name.removesuffix("-wal"): file for file in session.files if _LOG.search(file.name)}
    for file in [file for file in session.files if not _LOG.search(file.name)]:
        if has_tables(file.head(16)):
            records += _database(session, Database(file, logs.get(file.name)), chats)
            continue
        chat = _Chat(file.stem)
        for value in session.documents(file):
            for record in value if isinstance(value, list) else [value]:
                records += 1
                if not isinstance(record, dict) or not _record(record, chat, chats):
                    unknown["record with " + ", ".join(sorted(map(str, as_dict(record)))[:3])] += 1
        if chat.messages or chat.about:
            chat.name = (
                string(chat.about.get("id"))
                or string(chat.about.get("session_id"))
                or chat.name
                or f"goose-{run_of(*chat.messages)}"
            )
            chats[chat.name] = chat
    require_half(session.files[0].name, records, unknown)
    session.report.unknown.update(unknown)
    yield from _traces(session, chats)


def _record(record: dict[str, Any], chat: _Chat, chats: dict[str, _Chat]) -> bool:
    """Take a record; False where its kind is not known."""
    if "content_json" in record and "session_id" in record:
        name = str(record["session_id"])
        chats.setdefault(name, _Chat(name)).messages.append(_row(record))
    elif "role" in record and "content" in record:
        chat.messages.append(record)
    elif "conversation" in record or "working_dir" in record or "messages" in record:
        chat.about.update({**as_dict(record.get("metadata")), **{k: v for k, v in record.items() if k != "conversation"}})
        chat.messages += [
            m for m in as_list(record.get("conversation")) or as_list(record.get("messages")) if isinstance(m, dict)
        ]
    elif string(record.get("type")) in _EVENTS:
        _printed(record, chat)
    else:
        return False
    return True


def _printed(record: dict[str, Any], chat: _Chat) -> None:
    """A line of `--output-format stream-json`; a message comes in pieces of one id."""
    message = as_dict(record.get("message"))
    last = chat.messages[-1] if chat.messages else {}
    if record["type"] == "complete":
        chat.about.update({k: v for k, v in record.items() if k != "type"})
    elif record["type"] == "error":
        chat.messages.append({"role": "error", "content": record.get("error")})
    elif message and message.get("id") is not None and message.get("id") == last.get("id"):
        last["content"] = as_list(last.get("content")) + as_list(message.get("content"))
    elif message:
        chat.messages.append(dict(message))


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table of messages, as a message."""
    content, metadata = (json_field(row.get(name)) for name in ("content_json", "metadata_json"))
    name = string(row.get("message_id")) or f"msg_{row.get('id')}"
    return {
        "id": name,
        "role": row.get("role"),
        "created": row.get("created_timestamp"),
        "content": content,
        "metadata": metadata,
    }


def _database(session: Session, base: Database, chats: dict[str, _Chat]) -> int:
    """The sessions in a database."""
    there = base.tables()
    tables = {name: list(base.table(name)) if name in there else [] for name in ("sessions", "messages", "usage_ledger")}
    for row in tables["sessions"]:
        chat = chats.setdefault(str(row.get("id")), _Chat(str(row.get("id"))))
        chat.about = {**row, "model_config": json_field(row.get("model_config_json"))}
    for name, put in (("messages", "messages"), ("usage_ledger", "ledger")):
        for row in sorted(tables[name], key=lambda row: count(row.get("id")) or 0):
            chat = chats.setdefault(str(row.get("session_id")), _Chat(str(row.get("session_id"))))
            getattr(chat, put).append(_row(row) if put == "messages" else row)
    found = sum(len(rows) for rows in tables.values())
    session.report.records += found
    return found


def _traces(session: Session, chats: dict[str, _Chat]) -> Iterator[Trace]:
    """One trace for each session that no other made."""
    teams: dict[str, list[str]] = {}
    for name in chats:
        root, met = name, {name}
        while (
            (parent := string(chats[root].about.get("parent_session_id"))) in chats and parent not in met and parent is not None
        ):
            met.add(parent)
            root = parent
        teams.setdefault(root, []).append(name)
    for root, names in teams.items():
        draft = session.draft(root, root, system="goose")
        left_out: Counter[str] = Counter()
        dialogues: list[Dialogue] = []
        links: dict[str, str] = {}
        total = 0
        for name in sorted(names, key=lambda name: name != root):
            reader = _Reader(chats[name], left_out, session.report.unknown)
            dialogue = Dialogue(MAIN if name == root else name, reader.entries(), name=string(chats[name].about.get("name")))
            draft.report.note_odd_counts(odd_counts(chats[name].about, _COUNTS))
            links.update(reader.links)
            total += reader.total
            dialogues.append(dialogue)
        for dialogue in dialogues[1:]:
            dialogue.call, dialogue.rule = links.get(dialogue.agent), "the session that the answer of the call states"
        dialogues[0].name = None
        draft.costs.update({"tokens": total} if total else {})
        play(draft, dialogues)
        if (title := string(chats[root].about.get("name")) or string(chats[root].about.get("description"))) and _is_title(title):
            draft.meta["title"] = title
        if folder := folder_name(chats[root].about.get("working_dir")):
            draft.meta[PROJECT] = folder
        draft.lane(MAIN).stops()
        if kept := {kind: n for kind, n in sorted(left_out.items()) if n}:
            draft.meta["left_out"] = kept
        yield from draft.traces()


def _is_title(name: str) -> bool:
    """Whether a session's name says what it is about: not its own id, and not what the client calls each new one."""
    return not re.fullmatch(r"[\d_-]+|(?:New|CLI) (?:Session|Chat)|Chat \d*|goose", name, re.I)


class _Reader:
    """The entries of one session."""

    def __init__(self, chat: _Chat, left_out: Counter[str], unknown: Counter[str]) -> None:
        self.chat, self.left_out, self.unknown = chat, left_out, unknown
        self.model = string(as_dict(chat.about.get("model_config")).get("model_name")) or string(chat.about.get("model"))
        self.total = 0
        """All tokens of the session, where it does not say which were read and which written."""
        self.links: dict[str, str] = {}
        """Sub-agent to the call that made it."""
        self.waiting: set[str] = set()
        """Calls whose sub-agent answers later, in a message."""

    def entries(self) -> list[Entry]:
        found: list[Entry] = []
        for k, message in enumerate(self.chat.messages):
            found += self._message(message, string(message.get("id")) or f"m{k}")
        self._spend([entry for entry in found if entry.role == "assistant"], found)
        return found

    def _message(self, message: dict[str, Any], name: str) -> list[Entry]:
        at, role = seconds(message.get("created")), message.get("role")
        if role == "error":
            return [Entry("error", text_of(message.get("content")), name, at)]
        if role not in ("user", "assistant"):
            self.unknown[f"message of role {role}"] += 1
            return []
        entry = Entry(str(role), id=name, at=at, model=self.model if role == "assistant" else None)
        content = message.get("content")
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content):
            self._part(entry, as_dict(part))
        found: list[Entry] = []
        if role == "user" and entry.answers:
            found.append(Entry("tool", id=f"{name}.t", at=at, answers=entry.answers))
            entry.answers = []
        metadata = as_dict(message.get("metadata"))
        if role == "user" and metadata.get("userVisible") is False:
            if ended := self._ended(entry):
                return [*found, ended]
            entry.by = "client"
        if role == "assistant" and metadata.get("userVisible") is False and not entry.calls:
            entry.extra["is_hidden"] = True
        if entry.text or entry.calls or entry.thinking:
            found.append(entry)
        return found

    def _part(self, entry: Entry, part: dict[str, Any]) -> None:
        kind = part.get("type")
        if kind == "text":
            entry.text = "\n".join(filter(None, (entry.text, text_of(part.get("text")))))
        elif kind in ("thinking", "reasoning"):
            entry.thinking = "\n".join(filter(None, (entry.thinking, text_of(part.get("thinking") or part.get("text")))))
        elif kind == "toolRequest":
            got = as_dict(part.get("toolCall"))
            call = as_dict(got.get("value")) or as_dict(got.get("Ok"))
            entry.calls.append(Call(string(part.get("id")), string(call.get("name")) or "unnamed", call.get("arguments")))
            if error := string(got.get("error")):
                entry.error = error
        elif kind == "toolResponse":
            entry.answers += self._answer(part)
        elif string(kind) in _DROPPED:
            self.left_out[str(kind)] += 1
        else:
            self.unknown[f"content of type {kind}"] += 1

    def _answer(self, part: dict[str, Any]) -> list[Answer]:
        call, got = string(part.get("id")), as_dict(part.get("toolResult"))
        value = got.get("value", got.get("Ok"))
        shown = as_dict(value)
        items = value if isinstance(value, list) else as_list(shown.get("content"))
        self.left_out["image"] += sum(as_dict(item).get("type") == "image" for item in items)
        texts = [
            text_of(as_dict(item).get("text") or as_dict(as_dict(item).get("resource")).get("text"))
            for item in items
            if _is_for_agent(item)
        ]
        text = "\n".join(filter(None, texts))
        error = text_of(got.get("error") or got.get("Err") or "")
        meta = as_dict(shown.get("_meta") or shown.get("meta"))
        if (child := string(meta.get("subagent_session_id"))) and call:
            self.links[child] = call
            if meta.get("foreground_subagent") is True:
                self.waiting.add(child)
                return []
        code = as_dict(shown.get("structuredContent")).get("exit_code", as_dict(shown.get("structuredContent")).get("exitCode"))
        failed = (
            bool(error) or got.get("status") == "error" or shown.get("isError") is True or (isinstance(code, int) and code != 0)
        )
        ok = False if failed else True if got.get("status") == "success" or "Ok" in got else None
        return [Answer(text or error, call, None, ok, (error or text[:500] or "error") if failed else None)]

    def _ended(self, entry: Entry) -> Entry | None:
        """What a sub-agent gave back, in a message that only the agent sees."""
        match = _ENDED.match(entry.text)
        if match is None or match[1] not in self.waiting:
            return None
        self.waiting.discard(match[1])
        ok = match[2] == "completed"
        answer = Answer(match[3], self.links[match[1]], None, ok, None if ok else match[3][:500])
        return Entry("tool", id=f"{entry.id}.t", at=entry.at, answers=[answer])

    def _spend(self, steps: list[Entry], found: list[Entry]) -> None:
        """Tokens: of each call where a ledger has as many as there are answers, else of the session on its last step."""
        for row in [row for row in self.chat.ledger if row.get("is_compaction") in (1, True)]:
            at = seconds(row.get("created_timestamp"))
            entry = Entry("assistant", id=f"ledger-{row.get('id')}", at=at, extra={"is_compaction": True})
            self._cost(entry, _usage(row, ""), row)
            place = next((k for k, e in enumerate(found) if e.at is not None and at is not None and e.at > at), len(found))
            found.insert(place, entry)
        rows = [row for row in self.chat.ledger if row.get("is_compaction") not in (1, True)]
        if rows and len(rows) == len(steps):
            for step, row in zip(steps, rows, strict=True):
                self._cost(step, _usage(row, ""), row)
            return
        total, whose = (_sum(rows), "the run") if rows else _stated(self.chat.about)
        if total and steps:
            for step in steps if len({row.get("model") for row in rows}) == 1 else []:
                step.model = string(rows[0].get("model")) or step.model
            about = {"cost": sum(number(row.get("cost")) or 0.0 for row in rows)} if rows else self.chat.about
            self._cost(steps[-1], total, about)
            steps[-1].extra["tokens_of"] = whose
        elif stated := count(self.chat.about.get("total_tokens")):
            self.total = stated

    def _cost(self, step: Entry, usage: Usage | None, row: dict[str, Any]) -> None:
        step.usage, step.model = usage, string(row.get("model")) or step.model or self.model
        step.cost = number(row.get("cost", row.get("accumulated_cost"))) or None


def _is_for_agent(item: Any) -> bool:
    """Whether a part of a result was for the model: some are for the person alone."""
    audience = as_list(as_dict(as_dict(item).get("annotations")).get("audience"))
    return not audience or "assistant" in audience


def _usage(row: dict[str, Any], prefix: str) -> Usage | None:
    into, out = row.get(f"{prefix}input_tokens"), row.get(f"{prefix}output_tokens")
    read = row.get(f"{prefix}cache_read_tokens", row.get(f"{prefix}cache_read_input_tokens"))
    wrote = row.get(f"{prefix}cache_write_tokens", row.get(f"{prefix}cache_write_input_tokens"))
    return Usage.whole(into, out, cached=read, written=wrote)


def _sum(rows: list[dict[str, Any]]) -> Usage | None:
    parts = [usage for row in rows if (usage := _usage(row, "")) is not None]
    return Usage(*map(sum, zip(*parts, strict=True))) if parts else None


def _stated(about: dict[str, Any]) -> tuple[Usage | None, str]:
    """The tokens that a session states, and whose they are: without those of the run there may be those of its last call."""
    whole = _usage(as_dict(about.get("accumulated_usage")), "") or _usage(about, "accumulated_")
    return (whole, "the run") if whole else (_usage(as_dict(about.get("usage")) or about, ""), "the last call")


goose = Importer(
    suffixes=(".goose.json",),
    sniff=_sniff,
    sidecar=lambda name: bool(_LOG.search(name)),
    signs=("working_dir", "session_type", "conversation", "message_count", "accumulated_total_tokens", "toolRequest"),
    system="goose",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "message of the user": ("human_intervention", "message", "tool_result", "return"),
        "message of the assistant": ("orchestrator_decision", "aggregate", "message", "tool_call", "spawn"),
        "session": ("meta",),
    },
    lost="images, notifications, extensions, recipes",
    versions="1.0 to 1.30 (JSON lines; databases of schema 1 to 17)",
    exact="tools, times to the second, totals, tokens of each call with a ledger, sub-agents with a stated session",
)
"""Sessions of Goose."""
