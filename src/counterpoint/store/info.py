"""`info`: how large a store is, what it holds, and how it grew.

Always true: nothing is written; sizes are of files, days are of UTC, and a day on which nothing was added is not listed.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from counterpoint.store.log import State

_PLACES = ("lake", "log", "journal", "hot", "control", "set-aside")


class Day(Struct, kw_only=True):
    """What one day added that is still there."""

    day: str
    traces: int = 0
    events: int = 0


class Info(Struct, kw_only=True):
    """A store in numbers."""

    path: str
    form: int
    """Of the folder: 2 has sums for every file of the log."""
    commit: int
    """The number of the newest commit."""
    traces: int
    open: int
    events: int
    parts: int
    dead_traces: int
    """Removed or replaced, and still in the lake's files until they are compacted."""
    bytes: dict[str, int]
    """By folder; those that are empty are left out."""
    days: list[Day]


def info(path: Path, form: int, state: State, n_open: int) -> Info:
    """The numbers of a store in this state."""
    days: dict[str, Day] = {}
    for row in state.rows.values():
        name = datetime.fromtimestamp(row.added, UTC).strftime("%Y-%m-%d")
        day = days.setdefault(name, Day(day=name))
        day.traces += 1
        day.events += row.events.rows
    sizes: dict[str, int] = defaultdict(int)
    for place in _PLACES:
        for file in (path / place).rglob("*"):
            if file.is_file():
                sizes[place] += file.stat().st_size
    return Info(
        path=str(path),
        form=form,
        commit=state.number,
        traces=len(state.rows),
        open=n_open,
        events=sum(day.events for day in days.values()),
        parts=len(state.parts),
        dead_traces=sum(part.traces - state.live[name] for name, part in state.parts.items()),
        bytes=dict(sizes),
        days=[days[name] for name in sorted(days)],
    )
