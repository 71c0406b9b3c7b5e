"""The standings of a race as commands print them.

Always true: the numbers printed are those of the rows.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from counterpoint.answer import Section
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, say

if TYPE_CHECKING:
    from counterpoint.lab.bench.race.result import RaceResult

HOME = Path("runs/methods")
"""Where `compare methods` puts its rows unless told otherwise."""


def print_race(result: RaceResult, *, as_json: bool) -> None:
    """Print a race: a table for each world, then all worlds."""
    if not as_json:
        from counterpoint.lab.app.race_page import race_sections

        return say(*race_sections(result) or [Section(words="there is no final row yet")])
    over = result.overall if len(result.worlds) > 1 else ()
    tables = {"worlds": [dataclasses.asdict(world) for world in result.worlds], "overall": [dataclasses.asdict(o) for o in over]}
    return emit({"schema": SCHEMA_VERSION, "event": "result", "head": result.head, **tables, "failures": result.failures})
