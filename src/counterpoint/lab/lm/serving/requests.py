"""Requests of OpenAI's chat completions and completions, read and checked.

Always true: a field that would change the answer and that we cannot follow is refused by name, never ignored; a field that
changes nothing is taken; an error has OpenAI's form.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from counterpoint.errors import did_you_mean
from counterpoint.lab.lm.serving.schemas import every

MOST_CHOICES, MOST_ALTERNATIVES, MOST_STOPS = 128, 20, 16
_USUAL_TOKENS = 16
"""Of a completion, as OpenAI has it; a chat may fill the model's context."""
_NO_EFFECT = {
    "metadata", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "return_meta_info", "return_prompt_token_ids",
    "safety_identifier", "service_tier", "store", "user", "verbosity",
}  # fmt: skip
_ONLY: dict[str, tuple[Any, ...]] = {
    "best_of": (1,), "frequency_penalty": (0,), "function_call": ("none",), "functions": ([],), "ignore_eos": (False,),
    "include_stop_str_in_output": (False,), "logit_bias": ({},), "min_p": (0,), "min_tokens": (0,), "modalities": (["text"],),
    "presence_penalty": (0,), "repetition_penalty": (1,), "response_format": ({"type": "text"},), "skip_special_tokens": (True,),
    "suffix": ("",), "top_k": (-1, 0),
}  # fmt: skip
"""Fields of OpenAI and vLLM that are taken with these values alone, which change nothing."""


class ApiError(Exception):
    """What is answered in place of an answer."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None, after_s: int | None = None
    ) -> None:
        self.message, self.status, self.param, self.code, self.after_s = message, status, param, code, after_s
        super().__init__(message)

    @property
    def body(self) -> dict[str, Any]:
        """The error as OpenAI writes it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


Count = Annotated[int, Meta(ge=1)]


class StreamOptions(Struct):
    """What a stream says besides the answer."""

    include_usage: bool | None = None


class _Sampled(Struct, kw_only=True):
    """What chat completions and completions have in common."""

    model: str
    n: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    max_tokens: Count | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None

    @property
    def count(self) -> int:
        """How many answers are wanted."""
        return self.n or 1

    @property
    def heat(self) -> float:
        """The temperature."""
        return 1.0 if self.temperature is None else self.temperature

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        stops = () if self.stop is None else (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if len(stops) > MOST_STOPS or not all(stops):
            raise ApiError(f"stop: up to {MOST_STOPS} texts, none of them empty", param="stop")
        return stops

    @property
    def tells_usage(self) -> bool:
        """Whether a stream ends with what it took."""
        return bool(self.stream_options is not None and self.stream_options.include_usage)

    @property
    def most(self) -> int | None:
        """Tokens that an answer may have; None: as many as fit."""
        return self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """How many of the likeliest tokens are named at each place; None: not even the token's own log-probability."""
        raise NotImplementedError


class Function(Struct):
    """A function that the model may call."""

    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Struct):
    """A tool: functions are the only ones."""

    function: Function
    type: Literal["function"] = "function"


class FunctionText(Struct):
    """A function that an assistant has called."""

    name: str
    arguments: str = "{}"


class SpokenCall(Struct):
    """A tool call in a conversation."""

    function: FunctionText
    id: str | None = None
    type: Literal["function"] = "function"


class Part(Struct):
    """A part of a message: text is the only kind."""

    type: str
    text: str = ""
    refusal: str = ""


class ChatMessage(Struct):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    tool_calls: list[SpokenCall] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """What it says."""
        if not isinstance(self.content, list):
            return self.content or ""
        other = next((part.type for part in self.content if part.type not in ("text", "refusal")), None)
        if other is not None:
            raise ApiError(f"a content part of type {other!r}: this model reads text only", param="messages")
        return "".join(part.text or part.refusal for part in self.content)


class NamedFunction(Struct):
    """The name of a function."""

    name: str


class NamedTool(Struct):
    """The one tool that has to be called."""

    function: NamedFunction
    type: Literal["function"] = "function"


class NamedSchema(Struct):
    """The schema that an answer has to follow."""

    schema: dict[str, Any] | None = None


