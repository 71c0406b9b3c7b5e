"""Chat rows for fine-tuning: a line per agent, as TRL and OpenAI read them. AnswerDraft only.

A row is the chat of one agent, in order. Its words are the assistant's content; its tool calls, spawns and messages to peers
are the assistant's tool calls (`spawn`, `despawn`, `send_message` where the source named no tool); answers of tools and
returns of sub-agents that it waited for are tool messages; everything else that it read is the user's. A call that had no
answer when the agent went on is answered by a note (`{"pending":true}`, or the agent it made), and an answer that comes later
is the user's. A decision without words is written as its name; an agent that read no words gets the task's id as the user's
message.

What is lost: times, costs, edges, events that nobody read, tool definitions, the difference between speakers that are not the
agent, texts that are absent (`absent` counts them).

Always true: rows keep the rules of a chat (see `Chat`), all have the same keys, and arguments are JSON objects as text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import msgspec

from counterpoint.errors import InvalidTrace
from counterpoint.formats.format import Format
from counterpoint.trace import Event, Trace

_OWN = re.compile(rb'\{"agent":"(?:[^"\\]|\\.)*","trace_id":"')
_SPEAKS = frozenset({"orchestrator_decision", "message", "aggregate", "return", "tool_call", "spawn", "despawn"})
_NOT_SAID = frozenset({"user", "system", "memory", "tool"})
_NAME = re.compile(r"[^a-zA-Z0-9_-]")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def _sniff(head: bytes) -> bool:
    return _OWN.match(head) is not None


def _write(trace: Trace) -> bytes:
    rows = _Rows(trace)
    try:
        return b"".join(_encode(row) + b"\n" for agent in trace.agents if (row := rows.row(agent)) is not None)
    except UnicodeEncodeError as error:
        raise InvalidTrace("a text holds half of a surrogate pair, which no JSON file can carry", why=str(error)) from error


class _Rows:
    """A trace, looked at by agent."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        order = sorted(range(len(trace.events)), key=lambda i: (trace.events[i].t, i))
        self._place = {trace.events[i].id: k for k, i in enumerate(order)}
        self._events = {e.id: e for e in trace.events}
        self._acts: dict[str, list[Event]] = defaultdict(list)
        for i in order:
            self._acts[trace.events[i].agent].append(trace.events[i])
        self._reads: dict[str, list[str]] = defaultdict(list)
        self._answers: dict[str, str] = {}
        for edge in trace.edges:
            if edge.src in self._events and edge.dst in self._events and edge.type != "temporal":
                self._reads[edge.dst].append(edge.src)
                if edge.type == "tool_dependency":
                    self._answers[edge.dst] = edge.src

    def row(self, agent: str) -> dict[str, Any] | None:
        """The row of an agent; None where it said nothing."""
        acts = self._acts[agent]
        if not any(_is_said(e) for e in acts):
            return None
        absent, chat, heard = 0, Chat(self.trace.task_id), set[str]()
        spawned: dict[str, str] = {}
        for event in acts:
            # What flows into a tool's answer was read by the tool.
            read = set() if event.type == "tool_result" else set(self._reads[event.id])
            for name in sorted(read, key=self._place.__getitem__):
                source = self._events[name]
                if source.agent != agent and name not in heard:
                    heard.add(name)
                    absent += self._hear(chat, source, spawned)
            absent += self._act(chat, event, spawned)
        messages = chat.messages()
        return self._whole(agent, acts, messages, absent) if messages else None

    def _whole(self, agent: str, acts: list[Event], messages: list[dict[str, Any]], absent: int) -> dict[str, Any]:
        own: dict[str, float] = {}
        for event in acts:
            for name, value in (event.reward or {}).items():
                own[name] = own.get(name, 0) + value
        return {
            "agent": agent,
            "trace_id": self.trace.trace_id,
            "task_id": self.trace.task_id,
            "role": next((e.role for e in acts if e.role and e.type != "spawn"), None),
            "rewards": self.trace.rewards,
            "agent_rewards": own,
            "absent": absent,
            "messages": messages,
        }

    def _hear(self, chat: Chat, source: Event, spawned: dict[str, str]) -> int:
        """Something from somebody else; 1 when its text is absent."""
        text = self.trace.text(source)
        if source.type == "return" and source.agent in spawned:
            chat.answer(spawned.pop(source.agent), text or "")
        elif text:
            chat.hear(text, is_system=source.source == "system")
        return int(text is None)

    def _act(self, chat: Chat, event: Event, spawned: dict[str, str]) -> int:
        """Something of the agent's own; 1 when its text is absent."""
        text = self.trace.text(event)
        if event.type == "tool_result":
            chat.answer(self._answers.get(event.id), text or "")
        elif not _is_said(event):
            return 0
        elif event.type == "tool_call":
            chat.call(event.id, _tool(event.tool), _arguments(text), {"pending": True})
        elif event.type in ("spawn", "despawn"):
            args = {"role": event.role, "prompt": text} if event.type == "spawn" else {"agent": event.to}
            name = (event.extra or {}).get("tool_name")
            note = {"agent": event.to} if event.to else {"error": event.error or "no agent was made"}
            chat.call(event.id, _tool(name if isinstance(name, str) else event.type), _present_fields(args), note)
            if event.to and event.type == "spawn":
                spawned[event.to] = event.id
            return int(text is None and event.type == "spawn")
        elif event.type == "message" and event.to:
            chat.call(event.id, "send_message", _present_fields({"to": event.to, "content": text}), {"to": event.to})
        else:
            chat.say(text, event.decision)
            return int(text is None and event.type != "orchestrator_decision")
        return int(text is None)


