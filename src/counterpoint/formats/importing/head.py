"""How a JSON file begins: the top-level keys of its first object, though the head may end anywhere.

Always true: nothing here raises; what comes after the first object, or is cut off, says nothing.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_COLON = re.compile(rb"\s*:\s*")
_SHOWN = 64


def first_keys(head: bytes) -> dict[str, bytes]:
    """Key to how its value begins, for the object that the bytes begin with (or the first one of a list of objects)."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] == b"[":
        text = text[1:].lstrip()
    found: dict[str, bytes] = {}
    if text[:1] != b"{":
        return found
    depth = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 0:
                break
        elif depth == 1 and (colon := _COLON.match(text, token.end())):
            found.setdefault(mark[1:-1].decode("utf-8", "replace"), text[colon.end() : colon.end() + _SHOWN])
    return found
