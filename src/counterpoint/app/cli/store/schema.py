"""Print the JSON Schema of a trace, generated from the records."""

from __future__ import annotations

import json

import click

from counterpoint.app.terminal.output import emit, json_option
from counterpoint.trace.schema import json_schema


@click.command(epilog="\b\nExamples:\n  counterpoint store schema > trace.schema.json\n  counterpoint store schema --json")
@json_option
def schema(as_json: bool) -> None:
    """Print the JSON Schema (Draft 2020-12) of a trace file.

    The survey's fields and ours, each with its meaning. With --json it is on one line.
    """
    if as_json:
        emit(json_schema())
    else:
        click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
