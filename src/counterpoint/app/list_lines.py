"""Lists in which the runs that a session made for itself stand in one line below it.

Always true: every row is in exactly one line; runs whose session is not in the list are one line, that says so; the order is that
of the rows, a session and its runs where the last of them would be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from counterpoint.display import counted
from counterpoint.store.summary import Summary
from counterpoint.trace.naming import short_model


class Line(NamedTuple):
    """One line of a list: a trace, or several runs of one session."""

    row: Summary
    """The trace; of several, the last of them with the sums of all."""
    runs: tuple[Summary, ...] = ()
    """The runs, where it is several."""
    is_below: bool = False
    """Whether the session they belong to is the line above."""

    @property
    def title(self) -> str:
        """What the line is called."""
        if not self.runs:
            return self.row.title or self.row.task_id
        models = {model for run in self.runs for model in run.models}
        kind = f"{short_model(next(iter(models)))} runs" if len(models) == 1 else "runs"
        many = counted(len(self.runs), kind.removesuffix("s"), kind)
        if self.is_below:
            return f"└ {many} of it"
        sessions = {run.parent or "" for run in self.runs}
        whose = f"session {next(iter(sessions))[:8]} is" if len(sessions) == 1 else f"{len(sessions):,} sessions that are"
        return f"{many}, {whose} not here" if len(sessions) == 1 else f"{many} of {whose} not here"


def fold_runs(rows: Sequence[Summary]) -> list[Line]:
    """The lines of a list."""
    place = {row.id: i for i, row in enumerate(rows)}
    runs: dict[object, list[Summary]] = {}
    for row in rows:
        if row.parent and row.parent != row.id:
            # runs of a kind whose sessions are not here are one line, however many sessions that is
            runs.setdefault(row.parent if row.parent in place else (row.project, row.models), []).append(row)
    below = {run.id for some in runs.values() for run in some}
    lines: list[tuple[int, int, Line]] = []
    for i, row in enumerate(rows):
        mine = [] if row.id in below else runs.get(row.id, [])
        last = max([i, *(place[run.id] for run in mine)])
        if row.id not in below:
            lines.append((last, 0, Line(row)))
        if mine:
            lines.append((last, 1, Line(sum_runs(mine), tuple(mine), is_below=True)))
    for of, mine in runs.items():
        if of not in place or of in below:
            lines.append((max(place[run.id] for run in mine), 0, Line(sum_runs(mine), tuple(mine))))
    return [line for *_, line in sorted(lines, key=lambda one: one[:2])]


def sum_runs(runs: Sequence[Summary]) -> Summary:
    """Several runs as one row: the last of them, with the sums of all."""
    last = max(runs, key=lambda run: run.active)
    sums = {
        name: math.fsum(known) if any(isinstance(v, float) for v in known) else sum(known)
        for name in ("tokens", "cost_usd", "wall_clock_s")
        if (known := [v for run in runs if (v := getattr(run, name)) is not None])
    }
    unpriced: dict[str, int] = {}
    for run in runs:
        for model, count in run.unpriced.items():
            unpriced[model] = unpriced.get(model, 0) + count
    counts = {name: sum(getattr(run, name) for run in runs) for name in ("events", "agents", "errors", "uncounted", "problems")}
    waiting = tuple(one for run in runs for one in run.waiting)
    return replace(last, **sums, **counts, unpriced=unpriced, waiting=waiting, team_reward=None, annotations=0, labels=())
