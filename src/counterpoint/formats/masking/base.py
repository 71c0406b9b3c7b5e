r"""What the finders share: a span, what looks random rather than like a word, where words begin, and a text as it reads.

`Scan` finds where some words may begin in one pass over the bytes: every four bytes in a row are one number, and a table says
for each number whether a word begins so. No place is missed; some are none, and the caller looks again. `view` undoes what
hides a secret: percent-encoding (also twice), \u0041 and \x41, &#65; and &amp;, \/, and characters without width; it reads
again only what surrounds such characters, and knows the place in the text of each of its own.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.formats.masking.patterns import lazy

LABEL = lazy(r"\[masked:(?:key|email|path|personal):[0-9a-f]{4,}\]")
"""What stands where a secret was."""

_TYPES = """any array auto bool
boolean byte bytes char credential date default dict double empty enum false file float function hash hex
input int integer json key lambda list long masked nil none null number object optional or pass passphrase password passwd
path private
public pwd redacted required secret secretstr self set str string super test text this token true tuple type undefined uint
unicode
unknown unset url user username uuid value void yes no not hidden changeme example placeholder dummy todo tbd missing
invalid expired
wrong incorrect blank sensitive unused bearer basic digest oauth oauth2 jwt env environ config settings prompt stdin""".split()  # noqa: SIM905
_WORDS = frozenset(_TYPES)
_FILLERS = ("your", "xxxx", "****", "....", "example", "placeholder", "redacted", "changeme", "dummy", "insert", "env.",
            "masked", "replace",
            "<", "todo", "fixme", "my_", "my-", "some_", "some-", "fake", "sample", "--", "__", "{{", "not_set",
            "notset", "goes_here", "here]")  # fmt: skip
_TEMPLATE = lazy(
    r"\$[A-Za-z_{(]\S*|\$\$.*|[{<\[(].*|%[A-Za-z_(%].*|@[A-Z_]+@|.*\{\{.*\}\}.*|.*\$\{[^}]*\}.*|"
    r".*\$\([^)]*\).*|.*\{[A-Za-z_][\w.]*\}.*"
)


_NAMED = lazy(
    r"(?:[a-z]+[_-]?)?(?:password|passwd|passphrase|secret|token|api[_-]?key|key)[_-]?(?:\d{1,2}|"
    r"here|value|name)?"
)


class SecretSpan(NamedTuple):
    """Where a secret is, its kind (`key`, `email`, `path`, `personal`), the rule that found it, and the secret, plainly."""

    start: int
    end: int
    kind: str
    rule: str
    secret: str = ""


_ENOUGH = 120
"""Characters of a long value that show whether it is random."""
_LONG = 400
"""No filler is longer."""
_DIGIT, _DIGITS = lazy(r"[0-9]"), lazy(r"[0-9]++")
_UPPER, _LOWER, _MARKS = lazy(r"[A-Z]"), lazy(r"[a-z]"), lazy(r"[_./ -]")
# Words of CamelCase, runs of capitals, and numbers; of chance there are about two characters in each.
_PIECES = lazy(r"[A-Z]{1,400}(?![a-z])|[A-Z]?[a-z]{1,400}|[0-9]{1,400}")
_PIECE = 3.5
_SIGN = lazy(r"[!#%*+?@&^~$€§=]")
JOINS, CODE_JOINS = "+&=", "+&=#?@~"
"""Signs that join words, and those that do in code."""
_SIGNED = lazy(r"[A-Za-z][A-Za-z0-9_.,:;-]{0,200}(?:[!#%*+?@&^~$€§=]{1,4}[A-Za-z0-9][A-Za-z0-9_.,:;-]{0,200}){1,8}")
_VOWEL = lazy(r"[aeiouyAEIOUY]")
_SMALL_WORDS = frozenset({
    "a", "i", "x", "y", "ai", "an", "as", "at", "be", "by", "cd", "cn", "db", "do", "en", "go", "gb", "hi", "id", "if", "in",
    "io", "ip", "is", "it", "js", "kb", "mb", "me", "my", "no", "of", "ok", "on", "or", "os", "pc", "pr", "qa", "re", "so", "to",
    "ts", "tv", "ui", "up", "us", "ux", "vm", "vs", "we", "ws", "btn", "cfg", "cmd", "ctrl", "ctx", "dst", "grp", "img", "mgr",
    "msg", "ptr", "pwd", "src", "str", "tmp",
})  # fmt: skip
_TURNS = lazy(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[a-z])")


def every(text: str, needle: str) -> Iterator[int]:
    """Every place of a substring."""
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + len(needle))


def is_word_at(text: str, at: int) -> bool:
    """Whether a word stands right before a place; a line break written out as `\\n` is no part of one."""
    if at == 0 or not text[at - 1].isalnum():
        return False
    return not (text[at - 1] in "nrtb" and text[at - 2 : at - 1] == "\\")


def has_digit(value: str) -> bool:
    """Whether there is a digit in it."""
    return _DIGIT.search(value) is not None


def is_random(value: str) -> bool:
    """Whether letters and digits are mixed as no word, name or number has them."""
    value = value[:_ENOUGH]
    upper, lower = len(_UPPER.findall(value)), len(_LOWER.findall(value))
    if upper + lower < 2:
        return False
    groups = len(_DIGITS.findall(value))
    if groups and not (upper and lower):
        return groups >= max(2, len(value) // 12)
    turns = len(_TURNS.findall(value))
    if groups:
        return groups >= 2 or turns > len(value) // 4
    return upper > 3 and lower > 3 and turns > 0.4 * len(value) and not _MARKS.search(value)


def is_long(value: str) -> bool:
    """Whether a value is as long as keys are and has letters of both cases and a digit: no word, and hardly a path."""
    return len(value) >= 36 and "_" not in value and all(pattern.search(value) for pattern in (_UPPER, _LOWER, _DIGIT))


def is_scrambled(value: str) -> bool:
    """Whether letters of both cases, and digits, change so often that no words in CamelCase stand there."""
    pieces = _PIECES.findall(value)
    is_both = _UPPER.search(value) is not None and _LOWER.search(value) is not None
    return is_both and sum(map(len, pieces)) < _PIECE * len(pieces)


def is_signed(value: str, joins: str = JOINS) -> bool:
    """Whether letters of both cases stand around a sign as in no word, name or expression: `kaktusoFcSv+AxR`, not `Ctrl+Shift`.

    Around signs that join words something must be no word.
    """
    if len(value) < 8 or not (_UPPER.search(value) and _LOWER.search(value)) or not _SIGNED.fullmatch(value):
        return False
    return any(sign not in joins for sign in _SIGN.findall(value)) or any(_is_odd(part) for part in _SIGN.split(value))


def _is_odd(part: str) -> bool:
    """Whether a part between signs is put together of pieces that are no words."""
    pieces = _PIECES.findall(part)
    is_wordless = (len(piece) < 3 or (piece.istitle() and not _VOWEL.search(piece)) for piece in pieces)
    return len(pieces) > 1 and any(
        odd and piece.lower() not in _SMALL_WORDS for piece, odd in zip(pieces, is_wordless, strict=True)
    )


def is_filler(value: str) -> bool:
    """Whether a value stands for one: a word, a type, a template, a row of stars."""
    if len(value) > _LONG:
        return False
    low = value.lower()
    if low.strip("\"'<>()[]{}.,;:!?") in _WORDS or len(set(low)) < 3 or _NAMED.fullmatch(low) or _TEMPLATE.fullmatch(value):
        return True
    return any(part in low for part in _FILLERS) and not (len(value) >= 20 and (is_random(value) or is_long(value)))


# -- where words begin ---------------------------------------------------------------------------------------------------------


_FACTOR = np.uint32(2654435761)  # of multiplicative hashing: the golden ratio of 2**32
_SHIFT = np.uint32(14)
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz")


class Scan:
    """A table of the beginnings of words in lower-case ASCII. A word of three letters ends where no letter follows."""

    def __init__(self, words: Iterable[str]) -> None:
        self._table = np.zeros(1 << 18, bool)
        heads: list[bytes] = []
        for word in words:
            head = word.encode("latin-1")[:4]
            assert len(head) >= 3
            heads += (
                [head]
                if len(head) == 4
                else [head + bytes([c]) for c in range(256) if c not in _LETTERS or head[-1] not in _LETTERS]
            )
        # Not by `np.unique`, which imports masked arrays first.
        self._heads = np.array(sorted({int.from_bytes(head, "little") for head in heads}), "<u4")
        self._table[(self._heads * _FACTOR) >> _SHIFT] = True

    def places(self, low: str) -> list[int]:
        """Every place of a text, whose ASCII letters are in lower case, where a word may begin."""
        data = low.encode("latin-1", "replace") + b"\0\0\0\0"
        numbers: NDArray[np.uint32] = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
        maybe = np.flatnonzero(self._table[(numbers * _FACTOR) >> _SHIFT])
        near = np.searchsorted(self._heads, numbers[maybe])
        hits: list[int] = maybe[self._heads[np.minimum(near, len(self._heads) - 1)] == numbers[maybe]].tolist()
        return hits


# -- a text as it reads --------------------------------------------------------------------------------------------------------


_ESCAPES = (
    r"%(?:25){0,3}[2-7][0-9A-Fa-f]|\\{1,8}(?:u00|x)[2-7][0-9A-Fa-f]|\\{1,8}u\{0{0,4}[2-7][0-9A-Fa-f]\}"
    r"|&#x?[0-9A-Fa-f]{2,4};|&(?:amp|quot|apos|lt|gt);|\\/"
)
_UNSEEN = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e007f"
)
_ESCAPE = lazy(_ESCAPES)
_BEGINS = np.zeros(256, np.uint8)
_GOES_ON = np.zeros(256, np.uint8)
for _bit, _begin, _goes_on in ((1, "%", "234567"), (2, "\\", "ux/\\"), (4, "&", "#aqlg")):
    _BEGINS[ord(_begin)] = _bit
    _GOES_ON[[ord(c) for c in _goes_on]] |= _bit
_HIDDEN = lazy(f"[{_UNSEEN}]{{1,16}}")
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
        begin_at = begin + start - self.at[first] if size == stop - begin else begin
        width = (self.at[last + 1] if last + 1 < len(self.at) else len(self.text)) - self.at[last]
        right = far + end - self.at[last] if width == limit - far else limit
        return begin_at, right


def view(text: str) -> View | None:
    """The odd parts of a text as they read; None where nothing is odd."""
    odd = list(_escapes(text))
    if not text.isascii():
        odd = sorted([*odd, *_hidden(text)], key=lambda match: match.start())
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
    for match in odd:
        begin = max(match.start() - _LEFT, done)
        if begin > limit >= 0:
            put(text[done:limit], done, limit)
            put(SEPARATOR, limit, limit)
            done = max(begin, limit)
        elif limit < 0:
            done = begin
        put(text[done : match.start()], done, match.start())
        put(_read(match[0]), match.start(), match.end())
        done, limit = match.end(), min(len(text), match.end() + _RIGHT)
    put(text[done:limit], done, limit)
    return View("".join(pieces), at, places)


def _escapes(text: str) -> Iterator[re.Match[str]]:
    """Escapes, which begin with one of three characters and go on as few things do."""
    codes = np.frombuffer(text.encode("latin-1", "replace") + b" ", np.uint8)
    begins = np.flatnonzero(_BEGINS[codes[:-1]] != 0)
    begins = begins[(_GOES_ON[codes[begins + 1]] & _BEGINS[codes[begins]]) != 0]
    done = -1
    for place in begins.tolist():
        if place >= done and (match := _ESCAPE.match(text, place)):
            done = match.end()
            yield match


def _hidden(text: str) -> Iterator[re.Match[str]]:
    """Characters without width, in a text that is not ASCII."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    done = -1
    for place in np.flatnonzero(np.isin(codes, _UNSEEN_CODES, kind="table") if len(codes) > 64 else codes >= 0xAD).tolist():
        if place >= done and (match := _HIDDEN.match(text, place)):
            done = match.end()
            yield match


def _read(escape: str) -> str:
    if escape[0] == "%":
        return chr(int(escape[-2:], 16))
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[0] == "\\":
        return "/" if escape[-1] == "/" else chr(int(escape.rstrip("}")[-2:], 16))
    return ""
