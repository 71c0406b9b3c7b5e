"""What hooks of Copilot CLI log: prompts, answers and the tools around them, one event on each line.

Always true: an event of a tool that ended answers the oldest call of that tool that has no answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Session, run_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.values import as_dict, decode, folder_name, seconds, string, text_of
from counterpoint.trace import Trace

_KINDS = {
    "userpromptsubmitted": "prompt", "userpromptsubmit": "prompt", "userprompt": "prompt",
    "assistantresponse": "answer", "assistantmessage": "answer",
    "pretooluse": "call", "posttooluse": "result", "posttoolusefailure": "result",
    "sessionstart": "start", "sessionend": "end", "erroroccurred": "error",
    "agentstop": "note", "subagentstart": "note", "subagentstop": "note", "notification": "note", "precompact": "note",
}  # fmt: skip
_SURE = frozenset({"prompt", "answer", "call", "result"})
_ARGUMENTS = ("toolArgs", "tool_args", "tool_input", "toolInput", "args", "input")
_OK = {"success": True, "failure": False, "error": False, "denied": False, "rejected": False, "timeout": False}


def _kind(value: Any) -> str | None:
    return _KINDS.get(value.replace("_", "").replace("-", "").lower()) if isinstance(value, str) else None


def is_hook_log(head: bytes) -> bool:
    """Whether a file begins with such an event."""
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
    keys = first_keys(first)
    kind = _kind(keys.get("type", b"").strip().strip(b'"').decode("utf-8", "replace"))
    if kind is None or "message" in keys or "data" in keys or not keys.keys() & {"session_id", "sessionId"}:
        return False
    return kind in _SURE or (kind in ("start", "end") and "cwd" in keys)


def hook_log(session: Session, file: File) -> Iterator[Trace]:
    """The traces of the sessions in a log."""
    runs: dict[str, _Run] = {}
    unknown: Counter[str] = Counter()
    records = 0
    for number, record in session.records(file):
        records += 1
        name = string(record.get("session_id")) or string(record.get("sessionId")) or next(reversed(runs), "")
        if not runs.setdefault(name, _Run()).take(record, f"h{number}"):
            unknown[f"event {record.get('type')}"] += 1
    require_half(file.name, records, unknown)
    session.report.unknown.update(unknown)
    for name, run in runs.items():
        if run.entries:
            known = name or f"hooks-{run_of([e.text for e in run.entries[:2]])}"
            draft = session.draft(known, known, system="copilot-cli")
            draft.meta.update(run.meta)
            draft.meta.update({"left_out": dict(sorted(run.left_out.items()))} if run.left_out else {})
            play(draft, [Dialogue(entries=run.entries)])
            draft.lane(MAIN).stops()
            yield from draft.traces()


class _Run:
    """One session."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.meta: dict[str, Any] = {}
        self.left_out: Counter[str] = Counter()
        self._open: list[Call] = []

    def take(self, event: dict[str, Any], name: str) -> bool:
        """Take an event; False where it is of no known kind."""
        kind, at = _kind(event.get("type")), seconds(event.get("timestamp"))
        if project := folder_name(event.get("cwd")):
            self.meta.setdefault("project", project)
        if kind == "prompt":
            self.entries.append(Entry("user", _first(event, "prompt", "text", "content"), name, at))
        elif kind == "answer":
            text = _first(event, "result", "response", "text", "content", "message")
            self.entries.append(Entry("assistant", text, name, at, model=string(event.get("model"))))
        elif kind == "call":
            self._called(event, name, at)
        elif kind == "result":
            self._ended(event, name, at)
        elif kind == "error":
            error = event.get("error")
            self.entries.append(Entry("error", text_of(as_dict(error).get("message") or error or "error"), name, at))
        elif kind is not None:
            self.left_out[str(event.get("type"))] += 1
        return kind is not None

    def _called(self, event: dict[str, Any], name: str, at: float | None) -> Call:
        call = Call(_first(event, "toolCallId", "tool_call_id", "id") or name, _tool(event), _arguments(event))
        last = self.entries[-1] if self.entries else None
        if last is None or last.role not in ("assistant", "tool") or (last.role == "tool" and not self._open):
            last = Entry("assistant", "", f"{name}.step", at)
            self.entries.append(last)
        next(e for e in reversed(self.entries) if e.role == "assistant").calls.append(call)
        self._open.append(call)
        return call

    def _ended(self, event: dict[str, Any], name: str, at: float | None) -> None:
        stated = _first(event, "toolCallId", "tool_call_id", "id")
        same = (c for c in self._open if (c.id == stated if stated else c.tool == _tool(event)))
        call = next(same, None) or self._called(event, name, at)
        self._open.remove(call)
        result = next((event[key] for key in ("toolResult", "tool_result", "result", "output") if event.get(key) is not None), "")
        shown = as_dict(result)
        kind = string(shown.get("resultType")) or string(shown.get("result_type")) or ""
        text = _first(shown, "textResultForLlm", "text_result_for_llm", "content") or text_of(result or "")
        ok = _OK.get(kind)
        extra = {"is_rejected": True} if kind in ("denied", "rejected") else {}
        error = (text[:500] or kind) if ok is False else None
        self.entries.append(Entry("tool", at=at, answers=[Answer(text, call.id, call.tool, ok, error, at, extra)]))


def _first(event: dict[str, Any], *names: str) -> str:
    return next((text for name in names if (text := text_of(event.get(name) or ""))), "")


def _tool(event: dict[str, Any]) -> str:
    return _first(event, "toolName", "tool_name", "tool", "name") or "unnamed"


def _arguments(event: dict[str, Any]) -> Any:
    found = next((event[key] for key in _ARGUMENTS if key in event), None)
    if isinstance(found, str):
        try:
            return decode(found)
        except InputError:
            return found
    return found
