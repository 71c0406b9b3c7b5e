"""What our servers share, the receiver, the viewer and the endpoint of models: who may ask, a listening socket, how they run and
end, and their connections.

Always true: a connection that has said nothing whole for `seconds` is closed; where there are as many as may be, the one that has
waited longest without a whole request goes, and then the one whose body has been under way longest: nobody is locked out by
connections that are opened and left. One whose request is being answered is never cut for another.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from counterpoint.errors import InputError, TryAgain


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and nothing else: `localhost`, 127.0.0.0/8 or ::1."""
    host = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def foreign_request(headers: Iterable[tuple[bytes, bytes]], *, is_remote: bool) -> str | None:
    """Why a request is not answered: a web page of another place made it, or, unless other machines may ask, it names another
    machine."""
    found: dict[bytes, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value.decode("latin-1"))
    hosts = found.get(b"host", [])
    if len(hosts) != 1 or not (is_remote or is_loopback(_host_name(f"//{hosts[0]}"))):
        return "this server answers under the names of this machine only: use http://127.0.0.1 or http://localhost"
    schemes = ("http", "https") if is_remote else ("http",)  # others may reach it through something that has a key
    own = [f"{scheme}://{hosts[0]}".lower() for scheme in schemes]
    is_foreign = any(origin.lower() not in own for origin in found.get(b"origin", ()))
    if is_foreign or any(site not in ("same-origin", "none") for site in found.get(b"sec-fetch-site", ())):
        return "a web page of another place may not ask here, nor one of another port: programs send no Origin"
    return None


def knows_token(headers: Iterable[tuple[bytes, bytes]], token: str) -> bool:
    """Whether a request has the token, where there is one."""
    given = [value for name, value in headers if name.lower() == b"authorization"]
    return not token or (len(given) == 1 and hmac.compare_digest(given[0], b"Bearer " + token.encode()))


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket; `TryAgain` when the port is taken."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        family, kind, protocol, _, address = found
        # With the protocol named, asyncio sends answers at once; without it, each waits 40 ms for an acknowledgement.
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"cannot listen on {host!r}", why=str(error), fix="use --host 127.0.0.1") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(512)
    except OSError as error:
        sock.close()
        where, fix = f"{host}:{port}", "choose another with --port, or --port 0 for any that is free"
        if isinstance(error, PermissionError):
            raise InputError("may not listen on this port", where=where, fix=fix) from error
        raise TryAgain("cannot listen on this port", where=where, why=error.strerror, fix=fix) from error
    return sock


class Server(uvicorn.Server):
    """Answers until a signal, or `should_exit`; requests that are being answered then are answered. A second signal kills."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Only the signals' first coming is ours; uvicorn would raise it again at the end, before all is stored."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def adopt(self, sock: socket.socket) -> None:
        """Answer on a connection that somebody else has accepted."""
        protocol: Any = self.config.http_protocol_class
        about = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol(**about), sock)

    def _end(self, number: int, frame: object) -> None:
        self.should_exit = True
        signal.signal(number, signal.SIG_DFL)


def server_config(app: Any, *, http: Any, grace_s: int) -> uvicorn.Config:
    """How our servers run: nothing on the screen, no word about what they are made of, nobody's headers believed."""
    return uvicorn.Config(
        app,
        http=http,
        ws="none",
        lifespan="off",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=grace_s,
    )


# -- connections ------------------------------------------------------------------------------------------------------------


class Patient(H11Protocol):
    """uvicorn's connection, which by itself waits for ever and takes as many as come."""

    most, seconds = 512, 30.0
    since = 0.0
    """When it was opened, or its last answer ended: bytes that make no whole request do not count."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since = self.loop.time()
        if len(self.connections) > self.most and not self._make_room():
            transport.abort()
        else:
            self._watch()

    def _make_room(self) -> bool:
        others = [c for c in self.connections if isinstance(c, Patient) and c is not self and not c.transport.is_closing()]
        waiting = [c for c in others if c._is_waiting()] or [c for c in others if c.cycle is not None and c.cycle.more_body]
        if not waiting:
            return False
        min(waiting, key=lambda c: c.since).transport.abort()
        return True

    def _is_waiting(self) -> bool:
        """Between two requests, or in the middle of a request's head."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _watch(self) -> None:
        self.loop.call_later(self.seconds, self._look, self.cycle)

    def _look(self, before: Any) -> None:
        """Close when no request has begun since the last look and none is being answered."""
        if self.transport.is_closing():
            return
        if self.cycle is before and self._is_waiting():
            self.transport.close()
        else:
            self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.since = self.loop.time()
        if self.cycle.more_body and not self.transport.is_closing():
            # Answered before the body was read: what still comes is dropped, for a while, so that the answer is read.
            self.loop.call_later(self.seconds, self._part, self.cycle)

    def _part(self, answered: Any) -> None:
        if self.cycle is answered and self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()


def patient(connections: int, seconds: float) -> type[Patient]:
    """Connections with these limits."""
    return type("Patient", (Patient,), {"most": connections, "seconds": seconds})
