"""The OTLP/HTTP receiver: spans and log records of any instrumented program, streamed into a store.

Always true: a request is answered 200 only when what it holds is on disk; no request, however large, slow or strange, takes
more memory than the limits say, holds up another or ends the receiver; nobody but programs on this machine is heard, unless that
was asked for: the Host header must name this machine, and no web page but its own is answered, not even one of this machine.
"""

from __future__ import annotations

import asyncio
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from counterpoint.app.http_server import Server, foreign_request, knows_token, patient, server_config
from counterpoint.app.receiver import otlp
from counterpoint.app.receiver.collector import PARCEL, PATH, Collector
from counterpoint.app.receiver.intake import Intake
from counterpoint.errors import CounterpointError, InputError

JSON, PROTOBUF = "application/json", "application/x-protobuf"
# google.rpc.Code, which OTLP answers carry beside the HTTP status.
_MEMBERS = 1000
_PIECE = 1 << 20
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 408: 4, 413: 8, 415: 3, 503: 14}


@dataclass(frozen=True)
class ReceiverLimits:
    """What a receiver takes."""

    body: int = 64 << 20
    """Bytes of a request, as sent and unpacked."""
    held: int = 256 << 20
    """Bytes of all requests that are being read or wait for the disk; beyond it senders are asked to come again."""
    requests: int = 256
    """Requests that are taken apart or wait for the disk at once."""
    connections: int = 512
    """At once; who comes then takes the place of the one that has waited longest without a whole request."""
    seconds: float = 30.0
    """For a request's head, and again for its body."""


class _Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, *, again_s: int | None = None) -> None:
        self.status, self.message, self.again_s = status, message, again_s
        super().__init__(message)


# -- who may ask -----------------------------------------------------------------------------------------------------------


class _Guard:
    """Refuses what a web page makes, unless it is this server's own, also one on another port of this machine; and, unless
    everybody may ask, requests under a foreign name; and whoever does not know the token, where there is one."""

    def __init__(self, app: ASGIApp, *, is_remote: bool, token: str = "") -> None:
        self._app, self._is_remote, self._token = app, is_remote, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (message := foreign_request(scope["headers"], is_remote=self._is_remote)):
            await _error(_Refusal(403, message), is_protobuf=False)(scope, receive, send)
            return
        if scope["type"] == "http" and not knows_token(scope["headers"], self._token):
            message = "this receiver asks for its token: send the header Authorization: Bearer TOKEN"
            await _error(_Refusal(401, message), is_protobuf=False)(scope, receive, send)
            return
        await self._app(scope, receive, send)


# -- one request -----------------------------------------------------------------------------------------------------------


