"""Remove the hook from a client's settings."""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.cli.guard._options import client_option, scope_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option
from counterpoint.errors import NotFound


@click.command(epilog="\b\nExamples:\n  counterpoint guard uninstall\n  counterpoint guard uninstall --client codex --scope user")
@client_option
@scope_option
@json_option
def uninstall(client: str, scope: str, as_json: bool) -> None:
    """Remove the hook from the client's settings, and nothing else."""
    from counterpoint.guard.settings import CLIENTS
    from counterpoint.guard.settings import uninstall as uninstall_hook

    path = CLIENTS[client].path(scope, Path.cwd())
    if not uninstall_hook(path):
        raise NotFound("no guard is installed here", where=str(path), fix="counterpoint guard status shows where one is")
    emit({"schema": SCHEMA_VERSION, "settings": str(path)}) if as_json else click.echo(f"removed from {path}")
