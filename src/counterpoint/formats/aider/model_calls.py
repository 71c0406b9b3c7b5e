"""Aider's history of model calls (`--llm-history-file`): each prompt with its time, and the answer to it.

Always true: a message that an earlier prompt had is not heard again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from counterpoint.formats.importer import Session, run_of
from counterpoint.formats.importing.chat import ChatMemory, Message
from counterpoint.formats.importing.dialogue import MAIN, Dialogue, Entry, play
from counterpoint.formats.importing.values import seconds
from counterpoint.trace import Trace

_PART = re.compile(r"^(TO LLM|LLM RESPONSE) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*)[ \t]*$", re.M)
_ROLES = ("SYSTEM", "USER", "ASSISTANT")


def calls_of(session: Session, text: str) -> Iterator[Trace]:
    """The trace of a history: nothing in it says where one chat ends."""
    parts = _PART.split(text.replace("\r\n", "\n"))
    rows = list(zip(parts[1::3], parts[2::3], parts[3::3], strict=True))
    if not rows:
        return
    name = f"aider-calls-{run_of(rows[0][1])}"
    draft = session.draft(name, name, system="aider")
    memory, entries = ChatMemory(), list[Entry]()
    for k, (kind, time, body) in enumerate(rows):
        session.report.records += 1
        at = seconds(time if "+" in time or time.endswith("Z") else f"{time}Z")
        if kind == "TO LLM":
            messages = _messages(body)
            last = next((m for m in reversed(messages) if m.role == "user"), None)
            for message in memory.new(messages):
                role = message.role if message.role != "assistant" else "user"
                by = None if message is last or role == "system" else "client"
                entries.append(Entry(role, message.text, f"c{k}.{len(entries)}", at, by=by))
        else:
            answer = "\n".join(line.removeprefix("ASSISTANT").removeprefix(" ") for line in body.strip("\n").split("\n"))
            memory.add_answer([], Message("assistant", text=answer.strip()))
            error = None if answer.strip() else "no answer"
            entries.append(Entry("assistant", answer.strip(), f"c{k}", at, error=error))
    draft.report.lacks["the model"] += 1
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    yield from draft.traces()


def _messages(body: str) -> list[Message]:
    """The messages of a prompt: each behind a line of hyphens, each of its lines behind its role."""
    messages = []
    for part in body.split("\n-------\n" if not body.startswith("\n-------\n") else "-------\n"):
        lines = part.strip("\n").split("\n")
        role = next((r for r in _ROLES if lines[0].startswith(r)), None)
        if role is not None:
            text = "\n".join(line.removeprefix(role).removeprefix(" ") for line in lines)
            messages.append(Message(role.lower(), text=text.strip()))
    return messages
