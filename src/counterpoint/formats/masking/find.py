"""Every secret in a text: private keys here; tokens, assigned values, notations, tables, prose and people in the modules beside.

A text is read as it stands and, around odd characters, as it reads (`view`); a secret that is found twice is the longer of
the two. A block of a private key reaches at most `_LONGEST` characters from the words that name it; a public key and a
certificate are no secrets.

Always true: spans are in order and do not overlap; the time is linear in the text; our own labels are no secret.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from counterpoint.formats.masking.assignments import assignments
from counterpoint.formats.masking.base import LABEL, Scan, SecretSpan, view
from counterpoint.formats.masking.encodings import encoded_secrets
from counterpoint.formats.masking.forms import FORMS, attached, pgpass
from counterpoint.formats.masking.names import NAME_WORDS, SPOKEN, Name, foreign_names, loose_at, name_at
from counterpoint.formats.masking.patterns import lazy
from counterpoint.formats.masking.people import emails, homes
from counterpoint.formats.masking.personal import personal
from counterpoint.formats.masking.prose import PROSE, passwords_in_prose
from counterpoint.formats.masking.seeds import SEEDS
from counterpoint.formats.masking.tables import TABLES, columns
from counterpoint.formats.masking.tokens import BREAK, broken_tokens, is_beginning, is_tail, runs, tokens

# -- private keys --------------------------------------------------------------------------------------------------------------


_LONGEST = 1 << 15
_BLOCK_HEAD = lazy(r"-{4,5} ?BEGIN [A-Z0-9 _-]{0,40}\Z")
_BLOCK_FOOT = lazy(r"-{4,5} ?END [A-Z0-9 _-]{0,40}\Z")
_REST = lazy(r"[A-Za-z0-9 ]{0,20}-{4,5}")
_BLOCK_END = lazy(r"-{4,5} ?END [A-Z0-9 _-]{0,60}-{4,5}")
# A body goes on over base64, headers, and line breaks, real or written out; quotes and signs of a string that goes on are
# part of it.
_BLOCK_BODY = lazy(r"(?:\\{1,8}[nrt]|[A-Za-z0-9+/=\s,:;.>|*#\"'`\\+-]){0,32768}+")
_TIGHT = lazy(r"(?:\\{1,8}[nrt]|[A-Za-z0-9+/=\s]){0,32768}+")
_LINE = lazy(r"[A-Za-z0-9+/=]{30,}|(?:[A-Za-z0-9+/=]{8,}(?:\s|\\{1,8}[nr])+){3,}")
_PUTTY = lazy(
    r"private-lines: ?\d{1,4}(?P<value>(?:\s|\\{1,4}[nr]|[A-Za-z0-9+/=]){40,20000})(?:private-mac: ?[0-9a-f]{20,80})?",
    re.IGNORECASE,
)
_TWICE = lazy(r"LS0tLS1CRUdJTi[A-Za-z0-9+/_-]{20,16000}(?:(?:\s|\\n){1,20}[A-Za-z0-9+/_-]{40,80}){0,400}={0,2}")
_XML = lazy(r"<(?P<tag>D|P|Q|DP|DQ|InverseQ)>(?P<value>[A-Za-z0-9+/=\s]{20,2000})</(?P=tag)>")


def _private_key(text: str, at: int) -> Iterator[SecretSpan]:
    """Around the words PRIVATE KEY or PGP MESSAGE that stand in a line of hyphens."""
    rest = _REST.match(text, at + 11)
    if rest is None:
        return
    head = _BLOCK_HEAD.search(text, max(0, at - 60), at)
    if head is None:
        foot = _BLOCK_FOOT.search(text, max(0, at - 60), at)
        if foot is not None and text.rfind("BEGIN", max(0, foot.start() - _LONGEST), foot.start()) < 0:
            start = _back(text, foot.start())
            if foot.start() - start >= 40:
                yield SecretSpan(start, rest.end(), "key", "private-key", text[start : rest.end()])
        return
    foot_at = text.find("END ", rest.end(), rest.end() + _LONGEST)
    end = _BLOCK_END.search(text, max(rest.end(), foot_at - 6), foot_at + 80) if foot_at >= 0 else None
    again = text.find("-----BEGIN ", rest.end(), end.start() if end else rest.end() + _LONGEST)
    body = (_BLOCK_BODY if end else _TIGHT).match(text, rest.end())
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
    # Words of a sentence before it are no part of the key: it begins at its first long line.
    first = re.compile(r"[A-Za-z0-9+/=]{16,}").search(text, at, end)
    return first.start() if first else end


def _putty(text: str, at: int) -> Iterator[SecretSpan]:
    if match := _PUTTY.match(text, at):
        yield SecretSpan(match.start("value"), match.end(), "key", "private-key", text[match.start("value") : match.end()])


def _twice(text: str, at: int) -> Iterator[SecretSpan]:
    """Base64 of a block: of a key, not of a certificate."""
    match = _TWICE.match(text, at)
    if not match:
        return
    try:
        begin = base64.b64decode(re.sub(r"[^A-Za-z0-9+/]", "", match[0])[:80])
    except (binascii.Error, ValueError):
        return
    if b"PRIVATE" in begin:
        yield SecretSpan(*match.span(), "key", "private-key-base64", match[0])


def _xml_key(text: str, at: int) -> Iterator[SecretSpan]:
    for match in _XML.finditer(text, at, at + 6000):
        yield SecretSpan(*match.span("value"), "key", "private-key", match["value"])


_BLOCKS = (
    ("private key", _private_key), ("pgp message", _private_key), ("secret key b", _private_key), ("private-lines", _putty),
    ("ls0tls1crudjti", _twice), ("<rsakeyvalue", _xml_key),
)  # fmt: skip
"""A fixed word in lower case, and what looks for the block around it."""


# -- everything ----------------------------------------------------------------------------------------------------------------


_RUN = lazy(r"[A-Za-z0-9_+/=.~$-]{1,2000}+")
_FIXED = (*FORMS, *SEEDS, *TABLES, *PROSE, *_BLOCKS)
# A word is looked for by its first four characters; one that begins like many others, by four that stand further on in it.
_INNER = {
    "from_key(": 5, "fromsecretkey": 4, "fromprivatekey": 4, "importprivkey": 6, "requirepass": 7, "masterauth": 6,
    "generate_password_hash(": 9, "make_password(": 5, "assemblyai": 6, "deepgram": 2, "amplitude": 3, "bindpw": 2,
    "release_cookie": 8, "codes de secours": 10, "codici di": 2, "contrasena": 5, "contraseña": 5,
    "printf ": 2, "openssl": 2, "redis-cli": 3, "backup": 2, "backup code": 2, "backup-code": 2, "backup_code": 2,
}  # fmt: skip
_TICKETS = ("?ticket", "&ticket", ";ticket")
"""The word is a name in an address only."""
_NAMED = (*(word for word in NAME_WORDS if word != "ticket"), "contraseña")
# Names that begin like many other words (path, side, design) are most of what there is to look at, and hardly ever a secret.
_RARE_NAMES = frozenset(
    {"pin", "pat", "sas", "sig", "sid", "otp", "psk", "signature", "session", "sessid", "sessionid", "session_id", "session-id"}
)
_SAID_RARELY = _RARE_NAMES | {"auth", "cred", "cookie", "webhook", "ticket", "jwt", "hmac", "csrf", "xsrf"}
_GIVEN = lazy(r"(?:\\{0,4}[\"'`])?[:=]")
_FIELD_NEXT = " ,;|\t\r\n\"'`.*)]\\s_-0123456789"


def _inner(word: str) -> str:
    return word[_INNER.get(word, 0) :]


_SCAN = Scan([*map(_inner, _NAMED), *_TICKETS, *(_inner(word) for word, _ in _FIXED)])
_QUICK_SCAN = Scan([
    *(_inner(w) for w in _NAMED if w not in _RARE_NAMES), *_TICKETS, *(_inner(word) for word, _ in _FIXED)
])  # fmt: skip


class _Trigger(NamedTuple):
    """What four characters may be part of."""

    names: tuple[int, ...]
    """How far before them a name begins."""
    is_loose: bool
    """Whether the name may be a field of a table or a word of a sentence."""
    handlers: tuple[tuple[str, Callable[[str, int], Iterator[SecretSpan]], int, int], ...]
    """A fixed word, what looks for the secret behind it, the handler's number, and how far before them the word begins."""


