"""The viewer's server: one page, its questions as GET, five writes (forks, scores, notes, decisions, orders), one stream.

Always true: it listens where it was told, this machine alone unless a token guards everything; a name in an address is looked up
in the collection and never becomes a path; nothing but the page is a file; an error is JSON with what, why and what would work.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes

import msgspec
import uvicorn
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

import counterpoint
from counterpoint.app import http_server
from counterpoint.app.viewer import notes, outcomes, team_orders
from counterpoint.app.viewer.collection import ROWS, AlertCounts, Collection, Listing
from counterpoint.app.viewer.forks import Forks
from counterpoint.app.viewer.guard_page import Door, Guard
from counterpoint.app.viewer.live import Live
from counterpoint.app.viewer.pages import Page, Question, pages
from counterpoint.app.viewer.policy import policy
from counterpoint.app.viewer.responses import JSON, Answers, error_response, in_our_words
from counterpoint.errors import CounterpointError, InputError, NotFound

if TYPE_CHECKING:
    from counterpoint.app.viewer.first_look import FirstLook

PAGE = Path(__file__).parent / "page" / "viewer.html"
_PLACE = "<!--counterpoint-data-->"
_MISSING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Counterpoint: the page is not built</title>
<body style="font: 16px/1.5 system-ui; max-width: 40rem; margin: 4rem auto; padding: 0 1rem">
<h1>The page is not built</h1>
<p>This copy of Counterpoint has no <code>viewer.html</code>. Installed packages carry it; a checkout builds it with Node:</p>
<pre>make page</pre><p>Then reload. What the page would show is at <a href="/api/traces">/api/traces</a>.</p></body></html>"""
_OWN = frozenset({"", "t", "d", "live", "traces", "trace", "diff", "issues"})
"""First words of the viewer's own addresses. The page is the answer under every other one too, and says that there is nothing."""
_COUNTED = 50
"""So many traces get their alerts counted for one question."""
_BODY = 1 << 20
_CONNECTIONS, _SECONDS = 256, 30.0
_WRITES = "POST /api/t/ID/fork, /api/t/ID/score, /api/t/ID/annotations, /api/issues/ID and /api/steer/ID"


class _Edit(Struct):
    """The body of a fork."""

    kind: str
    event: str
    value: Any = None


class _WrongMethod(CounterpointError):
    """A page or question that was asked in another way than it can be."""


def _questions() -> ModuleType:
    """What answers questions about one trace. The list comes first, and does not wait for what these need."""
    from counterpoint.app.viewer import api

    return api


