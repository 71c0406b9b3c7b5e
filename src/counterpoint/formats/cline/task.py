"""A task: its conversation, with the tokens and times of the requests that the screen shows; and tasks that made each other.

Always true: a request whose answer is not found is a step of its own; an agent is linked to the call that made it by its id
where the call's answer states it, else by the words of its task or by the order of the calls, which is counted as inferred.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from counterpoint.formats.cline.requests import COUNTS, Request, requests_of, usage_of
from counterpoint.formats.cline.screen import screen_entries, unknown_kinds
from counterpoint.formats.cline.subagents import shown_subagents
from counterpoint.formats.cline.words import Speech, model_in, outcome, said_in, split_calls, spoken_by
from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.blocks import Blocks, blocks_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, folder_name, number, seconds, string
from counterpoint.trace import Trace
from counterpoint.trace.keys import PROJECT

DELEGATION = ("new_task", "newTask")
_MADE = re.compile(r"Successfully created new task|Delegated to child task|^\s*\{\s*\"status\"\s*:\s*\"delegated\"")
_CHILD = re.compile(r"\ASubtask (\S+) completed\.?\s*(?:Result:)?\s*(.*)\Z", re.S)
_STOPPED = {"[Response interrupted by user]": "interrupted by the user", "Failure: I did not provide a response.": "no response"}
_UNPLACED = "requests and answers of unlike number: matched in their order"


@dataclass
class Task:
    """What the files of one task hold."""

    name: str
    api: list[dict[str, Any]] = field(default_factory=list)
    ui: list[dict[str, Any]] = field(default_factory=list)
    item: dict[str, Any] = field(default_factory=dict)
    """The task in the client's history."""
    models: list[Any] = field(default_factory=list)


def read_tasks(session: Session, tasks: dict[str, Task]) -> Iterator[Trace]:
    """One trace of the tasks in a session: one of them made the others."""
    named = {key: task for key, task in tasks.items() if task.api or task.ui}
    if not named:
        return
    made = {name: string(task.item.get("parentTaskId")) for name, task in named.items()}
    root = next((name for name in named if made[name] not in named), next(iter(named)))
    draft = session.draft(named[root].name, named[root].name, system=_system(named.values()))
    left_out: Counter[str] = Counter()
    made_here: list[Dialogue] = []
    dialogues = {name: Dialogue(MAIN if name == root else name) for name in [root, *(n for n in named if n != root)]}
    for name, dialogue in dialogues.items():
        reader = _Conversation(named[name], draft, left_out)
        dialogue.entries = reader.entries()
        dialogue.role = string(named[name].item.get("mode"))
        made_here += shown_subagents(named[name].ui, dialogue.entries, name)
        require_half(name, len(named[name].api) or len(named[name].ui), reader.unknown)
        session.report.unknown.update(reader.unknown)
    for name in named:
        _link(named[name], dialogues[name], dialogues, {child: named[child] for child in named if made[child] == name}, draft)
    if title := string(named[root].item.get("task")):
        draft.meta["title"] = " ".join(title.split())[:160]
    item = named[root].item
    if folder := folder_name(item.get("workspace") or item.get("cwdOnTaskInitialization")):
        draft.meta[PROJECT] = folder
    play(draft, [*dialogues.values(), *made_here])
    draft.lane(MAIN).stops()
    if left_out := Counter({kind: n for kind, n in sorted(left_out.items()) if n}):
        draft.meta["left_out"] = dict(left_out)
    yield from draft.traces()


def _system(tasks: Any) -> str:
    """Roo Code numbers its tasks; otherwise nothing in a task names its client."""
    return "roo-code" if any("number" in task.item for task in tasks) else "cline"


def _link(task: Task, own: Dialogue, dialogues: dict[str, Dialogue], children: dict[str, Task], draft: Draft) -> None:
    """Say which call of a task made which of its children."""
    calls = [call for entry in own.entries for call in entry.calls if call.tool in DELEGATION]
    stated = {str(a.extra["child"]): a.call for e in own.entries for a in e.answers if "child" in a.extra and a.call}
    listed = [name for name in map(str, as_list(task.item.get("childIds"))) if name in children]
    left = [*listed, *(name for name in children if name not in listed)]
    taken: set[str] = set()
    for name in [n for n in left if n in stated]:
        dialogues[name].call, dialogues[name].rule = stated[name], "the task that the answer of the call states"
        taken.add(str(stated[name]))
    for name in [n for n in left if n not in stated]:
        first = next((e.text for e in dialogues[name].entries if e.role == "user"), "")
        words = {text.strip() for text in (string(children[name].item.get("task")), first) if text}
        free = [call for call in calls if call.id not in taken]
        alike = [call for call in free if _message(call).strip() in words]
        chosen = next(iter(alike or free), None)
        if chosen is not None and chosen.id is not None:
            taken.add(chosen.id)
            dialogues[name].call, dialogues[name].is_exact = chosen.id, False
            dialogues[name].rule = "the words of its task" if alike else "the order of the calls"
    if missing := len(set(map(str, as_list(task.item.get("childIds")))) - set(dialogues)):
        draft.report.lacks["the files of a task that was delegated"] += missing


