"""The conversation of one agent, turn by turn: what its model had been told when it answered, as the messages of a chat.

A turn is one answer of the model: a step and the calls that follow from it, or calls alone that read the same. What a turn read
are the edges that lead into it. A message has the form of OpenAI's chat completions.

Always true of what `prompt` gives: at most one system message, and it is first; then the user; user and assistant take turns;
each call has exactly one tool message, right after its message and in order; no call's id comes twice; the last message is the
user's or a tool's. What the log does not have is told in `notes` or refused, never made up: a call without an answer gets a text
that says so. After a compaction the chat begins with its summary, and a turn that was taken back is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from counterpoint.display import counted
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace.records import Event
from counterpoint.trace.trace import Trace

_ACTS = frozenset({"tool_call", "spawn", "despawn"})
_STEPS = frozenset({"orchestrator_decision", "aggregate", "return", "message"})
_BLIND = frozenset({"temporal", "safety_flow"})
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ODD = re.compile(r"[^a-zA-Z0-9_-]+")
_MASK = re.compile(r"\[masked:\w+:[0-9a-f]+\]")
_PIXELS = "the pixels of an image"
NO_ANSWER = "[no answer to this call is in the log]"
NO_TEXT = "[the log has no text of this answer]"
CONTINUE = "Continue."
_CLIENTS = {"claude-code"}
"""Systems whose `system` messages are words of the client in the user's name: the model's own instructions are in no log."""


@dataclass(slots=True)
class Turn:
    """One answer of the model."""

    place: int
    """Of its first event, in the order of time."""
    step: Event | None
    calls: list[Event] = field(default_factory=list)
    reads: frozenset[str] = frozenset()

    @property
    def events(self) -> list[Event]:
        """The step, where there is one, and its calls."""
        return [*([] if self.step is None else [self.step]), *self.calls]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answered: its words, and its calls as (tool, arguments)."""

    text: str
    calls: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal answers, however their arguments are written."""
        return (self.text.strip(), tuple((tool, canonical(text)) for tool, text in self.calls))


def canonical(arguments: str) -> str:
    """Arguments in one form: equal JSON has equal text."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return arguments
    return msgspec.json.encode(value, order="sorted").decode()


def call_id(event: Event) -> str:
    """The id of a call as both protocols take it: the log's own wherever that has their form."""
    return event.id if _ID.fullmatch(event.id) else "call_" + _ODD.sub("_", event.id)[-48:] + f"_{len(event.id)}"