# -- one agent's chat ----------------------------------------------------------------------------------------------------------


@dataclass
class _Call:
    event: str
    tool: str
    arguments: dict[str, Any] | str
    note: dict[str, Any]
    """What stands for its answer when none came before the agent went on."""


@dataclass
class _MessageDraft:
    """An assistant message in the making."""

    texts: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    decision: str | None = None

    @property
    def words(self) -> str:
        return "\n\n".join(self.texts) or ("" if self.calls else self.decision or "")


class Chat:
    """The messages of one agent, in the order in which it read and wrote them.

    Always true of what `messages` gives: at most one system message, and it is first; then a user message; no two messages of
    the user, and no two of the assistant, follow each other; each call of an assistant that is not the last message has exactly
    one tool message, right after it and in order; the last message is the assistant's. Or it is empty: the agent said nothing.
    """

    def __init__(self, task: str) -> None:
        self._task = task
        self._system: list[str] = []
        self._messages: list[dict[str, Any]] = []
        self._draft: _MessageDraft | None = None
        self._heard: list[str] = []
        self._answers: dict[str, str] = {}
        self._count = 0

    # -- hearing ---------------------------------------------------------------------------------------------------------

    def hear(self, text: str, *, is_system: bool = False) -> None:
        """Words from somebody else. Those of the system are a system message as long as the agent has not spoken."""
        if is_system and self._draft is None and not self._messages:
            self._system.append(text)
        else:
            self._heard.append(text)

    def answer(self, call: str | None, text: str) -> None:
        """A tool's answer: to a call of the latest message, else it is heard like any other words."""
        if self._draft is not None and call in {c.event for c in self._draft.calls} and call not in self._answers:
            self._answers[str(call)] = text
        elif text:
            self._heard.append(text)

    # -- speaking --------------------------------------------------------------------------------------------------------

    def say(self, text: str | None, decision: str | None = None) -> None:
        """Words of the agent; without any, its decision stands for them where nothing else does."""
        turn = self._turn(is_text=bool(text))
        if text:
            turn.texts.append(text)
        turn.decision = decision or turn.decision

    def call(self, event: str, tool: str, arguments: dict[str, Any] | str, note: dict[str, Any]) -> None:
        """A call of the agent."""
        self._turn(is_text=False).calls.append(_Call(event, tool, arguments, note))

    def _turn(self, *, is_text: bool) -> _MessageDraft:
        if self._draft is None or self._heard or self._answers or (is_text and self._draft.calls):
            self._close()
            self._draft = _MessageDraft()
        return self._draft

    def _close(self) -> None:
        """Write the latest message down, with the answers to it and what was heard since."""
        turn, self._draft = self._draft, None
        if turn is not None:
            self._write(turn)
            for call, written in zip(turn.calls, self._written_calls(turn), strict=True):
                text = self._answers.get(call.event)
                content = _encode(call.note).decode() if text is None else text
                self._messages.append({"role": "tool", "tool_call_id": written["id"], "content": content})
        if self._heard:
            if self._messages and self._messages[-1]["role"] == "user":  # what the agent said in between had no words
                self._heard.insert(0, self._messages.pop()["content"])
            self._messages.append({"role": "user", "content": "\n\n".join(self._heard)})
        self._heard, self._answers = [], {}

    def _write(self, turn: _MessageDraft) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": turn.words}
        if turn.calls:
            first = self._count
            self._count += len(turn.calls)
            message["tool_calls"] = [_call(call, f"call_{first + k}") for k, call in enumerate(turn.calls)]
        elif not turn.words:
            return
        before = self._messages[-1] if self._messages else None
        if before is not None and before["role"] == "assistant":  # it had no calls, or tools would have answered
            message["content"] = "\n\n".join(t for t in (before["content"], message["content"]) if t)
            self._messages.pop()
        self._messages.append(message)

    def _written_calls(self, turn: _MessageDraft) -> list[dict[str, Any]]:
        return self._messages[-1]["tool_calls"] if turn.calls else []

    # -- the whole -------------------------------------------------------------------------------------------------------

    def messages(self) -> list[dict[str, Any]]:
        """The chat, up to the last thing the agent said."""
        turn, self._draft = self._draft, None
        if turn is not None:
            self._write(turn)
        out = list(self._messages)
        while out and out[-1]["role"] != "assistant":
            out.pop()
        if not out:
            return []
        if out[0]["role"] != "user":
            out.insert(0, {"role": "user", "content": self._task})
        if self._system:
            out.insert(0, {"role": "system", "content": "\n\n".join(self._system)})
        return out


