"""The one page and its head: what the browser may do with it, and how it begins.

Always true: only scripts whose sha256 is in the policy run, nothing is evaluated, and nothing is fetched from anywhere but this
server; the page is never kept by the browser, for it carries the write token. Where it is not built, a page says how.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response

__all__ = ["PAGE", "Shell"]

PAGE = Path(__file__).parent / "page" / "viewer.html"
_PLACE = "<!--counterpoint-data-->"
_SCRIPT = re.compile(r"<script(?P<head>[^>]*)>(?P<body>.*?)</script\s*>", re.S | re.I)
_DATA = re.compile(r"""type\s*=\s*["']?(?!module|text/javascript|application/javascript)[\w/+.-]+""", re.I)
_MISSING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Counterpoint: the page is not built</title>
<body style="font: 16px/1.5 system-ui; max-width: 40rem; margin: 4rem auto; padding: 0 1rem">
<h1>The page is not built</h1>
<p>This copy of Counterpoint has no <code>viewer.html</code>. Installed packages carry it; a checkout builds it with Node:</p>
<pre>make page</pre><p>Then reload. What the page would show is at <a href="/api/traces">/api/traces</a>.</p></body></html>"""


class Shell:
    """The page as it is served."""

    def __init__(self, boot: dict[str, Any], page: Path = PAGE) -> None:
        """Reads the page once; `boot` is what it is told to begin with."""
        self.is_built = page.is_file()
        text = page.read_text(encoding="utf-8") if self.is_built else _MISSING
        self._policy = _policy(_hashes(text))
        # Without a "<" no value, whatever it holds, can end the block that it stands in.
        told = msgspec.json.encode(boot).decode().replace("<", "\\u003c")
        block = f'<script type="application/json" id="counterpoint-boot">{told}</script>'
        self._body = (text.replace(_PLACE, block, 1) if self.is_built else text).encode()

    def response(self) -> Response:
        """The page."""
        headers = {"content-security-policy": self._policy, "cache-control": "no-store"}
        return Response(self._body, 200 if self.is_built else 503, headers, "text/html; charset=utf-8")


def _hashes(page: str) -> list[str]:
    """The sha256 of every script in the page that runs."""
    runs = [m["body"] for m in _SCRIPT.finditer(page) if not _DATA.search(m["head"])]
    return ["sha256-" + base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in runs]


def _policy(hashes: list[str]) -> str:
    scripts = " ".join(f"'{one}'" for one in hashes) or "'none'"
    parts = {
        "default-src": "'none'",
        "script-src": scripts,
        # Styles come with the page and are set by it; no text of a trace ever becomes markup or style.
        "style-src": "'unsafe-inline'",
        "connect-src": "'self'",
        "img-src": "'self' data: blob:",
        "font-src": "data:",
        "worker-src": "blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())
