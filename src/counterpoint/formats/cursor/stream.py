"""What `cursor-agent` prints: lines (`--output-format stream-json`), or the last of them alone (`json`).

Always true: words that were printed piece by piece and again as a whole count once; a call is one, started and completed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Session
from counterpoint.formats.importing.blocks import blocks_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, compact, count, seconds, string, text_of
from counterpoint.trace import Trace

_COUNTS = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
_CALLED = re.compile(rb'"type"\s*:\s*"tool_call"')
_FAILED = ("error", "rejected", "failure", "permissionDenied", "timeout", "aborted", "spawnError", "fileNotFound")
_IGNORED = frozenset({"interaction_query", "status", "connection", "retry"})
_TEXTS = ("content", "stdout", "output", "message", "error", "diffString", "directoryTree", "reason", "result", "text")


def is_stream(head: bytes) -> bool:
    """Whether a file is what the agent prints; Claude Code prints lines of the same names, with others beside them."""
    keys = first_keys(head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0] or head)
    kind = keys.get("type", b"").strip()
    if kind == b'"system"' and keys.get("subtype", b"").strip() == b'"init"':
        return keys.keys() >= {"session_id", "model"} and not keys.keys() & {"tools", "mcp_servers", "uuid", "slash_commands"}
    if kind == b'"tool_call"':
        return keys.keys() >= {"call_id", "tool_call"}
    if (
        kind in (b'"user"', b'"assistant"')
        and keys.keys() >= {"message", "session_id"}
        and not keys.keys() & {"uuid", "sessionId"}
    ):
        return _CALLED.search(head) is not None or b'"model_call_id"' in head
    if kind == b'"result"' and keys.keys() >= {"subtype", "session_id", "duration_api_ms", "result"}:
        return not keys.keys() & {"total_cost_usd", "num_turns", "uuid", "modelUsage"}
    return False


def read_stream(session: Session, file: File) -> Iterator[Trace]:
    """The runs that are printed in a file, one for each session."""
    runs: dict[str, _Run] = {}
    unknown: Counter[str] = Counter()
    records = 0
    for value in session.documents(file):
        records += 1
        record = as_dict(value)
        name = string(record.get("session_id")) or next(iter(runs), file.stem)
        if not runs.setdefault(name, _Run()).record(record, f"r{records}"):
            unknown[f"record of type {record.get('type')}"] += 1
    require_half(file.name, records, unknown)
    session.report.unknown.update(unknown)
    for name, run in runs.items():
        draft = session.draft(name, name, system="cursor")
        draft.report.note_odd_counts(run.odd)
        play(draft, [Dialogue(entries=run.entries), *run.agents])
        draft.lane(MAIN).stops()
        yield from draft.traces()


class _Run:
    """One session that is printed."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.agents: list[Dialogue] = []
        self.model: str | None = None
        self.thought = ""
        self.call_id: str | None = None
        """The call of the model that the last step came of."""
        self.odd = 0

    def record(self, record: dict[str, Any], name: str) -> bool:
        """Take a record; False where its kind is not known."""
        kind, at = string(record.get("type")), seconds(record.get("timestamp_ms"))
        if kind == "system":
            self.model = string(record.get("model")) or self.model
        elif kind == "user":
            words = blocks_of(as_dict(record.get("message")).get("content")).text
            self.entries += [Entry("user", words, name, at)] if words else []
        elif kind == "thinking":
            self.thought += text_of(record.get("text") or "")
        elif kind == "assistant":
            self._words(record, name, at)
        elif kind == "tool_call":
            self._tool(record, name, at)
        elif kind == "result":
            self._result(record, name)
        else:
            return kind in _IGNORED
        return True

    def _step(self, name: str, at: float | None, record: dict[str, Any]) -> Entry:
        """The step that is being printed: words and calls of one call of the model."""
        last = self.entries[-1] if self.entries else None
        own = string(record.get("model_call_id"))
        is_same = last is not None and last.role == "assistant" and (own is None or self.call_id in (None, own))
        if last is None or not is_same or (last.calls and record.get("type") == "assistant"):
            last = Entry("assistant", id=name, model=self.model)
            self.entries.append(last)
            self.call_id = None
        self.call_id = own or self.call_id
        last.thinking, self.thought = last.thinking + self.thought, ""
        last.at = last.at or at
        return last

    def _words(self, record: dict[str, Any], name: str, at: float | None) -> None:
        text = blocks_of(as_dict(record.get("message")).get("content")).text
        last = self.entries[-1] if self.entries else None
        if last is not None and last.role == "assistant" and not last.calls and text and text.strip() == last.text.strip():
            return  # the whole, after its pieces
        step = self._step(name, at, record)
        step.text += text

    def _tool(self, record: dict[str, Any], name: str, at: float | None) -> None:
        call = string(record.get("call_id")) or name
        tool, arguments, result = _called(as_dict(record.get("tool_call")))
        known = next((c for e in self.entries for c in e.calls if c.id == call), None)
        if known is None:
            step = self._step(name, at, record)
            step.calls.append(Call(call, tool, arguments))
            self._agent(call, tool, as_dict(arguments))
        if record.get("subtype") == "completed" or result is not None:
            answer = _answer(call, result)
            answer.at = at
            self.entries.append(Entry("tool", at=at, answers=[answer]))

    def _agent(self, call: str, tool: str, arguments: dict[str, Any]) -> None:
        """A call of a task is an agent, of which the result is all that is printed."""
        if tool == "task" and (prompt := string(arguments.get("prompt"))):
            role = string(arguments.get("subagentType")) or compact(arguments.get("subagentType") or "") or None
            asked = [Entry("user", prompt)]
            self.agents.append(Dialogue(call, asked, role, string(arguments.get("description")), call))

    def _result(self, record: dict[str, Any], name: str) -> None:
        """The end of the run, with its tokens and all its words."""
        used = as_dict(record.get("usage"))
        steps = [entry for entry in self.entries if entry.role == "assistant"]
        if not steps and (text := text_of(record.get("result"))) and record.get("is_error") is not True:
            self.entries.append(Entry("assistant", text, name, model=self.model))
            steps = self.entries[-1:]
        self.odd += odd_counts(used, _COUNTS)
        fresh, out, read, wrote = (count(used.get(key)) for key in _COUNTS)
        if steps and (fresh is not None or out is not None):
            steps[-1].usage = Usage(fresh or 0, read or 0, wrote or 0, out or 0)
            steps[-1].extra["tokens_of"] = "the run"
        if record.get("is_error") is True:
            self.entries.append(Entry("error", text_of(record.get("result")) or "error", name))


