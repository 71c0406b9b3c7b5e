"""Options and settings against the annotations of what takes them: a wrong one is named, with what it takes.

Always true: a number is not true or false, and not NaN; a whole number has no fraction; a plain `float` is finite, and so is one
with a range, unless the range says otherwise. `Range` marks the ends of an annotated number, and the names below are the ranges
that many options have. Entries of a list or table are of its kind. Of other kinds (functions, objects) only a plain value (text,
a number, true, null) that is none of them is refused: any object that does what is asked of it will do. What the annotations do
not say is not checked. An option that several take with one meaning is declared once and marked `Shared`.
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

from counterpoint.errors import InputError

LARGEST_SEED = 2**62
"""Seeds are 64-bit numbers, and others are counted on from them."""


class Range(NamedTuple):
    """The numbers that an option takes; both ends belong to it unless it says otherwise."""

    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    """`least` itself is too small."""
    below: bool = False
    """`most` itself is too large."""
    infinite: bool = False
    """Infinity is taken, too: no limit."""

    def holds(self, value: Any) -> bool:
        """Whether a number lies in it."""
        low = value > self.least if self.above else value >= self.least
        high = value < self.most if self.below else value <= self.most
        return bool(low and high and (self.infinite or math.isfinite(value)))

    def words(self) -> str:
        """Its ends, after "a number"."""
        if math.isinf(self.most):
            return f" above {_digits(self.least)}" if self.above else f" of {_digits(self.least)} or more"
        low, top = "above " if self.above else "", "below " if self.below else ""
        return f" from {low}{_digits(self.least)} to {top}{_digits(self.most)}"


def _digits(end: float) -> str:
    return f"{end:,.0f}" if abs(end) >= 1_000 and end == int(end) else f"{end:g}"


class Shared(NamedTuple):
    """Marks an option that several mechanisms or rewards take: one declaration, with one name and one meaning."""

    name: str
    about: str


Share = Annotated[float, Range(0, 1)]
ShareBelowOne = Annotated[float, Range(0, 1, below=True)]
PositiveInt = Annotated[int, Range(1)]
NonNegativeInt = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, above=True)]
PositiveOrInfinite = Annotated[float, Range(0, above=True, infinite=True)]
NonNegative = Annotated[float, Range(0)]
AboveOne = Annotated[float, Range(1, above=True)]
Rate = Annotated[float, Range(0, 1, above=True)]
"""A learning rate."""
Seed = Annotated[int, Range(0, LARGEST_SEED)]
Channel = Annotated[str, Shared("channel", "the reward that is read, one of those of the trace or of its events")]


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ == "bool_"  # numpy's, which is not loaded for it


_PLAIN: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", _is_bool),
    int: ("a whole number", lambda v: isinstance(v, Integral) and not _is_bool(v)),
    float: ("a number", lambda v: isinstance(v, Real) and not _is_bool(v) and math.isfinite(v)),
    str: ("a text", lambda v: isinstance(v, str)),
    types.NoneType: ("null", lambda v: v is None),
}
_ABSTRACT = {collections.abc.Callable: "a function", collections.abc.Mapping: "a table", dict: "a table", tuple: "a list"}
_ABSTRACT |= dict.fromkeys((collections.abc.Sequence, collections.abc.Collection), "a list")


def shared(takes: Any) -> dict[str, Shared]:
    """The options of a function that are declared once for all that take them."""
    return {name: mark for name, kind in _kinds(takes).items() for mark in _marks(kind) if mark.name == name}


def _marks(kind: Any) -> list[Shared]:
    own = [mark for mark in getattr(kind, "__metadata__", ()) if isinstance(mark, Shared)]
    return own + [mark for part in typing.get_args(kind) for mark in _marks(part)]


def check_options(takes: Any, options: Mapping[str, Any], *, where: str | None = None) -> None:
    """One clear error for an option whose value is not of the kind that a parameter of a function, or a field of a class, is
    annotated with."""
    kinds = _kinds(takes)
    for name, value in options.items():
        if name in kinds:
            _check(name, kinds[name], value, where)


def _check(name: str, kind: Any, value: Any, where: str | None) -> None:
    if _is(kind, value):
        return
    if typing.get_origin(kind) in (collections.abc.Mapping, dict) and isinstance(value, Mapping):
        for key, part in value.items():
            _check(f"{name}.{key}", typing.get_args(kind)[1], part, where)
    shown = repr(value) if value is None or isinstance(value, str | int | float | list | tuple) else f"a {type(value).__name__}"
    raise InputError(f"{name} is {shown}", where=where, fix=f"{name} takes {_words(kind)}")


def check_fields(record: Any, *, table: str = "") -> None:
    """The same for every field of a dataclass's instance, for its `__post_init__`; `table` is what stands before their names."""
    record_type: Any = type(record)
    kinds = _kinds(record_type)
    for name, value in vars(record).items():
        _check(f"{table}.{name}" if table else name, kinds.get(name, Any), value, None)


@lru_cache(maxsize=1024)
def _kinds(takes: Any) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(takes, include_extras=True)
    except Exception:  # a plug-in's annotations may name what is not there when it runs
        return {}


def _is(kind: Any, value: Any) -> bool:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or kind is object:
        return True
    if origin is Annotated:
        return _is_in_range(parts[0], [mark for mark in parts[1:] if isinstance(mark, Range)], value)
    if origin in (typing.Union, types.UnionType):
        return any(_is(part, value) for part in parts)
    if origin is Literal:
        return value in parts
    if kind in _PLAIN:
        return _PLAIN[kind][1](value)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is tuple and isinstance(value, list | tuple):
        kinds = parts[:1] * len(value) if parts[1:] == (...,) else parts
        return len(kinds) == len(value) and all(_is(own, part) for own, part in zip(kinds, value, strict=True))
    if origin in (collections.abc.Mapping, dict) and isinstance(value, Mapping):
        return all(_is(parts[1], part) for part in value.values())
    held = origin or kind
    is_plain = value is None or isinstance(value, str | bool | Number)
    if not is_plain or not isinstance(held, type) or getattr(held, "_is_protocol", False):  # who needs a replay says so itself
        return True
    return isinstance(value, held)


def _is_in_range(kind: Any, ranges: list[Range], value: Any) -> bool:
    is_infinite = kind is float and isinstance(value, Real) and not isinstance(value, bool) and math.isinf(value)
    return (is_infinite or _is(kind, value)) and all(r.holds(value) for r in ranges)


def _words(kind: Any) -> str:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _words(parts[0]) + "".join(mark.words() for mark in parts[1:] if isinstance(mark, Range))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(part) for part in parts))
    if origin is Literal:
        return "one of " + ", ".join(map(str, parts))
    if kind in _PLAIN:
        return _PLAIN[kind][0]
    if origin is tuple and parts[1:] != (...,):
        own = list(dict.fromkeys(map(_words, parts)))
        return f"a list of {len(parts)}, each {own[0]}" if len(own) == 1 else "a list of " + " and ".join(map(_words, parts))
    if origin is tuple or (origin in (collections.abc.Mapping, dict) and parts[1] not in (Any, object)):
        return f"{_ABSTRACT[origin]}, each {_words(parts[0 if origin is tuple else 1])}"
    held = origin or kind
    return _ABSTRACT.get(held) or (f"a {held.__name__}" if isinstance(held, type) else "an object")
