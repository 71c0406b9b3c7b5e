"""Rank all results of a folder.

Always true: the best comes first; results of different suites are not mixed.
"""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, say
from counterpoint.errors import InputError
from counterpoint.lab.app.cli.bench._results import epilog, html_option, write_page


@click.command(epilog=epilog("leaderboard bench", "leaderboard bench -o board.html"))
@click.argument("folder", type=click.Path(path_type=Path))
@html_option
@json_option
def leaderboard(folder: Path, output: Path | None, as_json: bool) -> None:
    """Rank all results in a folder, the best first."""
    from counterpoint.lab.app.bench_page import leaderboard as board
    from counterpoint.lab.bench.scorecard.rows import BenchFolder

    results = [path for path in sorted(folder.glob("*")) if BenchFolder.is_at(path)]
    if not results:
        raise InputError("no results are in this folder", where=str(folder), fix="counterpoint bench run short --team ...")
    sections = board(results)
    if as_json:
        for section in sections:
            rows = [dict(zip(section.head, row, strict=True)) for row in section.rows]
            emit({"schema": SCHEMA_VERSION, "suite": section.title, "teams": rows})
    elif output is not None:
        write_page(output, "Leaderboard", sections)
    else:
        say(*sections)