def _by_head() -> dict[str, _Trigger]:
    """Each beginning of a word, with what it may be part of."""
    words: dict[str, list[str]] = {}
    fixed: dict[str, list[tuple[str, Callable[[str, int], Iterator[SecretSpan]], int, int]]] = {}
    for word in _NAMED:
        words.setdefault(_inner(word)[:4], []).append(word)
    for k, (word, handler) in enumerate(_FIXED):
        fixed.setdefault(_inner(word)[:4], []).append((word, handler, k, _INNER.get(word, 0)))
    tickets = {word[:4] for word in _TICKETS}
    return {
        head: _Trigger(
            tuple({_INNER.get(word, 0) for word in words.get(head, ())} | ({-1} if head in tickets else set())),
            any(word not in _SAID_RARELY for word in words.get(head, ())),
            tuple(fixed.get(head, ())),
        )
        for head in {*words, *fixed, *tickets}
    }


_BY_HEAD = _by_head()
_NONE = _Trigger((), False, ())


class _Triggers(dict[str, _Trigger]):
    """Triggers by four characters; a word of three is found by the four of a longer one too."""

    def __missing__(self, head: str) -> _Trigger:
        whole, three = _BY_HEAD.get(head, _NONE) if len(head) == 4 else _NONE, _BY_HEAD.get(head[:3], _NONE)
        names = tuple({*whole.names, *three.names})
        is_loose = whole.is_loose or (three.is_loose and head[3:] in _FIELD_NEXT)
        trigger = _Trigger(names, is_loose, (*whole.handlers, *three.handlers))
        if head.isascii():
            self[head] = trigger
        return trigger


