"""The endpoint of `counterpoint models serve`: OpenAI's protocol over HTTP.

Always true: every refusal has OpenAI's form; nobody but programs of this machine is heard unless that was asked for; at the end,
requests that have begun are answered and recorded first.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from counterpoint.app.http_server import (
    Server,
    foreign_request,
    is_loopback,
    knows_token,
    listening_socket,
    patient,
    server_config,
)
from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.lm.serving.backend import Served, SpokenAnswer
from counterpoint.lab.lm.serving.callers import Caller, asking
from counterpoint.lab.lm.serving.requests import ApiError, json_object

if TYPE_CHECKING:
    from counterpoint.lab.lm.serving.ledger import Ledger

_MOST_BYTES = 32 << 20
CONNECTIONS, IDLE_S, GRACE_S = 4096, 120.0, 3600
_SWEEP_S = 5.0


class Backend(Protocol):
    """What answers: our engine, or another endpoint."""

    @property
    def models(self) -> list[str]:
        """The models that it has."""

    async def open(self) -> None:
        """Make ready."""

    async def answer(self, kind: str, body: bytes, *, is_recorded: bool = False) -> Served:
        """The answer to a request."""


class Scribe(Protocol):
    """Where answered calls are written."""

    async def add(self, caller: Caller, spoken: Sequence[SpokenAnswer], seconds: float) -> None:
        """Returns when they are written."""

    async def finish(self, trace_id: str, rewards: Mapping[str, float] | None) -> tuple[str, int] | None:
        """The end of a trace: its name and how many calls it has; None where nothing was said in it."""


class _Ledgers:
    """A ledger of this process, in threads beside the event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def add(self, caller: Caller, spoken: Sequence[SpokenAnswer], seconds: float) -> None:
        """Write them."""
        for one in spoken:
            await asyncio.to_thread(self._ledger.add, caller, one, seconds)

    async def finish(self, trace_id: str, rewards: Mapping[str, float] | None) -> tuple[str, int] | None:
        """Seal a trace."""
        trace = await asyncio.to_thread(self._ledger.finish, trace_id, rewards)
        return None if trace is None else (trace.trace_id, len(trace.events))


class _Door:
    """Lets in who may ask."""

    def __init__(self, app: ASGIApp, *, is_remote: bool, token: str) -> None:
        self._app, self._is_remote, self._token = app, is_remote, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = self._app
        if scope["type"] == "http" and (why := foreign_request(scope["headers"], is_remote=self._is_remote)):
            answer = _refusal(ApiError(why, status=403, code="forbidden"))
        elif scope["type"] == "http" and not knows_token(scope["headers"], self._token):
            answer = _refusal(ApiError("Incorrect API key provided", status=401, code="invalid_api_key"))
        await answer(scope, receive, send)


