"""Continue: sessions of its editors and its CLI, and its development data of chats, tokens and tools.

| record | becomes |
|---|---|
| `history` item of the user | `human_intervention`; a context item that it brought along is left out |
| item of the assistant | one `orchestrator_decision` of the main agent, with a `tool_call` for each of its `toolCalls` |
| `thinking` item, `reasoning` | the thoughts of the step |
| `tool` item, `toolCallStates` | one `tool_result` for each call, with how it ended |
| `conversationSummary` | `message` of the client |
| `chatInteraction` | the prompt's last words, and one step; `tokensGenerated` a step with tokens alone |

Tokens: `usage` of a message; where no message has any, the session's totals stand on its last step. Anthropic's leave the cache
out, which the words for it show.

What is lost: context items, images, rules, editor state, times: a session has none but its day in the index (`sessions.json`).

Always true: a call has one answer, whichever of its records repeat it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.blocks import blocks_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, count, folder_name, number, seconds, string, text_of
from counterpoint.trace import Trace
from counterpoint.trace.keys import BEGAN, PROJECT

_ENDED = {"done": True, "errored": False, "canceled": False}
_INDEX = frozenset({"sessionId", "title", "dateCreated"})
_DATA = ("chatInteraction", "tokensGenerated", "toolUsage")
_TURN = re.compile(r"(?:\A|\n)<(user|assistant|system|tool)>\n")
_UNTITLED = frozenset({"New Session", "Untitled Session", "New Chat"})


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if keys.keys() >= {"sessionId", "history"} and keys["history"].lstrip().startswith(b"["):
        return "workspaceDirectory" in keys or "title" in keys or b'"contextItems"' in head
    return keys.keys() >= _INDEX or _data_kind(keys) is not None


def _data_kind(keys: dict[str, Any]) -> str | None:
    """Which kind of development data a record with such keys is."""
    if keys.keys() >= {"prompt", "completion", "sessionId"} and keys.keys() & {"modelTitle", "modelProvider", "modelName"}:
        return "chatInteraction"
    if keys.keys() >= {"promptTokens", "generatedTokens", "model"}:
        return "tokensGenerated"
    return "toolUsage" if keys.keys() >= {"toolCallId", "functionName"} else None


def _is_index(file: File) -> bool:
    keys = first_keys(file.head())
    return keys.keys() >= _INDEX and "history" not in keys


def _group(files: Sequence[File]) -> Iterable[Session]:
    """A file is a session of its own; the index of a folder says when each began."""
    indices = {file.name.rpartition("/")[0]: file for file in files if _is_index(file)}
    own = [file for file in files if indices.get(file.name.rpartition("/")[0]) is not file]
    beside = {file.name: indices.get(file.name.rpartition("/")[0]) for file in own}
    return [Session(file.name, [file, *([index] if (index := beside[file.name]) else [])]) for file in own]


def _read(session: Session) -> Iterator[Trace]:
    file, *indices = session.files
    days = _days(session, indices[0]) if indices else {}
    unknown: Counter[str] = Counter()
    records = 0
    data: list[dict[str, Any]] = []
    for value in session.documents(file):
        for record in value if isinstance(value, list) else [value]:
            records += 1
            if isinstance(record, dict) and isinstance(record.get("history"), list):
                reader = _Reader(session, record)
                records += len(record["history"])
                unknown.update(reader.unknown)
                yield from reader.traces(days)
            elif isinstance(record, dict) and _data_kind(record):
                data.append(record)
            else:
                unknown["record with " + ", ".join(sorted(map(str, as_dict(record)))[:3])] += 1
    require_half(file.name, records, unknown)
    session.report.unknown.update(unknown)
    if data:
        yield from _of_data(session, data)


def _days(session: Session, index: File) -> dict[str, float]:
    """When the sessions of an index began."""
    rows = [row for value in session.documents(index) for row in (value if isinstance(value, list) else [value])]
    return {
        str(row["sessionId"]): at for row in map(as_dict, rows) if "sessionId" in row and (at := seconds(row.get("dateCreated")))
    }


class _Reader:
    """One session on its way to a trace."""

    def __init__(self, session: Session, record: dict[str, Any]) -> None:
        self.record = record
        self.name = string(record.get("sessionId")) or session.key
        self.draft = session.draft(self.name, self.name, system="continue")
        self.unknown: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.entries: list[Entry] = []
        self.thought = ""
        self.states: dict[str, dict[str, Any]] = {}
        history = [as_dict(item) for item in as_list(record.get("history"))]
        for item in history:
            for state in [*as_list(item.get("toolCallStates")), *([item["toolCallState"]] if "toolCallState" in item else [])]:
                self.states[str(as_dict(state).get("toolCallId"))] = as_dict(state)
        self.answered = {str(m.get("toolCallId")) for i in history if (m := as_dict(i.get("message"))).get("role") == "tool"}
        for k, item in enumerate(history):
            self._item(item, k)
        self._total()

    def _item(self, item: dict[str, Any], k: int) -> None:
        message = as_dict(item.get("message"))
        role, blocks = message.get("role"), blocks_of(message.get("content"), self.unknown)
        name = string(message.get("id")) or f"m{k}"
        self.left_out["images"] += blocks.images
        self.left_out["context items"] += len(as_list(item.get("contextItems"))) if role != "tool" else 0
        if role == "assistant":
            self._step(item, message, Entry("assistant", blocks.text, name, thinking=blocks.thinking))
        elif role == "thinking":
            self.thought = "\n".join(filter(None, (self.thought, blocks.text or blocks.thinking)))
        elif role == "tool":
            call = string(message.get("toolCallId"))
            answer = self._answer(call, blocks.text)
            self.entries.append(Entry("tool", id=name, answers=[answer]))
        elif role in ("user", "system"):
            self.entries.append(Entry(str(role), blocks.text, name))
        else:
            self.unknown[f"item of role {role}"] += 1
        if summary := string(item.get("conversationSummary")):
            self.entries.append(Entry("user", summary, f"{name}.summary", by="client", extra={"is_compaction": True}))

    def _step(self, item: dict[str, Any], message: dict[str, Any], entry: Entry) -> None:
        thoughts = (self.thought, text_of(as_dict(item.get("reasoning")).get("text") or ""), entry.thinking)
        entry.thinking, self.thought = "\n".join(dict.fromkeys(filter(None, thoughts))), ""
        entry.at = seconds(as_dict(item.get("reasoning")).get("endAt"))
        calls = [c for c in as_list(message.get("toolCalls")) if isinstance(c, dict)]
        listed = {str(call.get("id")) for call in calls}
        own = [*as_list(item.get("toolCallStates")), *([item["toolCallState"]] if "toolCallState" in item else [])]
        calls += [as_dict(s.get("toolCall")) for s in map(as_dict, own) if str(s.get("toolCallId")) not in listed]
        for n, raw in enumerate(calls):
            call = string(raw.get("id")) or f"{entry.id}.{n}"
            function = as_dict(raw.get("function"))
            entry.calls.append(Call(call, string(function.get("name")) or "unnamed", function.get("arguments")))
            if call not in self.answered and string(self.states.get(call, {}).get("status")) in _ENDED:
                entry.answers.append(self._answer(call, ""))
        got = as_dict(message.get("usage"))
        self.draft.report.note_odd_counts(odd_counts(got, ("promptTokens", "completionTokens")))
        entry.usage, entry.cost = _usage(got), number(got.get("cost")) or None
        entry.model = _model(as_list(item.get("promptLogs"))) or _named(self.record.get("chatModelTitle"))
        self.entries.append(entry)

    def _answer(self, call: str | None, text: str) -> Answer:
        """What a call gave back, and how its state says it ended."""
        state = self.states.get(call or "", {})
        text = text or "\n".join(filter(None, (text_of(as_dict(o).get("content")) for o in as_list(state.get("output")))))
        ok = _ENDED.get(str(state.get("status")))
        error = None if ok is not False else text[:500] or str(state.get("status"))
        extra = {"status": "cancelled"} if state.get("status") == "canceled" else {}
        return Answer(text, call, None, ok, error, extra=extra)

    def _total(self) -> None:
        """Where no message states its tokens, the session's stand on the last step."""
        steps = [entry for entry in self.entries if entry.role == "assistant"]
        got = as_dict(self.record.get("usage"))
        usage, cost = _usage(got), number(got.get("totalCost"))
        if steps and usage and not any(step.usage for step in steps):
            steps[-1].usage, steps[-1].cost = usage, cost or None
            steps[-1].extra["tokens_of"] = "the run"
        elif cost:
            self.draft.costs["cost_usd"] = cost

    def traces(self, days: dict[str, float]) -> Iterator[Trace]:
        if (title := string(self.record.get("title"))) and title not in _UNTITLED:
            self.draft.meta["title"] = title
        if folder := folder_name(self.record.get("workspaceDirectory")):
            self.draft.meta[PROJECT] = folder
        if self.name in days:
            self.draft.meta[BEGAN] = days[self.name]
        yield from _played(self.draft, self.entries, self.left_out)


