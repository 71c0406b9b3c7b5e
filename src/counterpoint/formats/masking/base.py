"""What the finders share: a span, and what looks like chance rather than like a word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LABEL = re.compile(r"\[masked:(?:key|email|path):[0-9a-f]{4,}\]")
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
_TEMPLATE = re.compile(
    r"\$[A-Za-z_{(]\S*|\$\$.*|[{<\[(].*|%[A-Za-z_(%].*|@[A-Z_]+@|.*\{\{.*\}\}.*|.*\$\{[^}]*\}.*|"
    r".*\$\([^)]*\).*|.*\{[A-Za-z_][\w.]*\}.*"
)


_NAMED = re.compile(
    r"(?:[a-z]+[_-]?)?(?:password|passwd|passphrase|secret|token|api[_-]?key|key)[_-]?(?:\d{1,2}|"
    r"here|value|name)?"
)


class SecretSpan(NamedTuple):
    """Where a secret is, its kind (`key`, `email` or `path`), the rule that found it,
    and the secret as it would be written plainly."""

    start: int
    end: int
    kind: str
    rule: str
    secret: str = ""


_ENOUGH = 120
"""Characters of a long value that show whether it is made by chance."""
_LONG = 400
"""No filler is longer."""
_DIGIT, _DIGITS = re.compile(r"[0-9]"), re.compile(r"[0-9]++")
_UPPER, _LOWER, _MARKS = re.compile(r"[A-Z]"), re.compile(r"[a-z]"), re.compile(r"[_./ -]")
_TURNS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[a-z])")


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


def is_filler(value: str) -> bool:
    """Whether a value stands for one: a word, a type, a template, a row of stars."""
    if len(value) > _LONG:
        return False
    low = value.lower()
    if low.strip("\"'<>()[]{}.,;:!?") in _WORDS or len(set(low)) < 3 or _NAMED.fullmatch(low) or _TEMPLATE.fullmatch(value):
        return True
    return any(part in low for part in _FILLERS) and not (len(value) >= 20 and (is_random(value) or is_long(value)))
