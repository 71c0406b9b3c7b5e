"""What commands print: answers, JSON objects and remarks.

Always true: the same rows give the same bytes; colour only on a terminal without `NO_COLOR`; everything fits the width.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from counterpoint.answer import SIGNS, Answer, Screen, Section, table_lines, text, wrapped
from counterpoint.options import LARGEST_SEED

# The version of every `--json` output; a field that changes meaning raises it.
SCHEMA_VERSION = 1

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")

SEEDS = click.IntRange(min=0, max=LARGEST_SEED)
"""What a seed is: others are counted on from it, and all are 64-bit numbers."""


def _plain(value: Any) -> Any:
    """Numbers that JSON has no word for become null; numpy scalars become Python's."""
    if hasattr(value, "item") and not isinstance(value, (list, dict, str)):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def emit(obj: Any) -> None:
    """One JSON object on one line of stdout."""
    click.echo(json.dumps(_plain(obj), ensure_ascii=False, default=str))


def note(words: str, *, quiet: bool = False) -> None:
    """A remark for people, on stderr."""
    if not quiet:
        click.echo(words, err=True)


def screen() -> Screen:
    """The screen that stdout goes to: `COLUMNS` says how wide; `NO_COLOR`, a pipe or a dumb terminal say no colour."""
    is_terminal = sys.stdout.isatty()
    is_colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    size = shutil.get_terminal_size((110, 24)).columns if is_terminal or os.environ.get("COLUMNS") else 110
    return Screen(max(size, 30), _has_signs(sys.stdout.encoding), is_colour, is_cut=is_terminal)


def _has_signs(encoding: str | None) -> bool:
    try:
        SIGNS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def say(*sections: Section, heading: str = "", is_next: bool = False) -> None:
    """Print an answer, below an empty line where it is not the first; `?` stands for signs that the output cannot hold."""
    encoding = sys.stdout.encoding or "ascii"
    click.echo("\n" * is_next + text(Answer(heading, sections), screen()).encode(encoding, "replace").decode(encoding))


def fitted(words: str, lead: str = "", *, most: int = 110) -> list[str]:
    """A sentence as lines that fit the screen: the first begins with `lead`, the others below it."""
    return wrapped(words, screen()._replace(width=min(most, screen().width)), lead) or [lead]


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[int] = (), drop: Sequence[str] = ()) -> str:
    """Aligned columns; see `Section`."""
    return "\n".join(table_lines(Section(head=header, rows=list(rows), right=right, drop=drop), screen()))
