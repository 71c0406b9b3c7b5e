"""The one page and its head: what the browser may do with it, and how it begins.

Always true: only scripts whose sha256 is in the policy run, nothing is evaluated, and nothing is fetched from anywhere but this
server; the page is never kept by the browser, for it carries the write token. Where it is not built, a page says how.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response

from counterpoint.app.viewer.policy import policy

PAGE = Path(__file__).parent / "page" / "viewer.html"
_PLACE = "<!--counterpoint-data-->"
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
        self._policy = policy(text, own="'self'", frames=False)
        # Without a "<" no value, whatever it holds, can end the block that it stands in.
        told = msgspec.json.encode(boot).decode().replace("<", "\\u003c")
        block = f'<script type="application/json" id="counterpoint-boot">{told}</script>'
        self._body = (text.replace(_PLACE, block, 1) if self.is_built else text).encode()

    def response(self) -> Response:
        """The page."""
        headers = {"content-security-policy": self._policy, "cache-control": "no-store"}
        return Response(self._body, 200 if self.is_built else 503, headers, "text/html; charset=utf-8")