class Conversation:
    """All turns of an agent."""

    def __init__(self, trace: Trace, agent: str) -> None:
        self.trace, self.agent = trace, agent
        self.order = [trace.events[i] for i in sorted(range(len(trace.events)), key=lambda i: (trace.events[i].t, i))]
        self.place = {e.id: i for i, e in enumerate(self.order)}
        self._into: dict[str, list[tuple[str, str]]] = {}
        for edge in trace.edges:
            if edge.type not in _BLIND and edge.src in self.place and edge.dst in self.place:
                self._into.setdefault(edge.dst, []).append((edge.src, edge.type))
        self.turns: list[Turn] = []
        self._turn_of: dict[str, int] = {}
        for event in self.order:
            if event.agent == agent:
                self._add(event)
        self.heard = [list[Event]() for _ in self.turns]
        self._listen()

    # -- turns -----------------------------------------------------------------------------------------------------------

    def _add(self, event: Event) -> None:
        about = event.extra or {}
        if event.type not in _ACTS | _STEPS or about.get("is_nested") or about.get("by_code"):
            return
        sources = [src for src, _ in self._into.get(event.id, ())]
        if is_step(event):
            self._begin(Turn(self.place[event.id], event), event)
            return
        if event.type == "return":
            return  # its words are those of the last step
        owners = {self._turn_of.get(src) for src in sources}
        owner = next(iter(owners)) if len(owners) == 1 else None
        if owner is not None and self.turns[owner].step is not None:
            self.turns[owner].calls.append(event)
            self._turn_of[event.id] = owner
        elif self.turns and self.turns[-1].step is None and self.turns[-1].reads == frozenset(sources):
            self.turns[-1].calls.append(event)
            self._turn_of[event.id] = len(self.turns) - 1
        else:
            self._begin(Turn(self.place[event.id], None, [event], frozenset(sources)), event)

    def _begin(self, turn: Turn, event: Event) -> None:
        self._turn_of[event.id] = len(self.turns)
        self.turns.append(turn)

    def _listen(self) -> None:
        """What each turn read for the first time: what edges say, and results that came before it and nobody read."""
        met: set[str] = set()
        results = [e for e in self.order if e.agent == self.agent and e.type == "tool_result"]
        for i, turn in enumerate(self.turns):
            names = {src for event in turn.events for src, _ in self._into.get(event.id, ()) if src not in self._turn_of}
            names |= {e.id for e in results if self.place[e.id] < turn.place}
            fresh = sorted(names - met, key=self.place.__getitem__)
            met.update(fresh)
            self.heard[i] = [self.order[self.place[name]] for name in fresh]

    def turn_of(self, event: str) -> int | None:
        """The turn that an event is part of; None where the model did not decide it."""
        return self._turn_of.get(event)

    def reader_of(self, event: str) -> int | None:
        """The turn that read an event first; None where none did."""
        return next((i for i, heard in enumerate(self.heard) if any(e.id == event for e in heard)), None)

    def reply(self, i: int) -> Reply:
        """What the model answered in a turn, as the log has it."""
        turn = self.turns[i]
        return Reply(self._words(turn), tuple((tool_of(e, self.trace), self.arguments(e)) for e in turn.calls))

    def _words(self, turn: Turn) -> str:
        is_thought = turn.step is None or (turn.step.extra or {}).get("is_thinking")
        return "" if turn.step is None or is_thought else self.trace.text(turn.step) or ""

    def arguments(self, event: Event) -> str:
        """A call's arguments, a JSON object as text. Those of calls that the importer took for acts of the team are rebuilt."""
        text = self.trace.text(event)
        if event.type == "tool_call":
            return object_text(text)
        about = event.extra or {}
        if event.type == "spawn" and self.trace.system == "claude-code" and "tool_name" in about:
            known = {name: about[name] for name in ("description", "run_in_background", "isolation") if name in about}
            more = about.get("arguments")
            return msgspec.json.encode({**known, "prompt": text or "", **(more if isinstance(more, dict) else {})}).decode()
        if event.type == "spawn":
            word = "message" if self.trace.system == "codex" else "prompt"
            named = "agent_type" if self.trace.system == "codex" else "subagent_type"
            fields = {"description": about.get("description"), word: text, named: event.role}
        else:
            fields = {"to": event.to or about.get("target"), "message": text, "summary": about.get("summary")}
        return msgspec.json.encode({name: value for name, value in fields.items() if isinstance(value, str)}).decode()

    # -- chats -----------------------------------------------------------------------------------------------------------

    @cached_property
    def _has_results(self) -> bool:
        return any(e.content_ref for e in self.trace.events if e.type == "tool_result")

    def prompt(self, i: int) -> list[dict[str, Any]]:
        """The messages that the model was asked with in turn `i`."""
        return self._chat(i).messages

    def notes(self, i: int) -> list[str]:
        """What these messages lack, and what was put in its place, in sentences."""
        return self._chat(i).notes

    def _chat(self, i: int) -> _Chat:
        chat = _Chat(self)
        chat.fill(self._items(i))
        return chat

    def _items(self, i: int) -> list[Event | Turn]:
        """What was heard and said before turn `i`, without what a compaction or a rollback took away."""
        items: list[Event | Turn] = []
        for k, heard in enumerate(self.heard[: i + 1]):
            for event in heard:
                if back := _taken_back(event):
                    del items[_nth_last_prompt(items, back) :]
                elif self._is_summary(event):
                    items = [event, *_kept(items, str((event.extra or {}).get("kept_from")))]
                else:
                    items.append(event)
            turn = self.turns[k]
            if k == i:
                break
            if is_compaction(turn):
                asked = [e for e in items if isinstance(e, Event) and e.type == "human_intervention"]
                items = [*(asked if self.trace.system == "codex" else ()), turn]
            else:
                items.append(turn)
        return items

    def _is_summary(self, event: Event) -> bool:
        """Whether a message that was heard stands for all that was before it."""
        about = event.extra or {}
        if about.get("is_summary") or about.get("origin") == "compaction_summary":
            return True
        if about.get("is_compaction"):
            return self.trace.system != "opencode"  # there it is the question, and the answer is the summary
        return event.source == "system" and (self.trace.text(event) or "").lstrip().startswith("<state_snapshot>")

    def answers(self, event: Event) -> str | None:
        """The call that an event answers: by the edge of a result or of a refusal, or as the return of whom the call made."""
        for src, kind in self._into.get(event.id, ()):
            called = self.order[self.place[src]]
            is_denied = event.type == "human_intervention" and "denied" in (event.extra or {})
            if src in self._turn_of and called.type in _ACTS and (kind == "tool_dependency" or is_denied):
                return src
        return None


