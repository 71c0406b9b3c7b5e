"""Options that are numbers within limits: NaN passes no limit of any command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from counterpoint.app.cli import cli
from counterpoint.app.terminal.options import caps_of, numbers_of
from counterpoint.errors import InputError


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
    assert {"audit --similarity", "steer --wait"} <= options.keys(), "there are some to look at"
    for name, option in options.items():
        context = click.Context(click.Command(name))
        assert option.type.convert("1", option, context) == 1.0, name
        with pytest.raises(click.BadParameter, match="not a number"):
            option.type.convert("nan", option, context)


@pytest.mark.parametrize("text", ["nan", "NaN", "Infinity", "-1", "true", "two"])
def test_pairs_take_numbers_from_0_only(text: str) -> None:
    with pytest.raises(InputError, match="from 0"):
        caps_of([f"usd={text}"], {"usd": float})
    with pytest.raises(InputError, match="from 0"):
        numbers_of([f"cost={text}"], ["cost"])
    assert caps_of(["usd=0.5", "tokens=7"], {"usd": float, "tokens": int, "seconds": float}) == {"usd": 0.5, "tokens": 7}


@pytest.mark.parametrize("pair", ["tokens", "=3", "tokns=3"])
def test_pairs_that_name_nothing_are_refused(pair: str) -> None:
    with pytest.raises(InputError):
        caps_of([pair], {"tokens": int})
    with pytest.raises(InputError, match="set twice"):
        caps_of(["tokens=1", "tokens=2"], {"tokens": int})