class _Receiver:
    """Answers requests, and knows how much they hold."""

    def __init__(self, intake: Intake, limits: ReceiverLimits, collector: Collector | None) -> None:
        self._intake, self._limits, self._collector = intake, limits, collector
        self._held = self._open = 0
        # One batch is taken apart while the next is: more threads would only wait for each other.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="otlp-read")
        self._unpacking = ThreadPoolExecutor(4, thread_name_prefix="otlp-unpack")

    async def about(self, request: Request) -> Response:
        """What this is, for whoever opens it in a browser."""
        what = {"what": "counterpoint: an OTLP/HTTP receiver", "post": ["/v1/traces", "/v1/logs"], "types": [JSON, PROTOBUF]}
        what |= {"push": PATH} if self._collector is not None else {}
        return JSONResponse(what | {"counts": self._intake.status()})

    async def nothing(self, request: Request) -> Response:
        """Metrics, which a trace has no place for."""
        message = "metrics are not kept: set OTEL_METRICS_EXPORTER=none, or send them elsewhere"
        return _error(_Refusal(404, message), is_protobuf=_type(request) == PROTOBUF)

    async def export(self, request: Request, kind: otlp.Kind) -> Response:
        """Take a request."""
        is_protobuf = _type(request) == PROTOBUF
        reservation = _Reservation(self)
        try:
            taken = await self._batch(request, kind, reservation, is_protobuf=is_protobuf)
        except _Refusal as refusal:
            self._intake.counts[f"answered {refusal.status}"] += 1
            await self._drop_rest(request, refusal)
            return _error(refusal, is_protobuf=is_protobuf)
        finally:
            reservation.free()
        self._intake.counts["spans" if kind == "traces" else "log records"] += sum(taken.counts.values())
        self._intake.counts["rejected"] += taken.rejected
        self._intake.counts["requests"] += 1
        return Response(otlp.reply(taken, kind, is_protobuf=is_protobuf), media_type=PROTOBUF if is_protobuf else JSON)

    async def collect(self, request: Request) -> Response:
        """Take whole traces: answered when they are in the store."""
        reservation = _Reservation(self)
        try:
            if self._collector is None:
                raise _Refusal(404, "this receiver takes no whole traces")
            if _type(request) != PARCEL:
                raise _Refusal(415, f"send {PARCEL}: counterpoint store push does")
            body = await self._body(request, reservation)
            reservation.begin()
            kept = await asyncio.wrap_future(self._collector.put(body))
        except _Refusal as refusal:
            self._intake.counts[f"answered {refusal.status}"] += 1
            await self._drop_rest(request, refusal)
            return _error(refusal, is_protobuf=False)
        except InputError as error:
            return _error(_Refusal(400, f"the body {error.one_line()}"), is_protobuf=False)
        except (CounterpointError, OSError) as error:
            return _error(_Refusal(503, f"cannot be kept now: {error}", again_s=10), is_protobuf=False)
        finally:
            reservation.free()
        return Response(msgspec.json.encode(kept), media_type=JSON)

    async def _batch(self, request: Request, kind: otlp.Kind, reservation: _Reservation, *, is_protobuf: bool) -> otlp.OtlpBatch:
        if _type(request) not in (JSON, PROTOBUF):
            raise _Refusal(415, f"send {PROTOBUF} or {JSON}")
        body = await self._body(request, reservation)
        reservation.begin()  # not before: who sends slowly takes nobody's place
        loop = asyncio.get_running_loop()
        read = partial(otlp.of_protobuf if is_protobuf else otlp.of_json, body, kind)
        try:
            taken = await loop.run_in_executor(self._threads, read)
        except InputError as error:
            raise _Refusal(400, f"the body {error.one_line()}") from error
        taken = self._without_late(taken)
        if taken.lines:
            try:
                await asyncio.wrap_future(self._intake.put(taken))
            except (CounterpointError, OSError) as error:
                raise _Refusal(503, f"cannot be kept now: {error}", again_s=10) from error
        return taken

    def _without_late(self, taken: otlp.OtlpBatch) -> otlp.OtlpBatch:
        late = [key for key in taken.lines if self._intake.is_over(key)]
        if not late:
            return taken
        n = sum(taken.counts.pop(key) for key in late)
        for key in late:
            del taken.lines[key]
        why = taken.why or "the trace was sealed too long ago to take more"
        return taken._replace(rejected=taken.rejected + n, why=why)

    async def _drop_rest(self, request: Request, refusal: _Refusal) -> None:
        """Read and forget, for a while, what a sender still sends who wants the connection closed after the answer: closed with
        bytes unread, it would be reset, and the answer lost. (Where it stays open, `serving.Patient` does that afterwards.)"""
        closes = "close" in request.headers.get("connection", "").lower() or request.scope["http_version"] == "1.0"
        if not closes or refusal.status == 408 or "expect" in request.headers:  # too slow already; or asks before it sends
            return
        with suppress(TimeoutError, ClientDisconnect, RuntimeError):  # the last: it was read to its end
            async with asyncio.timeout(self._limits.seconds):
                async for _ in request.stream():
                    pass

    async def _body(self, request: Request, reservation: _Reservation) -> bytes:
        limits = self._limits
        packing = request.headers.get("content-encoding", "identity").strip().lower()
        if packing not in ("identity", "gzip", ""):
            raise _Refusal(415, "only gzip is unpacked here: set OTEL_EXPORTER_OTLP_COMPRESSION=gzip or none")
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > limits.body:
            raise _too_large(limits.body)
        unpack = _Gunzip(limits.body) if packing == "gzip" else None
        parts: list[bytes] = []
        sent, loop = 0, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limits.seconds):
                async for chunk in request.stream():
                    sent += len(chunk)
                    if sent > limits.body:
                        raise _too_large(limits.body)
                    # In a thread, a piece at a time: neither a bomb nor ten thousand members keep others waiting.
                    more = None if unpack is None else partial(unpack.more, chunk)
                    part = chunk if more is None else await loop.run_in_executor(self._unpacking, more)
                    while part:
                        reservation.take(len(part))
                        parts.append(part)
                        part = b"" if unpack is None else await loop.run_in_executor(self._unpacking, unpack.more)
        except TimeoutError:
            raise _Refusal(408, f"the body did not come within {limits.seconds:g} s") from None
        except ClientDisconnect:
            raise _Refusal(400, "the sender hung up") from None
        if unpack is not None:
            unpack.end()
        return b"".join(parts)


