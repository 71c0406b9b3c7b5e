"""Repair a damaged store; broken files are set aside."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from counterpoint.app.cli.store._names import some_names
from counterpoint.app.load_save import store_path
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.store import store_option
from counterpoint.app.words import plain_text


@click.command(
    epilog="\b\nExamples:\n  counterpoint store repair\n  counterpoint store repair --store runs/traces --json\n\n"
    "Exit codes: 0 fine, 1 no space, 2 damaged or no store, 3 nothing there, 4 traces were lost."
)
@store_option
@json_option
def repair(store: Path | None, as_json: bool) -> None:
    """Repair a damaged store from its data files and journals; broken files are set aside, nothing is deleted.

    Exit 4 when traces were lost for good. A trace that was removed may come back, where the log no longer says so.
    """
    from counterpoint.store.repair import repair as repair_store

    result = repair_store(store_path(store))
    if as_json:
        emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(result)})
    else:
        for line in result.done:
            click.echo(plain_text(line))
        for what, names in (("restored", result.restored), ("lost", result.lost)):
            if names:
                click.echo(plain_text(f"{what}: {some_names(names)}"))
        note("nothing to repair" if not result.done else f"the broken files are in {result.aside}" if result.aside else "done")
    if result.lost:
        raise click.exceptions.Exit(4)
