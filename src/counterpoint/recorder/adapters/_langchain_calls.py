"""LangChain's models, tools and retrievers in a replay: what stands in for them while a team's code runs again.

Always true: nothing of LangChain is changed but while a replay runs, and then is as it was; a call whose run our handler did not
record is really made.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, ToolException

from counterpoint.recorder.lanes import Scope
from counterpoint.recorder.player import Player
from counterpoint.recorder.values import text_of

Fn = Callable[..., Any]


class ToolRun(NamedTuple):
    """A call that a handler has recorded the beginning of."""

    scope: Scope
    name: str
    asked: str
    effects: bool = False


Find = Callable[[Any, str | None, set[str]], ToolRun | None]
"""The call of a run, by the run's id; without one, by what a model is asked, or else of the run that acts here."""
Take = Callable[..., ToolRun | None]


def message_text(messages: Any) -> str:
    """What a model is asked, in words that are the same in every run: without the ids that messages get by chance."""
    told = []
    for one in messages if isinstance(messages, (list, tuple)) else [messages]:
        calls = [[c.get("name"), c.get("args"), c.get("id")] for c in getattr(one, "tool_calls", None) or ()]
        parts = [getattr(one, name, None) for name in ("type", "name", "tool_call_id")]
        told.append([*parts, getattr(one, "content", one), calls])
    return text_of(told) or ""


def tool_value(output: Any) -> tuple[Any, BaseException | None]:
    """What a tool's own code gave, from what LangChain made of it; an error that it turned into words is that error."""
    if type(output).__name__ != "ToolMessage":
        return output, None
    if output.status == "error":
        return None, ToolException(output.content)
    return (output.content if output.artifact is None else (output.content, output.artifact)), None


def stand_in_for_calls(player: Player, find: Find) -> None:
    """From here on, and until the replay ends, calls that `find` knows are answered by the player."""
    player.finders.append(find)
    if len(player.finders) > 1:
        return
    taken: set[str] = set()

    def take(run: Any, asked: str | None = None) -> ToolRun | None:
        found = next((one for find in player.finders if (one := find(run, asked, taken)) is not None), None)
        if found is None or found.scope.event is None or found.scope.event in taken:
            return None  # such as a model's `_stream` within its `_generate`
        taken.add(found.scope.event)
        return found

    player.patch(BaseChatModel, "_generate_with_cache", lambda real: _model(player, take, real))
    player.patch(BaseChatModel, "_agenerate_with_cache", lambda real: _model_async(player, take, real))
    for kind in _kinds(BaseChatModel):
        player.patch(kind, "_stream", lambda real: _stream(player, take, real))
        player.patch(kind, "_astream", lambda real: _stream_async(player, take, real))
    outside: dict[type[Any], tuple[str, str]] = {
        BaseTool: ("_run", "_arun"), BaseRetriever: ("_get_relevant_documents", "_aget_relevant_documents")
    }  # fmt: skip
    for base, names in outside.items():
        for each in _kinds(base):
            for name in names:
                player.patch(each, name, lambda real: _tool(player, take, real))


def _kinds(base: type) -> list[type[Any]]:
    """A class and all that are made from it."""
    out: list[type[Any]] = [base]
    kind: type[Any]
    for kind in base.__subclasses__():
        out += _kinds(kind)
    return list(dict.fromkeys(out))


def _instead(player: Player, run: ToolRun, real: Fn, *, is_model: bool) -> Fn:
    found = player.stand_in(real, run.scope, run.name, run.asked, is_model=is_model, effects=run.effects, swaps=True)
    return found or real


def _asked_model(player: Player, own: Any) -> Any:
    """The model that answers what is new: the one that was named, if it is one of LangChain's."""
    return player.model if isinstance(player.model, BaseChatModel) else own


def _run_of(kwargs: dict[str, Any]) -> Any:
    return getattr(kwargs.get("run_manager"), "run_id", None)


def _model(player: Player, take: Take, real: Fn) -> Fn:
    @functools.wraps(real)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = None if (name := _run_of(kwargs)) is None else take(name)
        if run is None:
            return real(self, *args, **kwargs)

        def anew() -> Any:
            return real(_asked_model(player, self), *args, **kwargs)

        value = _instead(player, run, anew, is_model=True)()
        return ChatResult(generations=value) if isinstance(value, list) else value

    return call


def _model_async(player: Player, take: Take, real: Fn) -> Fn:
    @functools.wraps(real)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = None if (name := _run_of(kwargs)) is None else take(name)
        if run is None:
            return await real(self, *args, **kwargs)

        async def anew() -> Any:
            return await real(_asked_model(player, self), *args, **kwargs)

        value = await _instead(player, run, anew, is_model=True)()
        return ChatResult(generations=value) if isinstance(value, list) else value

    return call


def _stream(player: Player, take: Take, real: Fn) -> Fn:
    @functools.wraps(real)
    def call(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        run = take(_run_of(kwargs), message_text(args[0] if args else kwargs.get("messages")))

        def anew() -> Any:
            return real(_asked_model(player, self), *args, **kwargs)

        value = real(self, *args, **kwargs) if run is None else _instead(player, run, anew, is_model=True)()
        yield from map(_chunk, value) if isinstance(value, list) else value

    return call


def _stream_async(player: Player, take: Take, real: Fn) -> Fn:
    @functools.wraps(real)
    async def call(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        run = take(_run_of(kwargs), message_text(args[0] if args else kwargs.get("messages")))

        async def anew() -> Any:
            return real(_asked_model(player, self), *args, **kwargs)

        value = real(self, *args, **kwargs) if run is None else await _instead(player, run, anew, is_model=True)()
        if isinstance(value, list):
            for one in value:
                yield _chunk(one)
        else:
            async for one in value:
                yield one

    return call


def _chunk(generation: Any) -> Any:
    """A recorded answer as the one piece of a stream."""
    if isinstance(generation, ChatGenerationChunk):
        return generation
    said = generation.message
    fields = {name: value for name, value in vars(said).items() if name != "type" and name in AIMessageChunk.model_fields}
    return ChatGenerationChunk(message=AIMessageChunk(**fields), generation_info=generation.generation_info)


def _tool(player: Player, take: Take, real: Fn) -> Fn:
    if inspect.iscoroutinefunction(real):

        @functools.wraps(real)
        async def later(self: Any, *args: Any, **kwargs: Any) -> Any:
            run = take(_run_of(kwargs))
            if run is None:
                return await real(self, *args, **kwargs)

            async def anew() -> Any:
                return await real(self, *args, **kwargs)

            return await _instead(player, run, anew, is_model=False)()

        return later

    @functools.wraps(real)
    def now(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = take(_run_of(kwargs))
        if run is None:
            return real(self, *args, **kwargs)

        def anew() -> Any:
            return real(self, *args, **kwargs)

        return _instead(player, run, anew, is_model=False)()

    return now
