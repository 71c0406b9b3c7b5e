"""The Agents SDK's models and function tools, where a recording keeps what they answer and a replay gives it again.

Always true: a model is wrapped at the SDK's own interface (`Model.get_response`, `Model.stream_response`), and only while a span
of a running recording is open; a tool only in a replay, as a copy. Both are then as they were. A call within no recorded span is
not looked at.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from agents import AgentBase, FunctionTool, Model
from agents.tracing import SpanError, get_current_span

from counterpoint.errors import Refused
from counterpoint.recorder.adapters._openai_answers import as_events, as_response, changed_response, nothing
from counterpoint.recorder.conversation import Question, question_of
from counterpoint.recorder.lanes import Scope, current
from counterpoint.recorder.player import Player
from counterpoint.recorder.safe_points import is_stopped, with_texts
from counterpoint.recorder.values import text_of
from counterpoint.recorder.wrap import wrap_call
from counterpoint.trace import content_ref

Fn = Callable[..., Any]
_NAMES = ("self", "system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")
_BY_CHANCE = frozenset({"metadata", "retry", "timeout"})
"""Settings that say nothing of what is asked, besides `extra_...`, which hold what the SDK draws itself."""


class ModelQuestion(NamedTuple):
    """What a model is asked."""

    model: str
    text: str | None
    """In words that are the same in every run."""
    question: Question
    heard: Any
    """The messages of the conversation."""
    is_told: bool
    """Whether the team lets its traces hold what is said."""


class ToolRun(NamedTuple):
    """A function's call whose span is open."""

    scope: Scope
    name: str
    asked: str
    effects: bool


class Watching:
    """What the wrapped models tell, while spans are open; made once, for all processors."""

    def __init__(self) -> None:
        self.processors: list[Any] = []
        self._open = 0
        self._undo: list[tuple[Any, str, Fn, Fn]] = []
        self._lock = threading.Lock()

    def hold(self, processor: Any, *, looks: bool) -> None:
        """A span is open; with `looks` classes of models are looked for that were not there before."""
        with self._lock:
            self._open += 1
            if processor not in self.processors:
                self.processors.append(processor)
            if looks or self._open == 1:
                self._wrap()

    def let_go(self, processor: Any, *, is_last: bool) -> None:
        """A span has ended; `is_last` of this processor's."""
        with self._lock:
            self._open = max(0, self._open - 1)
            if is_last and processor in self.processors:
                self.processors.remove(processor)
            while not self._open and self._undo:
                kind, name, real, wrapped = self._undo.pop()
                if vars(kind).get(name) is wrapped:
                    setattr(kind, name, real)

    def _wrap(self) -> None:
        known = {(kind, name) for kind, name, *_ in self._undo}
        for kind in kinds(Model):
            for name, wrap in (("get_response", self._whole), ("stream_response", self._stream)):
                real = vars(kind).get(name)
                if real is None or (kind, name) in known or getattr(real, "__isabstractmethod__", False):
                    continue
                wrapped = wrap(real)
                self._undo.append((kind, name, real, wrapped))
                setattr(kind, name, wrapped)

    def _begin(self, real: Fn, args: tuple[Any, ...], kwargs: dict[str, Any], *, streams: bool) -> Scope | None:
        span, at = get_current_span(), current.get()
        if span is None or (at is not None and at.call is not None):  # a model that asks another is one call
            return None
        found = [(p, outer) for p in self.processors if (outer := p.place(span.span_id)) is not None]
        if not found:
            return None
        processor, outer = next((one for one in found if one[1].session.player is not None), found[-1])
        asked = outer.session.do(_asked, {**dict(zip(_NAMES, args, strict=False)), **kwargs})
        if asked is None:
            return None
        begun: Scope | None = processor.begin_model(outer, asked)
        if begun is not None and (player := begun.session.player) is not None:
            ref = processor.question_ref(begun, asked)
            begun.stands_in = _instead(player, begun, real, asked.model, ref, streams=streams)
        elif begun is not None:
            processor.question_ref(begun, asked)
            if is_stopped(begun):
                begun.stands_in = _nothing_streamed if streams else _nothing
        return begun

    def _end(self, scope: Scope, value: Any, error: BaseException | None) -> None:
        processor = next((one for one in self.processors if one.owns(scope)), None)
        if processor is not None:
            scope.session.do(processor.end_model, scope, value, error)

    def _safe(self) -> Any:
        """The safe point of the agent that asks; one that was stopped is answered with nothing, and so ends."""
        span, at = get_current_span(), current.get()
        if span is None or (at is not None and at.call is not None):
            return None
        scope = next((outer for p in self.processors if (outer := p.place(span.span_id)) is not None), None)
        if scope is None or scope.session.points is None:
            return None
        return scope.session.points.begin(scope, _with_words, ends=False)

    def _whole(self, real: Fn) -> Fn:
        return wrap_call(real, lambda args, kwargs: self._begin(real, args, kwargs, streams=False), self._end, self._safe)

    def _stream(self, real: Fn) -> Fn:
        @functools.wraps(real)
        async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            inner = real(*args, **kwargs)
            try:
                async for one in inner:
                    yield one
            finally:
                if (close := getattr(inner, "aclose", None)) is not None:
                    await close()

        def end(scope: Scope, value: Any, error: BaseException | None) -> None:
            events, scope.parts, scope.is_cut = list(scope.parts or ()), None, False
            self._end(scope, events if error is None else [*events, error], error)

        own = real if inspect.isasyncgenfunction(real) else stream
        return wrap_call(own, lambda args, kwargs: self._begin(own, args, kwargs, streams=True), end, self._safe)


