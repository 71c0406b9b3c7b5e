"""Write the weights that a run trained as a transformers folder.

Always true: the folder appears whole or not at all.
"""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.terminal.output import emit, json_option
from counterpoint.app.terminal.progress import progress
from counterpoint.app.words import plain_text
from counterpoint.display import number
from counterpoint.lab.app.cli.models._rows import epilog, model_row, size_text


@click.command(epilog=epilog("export runs/hunt hunt-model", "export runs/roles lead-model --policy lead"))
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--policy", metavar="NAME", help="Whose weights, where a run trained several policies.")
@json_option
def export(run: str, folder: Path, policy: str | None, as_json: bool) -> None:
    """Write the weights that a run trained as a transformers folder.

    Adapters are added to the weights that they were trained over. RUN is a run's folder, or any model that `show` knows; FOLDER
    must not exist.
    """
    from counterpoint.lab.lm.conversion import export as write
    from counterpoint.lab.lm.weights import Source, described, find, require_extra

    require_extra()
    with progress("writing weights", quiet=as_json):
        write(find(run), folder, policy)
    found = described(Source(folder.resolve()))
    if as_json:
        emit(model_row(found))
        return
    click.echo(f"{found.name} is written: {size_text(found.size_bytes)}, {number(found.parameters)} parameters")
    click.echo(f"use it as --model local:{plain_text(str(folder))}")
