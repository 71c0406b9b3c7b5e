"""List the model weights on this machine.

Always true: nothing is fetched or changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from counterpoint.app.terminal.output import emit, json_option, note, table
from counterpoint.lab.app.cli.models._rows import epilog, model_row, size_text


@click.command(epilog=epilog("ls", "ls runs/hunt --json"))
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="[RUN]...")
@json_option
def ls(folders: tuple[Path, ...], as_json: bool) -> None:
    """List models, and those of each RUN: a run that trained a language model, or a folder of such runs."""
    print_models(folders, as_json=as_json)


def print_models(folders: Sequence[Path], *, as_json: bool) -> None:
    """A line for each model."""
    from counterpoint.lab.lm.weights import SHIPPED, listed, trained

    rows = [*(weights for folder in folders for weights in trained(folder)), *listed()]
    if as_json:
        for weights in rows:
            emit(model_row(weights))
        return
    cells = [
        (w.name, w.state, size_text(w.size_bytes), w.parameters, w.dtype or "-", w.licence or "-", w.source or "-") for w in rows
    ]
    click.echo(table(("model", "state", "size", "parameters", "numbers", "licence", "from"), cells, right=(2, 3)))
    for weights in rows:
        if weights.state not in ("ready", "cannot be read") and weights.path != SHIPPED / weights.name:
            note(f"counterpoint models install {weights.name}")
