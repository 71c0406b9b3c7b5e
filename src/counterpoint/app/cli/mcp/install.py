"""Write the server and the skill into a client's settings."""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.cli.mcp._options import client_option, scope_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.store import store_option


@click.command(epilog="\b\nExamples:\n  counterpoint mcp install\n  counterpoint mcp install --client codex --scope user")
@client_option
@scope_option
@store_option
@json_option
def install(client: str, scope: str, store: Path | None, as_json: bool) -> None:
    """Write the server and a skill into the client's settings; everything else there stays as it is."""
    import counterpoint.app.mcp.server  # noqa: F401  # says what is missing before anything is changed
    from counterpoint.app.mcp.clients import install as put_in
    from counterpoint.app.mcp.clients import place, server

    where, started = place(client, scope, Path.cwd()), server(store)
    changed = [str(path) for path in put_in(where, started)]
    if as_json:
        emit({"schema": SCHEMA_VERSION, "settings": str(where.settings), "skill": str(where.skill), "server": started,
              "changed": changed})  # fmt: skip
        return
    for path in (where.settings, where.skill):
        click.echo(f"{'written' if str(path) in changed else 'was there already'}: {path}")
    click.echo(f"starts: {' '.join([started['command'], *started['args']])}")
    note("new sessions have it; ask one: why did my last session cost so much?")
