"""List the notes, labels and scores on traces."""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.cli.notes._rows import print_annotations
from counterpoint.app.terminal.output import json_option, note
from counterpoint.app.terminal.store import store_option
from counterpoint.errors import InputError


@click.command(
    epilog="\b\nExamples:\n  counterpoint notes ls\n  counterpoint notes ls 'label:wrong since:7d' --json\n\n"
    "Exit codes: 0 fine, 2 not a query, 3 no such trace."
)
@click.argument("trace", required=False, metavar="[TRACE|QUERY]")
@click.argument("event", required=False)
@store_option
@json_option
def ls(trace: str | None, event: str | None, store: Path | None, as_json: bool) -> None:
    """List annotations, the oldest first: of a trace, of one event, of a query's traces, or of the whole store."""
    from counterpoint.app.api.annotate import notes
    from counterpoint.app.load_save import names_file

    if trace is not None and Path(trace).exists() and names_file(trace, store):
        raise InputError("annotations are in a store, and this is a file", where=trace, fix=f"counterpoint import {trace}")
    rows = [one for one in notes(trace, store=store).rows if event is None or one.event == event]
    print_annotations(rows, as_json=as_json)
    if not rows:
        note("no annotations yet: counterpoint notes add TRACE --note TEXT", quiet=as_json)
