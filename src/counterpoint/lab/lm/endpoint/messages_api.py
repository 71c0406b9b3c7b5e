"""`MessagesModel`: an endpoint that speaks Anthropic's Messages API, asked as patiently and within the same limits.

Always true of what `messages_of` gives: the system's words stand apart; the first message is the user's; user and assistant take
turns; all answers to the calls of a message are in the user's message right after it, before its words.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterpoint.errors import InputError
from counterpoint.lab.lm.endpoint import EndpointModel
from counterpoint.lab.lm.endpoint.answer import EndpointAnswer, Trouble, json_of, malformed, said_error
from counterpoint.lab.lm.model import Call

if TYPE_CHECKING:
    from openai import AsyncOpenAI

KEY_ENV = "ANTHROPIC_API_KEY"
_VENDOR, _VERSION = "https://api.anthropic.com/v1", "2023-06-01"
_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
           "refusal": "content_filter", "model_context_window_exceeded": "length"}  # fmt: skip
_EMPTY = "(no output)"


def messages_of(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """The system's words, and the messages as the Messages API takes them, from those of chat completions."""
    system: list[str] = []
    out: list[dict[str, Any]] = []
    for message in messages:
        role, text = message["role"], str(message.get("content") or "")
        if role in ("system", "developer"):
            system.append(text)
            continue
        blocks: list[dict[str, Any]] = []
        if role == "tool":
            blocks.append({"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text or _EMPTY})
        elif text.strip():
            blocks.append({"type": "text", "text": text.rstrip() if role == "assistant" else text})
        for call in message.get("tool_calls", ()):
            function = call["function"]
            given = json.loads(function["arguments"] or "{}")
            blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": given})
        who = "assistant" if role == "assistant" else "user"
        if out and out[-1]["role"] == who:
            out[-1]["content"] += blocks
        elif blocks:
            out.append({"role": who, "content": blocks})
    return "\n\n".join(system), out


def tool_of(function: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as the Messages API takes it, from that of chat completions or the bare function."""
    about = function.get("function", function)
    schema = about.get("parameters") or {"type": "object", "properties": {}}
    return {"name": about["name"], "description": about.get("description") or "", "input_schema": schema}


class MessagesModel(EndpointModel):
    """A model behind Anthropic's Messages API; follows `Model`."""

    def __init__(self, name: str, *, base_url: str | None = None, key_env: str | None = None, **options: Any) -> None:
        """Options are those of `EndpointModel`; the key is in ANTHROPIC_API_KEY where no variable is named."""
        where = base_url or os.environ.get("ANTHROPIC_BASE_URL") or _VENDOR
        where = where.rstrip("/").removesuffix("/messages")
        where = where if where.endswith("/v1") else f"{where}/v1"
        variable = KEY_ENV if key_env is None and where.startswith("https:") else key_env
        super().__init__(name, base_url=where, key_env=variable, **options | {"stream": False, "logprobs": False})
        if options.get("token_ids"):
            raise InputError("the Messages API tells no token ids", where="token_ids", fix="an openai:NAME of vLLM or SGLang")

    @property
    def name(self) -> str:
        """`anthropic:` and the model's name."""
        return f"anthropic:{self._model}"

    def request_of(self, call: Call, left_out: Sequence[str] = ()) -> dict[str, Any]:
        """What is sent for a call."""
        system, messages = messages_of([m.wire for m in call.messages])
        request: dict[str, Any] = {"model": self._model, "messages": messages, "max_tokens": call.max_tokens}
        request |= {"system": system} if system else {}
        request |= {"tools": [tool_of(tool) for tool in call.tools]} if call.tools else {}
        stops = [stop for stop in call.stop if stop.strip()]
        more = {"temperature": min(call.temperature, 1.0), "stop": stops}
        request |= {k: v for k, v in more.items() if k not in left_out and v != []}
        return request

    def _request(self, asking: Any) -> dict[str, Any]:
        return self.request_of(asking.call, sorted(asking.left_out))

    async def _answer(self, client: AsyncOpenAI, request: dict[str, Any], secrets: tuple[str, ...]) -> EndpointAnswer:
        import httpx
        from openai import Omit

        key: str = client.api_key
        headers: dict[str, Any] = {"x-api-key": key, "anthropic-version": _VERSION, "Authorization": Omit()}
        body = {("stop_sequences" if name == "stop" else name): value for name, value in request.items()} | self._body
        response = await client.post("/messages", cast_to=httpx.Response, body=body, options={"headers": headers})
        data = json_of(response.content)
        if data.get("type") == "error" or data.get("error"):
            raise Trouble(said_error(data, request, secrets))
        answer = EndpointAnswer()
        answer.add(as_chat(data))
        answer.finish = answer.finish or "unknown"
        return answer


def as_chat(data: Mapping[str, Any]) -> dict[str, Any]:
    """An answer of the Messages API as one of chat completions."""
    blocks = data.get("content")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise malformed("it has no content blocks")
    text = "".join(str(b.get("text") or "") for b in blocks if b.get("type") == "text")
    thought = "".join(str(b.get("thinking") or "") for b in blocks if b.get("type") == "thinking")
    calls = [
        {"index": k, "id": b.get("id"), "function": {"name": b.get("name"), "arguments": json.dumps(b.get("input") or {})}}
        for k, b in enumerate(b for b in blocks if b.get("type") == "tool_use")
    ]
    got = data.get("usage")
    usage: Mapping[str, Any] = got if isinstance(got, dict) else {}
    parts = [usage.get(name) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")]
    read = sum(n for n in parts if type(n) is int) if type(parts[0]) is int else None
    told = {"prompt_tokens": read, "completion_tokens": usage.get("output_tokens")}
    details = {"prompt_tokens_details": {"cached_tokens": parts[1]}} if type(parts[1]) is int else {}
    message: dict[str, Any] = {"content": text, "reasoning_content": thought, "tool_calls": calls}
    reason = data.get("stop_reason")
    choice = {"index": 0, "message": message, "finish_reason": _FINISH.get(str(reason), "unknown")}
    return {"model": data.get("model"), "choices": [choice], "usage": told | details}
