"""Calls that were recorded as text, in tokens: a model imitates what the endpoint would have read, and what it would write.

Always true: a conversation with tools is put as the endpoint puts it, by the chat template where that has a form for tools, else
in words; what cannot be put is left out, never cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from counterpoint.errors import CounterpointError
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.model import Message
from counterpoint.lab.lm.serving.requests import Function, schema_of
from counterpoint.lab.lm.serving.tool_calls import in_words
from counterpoint.trace import Event, Trace
from counterpoint.trace.model_calls import chat_of, messages_of, model_call

CallIds = tuple[list[int], list[int]]
"""What a call read, and what it wrote with the token that ends it."""


def retokenised(trace: Trace, event_id: str, chat: Chat) -> CallIds | None:
    """The tokens of a call that was recorded as text; None where it was not recorded, or cannot be put in tokens."""
    event = trace.events[trace.index[event_id]]
    note, messages = model_call(event) or {}, messages_of(trace, event)
    if messages and (note.get("tools") or note.get("tool_calls") or any(_uses_tools(message) for message in messages)):
        try:
            return _with_tools(trace, event, note, messages, chat)
        except (CounterpointError, ValueError, TypeError, msgspec.ValidationError):
            return None
    found = chat_of(trace, event)
    if found is None or any(role == "tool" for role, _ in found.prompt):
        return None
    return chat.prompt([Message(role, text) for role, text in found.prompt]), chat.answer(found.answer)


def _uses_tools(message: Mapping[str, Any]) -> bool:
    return message["role"] == "tool" or bool(message.get("tool_calls"))


def _with_tools(
    trace: Trace, event: Event, note: Mapping[str, Any], messages: list[dict[str, Any]], chat: Chat
) -> CallIds | None:
    offered = json.loads(trace.contents.get(str(note.get("tools")), "[]"))
    functions = [msgspec.convert(_function(tool), Function) for tool in offered]
    read = [_as_spoken(message) for message in messages]
    text = trace.contents.get(str(note.get("completion")), "")
    said = _as_spoken({"role": "assistant", "content": text, "tool_calls": note.get("tool_calls") or []})
    if not text and not said.get("tool_calls"):
        return None
    if not chat.writes_tools:
        (answer,) = in_words([said], ())
        words = [Message(m["role"], m["content"]) for m in in_words(read, functions)]  # type: ignore[arg-type]
        return chat.prompt(words), chat.answer(answer["content"])
    tools = [schema_of(function) for function in functions]
    prompt, whole = chat.conversation(read, tools), chat.conversation([*read, said], tools, is_asked=False)
    if whole[: len(prompt)] != prompt:
        return None
    rest = whole[len(prompt) :]
    end = next((place for place, token in enumerate(rest) if token in chat.ends), len(rest) - 1)
    return prompt, rest[: end + 1]


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The function of a tool, as OpenAI has it and as Anthropic has it."""
    own = tool.get("function", tool)
    form = own.get("parameters") or own.get("input_schema")
    return {"name": own["name"], "description": own.get("description"), "parameters": form}


def _as_spoken(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as the endpoint reads it: role, text, and calls with arguments as values."""
    calls = [{"type": "function", "function": {"name": c["name"], "arguments": _value(c["arguments"])}} for c in _calls(message)]
    return {"role": message["role"], "content": str(message["content"] or ""), **({"tool_calls": calls} if calls else {})}


def _calls(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return message.get("tool_calls") or ()


def _value(arguments: Any) -> Any:
    try:
        return json.loads(arguments)
    except (TypeError, ValueError):
        return arguments