class Site:
    """Answers requests."""

    def __init__(self, collection: Collection, door: Door, page: Path = PAGE) -> None:
        self.collection, self.door = collection, door
        self.live = Live(collection.store_path)
        self._answers = Answers()
        self._listing = Listing(collection)
        self._alerts = AlertCounts(collection, lambda trace: _questions().alert_count(trace))
        self._forks = Forks(collection)
        self._looked: tuple[tuple[str, str], FirstLook] | None = None
        """The last first look at a large trace: its picture is asked for right after."""
        self._shell = Shell({"token": door.token, "version": counterpoint.__version__}, page)
        self._pages: dict[str, Page] = {}
        """Pages of installed packages by the first word of their addresses."""
        self._questions: dict[str, Question] = {}
        for one in pages():
            self._pages |= dict.fromkeys(one.addresses, one)
            self._questions |= one.questions
            collection.add_stores(one.stores)

    def warm(self, trace_id: str) -> None:
        """Open a trace while the browser starts, so that the page need not wait for it."""
        self._answers.begin(lambda: _questions().QUESTIONS[""](self.collection.get(trace_id), {}))

    async def answer(self, request: Request) -> Response:
        """Any request."""
        try:
            parts = _parts(request.scope)
            if parts[0] == "api":
                return await self._api(request, parts[1:])
            if request.method not in ("GET", "HEAD"):
                raise _WrongMethod("a page can only be read")
            if len(parts) > 1 and (whole := await self._whole(parts)) is not None:
                query = request.url.query
                return RedirectResponse(f"{whole}{f'?{query}' if query else ''}", 307)
            return self._shell.response(is_known=parts[0] in _OWN or parts[0] in self._pages)
        except _WrongMethod as error:
            return error_response(error, 405)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # whatever a strange trace does to a function, the server answers and goes on
            return error_response(in_our_words(error))

    async def _whole(self, parts: Sequence[str]) -> str | None:
        """The whole address of one with the beginning of a trace's id, or the name of a folder without its path; else None."""
        name, page = "/".join(parts[1:]), self._pages.get(parts[0])
        if page is None and parts[0] not in ("t", "trace"):
            return None
        find = self.collection.trace_named if page is None else partial(page.id_of, self.collection)
        found = await self._answers.call(partial(find, name))
        first = "t" if page is None else page.addresses[0]
        return f"/{first}/{quote(found, safe='')}" if found != name else None

    async def _api(self, request: Request, parts: Sequence[str]) -> Response:
        if request.method == "POST":
            if len(parts) == 3 and parts[0] == "t" and parts[2] == "fork":
                return await self._fork(request, parts[1])
            if len(parts) == 3 and parts[0] == "t" and parts[2] in ("score", "annotations"):
                return await (self._score if parts[2] == "score" else self._annotate)(request, parts[1])
            if len(parts) == 2 and parts[0] == "steer":
                return await self._steer(request, parts[1])
            if len(parts) == 2 and parts[0] == "issues":
                return await self._decide(request, parts[1])
            raise _WrongMethod("nothing can be written at this address", fix=f"only {_WRITES} write")
        if request.method not in ("GET", "HEAD"):
            raise _WrongMethod(f"{request.method} requests are not answered", fix=f"use GET, or {_WRITES}")
        if parts and parts[0] == "t" and len(parts) > 1:
            return await self._of_trace(request, parts[1], parts[2:])
        if len(parts) == 2 and parts[0] == "issues":
            return await self._issue(request, parts[1])
        if len(parts) == 1 and parts[0] in _SHARED:
            return await _SHARED[parts[0]](self, request)
        if len(parts) == 1 and parts[0] in self._questions:
            return await self._of_page(request, parts[0])
        raise NotFound(
            "no such address", where="/api/" + "/".join(parts), fix="reload the page; docs/view.md lists the addresses"
        )

    # -- about one trace -----------------------------------------------------------------------------------------

    async def _of_trace(self, request: Request, trace_id: str, rest: Sequence[str]) -> Response:
        words = dict(request.query_params)
        make: Callable[[], Any]
        if len(rest) == 1 and rest[0] == "file":
            return await self._file(request, trace_id)
        if len(rest) == 2 and rest[0] == "event":
            make = partial(self._event, trace_id, rest[1], words)
        elif len(rest) <= 1 and (ask := _questions().question(rest[0] if rest else "")) is not None:
            make = partial(lambda ask: ask(self.collection.get(trace_id), words), ask)
        else:
            raise NotFound("no such address", where="/".join(rest), fix="reload the page; docs/view.md lists the addresses")
        version = await self._answers.call(partial(self.collection.version, trace_id))
        if words.get("first") == "1" and (not rest or rest[0] == "bins"):
            look = await self._answers.call(partial(self._first_look, trace_id, version))
            if look is not None:
                return await self._answers.answer(request, None, look.bins if rest else look.about)
        key = (trace_id, version, *rest, *sorted(words.items()))
        return await self._answers.answer(request, key, make)

    def _first_look(self, trace_id: str, version: str) -> FirstLook | None:
        """What can be told of a large trace before all of it is read; None where it is small, or has been read."""
        from counterpoint.app.viewer.trace_view import LARGE

        found = self.collection.unread(trace_id, LARGE)
        if found is None:
            return None
        if self._looked is None or self._looked[0] != (trace_id, version):
            from counterpoint.app.viewer.first_look import FirstLook

            self._looked = (trace_id, version), FirstLook(*found)
        return self._looked[1]

    def _event(self, trace_id: str, number: str, words: dict[str, str]) -> Any:
        trace = self.collection.get(trace_id)
        return _questions().event_of(trace, number, words, self._forks.badges(trace))

    async def _file(self, request: Request, trace_id: str) -> Response:
        """The trace as one file, to keep: masked unless asked otherwise, whole or a part."""
        words = dict(request.query_params)
        made = await self._answers.call(lambda: _questions().file_of(self.collection.get(trace_id), words))
        name = re.sub(r"[^\w.-]+", "-", trace_id, flags=re.ASCII).strip("-.")[:80] or "trace"
        headers = {"cache-control": "no-store", "content-disposition": f'attachment; filename="{name}.html"'}
        # a page of this server's origin must never come out of a trace: the file is only for keeping
        headers["content-security-policy"] = "sandbox"
        return Response(made, 200, headers, "text/html; charset=utf-8")

    async def _fork(self, request: Request, trace_id: str) -> Response:
        body = await _body(request)
        try:
            edit = msgspec.json.decode(body, type=_Edit)
        except msgspec.MsgspecError as error:
            fix = '{"kind": "delete", "event": "e30", "value": null}'
            raise InputError(f"is not an edit: {error}", where="body", fix=f"as in {fix}") from error
        value = edit.value if edit.value is None or isinstance(edit.value, str) else json.dumps(edit.value)
        made = await self._answers.call(partial(self._forks.fork, trace_id, edit.kind, edit.event, value))
        return Response(msgspec.json.encode(made), 201, {"cache-control": "no-store"}, JSON)

    async def _score(self, request: Request, trace_id: str) -> Response:
        """How a run came out, as the reader says."""
        sent = outcomes.read(await _body(request))
        keep = lambda: outcomes.store(self.collection.store_path, self.collection.get(trace_id), sent)  # noqa: E731
        kept = await self._answers.call(keep)
        return Response(msgspec.json.encode(kept), 201, {"cache-control": "no-store"}, JSON)

    async def _annotate(self, request: Request, trace_id: str) -> Response:
        """A note, a label or a score, as the reader says; or one taken back."""
        sent = notes.read(await _body(request))
        keep = lambda: notes.store(self.collection.store_path, self.collection.get(trace_id), sent)  # noqa: E731
        kept = await self._answers.call(keep)
        return Response(msgspec.json.encode(kept), 201, {"cache-control": "no-store"}, JSON)

    async def _steer(self, request: Request, trace_id: str) -> Response:
        """An order to a running team; 202, because it acts later: the stream says when it has."""
        order = team_orders.read(await _body(request))
        sent = await self._answers.call(partial(team_orders.send, self.collection.store_path, trace_id, order))
        return Response(msgspec.json.encode(sent), 202, {"cache-control": "no-store"}, JSON)

    # -- about several -------------------------------------------------------------------------------------------

    async def _traces(self, request: Request) -> Response:
        query, limit = request.query_params.get("q", ""), request.query_params.get("limit", "")
        count = min(int(limit), 100_000) if limit.isascii() and limit.isdigit() else ROWS
        found = await self._answers.answer(request, None, partial(self._listing.traces, query, count))
        self._answers.begin(_questions)  # who has the list opens a trace next
        return found

    async def _alert_counts(self, request: Request) -> Response:
        names = request.query_params.getlist("id")[:_COUNTED]
        return await self._answers.answer(request, None, partial(self._alerts.of, names))

    async def _causes(self, request: Request) -> Response:
        from counterpoint.app.viewer.causes import recurring_causes

        query = request.query_params.get("q", "")
        return await self._answers.answer(request, None, partial(recurring_causes, self.collection, query))

    async def _issues(self, request: Request) -> Response:
        from counterpoint.app.viewer.issue_board import issue_board

        return await self._answers.answer(request, None, partial(issue_board, self.collection, request.query_params.get("q", "")))

    async def _issue(self, request: Request, name: str) -> Response:
        from counterpoint.app.viewer.issue_board import issue_page

        query = request.query_params.get("q", "")
        return await self._answers.answer(request, None, partial(issue_page, self.collection, name, query))

    async def _decide(self, request: Request, name: str) -> Response:
        """What a reader decides about an issue."""
        from counterpoint.app.viewer.issue_board import decided

        kept = await self._answers.call(partial(decided, self.collection, name, await _body(request)))
        return Response(msgspec.json.encode(kept), 201, {"cache-control": "no-store"}, JSON)

    async def _diff(self, request: Request) -> Response:
        a, b = (_word(request, name) for name in ("a", "b"))
        versions = await self._answers.call(lambda: (self.collection.version(a), self.collection.version(b)))
        make = lambda: _questions().diff(self.collection.get(a), self.collection.get(b))  # noqa: E731
        return await self._answers.answer(request, ("diff", a, b, *versions), make)

    async def _of_page(self, request: Request, name: str) -> Response:
        """A question of a page that an installed package adds."""
        question, words = self._questions[name], dict(request.query_params)
        key = None
        if question.version is not None:
            version = await self._answers.call(partial(question.version, self.collection, words))
            key = (name, version, *sorted(words.items()))
        return await self._answers.answer(request, key, partial(question.answer, self.collection, words))

    async def _live(self, request: Request) -> Response:
        last = request.headers.get("last-event-id") or request.query_params.get("after") or ""
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 20 else None
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type="text/event-stream")
        return StreamingResponse(self.live.stream(after), headers=headers, media_type="text/event-stream")


