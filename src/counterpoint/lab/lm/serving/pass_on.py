"""Requests passed on to another endpoint: vLLM, SGLang, a vendor.

Always true: what was asked goes on as it came, and its answer comes back as it is; only where answers are recorded, token ids and
log-probabilities are asked for as well, as far as the endpoint has them. An error keeps its status.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from counterpoint.lab.lm.endpoint.address import address_of
from counterpoint.lab.lm.endpoint.answer import EndpointAnswer, Trouble, stream_data
from counterpoint.lab.lm.endpoint.connection import client_library, open_client
from counterpoint.lab.lm.serving.backend import Served, SpokenAnswer
from counterpoint.lab.lm.serving.requests import ApiError, json_object
from counterpoint.lab.lm.serving.tool_calls import ToolCall

_TIMEOUT_S = 600.0


class PassOn:
    """Answers requests by asking another endpoint."""

    def __init__(self, name: str, *, base_url: str | None = None, key_env: str | None = None) -> None:
        """`name` is the model there; requests for others are passed on as well."""
        self._openai = client_library()
        self._address, self._key_env, self.name = address_of(base_url), key_env, name
        self._client: Any = None

    async def open(self) -> None:
        """Make ready; nothing is sent."""
        self._client = open_client(self._address, self._key_env, _TIMEOUT_S)

    @property
    def models(self) -> list[str]:
        """What `/v1/models` lists."""
        return [self.name]

    async def answer(self, kind: str, body: bytes, *, is_recorded: bool = False) -> Served:
        """The answer to a request of `/v1/chat/completions` (`chat`) or of `/v1/completions`; raises `ApiError`."""
        asked = json_object(body)
        what = "messages" if kind == "chat" else "prompt"
        if not isinstance(asked.get("model"), str) or what not in asked:
            raise ApiError(f"you must provide model and {what}", param="model" if what in asked else what)
        rest = {name: value for name, value in asked.items() if name not in ("model", what)}
        place = self._client.chat.completions if kind == "chat" else self._client.completions
        named = {"model": asked["model"], what: asked[what]}
        wanted = {"return_token_ids": True, "logprobs": True if kind == "chat" else 1} if is_recorded else {}
        manager = place.with_streaming_response.create(**named, extra_body={**wanted, **rest})
        try:
            response = await self._entered(manager)
        except ApiError as error:
            if error.status != 400 or not is_recorded:
                raise
            manager = place.with_streaming_response.create(**named, extra_body=rest)  # perhaps it has not what we asked for
            response = await self._entered(manager)
        if "event-stream" in response.headers.get("content-type", ""):
            return Served(pieces=self._pieces(manager, response, asked, kind))
        try:
            whole = await response.read()
        finally:
            await manager.__aexit__(None, None, None)
        answer = EndpointAnswer()
        answer.add(json_object(whole))
        return Served(whole, self._spoken(answer, json_object(whole), asked, kind))

    async def _entered(self, manager: Any) -> Any:
        try:
            return await manager.__aenter__()
        except self._openai.APIStatusError as error:
            said = error.body if isinstance(error.body, dict) else {}
            message = str(said.get("message") or error.message)
            raise ApiError(message, status=error.status_code, param=said.get("param"), code=said.get("code")) from error
        except self._openai.APIError as error:
            what = f"the endpoint behind this one does not answer: {error}"
            raise ApiError(what, status=502, code="unavailable", after_s=1) from error

    async def _pieces(
        self, manager: Any, response: Any, asked: dict[str, Any], kind: str
    ) -> AsyncIterator[tuple[bytes, Sequence[SpokenAnswer]]]:
        answer, last = EndpointAnswer(), dict[str, Any]()
        try:
            async for data in stream_data(response.iter_bytes()):
                if data != b"[DONE]" and (piece := msgspec.json.decode(data)).get("choices") is not None:
                    answer.add(piece)
                    last = piece
                spoken = self._spoken(answer, last, asked, kind) if data == b"[DONE]" else ()
                yield b"data: " + data + b"\n\n", spoken
        except (self._openai.APIError, msgspec.DecodeError, Trouble) as error:
            broken = ApiError(f"the endpoint behind this one broke off: {error}", status=502)
            yield b"data: " + msgspec.json.encode(broken.body) + b"\n\n", ()
        finally:
            await manager.__aexit__(None, None, None)

    def _spoken(self, answer: EndpointAnswer, reply: dict[str, Any], asked: dict[str, Any], kind: str) -> list[SpokenAnswer]:
        """The first answer, as it is recorded."""
        messages = asked["messages"] if kind == "chat" else [{"role": "user", "content": str(asked["prompt"])}]
        calls = [ToolCall(call["name"], call["arguments"]) for call in answer.tool_calls]
        text = answer.text if kind == "chat" else str((reply.get("choices") or [{}])[0].get("text", ""))
        return [
            SpokenAnswer(
                id=str(reply.get("id", "")), model=asked["model"], messages=messages, text=text, calls=calls,
                prompt_ids=answer.prompt_ids, token_ids=answer.token_ids, logps=answer.logps, tokens_in=answer.tokens_in,
                tokens_out=answer.tokens_out, temperature=asked.get("temperature"),
            )
        ]  # fmt: skip