def is_step(event: Event) -> bool:
    """Whether the model spoke: an answer of its own, and no act that follows from one."""
    if event.type in ("orchestrator_decision", "aggregate"):
        return True
    if event.type not in _STEPS:
        return False
    about = event.extra or {}
    known = (event.turn, event.tokens_out, event.model)
    return bool(about.get("aloud")) or any(value is not None for value in known)


def is_compaction(turn: Turn) -> bool:
    """Whether a turn is the summary that the client asked for."""
    return turn.step is not None and bool((turn.step.extra or {}).get("is_compaction"))


def tool_of(event: Event, trace: Trace) -> str:
    """The name of the tool that a call named."""
    about = event.extra or {}
    named = event.tool or about.get("tool_name") or about.get("via")
    if not isinstance(named, str):
        is_claude = trace.system == "claude-code"
        ours = {"spawn": "Task" if is_claude else "spawn_agent", "despawn": "TaskStop" if is_claude else "close_agent"}
        named = ours.get(event.type, "SendMessage" if is_claude else "send_message")
    return _ODD.sub("_", named)[:64] or "tool"


def object_text(text: str | None) -> str:
    """A text that is a JSON object; what is none becomes its `input`."""
    if not text:
        return "{}"
    try:
        is_object = isinstance(msgspec.json.decode(text), dict)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        is_object = False
    return text if is_object else msgspec.json.encode({"input": text}).decode()


def _taken_back(event: Event) -> int:
    back = (event.extra or {}).get("turns_rolled_back")
    return back if type(back) is int and back > 0 else 0


def _nth_last_prompt(items: list[Event | Turn], n: int) -> int:
    """Where the n-th last thing that a person said stands."""
    places = [k for k, item in enumerate(items) if isinstance(item, Event) and item.type == "human_intervention"]
    return places[-n] if len(places) >= n else 0


def _kept(items: list[Event | Turn], first: str) -> list[Event | Turn]:
    """What a compaction kept word for word: from the event that the log names on."""
    for k, item in enumerate(items):
        if any(e.id == first for e in ([item] if isinstance(item, Event) else item.events)):
            return items[k:]
    return []


# -- one chat in the making ----------------------------------------------------------------------------------------------------


