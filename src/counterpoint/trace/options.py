"""Options of a mechanism or a reward against the annotations of its own parameters: a wrong one is named, with what it takes.

Always true: a number is finite and not true or false; a whole number has no fraction; `Share`, `Count` and `Natural` are ranges
that many options have. An option that several take with one meaning is declared once and marked `Shared`. Of other kinds
(functions, tables, objects) only a plain value (text, a number, true, null) that is none of them is refused: any object that does
what is asked of it will do. What the annotations do not say is not checked.
"""

from __future__ import annotations

import collections.abc
import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from numbers import Integral, Number, Real
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from counterpoint.errors import InputError


class Range(NamedTuple):
    """From the least to the most that a number may be, both included."""

    least: float
    most: float | None = None


class Shared(NamedTuple):
    """Marks an option that several mechanisms or rewards take: one name, one kind of value, one meaning."""

    name: str
    about: str


Share = Annotated[float, Range(0, 1)]
Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Channel = Annotated[str, Shared("channel", "the reward that is read, one of those of the trace or of its events")]

_PLAIN: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda v: isinstance(v, bool | np.bool_)),
    int: ("a whole number", lambda v: isinstance(v, Integral) and not isinstance(v, bool | np.bool_)),
    float: ("a number", lambda v: isinstance(v, Real) and not isinstance(v, bool | np.bool_) and math.isfinite(v)),
    str: ("a text", lambda v: isinstance(v, str)),
    types.NoneType: ("null", lambda v: v is None),
}
_ABSTRACT = {collections.abc.Callable: "a function", collections.abc.Mapping: "a mapping"}
_ABSTRACT |= dict.fromkeys((collections.abc.Sequence, collections.abc.Collection), "a list")


def shared(run: Callable[..., Any]) -> dict[str, Shared]:
    """The options of a function that are declared once for all that take them."""
    return {name: mark for name, kind in _kinds(run).items() for mark in _marks(kind) if mark.name == name}


def _marks(kind: Any) -> list[Shared]:
    own = [mark for mark in getattr(kind, "__metadata__", ()) if isinstance(mark, Shared)]
    return own + [mark for part in typing.get_args(kind) for mark in _marks(part)]


def check_options(run: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """One clear error for an option whose value is not of the kind that its parameter is annotated with."""
    kinds = _kinds(run)
    for name, value in options.items():
        if name in kinds and not _is(kinds[name], value):
            shown = repr(value) if value is None or isinstance(value, str | int | float) else f"a {type(value).__name__}"
            raise InputError(f"option {name!r} is {shown}", fix=f"{name} takes {_words(kinds[name])}")


@lru_cache(maxsize=256)
def _kinds(run: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(run, include_extras=True)
    except Exception:  # a plug-in's annotations may name what is not there when it runs
        return {}


def _is(kind: Any, value: Any) -> bool:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or kind is object:
        return True
    if origin is Annotated:
        ranges = [mark for mark in parts[1:] if isinstance(mark, Range)]
        return _is(parts[0], value) and all(r.least <= value and (r.most is None or value <= r.most) for r in ranges)
    if origin in (typing.Union, types.UnionType):
        return any(_is(part, value) for part in parts)
    if origin is Literal:
        return value in parts
    if kind in _PLAIN:
        return _PLAIN[kind][1](value)
    if origin is collections.abc.Callable:
        return callable(value)
    own = origin or kind
    is_plain = value is None or isinstance(value, str | bool | Number)
    if not is_plain or not isinstance(own, type) or getattr(own, "_is_protocol", False):  # who needs a replay says so itself
        return True
    return isinstance(value, own)


def _words(kind: Any) -> str:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        ranges = [mark for mark in parts[1:] if isinstance(mark, Range)]
        ends = [f" of at least {r.least:g}" if r.most is None else f" from {r.least:g} to {r.most:g}" for r in ranges]
        return _words(parts[0]) + "".join(ends)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(part) for part in parts))
    if origin is Literal:
        return "one of " + ", ".join(map(str, parts))
    if kind in _PLAIN:
        return _PLAIN[kind][0]
    own = origin or kind
    return _ABSTRACT.get(own) or (f"a {own.__name__}" if isinstance(own, type) else "an object")
