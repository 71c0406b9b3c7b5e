"""Passwords that somebody says in a sentence: "the password for the box is X", "use X as the password", "das Passwort lautet X".

The words are of eight languages. What is taken for a password in a sentence has letters and digits or signs in it as no word
of a language, no version and no date has; a password that is a word by itself is not found in a sentence.

Always true: at most 120 characters on each side of the name are read, and a sentence ends where it ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from counterpoint.formats.masking.base import CODE_JOINS, JOINS, SecretSpan, has_digit, is_filler, is_signed
from counterpoint.formats.masking.names import Name
from counterpoint.formats.masking.patterns import lazy

_OF = (
    r"(?:for|to|of|on|at|in|für|fuer|von|zu|zum|zur|vom|am|auf|beim|pour|de|du|des|da|do|para|del|di|per|voor|van|dla|för|till|"
    r"для|от|к)"
)
_IS = (
    r"(?:is|was|are|were|will be|would be|equals|remains|lautet|ist|war|wird|heißt|heisst|wäre|est|était|es|era|é|è|är|er|to|je"
    r"st|это|ist nun|→|->|=>|—|–|-|:|=)"
)
_THEN = (
    r"(?:(?:now|currently|just|still|simply|again|jetzt|nun|aktuell|momentan|neu|maintenant|ahora|agora|adesso|nu|it's|it is|es"
    r" ist|c'est|set to|changed to|"
    r"reset to|updated to|rotated to|set as|geändert auf|geändert in|gesetzt auf)[ \t]{1,2}){0,2}"
)
_QUOTE = r"[\"'`“„«‘*]{0,2}"
_VALUE = r"(?P<value>[^\s\"'`“”„«»‘’<>|\\]{4,100})"
_SAID = lazy(
    rf"(?:[ \t]{{1,2}}\(?{_OF}[ \t]{{1,2}}[^\n.;:!?\"'`=]{{1,60}}?)?[ \t]{{0,2}}(?:(?<=[ \t]){_IS}|[:=]|→|->)[ \t]{{1,3}}"
    rf"{_THEN}{_QUOTE}{_VALUE}",
    re.IGNORECASE,
)
_SET_TO = lazy(
    rf"[ \t]{{1,2}}(?:(?:now|jetzt)[ \t])?(?:to|auf|in|as|als|su|en|a)[ \t]{{1,2}}{_QUOTE}{_VALUE}", re.IGNORECASE
)
_NEXT = lazy(rf"[ \t]{{1,2}}{_QUOTE}{_VALUE}")
_BEFORE = lazy(
    r"(?:\A|[\s\"'`(“„«*])(?P<value>[^\s\"'`“”„«»<>|\\]{6,100})[\"'`“”»*,]{0,2}[ \t]{1,2}(?:(?:is|was|as|als|ist|war|comme|como"
    r"|come|est|es|é|è|som|jako)[ \t]{1,2}"
    r"(?:(?:now|jetzt|still|noch)[ \t]{1,2})?(?:(?:the|a|my|our|your|his|her|their|das|dein|dem|unser|mein|ihr|le|la|el|o|a|mot"
    r"|het|ett)[ \t]{1,2}){0,2}"
    r"(?:[\w.-]{1,24}[ \t]{1,2}){0,2}?)\Z",
    re.IGNORECASE,
)
_LOGIN = lazy(
    rf"(?:credentials?|creds|zugangsdaten|anmeldedaten|logins?|identifiants|credenciales)[ \t]{{0,2}}(?:[:=]|are|sind|for \S{{1"
    rf",40}})[ \t]{{0,3}}{_QUOTE}"
    rf"(?P<user>[^\s/\"'`,;]{{1,64}}){_QUOTE}[ \t]{{0,2}}(?:/|,|\||:)[ \t]{{0,2}}{_QUOTE}{_VALUE}",
    re.IGNORECASE,
)
_WORD = lazy(r"[^\W\d_]{3,24}")
_NO_PASSWORD = lazy(
    r"(?:sha|utf|base|int|uint|float|python|py|http|https|ipv|oauth|md|mp|gpt|claude|v|version|step|part|page|item|node|task|li"
    r"ne|level|issue|rfc|bcrypt|argon|"
    r"pbkdf|aes|rsa|es|rs|hs|ed|x|p|q|win|windows|ubuntu|debian|auth|web|ipsec|wpa|tls|ssl|s|i|k|l|a|b|case|test|user|field|opt"
    r"ion|figure|fig|table|phase|day|q)"
    r"[-_]?\d{1,4}(?:[.-]\w+)*|\d+(?:[.,:/x-]\d+)*\w{0,4}|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\S*|[\w.-]+\(.*|[\w./~-]*/[\w./-]*|\w+"
    r"://\S*|[\w.-]+\.(?:py|js|ts|md|txt|json|ya?ml|sh|html|com|org|io)"
    r"|\[masked:.*|\$.*|%.*|\{.*|#\d+|@\w+|[A-Z]{2,10}-\d{1,6}|\d+-\w+|\w+\[.*|.*=.*",
    re.IGNORECASE,
)
_SIGNS = frozenset("!#%*+?@&^~$€§")


def _is_password(value: str, joins: str = JOINS) -> bool:
    """Whether a word of a sentence is a password: letters, and digits or signs among them, as nothing else has them."""
    if len(value) < 6 or is_filler(value):
        return False
    if is_signed(value, joins):
        return True
    if _NO_PASSWORD.fullmatch(value):
        return False
    letters, digits = sum(c.isalpha() for c in value), sum(c.isdigit() for c in value)
    signs = sum(c in _SIGNS for c in value)
    if letters < 2 or (digits == 0 and signs < 2):
        return False
    return digits >= 2 or (digits == 1 and (signs > 0 or len(value) >= 7))


def passwords_in_prose(text: str, names: list[Name]) -> Iterator[SecretSpan]:
    """Every password that a sentence around one of some names gives away."""
    for name in names:
        joins = CODE_JOINS if name.word == "pass" else JOINS  # which is a word of code too
        line = text.rfind("\n", max(0, name.start - 120), name.start)
        before = _BEFORE.search(text, max(line + 1, name.start - 120), name.start)
        if before and _is_password(_trimmed(before["value"]), joins):
            yield _span(before, "prose")
        for pattern in (_SAID, _SET_TO, _NEXT):
            match = pattern.match(text, name.end)
            if match and _is_password(_trimmed(match["value"]), joins):
                yield _span(match, "prose")
                break


def login(text: str, at: int) -> Iterator[SecretSpan]:
    """`credentials: name / password`."""
    match = _LOGIN.match(text, at)
    value = _trimmed(match["value"]) if match else ""
    if match and (has_digit(value) or is_signed(value)) and _is_password(value):
        yield _span(match, "prose")


def _trimmed(value: str) -> str:
    return value.rstrip(".,;:)!?]}*")


def _span(match: re.Match[str], rule: str) -> SecretSpan:
    value = _trimmed(match["value"])
    start = match.start("value")
    return SecretSpan(start, start + len(value), "key", rule, value)


PROSE = tuple((word, login) for word in ("credential", "creds", "zugangsdaten", "anmeldedaten", "login", "identifiants"))
"""A fixed word in lower case, and what looks for the password behind it."""