class _Chat:
    """Messages, as they are put together from what was heard and said."""

    def __init__(self, of: Conversation) -> None:
        self.of, self.trace = of, of.trace
        self.messages: list[dict[str, Any]] = []
        self.system: list[str] = []
        self.words: list[str] = []
        self.open: dict[str, Event] = {}
        self.given: dict[str, str] = {}
        self.ids: set[str] = set()
        self.counts: dict[str, int] = {}
        self.absent = 0

    def fill(self, items: list[Event | Turn]) -> None:
        """All of it; raises where the log lacks what nobody can do without."""
        for item in items:
            if isinstance(item, Event):
                self._hear(item)
            elif is_compaction(item):
                self._summarise(item)
            else:
                self._say(item)
        self._close()
        self._check()
        if self.messages[-1]["role"] == "assistant":
            self.messages.append({"role": "user", "content": CONTINUE})
            self.count("continued")
        if self.system:
            self.messages.insert(0, {"role": "system", "content": "\n\n".join(self.system)})
        self.counts["masked"] = sum(len(_MASK.findall(str(m.get("content")))) for m in self.messages)

    def _check(self) -> None:
        where = f"{self.trace.trace_id}, agent {self.of.agent}"
        if self.absent:
            what = f"the log has no text for {counted(self.absent, 'message')} of this conversation: masked, or counts only"
            raise NotIdentified(what, "import the session again with its texts", where=where)
        if not self.messages or self.messages[0]["role"] != "user":
            what = "what this agent was asked is not in the log: it has no texts, or begins in the middle"
            raise NotIdentified(what, "import the session with its texts, and with the agent that made this one", where=where)

    def count(self, what: str, n: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + n

    # -- hearing ---------------------------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        about, text = event.extra or {}, self.trace.text(event)
        if event.type == "safety_event" or _is_notice(event):
            self.count("micro", int("micro" in str(text or "").lower() and "compaction" in about))
            return
        if text is None and event.content_ref:
            self.absent += 1
        if self._is_answer(event, text):
            return
        if self.of._is_summary(event):
            self.count("summary")
        if not text:
            return
        is_instruction = event.source == "system" and event.agent == "system" and self.trace.system not in _CLIENTS
        if is_instruction and not self.messages and not self.words:
            self.system.append(text)
        else:
            self.words.append(text)

    def _is_answer(self, event: Event, text: str | None) -> bool:
        call = self.of.answers(event)
        if call is None and event.type == "return":
            call = next((e.id for e in self.open.values() if e.type == "spawn" and e.to == event.agent), None)
        if call not in self.open or call in self.given:
            return False
        hidden = bool((event.extra or {}).get("is_hidden")) or (event.type == "tool_result" and not self.of._has_results)
        self.count("hidden", int(hidden and not text))
        self.given[str(call)] = NO_TEXT if hidden and not text else text or ""
        return True

    # -- saying ----------------------------------------------------------------------------------------------------------

    def _say(self, turn: Turn) -> None:
        self._close()
        text = self.of._words(turn)
        step = turn.step
        if step is not None:
            about = step.extra or {}
            self.count("thoughts", int(bool(about.get("is_thinking") or about.get("thinking_ref"))))
            self.absent += bool(step.content_ref and self.trace.text(step) is None)
        self.absent += sum(bool(e.content_ref and self.trace.text(e) is None) for e in turn.calls)
        if not text and not turn.calls:
            self.count("silent", int(bool(step is not None and step.tokens_out and not (step.extra or {}).get("is_thinking"))))
            return
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if turn.calls:
            self.open = {e.id: e for e in turn.calls}
            message["tool_calls"] = [self._call(e) for e in turn.calls]
        elif self.messages and self.messages[-1]["role"] == "assistant":
            self.messages[-1]["content"] += f"\n\n{text}"
            return
        if self.messages and self.messages[-1]["role"] == "assistant":  # it had no calls, or tools would have answered
            message["content"] = "\n\n".join(t for t in (self.messages.pop()["content"], text) if t)
        self.messages.append(message)

    def _call(self, event: Event) -> dict[str, Any]:
        self.count("rebuilt", int(event.type != "tool_call"))
        name = call_id(event)
        while name in self.ids:
            name += "_"
        self.ids.add(name)
        function = {"name": tool_of(event, self.trace), "arguments": self.of.arguments(event)}
        return {"id": name, "type": "function", "function": function}

    def _summarise(self, turn: Turn) -> None:
        """The agent's own summary stands for all before it; the model then read it as the user's."""
        text = self.of._words(turn)
        if not text:
            what = "the summary that replaced the conversation before this event is encrypted or absent"
            raise NotIdentified(what, "fork at an event before the compaction", where=self.trace.trace_id)
        self.count("summary")
        self.words.append(text)

    def _close(self) -> None:
        """Answers to the latest calls, then what was heard since."""
        if self.open:
            for told, event in zip(self.messages[-1]["tool_calls"], self.open.values(), strict=True):
                text = self.given.get(event.id) if event.id in self.given else event.error  # a spawn that failed says why itself
                self.count("unanswered", int(text is None))
                text = NO_ANSWER if text is None else text
                self.messages.append({"role": "tool", "tool_call_id": told["id"], "content": text})
        if self.words:
            if self.messages and self.messages[-1]["role"] == "user":  # what the agent said in between had no words
                self.words.insert(0, self.messages.pop()["content"])
            self.messages.append({"role": "user", "content": "\n\n".join(self.words)})
        self.open, self.given, self.words = {}, {}, []

    # -- what is told about it -------------------------------------------------------------------------------------------

    @property
    def notes(self) -> list[str]:
        """Sentences about what is not as the model had it."""
        return list(self._sentences())

    def _sentences(self) -> Iterator[str]:
        n = self.counts.get
        if not self.system:
            yield "the trace has no system prompt: the model answers without one"
        if n("summary"):
            yield "the conversation begins with the summary of a compaction, as the model read it"
        if n("micro"):
            yield "the client cleared old tool results on the way, and the log does not say which"
        if left := n("unanswered"):
            yield f"{counted(left, 'call')} had no answer when the agent went on; a text says so in its place"
        if left := n("hidden"):
            yield f"{counted(left, 'answer')} of tools {'has' if left == 1 else 'have'} no text in the log; a text says so"
        if left := n("rebuilt"):
            yield f"the arguments of {counted(left, 'call')} to other agents are rebuilt from what the log has of them"
        if left := n("thoughts"):
            yield f"{counted(left, 'thought')} of the model {'is' if left == 1 else 'are'} left out: no endpoint takes them back"
        if left := n("silent"):
            yield f"{counted(left, 'answer')} without words in the log {'is' if left == 1 else 'are'} left out"
        if left := n("masked"):
            yield f"{counted(left, 'secret')} in the texts {'is' if left == 1 else 'are'} masked, and the model reads the masks"
        if n("continued"):
            yield f"nothing was heard between two answers: the user says {CONTINUE!r}"
        about = self.trace.meta.get("import")
        lacks = about.get("lacks") if isinstance(about, dict) else None
        if isinstance(lacks, dict) and type(left := lacks.get(_PIXELS)) is int and left:
            yield f"{counted(left, 'image')} of this session {'is' if left == 1 else 'are'} not in the log: the model sees none"


def _is_notice(event: Event) -> bool:
    """Words of the client to the person, which no model reads: an error of the endpoint, the mark of a compaction."""
    is_client = event.source in ("system", "memory") and event.type == "message"
    return is_client and (event.ok is False or "compaction" in (event.extra or {}))


def conversation_at(trace: Trace, event: str) -> tuple[Conversation, int]:
    """The conversation and the turn in which an event was decided; raises where nobody decided it, with the next decision."""
    found = trace.events[trace.index[event]]
    conversation = Conversation(trace, found.agent)
    turn = conversation.turn_of(event)
    if turn is not None:
        return conversation, turn
    for agent in trace.agents:
        other = Conversation(trace, agent)
        reader = other.reader_of(event)
        if reader is not None:
            first = other.turns[reader].events[0].id
            fix = f"fork at {first}, which read it, or change it: --substitute TEXT"
            raise InputError(f"{event} is no decision, but {found.type}", where=trace.trace_id, fix=fix)
    fix = "counterpoint show lists events: fork at a step of an agent, or at one of its calls"
    raise InputError(f"{event} is no decision, and no model read it", where=trace.trace_id, fix=fix)
