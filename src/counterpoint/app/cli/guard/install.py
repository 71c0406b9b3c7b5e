"""Write the hook into a client's settings."""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.cli.guard._options import answer_option, client_option, hook_options, limit_options, scope_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note


@click.command(
    epilog="\b\nExamples:\n  counterpoint guard install --cap agents=40 --cap dollars=20\n"
    "  counterpoint guard install --client codex --scope user --limits guard.toml"
)
@client_option
@scope_option
@limit_options
@answer_option
@json_option
def install(
    client: str, scope: str, caps: tuple[str, ...], limits_file: str | None, prices: str | None, answer: str, as_json: bool
) -> None:
    """Write the hook into the client's settings; everything else there stays as it is."""
    from counterpoint.guard.settings import CLIENTS, hook_command
    from counterpoint.guard.settings import install as install_hook

    options = hook_options(caps, limits_file, prices) | ({"--answer": [answer]} if answer != "json" else {})
    path = CLIENTS[client].path(scope, Path.cwd())
    command = hook_command([word for name, values in options.items() for value in values for word in (name, value)])
    changed = install_hook(path, command)
    if as_json:
        emit({"schema": SCHEMA_VERSION, "settings": str(path), "command": command, "changed": changed})
        return
    click.echo(f"{'installed in' if changed else 'was there already:'} {path}")
    click.echo(f"runs before every tool call: {command}")
    if client == "codex":
        note("Codex asks once whether a new hook may run")
