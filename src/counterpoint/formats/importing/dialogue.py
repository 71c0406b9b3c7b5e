"""A list of chat messages with tools, which is what most coding agents log: one list for each agent of a session.

A reader makes a `Dialogue` of `Entry`s for each agent, and `play` puts them into a draft. One entry of the model is one step,
with its tokens on it; each call is a `tool_call`, or a `spawn` where a dialogue says that the call made its agent.

Always true: an answer without a call's id belongs to the oldest call that has none yet (counted as inferred); a dialogue that no
call made is reported as unlinked; nothing raises on a strange entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import count

MAIN = "main"
_OLDEST = "the oldest call without an answer"
_SHOWN = 6


@dataclass(slots=True)
class Answer:
    """What a tool gave back."""

    text: str = ""
    call: str | None = None
    """The id of the call."""
    tool: str | None = None
    ok: bool | None = None
    error: str | None = None
    at: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Entry:
    """One message: `role` is system, user, assistant, tool, or error where the client says what went wrong."""

    role: str
    text: str = ""
    id: str | None = None
    at: float | None = None
    """When it was written down; for the model, when it was done."""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    """Answers to its own calls, or of a tool's message."""
    usage: Usage | None = None
    cost: float | None = None
    model: str | None = None
    stop_reason: str | None = None
    error: str | None = None
    by: str | None = None
    """Who speaks where a message of the user comes from no human: a client, a pipeline."""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Dialogue:
    """All messages of one agent."""

    agent: str = MAIN
    entries: list[Entry] = field(default_factory=list)
    role: str | None = None
    name: str | None = None
    call: str | None = None
    """The id of the call that made the agent."""
    rule: str = "the call that made it"
    """How that is known."""
    is_exact: bool = True
    """Whether the source states it, and no rule of ours found it."""


def play(draft: Draft, dialogues: Sequence[Dialogue]) -> None:
    """Put the dialogues of a session down; the first is its main agent's."""
    team = _Team(draft, dialogues)
    for dialogue in dialogues:
        if dialogue.agent not in team.begun:
            if dialogue is not dialogues[0]:
                draft.report.loose(f"agent {dialogue.agent}: no call made it")
                draft.unspawned.add(dialogue.agent)
            team.play(dialogue)
    steps = [e for dialogue in dialogues for e in dialogue.entries if e.role == "assistant"]
    if missing := sum(e.usage is None for e in steps):
        draft.report.lacks["tokens" if missing == len(steps) else "the tokens of some model calls"] += missing


def google_usage(got: dict[str, Any], names: Sequence[str]) -> Usage | None:
    """Tokens as Google counts them, by what the source calls prompt, candidates, cached, thoughts, tool prompt and total.

    Thoughts and the tools' prompts stand beside the prompt and the candidates; where the total is that of prompt and candidates
    alone, the thoughts are inside them, as other vendors count.
    """
    prompt, out, cached, thoughts, tool, total = (count(got.get(name)) for name in names)
    if prompt is None and out is None:
        return None
    into, written, thought = (prompt or 0) + (tool or 0), out or 0, thoughts or 0
    is_inside = total is not None and total < into + written + thought and thought <= written
    return Usage.whole(into, written if is_inside else written + thought, cached=cached, reasoning=thought)


def require_half(where: str, records: int, unknown: Counter[str]) -> None:
    """Refuse a file of which less than half was understood."""
    strange = unknown.total()
    if strange * 2 <= records:
        return
    kinds = ", ".join(kind for kind, _ in unknown.most_common(_SHOWN))
    raise InputError(
        "less than half of its records are of kinds that are known here",
        where=where,
        why=f"{strange} of {records} are not: {kinds}",
        fix="is it a log of this source? `counterpoint import --format list` shows all sources",
    )


