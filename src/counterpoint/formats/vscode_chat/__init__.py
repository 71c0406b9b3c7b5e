"""VS Code's chat with GitHub Copilot: session files, their newer logs of changes, and exports.

| record | becomes |
|---|---|
| `message` of a request | `human_intervention` |
| a round of `toolCallRounds`; without them, text and calls of `response` | `orchestrator_decision`, `tool_call` |
| `toolCallResults`, `resultDetails`, a terminal's output | `tool_result` |
| `runSubagent`, with what ran inside it | `spawn`, `return` |
| a cancelled request | `human_intervention`, interrupted |

Tokens: a request states what its rounds wrote together and what went into its last round. A log of changes keeps the numbers of
more rounds: each that it shows counts once. They stand on the last step, as `tokens_of: the request`, where not each step has its
own; the input is then that of those rounds, and the trace says so.

What is lost: edits, references, citations, followups (counted in `left_out`); tokens of sub-agents.

Always true: a call is recorded once, though the rounds and the response both have it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.formats.draft import one_line
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.dialogue import MAIN, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.values import as_dict, as_list, number, string, text_of
from counterpoint.formats.vscode_chat.changes import Changes
from counterpoint.formats.vscode_chat.requests import Conversation
from counterpoint.trace import Trace

_INITIAL = re.compile(rb"\s*0\s*")
_ABOUT = (b'"sessionId"', b'"requests"', b'"creationDate"', b'"responderUsername"')
_COMMAND = re.compile(r"^\s*(?:[@/][\w.-]+(?:\s+|$))+")
_OLDER = "an older copy of the session beside its log of changes: not read"


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if keys.keys() >= {"kind", "v"} and _INITIAL.fullmatch(keys["kind"].rstrip(b",}")):
        return sum(word in head for word in _ABOUT) > 1
    names = keys.keys() & {"requesterUsername", "responderUsername", "initialLocation", "creationDate", "sessionId"}
    return "requests" in keys and keys["requests"].lstrip().startswith(b"[") and len(names) > 1


def _group(files: Sequence[File]) -> Iterable[Session]:
    """A session's file and the log of changes that took its place are one session."""
    groups: dict[str, list[File]] = {}
    for file in files:
        groups.setdefault(re.sub(r"\.jsonl?$", "", file.name), []).append(file)
    for name, some in groups.items():
        yield Session(name, sorted(some, key=lambda file: not file.name.endswith(".jsonl")))


def _read(session: Session) -> Iterator[Trace]:
    file = session.files[0]
    if len(session.files) > 1:
        session.report.mended[_OLDER] += len(session.files) - 1
    if "kind" in first_keys(file.head()):
        changes = Changes()
        for line, record in session.records(file):
            if not changes.apply(record):
                session.report.broke(file.name, line, "a change of something that is not there")
        yield from _conversation(session, file.name, as_dict(changes.state), changes.tokens)
        return
    for value in session.documents(file):
        yield from _conversation(session, file.name, as_dict(value), {})


def _conversation(
    session: Session, where: str, state: dict[str, Any], tokens: dict[int, list[tuple[int, int]]]
) -> Iterator[Trace]:
    requests = [as_dict(r) for r in as_list(state.get("requests"))]
    if not requests:
        return
    name = string(state.get("sessionId")) or f"chat-{run_of(requests[0].get('requestId'), requests[0].get('message'))}"
    draft = session.draft(name, name, system="vscode-chat")
    unknown: Counter[str] = Counter()
    chat = Conversation(unknown)
    for k, request in enumerate(requests):
        chat.add(k, request, tokens.get(k, []))
    require_half(where, chat.parts, unknown)
    session.report.unknown.update(unknown)
    draft.report.note_odd_counts(chat.odd)
    draft.report.lacks.update(chat.lacks)
    play(draft, list(chat.dialogues.values()))
    draft.lane(MAIN).stops()
    if title := string(state.get("customTitle")) or _asked(requests):
        draft.meta["title"] = title
    if credits := sum(number(r.get("copilotCredits")) or 0.0 for r in requests):
        draft.meta["copilot_credits"] = round(credits, 6)
    if left_out := {kind: n for kind, n in sorted(chat.left_out.items()) if n}:
        draft.meta["left_out"] = left_out
    yield from draft.traces()


def _asked(requests: list[dict[str, Any]]) -> str | None:
    """The first words of a person, without the participants and commands before them."""
    texts = (text_of(as_dict(request.get("message")).get("text") or "") for request in requests)
    return next((one_line(words) for text in texts if (words := _COMMAND.sub("", text).strip())), None)


vscode_chat = Importer(
    suffixes=(".chat.json",),
    sniff=_sniff,
    signs=("requests", "responderUsername", "requestId", "responseId", "toolInvocationSerialized", "toolCallRounds", "modelId"),
    system="vscode-chat",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "message": ("human_intervention", "message"),
        "toolCallRounds, response": ("orchestrator_decision", "aggregate", "message", "tool_call", "spawn"),
        "toolCallResults, toolInvocationSerialized": ("tool_result", "return"),
        "result.errorDetails": ("error",),
        "promptTokens, completionTokens": ("tokens_in", "tokens_out"),
    },
    lost="edits, references, followups; tokens of sub-agents; what went into rounds that the file does not show",
    versions="session versions 1 to 3, with and without the log of changes; Copilot Chat 0.2x to 0.54",
    exact="what a request wrote, tool calls with their results, sub-agents, credits",
)
"""Chats of VS Code with GitHub Copilot."""