def _call(call: _Call, name: str) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, str) else _encode(call.arguments).decode()
    return {"id": name, "type": "function", "function": {"name": call.tool, "arguments": arguments}}


def _is_said(event: Event) -> bool:
    """Whether the agent itself did it: not a pseudo-agent such as `user` or `system`, and not the code of its tools."""
    if event.type == "message" and event.source in _NOT_SAID:
        return False
    return event.type in _SPEAKS and not (event.extra or {}).get("by_code")


def _tool(name: str | None) -> str:
    """A name that chat formats accept for a function."""
    return _NAME.sub("_", name or "")[:64] or "tool"


def _arguments(text: str | None) -> dict[str, Any] | str:
    """A call's text as the arguments of a function: itself where it is a JSON object."""
    if not text:
        return {}
    try:
        is_object = isinstance(_decode(text), dict)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        is_object = False
    return text if is_object else {"input": text}


def _present_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


sft = Format(
    suffixes=(".sft.jsonl",),
    sniff=_sniff,
    write=_write,
    joins=True,
    fields={
        "row": ("agent", "trace_id", "task_id", "role", "rewards", "agent_rewards", "absent", "messages"),
        "messages": ("role", "content", "tool_calls", "tool_call_id"),
    },
    keeps=("contents",),
    lost="times, costs, edges, tool definitions, who was read, what nobody read, and texts that are absent; not read back",
)