class _Team:
    def __init__(self, draft: Draft, dialogues: Iterable[Dialogue]) -> None:
        self.draft = draft
        self.children = {d.call: d for d in dialogues if d.call is not None}
        self.begun: set[str] = set()
        self.spawned: set[str] = set()

    def play(self, dialogue: Dialogue, *, is_child: bool = False) -> None:
        self.begun.add(dialogue.agent)
        lane = self.draft.lane(dialogue.agent, role=dialogue.role, name=dialogue.name, leads=dialogue.agent == MAIN)
        told = _task(dialogue) if is_child else None
        open_calls: dict[str, str] = {}
        for entry in dialogue.entries:
            if entry is not told:
                self._entry(lane, entry, open_calls)
        for call in open_calls:
            child = self.children.get(call)
            if child is not None and child.agent not in self.begun:
                self.play(child, is_child=True)

    def _entry(self, lane: Lane, entry: Entry, open_calls: dict[str, str]) -> None:
        if entry.role == "system":
            lane.prompt(entry.text, by=entry.by or "system", source="system", id=entry.id, at=entry.at, extra=entry.extra)
        elif entry.role == "user":
            source = "user" if entry.by is None else "system"
            lane.prompt(entry.text, by=entry.by or "user", source=source, id=entry.id, at=entry.at, extra=entry.extra)
        elif entry.role == "assistant":
            self._step(lane, entry, open_calls)
        elif entry.role == "error":
            self._failure(lane, entry)
        for answer in entry.answers:
            self._answer(lane, answer, open_calls, entry.at if entry.role == "tool" else None)

    def _failure(self, lane: Lane, entry: Entry) -> None:
        """What the client says went wrong: of the last step, where there was one."""
        if lane.last is not None and self.draft.rows[lane.last]["type"] != "tool_call":
            self.draft.set(lane.last, ok=False, error=entry.text[:500] or "error")
        else:
            by = entry.by or "client"
            lane.prompt(entry.text, by=by, source="system", id=entry.id, at=entry.at, extra={**entry.extra, "is_error": True})

    def _step(self, lane: Lane, entry: Entry, open_calls: dict[str, str]) -> None:
        failed: dict[str, Any] = {"ok": False, "error": entry.error} if entry.error else {}
        step = lane.step(
            id=entry.id,
            end=entry.at,
            text=entry.text,
            thinking=entry.thinking,
            model=entry.model,
            usage=entry.usage,
            cost_usd=entry.cost,
            only_calls=bool(entry.calls) and not entry.text and not entry.thinking,
            extra={**entry.extra, "finish_reason": entry.stop_reason},
            **failed,
        )
        for k, call in enumerate(entry.calls):
            name = call.id or f"{entry.id or step or len(self.draft.rows)}.{k}"
            child = self.children.get(name)
            if child is not None and child.agent not in self.begun and child.agent not in self.spawned:
                self.spawned.add(child.agent)
                task = _task(child)
                fields: dict[str, Any] = {"id": name, "tool": call.tool, "at": entry.at, "role": child.role, "name": child.name}
                event = lane.spawn(child.agent, text=task.text if task else call.text, **fields)
                self.draft.report.linked(child.rule, exact=child.is_exact)
            else:
                event = lane.call(call.tool, call.text, id=name, call=name, at=entry.at)
            open_calls[name] = event

    def _answer(self, lane: Lane, answer: Answer, open_calls: dict[str, str], at: float | None) -> None:
        name, at = answer.call, answer.at if answer.at is not None else at
        if name is None and open_calls:
            name = next(iter(open_calls))
            self.draft.report.linked(_OLDEST, exact=False)
        event = open_calls.pop(name, None) if name is not None else None
        child = self.children.get(name) if name is not None else None
        if event is not None and child is not None and self.draft.rows[event]["type"] == "spawn":
            if child.agent not in self.begun:
                self.play(child, is_child=True)
            failed: dict[str, Any] = {"ok": answer.ok, "error": answer.error} if answer.ok is False else {}
            self.draft.lane(child.agent).returns(lane.agent, answer.text, at=at, id=f"{event}:return", **failed)
            return
        if event is None:
            self.draft.report.loose(f"answer {answer.call or '?'} of {answer.tool or 'a tool'} without a call")
        named = f"{event}:result" if event else None
        fields: dict[str, Any] = {
            "id": named,
            "tool": answer.tool,
            "ok": answer.ok,
            "error": answer.error,
            "at": at,
            "extra": answer.extra,
        }
        lane.result(name, answer.text, **fields)


def _task(dialogue: Dialogue) -> Entry | None:
    """What the agent was told when it was made."""
    first = next((e for e in dialogue.entries if e.role != "system"), None)
    return first if first is not None and first.role == "user" else None