class ModelSite:
    """What the endpoint answers, and where calls are written."""

    def __init__(self, backend: Backend, scribe: Scribe | None = None) -> None:
        self._backend, self._scribe = backend, scribe

    async def models(self, request: Request) -> Response:
        """The list of models."""
        rows = [{"id": name, "object": "model", "created": 0, "owned_by": "counterpoint"} for name in self._backend.models]
        name = request.path_params.get("name")
        if name is None:
            return _json({"object": "list", "data": rows})
        known = next((row for row in rows if row["id"] == name), None)
        missing = ApiError(f"The model `{name}` does not exist", status=404, param="model", code="model_not_found")
        return _refusal(missing) if known is None else _json(known)

    async def health(self, request: Request) -> Response:
        """Whether it is there."""
        return _json({"status": "ok"})

    async def chat(self, request: Request) -> Response:
        """`/v1/chat/completions`."""
        return await self._answer(request, "chat")

    async def completions(self, request: Request) -> Response:
        """`/v1/completions`."""
        return await self._answer(request, "completions")

    async def end(self, request: Request) -> Response:
        """The end of a trace, with what its team earned: `{"rewards": {"team": 1.0}}`."""
        try:
            if self._scribe is None:
                raise ApiError("nothing is recorded here: serve with --store", status=404)
            body = await _body(request)
            rewards = json_object(body).get("rewards") if body.strip() else None
            if rewards is not None and not (isinstance(rewards, dict) and all(type(v) in (int, float) for v in rewards.values())):
                raise ApiError('rewards are numbers by channel: {"rewards": {"team": 1.0}}', param="rewards")
            trace_id = request.path_params["trace"]
            sealed = await self._scribe.finish(trace_id, rewards)
            if sealed is None:
                raise ApiError(f"no call of a trace {trace_id!r} was answered", status=404, param="trace")
            return _json({"trace_id": sealed[0], "calls": sealed[1]})
        except ApiError as error:
            return _refusal(error)
        except CounterpointError as error:
            return _refusal(ApiError(error.one_line()))

    async def _answer(self, request: Request, kind: str) -> Response:
        begin = time.monotonic()
        caller = Caller.of(request.headers, request.path_params.get("trace"))
        asking.set(caller)
        try:
            body = await _body(request)
            task = asyncio.ensure_future(self._backend.answer(kind, body, is_recorded=self._scribe is not None))
            served = await _unless_gone(request, task)
            await self._record(caller, served.spoken, begin)
        except ApiError as error:
            return _refusal(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:  # a bug of ours: said to who asked, and nobody else is harmed
            return _refusal(ApiError(f"{type(error).__name__}: {error}", status=500))
        if served.pieces is not None:
            pieces = self._pieces(served.pieces, caller, begin)
            return StreamingResponse(pieces, media_type="text/event-stream", headers={"cache-control": "no-cache"})
        return Response(served.body, media_type="application/json")

    async def _pieces(
        self, pieces: AsyncIterator[tuple[bytes, Sequence[SpokenAnswer]]], caller: Caller, begin: float
    ) -> AsyncIterator[bytes]:
        async for piece, spoken in pieces:
            await self._record(caller, spoken, begin)  # before the caller can know that it is whole
            yield piece

    async def _record(self, caller: Caller, spoken: Sequence[SpokenAnswer], begin: float) -> None:
        if spoken and self._scribe is not None:
            await self._scribe.add(caller, spoken, time.monotonic() - begin)


async def sweep(ledger: Ledger | None) -> None:
    """Seal traces to which nothing comes any more, until cancelled."""
    while ledger is not None:
        await asyncio.sleep(_SWEEP_S)
        await asyncio.to_thread(ledger.sweep)


async def _unless_gone(request: Request, task: asyncio.Future[Served]) -> Served:
    """The answer, unless who asked hangs up before: then nothing more is computed."""
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        for future in (task, gone):
            future.cancel()
        await asyncio.wait((task, gone))


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    parts, size = list[bytes](), 0
    async for part in request.stream():
        size += len(part)
        if size > _MOST_BYTES:
            raise ApiError(f"the body is larger than {_MOST_BYTES >> 20} MiB", status=413)
        parts.append(part)
    return b"".join(parts)


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _refusal(error: ApiError) -> Response:
    headers = {} if error.after_s is None else {"retry-after": str(error.after_s)}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(msgspec.json.encode(error.body), error.status, headers, media_type="application/json")


def _not_there(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    return _refusal(ApiError(f"{request.method} {request.url.path} is not here", status=status, code="unknown_url"))


def application(site: ModelSite, *, is_remote: bool = False, token: str = "") -> Starlette:
    """The endpoint as an ASGI application; calls of `/trace/ID/v1/...` are of that trace."""
    routes = [
        Route("/v1/chat/completions", site.chat, methods=["POST"]),
        Route("/v1/completions", site.completions, methods=["POST"]),
        Route("/v1/models", site.models),
        Route("/v1/models/{name:path}", site.models),
        Route("/health", site.health),
    ]
    named = [Route("/end", site.end, methods=["POST"]), *routes]
    return Starlette(
        routes=[*routes, Mount("/trace/{trace}", routes=named)],
        middleware=[Middleware(_Door, is_remote=is_remote, token=token)],
        exception_handlers={404: _not_there, 405: _not_there},
    )


class _ModelServer(Server):
    """Loads the model before it listens, and seals idle traces meanwhile."""

    def __init__(
        self, backend: Backend, ledger: Ledger | None, on_ready: Callable[[], None], *, is_remote: bool, token: str
    ) -> None:
        site = ModelSite(backend, None if ledger is None else _Ledgers(ledger))
        app = application(site, is_remote=is_remote, token=token)
        super().__init__(server_config(app, http=patient(CONNECTIONS, IDLE_S), grace_s=GRACE_S))
        self._ledger, self._backend, self._on_ready = ledger, backend, on_ready

    async def startup(self, sockets: Any = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self._on_ready()

    async def serve(self, sockets: Any = None) -> None:
        """Answer until the end."""
        await self._backend.open()
        seals = asyncio.ensure_future(sweep(self._ledger))
        try:
            await super().serve(sockets)
        finally:
            seals.cancel()


def check_remote(*, is_remote: bool, token: str) -> None:
    """Raise where anybody could use the model."""
    if is_remote and not token:
        raise InputError("an endpoint that other machines reach needs a token", fix="--token-file FILE")


class ThreadServer:
    """An endpoint that another program of this process has in a thread."""

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self._server, self._thread = server, threading.Thread(target=self._run, args=(sock,), daemon=True, name="model-endpoint")
        self._error: BaseException | None = None
        host, port = sock.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def _run(self, sock: socket.socket) -> None:
        try:
            self._server.run(sockets=[sock])
        except BaseException as error:
            self._error = error
            self._ready.set()

    def start(self, ready: threading.Event) -> None:
        """Answer; raises where the model cannot be loaded."""
        self._ready = ready
        self._thread.start()
        ready.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Answer no longer; what is under way is cut off."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()


def endpoint_thread(backend: Backend, ledger: Any, *, host: str, token: str) -> ThreadServer:
    """An endpoint in a thread of its own, on a free port; it answers when this returns."""
    ready = threading.Event()
    sock = listening_socket(host, 0)
    made = ThreadServer(server(backend, ledger, is_remote=not is_loopback(host), token=token, on_ready=ready.set), sock)
    made.start(ready)
    return made


def server(
    backend: Backend, ledger: Ledger | None = None, *, is_remote: bool = False, token: str = "",
    on_ready: Callable[[], None] = lambda: None,
) -> Server:  # fmt: skip
    """A server; call `run(sockets=[listening_socket(host, port)])`. `on_ready` is called once, when it answers."""
    check_remote(is_remote=is_remote, token=token)
    return _ModelServer(backend, ledger, on_ready, is_remote=is_remote, token=token)
