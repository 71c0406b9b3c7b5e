"""Look at traces and runs in the browser.

Always true: it listens on this machine only, unless told otherwise with a token; looking changes nothing, and the only write, a
fork, needs the token; the first Ctrl-C or SIGTERM ends it.
"""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import click

from counterpoint.app.load_save import names_file, read, store_path
from counterpoint.app.terminal.options import host_option, port_option, read_token, token_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.store import store_option
from counterpoint.errors import InputError, NotFound, Refused, did_you_mean, install

if TYPE_CHECKING:
    from counterpoint.app.viewer.collection import Collection
    from counterpoint.trace import Trace

HEADING = "Look"

_TOKEN = 16


class _Opened(NamedTuple):
    """What an argument stands for: what is on view, and the page to begin with."""

    collection: Collection
    path: str
    trace: str | None = None


@click.command(
    epilog="\b\nExamples:\n  counterpoint view\n  counterpoint view run.trace.json --no-open\n\n"
    "Exit codes: 0 ended by Ctrl-C, 2 a wrong option or unreadable file, 3 no such trace, run or store,\n"
    "5 an address that others reach without --token-file, 6 the port is taken."
)
@click.argument("what", required=False, metavar="[TRACE|RUN|STORE]")
@port_option(0)
@host_option
@token_option
@click.option("--runs", "runs_home", default="runs", show_default=True, type=click.Path(path_type=Path), help="Where runs are.")
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@store_option
@json_option
def view(
    what: str | None,
    port: int,
    host: str,
    token_file: Path | None,
    runs_home: Path,
    no_open: bool,
    store: Path | None,
    as_json: bool,
) -> None:
    """Look at traces and runs in the browser, until Ctrl-C.

    Without an argument: the store and ./runs. TRACE is an id in the store, or the beginning of one, or a file: of traces, or a
    log that `counterpoint import` knows, which is then shown without a store. RUN is a folder of counterpoint train, of
    counterpoint compare methods, or of counterpoint bench run.
    """
    try:
        from counterpoint.app import http_server
        from counterpoint.app.viewer import server
    except ImportError as error:
        raise InputError(f"the viewer needs starlette and uvicorn: {error}", fix=install("view")) from error
    token = read_token(token_file) or None
    if not http_server.is_loopback(host) and token is None:
        why = "anybody who reaches it could read your traces"
        raise Refused("is not an address of this machine alone", where=host, why=why, fix="--token-file FILE requires a token")
    if token is not None and len(token) < _TOKEN:
        fix = "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"
        raise InputError(f"is shorter than {_TOKEN} characters", where="--token-file", fix=fix)
    opened = _opened(what, store, runs_home)
    with http_server.listening_socket(host, port) as sock:
        door = server.door_at(sock, host, token)
        url = _url(sock.getsockname(), opened.path, token)
        _say(url, door.token, opened.collection, as_json=as_json)
        if not no_open:
            webbrowser.open(url)
        site = server.Site(opened.collection, door)
        if opened.trace is not None:
            site.warm(opened.trace)
        server.server(site).run(sockets=[sock])


def _opened(what: str | None, store: Path | None, runs_home: Path) -> _Opened:
    from counterpoint.app.viewer.collection import Collection, is_store
    from counterpoint.app.viewer.pages import pages

    home = store_path(store)
    folders = [runs_home, *(Path(page.home) for page in pages() if page.home)]
    if what is None:
        return _Opened(Collection(home, folders=folders), "/")
    path = Path(what).expanduser()
    if path.is_dir():
        if is_store(path):
            return _Opened(Collection(path, folders=folders), "/")
        collection = Collection(home, folders=[path])
        for page in pages():
            if (address := page.opens(collection, path)) is not None:
                return _Opened(collection, address)
    if names_file(what if not what.startswith("~") else path, store):
        traces = _traces(path)
        collection = Collection(traces=traces)
        return _page(collection, traces[0].trace_id) if len(traces) == 1 else _Opened(collection, "/")
    return _named(Collection(home, folders=[runs_home]), what, runs_home)


def _page(collection: Collection, trace_id: str) -> _Opened:
    return _Opened(collection, f"/t/{_part(trace_id)}", trace_id)


def _named(collection: Collection, what: str, runs_home: Path) -> _Opened:
    """The page of a trace or run by its name."""
    from counterpoint.app.viewer.pages import pages

    known = {name: page for page in reversed(pages()) for name in page.folders(collection)}
    for name in (what, (runs_home / what).as_posix()):
        if name in known:
            return _Opened(collection, f"/{known[name].addresses[0]}/{_part(name)}")
    if collection.store is None:
        fix = "name a file, or a store with --store DIR; `counterpoint import` makes one of your sessions"
        raise NotFound(f"no trace or run {what!r}: there is no store at {os.fspath(collection.store_path or '')!r}", fix=fix)
    try:
        return _page(collection, collection.store.find(what))
    except NotFound as error:
        near = [*known, *collection.store.ids()[-1000:]]
        raise NotFound(f"no trace or run {what!r}", where=error.where, fix=did_you_mean(what, near)) from error


def _traces(path: Path) -> list[Trace]:
    """The traces in a file of ours, or in a log of any source that is known."""
    from counterpoint.app.discover import read_logs

    if not path.exists():
        raise NotFound("no such file", where=os.fspath(path), fix="`counterpoint ls` lists what is stored")
    try:
        found = list(read(path)) if path.is_file() else list(read_logs(path))
    except InputError as ours:
        try:
            found = list(read_logs(path)) if path.is_file() else []
        except InputError:
            raise ours from None
        if not found:
            raise
    if not found:
        raise InputError("holds no trace", where=os.fspath(path), fix="`counterpoint import --format list` names the sources")
    return found


def _part(name: str) -> str:
    return quote(name, safe="").replace("..", "%2E%2E")


def _url(address: tuple[Any, ...], path: str, token: str | None) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    return f"http://{host}:{address[1]}{path}" + ("" if token is None else f"?token={quote(token, safe='')}")


def _say(url: str, token: str, collection: Collection, *, as_json: bool) -> None:
    where = None if collection.store_path is None else os.fspath(collection.store_path)
    if as_json:
        emit({"schema": SCHEMA_VERSION, "url": url, "token": token, "store": where, "pid": os.getpid()})
        return
    click.echo(f"Viewer  {url}")
    note("Ctrl-C stops it")
