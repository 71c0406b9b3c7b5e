"""Tools in a conversation with a model of text: how they are offered, how a call is written, and how it is read.

Always true: a call is `<tool_call>`, a JSON object with `name` and `arguments`, `</tool_call>`, as Hermes and Qwen have it; a
model whose chat template writes tools so gets them from it, any other one from the system message. What is no whole call of an
offered function stays text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from counterpoint.lab.lm.serving.requests import Function, schema_of
from counterpoint.lab.lm.serving.schemas import every

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_OFFER = """These functions are there for you, one JSON schema to a line:
<tools>
{tools}
</tools>
To call one, write its name and its arguments as a JSON object between two marks, and nothing after the last call:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>
Several calls at once stand one after the other. What they give comes back in <tool_response>."""


class ToolCall(NamedTuple):
    """A function that the model calls."""

    name: str
    arguments: str
    """A JSON text."""


def in_words(messages: Sequence[Mapping[str, Any]], functions: Sequence[Function]) -> list[dict[str, str]]:
    """A conversation for a template that knows no tools: they are offered by the system, and what they answer the user says."""
    out: list[dict[str, str]] = []
    for message in messages:
        text = str(message["content"])
        calls = [call["function"] for call in message.get("tool_calls", ())]
        text = "\n".join([*([text] if text else []), *(_written(call["name"], call["arguments"]) for call in calls)])
        if message["role"] == "tool":
            answer = f"<tool_response>\n{text}\n</tool_response>"
            if out and out[-1]["role"] == "user" and out[-1]["content"].endswith("</tool_response>"):
                out[-1]["content"] += f"\n{answer}"
            else:
                out.append({"role": "user", "content": answer})
        else:
            out.append({"role": str(message["role"]), "content": text})
    if functions:
        offer = _OFFER.format(tools="\n".join(_json(schema_of(function)) for function in functions))
        if out and out[0]["role"] == "system":
            out[0]["content"] += f"\n\n{offer}"
        else:
            out.insert(0, {"role": "system", "content": offer})
    return out


def forced_starts(functions: Sequence[Function]) -> list[str]:
    """How an answer begins that has to call one of these: with the whole call where its arguments can be listed."""
    out = []
    for function in functions:
        head = f'{OPEN}\n{{"name": {_json(function.name)}, "arguments": '
        whole = every(function.parameters or {})
        out += [f"{head}{_json(given)}}}\n{CLOSE}\n" for given in whole] if whole else [f"{head}{{"]
    return out


def read_calls(text: str, names: Sequence[str], *, is_forced: bool = False) -> tuple[str, list[ToolCall]]:
    """What an answer says beside its calls, and these; what is forced is a call, whether its arguments are JSON or not."""
    said, calls, at = list[str](), list[ToolCall](), 0
    while (begin := text.find(OPEN, at)) >= 0:
        end = text.find(CLOSE, begin)
        body = text[begin + len(OPEN) : end if end >= 0 else None]
        call = _call(body, names) or (_torn(body, names) if is_forced and not calls else None)
        said.append(text[at:begin] if call else text[at:end] if end >= 0 else text[at:])
        calls += [call] if call else []
        at = len(text) if end < 0 else end + len(CLOSE)
        if not call and end >= 0:
            said.append(CLOSE)
    said.append(text[at:])
    rest = "".join(said)
    return (rest.strip() if calls else rest), calls


def _call(body: str, names: Sequence[str]) -> ToolCall | None:
    try:
        table = msgspec.json.decode(body.strip())
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(table, dict) or table.get("name") not in names:
        return None
    arguments = table.get("arguments", {})
    return ToolCall(table["name"], arguments if isinstance(arguments, str) else _json(arguments))


def _torn(body: str, names: Sequence[str]) -> ToolCall | None:
    """A forced call that is not JSON, or was cut off: its arguments as far as they go."""
    for name in names:
        head = f'{{"name": {_json(name)}, "arguments": '
        if body.strip().startswith(head):
            return ToolCall(name, body.strip()[len(head) :])
    return None


def _written(name: str, arguments: Any) -> str:
    given = arguments if isinstance(arguments, str) else _json(arguments)
    return f'{OPEN}\n{{"name": {_json(name)}, "arguments": {given}}}\n{CLOSE}'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
