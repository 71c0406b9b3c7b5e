"""Pydantic AI: the messages of a run, as a list (`all_messages_json`), or lines with the events of a stream.

| record | becomes |
|---|---|
| `system-prompt`, `instructions` | `message` of `system` |
| `user-prompt` | `human_intervention` |
| response | `orchestrator_decision` with its tokens, and a `tool_call` for each tool call in it |
| `tool-return`, `retry-prompt` | `tool_result`; a retry is its failure, or a `message` of the framework where it names no tool |

What is lost: pictures and files, and the messages of an agent that a tool runs, which its own run holds.

Always true: events of a stream repeat what the messages say, and are counted and left out; tokens hold the cache
(`input_tokens` includes what was read from it); a file of which less than half is known is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, seconds, string, text_of
from counterpoint.trace import Trace

_KIND = re.compile(rb'"kind"\s*:\s*"(?:request|response)"')
_PART = re.compile(
    rb'"part_kind"\s*:\s*"(?:system-prompt|user-prompt|tool-return|retry-prompt|text|thinking|tool-call|builtin-tool-\w+|file)"'
)
_EVENT = re.compile(rb'"event_kind"\s*:\s*"(?:part_(?:start|delta|end)|final_result|function_tool_(?:call|result))"')
_CALLS = frozenset({"tool-call", "builtin-tool-call"})
_RETURNS = frozenset({"tool-return", "builtin-tool-return"})


def _sniff(head: bytes) -> bool:
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    return begins and _PART.search(head) is not None and (_KIND.search(head) is not None or _EVENT.search(head) is not None)


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        unknown: Counter[str] = Counter()
        reader = _Reader(unknown)
        messages: list[dict[str, Any]] = []
        records = 0
        for _, record in session.entries(file):
            records += 1
            if record.get("kind") in ("request", "response") and isinstance(record.get("parts"), list):
                reader.message(record, f"m{len(messages)}")
                messages.append(record)
            elif "event_kind" in record:
                reader.left_out["events of a stream"] += 1
            else:
                unknown[f"record of kind {record.get('kind')}"] += 1
        require_half(file.name, records + reader.parts, unknown)
        session.report.unknown.update(unknown)
        if not messages:
            raise InputError("holds events of a stream and no message", where=file.name, fix="write result.all_messages_json()")
        name = (
            next((n for m in messages if (n := string(m.get("conversation_id")) or string(m.get("run_id")))), None)
            or f"pydantic-ai-{run_of(*messages)}"
        )
        draft = session.draft(name, name, system="pydantic-ai")
        play(draft, [Dialogue(role="agent", entries=reader.entries)])
        if reader.entries:
            draft.lane(MAIN).stops()
        if reader.left_out:
            draft.meta["left_out"] = dict(sorted(reader.left_out.items()))
        yield from draft.traces()


class _Reader:
    """Messages as entries of a dialogue."""

    def __init__(self, unknown: Counter[str]) -> None:
        self.entries: list[Entry] = []
        self.left_out: Counter[str] = Counter()
        self.parts = 0
        self.unknown = unknown
        self.told: set[str] = set()

    def message(self, message: dict[str, Any], name: str) -> None:
        at = seconds(message.get("timestamp"))
        parts = [as_dict(part) for part in message["parts"]]
        self.parts += len(parts)
        if message["kind"] == "response":
            self._response(message, parts, name, at)
            return
        instructions = string(message.get("instructions"))
        if instructions and instructions not in self.told:
            self.told.add(instructions)
            self.entries.append(Entry("system", instructions, f"{name}:instructions", at))
        for k, part in enumerate(parts):
            self._request(part, f"{name}.{k}", at)

    def _request(self, part: dict[str, Any], name: str, at: float | None) -> None:
        kind, text = string(part.get("part_kind")), self._text(part.get("content"))
        at = seconds(part.get("timestamp")) or at
        if kind == "system-prompt":
            self.entries.append(Entry("system", text, name, at))
        elif kind == "user-prompt":
            self.entries.append(Entry("user", text, name, at))
        elif kind in _RETURNS:
            failed = part.get("outcome") in ("failed", "denied", "retried")
            self._answer(part, text, name, at, text[:500] or str(part["outcome"]) if failed else None)
        elif kind == "retry-prompt" and part.get("tool_name"):
            self._answer(part, text, name, at, text[:500] or "retry")
        elif kind == "retry-prompt":
            self.entries.append(Entry("user", text, name, at, by="framework"))
        else:
            self.unknown[f"part of kind {kind}"] += 1

    def _answer(self, part: dict[str, Any], text: str, name: str, at: float | None, error: str | None) -> None:
        call, tool = string(part.get("tool_call_id")), string(part.get("tool_name"))
        answer = Answer(text, call, tool, ok=error is None, error=error)
        self.entries.append(Entry("tool", id=name, at=at, answers=[answer]))

    def _response(self, message: dict[str, Any], parts: list[dict[str, Any]], name: str, at: float | None) -> None:
        entry = Entry("assistant", id=name, at=at, model=string(message.get("model_name")), usage=_usage(message))
        entry.stop_reason = string(message.get("finish_reason"))
        words: list[str] = []
        thoughts: list[str] = []
        for part in parts:
            kind, tool = string(part.get("part_kind")), string(part.get("tool_name"))
            if kind in _CALLS and tool:
                entry.calls.append(Call(string(part.get("tool_call_id")), tool, part.get("args")))
            elif kind in _RETURNS:
                text = self._text(part.get("content"))
                entry.answers.append(Answer(text, string(part.get("tool_call_id")), tool, at=at))
            elif kind in ("text", "thinking"):
                (words if kind == "text" else thoughts).append(text_of(part.get("content")))
            elif kind == "file":
                self.left_out["pictures and files"] += 1
            else:
                self.unknown[f"part of kind {kind}"] += 1
        entry.text, entry.thinking = "\n".join(w for w in words if w), "\n".join(t for t in thoughts if t)
        self.entries.append(entry)

    def _text(self, content: Any) -> str:
        """What a part says: a text, a list of texts and pictures, or any value that a tool gave back."""
        if isinstance(content, list) and any(isinstance(item, dict) and "kind" in item for item in content):
            self.left_out["pictures and files"] += sum(isinstance(item, dict) for item in content)
            content = "\n".join(item for item in as_list(content) if isinstance(item, str))
        return content if isinstance(content, str) else "" if content is None else compact(content)


def _usage(message: dict[str, Any]) -> Usage | None:
    """Tokens of a response, by the names of today (`input_tokens`) or of before (`request_tokens`)."""
    got = as_dict(message.get("usage"))
    into = count(got.get("input_tokens", got.get("request_tokens")))
    out = count(got.get("output_tokens", got.get("response_tokens")))
    if (into is None and out is None) or not (into or out):
        return None
    details = as_dict(got.get("details"))
    read, thought = count(got.get("cache_read_tokens")), count(details.get("reasoning_tokens"))
    return Usage.whole(into or 0, out or 0, cached=read, written=count(got.get("cache_write_tokens")), reasoning=thought)


pydantic_ai = Importer(
    suffixes=(".pydantic_ai.json",),
    sniff=_sniff,
    signs=("kind", "parts", "part_kind", "model_name", "tool_call_id", "run_id"),
    system="pydantic-ai",
    read_session=_read,
    becomes={
        "system-prompt, instructions": ("message",),
        "user-prompt": ("human_intervention",),
        "response": ("orchestrator_decision", "tool_call"),
        "tool-return, retry-prompt": ("tool_result", "message"),
    },
    versions="unstated",
    exact="tokens, calls",
    lost="pictures, messages of agents inside tools",
)
"""Runs of Pydantic AI, by their messages."""
