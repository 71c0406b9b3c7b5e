"""Commands with commands below them: each sub-command is a file of the group's folder, imported when it is called.

Always true: `notes add` is the file `add` in the folder `notes` of a package of kind `command`; any installed package adds
sub-commands to any group with a folder of the same name; help reads the first docstring lines as text.
"""

from __future__ import annotations

import os
from typing import Any

import click

import counterpoint.registry as registry
from counterpoint.app.moved import new_command
from counterpoint.errors import InputError, did_you_mean

COMPLETION_VARIABLES = ("_COUNTERPOINT_COMPLETE", "_CPT_COMPLETE")
"""A shell sets one of these, by the name it completes, when it asks what may come next."""
_SYNONYMS = {"list": "ls", "ls": "list"}


class Group(click.Group):
    """A command whose sub-commands are the files of its folders; `list` and `ls` are synonyms."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = f"command/{self.name}"
        """Where the registry looks for the sub-commands."""

    @property
    def path(self) -> tuple[str, ...]:
        """The words that call this group, without the program's name."""
        return tuple(self.kind.split("/")[1:])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all sub-commands, sorted."""
        return sorted({*self.commands, *registry.ids(self.kind)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A sub-command by its name, imported now; None where there is none."""
        known = self.list_commands(ctx)
        name = next((word for word in (cmd_name, _SYNONYMS.get(cmd_name)) if word in known), None)
        return None if name is None else self.prepared(self.commands.get(name) or registry.get(self.kind, name), name)

    def prepared(self, command: Any, name: str) -> click.Command:
        """The object as a command that knows its place; shell completion attaches to it while a shell asks."""
        if not isinstance(command, click.Command):
            raise InputError(f"{name} is a {type(command).__name__}, not a click command", fix="name a click command")
        if isinstance(command, Group):
            command.kind = f"{self.kind}/{name}"
        if any(variable in os.environ for variable in COMPLETION_VARIABLES):
            from counterpoint.app.terminal.completing import attach

            attach(command, " ".join((*self.path, name)))
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it; an unknown name gets its new name or a suggestion."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            moved = new_command((*self.path, *args[:2]))
            if moved is not None:
                raise moved from None
            suggestion = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(f"{error.message} {suggestion}", ctx) from None

    def summary(self, ctx: click.Context, name: str) -> str:
        """One line about a sub-command, without importing it."""
        if name in self.commands:
            return self.commands[name].get_short_help_str(limit=300)
        return registry.summary(self.kind, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A name and a line for each sub-command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary(ctx, name)) for name in self.list_commands(ctx)])
