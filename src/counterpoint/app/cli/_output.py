"""What commands print: JSON objects, plain tables, and system errors in our words.

Always true: the same rows give the same bytes; colour only on a terminal without `NO_COLOR`; tables fit the width.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from counterpoint.errors import CounterpointError, InputError, NotFound, TryAgain

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


def number(value: float | int | None, digits: int = 4) -> str:
    """A number for reading: grouped integers, short floats, `-` for what was not measured."""
    if value is None:
        return "-"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:.{digits}g}"


def _width() -> int:
    return shutil.get_terminal_size((110, 24)).columns if sys.stdout.isatty() else 200


def plain_text(text: str, *, keep_lines: bool = False) -> str:
    """Text without control characters: what a trace says must not steer the reader's terminal."""
    return "".join(c if c.isprintable() or (keep_lines and c in "\n\t") else "\N{REPLACEMENT CHARACTER}" for c in text)


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


def os_error(error: OSError) -> CounterpointError:
    """A system error in our words: what, where, what would work."""
    where = os.fspath(error.filename) if isinstance(error.filename, (str, os.PathLike)) else None
    match error.errno:
        case errno.ENOENT:
            return NotFound("no such file", where=where, fix="check the path; `counterpoint ls` lists what is stored")
        case errno.EISDIR:
            return InputError("is a directory, not a file", where=where, fix="name a file in it")
        case errno.EACCES | errno.EPERM:
            return InputError("permission denied", where=where, fix="check the file's owner and mode")
        case errno.ENOSPC | errno.EDQUOT:
            return CounterpointError("no space left on the device", where=where, fix="free some space and run it again")
        case errno.EROFS:
            return InputError("the file system is read-only", where=where, fix="write somewhere else with -o or --store")
        case errno.EAGAIN | errno.EBUSY:
            return TryAgain("busy", where=where, fix="run it again in a moment")
    return CounterpointError(error.strerror or str(error), where=where)
