"""Aider: its chat history (`.aider.chat.history.md`), its history of model calls, and its analytics log.

| line | becomes |
|---|---|
| `#### words` | `human_intervention` |
| text without a mark | `orchestrator_decision`, one for each answer |
| `> Applied edit to`, `> Commit`, `> Running`, an edit that failed, a command that was declined | `tool_call`, `tool_result` |
| `> Tokens: ... Cost: ...` | tokens and cost of that step |
| `> litellm....Error` | a step with that `error` |
| `message_send` of the analytics log | one `orchestrator_decision`, without words, with exact tokens and cost |

A chat (`# aider chat started at`), or a run of the analytics log, is a trace. A history of model calls beside a chat history is
not read: both say the same.

What is lost: the output of commands, other notes (counted in `left_out`), times within a chat; tokens of a chat are rounded to
hundreds or thousands.

Always true: nothing but what ends with the two spaces that Aider writes is a person's words or a note, where the file has such.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from counterpoint.formats.aider.analytics import runs_of
from counterpoint.formats.aider.chats import chats_of
from counterpoint.formats.aider.model_calls import calls_of
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.trace import Trace

_CHAT = re.compile(rb"\s*# aider chat started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[ \t]*\r?\n")
_CALLS = re.compile(rb"\s*TO LLM \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*\r?\n-------\r?\n")
_EVENT = {"event", "properties", "user_id", "time"}
_SAME = "a history of model calls beside the chat history: not read"


def _sniff(head: bytes) -> bool:
    begins = head.removeprefix(b"\xef\xbb\xbf")
    if _CHAT.match(begins) or _CALLS.match(begins):
        return True
    return first_keys(head).keys() == _EVENT and first_keys(head)["event"].startswith(b'"')


def _group(files: Sequence[File]) -> Iterable[Session]:
    chats = {file.name.rpartition("/")[0]: file for file in files if _CHAT.match(file.head().removeprefix(b"\xef\xbb\xbf"))}
    for file in files:
        if _CALLS.match(file.head().removeprefix(b"\xef\xbb\xbf")) and file.name.rpartition("/")[0] in chats:
            continue
        session = Session(file.name, [file])
        beside = [f for f in files if chats.get(file.name.rpartition("/")[0]) is file and _is_calls(f, file)]
        session.report.mended.update({_SAME: len(beside)} if beside else {})
        yield session


def _is_calls(file: File, chat: File) -> bool:
    is_beside = file.name.rpartition("/")[0] == chat.name.rpartition("/")[0]
    return is_beside and _CALLS.match(file.head().removeprefix(b"\xef\xbb\xbf")) is not None


def _read(session: Session) -> Iterator[Trace]:
    file = session.files[0]
    head = file.head().removeprefix(b"\xef\xbb\xbf")
    if _CHAT.match(head) or _CALLS.match(head):
        data = file.data()
        session.check_coding(data)
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        yield from (chats_of if _CHAT.match(head) else calls_of)(session, text)
    else:
        yield from runs_of(session, file)


aider = Importer(
    suffixes=(".aider.chat.history.md", ".aider.llm.history"),
    sniff=_sniff,
    signs=("event", "properties", "user_id", "main_model", "edit_format", "total_cost"),
    system="aider",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "#### words": ("human_intervention",),
        "answer": ("orchestrator_decision", "tokens_in", "tokens_out", "cost_usd"),
        "note of an edit, a commit, a command": ("tool_call", "tool_result"),
        "system message": ("message",),
        "message_send": ("orchestrator_decision", "tokens_in", "tokens_out", "cost_usd"),
    },
    lost="the output of commands, times within a chat, other notes; tokens of a chat are rounded",
    versions="0.50 to 0.86",
    exact="costs of a chat; tokens, costs and times of the analytics log",
)
"""Chats of Aider."""