def _message(call: Call) -> str:
    return string(as_dict(call.arguments).get("message")) or string(as_dict(call.arguments).get("content")) or ""


class _Conversation:
    """The entries of one task."""

    def __init__(self, task: Task, draft: Draft, left_out: Counter[str]) -> None:
        self.task, self.draft, self.left_out = task, draft, left_out
        self.unknown: Counter[str] = Counter()
        self.open: list[tuple[str, str]] = []
        """Calls without an answer: id and tool."""
        self.model: str | None = None

    def entries(self) -> list[Entry]:
        requests = requests_of(self.task.ui, self.task.models, self.draft.report)
        if not self.task.api:
            entries = screen_entries(self.task.ui, requests, self.left_out, self.unknown)
        else:
            entries = self._merged(requests)
            self.draft.report.unknown.update(unknown_kinds(self.task.ui))
        self._total(entries)
        return entries

    def _merged(self, requests: list[Request]) -> list[Entry]:
        placed, before = self._places(requests)
        entries: list[Entry] = []
        for k, message in enumerate(self.task.api):
            entries += [_lone(request) for request in before.get(k, [])]
            request = placed.get(k)
            if message.get("role") == "assistant":
                entries.append(self._answer(k, message, request))
            elif message.get("role") in ("user", "tool"):
                sent = (
                    r.at
                    for n in range(k + 1, len(self.task.api))
                    for r in [*before.get(n, []), *([placed[n]] if n in placed else [])]
                )
                entries += self._asked(k, message, next(sent, None))
            elif message.get("type") == "reasoning":
                self.left_out["reasoning that is encrypted"] += 1
            else:
                self.unknown[f"message of role {message.get('role')}"] += 1
        return entries + [_lone(request) for request in before.get(len(self.task.api), [])]

    def _places(self, requests: list[Request]) -> tuple[dict[int, Request], dict[int, list[Request]]]:
        """Which message of the conversation is a request's answer; and those without one, by the message that they precede."""
        api = self.task.api
        answers = [k for k, message in enumerate(api) if message.get("role") == "assistant"]
        real = [r for r in requests if not r.extra]
        times = {k: seconds(api[k].get("ts")) for k in answers}
        placed: dict[int, Request] = {}
        before: dict[int, list[Request]] = {}
        free = list(answers)
        by_index = any(r.index is not None for r in real)
        by_time = not by_index and bool(answers) and all(times[k] is not None for k in answers)
        if not (by_index or by_time) and len(real) != len(answers) and real and answers:
            self.draft.report.lacks[_UNPLACED] += abs(len(real) - len(answers))
        last = 0
        for n, request in enumerate(requests):
            later = next((r for r in requests[n + 1 :] if not r.extra), None)
            found = None
            if not request.extra:
                found = next((k for k in free if _fits(k, times[k], request, later, by_index=by_index, by_time=by_time)), None)
            if found is None:
                at = next((k for k in free if by_time and request.at is not None and (times[k] or 0) > request.at), None)
                after = request.index + 2 if request.index is not None else last if by_index or request.extra else len(api)
                before.setdefault(min(at if at is not None else after, len(api)), []).append(request)
            else:
                free = [k for k in free if k > found]
                placed[found], last = request, found + 1
        return placed, before

    def _answer(self, k: int, message: dict[str, Any], request: Request | None) -> Entry:
        blocks = blocks_of(message.get("content"), self.unknown)
        name = string(message.get("id")) or f"m{k}"
        text, thinking, calls = split_calls(blocks.text, name)
        self.left_out["images and files"] += blocks.images
        calls = [*(Call(c.id or f"{name}.n{n}", c.tool, c.arguments) for n, c in enumerate(blocks.calls)), *calls]
        entry = Entry("assistant", text, name, seconds(message.get("ts")), thinking=thinking or blocks.thinking, calls=calls)
        entry.thinking = "\n".join(filter(None, (blocks.thinking, thinking)))
        entry.text = "\n".join(filter(None, (text, spoken_by(calls))))
        about = as_dict(message.get("modelInfo"))
        entry.model = string(about.get("modelId")) or string(about.get("id")) or self.model
        for mark, error in _STOPPED.items():
            if mark in entry.text:
                entry.text, entry.error = entry.text.replace(mark, "").strip(), error
        if request is not None:
            entry.usage, entry.cost, entry.error = request.usage, request.cost, request.error or entry.error
            entry.model = request.model or entry.model
            entry.at = entry.at or request.end
        else:
            self._own(entry, as_dict(message.get("metrics")))
        self.open += [(str(call.id), call.tool) for call in calls]
        if message.get("isSummary") is True:
            entry.extra["is_compaction"] = True
        return entry

    def _own(self, entry: Entry, metrics: dict[str, Any]) -> None:
        """The tokens that a message states itself."""
        tokens = as_dict(metrics.get("tokens"))
        if count(tokens.get("prompt")) is not None:
            entry.usage = Usage.whole(tokens.get("prompt"), tokens.get("completion"), cached=tokens.get("cached"))
            entry.cost = number(metrics.get("cost")) or None

    def _asked(self, k: int, message: dict[str, Any], at: float | None) -> list[Entry]:
        """The results, a person's words and the client's notes in one message."""
        content, name = message.get("content"), string(message.get("id")) or f"m{k}"
        at = seconds(message.get("ts")) or at
        self.model = model_in(content) or self.model
        blocks = blocks_of(content, self.unknown)
        self.left_out["images and files"] += blocks.images
        if message.get("isSummary") is True or message.get("isTruncationMarker") is True:
            return [Entry("user", blocks.text, name, at, by="client", extra={"is_compaction": True})]
        said = said_in(blocks.texts)
        answers = self._results(blocks, said)
        entries = [Entry("tool", id=f"{name}.t", at=at, answers=answers)] if answers else []
        for n, note in enumerate(said.notes):
            entries.append(Entry("user", note, f"{name}.c{n}", at, by="client"))
        for n, words in enumerate(said.words):
            entries.append(Entry("user", words, name if n == 0 else f"{name}.{n}", at))
        return entries

    def _results(self, blocks: Blocks, said: Speech) -> list[Answer]:
        answers: list[Answer] = []
        for answer in blocks.answers:
            said.words += said_in([answer.text]).words if "<feedback>" in answer.text or "<answer>" in answer.text else []
            answers.append(self._result(answer, self._named(answer.call) or answer.tool))
        for tool, text in said.results:
            answers.append(self._result(Answer(text, None, tool), tool))
        answers += [self._result(Answer(text, None, DELEGATION[0]), DELEGATION[0]) for text in said.returned]
        return [a for a in answers if not (a.tool in DELEGATION and a.ok and _MADE.search(a.text))]

    def _named(self, call: str | None) -> str | None:
        return next((tool for name, tool in self.open if name == call), None)

    def _result(self, answer: Answer, tool: str | None) -> Answer:
        """An answer with its call, and how it went."""
        answer.tool = tool
        ok, error = outcome(tool, answer.text)
        if answer.ok is None or not ok:
            answer.ok, answer.error = ok, error
        if answer.call is None:
            answer.call = next((name for name, t in self.open if t == tool), None) or next((n for n, _ in self.open), None)
        if tool in DELEGATION and (child := _CHILD.match(answer.text)):
            answer.extra["child"], answer.text = child[1], child[2].strip()
        if not (tool in DELEGATION and answer.ok and _MADE.search(answer.text)):
            self.open = [row for row in self.open if row[0] != answer.call]
        return answer

    def _total(self, entries: list[Entry]) -> None:
        """Where no request states its tokens, those of the history stand on the last step."""
        steps = [entry for entry in entries if entry.role == "assistant"]
        item = self.task.item
        if not steps or any(step.usage for step in steps):
            return
        read, wrote, into = (count(item.get(name)) or 0 for name in ("cacheReads", "cacheWrites", "tokensIn"))
        usage = usage_of({name: item.get(name) for name in COUNTS}, inside="number" in item and into >= read + wrote > 0)
        if usage:
            steps[-1].usage, steps[-1].cost = usage, number(item.get("totalCost")) or None
            steps[-1].extra = {**steps[-1].extra, "tokens_of": "the run"}


def _fits(k: int, at: float | None, request: Request, later: Request | None, *, by_index: bool, by_time: bool) -> bool:
    """Whether an answer can be a request's: none of the next one's."""
    if by_index:
        if request.index is None:
            return False
        return k > request.index and (later is None or later.index is None or k <= later.index)
    if by_time and request.at is not None and at is not None:
        return at >= request.at and (later is None or later.at is None or at < later.at)
    return not by_time


def _lone(request: Request) -> Entry:
    """A request that has no answer in the conversation."""
    error = request.error or (None if request.extra else "no answer")
    entry = Entry("assistant", request.text, request.name, request.at, model=request.model, error=error, extra=request.extra)
    entry.usage, entry.cost = request.usage, request.cost
    return entry
