"""One agent's talk as chat messages: what it said is the assistant's, what it heard the user's or the tools'.

Always true of what `messages` gives: at most one system message, and it is first; then a user message; no two messages of the
user, and no two of the assistant, follow each other; each call of an assistant that is not the last message has exactly one
tool message, right behind it and in order; the last message is the assistant's. Or it is empty: the agent said nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


@dataclass
class _Call:
    event: str
    tool: str
    arguments: dict[str, Any] | str
    note: dict[str, Any]
    """What stands for its answer when none came before the agent went on."""


@dataclass
class _Said:
    """An assistant message in the making."""

    texts: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    decision: str | None = None

    @property
    def words(self) -> str:
        return "\n\n".join(self.texts) or ("" if self.calls else self.decision or "")


class Talk:
    """The messages of one agent, in the order in which it met them."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._system: list[str] = []
        self._messages: list[dict[str, Any]] = []
        self._said: _Said | None = None
        self._heard: list[str] = []
        self._answers: dict[str, str] = {}
        self._count = 0

    # -- hearing ---------------------------------------------------------------------------------------------------------

    def hear(self, text: str, *, is_system: bool = False) -> None:
        """Words from somebody else. Those of the system are a system message as long as the agent has not spoken."""
        if is_system and self._said is None and not self._messages:
            self._system.append(text)
        else:
            self._heard.append(text)

    def answer(self, call: str | None, text: str) -> None:
        """A tool's answer: to a call of the latest message, else it is heard like any other words."""
        if self._said is not None and call in {c.event for c in self._said.calls} and call not in self._answers:
            self._answers[str(call)] = text
        elif text:
            self._heard.append(text)

    # -- speaking --------------------------------------------------------------------------------------------------------

    def say(self, text: str | None, decision: str | None = None) -> None:
        """Words of the agent; without any, its decision stands for them where nothing else does."""
        said = self._turn(is_text=bool(text))
        if text:
            said.texts.append(text)
        said.decision = decision or said.decision

    def call(self, event: str, tool: str, arguments: dict[str, Any] | str, note: dict[str, Any]) -> None:
        """A call of the agent."""
        self._turn(is_text=False).calls.append(_Call(event, tool, arguments, note))

    def _turn(self, *, is_text: bool) -> _Said:
        if self._said is None or self._heard or self._answers or (is_text and self._said.calls):
            self._close()
            self._said = _Said()
        return self._said

    def _close(self) -> None:
        """Write the latest message down, with the answers to it and what was heard since."""
        said, self._said = self._said, None
        if said is not None:
            self._write(said)
            for call, written in zip(said.calls, self._written_calls(said), strict=True):
                text = self._answers.get(call.event)
                content = _encode(call.note).decode() if text is None else text
                self._messages.append({"role": "tool", "tool_call_id": written["id"], "content": content})
        if self._heard:
            if self._messages and self._messages[-1]["role"] == "user":  # what the agent said in between had no words
                self._heard.insert(0, self._messages.pop()["content"])
            self._messages.append({"role": "user", "content": "\n\n".join(self._heard)})
        self._heard, self._answers = [], {}

    def _write(self, said: _Said) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": said.words}
        if said.calls:
            first = self._count
            self._count += len(said.calls)
            message["tool_calls"] = [_call(call, f"call_{first + k}") for k, call in enumerate(said.calls)]
        elif not said.words:
            return
        before = self._messages[-1] if self._messages else None
        if before is not None and before["role"] == "assistant":  # it had no calls, or tools would have answered
            message["content"] = "\n\n".join(t for t in (before["content"], message["content"]) if t)
            self._messages.pop()
        self._messages.append(message)

    def _written_calls(self, said: _Said) -> list[dict[str, Any]]:
        return self._messages[-1]["tool_calls"] if said.calls else []

    # -- the whole -------------------------------------------------------------------------------------------------------

    def messages(self) -> list[dict[str, Any]]:
        """The chat, up to the last thing the agent said."""
        said, self._said = self._said, None
        if said is not None:
            self._write(said)
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
