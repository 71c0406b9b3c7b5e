"""Who answers the calls of a forked log: the recording where that is sound, then a tool of ours, a model's guess, or nobody.

`RecordedAnswers` decides when a recorded answer still holds. Let m be the calls that may change something, in the order in which
they were made since the fork point. The answer to a recorded call holds for an equal call of the fork (the same tool, equal
arguments as JSON) when the fork has made the same m, in the same order, as the recording had before that call; the calls of one
answer count in the order in which it names them. Only what is known to read (`READERS`) is left out of m, so that a read more,
a read less or two reads in another order change nothing; a command line is always in m, whatever it says.

Always true: each recorded answer is given once, the earliest first; what is read again while m is the same gets the same answer,
also when the recording read it before the fork point. A guess is marked and not trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import counterpoint.registry as registry
from counterpoint.errors import InputError, NotFound
from counterpoint.lab.lm.model import Call, Message, Model, ModelFailed
from counterpoint.lab.tasks.task import Instance, Subtask
from counterpoint.lab.team.toolbox import Toolbox
from counterpoint.trace import Event
from counterpoint.trace.conversation import Conversation, canonical, tool_of

READERS = frozenset(
    {
        "read", "read_file", "readfile", "read_many_files", "grep", "glob", "ls", "list", "list_directory", "list_files",
        "search_file_content", "view", "notebookread", "codebase_search", "file_search", "grep_search", "open", "find", "tree",
        "webfetch", "websearch", "web_fetch", "web_search", "google_web_search", "fetch",
    }
)  # fmt: skip
"""Tools of coding agents that change nothing, by name, in small letters."""
_PYTHON = frozenset({"python", "run_python", "python_interpreter", "code_interpreter", "ipython", "execute_python"})
_CODE = ("code", "input", "source", "script", "program")
_EXAMPLES = 3
_SHOWN = 4_000
_GUESS = (
    "You stand in for the tool {tool} of a recorded session; nothing runs. Answer with what the tool would print, and nothing "
    "else: no remarks, no quotes around it. Where it cannot be known, answer as the tool does when it fails."
)


@dataclass(frozen=True)
class _Recorded:
    """A call of the recording since the fork point, and what answered it."""

    event: Event
    result: Event
    before: tuple[tuple[str, str], ...]
    """The calls before it that may change something."""


class RecordedAnswers:
    """What the recording can still answer."""

    def __init__(self, conversation: Conversation, start: int, parted: int) -> None:
        """`start`: the turn of the fork point; `parted`: the first that is not the recording's."""
        self._of = conversation
        self._rows: list[_Recorded] = []
        self._reads: list[tuple[tuple[str, str], _Recorded]] = []
        self._given: dict[str, _Recorded] = {}
        self._made: list[tuple[str, str]] = []
        before: list[tuple[str, str]] = []
        for k in range(len(conversation.turns)):
            for event in conversation.turns[k].calls:
                tool, arguments = tool_of(event, conversation.trace), canonical(conversation.arguments(event))
                result = self._answer_to(event, k)
                if result is not None and k >= max(start, parted):
                    self._rows.append(_Recorded(event, result, tuple(before)))
                if result is not None and result.type == "tool_result" and not changes(tool):
                    self._reads.append(((tool, arguments), _Recorded(event, result, tuple(before))))
                if changes(tool):
                    before.append((tool, arguments))
            if k < parted:
                self._made = list(before)

    def _answer_to(self, event: Event, turn: int) -> Event | None:
        """The result that the next turn read."""
        after = self._of.heard[turn + 1] if turn + 1 < len(self._of.turns) else []
        rest = self._of.order[self._of.place[event.id] + 1 :] if turn + 1 >= len(self._of.turns) else ()
        for found in (*after, *rest):
            if self._of.answers(found) == event.id and found.type in ("tool_result", "human_intervention"):
                return found
            if found.type == "return" and event.type == "spawn" and event.to == found.agent:
                return found
        return None

    def take(self, tool: str, arguments: str) -> Event | None:
        """The recorded call that stands for this one, with its answer; None where none does. It counts as made either way."""
        key = (tool, canonical(arguments))
        found = next(
            (
                row
                for row in self._rows
                if row.event.id not in self._given
                and (tool_of(row.event, self._of.trace), canonical(self._of.arguments(row.event))) == key
                and list(row.before) == self._made
            ),
            None,
        )
        if changes(tool):
            self._made.append(key)
        if found is not None:
            self._given[found.event.id] = found
        return None if found is None else found.event

    def again(self, tool: str, arguments: str) -> Event | None:
        """The answer that an equal read got in the same state; None where none did."""
        key = (tool, canonical(arguments))
        return next((row.result for of, row in reversed(self._reads) if of == key and list(row.before) == self._made), None)

    def has(self, call: str) -> bool:
        """Whether a call was answered by the recording."""
        return call in self._given

    def result(self, call: str) -> Event:
        """The recorded answer."""
        return self._given[call].result

    def between(self, call: str) -> Iterator[Event]:
        """What the agent that a call made did until it returned, and those that it made."""
        row = self._given[call]
        if row.event.type != "spawn" or not row.event.to:
            return
        inside = {row.event.to}
        end = self._of.place[row.result.id]
        for event in self._of.order[self._of.place[row.event.id] + 1 : end]:
            if event.agent in inside:
                yield event
                if event.type == "spawn" and event.to:
                    inside.add(event.to)

    def examples(self, tool: str) -> list[tuple[str, str]]:
        """Recorded calls of a tool with their answers, for who has to guess one."""
        out = []
        for k, turn in enumerate(self._of.turns):
            for event in turn.calls:
                result = self._answer_to(event, k) if tool_of(event, self._of.trace) == tool else None
                if result is not None and result.type != "human_intervention":  # a refusal is a person's, not the tool's
                    out.append((self._of.arguments(event), self._of.trace.text(result) or ""))
        return out[-_EXAMPLES:]


