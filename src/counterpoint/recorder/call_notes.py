"""What an event of a recorded team keeps of its model call, in the place and form of `trace.model_calls`: `extra["call"]`.

Always true: a message is kept once in a trace, and a prompt that begins as its agent's last one did by reference to it; a note
names only calls that had ended when it was written. A lane remembers its last call alone: memory does not grow with the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from counterpoint.recorder.conversation import NO_QUESTION, Answer, ChatMessage, Question, answer_of, messages_of
from counterpoint.recorder.values import as_json, text_of
from counterpoint.trace.model_calls import Ints, common_prefix

_LEAST = 8
"""Tokens of the shortest prefix that is worth a reference."""
_SAID = ("finish", "tool_calls", "token_ids", "logps", "token_bytes")
_TOLD = frozenset({"messages", "tools", "response", "prompt_ids", "token_ids", "logps"})


class LastCall(NamedTuple):
    """The last model call of an agent that has ended."""

    event: str
    messages: list[tuple[ChatMessage, str]]
    """With the reference of each text."""
    ids: Ints | None
    """What it read and then wrote, where that is known."""


_NO_ANSWER = Answer()


class CallNote:
    """One model call, from what it is asked to what its event keeps."""

    __slots__ = ("answer", "prompt", "question", "read")

    def __init__(self) -> None:
        self.question, self.answer = NO_QUESTION, _NO_ANSWER
        self.prompt: dict[str, Any] | None = None
        self.read: list[tuple[ChatMessage, str]] = []

    def ask(self, question: Question, before: LastCall | None, keep: Callable[[str], str]) -> None:
        """What the model is asked; `keep` keeps a text and gives its reference."""
        self.question, shared = question, 0
        if question.tools is not None:
            self.question = question._replace(tools=keep(question.tools))
        if question.messages is None:
            return
        known, self.read = [] if before is None else before.messages, []
        for message in question.messages:
            if shared == len(self.read) < len(known) and known[shared][0] == message:
                self.read.append(known[shared])
                shared += 1
            else:
                self.read.append((message, keep(message.text)))
        new = self.read[shared:]
        self.prompt = {} if before is None or not shared else {"of": before.event, "first": shared}
        self.prompt |= {"more": [ref for _, ref in new], "fields": [message.fields for message, _ in new]}

    def learn(self, answer: Answer | None) -> None:
        """More about the answer: what is known now replaces what was."""
        if self.answer is _NO_ANSWER and answer is not None:
            self.answer = answer
        elif answer is not None:
            fresh = {name: value for name, value in answer._asdict().items() if value is not None and value != []}
            self.answer = self.answer._replace(**fresh)

    def take(
        self, fields: Mapping[str, Any], before: LastCall | None, keep: Callable[[str], str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of what was told, what belongs to the call (kept here), and the rest."""
        own = {name: value for name, value in fields.items() if name in _TOLD and value is not None}
        if own.keys() & {"messages", "tools"}:
            messages = messages_of(own["messages"]) if "messages" in own else self.question.messages
            tools = text_of(as_json(own["tools"])) if "tools" in own else self.question.tools
            self.ask(Question(messages, tools, self.question.parameters), before, keep)
        self.learn(answer_of(own.get("response")))
        told = {name: own[name] for name in ("prompt_ids", "token_ids", "logps") if name in own}
        if told:
            self.learn(answer_of({"text": self.answer.text or "", **{name: _listed(value) for name, value in told.items()}}))
        return own, {name: value for name, value in fields.items() if name not in own}

    def note(self, text: str | None, failure: str | None, before: LastCall | None, keep: Callable[[str], str]) -> dict[str, Any]:
        """The note, once the call has ended; `text` is its event's, `failure` says how the call failed."""
        answer, asked = self.answer, self.question
        note: dict[str, Any] = {}
        if asked is not NO_QUESTION:
            parts = {"prompt": self.prompt, "tools": asked.tools, "parameters": as_json(asked.parameters)}
            note = {name: value for name, value in parts.items() if value}
        if failure is not None:
            return note | {"failed": failure}
        said = answer.text if answer.text is not None else text
        if said is not None:
            note["completion"] = keep(said)
        if answer is _NO_ANSWER:
            return note
        stated = (answer.finish, answer.tool_calls, answer.token_ids, answer.logps, answer.lengths)
        for name, value in zip(_SAID, stated, strict=True):
            if value is not None and value != []:
                note[name] = value
        if answer.prompt_ids is not None:
            ids = np.asarray(answer.prompt_ids, np.int64)
            shared = 0 if before is None or before.ids is None else common_prefix(before.ids, ids)
            note["prompt_ids"] = answer.prompt_ids
            if before is not None and shared >= _LEAST:
                note["prompt_ids"] = [[before.event, 0, shared], *answer.prompt_ids[shared:]]
        return note

    def last(self, event: str) -> LastCall:
        """What the next call of the agent may begin with."""
        read, wrote = self.answer.prompt_ids, self.answer.token_ids
        return LastCall(event, self.read, None if read is None else np.asarray([*read, *(wrote or ())], np.int64))


def _listed(value: Any) -> Any:
    """Arrays and tensors as lists."""
    listed = getattr(value, "tolist", None)
    return listed() if callable(listed) else list(value) if isinstance(value, (tuple, range)) else value
