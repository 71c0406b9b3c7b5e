"""Add a model that is on this machine as a file or a folder, under a name.

Always true: nothing is fetched; the model appears whole or not at all; one that is there is not written over.
"""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.terminal.output import emit, json_option, note
from counterpoint.app.terminal.progress import progress
from counterpoint.app.words import plain_text
from counterpoint.lab.app.cli.models._rows import epilog, find_model, model_row


@click.command(epilog=epilog("add coder-0.5b.Q4_K_M.gguf --sha256 SUM --name coder", "add Qwen3-0.6B/ --json"))
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE|FOLDER")
@click.option("--name", metavar="NAME", help="What to call it; without it, as the file or the folder is called.")
@click.option("--sha256", "sums", metavar="SUM", multiple=True, help="What the SHA-256 must be, once for each file of weights.")
@json_option
def add(path: Path, name: str | None, sums: tuple[str, ...], as_json: bool) -> None:
    """Add a .gguf file or a transformers folder as a model with a name.

    A file is converted, a folder copied; then --model local:NAME finds it. Adding the same again changes nothing, but repairs it
    where it is damaged.
    """
    from counterpoint.lab.lm.adding import add as put

    with progress(f"adding {path.name}", quiet=as_json) as bar:

        def tell(text: str) -> None:
            note(text, quiet=as_json)
            bar.at(bar.done, about=text)

        called, is_new = put(path, name, sums, tell)
    found = find_model(called)
    if as_json:
        emit(model_row(found) | {"new": is_new})
        return
    click.echo(f"{called} is {'added' if is_new else 'there already, and whole'}: {plain_text(str(found.path))}")
    click.echo(f"use it as --model local:{called}")
