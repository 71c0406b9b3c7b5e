"""Gemini CLI: sessions, sub-agents, saved chats, and what `--output-format json` and `stream-json` print.

| record | becomes |
|---|---|
| `user` | `human_intervention` |
| `gemini` | one `orchestrator_decision` of the main agent, with a `tool_call` and `tool_result` for each of its `toolCalls` |
| a tool call with `agentId` | `spawn` of that agent, and its `return` |
| `error` | `error` of the step before |
| `$set.messages` | the messages in it that are new: what a compression wrote |
| content of a saved chat (`/chat save`) | `human_intervention`, `orchestrator_decision`, `tool_call`, `tool_result` |

A message is written again whenever it changes: the last copy counts. What a rewind took back stays in the trace, as its
tokens were spent, and is counted. A sub-agent's file (`chats/<parent>/<agent>.jsonl`) is linked by the `agentId` of the call.

Tokens: `tokens` of a message; thoughts and the tools' prompts stand beside the candidates and the prompt. What is printed states
them for the run alone: they stand on its last step, those beyond input and output as reasoning.

What is lost: images, notes of the client (counted in `left_out`), the end of a tool call.

Always true: each message id is one step, in whatever files of the session it stands.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, google_usage, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.google_parts import parts_of
from counterpoint.formats.importing.parents import root_of
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, count, seconds, string, text_of
from counterpoint.trace import Trace

_MODEL = re.compile(rb'"type"\s*:\s*"(?:gemini|user)"')
_SESSION = re.compile(rb'"sessionId"\s*:\s*"([^"\\]+)"')
_SUBAGENT = re.compile(rb'"kind"\s*:\s*"subagent"')
_SAID = re.compile(rb'"role"\s*:\s*"model"')
_TOKENS = ("input", "output", "cached", "thoughts", "tool", "total")
_METRICS = ("prompt", "candidates", "cached", "thoughts", "tool", "total")
_EVENTS = frozenset({"init", "message", "tool_use", "tool_result", "error", "result"})
_MESSAGES = frozenset({"user", "gemini", "info", "warning", "error"})
_TAKEN_BACK = "messages that a rewind took back: kept"


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if _is_saved(head, keys):
        return True
    if keys.keys() >= {"sessionId", "projectHash"}:
        return True
    if "messages" in keys and ("lastUpdated" in keys or "startTime" in keys) and _MODEL.search(head):
        return b'"sessionId"' in head or b'"type": "gemini"' in head or b'"type":"gemini"' in head
    if keys.keys() >= {"type", "session_id", "model", "timestamp"} and keys["type"].strip() == b'"init"':
        return True
    return keys.keys() >= {"response", "stats"} and b'"totalRequests"' in head


def _is_saved(head: bytes, keys: dict[str, bytes]) -> bool:
    """Whether a file is a saved chat: a list of contents in Google's form, or an object that has it as its history."""
    is_list = keys.keys() == {"role", "parts"} and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    is_history = keys.get("history", b"").lstrip().startswith(b"[") and keys.keys() <= {"history", "authType"}
    return (is_list or is_history) and _SAID.search(head) is not None and b'"parts"' in head


def _group(files: Sequence[File]) -> Iterable[Session]:
    """A session's own files, by its id, and those of its sub-agents, which lie in a folder of its name."""
    own: dict[str, list[File]] = {}
    children: list[tuple[str, File]] = []
    parents: dict[str, str] = {}
    for file in files:
        head = file.head()
        match = _SESSION.search(head)
        name = match[1].decode("utf-8", "replace") if match else file.name
        if _SUBAGENT.search(head) and file.name.count("/"):
            parents[name] = file.name.rsplit("/", 2)[-2]
            children.append((name, file))
        else:
            own.setdefault(name, []).append(file)
    for name, file in children:
        own.setdefault(root_of(name, parents), []).append(file)
    return [Session(name, some) for name, some in own.items()]