_SHARED: dict[str, Callable[[Site, Request], Any]] = {
    "traces": Site._traces,
    "alerts": Site._alert_counts,
    "causes": Site._causes,
    "diff": Site._diff,
    "issues": Site._issues,
    "live": Site._live,
}


def _parts(scope: Any) -> list[str]:
    """The path between slashes, each part decoded by itself: an id may hold a slash."""
    raw = scope.get("raw_path") or scope["path"].encode()
    try:
        return [unquote_to_bytes(part).decode() for part in raw.split(b"?")[0].removeprefix(b"/").split(b"/")]
    except UnicodeDecodeError as error:
        raise InputError("the address is not UTF-8", fix="percent-encode ids as UTF-8") from error


def _word(request: Request, name: str) -> str:
    found = request.query_params.get(name)
    if not found:
        raise InputError(f"{name} is missing", where=request.url.path, fix=f"as in ?{name}=...")
    return found


async def _body(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise InputError("the body is not JSON", where="content-type", fix=f"send {JSON}")
    parts, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _BODY:
            raise InputError(f"the body is larger than {_BODY:,} bytes", fix="an edit is small")
        parts.append(chunk)
    return b"".join(parts)


# -- serving ---------------------------------------------------------------------------------------------------------------


def application(site: Site) -> ASGIApp:
    """The server as an ASGI application. No router: an id may hold whatever a router takes for its own, a line break too."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await (await site.answer(Request(scope, receive)))(scope, receive, send)

    return Guard(answer, site.door)


def door_at(sock: socket.socket, host: str, token: str | None = None) -> Door:
    """The door of a server on this socket; a token that was given guards reading too."""
    door = Door(host, int(sock.getsockname()[1]), token or secrets.token_urlsafe(24))
    return replace(door, everything=token is not None)


class _Server(http_server.Server):
    """Ends its streams before it waits for them."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.live.end()
        await super().shutdown(sockets)
        self._site.collection.close()


def server(site: Site) -> http_server.Server:
    """A server for a site; call `run(sockets=[http_server.listening_socket(host, port)])`."""
    patient = http_server.patient(_CONNECTIONS, _SECONDS)
    return _Server(http_server.server_config(application(site), http=patient, grace_s=2), site)


# -- the page --------------------------------------------------------------------------------------------------------------


class Shell:
    """The page as it is served."""

    def __init__(self, boot: dict[str, Any], page: Path = PAGE) -> None:
        """Reads the page once; `boot` is what it is told to begin with."""
        self.is_built = page.is_file()
        text = page.read_text(encoding="utf-8") if self.is_built else _MISSING
        self._policy = policy(text, own="'self'", frames=False)
        # Without a "<" no value, whatever it holds, can end the block that it stands in.
        told = msgspec.json.encode(boot).decode().replace("<", "\\u003c")
        block = f'<script type="application/json" id="counterpoint-boot">{told}</script>'
        self._body = (text.replace(_PLACE, block, 1) if self.is_built else text).encode()

    def response(self, *, is_known: bool = True) -> Response:
        """The page; under an address that it does not know it says so, with the status that programs look at."""
        headers = {"content-security-policy": self._policy, "cache-control": "no-store"}
        status = 503 if not self.is_built else 200 if is_known else 404
        return Response(self._body, status, headers, "text/html; charset=utf-8")
