"""Merge small files of a store and delete replaced ones."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from counterpoint.app.terminal.options import purge_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.display import number


@click.command(
    epilog="\b\nExamples:\n  counterpoint store compact\n  counterpoint store compact --purge\n\n"
    "Exit codes: 0 fine, 1 no space, 2 damaged or no store, 3 nothing there."
)
@purge_option
@store_option
@json_option
def compact(purge: bool, store: Path | None, as_json: bool) -> None:
    """Merge small files, and delete files that were replaced more than ten minutes ago.

    What was removed is in such a file only after a compaction has replaced it: --purge does both at once.
    """
    with open_store(store) as opened:
        result = opened.compact(**({"grace_s": 0.0} if purge else {}))
        if purge:
            result = msgspec.structs.replace(result, deleted=result.deleted + opened.purge().deleted)
    if as_json:
        emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(result)})
        return
    click.echo(f"{number(result.merged)} parts merged into {number(result.written)}, {number(result.deleted)} files deleted")