class _Reservation:
    """The bytes that one request holds."""

    def __init__(self, receiver: _Receiver) -> None:
        self._receiver, self._size, self._has_begun = receiver, 0, False

    def begin(self) -> None:
        """All is there, and now it costs more than memory."""
        if self._receiver._open >= self._receiver._limits.requests:
            raise _Refusal(503, "too many requests at once", again_s=1)
        self._receiver._open += 1
        self._has_begun = True

    def take(self, size: int) -> None:
        receiver = self._receiver
        if receiver._held + size > receiver._limits.held:
            raise _Refusal(503, "too much is waiting to be written", again_s=1)
        receiver._held += size
        self._size += size

    def free(self) -> None:
        self._receiver._held -= self._size
        self._receiver._open -= self._has_begun
        self._size, self._has_begun = 0, False


class _Gunzip:
    """Unpacks gzip as it comes, and no further than the limit: a bomb is seen before it goes off. A sender writes one member;
    a body of very many is work without content, and is refused."""

    def __init__(self, limit: int) -> None:
        self._limit = self._left = limit
        self._member = zlib.decompressobj(wbits=31)
        self._members, self._rest = 1, b""

    def more(self, chunk: bytes = b"") -> bytes:
        """A piece of what the chunk holds, of bounded size; none is left when it is empty."""
        rest, out = self._rest + chunk, b""
        try:
            while rest and not out:
                if self._member.eof:
                    self._members += 1
                    if self._members > _MEMBERS:
                        raise _Refusal(400, f"the body is gzip of more than {_MEMBERS:,} members")
                    self._member = zlib.decompressobj(wbits=31)
                out = self._member.decompress(rest, min(self._left + 1, _PIECE))
                rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        except zlib.error as error:
            raise _Refusal(400, f"the body is not gzip: {error}") from error
        self._rest = rest
        self._left -= len(out)
        if self._left < 0:
            raise _too_large(self._limit)
        return out

    def end(self) -> None:
        if not self._member.eof:
            raise _Refusal(400, "the body is not gzip, or not all of it")


def _too_large(limit: int) -> _Refusal:
    return _Refusal(413, f"the body is larger than {limit:,} bytes: send smaller batches, or raise `--set max_body`")


def _type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _error(refusal: _Refusal, *, is_protobuf: bool) -> Response:
    body = otlp.status(_CODES[refusal.status], refusal.message, is_protobuf=is_protobuf)
    headers = {} if refusal.again_s is None else {"retry-after": str(refusal.again_s)}
    return Response(body, refusal.status, headers, media_type=PROTOBUF if is_protobuf else JSON)


def application(
    intake: Intake, limits: ReceiverLimits, *, is_remote: bool = False, collector: Collector | None = None, token: str = ""
) -> Starlette:
    """The receiver as an ASGI application; with `is_remote` any Host is taken, with `collector` whole traces are, and with
    `token` only who sends it is heard."""
    receiver = _Receiver(intake, limits, collector)

    async def traces(request: Request) -> Response:
        return await receiver.export(request, "traces")

    async def logs(request: Request) -> Response:
        return await receiver.export(request, "logs")

    routes = [
        Route("/", receiver.about),
        Route("/v1/traces", traces, methods=["POST"]),
        Route("/v1/logs", logs, methods=["POST"]),
        Route("/v1/metrics", receiver.nothing, methods=["POST"]),
        Route(PATH, receiver.collect, methods=["POST"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(_Guard, is_remote=is_remote, token=token)])


def server(
    intake: Intake, limits: ReceiverLimits, *, is_remote: bool = False, collector: Collector | None = None, token: str = ""
) -> Server:
    """A server for `application`; call `run(sockets=[listening_socket(host, port)])`."""
    http = patient(limits.connections, limits.seconds)
    app = application(intake, limits, is_remote=is_remote, collector=collector, token=token)
    return Server(server_config(app, http=http, grace_s=5))