def _read(session: Session) -> Iterator[Trace]:
    head = first_keys(session.files[0].head())
    if _is_saved(session.files[0].head(), head):
        yield from _saved(session, session.files[0])
    elif "stats" in head and "response" in head:
        for value in session.documents(session.files[0]):
            yield from _printed(session, as_dict(value))
    elif head.get("type", b"").strip() == b'"init"':
        yield from _stream(session, session.files[0])
    else:
        yield from _Chats(session).traces()


class _Chats:
    """The files of one session on their way to a trace."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.draft = session.draft(session.key, session.key, system="gemini-cli")
        self.messages: dict[str, dict[str, dict[str, Any]]] = {}
        """Agent to message id to message."""
        self.inserted: set[str] = set()
        """Ids of messages that the client put there itself."""
        self.about: dict[str, dict[str, Any]] = {}
        self.left_out: Counter[str] = Counter()
        for file in session.files:
            self._file(file)

    def _file(self, file: File) -> None:
        unknown: Counter[str] = Counter()
        records, agent = 0, MAIN
        for value in self.session.documents(file):
            record = as_dict(value)
            records += 1
            if string(record.get("sessionId")) and ("projectHash" in record or "messages" in record):
                agent = str(record["sessionId"]) if record.get("kind") == "subagent" else MAIN
            if "$rewindTo" in record:
                self._rewind(agent, record["$rewindTo"])
                continue
            listed = as_list(record.get("messages")) or as_list(as_dict(record.get("$set")).get("messages"))
            about = self.about.setdefault(agent, {})
            about.update({k: v for k, v in as_dict(record.get("$set") or record).items() if k in ("summary", "kind")})
            if "type" in record and "id" in record:
                self._message(agent, record, unknown, is_last=True)
            elif not listed and "$set" not in record and "projectHash" not in record and "sessionId" not in record:
                unknown["record with " + ", ".join(sorted(record)[:3])] += 1
            for message in listed:
                records += 1
                self._message(agent, as_dict(message), unknown, is_last="$set" not in record)
        require_half(file.name, records, unknown)
        self.session.report.unknown.update(unknown)

    def _message(self, agent: str, message: dict[str, Any], unknown: Counter[str], *, is_last: bool) -> None:
        if string(message.get("type")) not in _MESSAGES:
            unknown[f"message of type {message.get('type')}"] += 1
            return
        messages = self.messages.setdefault(agent, {})
        name = string(message.get("id")) or f"m{len(messages)}"
        if name not in messages:
            messages[name] = message
            self.inserted.update(() if is_last else (name,))
        elif is_last:
            messages[name] = {**messages[name], **{k: v for k, v in message.items() if v is not None}}

    def _rewind(self, agent: str, name: Any) -> None:
        names = list(self.messages.get(agent, {}))
        self.draft.report.mended[_TAKEN_BACK] += len(names) - names.index(name) if name in names else len(names)

    def traces(self) -> Iterator[Trace]:
        dialogues = {agent: Dialogue(agent) for agent in (MAIN, *self.messages)}
        for agent, messages in self.messages.items():
            for name, message in messages.items():
                self._entry(dialogues, agent, name, message)
        if title := string(self.about.get(MAIN, {}).get("summary")):
            self.draft.meta["title"] = title
        play(self.draft, list(dialogues.values()))
        self.draft.lane(MAIN).stops()
        if self.left_out:
            self.draft.meta["left_out"] = dict(sorted(self.left_out.items()))
        yield from self.draft.traces()

    def _entry(self, dialogues: dict[str, Dialogue], agent: str, name: str, message: dict[str, Any]) -> None:
        kind, at = message["type"], seconds(message.get("timestamp"))
        parts = parts_of(message.get("content"), self.session.report.unknown)
        if parts.images:
            self.left_out["images and files"] += parts.images
        entry = Entry("assistant" if kind == "gemini" else kind, parts.text, name, at, parts.thinking)
        if kind in ("info", "warning") or (kind == "user" and not parts.text and parts.answers):
            self.left_out["answers that the calls hold too" if kind == "user" else kind] += 1
            return
        if kind == "user" and name in self.inserted:
            entry.by = "client"
        if kind == "gemini":
            got = as_dict(message.get("tokens"))
            self.draft.report.note_odd_counts(odd_counts(got, _TOKENS))
            entry.usage, entry.model = google_usage(got, _TOKENS), string(message.get("model"))
            thoughts = [as_dict(t) for t in as_list(message.get("thoughts"))]
            lines = [": ".join(filter(None, (string(t.get("subject")), string(t.get("description"))))) for t in thoughts]
            entry.thinking = "\n".join(filter(None, (entry.thinking, *lines)))
            for k, call in enumerate(map(as_dict, as_list(message.get("toolCalls")))):
                self._call(dialogues, entry, call, string(call.get("id")) or f"{name}.{k}")
        dialogues[agent].entries.append(entry)

    def _call(self, dialogues: dict[str, Dialogue], entry: Entry, call: dict[str, Any], name: str) -> None:
        tool, status = string(call.get("name")) or "unnamed", string(call.get("status"))
        entry.calls.append(Call(name, tool, call.get("args")))
        child = string(call.get("agentId"))
        if child and child != MAIN:
            told = dialogues.setdefault(child, Dialogue(child))
            told.call, told.role = told.call or name, told.role or string(as_dict(call.get("args")).get("agent_name")) or tool
            told.rule = "agentId of the call"
        parts = parts_of(call.get("result"))
        text = "\n".join(filter(None, (a.text for a in parts.answers))) or parts.text or text_of(call.get("resultDisplay"))
        if status is None and not text:
            return
        error = next((a.error for a in parts.answers if a.error), None)
        ok = {"success": True, "error": False, "cancelled": False}.get(status or "")
        if ok is not None or text:
            answer = Answer(text, name, tool, ok, None if ok is not False else error or text[:500] or status)
            answer.at, answer.extra = seconds(call.get("timestamp")), {"status": status} if status == "cancelled" else {}
            entry.answers.append(answer)


def _saved(session: Session, file: File) -> Iterator[Trace]:
    """A chat as `/chat save` wrote it, which states neither tokens nor times."""
    value = session.document(file)
    contents = [as_dict(content) for content in as_list(as_dict(value).get("history") if isinstance(value, dict) else value)]
    unknown: Counter[str] = Counter()
    entries: list[Entry] = []
    for k, content in enumerate(contents):
        parts = parts_of(content, unknown)
        role = {"model": "assistant", "user": "user", "function": "user"}.get(str(content.get("role")))
        if role is None:
            unknown[f"content of role {content.get('role')}"] += 1
            continue
        if parts.answers:
            entries.append(Entry("tool", answers=parts.answers))
        if not parts.answers or parts.text:
            entries.append(Entry(role, parts.text, f"c{k}", None, parts.thinking, parts.calls))
    require_half(file.name, len(contents), unknown)
    session.report.unknown.update(unknown)
    name = f"gemini-{run_of(contents[:2])}"
    draft = session.draft(name, name, system="gemini-cli", run=run_of(contents))
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    yield from draft.traces()


def _stream(session: Session, file: File) -> Iterator[Trace]:
    """What `--output-format stream-json` prints."""
    entries: list[Entry] = []
    unknown: Counter[str] = Counter()
    name, model, records = session.key or "stream", None, 0
    is_open = False
    for number, record in session.records(file):
        records += 1
        kind, at, where = string(record.get("type")), seconds(record.get("timestamp")), f"r{number}"
        if kind not in _EVENTS:
            unknown[f"record of type {kind}"] += 1
        elif kind == "init":
            name, model = string(record.get("session_id")) or name, string(record.get("model"))
        elif kind == "message" and record.get("role") == "user":
            entries.append(Entry("user", text_of(record.get("content")), where, at))
        elif kind in ("message", "tool_use"):
            if not is_open or not entries or entries[-1].role != "assistant" or (kind == "message" and entries[-1].calls):
                entries.append(Entry("assistant", "", where, at, model=model))
            _grow(entries[-1], record, at)
        elif kind == "tool_result":
            entries.append(Entry("tool", at=at, answers=[_streamed(record)]))
        elif kind == "error":
            entries.append(Entry("error", text_of(record.get("message")), where, at))
        else:
            _ended(entries, record, where, at)
        is_open = kind in ("message", "tool_use") and record.get("role") != "user"
    require_half(file.name, records, unknown)
    session.report.unknown.update(unknown)
    draft = session.draft(name, name, system="gemini-cli")
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    yield from draft.traces()


def _grow(entry: Entry, record: dict[str, Any], at: float | None) -> None:
    """A piece of the model's words, or a call."""
    entry.at = at or entry.at
    if record["type"] == "message":
        entry.text += text_of(record.get("content"))
    else:
        tool = string(record.get("tool_name")) or "unnamed"
        entry.calls.append(Call(string(record.get("tool_id")), tool, record.get("parameters")))


