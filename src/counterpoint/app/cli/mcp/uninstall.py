"""Take the server and the skill out of a client's settings."""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.cli.mcp._options import client_option, scope_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option
from counterpoint.errors import NotFound


@click.command(epilog="\b\nExamples:\n  counterpoint mcp uninstall\n  counterpoint mcp uninstall --client codex --scope user")
@client_option
@scope_option
@json_option
def uninstall(client: str, scope: str, as_json: bool) -> None:
    """Take the server and the skill out of the client's settings, and nothing else."""
    from counterpoint.app.mcp.clients import place
    from counterpoint.app.mcp.clients import uninstall as take_out

    where = place(client, scope, Path.cwd())
    changed = [str(path) for path in take_out(where)]
    if not changed:
        raise NotFound("nothing of ours is installed here", where=str(where.settings), fix="counterpoint mcp status shows where")
    if as_json:
        emit({"schema": SCHEMA_VERSION, "changed": changed})
    else:
        click.echo("\n".join(f"removed from {path}" for path in changed))