def changes(tool: str) -> bool:
    """Whether a call of a tool may change something."""
    return tool.lower() not in READERS


@dataclass(frozen=True)
class ToolAnswer:
    """An answer that is not the recording's."""

    text: str
    by: str
    ok: bool | None = None
    error: str | None = None
    is_guess: bool = False


class LogTools:
    """Answers what the recording cannot, as one of `stop`, `model`, or the id of a tool of ours."""

    def __init__(self, who: str, model: Model, functions: Sequence[dict[str, Any]], allow: Sequence[str] = ()) -> None:
        self.who, self._model, self._functions = who, model, functions
        self.counts: dict[str, int] = {}
        self._box: Toolbox | None = None
        if who not in ("stop", "model"):
            self._box = _toolbox(who)

    @property
    def count(self) -> int:
        """How many calls were answered here."""
        return sum(self.counts.values())

    def why(self, tool: str) -> str:
        """Why nobody answered a call."""
        said = "the recording has no equal call in the same state"
        if self.who == "stop":
            return f"{said}; --tools model guesses, --tools python runs programs in the sandbox"
        return f"{said}, and {self.who} is another tool" if self.who != "model" else f"{said}, and the model gave no guess"

    async def answer(self, call: Event, tool: str, arguments: str, examples: Sequence[tuple[str, str]]) -> ToolAnswer | None:
        """The answer to a call; None where nobody gives one."""
        found = None
        if self.who == "model":
            found = await self._guess(tool, arguments, examples)
        elif self._box is not None:
            found = await self._run(self._box, call, tool, arguments)
        if found is not None:
            self.counts[found.by] = self.counts.get(found.by, 0) + 1
        return found

    async def close(self) -> None:
        """End what still runs."""
        if self._box is not None:
            await self._box.close()

    async def _guess(self, tool: str, arguments: str, examples: Sequence[tuple[str, str]]) -> ToolAnswer | None:
        shape = next((f["function"] for f in self._functions if f["function"]["name"] == tool), {"name": tool})
        shown = [f"Recorded call: {given}\nRecorded answer: {text[:_SHOWN]}" for given, text in examples]
        words = "\n\n".join([f"The tool: {json.dumps(shape, ensure_ascii=False)}", *shown, f"The call: {arguments}"])
        asked = (Message("system", _GUESS.format(tool=tool)), Message("user", words))
        try:
            answer = await self._model.complete(Call(messages=asked, max_tokens=1024, stop=()))
        except ModelFailed:
            return None
        return ToolAnswer(answer.text, f"{self._model.name} (a guess)", is_guess=True)

    async def _run(self, box: Toolbox, call: Event, tool: str, arguments: str) -> ToolAnswer | None:
        name = next(iter(box.offered("agent"))).name
        given = arguments
        if name == "python" and tool.lower() in _PYTHON:
            fields = json.loads(canonical(arguments) or "{}") if arguments.lstrip().startswith("{") else {}
            code = next((fields[key] for key in _CODE if isinstance(fields.get(key), str)), None)
            given = json.dumps({"code": code}) if code is not None else arguments
        elif tool != name:
            return None
        result = await box.call(call.agent, "agent", name, given, event=call.id)
        return ToolAnswer(result.text, f"the tool {name} in the sandbox" if name == "python" else f"the tool {name}",
                          result.ok, result.error)  # fmt: skip


def _toolbox(who: str) -> Toolbox:
    """A box with the one tool that was named, over nothing."""
    if ":" not in who and who not in registry.ids("tool"):
        known = ["stop", "model", *registry.ids("tool")]
        raise NotFound(f"no tool named {who!r}", where="--tools", fix=f"one of {', '.join(known)}, or package.module:object")
    nothing = Instance(
        task="log", seed=0, question="", answer_format="", subtasks=(Subtask("s1", ""),), tools=(who,)
    )  # fmt: skip
    try:
        return Toolbox(nothing, {"agent": (who,)})
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{who} answers nothing without a task: {error}", where="--tools", fix="--tools python") from error
