"""Withdraw annotations by id."""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.cli.notes._rows import print_annotations
from counterpoint.app.terminal.output import json_option, note
from counterpoint.app.terminal.store import open_store, store_option


@click.command(
    epilog="\b\nExamples:\n  counterpoint notes remove 3f2a9c\n  counterpoint notes remove 3f2a9c 81bd02 --json\n\n"
    "Exit codes: 0 removed, 3 no such annotation."
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@store_option
@json_option
def remove(ids: tuple[str, ...], store: Path | None, as_json: bool) -> None:
    """Withdraw annotations; `counterpoint notes ls` shows their ids."""
    with open_store(store) as opened:
        removed = [opened.withdraw(one) for one in ids]
    print_annotations(removed, as_json=as_json)
    note(f"{len(removed):,} removed", quiet=as_json)
