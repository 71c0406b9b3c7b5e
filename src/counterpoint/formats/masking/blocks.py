"""Private keys: blocks between BEGIN and END of any kind, cut off at either end, written in one line, or in base64 once more.

Always true: a block reaches at most `_LONGEST` characters from the words that name it; a public key and a certificate are none.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from counterpoint.formats.masking.base import SecretSpan

_LONGEST = 1 << 15
_HEAD = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 _-]{0,40}\Z")
_FOOT = re.compile(r"-{4,5} ?END [A-Z0-9 _-]{0,40}\Z")
_REST = re.compile(r"[A-Za-z0-9 ]{0,20}-{4,5}")
_END = re.compile(r"-{4,5} ?END [A-Z0-9 _-]{0,60}-{4,5}")
# A body goes on over base64, headers, and line breaks, real or written out; quotes and signs of a string that goes on are
# part of it.
_BODY = re.compile(r"(?:\\{1,8}[nrt]|[A-Za-z0-9+/=\s,:;.>|*#\"'`\\+-]){0,32768}+")
_TIGHT = re.compile(r"(?:\\{1,8}[nrt]|[A-Za-z0-9+/=\s]){0,32768}+")
_LINE = re.compile(r"[A-Za-z0-9+/=]{30,}|(?:[A-Za-z0-9+/=]{8,}(?:\s|\\{1,8}[nr])+){3,}")
_PUTTY = re.compile(
    r"private-lines: ?\d{1,4}(?P<value>(?:\s|\\{1,4}[nr]|[A-Za-z0-9+/=]){40,20000})(?:private-mac: ?[0-9a-f]{20,80})?",
    re.IGNORECASE,
)
_TWICE = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/_-]{20,16000}(?:(?:\s|\\n){1,20}[A-Za-z0-9+/_-]{40,80}){0,400}={0,2}")
_XML = re.compile(r"<(?P<tag>D|P|Q|DP|DQ|InverseQ)>(?P<value>[A-Za-z0-9+/=\s]{20,2000})</(?P=tag)>")


def _private_key(text: str, at: int) -> Iterator[SecretSpan]:
    """Around the words PRIVATE KEY or PGP MESSAGE that stand in a line of hyphens."""
    rest = _REST.match(text, at + 11)
    if rest is None:
        return
    head = _HEAD.search(text, max(0, at - 60), at)
    if head is None:
        foot = _FOOT.search(text, max(0, at - 60), at)
        if foot is not None and text.rfind("BEGIN", max(0, foot.start() - _LONGEST), foot.start()) < 0:
            start = _back(text, foot.start())
            if foot.start() - start >= 40:
                yield SecretSpan(start, rest.end(), "key", "private-key", text[start : rest.end()])
        return
    foot_at = text.find("END ", rest.end(), rest.end() + _LONGEST)
    end = _END.search(text, max(rest.end(), foot_at - 6), foot_at + 80) if foot_at >= 0 else None
    again = text.find("-----BEGIN ", rest.end(), end.start() if end else rest.end() + _LONGEST)
    body = (_BODY if end else _TIGHT).match(text, rest.end())
    stop = body.end() if body else rest.end()
    if end is not None and again < 0 and (stop >= end.start() or end.start() - rest.end() < 1 << 14):
        stop = end.end()
    elif again >= 0:
        stop = min(stop, again)
    if _LINE.search(text, rest.end(), stop):
        yield SecretSpan(head.start(), stop, "key", "private-key", text[head.start() : stop])


def _back(text: str, end: int) -> int:
    """Where the base64 that ends at a place begins."""
    start = max(0, end - 8192)
    piece = text[start:end]
    bare = piece.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n\\ \t")
    at = start + len(bare)
    # Words of a sentence before it are none of the key: it begins at its first long line.
    first = re.compile(r"[A-Za-z0-9+/=]{16,}").search(text, at, end)
    return first.start() if first else end


def _putty(text: str, at: int) -> Iterator[SecretSpan]:
    if found := _PUTTY.match(text, at):
        yield SecretSpan(found.start("value"), found.end(), "key", "private-key", text[found.start("value") : found.end()])


def _twice(text: str, at: int) -> Iterator[SecretSpan]:
    """Base64 of a block: of a key, not of a certificate."""
    found = _TWICE.match(text, at)
    if not found:
        return
    try:
        begin = base64.b64decode(re.sub(r"[^A-Za-z0-9+/]", "", found[0])[:80])
    except (binascii.Error, ValueError):
        return
    if b"PRIVATE" in begin:
        yield SecretSpan(*found.span(), "key", "private-key-base64", found[0])


def _xml_key(text: str, at: int) -> Iterator[SecretSpan]:
    for found in _XML.finditer(text, at, at + 6000):
        yield SecretSpan(*found.span("value"), "key", "private-key", found["value"])


BLOCKS = (
    ("private key", _private_key), ("pgp message", _private_key), ("secret key b", _private_key), ("private-lines", _putty),
    ("ls0tls1crudjti", _twice), ("<rsakeyvalue", _xml_key),
)  # fmt: skip
"""A fixed word in lower case, and what looks for the block around it."""
