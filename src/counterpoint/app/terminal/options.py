"""Dials on the command line: `--set NAME=VALUE`, with values of the kind that the parameter has.

Always true: a name that is set twice, a pair without `=` and a value of another kind are one clear error before anything runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from counterpoint.errors import CounterpointError, InputError


class NumberRange(click.FloatRange):
    """A number within limits: click lets NaN through all of them, and what waits for NaN seconds never ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; NaN is none."""
        found = super().convert(value, param, ctx)
        if found != found:
            self.fail(f"{value!r} is not a number", param, ctx)
        return found


set_option = click.option(
    "--set", "pairs", multiple=True, metavar="NAME=VALUE", help="Another value of a parameter; may be repeated."
)


def given(config: Any, pairs: Sequence[str]) -> dict[str, Any]:
    """What `--set` changes in a config: values are JSON, or plain text where they are not."""
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(f"not NAME=VALUE: {pair!r}", where="--set", fix="as in --set horizon=20")
        if name in changes:
            raise InputError(f"parameter {name!r} is set twice", where="--set", fix="set it once")
        changes[name] = _value(text, getattr(config, name, None), name)
    return changes


def options_of(pairs: Sequence[str]) -> dict[str, Any]:
    """The options of a mechanism by `--option`: values are JSON, or plain text where they are not."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(f"not NAME=VALUE: {pair!r}", where="--option", fix="as in --option samples=8")
        try:
            out[name] = json.loads(text)
        except ValueError:
            out[name] = text
    return out


@contextmanager
def impossible(fix: str) -> Iterator[None]:
    """Values that do not go together, in our words."""
    try:
        yield
    except CounterpointError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"impossible parameters: {error}", where="--set", fix=fix) from error


def _value(text: str, present: Any, name: str) -> Any:
    """The text as a value of the kind that the parameter has now: `1` for 1.0 is a float, a list for a tuple a tuple."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(present, float) and type(value) is int:
        return float(value)
    if isinstance(present, tuple) and isinstance(value, list):
        return tuple(value)
    if present is not None and type(value) is not type(present):
        kinds = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "tuple": "a list"}
        kind = kinds.get(type(present).__name__, f"a {type(present).__name__}")
        raise InputError(f"{name} is {kind}, not {text!r}", where="--set", fix=f"it is {json.dumps(present, default=str)} now")
    return value
