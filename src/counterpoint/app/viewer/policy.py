"""What a browser may do with the page: run the scripts that are in it now; nothing is evaluated, or fetched from elsewhere.

Always true: the policy names the sha256 of every script of the page that runs, so a script that gets in by a text does not.
"""

from __future__ import annotations

import base64
import hashlib
import re

_SCRIPT = re.compile(r"<script(?P<head>[^>]*)>(?P<body>.*?)</script\s*>", re.S | re.I)
_DATA = re.compile(r"""type\s*=\s*["']?(?!module|text/javascript|application/javascript)[\w/+.-]+""", re.I)


def policy(page: str, *, own: str = "'none'", frames: bool = True) -> str:
    """The content security policy of a page. `own` is what it may reach: nothing, or the server that gave it out; `frames` says
    whether others may show it in theirs (which only a header can forbid)."""
    runs = [found["body"] for found in _SCRIPT.finditer(page) if not _DATA.search(found["head"])]
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" for body in runs]
    parts = {
        "default-src": "'none'",
        "script-src": " ".join(hashes) or "'none'",
        # Styles come with the page and are set by it; no text of a trace ever becomes markup or style.
        "style-src": "'unsafe-inline'",
        "connect-src": own,
        "img-src": "data: blob:" if own == "'none'" else f"{own} data: blob:",
        "font-src": "data:",
        "worker-src": "blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
        **({} if frames else {"frame-ancestors": "'none'"}),
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())
