"""A text as it reads: without what nobody sees, and with escapes undone.

Always true: only the surroundings of odd characters are read again; each view knows the place in the text of each of its
characters.
Undone are percent-encoding (also twice), \\u0041 and \\x41, &#65; and &amp;, \\/, and characters without width.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_ESCAPES = (
    r"%(?:25){0,3}[2-7][0-9A-Fa-f]|\\{1,8}(?:u00|x)[2-7][0-9A-Fa-f]|\\{1,8}u\{0{0,4}[2-7][0-9A-Fa-f]\}"
    r"|&#x?[0-9A-Fa-f]{2,4};|&(?:amp|quot|apos|lt|gt);|\\/"
)
_UNSEEN = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e007f"
)
_ESCAPE = re.compile(_ESCAPES)
_BEGINS = np.zeros(256, np.uint8)
_GOES_ON = np.zeros(256, np.uint8)
for _bit, _begin, _goes_on in ((1, "%", "234567"), (2, "\\", "ux/\\"), (4, "&", "#aqlg")):
    _BEGINS[ord(_begin)] = _bit
    _GOES_ON[[ord(c) for c in _goes_on]] |= _bit
_HIDDEN = re.compile(f"[{_UNSEEN}]{{1,16}}")
_UNSEEN_CODES = np.array(
    [c for c in (*range(0xAD, 0x3200), *range(0xFE00, 0xFFFF), *range(0xE0000, 0xE0080)) if _HIDDEN.match(chr(c))], np.uint32
)
_LEFT, _RIGHT = 160, 400
SEPARATOR = "\n\0\n"


class View(NamedTuple):
    """Pieces of a text as they read, and where they are from."""

    text: str
    at: list[int]
    """Where each piece begins here."""
    places: list[tuple[int, int]]
    """Where each piece begins and ends in the text."""

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Where in the text a part of the view is."""
        first, last = bisect_right(self.at, start) - 1, bisect_right(self.at, end - 1) - 1
        (begin, stop), (far, limit) = self.places[first], self.places[last]
        size = (self.at[first + 1] if first + 1 < len(self.at) else len(self.text)) - self.at[first]
        left = begin + start - self.at[first] if size == stop - begin else begin
        width = (self.at[last + 1] if last + 1 < len(self.at) else len(self.text)) - self.at[last]
        right = far + end - self.at[last] if width == limit - far else limit
        return left, right


def view(text: str) -> View | None:
    """The odd parts of a text as they read; None where nothing is odd."""
    odd = list(_escapes(text))
    if not text.isascii():
        odd = sorted([*odd, *_hidden(text)], key=lambda found: found.start())
    if not odd:
        return None
    pieces: list[str] = []
    at: list[int] = []
    places: list[tuple[int, int]] = []
    size = done = 0

    def put(piece: str, begin: int, end: int) -> None:
        nonlocal size
        if piece:
            pieces.append(piece)
            at.append(size)
            places.append((begin, end))
            size += len(piece)

    limit = -1
    for found in odd:
        begin = max(found.start() - _LEFT, done)
        if begin > limit >= 0:
            put(text[done:limit], done, limit)
            put(SEPARATOR, limit, limit)
            done = max(begin, limit)
        elif limit < 0:
            done = begin
        put(text[done : found.start()], done, found.start())
        put(_read(found[0]), found.start(), found.end())
        done, limit = found.end(), min(len(text), found.end() + _RIGHT)
    put(text[done:limit], done, limit)
    return View("".join(pieces), at, places)


def _escapes(text: str) -> Iterator[re.Match[str]]:
    """Escapes, which begin with one of three characters and go on as few things do."""
    codes = np.frombuffer(text.encode("latin-1", "replace") + b" ", np.uint8)
    begins = np.flatnonzero(_BEGINS[codes[:-1]] != 0)
    begins = begins[(_GOES_ON[codes[begins + 1]] & _BEGINS[codes[begins]]) != 0]
    done = -1
    for place in begins.tolist():
        if place >= done and (found := _ESCAPE.match(text, place)):
            done = found.end()
            yield found


def _hidden(text: str) -> Iterator[re.Match[str]]:
    """Characters without width, in a text that is not ASCII."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    done = -1
    for place in np.flatnonzero(np.isin(codes, _UNSEEN_CODES, kind="table") if len(codes) > 64 else codes >= 0xAD).tolist():
        if place >= done and (found := _HIDDEN.match(text, place)):
            done = found.end()
            yield found


def _read(escape: str) -> str:
    if escape[0] == "%":
        return chr(int(escape[-2:], 16))
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[0] == "\\":
        return "/" if escape[-1] == "/" else chr(int(escape.rstrip("}")[-2:], 16))
    return ""