def _played(draft: Draft, entries: list[Entry], left_out: Counter[str]) -> Iterator[Trace]:
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    if kept := {kind: n for kind, n in sorted(left_out.items()) if n}:
        draft.meta["left_out"] = kept
    yield from draft.traces()


def _usage(got: dict[str, Any]) -> Usage | None:
    """The prompt has the cache inside, as OpenAI counts; a count of what was written to it is Anthropic's, who leaves it out."""
    into, out = count(got.get("promptTokens")), count(got.get("completionTokens"))
    if not into and not out:
        return None
    details = as_dict(got.get("promptTokensDetails"))
    read, wrote = count(details.get("cachedTokens")) or 0, count(details.get("cacheWriteTokens")) or 0
    thought = count(as_dict(got.get("completionTokensDetails")).get("reasoningTokens")) or 0
    if wrote or read > (into or 0):
        return Usage(into or 0, read, wrote, out or 0, thought)
    return Usage.whole(into or 0, out or 0, cached=read, reasoning=thought)


def _model(logs: list[Any]) -> str | None:
    """The model that the last prompt was for."""
    last = as_dict(logs[-1]) if logs else {}
    return string(as_dict(last.get("completionOptions")).get("model")) or _named(last.get("modelTitle"))


def _named(value: Any) -> str | None:
    return string(value) or string(as_dict(value).get("title"))


