"""List every command with its options, for programs that call us."""

from __future__ import annotations

from typing import Any

import click

from counterpoint import registry
from counterpoint.app.cli._output import SCHEMA_VERSION, emit, json_option


@click.command(epilog="\b\nExamples:\n  counterpoint commands\n  counterpoint commands --json | jq '.commands[].name'")
@json_option
def commands(as_json: bool) -> None:
    """List every command, its arguments and options."""
    found = [_described(name, registry.get("command", name)) for name in registry.ids("command")]
    if as_json:
        emit({"schema": SCHEMA_VERSION, "commands": found})
        return
    for command in found:
        click.echo(f"{command['name']:12} {registry.summary('command', command['name'])}")


def _described(name: str, command: click.Command) -> dict[str, Any]:
    with click.Context(command, info_name=name) as context:
        info = command.to_info_dict(context)
    parameters = [
        {"name": p["name"], "kind": p["param_type_name"], "flags": p["opts"], "required": p["required"], "help": p.get("help")}
        for p in info["params"]
        if p["name"] != "help"
    ]
    inner = getattr(command, "commands", {})
    described = {"name": name, "help": (info["help"] or "").split("\n")[0], "parameters": parameters}
    return described | ({"commands": [_described(n, c) for n, c in sorted(inner.items())]} if inner else {})
