"""Progress for people: silent for a second, then a bar on a terminal or a line every ten seconds elsewhere.

Always true: it writes to stderr only, and never when quiet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

import click

T = TypeVar("T")
_AFTER_S, _EVERY_S = 1.0, 10.0


def track(items: Iterable[T], label: str, *, total: int | None = None, quiet: bool = False) -> Iterator[T]:
    """Yield the items, showing how far it is; `total` says how many there will be where they cannot be counted."""
    count = len(items) if isinstance(items, Sized) else total or 0
    begin = last = time.monotonic()
    is_terminal, shown = sys.stderr.isatty(), False
    for done, item in enumerate(items):
        now = time.monotonic()
        due = now - begin > _AFTER_S and ((is_terminal and now - last > 0.1) or now - last > _EVERY_S)
        if due and not quiet and done:
            rate = done / (now - begin)
            left = max(count - done, 0) / rate
            line = f"{label} {done:,}/{count:,}  {rate:,.1f}/s  {left:,.0f} s left"
            click.echo(f"\r{line}\x1b[K" if is_terminal else line, nl=not is_terminal, err=True)
            last, shown = now, True
        yield item
    if shown and is_terminal:
        click.echo("\r\x1b[K", nl=False, err=True)