watching = Watching()


def kinds(base: type) -> list[type[Any]]:
    """A class and all that are made from it."""
    out: list[type[Any]] = [base]
    kind: type[Any]
    for kind in base.__subclasses__():
        out += kinds(kind)
    return list(dict.fromkeys(out))


async def _nothing(*args: Any, **kwargs: Any) -> Any:
    return nothing()


async def _nothing_streamed(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
    for one in as_events(nothing()):
        yield one


def _with_words(args: tuple[Any, ...], kwargs: dict[str, Any], texts: list[str]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """An operator's words at the end of the conversation, as a user's."""
    given = {**dict(zip(_NAMES, args, strict=False)), **kwargs}.get("input")
    if not isinstance(given, (str, list)):
        return None
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    told = with_texts(items, texts)
    if "input" in kwargs:
        return args, {**kwargs, "input": told}
    place = _NAMES.index("input")
    return (*args[:place], told, *args[place + 1 :]), kwargs


# -- what a model is asked -----------------------------------------------------------------------------------------------------


def _asked(known: dict[str, Any]) -> ModelQuestion | None:
    tracing, owner, given = known.get("tracing"), known.get("self"), known.get("input")
    if tracing is not None and tracing.is_disabled():
        return None
    names = (getattr(owner, name, None) for name in ("model", "model_name"))
    model = next((str(n) for n in names if n and isinstance(n, str)), type(owner).__name__)
    tools = [*map(_tool, known.get("tools") or ()), *map(_handoff, known.get("handoffs") or ())]
    settings, schema = _settings(known.get("model_settings")), known.get("output_schema")
    more = {name: known[name] for name in ("previous_response_id", "conversation_id", "prompt") if known.get(name) is not None}
    about = [known.get("system_instructions"), settings, tools, None if schema is None else schema.name(), more]
    text = text_of([given, *about])
    told = {**settings, "instructions": known.get("system_instructions"), "input": given, "tools": tools or None}
    heard = [{"role": "user", "content": given}] if isinstance(given, str) else given
    is_told = tracing is None or tracing.include_data()
    return ModelQuestion(model, text, question_of((), (), told) if is_told else Question(), heard if is_told else None, is_told)


def _settings(settings: Any) -> dict[str, Any]:
    told = {k: v for k, v in vars(settings).items() if v is not None and not k.startswith("extra_")} if settings else {}
    dumps = {name: getattr(value, "model_dump", None) for name, value in told.items() if name not in _BY_CHANCE}
    return {name: dump() if callable(dump) else told[name] for name, dump in dumps.items()}


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, FunctionTool):
        return {"type": str(getattr(tool, "name", type(tool).__name__))}
    about = {"description": tool.description, "parameters": tool.params_json_schema, "strict": tool.strict_json_schema}
    return {"type": "function", "name": tool.name, **about}


def _handoff(one: Any) -> dict[str, Any]:
    about = {"description": one.tool_description, "parameters": one.input_json_schema}
    return {"type": "function", "name": one.tool_name, **about}


# -- in a replay ---------------------------------------------------------------------------------------------------------------


def _instead(player: Player, scope: Scope, real: Fn, name: str, asked: str, *, streams: bool) -> Fn:
    """What is called instead of a model's method: it gives the recorded answer, or the real one."""

    def own(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_stopped(scope):
            return (_nothing_streamed if streams else _nothing)()
        if not isinstance(player.model, Model):
            return real(*args, **kwargs)
        method = player.model.stream_response if streams else player.model.get_response
        return method(*args[1:], **kwargs)

    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async def anew() -> Any:
            return own(args, kwargs)

        found = player.stand_in(anew, scope, name, asked, is_model=True, swaps=True, change=changed_response) or anew
        value = await found()
        if hasattr(value, "__aiter__"):
            async for one in value:
                yield one
        else:
            for one in as_events(value):
                yield one

    async def whole(*args: Any, **kwargs: Any) -> Any:
        async def anew() -> Any:
            return await own(args, kwargs)

        found = player.stand_in(anew, scope, name, asked, is_model=True, swaps=True, change=changed_response) or anew
        return as_response(await found())

    return stream if streams else whole


def stand_in_for_tools(player: Player, find: Callable[[], ToolRun | None]) -> set[str]:
    """Until the replay ends, agents have copies of their function tools, which the player answers; gives the names of those."""
    copies: dict[int, tuple[FunctionTool, FunctionTool]] = {}
    names: set[str] = set()

    def copied(tool: Any) -> Any:
        if not isinstance(tool, FunctionTool):
            return tool
        if id(tool) not in copies:
            again = copy.copy(tool)
            again.on_invoke_tool = _invoked(player, find, again.on_invoke_tool)
            copies[id(tool)] = (tool, again)
            names.update((tool.name, tool.qualified_name))
        return copies[id(tool)][1]

    def all_tools(real: Fn) -> Fn:
        @functools.wraps(real)
        async def get_all_tools(self: Any, *args: Any, **kwargs: Any) -> list[Any]:
            return [copied(tool) for tool in await real(self, *args, **kwargs)]

        return get_all_tools

    for kind in kinds(AgentBase):
        player.patch(kind, "get_all_tools", all_tools)
    return names


def _invoked(player: Player, find: Callable[[], ToolRun | None], real: Fn) -> Fn:
    @functools.wraps(real, assigned=("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"), updated=())
    async def on_invoke_tool(context: Any, given: str) -> Any:
        run = find()
        if run is None:
            return await real(context, given)

        async def anew(arguments: Any) -> Any:
            is_changed = arguments is not told
            other = arguments if isinstance(arguments, str) else json.dumps(arguments)
            return await real(context, other if is_changed else given)

        told = _opened(given)
        found = player.stand_in(anew, run.scope, run.name, run.asked, is_model=False, effects=run.effects, swaps=True)
        try:
            return await (found or anew)(told)
        except Refused as refused:  # the model is told, as of any tool that does not work
            if (span := get_current_span()) is not None:
                span.set_error(SpanError(message="Error running tool", data={"error": str(refused)}))
            return str(refused)

    return on_invoke_tool


def _opened(given: str) -> Any:
    """A call's arguments as a table, so that an edit can name them."""
    try:
        told = json.loads(given or "{}")
    except ValueError:
        return given
    return told if isinstance(told, dict) else given


def asked_ref(given: Any) -> str:
    """What a function was asked, as a reference."""
    text = text_of(given)
    return "" if text is None else content_ref(text)
