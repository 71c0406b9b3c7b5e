"""A trace on view from Python: a frame in a notebook, a local server elsewhere, a file to hand on.

Always true: what is framed or saved is the one-file page, masked unless told otherwise; the frame is a sandbox of its own, so
nothing in a trace reaches the notebook around it. The server gives out this trace alone, to this machine alone, until closed.
"""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from counterpoint.app.viewer.card import card as drawn
from counterpoint.app.viewer.one_file import OneFile, one_file
from counterpoint.credit.rows import agent_shares
from counterpoint.errors import CounterpointError, Refused
from counterpoint.files import put
from counterpoint.formats.masking import masked as without_secrets
from counterpoint.trace import Trace

_FRAMED = 8_000_000
"""A notebook keeps what it shows, so a frame is smaller than a file may be."""


class Frame:
    """The viewer as a notebook shows it."""

    def __init__(self, page: bytes, height: int) -> None:
        self._page, self._height = page.decode(), height

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{int(self._height)}px;border:1px solid #8884;border-radius:6px"
        rights = "allow-scripts allow-downloads allow-popups"
        return f'<iframe title="Counterpoint" sandbox="{rights}" style="{style}" srcdoc="{escape(self._page)}"></iframe>'

    def __repr__(self) -> str:
        return f"<Frame of the viewer, {len(self._page):,} characters>"


class Viewing:
    """The viewer on a local server, until `close`."""

    def __init__(self, trace: Trace) -> None:
        # Starlette and uvicorn are an extra, and only a server needs them.
        try:
            from counterpoint.app import serving
            from counterpoint.app.viewer import server
            from counterpoint.app.viewer.collection import Collection
        except ImportError as error:
            fix = "pip install 'counterpoint[view]', or trace.save_html('trace.html')"
            raise CounterpointError(f"the viewer's server needs {error.name}", fix=fix) from error
        sock = serving.bound("127.0.0.1", 0)
        site = server.Site(Collection(traces=[trace]), server.door_at(sock, "127.0.0.1"))
        self._server = server.server(site)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [sock]}, daemon=True, name="viewer")
        self._thread.start()
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}/t/{quote(trace.trace_id, safe='')}"

    def close(self) -> None:
        """Stop the server."""
        self._server.should_exit = True
        self._thread.join(timeout=5)

    def __repr__(self) -> str:
        return f"<Viewing {self.url}, until close()>"


def card(trace: Trace) -> str:
    """The picture that a notebook shows of a trace: a card, lanes and, where there is a reward, the credit bar."""
    return drawn(trace, agent_shares(trace))


def save_html(trace: Trace, path: str | os.PathLike[str], *, masked: bool = True, overwrite: bool = True) -> Path:
    """Write the one-file page."""
    target = Path(path)
    put([(target, _page(trace, masked=masked).data)], overwrite=overwrite)
    return target


def view(trace: Trace, *, height: int = 640, masked: bool = True, is_opened: bool = True) -> Frame | Viewing:
    """A frame where a notebook shows it, else a server with a browser before it."""
    if _in_notebook():
        made = _page(trace, masked=masked)
        if len(made.data) > _FRAMED:
            made = _page(trace, masked=masked, is_summary=True)
        if len(made.data) > _FRAMED:
            size = f"the page has {len(made.data) / 1e6:,.0f} MB"
            raise Refused(size, why="a notebook keeps what it shows", fix="trace.save_html('trace.html'), or counterpoint view")
        return Frame(made.data, height)
    viewing = Viewing(trace)
    if is_opened:
        webbrowser.open(viewing.url)
    return viewing


def _page(trace: Trace, *, masked: bool, is_summary: bool = False) -> OneFile:
    secrets: Counter[str] | None = None
    if masked:
        trace, secrets = without_secrets(trace)
    return one_file([trace], masked=secrets, is_summary=is_summary)


def _in_notebook() -> bool:
    """Whether a front end shows what a cell gives: IPython with a kernel, which is loaded then already."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
