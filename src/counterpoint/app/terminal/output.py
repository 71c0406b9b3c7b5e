"""What commands print: JSON objects, remarks and plain tables.

Always true: the same rows give the same bytes; colour only on a terminal without `NO_COLOR`; tables fit the width.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import click

from counterpoint.app.words import plain_text
from counterpoint.display import number
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


def note(text: str, *, quiet: bool = False) -> None:
    """A remark for people, on stderr."""
    if not quiet:
        click.echo(text, err=True)


def _width() -> int:
    return shutil.get_terminal_size((110, 24)).columns if sys.stdout.isatty() else 200


def fitted(text: str, lead: str = "", *, most: int = 110) -> list[str]:
    """A sentence as lines that fit the terminal, `most` characters at most: the first begins with `lead`, the others below it."""
    width = max(40, min(most, _width()))
    return textwrap.wrap(text, width, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False) or [lead]


_READABLE = 20
"""To this width the widest column is cut before another one is left out."""
_LEAST = 8
"""No column is cut to less."""


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[int] = (), drop: Sequence[str] = ()) -> str:
    """Aligned columns in plain text; columns in `right` are right-aligned.

    On a terminal that is too narrow the widest columns are cut and those that `drop` names are left out, in that order. In a pipe
    everything is there.
    """
    body = [[plain_text(c) if isinstance(c, str) else number(c) for c in row] for row in rows]
    cells = [list(header), *body]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    kept, room = list(range(len(header))), _width() if sys.stdout.isatty() else sys.maxsize

    def over() -> int:
        return sum(widths[i] for i in kept) + 2 * (len(kept) - 1) - room

    for name in drop:
        if over() > max(0, max(widths[i] for i in kept) - _READABLE) and name in header:
            kept.remove(list(header).index(name))
    while (left := over()) > 0:
        widest = max(kept, key=widths.__getitem__)
        if widths[widest] <= _LEAST:
            break
        second = max((widths[i] for i in kept if i != widest), default=0)
        widths[widest] -= max(1, min(left, widths[widest] - max(second, _LEAST)))
    lines = []
    for row in cells:
        parts = []
        for i in kept:
            cell = row[i]
            cut = cell if len(cell) <= widths[i] else cell[: widths[i] - 1] + "…"
            parts.append(cut.rjust(widths[i]) if i in right else cut.ljust(widths[i]))
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
