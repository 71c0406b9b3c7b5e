"""A model of the OpenAI Agents SDK that needs no network: it answers by a function of its instructions and its input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any


def says(text: str) -> list[Any]:
    """An answer in words."""
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return [ResponseOutputMessage(id="m1", type="message", role="assistant", status="completed", content=[part])]


def calls(*rows: tuple[str, Any], at: str = "") -> list[Any]:
    """An answer that calls functions; `at` makes their ids its own."""
    from openai.types.responses import ResponseFunctionToolCall

    return [
        ResponseFunctionToolCall(type="function_call", name=name, arguments=json.dumps(given), call_id=f"{at}{name}-{i}")
        for i, (name, given) in enumerate(rows)
    ]


def local_model(answer: Callable[[str, list[Any]], list[Any]], real: list[Any], *, pace: float = 0.0, traces: bool = False) -> Any:
    """A model by the SDK's own interface: `answer` says what follows from its instructions and its input."""
    from agents import Model, ModelResponse, Usage
    from agents.tracing import generation_span
    from openai.types.responses import Response, ResponseCompletedEvent, ResponseTextDeltaEvent, ResponseUsage

    draws = Random(7)

    class Local(Model):
        model = "local-1"

        async def get_response(self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, output_schema: Any,
                               handoffs: Any, tracing: Any, **more: Any) -> Any:  # fmt: skip
            items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
            real.append(items[-1])
            await asyncio.sleep(pace * draws.random())
            with generation_span(model="local-1", input=items, disabled=not traces) as span:
                output = answer(system_instructions or "", items)
                span.span_data.output = [one.model_dump() for one in output]
            usage = Usage(requests=1, input_tokens=len(items), output_tokens=2, total_tokens=len(items) + 2)
            return ModelResponse(output=output, usage=usage, response_id=None)

        async def stream_response(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
            whole = await self.get_response(*args, **more)
            for item in whole.output:
                for word in (item.content[0].text.split(" ") if item.type == "message" else ()):
                    yield ResponseTextDeltaEvent(type="response.output_text.delta", delta=f"{word} ", item_id="m1", output_index=0,
                                                 content_index=0, logprobs=[], sequence_number=0)  # fmt: skip
                    await asyncio.sleep(0)
            used = ResponseUsage(input_tokens=whole.usage.input_tokens, output_tokens=2, total_tokens=whole.usage.total_tokens,
                                 input_tokens_details=whole.usage.input_tokens_details,
                                 output_tokens_details=whole.usage.output_tokens_details)  # fmt: skip
            response = Response(id="r1", created_at=0, model="local-1", object="response", output=whole.output, tools=[],
                                parallel_tool_calls=False, tool_choice="auto", usage=used)  # fmt: skip
            yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=9)

    return Local()


def text_of(item: Any) -> str:
    """What an item of a conversation says."""
    said = item.get("output", item.get("content"))
    return said if isinstance(said, str) else "".join(part["text"] for part in said)
