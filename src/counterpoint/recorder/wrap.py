"""Other people's functions, recorded: plain ones, coroutines, generators of both kinds, and what they give back.

Always true: a wrapped function takes, gives and raises what it did before, and runs in the same thread and task (wrong arguments
of a coroutine or generator are an error when it begins to run, not before); what it does is done in its scope, which nobody else
sees.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from counterpoint.recorder.conversation import joined
from counterpoint.recorder.lanes import Scope, current
from counterpoint.recorder.values import attribute

Begin = Callable[[tuple[Any, ...], dict[str, Any]], Scope | None]
"""What is done when the function is called, with its arguments; None where nothing is recorded."""
End = Callable[[Scope, Any, BaseException | None], None]
"""What is done when it has ended, with its value or its error."""
Safe = Callable[[], Any]
"""The safe point of the agent that acts here, where something is to be done there; else None."""


PLAIN, COROUTINE, GENERATOR, ASYNC_GENERATOR = "plain", "coroutine", "generator", "async generator"


def shape_of(function: Callable[..., Any]) -> str:
    """How a function gives what it gives."""
    if inspect.isasyncgenfunction(function):
        return ASYNC_GENERATOR
    if inspect.isgeneratorfunction(function):
        return GENERATOR
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return COROUTINE
    return PLAIN


def wrap_call(function: Callable[..., Any], begin: Begin, end: End, safe: Safe = lambda: None) -> Callable[..., Any]:
    """The function, recorded; where its scope has something that stands in for it, that is called instead. `safe` is what it
    comes to before it is called: it may wait there, and get other arguments."""
    wrap = {ASYNC_GENERATOR: _async_generator, GENERATOR: _generator, COROUTINE: _coroutine, PLAIN: _plain}[shape_of(function)]
    return functools.wraps(function)(wrap(function, begin, end, safe))


def _plain(function: Callable[..., Any], begin: Begin, end: End, safe: Safe) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if (point := safe()) is not None:
            args, kwargs = point.passed(args, kwargs)
        scope = begin(args, kwargs)
        if scope is None:
            return function(*args, **kwargs)
        token = current.set(scope)
        try:
            value = (scope.stands_in or function)(*args, **kwargs)
        except BaseException as error:
            end(scope, None, error)
            raise
        finally:
            current.reset(token)
        if inspect.iscoroutine(value):
            scope.is_awaited = True
            return _awaited(value, scope, end)
        if isinstance(value, asyncio.Future):  # it is the caller's: we only watch it
            scope.is_awaited = True
            value.add_done_callback(lambda done: _watched(done, scope, end))
            return value
        end(scope, value, None)
        return value

    return call


async def _awaited(coroutine: Any, scope: Scope, end: End) -> Any:
    token = current.set(scope)
    try:
        value = await coroutine
    except BaseException as error:
        end(scope, None, error)
        raise
    finally:
        current.reset(token)
    end(scope, value, None)
    return value


def _watched(done: asyncio.Future[Any], scope: Scope, end: End) -> None:
    if done.cancelled():
        end(scope, None, asyncio.CancelledError())
    elif (error := done.exception()) is not None:
        end(scope, None, error)
    else:
        end(scope, done.result(), None)


def _coroutine(function: Callable[..., Any], begin: Begin, end: End, safe: Safe) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        if (point := safe()) is not None:
            args, kwargs = await point.passed_async(args, kwargs)
        scope = begin(args, kwargs)
        if scope is None:
            return await function(*args, **kwargs)
        token = current.set(scope)
        try:
            value = await (scope.stands_in or function)(*args, **kwargs)
        except BaseException as error:
            end(scope, None, error)
            raise
        finally:
            current.reset(token)
        end(scope, value, None)
        return value

    return call


MOST_PARTS = 100_000
"""Parts of a stream that are kept: a longer one is not given again."""


class _Parts:
    """What a generator gave, as one value and, up to a bound, each."""

    def __init__(self, scope: Scope | None) -> None:
        self._texts: list[str] = []
        self._pieces: list[Any] = []
        self._last: Any = None
        self._all: list[Any] = []
        if scope is not None:
            scope.parts = self._all

    def add(self, item: Any) -> None:
        self._last = item
        if len(self._all) < MOST_PARTS:
            self._all.append(item)
        if isinstance(item, str):
            self._texts.append(item)
        elif attribute(item, "choices") is not None:
            self._pieces.append(item)

    @property
    def value(self) -> Any:
        if self._texts:
            return "".join(self._texts)
        return joined(self._pieces) if self._pieces else self._last


def _generator(function: Callable[..., Any], begin: Begin, end: End, safe: Safe) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Iterator[Any]:
        if (point := safe()) is not None:
            args, kwargs = point.passed(args, kwargs)
        scope = begin(args, kwargs)
        inner = ((scope and scope.stands_in) or function)(*args, **kwargs)
        if scope is None:
            return (yield from inner)
        parts = _Parts(scope)
        resume: Callable[[], Any] = functools.partial(next, inner)
        try:
            while True:
                token = current.set(scope)
                try:
                    item = resume()
                except StopIteration as done:
                    end(scope, parts.value if done.value is None else done.value, None)
                    return done.value
                finally:
                    current.reset(token)
                parts.add(item)
                try:
                    sent = yield item
                    resume = functools.partial(next, inner) if sent is None else functools.partial(inner.send, sent)
                except GeneratorExit:
                    inner.close()
                    raise
                except BaseException as thrown:
                    resume = functools.partial(inner.throw, thrown)
        except GeneratorExit:  # the reader has read enough
            scope.is_cut = True
            end(scope, parts.value, None)
            raise
        except BaseException as error:
            end(scope, parts.value, error)
            raise

    return call


def _async_generator(function: Callable[..., Any], begin: Begin, end: End, safe: Safe) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if (point := safe()) is not None:
            args, kwargs = await point.passed_async(args, kwargs)
        scope = begin(args, kwargs)
        inner = ((scope and scope.stands_in) or function)(*args, **kwargs)
        parts = _Parts(scope)
        resume: Callable[[], Any] = inner.__anext__
        try:
            while True:
                token = None if scope is None else current.set(scope)
                try:
                    item = await resume()
                except StopAsyncIteration:
                    if scope is not None:
                        end(scope, parts.value, None)
                    return
                finally:
                    if token is not None:
                        current.reset(token)
                parts.add(item)
                try:
                    sent = yield item
                    resume = inner.__anext__ if sent is None else functools.partial(inner.asend, sent)
                except GeneratorExit:
                    await inner.aclose()
                    raise
                except BaseException as thrown:
                    resume = functools.partial(inner.athrow, thrown)
        except GeneratorExit:
            if scope is not None:
                scope.is_cut = True
                end(scope, parts.value, None)
            raise
        except BaseException as error:
            if scope is not None:
                end(scope, parts.value, error)
            raise

    return call
