"""Chat messages of any dialect in one form, and which of a prompt's messages an agent has not heard before.

A model call's prompt repeats the whole conversation. `ChatMemory` tells the new messages from those of earlier calls: by their
ids where they have some, else by role, text and how often the same message stood before it. A tool call is read from a dict or
from JSON text of one, in the shape of OpenAI (`function.name`) or flat (`name`, `function`).

Always true: nothing here raises on a strange message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from counterpoint.errors import InputError
from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, decode, string, text_of

_THOUGHTS = ("reasoning", "thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of an assistant."""

    id: str | None
    tool: str
    arguments: Any

    @property
    def text(self) -> str:
        """The arguments as JSON text."""
        return arguments_text(self.arguments)


@dataclass(slots=True)
class Message:
    """One message of a chat."""

    role: str
    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list)
    call: str | None = None
    """On a tool's message: the id of the call it answers."""
    tool: str | None = None
    id: str | None = None
    source: str | None = None
    """Who made it, where the dialect says so."""
    error: str | None = None


def arguments_text(arguments: Any) -> str:
    """A call's arguments as text; nothing where there are none."""
    return compact(arguments) if arguments not in (None, {}, "") else ""


def messages_of(raw: Any, text: Callable[[Any], str] = text_of) -> list[Message]:
    """The messages of a prompt or an answer: a list of them, or a plain text as one of the user."""
    if isinstance(raw, str):
        return [Message("user", text=raw)] if raw else []
    return [message for item in as_list(raw) if (message := message_of(item, text)) is not None]


def message_of(raw: Any, text: Callable[[Any], str] = text_of) -> Message | None:
    """One message, or None where it is none. `text` makes a text of a content."""
    if not isinstance(raw, dict) or not isinstance(raw.get("role"), str):
        return None
    words, thoughts = _parts(raw.get("content"), text)
    thoughts = "\n".join(t for t in (thoughts, text(raw.get("reasoning_content") or raw.get("reasoning") or "")) if t)
    error = raw.get("error")
    return Message(
        role=raw["role"],
        text=words,
        thinking=thoughts,
        calls=[call for item in as_list(raw.get("tool_calls")) if (call := _call(item)) is not None],
        call=string(raw.get("tool_call_id")),
        tool=string(raw.get("function")) or string(raw.get("name")),
        id=string(raw.get("id")),
        source=string(raw.get("source")),
        error=string(error) or string(as_dict(error).get("message")),
    )


def _parts(content: Any, text: Callable[[Any], str]) -> tuple[str, str]:
    """The words of a content, and its reasoning."""
    if not isinstance(content, list):
        return text(content), ""
    words, thoughts = [], []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in _THOUGHTS:
            thought = part.get("reasoning") or part.get("thinking") or part.get("summary") or part.get("text")
            thoughts.append(text(thought or ""))
        else:
            words.append(text(part))
    return "\n".join(w for w in words if w), "\n".join(t for t in thoughts if t)


def _call(raw: Any) -> Call | None:
    if isinstance(raw, str):
        try:
            raw = decode(raw)
        except InputError:
            return None
    if not isinstance(raw, dict):
        return None
    inner = raw.get("function")
    named = inner if isinstance(inner, dict) else raw
    tool = string(named.get("name")) or string(inner) or string(raw.get("tool_name"))
    return None if tool is None else Call(string(raw.get("id")), tool, named.get("arguments"))


