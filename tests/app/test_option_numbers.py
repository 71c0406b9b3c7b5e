"""Options that are numbers within limits: NaN passes no limit of any command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from counterpoint.app.cli import cli


def limited(command: click.Command, name: str) -> Iterator[tuple[str, click.Option]]:
    """Every option of a command, and of those under it, that takes a number within limits."""
    for option in command.params:
        if isinstance(option, click.Option) and isinstance(option.type, click.FloatRange):
            yield f"{name} {option.opts[0]}", option
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from limited(found, f"{name} {below}".strip())


def test_nan_is_refused_by_every_option_with_limits() -> None:
    options = dict(limited(cli, ""))
    assert {"serve --keep", "serve --idle"} <= options.keys(), "there are some to look at"
    for name, option in options.items():
        context = click.Context(click.Command(name))
        assert option.type.convert("1", option, context) == 1.0, name
        with pytest.raises(click.BadParameter, match="not a number"):
            option.type.convert("nan", option, context)
