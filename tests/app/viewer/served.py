"""A viewer over a real socket, in a thread, asked as any program would ask it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import counterpoint as cpt
from counterpoint.app import http_server
from counterpoint.app.viewer import server
from counterpoint.app.viewer.collection import Collection
from counterpoint.testing import odd_trace, synthetic_trace

SCRIPT = "let a = 1;"
PAGE = f"<!doctype html><title>x</title><!--counterpoint-data--><script type='module'>{SCRIPT}</script><div id=app></div>"
HOSTILE = ["../../etc/passwd", "a/b?c=d#e", "<script>alert(1)</script>", "100% \u202e \U0001f600", "..", "'; drop table x; --", "a\nb"]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Viewer:
    """A running viewer."""

    def __init__(self, site: server.Site) -> None:
        self.site, self.port, self.token = site, site.door.port, site.door.token

    def ask(self, path: str, *, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        """One request, the path as it is written: nothing is made nicer on the way."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        sent = {"host": f"127.0.0.1:{self.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            sent = {"content-type": "application/json", "content-length": str(len(data))} | sent
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders(data)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def of(self, trace_id: str, rest: str = "", **headers: str) -> Answer:
        """A question about a trace."""
        return self.ask(f"/api/t/{quote(trace_id, safe='')}{rest}", **headers)

    def fork(self, trace_id: str, kind: str, event: str, value: Any = None, **headers: str) -> Answer:
        """A fork, with the token unless another one is given."""
        body = {"kind": kind, "event": event, "value": value}
        sent = {"x_counterpoint_token": self.token} | headers
        return self.ask(f"/api/t/{quote(trace_id, safe='')}/fork", method="POST", body=body, **sent)


@contextmanager
def viewing(collection: Collection, folder: Path, *, token: str | None = None, page: str | None = PAGE) -> Iterator[Viewer]:
    """A viewer of a collection, with a page of one script."""
    file = folder / "viewer.html"
    if page is not None:
        file.write_text(page)
    sock = http_server.listening_socket("127.0.0.1", 0)
    site = server.Site(collection, server.door_at(sock, "127.0.0.1", token), file)
    running = server.server(site)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield Viewer(site)
    finally:
        running.should_exit = True
        thread.join()
        sock.close()


def simulated() -> cpt.Trace:
    """A run of a small world, which can be forked."""
    made: cpt.Trace = cpt.world("W1", vote_items=12).run("reference", [3], log=True).trace(0)
    return made


def filled(path: Path) -> Path:
    """A store: a simulated team, a synthetic one, an odd one, and some whose ids mean mischief."""
    with cpt.Store(path) as store:
        store.add(simulated())
        store.add(synthetic_trace(4, 30, "centralized", contents=True, trace_id="plain"))
        store.add(odd_trace())
        for name in HOSTILE:
            store.add(synthetic_trace(2, 6, "debate", contents=True, trace_id=name))
    return path