# -- development data ------------------------------------------------------------------------------------------------------------


def _of_data(session: Session, data: list[dict[str, Any]]) -> Iterator[Trace]:
    """One trace for each session that chats name; one of all records where they name none."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for record in data:
        runs.setdefault(string(record.get("sessionId")) or "", []).append(record)
    for name, records in runs.items():
        own = name or f"{session.files[0].stem}-{run_of(records[0])}"
        draft = session.draft(own, own, system="continue")
        entries: list[Entry] = []
        for k, record in enumerate(records):
            entries += _data_entries(record, f"r{k}", entries)
        yield from _played(draft, entries, Counter())


def _data_entries(record: dict[str, Any], name: str, before: list[Entry]) -> list[Entry]:
    at, kind = seconds(record.get("timestamp")), _data_kind(record)
    model = next((m for key in ("modelName", "modelTitle", "model") if (m := string(record.get(key)))), None)
    if kind == "tokensGenerated":
        usage = Usage.whole(record.get("promptTokens"), record.get("generatedTokens"))
        return [Entry("assistant", id=name, at=at, usage=usage, model=model)]
    if kind == "toolUsage":
        call, tool = string(record.get("toolCallId")), string(record.get("functionName")) or "unnamed"
        ok = record.get("succeeded") if isinstance(record.get("succeeded"), bool) else None
        text = "\n".join(filter(None, (text_of(as_dict(o).get("content")) for o in as_list(record.get("output")))))
        answer = Answer(text, call, tool, ok, (text[:500] or "error") if ok is False else None, at)
        arguments = record.get("functionArgs", record.get("toolCallArgs", record.get("parsedArgs")))
        return [Entry("assistant", id=name, at=at, calls=[Call(call, tool, arguments)], answers=[answer])]
    parts = _TURN.split(text_of(record.get("prompt")))
    said = [text.strip() for role, text in zip(parts[1::2], parts[2::2], strict=False) if role == "user"] or [parts[0].strip()]
    heard = {entry.text for entry in before if entry.role == "user"}
    asked = [Entry("user", said[-1], f"{name}.prompt")] if said[-1] and said[-1] not in heard else []
    return [*asked, Entry("assistant", text_of(record.get("completion")), name, at, model=model)]


continue_dev = Importer(
    suffixes=(".continue.json",),
    sniff=_sniff,
    signs=("sessionId", "title", "workspaceDirectory", "history", "contextItems", "toolCallStates", "promptLogs"),
    system="continue",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "user": ("human_intervention",),
        "assistant": ("orchestrator_decision", "tool_call"),
        "tool, toolCallStates": ("tool_result",),
        "conversationSummary": ("message",),
        "chatInteraction, tokensGenerated, toolUsage": (
            "human_intervention",
            "orchestrator_decision",
            "tool_call",
            "tool_result",
        ),
    },
    lost="context items, images, rules, editor state, times of a session's steps",
    versions="0.8 to 1.5, CLI 1.5, development data 0.1.0 and 0.2.0",
    exact="tools and how they ended; tokens where a message or the session states them",
)
"""Sessions of Continue."""