class ChatMemory:
    """What one agent has heard or said so far."""

    def __init__(self) -> None:
        self._marks: set[Any] = set()

    def new(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Those messages of a prompt that were not in an earlier one, each given once."""
        times: Counter[Any] = Counter()
        for message in messages:
            key = self._key(message)
            times[key] += 1
            mark = key if message.id else (key, times[key])
            if mark not in self._marks:
                self._marks.add(mark)
                yield message

    def add_answer(self, prompt: Iterable[Message], answer: Message) -> None:
        """The agent's own answer to a prompt: it is not news when it comes back in the next one."""
        key = self._key(answer)
        before = sum(self._key(m) == key for m in prompt) if not answer.id else 0
        self._marks.add(key if answer.id else (key, before + 1))

    @staticmethod
    def _key(message: Message) -> Any:
        if message.id:
            return message.id
        return message.role, message.text, message.call, tuple((c.id, c.tool, c.text) for c in message.calls)


# -- A conversation in one room: named speakers take turns and everybody hears, as group chats are logged -------------
# Always true: the turn with number i is the event `s{i}`; a speaker's turn reads everything said since its last one, by
# `message` edges, and its own last turn; an aside (a thought) is heard by its speaker alone. What a terminal prints is taken
# for the result of a call by whoever spoke before it: this is inferred, and counted so.

HUMANS = frozenset({"human", "human_user", "Human"})
_TERMINALS = frozenset({"Computer_terminal", "ComputerTerminal", "computer_terminal"})
# Their turns are what a page or a file says.
_READERS = frozenset({"WebSurfer", "FileSurfer", "MultimodalWebSurfer"})
_EXIT = re.compile(r"\s*exitcode: (-?\d+)")
_CALL_RULE = "the terminal answers whoever spoke before it"


class Turn(NamedTuple):
    """What one speaker says once."""

    speaker: str
    text: str
    to: str | None = None
    """Whom it is meant for, where the source says so; all hear it."""
    is_aside: bool = False
    decision: str | None = None
    at: float | None = None
    usage: Usage | None = None
    tool: str | None = None
    """The tool whose output it is: it answers whoever spoke before it."""


def put_down(draft: Draft, turns: Sequence[Turn], *, leader: str | None = None, task: str = "") -> None:
    """Put a conversation into a draft; `task` is what a human asked for, where no turn of the conversation says it."""
    names = dict.fromkeys(t.speaker for t in turns if t.speaker not in HUMANS | _TERMINALS and t.tool is None)
    lanes = {name: draft.lane(name, role=name, leads=name == leader) for name in names}
    if task:
        asked = _put_request(draft, "user", "task", task)
        for lane in lanes.values():
            lane.hears(asked, "message")
    before: Lane | None = None
    for i, turn in enumerate(turns):
        if turn.speaker in _TERMINALS or turn.tool is not None:
            event = _printed(draft, before, turn, i)
            others = [lane for lane in lanes.values() if lane is not before]
        elif turn.speaker in HUMANS:
            event = _put_request(draft, turn.speaker, f"s{i}", turn.text, turn.at)
            others = list(lanes.values())
        else:
            before = lanes[turn.speaker]
            event = _put_turn(before, turn, i)
            others = [] if turn.is_aside else [lane for lane in lanes.values() if lane is not before]
        for lane in others:
            lane.hears(event, "message")


def _put_request(draft: Draft, human: str, name: str, text: str, at: float | None = None) -> str:
    fields: dict[str, Any] = {"role": human, "from_": human, "source": "user", "trusted": True}
    return draft.event("human_intervention", human, id=name, text=text, at=at, **fields)


def _put_turn(lane: Lane, turn: Turn, i: int) -> str:
    is_reader = turn.speaker in _READERS
    event = lane.step(
        id=f"s{i}",
        end=turn.at,
        text=turn.text,
        usage=turn.usage,
        from_=turn.speaker,
        to=turn.to,
        decision=turn.decision,
        source="tool" if is_reader else "peer",
        trusted=not is_reader,
        extra={"is_aside": True} if turn.is_aside else None,
    )
    assert event is not None
    return event


def _printed(draft: Draft, lane: Lane | None, turn: Turn, i: int) -> str:
    match = _EXIT.match(turn.text)
    ok = None if match is None else int(match[1]) == 0
    if lane is None:
        draft.report.loose(f"s{i}: a terminal's output without a request")
        fields: dict[str, Any] = {"tool": turn.tool or turn.speaker, "ok": ok, "source": "tool", "trusted": False}
        return draft.event("tool_result", turn.speaker, id=f"s{i}", at=turn.at, text=turn.text, **fields)
    draft.report.linked(_CALL_RULE, exact=False)
    lane.call(turn.tool or turn.speaker, id=f"s{i}:call", call=f"s{i}", at=turn.at)
    return lane.result(f"s{i}", turn.text, id=f"s{i}", ok=ok, at=turn.at)
