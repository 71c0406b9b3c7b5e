"""Answers of the Agents SDK's models, whole and as a stream: the one made of the other, and changed by an edit.

Always true: what a model gave is not touched: a changed answer is a copy. A stream is kept as the list of its events, at whose
end the error stands that broke it off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agents import ModelResponse, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseUsage,
)

from counterpoint.errors import InputError, NotIdentified
from counterpoint.recorder.answers import Answer, Find
from counterpoint.trace import content_ref
from counterpoint.trace.replay import Delete, Do, Substitute

_ID = "counterpoint"
_SHAPE = 'a text, or calls of functions as JSON: [{"name": "search", "arguments": {"words": "lamp"}}]'


def response_of(value: Any) -> Any:
    """The whole answer: itself, or what the last event of a stream holds; None where there is none."""
    if isinstance(value, list):
        return next((one.response for one in reversed(value) if isinstance(one, ResponseCompletedEvent)), None)
    return value


def as_response(value: Any) -> ModelResponse:
    """An answer as the runner takes it where it does not stream."""
    whole = response_of(value)
    if isinstance(whole, ModelResponse):
        return whole
    if isinstance(value, list) and value and isinstance(value[-1], BaseException):
        raise value[-1]
    if whole is None:
        raise InputError("the recorded stream has no end", fix="run it with Runner.run_streamed, as it was recorded")
    told, usage = whole.usage, Usage(requests=1)
    if told is not None:
        usage = Usage(
            requests=1, input_tokens=told.input_tokens, output_tokens=told.output_tokens, total_tokens=told.total_tokens,
            input_tokens_details=told.input_tokens_details, output_tokens_details=told.output_tokens_details,
        )  # fmt: skip
    return ModelResponse(output=whole.output, usage=usage, response_id=whole.id)


def as_events(value: Any) -> Iterator[Any]:
    """An answer as the events of a stream; an error where the stream broke off."""
    if not isinstance(value, list):
        value = _events(value)
    for one in value:
        if isinstance(one, BaseException):
            raise one
        yield one


def _events(whole: ModelResponse) -> list[Any]:
    out: list[Any] = []
    for place, item in enumerate(whole.output):
        for part in item.content if isinstance(item, ResponseOutputMessage) else ():
            if isinstance(part, ResponseOutputText):
                out.append(ResponseTextDeltaEvent(
                    type="response.output_text.delta", delta=part.text, item_id=item.id or _ID, output_index=place,
                    content_index=0, logprobs=[], sequence_number=len(out),
                ))  # fmt: skip
        done = ResponseOutputItemDoneEvent(
            type="response.output_item.done", item=item, output_index=place, sequence_number=len(out)
        )
        out.append(done)
    used = whole.usage
    usage = ResponseUsage(
        input_tokens=used.input_tokens, output_tokens=used.output_tokens, total_tokens=used.total_tokens,
        input_tokens_details=used.input_tokens_details, output_tokens_details=used.output_tokens_details,
    )  # fmt: skip
    response = Response(
        id=whole.response_id or _ID, created_at=0, model=_ID, object="response", output=whole.output, parallel_tool_calls=False,
        tool_choice="auto", tools=[], usage=usage,
    )  # fmt: skip
    return [*out, ResponseCompletedEvent(type="response.completed", response=response, sequence_number=len(out))]


def changed_response(kept: Answer, do: Do, text: str | None, find: Find) -> Answer:
    """A model's answer after the edit: with another text, or other calls of functions; deleted, an empty one."""
    del text, find
    was = response_of(kept.value)
    if not isinstance(do, (Delete, Substitute)):
        what = f"nothing in your code asks what {type(do).__name__.lower()} would answer"
        raise NotIdentified(what, "--substitute VALUE, or --do delete")
    output = [] if was is None or isinstance(do, Delete) else list(was.output)
    value = do.value if isinstance(do, Substitute) else ""
    if isinstance(value, str):
        output = _worded(output, value)
    else:
        called = [one for one in output if isinstance(one, ResponseFunctionToolCall)]
        output = [one for one in output if one not in called] + _calls(value, [one.call_id for one in called])
    whole = as_response(kept.value) if was is not None else nothing()
    return Answer(ModelResponse(output=output, usage=whole.usage, response_id=whole.response_id))


def nothing() -> ModelResponse:
    """The answer in the place of one that is not asked for: with it an agent ends."""
    return ModelResponse(output=_worded([], ""), usage=Usage(), response_id=None)


def _worded(output: list[Any], text: str) -> list[Any]:
    """The first message says this, and no other says anything; an answer without a message is this message alone."""
    said = next((one for one in output if isinstance(one, ResponseOutputMessage)), None)
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    message = ResponseOutputMessage(
        id=_ID if said is None else said.id, type="message", role="assistant", status="completed", content=[part]
    )
    if said is None:
        return [message]
    return [message if one is said else one for one in output if one is said or not isinstance(one, ResponseOutputMessage)]


def _calls(value: Any, idents: list[str]) -> list[Any]:
    """Calls of functions; in the place of a call they have its id, which no other call of the run has."""
    rows, out = value if isinstance(value, list) else [value], []
    for place, row in enumerate(rows):
        if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not {*row} <= {"name", "arguments", "id"}:
            raise InputError(f"{str(value)[:60]!r} is no answer of a model", fix=_SHAPE)
        given = row.get("arguments", {})
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        tag = content_ref(f"{value}{idents}")[:12]
        ident = str(row.get("id") or (idents[place] if place < len(idents) else f"{_ID}-{tag}-{place}"))
        out.append(ResponseFunctionToolCall(type="function_call", name=row["name"], arguments=arguments, call_id=ident))
    return out