def _streamed(record: dict[str, Any]) -> Answer:
    error = text_of(as_dict(record.get("error")).get("message"))
    ok = {"success": True, "error": False}.get(str(record.get("status")))
    text = text_of(record.get("output")) or error
    return Answer(text, string(record.get("tool_id")), None, ok, (error or text[:500] or "error") if ok is False else None)


def _ended(entries: list[Entry], record: dict[str, Any], where: str, at: float | None) -> None:
    """The tokens of the run, on its last step."""
    stats = as_dict(record.get("stats"))
    into, out, total = (count(stats.get(name)) for name in ("input_tokens", "output_tokens", "total_tokens"))
    step = next((e for e in reversed(entries) if e.role == "assistant"), None)
    if into is not None:
        rest = max((total or 0) - into - (out or 0), 0)
        step = step or Entry("assistant", "", where, at)
        step.usage = Usage.whole(into, (out or 0) + rest, cached=stats.get("cached"), reasoning=rest)
        step.extra = {**step.extra, "tokens_of": "the run"}
        if step not in entries:
            entries.append(step)
    if record.get("status") == "error":
        entries.append(Entry("error", text_of(as_dict(record.get("error")).get("message")), where, at))


def _printed(session: Session, value: dict[str, Any]) -> Iterator[Trace]:
    """What `--output-format json` prints: the answer, and the tokens of each model."""
    name = string(value.get("session_id")) or f"gemini-{run_of(value)}"
    draft = session.draft(name, name, system="gemini-cli")
    entries: list[Entry] = []
    for model, metrics in as_dict(as_dict(value.get("stats")).get("models")).items():
        usage = google_usage(as_dict(as_dict(metrics).get("tokens")), _METRICS)
        entries.append(Entry("assistant", id=f"model-{model}", usage=usage, model=model, extra={"tokens_of": "the run"}))
    entries = entries or [Entry("assistant", id="answer")]
    entries[-1].text = text_of(value.get("response"))
    if error := text_of(as_dict(value.get("error")).get("message")):
        entries.append(Entry("error", error))
    play(draft, [Dialogue(entries=entries)])
    calls = count(as_dict(as_dict(value.get("stats")).get("tools")).get("totalCalls"))
    if calls:
        draft.report.lacks["the tool calls: only their number is printed"] += calls
    yield from draft.traces()


gemini_cli = Importer(
    suffixes=(".gemini.json", ".gemini.jsonl"),
    sniff=_sniff,
    signs=("sessionId", "projectHash", "startTime", "lastUpdated", "messages", "toolCalls"),
    system="gemini-cli",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "user": ("human_intervention", "message"),
        "gemini": ("orchestrator_decision", "aggregate", "message", "tool_call", "tool_result", "spawn", "return"),
        "info, warning, error": ("message", "error", "meta"),
    },
    versions="sessions of 2025 and 2026 (JSON and JSON lines), what 0.61 prints, saved chats",
    exact="tokens, calls, sub-agents",
    lost="images, client notes, when a call ended; printed runs: tokens per call",
)
"""Sessions and printed runs of Gemini CLI."""
