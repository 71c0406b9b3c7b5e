"""Secrets in other clothes: base64 or hex of a text that holds one, private keys without their first line, keys of wallets, and
tokens of vendors that nobody has listed yet.

Always true: only runs of the characters of tokens are looked at, each once; a run is decoded only as far as its first bytes
promise a text or a key.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator
from hashlib import sha256

from counterpoint.formats.masking.base import SecretSpan, is_random
from counterpoint.formats.masking.patterns import lazy
from counterpoint.formats.masking.tokens import Runs

_SHORTEST, _LONGEST = 20, 8192
_BASE64 = lazy(r"[A-Za-z0-9+/]{20,8192}+={0,2}")
_HEX = "0123456789abcdefABCDEF"
_PLAIN = re.compile(rb"[\t\n\r\x20-\x7e]+")
_TEXT_BEGINS = frozenset("CDIJKLMNOPQRSTUVWXYZabcdef")
"""The first character of base64 of a plain text."""
_FIRST = 20
"""Characters that show whether base64 or hex is of a text."""
_KEY_LINES = lazy(
    r"(?:[A-Za-z0-9+/=]|\\{1,4}[nr]|[\"']?[ \t]{0,4}\\?\r?\n[ \t]{0,20}[\"']?(?=[A-Za-z0-9+/]{16})){40,16384}+"
)
_BASE58 = {c: k for k, c in enumerate("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz")}
_WIF = lazy(r"[5KL9c][1-9A-HJ-NP-Za-km-z]{50,51}")
# A word and an underscore, then as much chance as only a key has; ids of messages and calls are shorter.
_UNLISTED = lazy(
    r"(?<![A-Za-z0-9_-])[a-z][a-z0-9]{1,11}(?:_[a-z0-9]{1,8}){0,2}_(?P<body>[A-Za-z0-9]{32,200}+)(?![A-Za-z0-9_-])"
)


def encoded_secrets(text: str, text_runs: Runs, is_telling: Callable[[str], bool]) -> Iterator[SecretSpan]:
    """Every run that holds a secret in other clothes; `is_telling` says whether a plain text holds one."""
    sizes = text_runs.ends - text_runs.starts
    is_one = (sizes >= _SHORTEST) & (text_runs.digits > 1)
    done = 0
    for start, end in zip(text_runs.starts[is_one].tolist(), text_runs.ends[is_one].tolist(), strict=True):
        if start < done or (text.find("_", start, end) < 0 and not _BASE64.search(text, start, end)):
            continue
        run = text[start : min(end, start + _LONGEST)]
        for span in _of_run(text, start, run, is_telling):
            done = max(done, span.end)
            yield span


def _of_run(text: str, start: int, run: str, is_telling: Callable[[str], bool]) -> Iterator[SecretSpan]:
    if "_" in run:
        for match in _UNLISTED.finditer(run):
            if _is_key(match["body"]):
                yield SecretSpan(start + match.start(), start + match.end(), "key", "unlisted-vendor", match[0])
    for match in _BASE64.finditer(run):
        value, place = match[0], start + match.start()
        if _is_private(value):
            lines = _KEY_LINES.match(text, place)
            stop = lines.end() if lines else place + len(value)
            yield SecretSpan(place, stop, "key", "private-key", text[place:stop])
        elif len(value) in (51, 52) and _WIF.fullmatch(value) and _is_wif(value):
            yield SecretSpan(place, place + len(value), "key", "wallet-key", value)
        elif value.isalnum() and len(value) >= 32 and not value.strip(_HEX):
            plain = _text_of(value[: 2 * _FIRST], binascii.unhexlify) and _text_of(value, binascii.unhexlify)
            if plain and is_telling(plain):
                yield SecretSpan(place, place + len(value), "key", "hex", value)
        elif value[0] in _TEXT_BEGINS:
            plain = _text_of(value[:_FIRST], _unbase64) and _text_of(value, _unbase64)
            if plain and is_telling(plain):
                yield SecretSpan(place, place + len(value), "key", "base64", value)


def _is_key(body: str) -> bool:
    """Whether letters of both cases and digits are mixed all over."""
    digits, upper = sum(c.isdigit() for c in body), sum(c.isupper() for c in body)
    return digits >= 3 and upper >= 4 and len(body) - digits - upper >= 4 and is_random(body)


def _unbase64(value: str) -> bytes:
    bare = value.rstrip("=")
    return binascii.a2b_base64(bare[: len(bare) // 4 * 4] if len(bare) % 4 == 1 else bare + "=" * (-len(bare) % 4))


def _text_of(value: str, decoded: Callable[[str], bytes]) -> str | None:
    """What a value decodes to, if that is a plain text."""
    try:
        data = decoded(value)
    except (binascii.Error, ValueError):
        return None
    return data.decode("ascii") if _PLAIN.fullmatch(data) else None


def _is_private(value: str) -> bool:
    """Whether base64 is of a private key (RFC 5208, 5915, 8017): a sequence that begins with a small version; of a certificate or
    a public key it begins otherwise."""
    if value[0] != "M" or len(value) < 40:
        return False
    data = _unbase64(value[:24])
    if data[0] != 0x30:
        return False
    body = data[2 + (data[1] & 0x7F) :] if data[1] & 0x80 else data[2:]
    if len(body) < 5 or body[:2] != b"\x02\x01" or body[2] > 1:
        return False
    return body[3] in (0x02, 0x30) or body[3:5] in (b"\x04\x20", b"\x04\x30", b"\x04\x42")


def _is_wif(value: str) -> bool:
    """Whether base58 is a key of a wallet in import format: its last four bytes are a check of the rest."""
    number = 0
    for c in value:
        number = number * 58 + _BASE58[c]
    size = (number.bit_length() + 7) // 8
    if size not in (37, 38):
        return False
    data = number.to_bytes(size, "big")
    return sha256(sha256(data[:-4]).digest()).digest()[:4] == data[-4:]
