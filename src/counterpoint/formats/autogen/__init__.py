"""AutoGen, AG2 and Magentic-One: event logs, AgentChat messages, console logs, chat histories.

Four forms, told apart by content:
- The structured log of `autogen_core.events` (`event_log.py`), JSON events with or without a formatter's words before them: model
  calls become steps, tool calls become calls with results, messages stay messages, responses become returns.
- AgentChat's messages (`group_chat.py`), in a `TaskResult`, in a list, or one to a line: turns in a room where all hear all.
- What `Console` prints (`console.py`), as in Magentic-One's logs: the orchestrator's turns become decisions to delegate, the
  answers returns.
- Chat histories of AG2 and AutoGen 0.2 (`group_chat.py`): turns, with tool calls and results.

What is lost: what other loggers wrote; pieces of streamed messages; pictures. Console logs and histories have no times,
histories no tokens; only the event log knows agent instances, elsewhere an agent is its name.

Always true: tokens stand on the model call or message that has them, once; agents are members of a team and not made by one
another, so there are no spawns but those that failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.autogen.console import blocks_of, is_console, put_blocks
from counterpoint.formats.autogen.event_log import event_in, is_event, put_events, records_of
from counterpoint.formats.autogen.group_chat import CHAT_TYPES, AgentChat, is_history, is_message, put_history
from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.files import File, is_document
from counterpoint.formats.importing.values import as_dict, as_list, decode
from counterpoint.trace import Trace

_SCANNED = 400
_TORN_EVENT = re.compile(rb'\{"type": ?"(?:LLMCall|LLMStreamStart)", ?"messages": ?\[')
_TORN_CHAT = re.compile(
    rb'\s*(?:\{\s*(?:"stop_reason":[^,{\[]*,\s*)?"messages":\s*)?\[\s*\{(?=[^{}]*"source":\s*")(?=[^{}]*"(?:models_usage|type)":)'
)
_TORN_HISTORY = re.compile(rb'\s*(?:\{[^[{]*"chat_history":\s*)?\[\s*\{')
_SPEAKER = re.compile(rb'"role":\s*"(?:user|assistant)",\s*"name":\s*"|"name":\s*"[^"]+",\s*"role":\s*"(?:user|assistant)"')


def _form(head: bytes) -> str | None:
    """Which of the forms a file that begins so has."""
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        whole = _decoded(head)
        form = _of_value(whole) if whole is not None else _of_lines(head)
        if form is not None or whole is not None:
            return form
        if _TORN_CHAT.match(head) and any(name.encode() in head for name in CHAT_TYPES):
            return "chat"
        if _TORN_HISTORY.match(head) and _SPEAKER.search(head):
            return "history"
    if is_document(head):
        return None
    if is_console(head):
        return "console"
    return "events" if _of_lines(head) == "events" else None


def _decoded(data: bytes) -> Any:
    try:
        return decode(data)
    except InputError:
        return None


def _of_value(value: Any) -> str | None:
    if is_event(value):
        return "events"
    messages = as_dict(value).get("messages") if isinstance(value, dict) else value
    if is_message(value) or (isinstance(messages, list) and messages and all(map(is_message, messages))):
        return "chat"
    history = as_dict(value).get("chat_history") if isinstance(value, dict) else value
    return "history" if is_history(history) else None


def _of_lines(head: bytes) -> str | None:
    """The form of the first line that shows one."""
    for raw in head.split(b"\n")[:_SCANNED]:
        line = raw.decode("utf-8", "replace")
        try:
            event = event_in(line)
            value = decode(line) if event is None and line.lstrip()[:1] == "{" else None
        except InputError:
            if _TORN_EVENT.search(raw):
                return "events"
            continue
        if event is not None:
            return "events"
        if is_message(value) or (isinstance(value, dict) and _of_value(value) == "chat"):
            return "chat"
    return None


def _sniff(head: bytes) -> bool:
    return _form(head) is not None


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        own = _run_of(file)
        draft = session.draft(f"autogen-{own}", f"autogen-{own}", system="autogen", run=own)
        form = _form(file.head())
        if form is not None:
            _READERS[form](session, file, draft)
        else:
            session.report.broke(file.name, None, "is not a log of AutoGen")
        yield from draft.traces()


def _run_of(file: File) -> str:
    """All that the file says tells its run: such logs have no ids, and many have the same name."""
    try:
        return run_of(file.data().decode("utf-8", "replace"))
    except InputError:
        return run_of(file.last)


def _events(session: Session, file: File, draft: Draft) -> None:
    put_events(draft, list(records_of(session, file)))


def _chat(session: Session, file: File, draft: Draft) -> None:
    chat = AgentChat(draft)
    whole = _whole(file)
    if whole is not None:
        session.report.records += 1
        values = whole if isinstance(whole, list) else [whole]
    else:
        values = [record for _, record in session.records(file)]
    for value in values:
        if is_message(value):
            chat.message(value)
        elif isinstance(value, dict) and isinstance(value.get("messages"), list):
            chat.result(value)
        else:
            draft.report.unknown["a record that is no message"] += 1


def _whole(file: File) -> Any:
    """The document that a file is; None where it is lines of them."""
    try:
        return decode(file.data())
    except InputError:
        return None


def _console(session: Session, file: File, draft: Draft) -> None:
    lines = (raw.decode("utf-8", "replace") for raw in file.data().splitlines(keepends=True))
    blocks = blocks_of(lines)
    session.report.records += len(blocks)
    put_blocks(draft, blocks)
    if blocks and not any(block.usage for block in blocks):
        draft.report.lacks["the tokens of a turn"] += 1


def _history(session: Session, file: File, draft: Draft) -> None:
    whole = session.document(file)
    result = as_dict(whole)
    put_history(draft, as_list(result.get("chat_history") if result else whole), result)


_READERS = {"events": _events, "chat": _chat, "console": _console, "history": _history}

autogen = Importer(
    suffixes=(".autogen.jsonl", ".json", ".log", ".txt"),
    sniff=_sniff,
    signs=("messages", "source", "models_usage", "content", "type"),
    system="autogen",
    read_session=_read,
    becomes={
        "LLMCall, LLMStreamEnd": ("message", "orchestrator_decision"),
        "ToolCall, ToolCallRequestEvent, ToolCallExecutionEvent": ("tool_call", "tool_result"),
        "Message": ("message", "human_intervention", "return"),
        "AgentConstructionException": ("spawn",),
        "TextMessage, HandoffMessage, StopMessage": ("message", "human_intervention", "orchestrator_decision"),
        "SelectSpeakerEvent": ("orchestrator_decision",),
        "MemoryQueryEvent": ("tool_result",),
        "console block": ("human_intervention", "orchestrator_decision", "message", "return", "tool_call", "tool_result"),
        "chat history": ("human_intervention", "message", "tool_call", "tool_result"),
    },
    versions="0.2, 0.4 and later; AG2",
    exact="event logs: tokens, messages; else speakers",
    lost="times and tokens of console logs and histories, pictures, pieces of streams",
)
