"""Secrets that the head of their column names: in CSV, in tables of Markdown, of psql and mysql, in columns that blanks align, in
HTML, in JSON with a list of columns, and in statements of SQL.

A line is a head if it is the first of its block, its fields are short, and one of them is a name that says its values are
secret. Rows are those below with as many fields. A column of numbers, of types or of words of documentation stays.

Always true: a block is looked at once, and at most `_MOST` characters of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from counterpoint.formats.masking.assignments import is_secret
from counterpoint.formats.masking.base import SecretSpan, has_digit, is_filler, is_random
from counterpoint.formats.masking.names import PASSWORD, Name, level_of
from counterpoint.formats.masking.patterns import lazy

_MOST = 200_000
_WIDEST = 2_000
"""Characters of a line; what is longer is no row of a table."""
_BREAK = lazy(r"\r?\n|\\{1,4}r?\\{0,4}n|\0")
_RULE = lazy(r"[\s|+:=─│┼├┤┌┐└┘╞╪╡-]{3,2000}")
_FIELD_NAME = lazy(r"[\w .#/()*-]{1,40}")
_SEPARATORS = ("|", "\t", ";", ",")
_GAP = lazy(r"[ \t]{2,200}")
_CELL = lazy(r"<t[hd][^<>]{0,80}>(?P<value>[^<>]{0,300})</t[hd]>", re.IGNORECASE)
_ROW = lazy(r"<tr[^<>]{0,80}>", re.IGNORECASE)


class _Field(NamedTuple):
    """Where a field begins and ends, without blanks and quotes."""

    start: int
    end: int


class _Line(NamedTuple):
    start: int
    end: int
    after: int
    """Where the next line begins."""


def columns(text: str, names: Sequence[Name]) -> Iterator[SecretSpan]:
    """Every value of a column whose head is one of some names, which stand as fields of a line."""
    done = -1
    for name in names:
        if name.start < done:
            continue
        if text[name.end : name.end + 2] == "</":
            secrets, done = _html(text, name)
        else:
            secrets, done = _block(text, name)
        yield from secrets


def _block(text: str, name: Name) -> tuple[list[SecretSpan], int]:
    head = _line_of(text, name.start)
    if head is None:
        return [], name.end
    if text[name.end : name.end + 3].lstrip("\"'\\")[:1] in ("]", ",") and (secrets := _json(text, name)):
        return secrets, name.end
    separator = next((s for s in _SEPARATORS if s in text[head.start : head.end]), None)
    fields = _fields(text, head, separator)
    if len(fields) < 2 or not all(f.start == f.end or _FIELD_NAME.fullmatch(text, *f) for f in fields):
        return [], head.end
    if _is_row(text, head, separator, len(fields)):
        return [], head.end
    levels = [level_of(text[f.start : f.end].strip("* ")) for f in fields]
    titles = {text[f.start : f.end].lower().strip("* ") for f in fields}
    if not any(levels) or titles & {"fail", "failed", "skip", "type", "default", "description"}:
        return [], head.end
    return _rows(text, head, separator, levels)


def _rows(text: str, head: _Line, separator: str | None, levels: list[int]) -> tuple[list[SecretSpan], int]:
    secrets: list[SecretSpan] = []
    starts = [f.start - head.start for f in _fields(text, head, separator)]
    at, stop = head.after, min(len(text), head.start + _MOST)
    while at < stop:
        line = _line_at(text, at)
        if line is None:
            break
        at = line.after
        if _RULE.fullmatch(text, line.start, line.end):
            continue
        fields = _fields(text, line, separator)
        if separator is None and len(fields) != len(levels):
            fields = _aligned(text, line, starts)
        if len(fields) != len(levels):
            break
        for field, level in zip(fields, levels, strict=True):
            value = text[field.start : field.end]
            if level and _is_value(value, level):
                secrets.append(SecretSpan(field.start, field.end, "key", "column", value))
    return secrets, at


def _is_value(value: str, level: int) -> bool:
    """Whether what stands in a column of secrets is one."""
    if is_filler(value) or len(value) < 4 or value.replace(".", "").replace(",", "").isdigit():
        return level == PASSWORD and value.isdigit() and len(value) >= 6
    if level == PASSWORD:
        return (has_digit(value) or is_random(value) or not value.isalpha()) and is_secret(value, level, is_quoted=True)
    return is_random(value) and is_secret(value, level, is_quoted=True)


def _line_of(text: str, at: int) -> _Line | None:
    """The line that a place is in."""
    low = max(0, at - _WIDEST)
    start = max(low, text.rfind("\n", low, at) + 1, text.rfind("\0", low, at) + 1)
    written = text.rfind("\\n", start, at)
    start = written + 2 if written >= 0 else start
    return _line_at(text, start)


def _line_at(text: str, start: int) -> _Line | None:
    if start >= len(text):
        return None
    match = _BREAK.search(text, start, start + _WIDEST)
    if match is None:
        end = min(len(text), start + _WIDEST)
        return _Line(start, end, end) if end == len(text) else None
    return _Line(start, match.start(), match.end()) if match[0] != "\0" else None


def _fields(text: str, line: _Line, separator: str | None) -> list[_Field]:
    """The fields of a line; a quote holds a field together, and bars at both ends are no separators."""
    start, end = line.start, line.end
    if separator == "|":
        piece = text[start:end]
        start, end = start + len(piece) - len(piece.lstrip(" \t")), end - (len(piece) - len(piece.rstrip(" \t")))
        start, end = start + (text[start : start + 1] == "|"), end - (end > start + 1 and text[end - 1] == "|")
    if separator is None:
        places, at = [], start
        for gap in _GAP.finditer(text, start, end):
            places.append((at, gap.start()))
            at = gap.end()
        places.append((at, end))
        return [_bare(text, a, b) for a, b in places if text[a:b].strip()]
    places, at, quote = [], start, ""
    for k in range(start, end):
        c = text[k]
        if c == quote:
            quote = ""
        elif not quote and c == '"' and not text[at:k].strip(" \t\\"):
            quote = c
        elif c == separator and not quote:
            places.append((at, k))
            at = k + 1
    places.append((at, end))
    return [_bare(text, a, b) for a, b in places]


def _aligned(text: str, line: _Line, starts: list[int]) -> list[_Field]:
    """The fields of a line below heads that begin at some places."""
    edges = [line.start + start for start in starts] + [line.end]
    if any(edge > line.end or (edge > line.start and text[edge - 1] not in " \t") for edge in edges[:-1]):
        return []
    return [_bare(text, a, b) for a, b in pairwise(edges)]


def _bare(text: str, start: int, end: int) -> _Field:
    """A field without blanks and quotes around it."""
    while start < end and text[start] in " \t\\\"'`":
        start += 1
    while end > start and text[end - 1] in " \t\\\"'`":
        end -= 1
    return _Field(start, end)


def _is_row(text: str, head: _Line, separator: str | None, size: int) -> bool:
    """Whether the line above is a row of the same table, so that this one is no head."""
    if head.start == 0:
        return False
    above = _line_of(text, max(0, head.start - 1 - (text[head.start - 1] == "n")))
    if above is None or above.start == head.start or _RULE.fullmatch(text, above.start, above.end):
        return above is not None and above.start > 0 and above.start != head.start and _has_bars_above(text, above, size)
    fields = _fields(text, above, separator)
    return separator is not None and len(fields) == size and size > 1


def _has_bars_above(text: str, rule: _Line, size: int) -> bool:
    """Whether a line with as many fields stands above a rule: then the head is there."""
    above = _line_of(text, max(0, rule.start - 1))
    return (
        above is not None
        and above.start < rule.start
        and "|" in text[above.start : above.end]
        and (len(_fields(text, above, "|")) == size)
    )


# -- HTML and JSON ---------------------------------------------------------------------------------------------------------------


def _html(text: str, name: Name) -> tuple[list[SecretSpan], int]:
    before = text.rfind("<tr", max(0, name.start - _WIDEST), name.start)
    row = _ROW.search(text, name.end, name.end + _WIDEST)
    if before < 0 or row is None:
        return [], name.end
    levels = [level_of(cell["value"].strip()) for cell in _CELL.finditer(text, before, row.start())]
    secrets: list[SecretSpan] = []
    stop = min(len(text), before + _MOST)
    while row and row.start() < stop:
        after = _ROW.search(text, row.end(), row.end() + _WIDEST)
        cells = list(_CELL.finditer(text, row.end(), after.start() if after else min(stop, row.end() + _WIDEST)))
        for cell, level in zip(cells, levels, strict=False):
            if level and len(cells) == len(levels) and _is_value(cell["value"].strip(), level):
                field = _bare(text, *cell.span("value"))
                secrets.append(SecretSpan(*field, "key", "column", text[slice(*field)]))
        row = after
    return secrets, row.start() if row else stop


_LIST = lazy(r"\[\s{0,20}(?P<inside>\\{0,4}\"[^\[\]{}\n]{1,2000})\]")
_ITEM = lazy(r"\\{0,4}\"(?P<value>(?:[^\"\\]|\\[^\"]){0,400})\\{0,4}\"|(?P<other>[^\s,\"\[\]]{1,40})")


def _json(text: str, name: Name) -> list[SecretSpan]:
    """Rows of JSON behind a list of the names of their columns."""
    start = text.rfind("[", max(0, name.start - _WIDEST), name.start)
    head = _LIST.match(text, start) if start >= 0 else None
    if head is None or head.end() < name.end:
        return []
    levels = [level_of(item["value"] or "") for item in _ITEM.finditer(head["inside"])]
    secrets: list[SecretSpan] = []
    at, stop = head.end(), min(len(text), head.start() + _MOST)
    for row in _LIST.finditer(text, at, stop):
        items = list(_ITEM.finditer(text, *row.span("inside")))
        if row.start() - at > 60 or len(items) != len(levels) or len(items) < 2:
            break
        at = row.end()
        for item, level in zip(items, levels, strict=True):
            if level and item["value"] and _is_value(item["value"].rstrip("\\"), level):
                end = item.start("value") + len(item["value"].rstrip("\\"))
                secrets.append(SecretSpan(item.start("value"), end, "key", "column", text[item.start("value") : end]))
    return secrets


# -- SQL -------------------------------------------------------------------------------------------------------------------------

_INSERT = lazy(
    r"(?:insert\s{1,8}(?:ignore\s{1,4}|or\s{1,4}\w{1,10}\s{1,4})?into|replace\s{1,4}into)\s{1,8}[\w.\"`\[\]\\]{1,128}\s{0,8}\(("
    r"?P<names>[^()]{1,2000})\)"
    r"(?:\s|\\n|\"\s{0,4}[+.]?\s{0,8}\"){0,16}(?:output\s[^()]{1,80})?values?(?:\s|\\n){0,16}",
    re.IGNORECASE,
)
_COPY = lazy(
    r"copy\s{1,8}[\w.\"]{1,128}\s{0,8}\((?P<names>[^()]{1,2000})\)\s{1,8}from\s{1,8}stdin[^\n;]{0,100};(?:\r?\n|\\n)",
    re.IGNORECASE,
)
_SQL_VALUE = lazy(
    r"[\s\\n]{0,16}(?:(?:[NEBXeb]?\\{0,4}(?P<quote>['\"])(?P<value>(?:(?!\\{0,4}(?P=quote))[^\n]|''){0,1000}?)\\{0,4}(?P=quote)"
    r")|(?P<other>[^,()'\"]{0,60}"
    r"(?:\([^()]{0,200}\))?))[\s\\n]{0,8}(?P<next>[,)\]])"
)
_BOUND = lazy(r"[?%:@$\w\s,.()]{1,400}?\)?[^\n\"'`]{0,20}[\"'`]{1,3}\s{0,20},\s{0,20}(?=[\[(])")
_HOLDER = lazy(r"\(\s{0,4}(?:\?|%s|[:@$]\w{1,40}|%\(\w{1,40}\)s)")


def insert(text: str, at: int) -> Iterator[SecretSpan]:
    """The values of INSERT INTO t (names) VALUES (...), (...), also those that are bound to its places."""
    head = _INSERT.match(text, at)
    if head is None:
        return
    levels = _levels(head["names"])
    place, stop = head.end(), min(len(text), at + _MOST)
    if _HOLDER.match(text, place):
        bound = _BOUND.match(text, place)
        if bound is None:
            return
        place = bound.end()
    while any(levels) and place < stop and text[place : place + 1] in ("(", "["):
        values = list(_tuple(text, place + 1))
        if len(values) != len(levels):
            return
        for value, level in zip(values, levels, strict=True):
            if level and value["value"] and _is_value(value["value"], level):
                yield SecretSpan(*value.span("value"), "key", "sql-column", value["value"])
        after = re.compile(r"[\s\\n]{0,16},[\s\\n]{0,16}").match(text, values[-1].end())
        place = after.end() if after else stop


def _tuple(text: str, at: int) -> Iterator[re.Match[str]]:
    match = _SQL_VALUE.match(text, at)
    while match:
        yield match
        match = _SQL_VALUE.match(text, match.end()) if match["next"] == "," else None


def copy(text: str, at: int) -> Iterator[SecretSpan]:
    """The rows of COPY t (names) FROM stdin, up to the line that ends them."""
    head = _COPY.match(text, at)
    if head is None:
        return
    levels = _levels(head["names"])
    place, stop = head.end(), min(len(text), at + _MOST)
    while any(levels) and place < stop:
        line = _line_at(text, place)
        if line is None or text[line.start : line.start + 2] == "\\.":
            return
        fields = _fields(text, line, "\t")
        if len(fields) != len(levels):
            return
        for field, level in zip(fields, levels, strict=True):
            value = text[field.start : field.end]
            if level and _is_value(value, level):
                yield SecretSpan(*field, "key", "sql-column", value)
        place = line.after


def _levels(names: str) -> list[int]:
    return [level_of(name.strip(" \t\r\n\"'`[]\\")) for name in names.split(",")]


TABLES = (("insert into", insert), ("insert ignore", insert), ("insert or", insert), ("replace into", insert), ("copy ", copy))
"""A fixed word in lower case, and what looks for the columns behind it."""
