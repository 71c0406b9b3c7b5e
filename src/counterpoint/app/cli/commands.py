"""List every command with its options, for programs that call us."""

from __future__ import annotations

from typing import Any

import click

import counterpoint.registry as registry
from counterpoint.app.cli import installed
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option

HEADING = ""


@click.command(epilog="\b\nExamples:\n  counterpoint commands\n  counterpoint commands --json | jq '.commands[].name'")
@json_option
def commands(as_json: bool) -> None:
    """List every command, its arguments and options."""
    found = [_described(name, registry.get("command", name)) for name in registry.ids("command")]
    found += [_installed(name, place) for name, place in installed().items() if name not in registry.ids("command")]
    if as_json:
        emit({"schema": SCHEMA_VERSION, "commands": found})
        return
    for command in found:
        line = command["help"] if "from" in command else registry.summary("command", command["name"])
        click.echo(f"{command['name']:12} {line}" + (f"  [{command['from']}]" if "from" in command else ""))


def _installed(name: str, place: str) -> dict[str, Any]:
    """A command of another package; one that cannot be loaded is listed with the reason."""
    try:
        return {**_described(name, registry.get("command", place)), "from": place}
    except Exception as error:
        return {"name": name, "help": f"cannot be loaded: {error}", "parameters": [], "from": place}


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
