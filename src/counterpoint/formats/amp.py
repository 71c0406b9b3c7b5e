"""Amp: threads (`threads/T-<id>.json`, `amp threads export`), with the threads of their sub-agents.

| record | becomes |
|---|---|
| `user` message | `human_intervention`; its `tool_result` blocks `tool_result` |
| `assistant` message | one `orchestrator_decision` of the main agent, with a `tool_call` for each `tool_use` |
| `info` message | `message` of the client: a summary, or a command that the person ran |
| thread with `mainThreadID` | a sub-agent, `spawn` and `return` |
| event of `usageLedger` that no message has | tokens of the trace |

A sub-agent's thread is linked to the call whose result or progress names it, else to the call with the same prompt.

Tokens: `usage` of each message, in which the input leaves the cache out; where there is none, those of the ledger.

What is lost: pictures, tracked files, the environment, prices (credits are kept in `meta`); the time of tool results.

Always true: a ledger event that a message has is not counted again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.blocks import blocks_of
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, number, seconds, string, text_of
from counterpoint.trace import Trace

_ID = re.compile(rb'"id"\s*:\s*"(T-[^"\\]+)"')
_UUID = re.compile(rb'\s*"T-[0-9a-f]{8}-[0-9a-f]{4}-')
_PARENT = re.compile(rb'"mainThreadID"\s*:\s*"(T-[^"\\]+)"')
_PLAIN_KEYS = frozenset({"id", "title", "messages", "created", "createdAt", "updatedAt", "v"})
_FIRST = re.compile(rb'"messages"\s*:\s*\[\s*\{([^{}\[\]]*)\}')
_PLAIN_SIGNS = tuple(map(re.compile, (rb'"role"\s*:\s*"(?:user|assistant)"', rb'"text"\s*:', rb'"createdAt"\s*:\s*\d')))
_COUNTS = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens", "outputTokens")
_STATUS = {"done": True, "error": False, "cancelled": False, "rejected-by-user": False, "rejected": False}
_OTHERS = "the step of calls that the ledger has and no message: their tokens count in the total"
_EXACT, _PROMPT = "the thread that the call names", "the same prompt"


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if _is_plain(head, keys):
        return True
    if "id" not in keys or not keys["id"].lstrip().startswith(b'"T-'):
        return False
    is_thread = keys.get("messages", b"[").lstrip().startswith(b"[")
    return is_thread and ("created" in keys or "v" in keys or ("messages" in keys and _UUID.match(keys["id"]) is not None))


def _is_plain(head: bytes, keys: Mapping[str, bytes]) -> bool:
    """Whether a file is a thread of messages that are a text and a time, and have no ids."""
    if not keys.keys() >= {"id", "messages"} or not keys.keys() <= _PLAIN_KEYS:
        return False
    first = _FIRST.search(head)
    return first is not None and all(sign.search(first[1]) for sign in _PLAIN_SIGNS) and b'"content"' not in first[1]


def _group(files: Sequence[File]) -> Iterable[Session]:
    """A thread with the threads of its sub-agents, wherever they lie."""
    names = {file.name: _text(match) for file in files if (match := _ID.search(file.head()))}
    parents = {names[f.name]: _text(m) for f in files if f.name in names and (m := _PARENT.search(f.head()))}
    there = set(names.values())
    groups: dict[str, list[File]] = {}
    for file in files:
        name, met = names.get(file.name, file.name), set[str]()
        while name in parents and parents[name] in there and name not in met:
            met.add(name)
            name = parents[name]
        groups.setdefault(name, []).append(file)
    return [Session(name, sorted(some, key=lambda f: names.get(f.name) != name)) for name, some in groups.items()]


def _text(match: re.Match[bytes]) -> str:
    return match[1].decode("utf-8", "replace")


def _read(session: Session) -> Iterator[Trace]:
    threads: dict[str, dict[str, Any]] = {}
    for file in session.files:
        for value in session.documents(file):
            thread = as_dict(value)
            threads.setdefault(string(thread.get("id")) or file.stem, thread)
    if not threads:
        return
    main = next(iter(threads))
    reader = _Reader(session, main)
    for name, thread in threads.items():
        reader.thread(name, thread, is_main=name == main)
    yield from reader.traces(threads[main])


class _Reader:
    """A thread and those of its sub-agents on their way to a trace."""

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.draft = session.draft(name, name, system="amp")
        self.dialogues: dict[str, Dialogue] = {}
        self.unknown: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.credits, self.others = 0.0, 0
        self.named: dict[str, str] = {}
        """Thread that a call names to that call."""

    def thread(self, name: str, thread: dict[str, Any], *, is_main: bool) -> None:
        dialogue = Dialogue(MAIN if is_main else name, name=None if is_main else string(thread.get("title")))
        self.dialogues[name] = dialogue
        ledger = [as_dict(event) for event in as_list(as_dict(thread.get("usageLedger")).get("events"))]
        self.credits += sum(number(event.get("credits")) or 0.0 for event in ledger)
        messages = [as_dict(m) for m in as_list(thread.get("messages"))]
        strange = self.unknown.total()
        for k, message in enumerate(messages):
            self._message(dialogue, message, f"{'' if is_main else name + '.'}m{message.get('messageId', k)}", ledger)
        found = self.unknown.total() - strange
        require_half(name, max(len(messages), found), Counter({"messages and blocks": found}))
        for event in ledger:  # what no message has
            tokens = as_dict(event.get("tokens"))
            self.others += (count(tokens.get("input")) or 0) + (count(tokens.get("output")) or 0)
            self.draft.report.lacks[_OTHERS] += 1

    def _message(self, dialogue: Dialogue, message: dict[str, Any], name: str, ledger: list[dict[str, Any]]) -> None:
        role = string(message.get("role"))
        sent = seconds(as_dict(message.get("meta")).get("sentAt")) or seconds(message.get("createdAt"))
        content = message.get("content") if message.get("content") is not None else message.get("text")
        if role == "info":
            self._note(dialogue, content, name, sent)
            return
        if role not in ("user", "assistant"):
            self.unknown[f"message of role {role}"] += 1
            return
        parts = [p for p in as_list(content) if as_dict(p).get("type") != "tool_result"] if isinstance(content, list) else content
        found = blocks_of(parts, self.unknown)
        self.left_out["pictures and files"] += found.images
        entry = Entry(role, found.text, name, sent, found.thinking, found.calls)
        if role == "assistant":
            self._answered(entry, message, ledger)
            dialogue.entries.append(entry)
            if as_dict(message.get("state")).get("type") == "cancelled":
                dialogue.entries.append(Entry("user", "cancelled", f"{name}.cancelled", entry.at, extra={"interrupted": True}))
            return
        results = [self._result(as_dict(p)) for p in as_list(content) if as_dict(p).get("type") == "tool_result"]
        if results:
            dialogue.entries.append(Entry("tool", answers=results))
        if entry.text or not results:
            dialogue.entries.append(entry)

    def _answered(self, entry: Entry, message: dict[str, Any], ledger: list[dict[str, Any]]) -> None:
        got, state = as_dict(message.get("usage")), as_dict(message.get("state"))
        self.draft.report.note_odd_counts(odd_counts(got, _COUNTS))
        fresh, read, written, out = (count(got.get(name)) for name in _COUNTS)
        if fresh is not None or out is not None:
            entry.usage = Usage(fresh or 0, read or 0, written or 0, out or 0)
        number_of = message.get("messageId")
        event = next((e for e in ledger if number_of is not None and e.get("toMessageId") == number_of), None)
        if event is not None:
            ledger.remove(event)
            tokens = as_dict(event.get("tokens"))
            entry.usage = entry.usage or Usage.whole(tokens.get("input"), tokens.get("output"))
            entry.model = string(event.get("model"))
        entry.at = seconds(got.get("timestamp")) or (seconds(event.get("timestamp")) if event else None) or entry.at
        entry.model = string(got.get("model")) or entry.model
        entry.stop_reason = string(state.get("stopReason"))
        if state.get("type") == "error":
            error = state.get("error")
            entry.error = string(as_dict(error).get("message")) or string(error) or "error"

    def _result(self, part: dict[str, Any]) -> Answer:
        call = string(part.get("toolUseID")) or string(part.get("tool_use_id"))
        run = as_dict(part.get("run"))
        if not run:
            found = blocks_of([{**part, "tool_use_id": call}], self.unknown)
            return found.answers[0] if found.answers else Answer("", call)
        result = run.get("result")
        text, failure = _shown(result), run.get("error")
        if call is not None:
            for thread in re.findall(r"\bT-[0-9a-f][0-9a-f-]{7,}", compact(run.get("threadID") or run.get("progress") or "")):
                self.named.setdefault(thread, call)
        ok = _STATUS.get(str(run.get("status")))
        code = as_dict(result).get("exitCode")
        if as_dict(result).get("success") is False or (isinstance(code, int) and code != 0):
            ok = False
        said = string(as_dict(failure).get("message")) or string(failure) or ""
        answer = Answer(text or said, call, None, ok)
        if ok is False:
            answer.error = said or text[:500] or str(run.get("status"))
            is_rejected = str(run.get("status")).startswith("rejected") or as_dict(part.get("userInput")).get("accepted") is False
            answer.extra = {"is_rejected": True if is_rejected else None, "status": string(run.get("status"))}
        return answer

    def _note(self, dialogue: Dialogue, content: Any, name: str, at: float | None) -> None:
        for k, part in enumerate(map(as_dict, as_list(content))):
            kind = string(part.get("type"))
            if kind == "summary":
                text, extra = text_of(as_dict(part.get("summary")).get("summary") or part.get("summary")), {"is_compaction": True}
                dialogue.entries.append(Entry("user", text, f"{name}.{k}", at, by="client", extra=extra))
            elif kind == "manual_bash_invocation":
                command = string(as_dict(part.get("args")).get("cmd")) or ""
                text = f"! {command}\n{_shown(as_dict(part.get('toolRun')).get('result'))}"
                dialogue.entries.append(Entry("user", text, f"{name}.{k}", at))
            else:
                self.left_out[f"note {kind}"] += 1

    def traces(self, main: dict[str, Any]) -> Iterator[Trace]:
        calls = [c for d in self.dialogues.values() for e in d.entries for c in e.calls if c.id]
        taken: set[str] = set()
        for name, dialogue in self.dialogues.items():
            if dialogue.agent == MAIN:
                continue
            task = next((e.text for e in dialogue.entries if e.role == "user"), "")
            same = (c.id for c in calls if c.id not in taken and task and task == string(as_dict(c.arguments).get("prompt")))
            stated = self.named.get(name)
            dialogue.call = stated or next(same, None)
            dialogue.rule, dialogue.is_exact = (_EXACT, True) if stated else (_PROMPT, False)
            taken.update({dialogue.call} if dialogue.call else ())
            for entry in dialogue.entries:
                entry.by = "client" if entry.role == "user" and entry.by is None else entry.by
        self.session.report.unknown.update(self.unknown)
        for field, value in (("title", main.get("title")), ("agent_mode", main.get("agentMode"))):
            self.draft.meta.update({field: value} if string(value) else {})
        trees = as_list(as_dict(as_dict(main.get("env")).get("initial")).get("trees"))
        if trees and (project := string(as_dict(trees[0]).get("displayName"))):
            self.draft.meta["project"] = project
        self.draft.meta.update({"amp_credits": round(self.credits, 6)} if self.credits else {})
        play(self.draft, list(self.dialogues.values()))
        self.draft.lane(MAIN).stops()
        if self.others:
            rows = self.draft.rows.values()
            self.draft.costs["tokens"] = self.others + sum(r.get("tokens_in", 0) + r.get("tokens_out", 0) for r in rows)
        if left_out := {kind: n for kind, n in sorted(self.left_out.items()) if n}:
            self.draft.meta["left_out"] = left_out
        yield from self.draft.traces()


def _shown(result: Any) -> str:
    """What a tool gave back: what it printed, read or changed, else all of it."""
    shown = as_dict(result)
    for name in ("output", "content", "diff"):
        if shown.get(name) not in (None, "", []):
            return text_of(shown[name])
    if isinstance(result, list) and all(as_dict(item).get("type") == "image" for item in result):
        return ""
    return "" if result is None else compact(result) if isinstance(result, (dict, list)) else text_of(result)


amp = Importer(
    suffixes=(".amp.json",),
    sniff=_sniff,
    signs=("messages", "created", "agentMode", "toolUseID", "usageLedger", "messageId", "cacheReadInputTokens"),
    system="amp",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "user message": ("human_intervention", "tool_result", "return"),
        "assistant message": ("orchestrator_decision", "aggregate", "message", "tool_call", "spawn"),
        "info message": ("message", "human_intervention"),
        "usageLedger": ("tokens_in", "tokens_out", "meta"),
    },
    lost="pictures, tracked files, the environment, prices, the times of tool results",
    versions="threads of 2025 and 2026 (v up to some thousands: it counts changes)",
    exact="tokens of each call, credits, tool results; sub-agents where a call names their thread",
)
"""Threads of Amp."""
