"""`Summary`: one line about one trace, for lists.

Always true: it costs no look into the lake; what is not known is None.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from counterpoint.store.log import Row, State
from counterpoint.trace import Trace
from counterpoint.trace.lines import LineReader
from counterpoint.trace.steered import order_of


class Summary(Struct, frozen=True, kw_only=True, gc=False):
    """What `counterpoint ls` shows of a trace."""

    id: str
    task_id: str
    system: str | None
    topology: str | None
    events: int
    edges: int
    agents: int
    tokens: int | float | None
    wall_clock_s: int | float | None
    team_reward: int | float | None
    errors: int
    """How many errors `check` finds in it."""
    source: str | None
    added: float
    """When it was first added, seconds since the epoch; of an open one, when it was last written."""
    is_open: bool = False
    """Whether it is still in the journal: running, or cut off."""
    cost_usd: int | float | None = None
    is_steered: bool = False
    """Whether an operator intervened while it was made."""

    @classmethod
    def of_row(cls, row: Row) -> Summary:
        """Of a finished trace."""
        return cls(
            id=row.id,
            task_id=row.task,
            system=row.system,
            topology=row.topology,
            events=row.events.rows,
            edges=row.edges.rows,
            agents=row.agents,
            tokens=row.tokens,
            wall_clock_s=row.wall_clock_s,
            team_reward=row.rewards.get("team"),
            errors=row.errors,
            source=row.source,
            added=row.added,
            cost_usd=row.costs.get("cost_usd") if row.cost_usd is None else row.cost_usd,
            is_steered=row.is_steered,
        )

    @classmethod
    def of_lines(cls, lines: LineReader, at: float) -> Summary:
        """Of an open one, from its journal."""
        assert lines.header is not None
        trace = Trace(trace_id=lines.header.trace_id, task_id=lines.header.task_id, events=lines.events, meta=lines.header.meta)
        return cls(
            id=lines.header.trace_id,
            task_id=lines.header.task_id,
            system=lines.header.system,
            topology=lines.header.topology,
            events=len(lines.events),
            edges=len(lines.edges),
            agents=len(trace.members),
            tokens=trace.tokens,
            wall_clock_s=trace.duration_s,
            cost_usd=trace.cost_usd,
            team_reward=None,
            errors=0,
            source=None,
            added=at,
            is_open=True,
            is_steered=any(order_of(e) is not None for e in lines.events),
        )


# -- `info`: how large a store is, what it holds, and how it grew -----------------------------------------------------
# Always true: nothing is written; sizes are of files, days are of UTC, and a day on which nothing was added is not listed.

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
