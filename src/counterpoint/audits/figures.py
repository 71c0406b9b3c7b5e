"""Figures of a text: its numbers, dates, times and single letters, each in one form however it was written.

Always true: a day is `YYYY-MM-DD`, a time of day `HH:MM`, a number its plain decimals; days without a year are left alone, and
so are days of figures alone whose month could be either of two. Order and number of figures say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rf"({'|'.join(_MONTHS)})[a-z]*\.?"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_ISO = re.compile(r"\b(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:T(?=\d)|(?=\D|$))")
_DAY_FIRST = re.compile(rf"\b{_DAY}(?: of)? {_MONTH},? (\d{{4}})\b", re.IGNORECASE)
_MONTH_FIRST = re.compile(rf"\b{_MONTH} {_DAY},? (\d{{4}})\b", re.IGNORECASE)
_FIGURES = re.compile(r"\b(\d{1,2})([./])(\d{1,2})\2(\d{4})\b")
_CLOCK = re.compile(
    r"(?<![\d:.])(\d{1,2})(?::(\d{2}))?(?::\d{2})?\s*([ap])\.?m\b\.?|(?<![\d:.-])(\d{1,2}):(\d{2})(?!\d)", re.IGNORECASE
)
_NUMBER = re.compile(r"(?<![\w.,-])[$€£]?\s?(\d[\d,']*(?:\.\d+)?)(?![\w-]*[A-Za-z_])")
_LETTER = re.compile(r"(?<![\w'’.-])([A-Z])(?![\w'’-]|\.\w)")
_NO_LETTER = "I"
_LONGEST = 20_000
"""Characters of a text that are looked at."""


def figures(text: str) -> frozenset[str]:
    """The figures of a text; a single capital letter is one, except the pronoun and a letter that begins a sentence."""
    text, numbers = text[:_LONGEST], set[str]()
    is_alone = len(text.strip()) == 1
    readings = ((_ISO, _ymd), (_DAY_FIRST, _dmy_word), (_MONTH_FIRST, _mdy_word), (_FIGURES, _either), (_CLOCK, _time))
    for pattern, reading in readings:
        for m in pattern.finditer(text):
            numbers.update(reading(m))
        text = pattern.sub(" ; ", text)
    numbers.update(_plain(m[1]) for m in _NUMBER.finditer(text))
    letters = (m for m in _LETTER.finditer(text) if m[1] != _NO_LETTER)
    numbers.update(m[1] for m in letters if is_alone or not _begins(text, m.start()))
    return frozenset(numbers)


def _begins(text: str, at: int) -> bool:
    """Whether a sentence begins here."""
    before = text[max(at - 4, 0) : at].rstrip(" ")
    return before[-1:] in (".", "!", "?", ":", "\n") or (not before and at < 4)


def _plain(number: str) -> str:
    number = re.sub(r"[,'](?=\d{3}(?!\d))", "", number).rstrip(",'")
    return number.rstrip("0").rstrip(".") if "." in number else number.lstrip("0") or "0"


def _day(year: str, month: int, day: int) -> Iterator[str]:
    if 1 <= month <= 12 and 1 <= day <= 31:
        yield f"{year}-{month:02}-{day:02}"


def _ymd(m: re.Match[str]) -> Iterator[str]:
    return _day(m[1], int(m[2]), int(m[3]))


def _dmy_word(m: re.Match[str]) -> Iterator[str]:
    return _day(m[3], _MONTHS.index(m[2].lower()) + 1, int(m[1]))


def _mdy_word(m: re.Match[str]) -> Iterator[str]:
    return _day(m[3], _MONTHS.index(m[1].lower()) + 1, int(m[2]))


def _either(m: re.Match[str]) -> Iterator[str]:
    """A day of figures: with points the day comes first, with strokes whichever can be."""
    first, second = int(m[1]), int(m[3])
    if m[2] == "." or first > 12:
        yield from _day(m[4], second, first)
    elif second > 12 or first == second:
        yield from _day(m[4], first, second)


def _time(m: re.Match[str]) -> Iterator[str]:
    if m[4] is not None:
        yield f"{int(m[4]):02}:{m[5]}"
    elif 1 <= int(m[1]) <= 12:
        yield f"{int(m[1]) % 12 + (12 if m[3].lower() == 'p' else 0):02}:{m[2] or '00'}"
