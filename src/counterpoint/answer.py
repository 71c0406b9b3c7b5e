"""One form of an answer: sections of sentences, labelled lines and a table, as text and as HTML.

Always true: text and HTML hold the same words and numbers, so that a terminal, a page and a notebook never differ; what a trace
says stands in them as text only: without control characters in the one, escaped in the other. The same answer on the same
screen gives the same bytes.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from counterpoint.display import number, plain_text

Cells = Sequence[Any]
_PROSE, _LABEL, _BAR = 110, 30, 20
"""How wide a sentence, a label and a bar are at most."""
_READABLE, _LEAST = 20, 8
"""To the first width the widest column is cut before another one is left out; no column is cut to less than the second."""
_TWINS = str.maketrans({"·": "|", "…": "~", "×": "x", "█": "#", "▒": "=", "≤": "<=", "↑": "^", "└": "`", "├": "|", "│": "|"})
_SPACES = str.maketrans("\n\r\t", "   ")
SIGNS = "×─│├└┊▨░▒▓█≤…·↑⚙✉◇▷◁◆■✕"
"""What lines, bars and lanes are drawn with."""


class Line(NamedTuple):
    """A line with a label before it."""

    label: str
    text: str | Sequence[str]
    """A sentence; or parts, none of which is broken where it fits a line."""
    between: str = " · "


class Section(NamedTuple):
    """One part of an answer: sentences, labelled lines and a table, any of which may be missing."""

    title: str = ""
    words: str = ""
    head: Sequence[str] = ()
    rows: Sequence[Cells] = ()
    right: Sequence[int] = ()
    """Columns of numbers."""
    bars: Sequence[float] = ()
    """For each row how long its bar is, of one; less than nothing is drawn in another way. None where the rows have no bars."""
    drop: Sequence[str] = ()
    """Columns that a narrow screen leaves out, the first first."""
    lines: Sequence[Line | tuple[str, str | Sequence[str]]] = ()
    more: str = ""
    """What stands below the table, such as how many rows are not in it."""


class Answer(NamedTuple):
    """What a command or a page says."""

    heading: str
    sections: Sequence[Section]


class Screen(NamedTuple):
    """What a text is for."""

    width: int
    is_unicode: bool = True
    is_colour: bool = False
    is_cut: bool = True
    """Whether a table that is too wide is cut; a pipe gets all of it."""

    def pick(self, sign: str, ascii_sign: str) -> str:
        """The sign, or its twin."""
        return sign if self.is_unicode else ascii_sign


PIPE = Screen(_PROSE, is_cut=False)


def some(names: Sequence[str], most: int, between: str = ", ", more: str = "") -> str:
    """The first of many names, and how many more there are."""
    return between.join(names[:most]) + (f" and {len(names) - most:,} more{more}" if len(names) > most else "")


# -- as text -----------------------------------------------------------------------------------------------------------


def text(answer: Answer | Section, on: Screen = PIPE) -> str:
    """The answer in lines: sections one after the other with an empty line between them."""
    if isinstance(answer, Answer):
        parts = [*wrapped(answer.heading, on), *[""][: len(answer.sections) if answer.heading else 0]]
        body = "\n\n".join(filter(None, (text(section, on) for section in answer.sections)))
        return "\n".join([*parts, body] if body else parts)
    lines = [_bold(_signs(plain_text(answer.title), on), on)] if answer.title else []
    lines += wrapped(answer.words, on)
    lines += _labelled([Line(*line) for line in answer.lines], on)
    lines += table_lines(answer, on) if answer.rows else []
    return "\n".join([*lines, *wrapped(answer.more, on)])


def span(words: str) -> int:
    """How many columns a text takes: wide characters two, marks that sit on another none."""
    if words.isascii():
        return len(words)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in words)


def cut(words: str, width: int, on: Screen) -> str:
    """A text in at most so many columns, its end replaced by a sign where it is longer."""
    return words if span(words) <= width else _first(words, width - 1) + on.pick("…", "~")


def padded(words: str, width: int, on: Screen, *, is_right: bool = False) -> str:
    """A text in exactly so many columns."""
    short = cut(words, width, on)
    gap = " " * (width - span(short))
    return gap + short if is_right else short + gap


def _first(words: str, width: int) -> str:
    """As many characters as fit so many columns."""
    used = 0
    for k, c in enumerate(words):
        used += span(c)
        if used > width:
            return words[:k]
    return words


def wrapped(words: str | Sequence[str], on: Screen, lead: str = "", between: str = " · ") -> list[str]:
    """A sentence, or parts of a line, as lines that fit the screen: the first begins with `lead`, the others below its end."""
    if isinstance(words, str):
        parts, between = words.translate(_SPACES).split(" ") if words else [], " "
    else:
        parts = [part.translate(_SPACES) for part in words]
    parts, between = [_signs(plain_text(part), on) for part in parts], _signs(between, on)
    room, tail = max(min(on.width, _PROSE) - span(lead), 8), between.rstrip()
    lines: list[str] = []
    here: str | None = None
    for part in (piece for whole in parts for piece in _pieces(whole, room - span(tail))):
        if here is None:
            here = part
        elif span(here + between + part + tail) > room:
            lines.append(here + tail)
            here = part or None
        else:
            here += between + part
    lines += [] if here is None else [here]
    indent = " " * span(lead)
    return [((indent if k else lead) + line).rstrip() for k, line in enumerate(lines)]


def _pieces(part: str, room: int) -> Iterator[str]:
    """A part that no line holds, in pieces that fit: at its spaces, else anywhere."""
    while span(part) > room:
        first = _first(part, room)
        place = first.rfind(" ")
        first = first if place <= 0 else first[:place]
        yield first
        part = part[len(first) :].lstrip()
    yield part


def _labelled(lines: Sequence[Line], on: Screen) -> list[str]:
    labels = [_signs(plain_text(line.label), on) for line in lines]
    wide = min(max(map(span, labels), default=0), _LABEL, max(on.width // 3, 8))
    leads = [padded(label, wide, on) + "  " if wide else "" for label in labels]
    return [one for lead, line in zip(leads, lines, strict=True) for one in wrapped(line.text or "-", on, lead, line.between)]


def _bold(words: str, on: Screen) -> str:
    return f"\x1b[1m{words}\x1b[0m" if on.is_colour else words


def _signs(words: str, on: Screen) -> str:
    return words if on.is_unicode or words.isascii() else words.translate(_TWINS)


def table_lines(section: Section, on: Screen) -> list[str]:
    """Aligned columns. On a screen that is too narrow the widest are cut, and those of `drop` left out."""
    rows = [[_signs(plain_text(c), on) if isinstance(c, str) else number(c) for c in row] for row in section.rows]
    lines = [[_signs(name, on) for name in section.head], *rows]
    widths = [max(span(row[i]) for row in lines) for i in range(len(section.head))]
    bar = max(min(_BAR, on.width - sum(widths) - 2 * len(widths)), 4) if section.bars else 0
    columns = _fit(section, widths, on.width - bar - bool(bar) * 2 if on.is_cut else sys.maxsize)
    drawn = ["", *(_bar(share, bar, on) for share in section.bars)] if bar else [""] * len(lines)
    out = []
    for row, tail in zip(lines, drawn, strict=True):
        parts = [padded(row[i], widths[i], on, is_right=i in section.right) for i in columns]
        out.append("  ".join([*parts, tail] if tail else parts).rstrip())
    return out


def _fit(section: Section, widths: list[int], room: int) -> list[int]:
    """The columns that stay; `widths` become those that they have."""
    names, columns = list(section.head), list(range(len(section.head)))

    def over() -> int:
        return sum(widths[i] for i in columns) + 2 * (len(columns) - 1) - room

    for name in section.drop:
        if over() > max(0, max(widths[i] for i in columns) - _READABLE) and name in names:
            columns.remove(names.index(name))
    while (excess := over()) > 0:
        widest = max(columns, key=widths.__getitem__)
        if widths[widest] <= _LEAST:
            break
        second = max((widths[i] for i in columns if i != widest), default=0)
        widths[widest] -= max(1, min(excess, widths[widest] - max(second, _LEAST)))
    return columns


def _bar(share: float, width: int, on: Screen) -> str:
    sign = on.pick("█", "#") if share >= 0 else on.pick("▒", "=")
    return sign * max(round(width * abs(share)), 1 if share else 0)


# -- as HTML -----------------------------------------------------------------------------------------------------------


def html(sections: Iterable[Section]) -> str:
    """Sections as HTML: static, without a script, and complete in itself."""
    return "".join(map(_section, sections))


def _section(section: Section) -> str:
    title = f"<h2>{_html(section.title)}</h2>" if section.title else ""
    lines = "".join(f"<dt>{_html(line.label)}</dt><dd>{_html(_joined(line))}</dd>" for line in (Line(*x) for x in section.lines))
    parts = [title, _paragraph(section.words), f"<dl>{lines}</dl>" if lines else "", _html_table(section) if section.rows else ""]
    return f"<section>{''.join(parts)}{_paragraph(section.more)}</section>"


def _joined(line: Line) -> str:
    return line.text if isinstance(line.text, str) else line.between.join(line.text)


def _paragraph(words: str) -> str:
    return f"<p>{_html(words)}</p>" if words else ""


def _html(words: str) -> str:
    return escape(plain_text(words.translate(_SPACES)))


def _html_table(section: Section) -> str:
    sides = [' style="text-align:right"' if i in section.right else "" for i in range(len(section.head))]
    head = "".join(f'<th scope="col"{side}>{_html(name)}</th>' for name, side in zip(section.head, sides, strict=True))
    head += '<th scope="col"></th>' if section.bars else ""
    rows = []
    for k, row in enumerate(section.rows):
        cells = [_html(c if isinstance(c, str) else number(c)) for c in row]
        body = "".join(f"<td{side}>{cell}</td>" for cell, side in zip(cells, sides, strict=True))
        rows.append(f"<tr>{body}{_html_bar(section.bars[k]) if section.bars else ''}</tr>")
    body = "".join(rows)
    return f'<div style="overflow-x:auto"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _html_bar(share: float) -> str:
    rect = f'<rect width="{100 * abs(share):.1f}" height="10" fill-opacity="{1 if share >= 0 else 0.4}"/>'
    size = 'width="160" height="14" style="display:block"'
    return f'<td><svg viewBox="0 0 100 10" {size} preserveAspectRatio="none" aria-hidden="true">{rect}</svg></td>'


_CSS = """
:root { color-scheme: light dark; --ink: #1b1f24; --ground: #ffffff; --quiet: #5c6470; --line: #d4d7db; --bar: #0B5FA5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --ground: #12151a; --quiet: #a0a8b4; --line: #41464d; --bar: #88CCEE; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 75rem; }
body { margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem } p { margin: .3rem 0 }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { font-weight: 600; color: var(--quiet) } .quiet, dt { color: var(--quiet) } rect { fill: var(--bar) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .3rem 0 } dd { margin: 0 }
"""


def page(answer: Answer, maker: str) -> str:
    """The answer as one HTML file; `maker` says what wrote it."""
    title = _html(answer.heading)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_CSS}</style></head><body><main>"
        f'<h1>{title}</h1><p class="quiet">{_html(maker)}</p>{html(answer.sections)}</main></body></html>\n'
    )