_TRIGGERS = _Triggers()


def spans(text: str, low: str | None = None, *, is_quick: bool = False, is_personal: bool = False) -> list[SecretSpan]:
    """Every secret in a text, and with `is_personal` what says who somebody is; `low` is it with ASCII letters in lower case. A
    quick look does not read odd characters and broken lines again."""
    secrets = list(_raw(text, low, is_quick=is_quick))
    if is_personal:
        secrets += personal(text)
    odd = None if is_quick else view(text)
    if odd is not None:
        for span in _raw(odd.text, None, is_quick=False):
            start, end = odd.place(span.start, span.end)
            if "\0" not in span.secret and end > start:
                secrets.append(span._replace(start=start, end=end))
    return _apart(text, secrets)


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
    text_runs = runs(text)
    whole = tokens(text, text_runs)
    yield from whole
    if not is_quick:
        yield from broken_tokens(text, text_runs, whole)
    named: list[Name] = []
    fields: list[Name] = []
    spoken: list[Name] = []
    done: dict[int, int] = {}
    for place in (_QUICK_SCAN if is_quick else _SCAN).places(low):
        trigger = _TRIGGERS[low[place : place + 4]]
        for before in trigger.names:
            at = place - before
            name = name_at(text, low, at) if at >= 0 else None
            if name:
                named.append(name)
            is_loose = not is_quick and trigger.is_loose and (name is None or not _GIVEN.match(text, name.end))
            if is_loose and at >= 0 and (loose := loose_at(text, low, at)):
                spoken.append(loose.name)
                if loose.is_field:
                    fields.append(loose.name)
        for word, handler, k, before in trigger.handlers:
            at = place - before
            if at >= done.get(k, 0) and low.startswith(word, at):
                for span in handler(text, at):
                    done[k] = max(done.get(k, 0), span.end)
                    yield span
    if not is_quick and not text.isascii():
        named = sorted([*named, *foreign_names(text, low)])
    yield from columns(text, fields)
    yield from passwords_in_prose(text, [name for name in (*spoken, *named) if name.word in SPOKEN])
    yield from assignments(text, named)
    yield from pgpass(text)
    yield from attached(text)
    if not is_quick:
        yield from encoded_secrets(text, text_runs, _is_telling)


def _is_telling(plain: str) -> bool:
    """Whether a text that was in other clothes holds a key."""
    low = plain.lower()
    text_runs = runs(plain)
    if tokens(plain, text_runs):
        return True
    named = [
        name
        for place in _SCAN.places(low)
        for before in _TRIGGERS[low[place : place + 4]].names
        if place >= before and (name := name_at(plain, low, place - before))
    ]
    return next(iter(assignments(plain, named)), None) is not None


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


def _apart(text: str, secrets: list[SecretSpan]) -> list[SecretSpan]:
    """In order, without overlap, and without labels of ours."""
    if not secrets:
        return secrets
    labels = [label.span() for label in LABEL.finditer(text)] if "[masked:" in text else []
    secrets = [span for span in secrets if span.end > span.start and not any(a < span.end and span.start < b for a, b in labels)]
    secrets.sort(key=lambda span: (span.start, -span.end, span.kind != "key"))
    apart: list[SecretSpan] = []
    for span in secrets:
        last = apart[-1] if apart else None
        if last is None or span.start >= last.end:
            apart.append(span)
        elif span.end > last.end:
            apart[-1] = last._replace(end=span.end, secret=text[last.start : span.end])
        elif (span.start, span.end) == (last.start, last.end) and len(span.secret) < len(last.secret):
            apart[-1] = last._replace(secret=span.secret)  # the plainer of two readings
    return apart
