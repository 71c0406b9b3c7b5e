"""Chat rows for fine-tuning: one line per agent, what it heard and said, as TRL and OpenAI take them.

A row is what one agent itself heard and said, in order: words are the assistant's content; tool calls, spawns and messages to
peers its tool calls (`spawn`, `despawn`, `send_message` where the source named no tool); answers of tools and returns of the
sub-agents it waited for are tool messages; everything else it read is the user's. A call that had no answer when the agent
went on is answered by a note (`{"pending":true}`, or the agent it made), and a late answer is the user's; a decision without
words is its name; an agent that heard no words gets the task's id for a user message.

What is lost in translation: times, costs, edges, events that nobody read, tool definitions, the difference between speakers
that are not the agent, texts that are absent (`absent` counts them). Written only.
Always true: rows keep the rules of a chat (see `_sft_talk.py`), all have the same keys, and arguments are JSON objects as text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import msgspec

from counterpoint.errors import InvalidTrace
from counterpoint.formats._sft_talk import Talk
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
        absent, talk, heard = 0, Talk(self.trace.task_id), set[str]()
        spawned: dict[str, str] = {}
        for event in acts:
            # What flows into a tool's answer was read by the tool.
            read = set() if event.type == "tool_result" else set(self._reads[event.id])
            for name in sorted(read, key=self._place.__getitem__):
                source = self._events[name]
                if source.agent != agent and name not in heard:
                    heard.add(name)
                    absent += self._hear(talk, source, spawned)
            absent += self._act(talk, event, spawned)
        messages = talk.messages()
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

    def _hear(self, talk: Talk, source: Event, spawned: dict[str, str]) -> int:
        """Something from somebody else; 1 when its text is absent."""
        text = self.trace.text(source)
        if source.type == "return" and source.agent in spawned:
            talk.answer(spawned.pop(source.agent), text or "")
        elif text:
            talk.hear(text, is_system=source.source == "system")
        return int(text is None)

    def _act(self, talk: Talk, event: Event, spawned: dict[str, str]) -> int:
        """Something of the agent's own; 1 when its text is absent."""
        text = self.trace.text(event)
        if event.type == "tool_result":
            talk.answer(self._answers.get(event.id), text or "")
        elif not _is_said(event):
            return 0
        elif event.type == "tool_call":
            talk.call(event.id, _tool(event.tool), _arguments(text), {"pending": True})
        elif event.type in ("spawn", "despawn"):
            given = {"role": event.role, "prompt": text} if event.type == "spawn" else {"agent": event.to}
            name = (event.extra or {}).get("tool_name")
            note = {"agent": event.to} if event.to else {"error": event.error or "no agent was made"}
            talk.call(event.id, _tool(name if isinstance(name, str) else event.type), _given(given), note)
            if event.to and event.type == "spawn":
                spawned[event.to] = event.id
            return int(text is None and event.type == "spawn")
        elif event.type == "message" and event.to:
            talk.call(event.id, "send_message", _given({"to": event.to, "content": text}), {"to": event.to})
        else:
            talk.say(text, event.decision)
            return int(text is None and event.type != "orchestrator_decision")
        return int(text is None)


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


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


sft = Format(
    suffixes=(".sft.jsonl",),
    sniff=_sniff,
    write=_write,
    columns={
        "row": ("agent", "trace_id", "task_id", "role", "rewards", "agent_rewards", "absent", "messages"),
        "messages": ("role", "content", "tool_calls", "tool_call_id"),
    },
    keeps=("contents",),
    lost="times, costs, edges, tool definitions, who was heard, what nobody read, and texts that are absent; not read back",
)
