"""Every secret in a text.

Always true: spans are in order and do not overlap; the time is linear in the text; our own labels are no secret. A text is
read as it
stands and, around odd characters, as it reads (`views`); a secret that is found twice is the longer of the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from counterpoint.formats.masking.assigned import assigned
from counterpoint.formats.masking.base import LABEL, SecretSpan
from counterpoint.formats.masking.blocks import BLOCKS
from counterpoint.formats.masking.forms import FORMS, attached, pgpass
from counterpoint.formats.masking.names import NAME_WORDS, Name, foreign_names, name_at
from counterpoint.formats.masking.people import emails, homes
from counterpoint.formats.masking.scan import Scan
from counterpoint.formats.masking.tokens import BREAK, broken_tokens, is_beginning, is_tail, runs, tokens
from counterpoint.formats.masking.views import view

_RUN = re.compile(r"[A-Za-z0-9_+/=.~$-]{1,2000}+")
_HANDLERS: dict[str, list[tuple[str, Callable[[str, int], Iterator[SecretSpan]]]]] = {}
for _word, _handler in (*FORMS, *BLOCKS):
    _HANDLERS.setdefault(_word[:4], []).append((_word, _handler))
for _head, _some in _HANDLERS.items():  # a word of three letters is found by the four of a longer one too
    if len(_head) == 4:
        _some += _HANDLERS.get(_head[:3], [])
_NAME_HEADS = frozenset(word[:4] for word in NAME_WORDS)
_SCAN = Scan([*NAME_WORDS, *(word for word, _ in (*FORMS, *BLOCKS))])


def spans(text: str, low: str | None = None, *, is_quick: bool = False) -> list[SecretSpan]:
    """Every secret in a text; `low` is it with ASCII letters in lower case. A quick look does not read odd characters and broken
    lines again."""
    found = list(_raw(text, low, is_quick=is_quick))
    odd = None if is_quick else view(text)
    if odd is not None:
        for span in _raw(odd.text, None, is_quick=False):
            start, end = odd.place(span.start, span.end)
            if "\0" not in span.secret and end > start:
                found.append(span._replace(start=start, end=end))
    return _apart(text, found)


def _raw(text: str, low: str | None, *, is_quick: bool) -> Iterator[SecretSpan]:
    if low is None:
        low = text.lower() if text.isascii() else text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
    begun: set[int] = set()
    for span in _keys(text, low, is_quick=is_quick):
        begun.add(span.start)
        yield span if is_quick else _extended(text, span)
    yield from (span for span in emails(text) if span.start not in begun)  # name:password@host is no address
    yield from homes(text)


def _keys(text: str, low: str, *, is_quick: bool) -> Iterator[SecretSpan]:
    found = runs(text)
    whole = tokens(text, found)
    yield from whole
    if not is_quick:
        yield from broken_tokens(text, found, whole)
    named: list[Name] = []
    done: dict[str, int] = {}
    for place in _SCAN.places(low):
        head = low[place : place + 4]
        if (head in _NAME_HEADS or head[:3] in _NAME_HEADS) and (name := name_at(text, low, place)):
            named.append(name)
        for word, handler in _HANDLERS.get(head) or _HANDLERS.get(head[:3]) or ():
            if place >= done.get(word, 0) and low.startswith(word, place):
                for span in handler(text, place):
                    done[word] = max(done.get(word, 0), span.end)
                    yield span
    if not is_quick and not text.isascii():
        named = sorted([*named, *foreign_names(text, low)])
    yield from assigned(text, named)
    yield from pgpass(text)
    yield from attached(text)


def _extended(text: str, span: SecretSpan) -> SecretSpan:
    """A secret that a line break cuts: with its rest, where that looks like one."""
    gone = BREAK.match(text, span.end)
    if gone is None or "\n" in span.secret:
        return span
    rest = _RUN.match(text, gone.end())
    if (
        rest is None
        or not is_tail(rest[0])
        or len(rest[0]) < 8
        or text[rest.end() : rest.end() + 1] in ("=", ":", "(")
        or is_beginning(text, gone.end())
    ):
        return span
    if not is_tail(span.secret[-16:]):
        return span
    return span._replace(end=rest.end(), secret=span.secret + rest[0])


def _apart(text: str, found: list[SecretSpan]) -> list[SecretSpan]:
    """In order, without overlap, and without labels of ours."""
    if not found:
        return found
    labels = [label.span() for label in LABEL.finditer(text)] if "[masked:" in text else []
    found = [span for span in found if span.end > span.start and not any(a < span.end and span.start < b for a, b in labels)]
    found.sort(key=lambda span: (span.start, -span.end, span.kind != "key"))
    apart: list[SecretSpan] = []
    for span in found:
        last = apart[-1] if apart else None
        if last is None or span.start >= last.end:
            apart.append(span)
        elif span.end > last.end:
            apart[-1] = last._replace(end=span.end, secret=text[last.start : span.end])
        elif (span.start, span.end) == (last.start, last.end) and len(span.secret) < len(last.secret):
            apart[-1] = last._replace(secret=span.secret)  # the plainer of two readings
    return apart