class ResponseFormat(Struct):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class ChatRequest(_Sampled, kw_only=True):
    """A request of `/v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MOST_ALTERNATIVES)] | None = None

    @property
    def most(self) -> int | None:
        """Tokens that an answer may have."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """How many of the likeliest tokens are named at each place."""
        if self.top_logprobs and not self.logprobs:
            raise ApiError("top_logprobs needs logprobs to be true", param="top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def answers(self) -> list[Any]:
        """The only values that may be answered, where there are only some."""
        form = self.response_format
        if form is None or form.type == "text":
            return []
        schema = (form.json_schema and form.json_schema.schema) or {}
        listed = every(schema) if schema.get("properties") else []
        if not listed or self.offered:
            what = "response_format is left out, or text, or without tools a json_schema whose values are each one of a few"
            raise ApiError(f"{what} (enum, const, boolean, null)", param="response_format", code="unsupported_parameter")
        return listed

    @property
    def offered(self) -> list[Function]:
        """The functions that may be called."""
        return [] if self.tool_choice == "none" else [tool.function for tool in self.tools or ()]

    @property
    def forced(self) -> list[Function]:
        """Those of which one has to be called; none: the model may also just speak."""
        if self.tool_choice in (None, "none", "auto"):
            return []
        if not self.tools:
            raise ApiError("tool_choice needs tools", param="tool_choice")
        name = self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None
        chosen = [tool.function for tool in self.tools if name in (None, tool.function.name)]
        if not chosen:
            raise ApiError(f"tool_choice: no tool is named {name!r}", param="tool_choice")
        return chosen


class CompletionRequest(_Sampled, kw_only=True):
    """A request of `/v1/completions`."""

    prompt: str | list[Any]
    logprobs: Annotated[int, Meta(ge=0, le=MOST_ALTERNATIVES)] | None = None
    echo: bool | None = None

    @property
    def most(self) -> int:
        """Tokens that an answer may have."""
        return self.max_tokens or _USUAL_TOKENS

    @property
    def alternatives(self) -> int | None:
        """How many of the likeliest tokens are named at each place."""
        if self.echo and self.logprobs is not None:
            raise ApiError("log-probabilities of a prompt that is echoed are not told", param="logprobs")
        return self.logprobs

    @property
    def prompts(self) -> Sequence[str | list[int]]:
        """Each prompt, as a text or as token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        prompts = [self.prompt] if _are_ids(self.prompt) else self.prompt
        if not prompts or not all(isinstance(prompt, str) or _are_ids(prompt) for prompt in prompts):
            raise ApiError("prompt: a text, token ids, or a list of either", param="prompt")
        return prompts


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int and item >= 0 for item in value)


Request = ChatRequest | CompletionRequest
_T = TypeVar("_T", bound=_Sampled)


def read_chat(body: bytes) -> ChatRequest:
    """A request of `/v1/chat/completions`."""
    return _read(body, ChatRequest)


def read_completion(body: bytes) -> CompletionRequest:
    """A request of `/v1/completions`."""
    return _read(body, CompletionRequest)


def json_object(body: bytes) -> dict[str, Any]:
    """The body of a request."""
    try:
        table = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(f"the body is not JSON: {error}") from error
    if not isinstance(table, dict):
        raise ApiError("the body is not a JSON object")
    return table


@cache
def _known(kind: type[_Sampled]) -> frozenset[str]:
    """The fields that we heed."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind))


def _read(body: bytes, kind: type[_T]) -> _T:
    table = json_object(body)
    known = _known(kind)
    for name, value in table.items():
        if name not in known and name not in _NO_EFFECT:
            _check_other(name, value, known)
    if not isinstance(table.get("model"), str):
        raise ApiError("you must provide a model parameter", param="model")
    try:
        return msgspec.convert({name: value for name, value in table.items() if name in known}, kind)
    except msgspec.ValidationError as error:
        raise ApiError(str(error), param=_param(str(error))) from error


def _check_other(name: str, value: Any, known: Collection[str]) -> None:
    """Raise unless a field that is not one of ours has no effect as it is set."""
    if name not in _ONLY:
        near = did_you_mean(name, known)
        raise ApiError(f"Unrecognized request argument supplied: {name} ({near})", param=name, code="unknown_parameter")
    if value is not None and value not in _ONLY[name]:
        allowed = " or ".join(map(repr, _ONLY[name]))
        raise ApiError(f"{name} is {allowed} here, or left out", param=name, code="unsupported_parameter")


def _param(message: str) -> str | None:
    """The field that a message of msgspec is about."""
    at = re.search(r"at `\$\.?([^`]*)`", message) or re.search(r"required field `([^`]+)`", message)
    return at[1] if at and at[1] else None


def as_dicts(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages as a chat template of transformers takes them."""
    out = []
    for message in messages:
        row: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role, "content": message.text}
        if message.tool_calls:
            row["tool_calls"] = [
                {"type": "function", "function": {"name": c.function.name, "arguments": _arguments(c.function.arguments)}}
                for c in message.tool_calls
            ]
        out.append(row)
    return out


def _arguments(text: str) -> Any:
    """Arguments as a value where they are JSON: a template writes them as JSON again."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def schema_of(function: Function) -> Mapping[str, Any]:
    """A function as a chat template takes it."""
    about = {"name": function.name, "description": function.description or "", "parameters": function.parameters or {}}
    return {"type": "function", "function": about}
