"""What says who or where somebody is: phone numbers, cards, IBANs and addresses of machines; and names with passwords in base64.

It is masked where somebody asks for it (`--mask personal`). What has a check is held to it: cards by Luhn, IBANs by their
remainder of 97. A phone number begins with + or stands behind a word for one; other rows of digits are numbers. Addresses of
documentation, of the machine itself and of nobody (127.0.0.1, 0.0.0.0, 192.0.2.1, ::1) stay.

Always true: numbers that pass no check and have no word before them stay.
"""

from __future__ import annotations

import binascii
import ipaddress
import re
from collections.abc import Iterator

from counterpoint.formats.masking.base import SecretSpan, has_digit
from counterpoint.formats.masking.patterns import lazy

_CARD = lazy(r"(?<![\w.+-])[3-6]\d{3}(?:[ -]?\d){8,15}(?![\w-])(?!\.\d)")
_IBAN = lazy(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?![A-Za-z0-9])")
_PHONE = lazy(
    r"(?<![\w.+/=-])(?:\+|00(?=[1-9]\d))\d{1,3}[ ./-]?(?:\(0?\d{1,5}\)[ ./-]?)?\d(?:[ ./-]?\d){5,12}(?![\w-])(?!\.\d)"
)
_CALLED = lazy(
    r"(?:phone|telephone|mobile|cell|tel|fax|telefon|handy|mobil|rufnummer|whatsapp|teléfono|téléphone|telefono)(?:[ _-]?(?:num"
    r"ber|no|nummer|nr))?"
    r"\\{0,4}[\"'`]?\.?[ \t]{0,2}[:=]?[ \t]{0,2}\\{0,4}[\"'`]?(?P<value>\(?\d{2,5}\)?(?:[ ./-]?\d{2,5}){1,5})(?![\w-])(?!\.\d)",
    re.IGNORECASE,
)
_IPV4 = lazy(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-])(?!\.\d)")
_IPV6 = lazy(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:.])")
_BASE64 = lazy(r"(?<![\w+/=.-])[A-Za-z0-9+/]{12,200}={0,2}(?![\w+/=])")
_PAIR = lazy(r"[\w.@+-]{2,64}:[\x21-\x7e]{4,64}")
_VERSION = lazy(r"(?:version|release|v|chrome|firefox|safari|edg|opr|gecko|webkit|build)[ /=:]{0,2}\Z", re.IGNORECASE)
_OURS = tuple(ipaddress.ip_network(net) for net in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"))
"""Addresses that are kept for documentation (RFC 5737, 3849)."""


def personal(text: str) -> Iterator[SecretSpan]:
    """Every card, IBAN, phone number and address of a machine."""
    for rule, pattern, ask in (("card", _CARD, _is_card), ("iban", _IBAN, _is_iban), ("phone", _PHONE, _is_phone)):
        for match in pattern.finditer(text):
            if ask(match[0]):
                yield SecretSpan(*match.span(), "personal", rule, match[0])
    for match in _BASE64.finditer(text):
        if has_digit(match[0]) and _is_pair(match[0]):
            yield SecretSpan(*match.span(), "key", "base64-pair", match[0])
    for match in _CALLED.finditer(text):
        if 6 <= sum(c.isdigit() for c in match["value"]) <= 15:
            yield SecretSpan(*match.span("value"), "personal", "phone", match["value"])
    for pattern in (_IPV4, _IPV6):
        for match in pattern.finditer(text):
            if _is_machine(match[0]) and not _VERSION.search(text, max(0, match.start() - 12), match.start()):
                yield SecretSpan(*match.span(), "personal", "ip-address", match[0])


def _is_pair(text: str) -> bool:
    """Whether base64 holds `name:password` and nothing else."""
    try:
        plain = binascii.a2b_base64(text + "=" * (-len(text) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        return False
    return _PAIR.fullmatch(plain) is not None and has_digit(plain)


def _digits(text: str) -> list[int]:
    return [int(c) for c in text if c.isdigit()]


def _is_card(text: str) -> bool:
    """Luhn: every second digit from the right doubled, digits of the doubles added, the sum a multiple of ten."""
    digits = _digits(text)
    doubled = [sum(divmod(2 * d, 10)) if k % 2 else d for k, d in enumerate(reversed(digits))]
    return 13 <= len(digits) <= 19 and len(set(digits)) > 2 and sum(doubled) % 10 == 0


def _is_iban(text: str) -> bool:
    """ISO 13616: the first four characters behind the rest, letters as numbers from 10 on, a remainder of 1 by 97."""
    bare = text.replace(" ", "")
    return 15 <= len(bare) <= 34 and int("".join(str(int(c, 36)) for c in bare[4:] + bare[:4])) % 97 == 1


def _is_phone(text: str) -> bool:
    return 8 <= len(_digits(text)) <= 15


def _is_machine(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified or address.is_multicast or (address.version == 6 and text.count(":") < 3):
        return False
    return text not in ("255.255.255.255", "255.255.255.0") and not any(
        address in net for net in _OURS if net.version == address.version
    )