def _called(got: dict[str, Any]) -> tuple[str, Any, Any]:
    """The tool of a call, its arguments, and its result where there is one."""
    key, inner = next(((k, as_dict(v)) for k, v in got.items() if isinstance(v, dict)), ("unnamed", {}))
    if key == "function":
        return string(inner.get("name")) or "unnamed", inner.get("arguments"), inner.get("result", got.get("result"))
    arguments = as_dict(inner.get("args"))
    tool = key.removesuffix("ToolCall")
    if tool == "mcp" and (named := string(arguments.get("toolName")) or string(arguments.get("name"))):
        return named, arguments.get("args", arguments), inner.get("result")
    return (
        tool,
        {k: v for k, v in arguments.items() if k not in ("toolCallId", "parsingResult", "simpleCommands")},
        inner.get("result"),
    )


def _answer(call: str, result: Any) -> Answer:
    got = as_dict(result)
    failed = next((name for name in _FAILED if name in got), None)
    shown = got.get(failed) if failed else got.get("success", result)
    text = _text(shown)
    code = count(as_dict(shown).get("exitCode")) if not isinstance(as_dict(shown).get("exitCode"), bool) else None
    if failed is None and (code or as_dict(shown).get("isError") is True):
        failed = f"exit code {code}" if code else "error"
    ok = False if failed else True if "success" in got else None
    said = string(as_dict(shown).get("stderr")) or text
    return Answer(text, call, None, ok, (said[:500] or failed) if failed else None)


def _text(shown: Any) -> str:
    """What a result says: its words where it has any, else all of it."""
    got = as_dict(shown)
    words = [text_of(got[name]) for name in _TEXTS if isinstance(got.get(name), str | list) and got[name]]
    words += [got["stderr"]] if isinstance(got.get("stderr"), str) and got["stderr"] else []
    return "\n".join(filter(None, words)) or (shown if isinstance(shown, str) else compact(shown) if got else "")
