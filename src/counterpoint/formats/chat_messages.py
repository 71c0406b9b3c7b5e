"""Lists of chat messages with tools, in OpenAI's form or in Anthropic's, and nothing around them.

Read are lists, one message on each line, and objects with `messages` (bodies of requests, rows of data sets), also on lines.

| message | becomes |
|---|---|
| system, developer; `system` of a request | `message` of `system` |
| user | `human_intervention`, and a `tool_result` for each `tool_result` block |
| assistant | `orchestrator_decision`, and a `tool_call` for each call |
| tool, function | `tool_result` |

Any source that says more about itself is read as that source. A list without a single call is taken by nobody: it is a chat,
unless each message on its line states a session and a time, as agents log (OpenClaw). Each session is a trace.

What is lost: images, audio and documents (counted in `left_out`), settings of the request.

Always true: a message whose id was read before counts its tokens once; a tool's answer failed only where the source says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Call, message_of
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, seconds, string, text_of
from counterpoint.trace import Trace

_CALLED = re.compile(rb'"type"\s*:\s*"tool_use"|"tool_calls"\s*:\s*\[\s*\{|"function_call"\s*:\s*\{\s*"(?:name|arguments)"')
_ROLE = re.compile(rb'"role"\s*:\s*"(?:user|assistant|system|developer)"')
_MESSAGE = frozenset({
    "role", "content", "name", "tool_calls", "tool_call_id", "function_call", "id", "type", "model", "stop_reason",
    "stop_sequence", "stop_details", "usage", "refusal", "annotations", "audio", "reasoning_content", "reasoning",
    "reasoning_details", "thinking", "timestamp", "created_at", "is_error", "container", "provider_specific_fields",
    "thinking_blocks", "index", "prefix", "weight", "session_id",
})  # fmt: skip
_AROUND = frozenset({
    "messages", "model", "tools", "system", "tool_choice", "max_tokens", "max_completion_tokens", "temperature", "top_p",
    "stream", "metadata", "thinking", "id", "parallel_tool_calls", "response_format", "seed", "stop", "n", "user",
    "reasoning_effort", "functions", "usage", "store", "service_tier",
})  # fmt: skip
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_MEDIA = frozenset({"image", "image_url", "input_audio", "file", "document", "audio"})


def _sniff(head: bytes) -> bool:
    keys = first_keys(head).keys()
    is_logged = keys >= {"role", "content", "session_id", "timestamp"} and keys <= _MESSAGE and head.lstrip()[:1] == b"{"
    if is_logged and _ROLE.search(head) is not None:
        return True
    if not keys or _ROLE.search(head) is None or _CALLED.search(head) is None:
        return False
    return ("messages" in keys and keys <= _AROUND) or (keys >= {"role", "content"} and keys <= _MESSAGE)


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        values = list(session.documents(file))
        if values and all("role" in as_dict(value) for value in values):
            values = _by_session(values)  # a message on each line
        elif len(values) == 1 and isinstance(values[0], list) and all("messages" in as_dict(v) for v in values[0]):
            values = values[0]
        for value in values:
            around = value if isinstance(value, dict) else {"messages": value}
            chat = _Chat(session, around)
            require_half(file.name, chat.records, chat.unknown)
            session.report.unknown.update(chat.unknown)
            yield from chat.traces()


def _session_of(messages: list[Any]) -> str | None:
    return string(as_dict(messages[0]).get("session_id")) if messages else None


def _by_session(messages: list[Any]) -> list[list[Any]]:
    """Messages on lines, apart by the session that they state; one that states none goes with the one before."""
    sessions: dict[str | None, list[Any]] = {}
    name: str | None = None
    for message in messages:
        name = string(as_dict(message).get("session_id")) or name
        sessions.setdefault(name, []).append(message)
    return list(sessions.values())


class _Chat:
    """One list of messages on its way to a trace."""

    def __init__(self, session: Session, around: dict[str, Any]) -> None:
        messages = as_list(around.get("messages"))
        name = string(around.get("id")) or _session_of(messages) or f"chat-{run_of(messages[:2])}"
        run = run_of(messages[:2] if _session_of(messages) else around)
        self.draft = session.draft(name, name, system="chat", run=run)
        self.model = string(around.get("model"))
        self.entries: list[Entry] = []
        self.records = 0
        self.unknown: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self._counted: set[str] = set()
        if told := text_of(around.get("system") or ""):
            self.entries.append(Entry("system", told, "system"))
        for k, message in enumerate(map(as_dict, messages)):
            self.records += 1
            self._message(message, f"m{k}")

    def _message(self, raw: dict[str, Any], name: str) -> None:
        blocks = [p for p in map(as_dict, as_list(raw.get("content"))) if _is_tool(p)]
        kinds = [string(as_dict(p).get("type")) for p in as_list(raw.get("content"))]
        parts = zip(as_list(raw.get("content")), kinds, strict=True)
        rest = [p for p, kind in parts if not _is_tool(as_dict(p)) and kind not in _MEDIA]
        self.left_out.update(kind for kind in kinds if kind in _MEDIA)
        message = message_of({**raw, "content": rest} if isinstance(raw.get("content"), list) else raw)
        if message is None or message.role not in _ROLES:
            self.unknown[f"message of role {raw.get('role')}"] += 1
            return
        at = seconds(raw.get("timestamp") or raw.get("created_at"))
        role = {"developer": "system", "function": "tool"}.get(message.role, message.role)
        entry = Entry(role, message.text, name, at, message.thinking, calls=message.calls)
        if role == "tool":
            tool = string(raw.get("name"))
            entry = Entry("tool", id=name, at=at, answers=[Answer(message.text, message.call, tool, at=at)])
        elif role == "assistant":
            self._answered(entry, raw)
        for block in blocks:
            self._block(block, entry)
        if role == "user" and entry.answers and not entry.text:
            entry.role = "tool"
        self.entries.append(entry)

    def _answered(self, entry: Entry, raw: dict[str, Any]) -> None:
        called, usage = as_dict(raw.get("function_call")), as_dict(raw.get("usage"))
        if tool := string(called.get("name")):
            entry.calls.append(Call(None, tool, called.get("arguments")))
        entry.model = string(raw.get("model")) or self.model
        entry.stop_reason = string(raw.get("stop_reason"))
        name = string(raw.get("id"))
        if name is None or name not in self._counted:
            is_openai = "prompt_tokens" in usage or "completion_tokens" in usage
            entry.usage = Usage.openai(usage) if is_openai else Usage.anthropic(usage)
        self._counted.update([name] if name else [])

    def _block(self, block: dict[str, Any], entry: Entry) -> None:
        call = string(block.get("id"))
        if string(block.get("type")) in _CALLS:
            entry.calls.append(Call(call, string(block.get("name")) or "unnamed", block.get("input")))
            return
        text, failed = text_of(block.get("content") or ""), block.get("is_error")
        ok = not failed if isinstance(failed, bool) else None
        error = (text[:500] or "error") if ok is False else None
        entry.answers.append(Answer(text, string(block.get("tool_use_id")), None, ok, error, entry.at))

    def traces(self) -> Iterator[Trace]:
        if not self.entries:
            return
        play(self.draft, [Dialogue(entries=self.entries)])
        self.draft.lane(MAIN).stops()
        if self.left_out:
            self.draft.meta["left_out"] = dict(sorted(self.left_out.items()))
        yield from self.draft.traces()


def _is_tool(block: dict[str, Any]) -> bool:
    kind = string(block.get("type")) or ""
    return kind in _CALLS or kind.endswith("tool_result")


chat_messages = Importer(
    suffixes=(".messages.json",),
    sniff=_sniff,
    signs=("messages", "role", "content", "tool_calls", "tool_call_id", "tool_use", "tool_use_id"),
    system="chat",
    read_session=_read,
    rank=-5,
    becomes={
        "system message": ("message",),
        "user message": ("human_intervention", "tool_result"),
        "assistant message": ("orchestrator_decision", "tool_call"),
        "tool message": ("tool_result",),
    },
    lost="images, audio, documents, settings of the request",
    versions="OpenAI chat completions, Anthropic messages of 2023-06-01, lines of OpenClaw",
    exact="tools, errors of Anthropic's results, tokens where messages keep them",
)
"""Chat messages with tools."""
