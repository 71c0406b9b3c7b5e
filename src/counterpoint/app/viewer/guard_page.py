"""Who may ask: requests under this server's own name, from its own page; writing only with the token.

Always true: nothing behind it sees a request with a foreign Host (a web page that points a name of its own at this machine), a
foreign Origin, or one that a browser says another site made; a write without the token is refused, and comparing it takes the
same time whatever was guessed. With `everything` set, as on an address that others reach, reading needs the token too: as a
header, or as the cookie that a link with `?token=` leaves.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterpoint.app.viewer.responses import error_response
from counterpoint.errors import Refused

TOKEN_HEADER = "x-counterpoint-token"
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""On every answer."""
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_READING = ("GET", "HEAD")


@dataclass(frozen=True)
class Door:
    """Where the server listens, and what opens it."""

    host: str
    port: int
    token: str
    everything: bool = False
    """Whether reading needs the token too."""

    @property
    def cookie(self) -> str:
        """The cookie's name; browsers keep one jar for all ports of a host."""
        return f"counterpoint-{self.port}"

    def is_own(self, host: str) -> bool:
        """Whether a Host header names this server, to the letter."""
        name, _, port = host.rpartition(":")
        if not name:
            name, port = host, "80"
        if port != str(self.port):
            return False
        bare = self.host.strip("[]")
        if name in _LOOPBACK or name.strip("[]") == bare:
            return True
        return bare in ("0.0.0.0", "::") and (_is_address(name.strip("[]")) or name == socket.gethostname())

    def is_token(self, given: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(given.encode(), self.token.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Lets through what may pass, and puts the protective headers on every answer."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                have = {name for name, _ in message["headers"]}
                more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in have]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        answer = self._refusal(scope)
        await (self._app if answer is None else answer)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, door = Headers(scope=scope), self._door
        if len(headers.getlist("host")) != 1 or not door.is_own(headers["host"]):
            return _no("this server answers only under its own address", fix=f"open http://127.0.0.1:{door.port}")
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{headers['host']}":
            return _no("a page of another site may not ask this server")
        if scope["path"].startswith("/api/") and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _no("a page of another site may not ask this server")
        given = headers.get(TOKEN_HEADER, "")
        if door.everything and not door.is_token(given or _cookie(headers, door.cookie)):
            return self._let_in(scope)
        if scope["method"] not in _READING and not door.is_token(given):
            return _no("a write needs the token", fix=f"send it as {TOKEN_HEADER}; `counterpoint view --json` prints it")
        return None

    def _let_in(self, scope: Scope) -> Response:
        """A link with the token leaves a cookie, and goes on without it: an address bar is no place for a secret."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token", "")
        if scope["method"] not in _READING or not given or not self._door.is_token(given):
            return _no("this server needs its token", status=401, fix="open the link that `counterpoint view` printed")
        rest = urlencode([pair for pair in query if pair[0] != "token"])
        # The path as it came, and only below this server: two slashes would name another one.
        path = "/" + scope.get("raw_path", b"/").decode("latin-1").split("?")[0].lstrip("/\\")
        answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303, {"cache-control": "no-store"})
        answer.set_cookie(self._door.cookie, self._door.token, httponly=True, samesite="strict", path="/")
        return answer


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def _no(what: str, *, status: int = 403, fix: str | None = None) -> Response:
    return error_response(Refused(what, fix=fix), status)
