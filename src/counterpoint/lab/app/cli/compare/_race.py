"""The standings of a race as commands print them.

Always true: the numbers printed are those of the rows.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, table
from counterpoint.app.words import plain_text

if TYPE_CHECKING:
    from counterpoint.lab.bench.race.page import RaceResult

HOME = Path("runs/methods")
"""Where `compare methods` puts its rows unless told otherwise."""


def print_race(result: RaceResult, *, as_json: bool) -> None:
    """Print a race: a table for each world, then all worlds."""
    from counterpoint.lab.bench.race.page import HEADER, cells, notes, overview_cells, overview_header

    over = result.overall if len(result.worlds) > 1 else ()
    if as_json:
        tables = {
            "worlds": [dataclasses.asdict(world) for world in result.worlds],
            "overall": [dataclasses.asdict(o) for o in over],
        }
        return emit({"schema": SCHEMA_VERSION, "event": "result", "head": result.head, **tables, "failures": result.failures})
    parts = []
    for world in result.worlds:
        lines = [cells(one, result.head["methods"]) for one in world.standings]
        best = f"best known {world.best_known / world.bound:.1%} of it"
        title = f"{world.world}: bound {world.bound:.4g}, {best}, budget {world.budget:,}"
        parts += [title, table(HEADER, lines, right=range(3, 11)), "\n".join(notes(result, world))]
    if over:
        lines = [overview_cells(one, result.head["methods"]) for one in over]
        header = overview_header(result.worlds)
        parts += ["all worlds, by the mean of the ranks", table(header, lines, right=[0, *range(2, len(header))])]
    click.echo("\n\n".join(plain_text(part, keep_lines=True) for part in parts if part) or "there is no final row yet")
    return None
