"""The size of a store, what it holds, and how it grew."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from counterpoint.app.terminal.options import rows_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, table
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text


@click.command(
    epilog="\b\nExamples:\n  counterpoint store info\n  counterpoint store info --store runs/traces --json\n\n"
    "Exit codes: 0 fine, 1 no space, 2 damaged or no store, 3 nothing there."
)
@rows_option(7)
@store_option
@json_option
def info(rows: int, store: Path | None, as_json: bool) -> None:
    """Print how large the store is, what it holds, and how it grew."""
    with open_store(store, read_only=True) as opened:
        about = opened.info()
    if as_json:
        emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(about)})
        return
    total = sum(about.bytes.values())
    lines = [
        ("traces", f"{about.traces:,} finished, {about.open:,} open, {about.dead_traces:,} removed or replaced, not yet erased"),
        ("events", f"{about.events:,}" + (f", {about.bytes.get('lake', 0) / about.events:.0f} bytes each" * bool(about.events))),
        ("bytes", f"{total:,}: " + (", ".join(f"{place} {size:,}" for place, size in about.bytes.items()) or "nothing yet")),
        ("format", f"{about.form}, {about.parts:,} parts, commit {about.commit:,}"),
    ]
    click.echo(plain_text(about.path))
    for name, text in lines:
        click.echo(f"  {name:7} {text}")
    if about.days:
        click.echo()
        click.echo(table(("day", "traces", "events"), [(d.day, d.traces, d.events) for d in about.days[-rows:]], right=(1, 2)))
