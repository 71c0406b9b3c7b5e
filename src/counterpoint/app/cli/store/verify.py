"""Read every byte of a store and compare every checksum."""

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
    epilog="\b\nExamples:\n  counterpoint store verify\n  counterpoint store verify --json\n\n"
    "Exit codes: 0 fine, 1 no space, 2 damaged or no store, 3 nothing there, 4 damage was found."
)
@store_option
@json_option
def verify(store: Path | None, as_json: bool) -> None:
    """Read every byte and compare every checksum; exit 4 with a list of damaged files."""
    from counterpoint.store.verify import verify as verify_store

    result = verify_store(store_path(store))
    if as_json:
        emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(result)})
    else:
        for fault in result.faults:
            concerns = f"; concerns {some_names(fault.traces)}" if fault.traces else ""
            click.echo(plain_text(f"{fault.file}: {fault.what}{concerns}"))
        if result.untallied:
            note(f"{result.untallied:,} open runs are an older version's: whether their end is missing cannot be told")
        stray = f"; {result.strays:,} files of the lake are in nobody's use" if result.strays else ""
        note(f"{result.files:,} files, {result.bytes:,} bytes, {result.traces:,} traces: {len(result.faults):,} faults{stray}")
        if result.faults:
            note("counterpoint store repair recovers what is readable, and deletes nothing")
    if result.faults:
        raise click.exceptions.Exit(4)
