"""A2A over HTTP, the calling and the called side: one trace over both processes.

    http = client(rec, httpx.AsyncClient())            # the client that the A2A client is given
    app = server(app, store="traces", agent="oracle")  # an ASGI application: each message is a recording of its own

Requests carry W3C trace context in their headers. Make the call inside a `@rec.tool`, whose result is then what came back: what
the other side records for the message is, in one store, a sub-agent of that tool call. A server reads the headers, else the
`metadata` of the message or of the request.

Always true: requests and responses pass as they are; only messages are recorded (`message/send`, `SendMessage`, streams).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from counterpoint.errors import InputError
from counterpoint.recorder.hops import caller_meta
from counterpoint.recorder.recording import Recording, record

Http = TypeVar("Http")
Message = dict[str, Any]
_METHODS = frozenset({"message/send", "message/stream", "SendMessage", "SendStreamingMessage"})
_PATH = re.compile(r"message[:/](?:send|stream)$")
_LARGEST = 1 << 20
"""Bytes of a response whose words are kept."""
_decode = msgspec.json.Decoder().decode


def client(recording: Recording, http: Http) -> Http:
    """The same client of httpx, whose requests carry trace context."""
    hooks = getattr(http, "event_hooks", None)
    if not isinstance(hooks, Mapping):
        raise InputError(f"{type(http).__name__} has no event_hooks", fix="client(rec, httpx.AsyncClient())")

    def carry(request: Any) -> None:
        for name, value in recording.trace_context().items():
            request.headers[name] = value

    async def carry_async(request: Any) -> None:
        carry(request)

    is_async = asyncio.iscoroutinefunction(getattr(http, "send", None))
    http.event_hooks = {**hooks, "request": [*hooks.get("request", ()), carry_async if is_async else carry]}  # type: ignore[attr-defined]
    return http


def server(app: Any, *, agent: str = "server", store: Any = None, **about: Any) -> Callable[..., Awaitable[None]]:
    """An ASGI application around one that speaks A2A: it records each message; `about` is what else `record` takes."""

    async def recorded(scope: Message, receive: Any, send: Any) -> None:
        if scope.get("type") != "http" or scope.get("method") != "POST":
            await app(scope, receive, send)
            return
        messages = [message async for message in _body(receive)]
        document = _document(b"".join(message.get("body", b"") for message in messages))
        if document.get("method") not in _METHODS and not _PATH.search(str(scope.get("path"))):
            await app(scope, _again(messages, receive), send)
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope.get("headers", ())}
        meta = {**(about.get("meta") or {}), **_caller(headers, document)}
        how = {"task": f"message to {agent}", "system": agent, **about, "agent": agent, "meta": meta}
        answer = _ResponseCopy(send)
        rec = record(store, **how)
        async with rec:
            await app(scope, _again(messages, receive), answer.send)
            if answer.ok:
                rec.stop(answer.words())
            else:
                rec.stop(answer.words(), ok=False, error=f"HTTP {answer.status}")

    return recorded


async def _body(receive: Any) -> Any:
    """The messages of a request, up to the end of its body."""
    while True:
        message = await receive()
        yield message
        if message.get("type") != "http.request" or not message.get("more_body"):
            return


def _again(messages: list[Message], receive: Any) -> Callable[[], Awaitable[Message]]:
    """What was read of a request, to be read once more; then what comes after it."""
    waiting = iter(messages)

    async def next_one() -> Message:
        for message in waiting:
            return message
        rest: Message = await receive()
        return rest

    return next_one


def _document(data: bytes) -> dict[str, Any]:
    try:
        value = _decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _caller(headers: dict[str, str], document: dict[str, Any]) -> dict[str, Any]:
    """Who called, by the headers, else by metadata of the message or of the request, plain or under an extension's name."""
    params = _object(document.get("params")) or document
    for place in (headers, _object(_object(params.get("message")).get("metadata")), _object(params.get("metadata"))):
        for one in (place, *map(_object, place.values())):
            if found := caller_meta(one):
                return found
    return {}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class _ResponseCopy:
    """A response on its way, and the words in it."""

    def __init__(self, send: Any) -> None:
        self._send, self.status, self._parts, self._size = send, 0, list[bytes](), 0

    @property
    def ok(self) -> bool:
        """Whether it was answered, and not with an error."""
        return 200 <= self.status < 400

    async def send(self, message: Message) -> None:
        """Pass a message of the response on."""
        if message.get("type") == "http.response.start":
            self.status = int(message.get("status", 0))
        elif (part := message.get("body")) and self._size < _LARGEST:
            self._parts.append(part)
            self._size += len(part)
        await self._send(message)

    def words(self) -> str:
        """The text parts of the answer, or of each of the events of a stream."""
        data = b"".join(self._parts)[:_LARGEST]
        lines = [line[5:] for line in data.splitlines() if line.startswith(b"data:")] or [data]
        return "\n".join(text for line in lines for text in _texts(_document(line)))


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """The texts of all parts in a value of JSON."""
    if depth > 12:
        return
    if isinstance(value, list):
        for item in value:
            yield from _texts(item, depth + 1)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name == "text" and isinstance(inner, str):
                yield inner
            elif name not in ("metadata", "history"):  # history says again what was said before
                yield from _texts(inner, depth + 1)
