"""What commands print: JSON objects, remarks and plain tables.

Always true: the same rows give the same bytes; colour only on a terminal without `NO_COLOR`; tables fit the width.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from counterpoint.app.words import plain_text
from counterpoint.display import number

# The version of every `--json` output; a field that changes meaning raises it.
SCHEMA_VERSION = 1

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


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


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[int] = ()) -> str:
    """Aligned columns in plain text; columns in `right` are right-aligned; the widest is cut to fit a terminal."""
    body = [[plain_text(c) if isinstance(c, str) else number(c) for c in row] for row in rows]
    cells = [list(header), *body]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    over = sum(widths) + 2 * (len(widths) - 1) - _width()
    if over > 0:
        widest = max(range(len(widths)), key=widths.__getitem__)
        widths[widest] = max(8, widths[widest] - over)
    lines = []
    for row in cells:
        parts = []
        for i, cell in enumerate(row):
            cut = cell if len(cell) <= widths[i] else cell[: widths[i] - 1] + "…"
            parts.append(cut.rjust(widths[i]) if i in right else cut.ljust(widths[i]))
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
