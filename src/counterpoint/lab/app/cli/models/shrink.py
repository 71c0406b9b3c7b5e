"""Write a run's adapter with a lower rank.

Always true: the folder appears whole or not at all.
"""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.terminal.output import emit, json_option
from counterpoint.app.words import plain_text
from counterpoint.lab.app.cli.models._rows import epilog, model_row, size_text


@click.command(epilog=epilog("shrink runs/hunt hunt-small 8", "shrink runs/hunt hunt-small 4 --json"))
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("rank", type=int)
@json_option
def shrink(run: str, folder: Path, rank: int, as_json: bool) -> None:
    """Write a run's adapter with a lower RANK: a smaller file, and the closest fit of that rank.

    FOLDER must not exist; it is used like the run: --model local:FOLDER.
    """
    from counterpoint.lab.lm.conversion import shrink as write
    from counterpoint.lab.lm.weights import described, find, require_extra

    require_extra()
    write(find(run), folder, rank)
    found = described(find(str(folder)))
    if as_json:
        emit(model_row(found))
        return
    click.echo(f"{found.name} is written: {size_text(found.size_bytes)}, rank {rank}")
    click.echo(f"use it as --model local:{plain_text(str(folder))}")
