"""List every command with its options, for programs that call us."""

from __future__ import annotations

from typing import Any

import click

import counterpoint.registry as registry
from counterpoint.app.cli import cli
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option

HEADING = ""


@click.command(
    hidden=True, epilog="\b\nExamples:\n  counterpoint commands\n  counterpoint commands --json | jq '.commands[].name'"
)
@json_option
def commands(as_json: bool) -> None:
    """List every command with its sub-commands, arguments and options."""
    context = click.Context(cli, info_name="counterpoint")
    if as_json:
        emit({"schema": SCHEMA_VERSION, "commands": _parts(cli, context)})
        return
    for name in cli.list_commands(context):
        click.echo(f"{name:12} {cli.summary(context, name)}")


def _parts(group: click.Group, context: click.Context) -> list[dict[str, Any]]:
    """What each command of a group takes; one that cannot be loaded is listed with the reason."""
    parts = []
    for name in group.list_commands(context):
        try:
            command = group.get_command(context, name)
            assert command is not None
        except Exception as error:
            parts.append({"name": name, "help": f"cannot be loaded: {error}", "parameters": []})
            continue
        place = registry.commands().get(name) if group is cli and name not in registry.ids("command") else None
        parts.append(_description(name, command) | ({"from": place} if place else {}))
    return parts


def _description(name: str, command: click.Command) -> dict[str, Any]:
    with click.Context(command, info_name=name) as context:
        parameters = [
            {"name": p.name, "kind": p.param_type_name, "flags": p.opts, "required": p.required, "help": getattr(p, "help", None)}
            for p in command.params
        ]
        about = {"name": name, "help": (command.help or "").split("\n")[0], "parameters": parameters}
        return about | ({"commands": _parts(command, context)} if isinstance(command, click.Group) else {})
