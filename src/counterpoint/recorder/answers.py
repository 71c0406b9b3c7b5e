"""Answers of the outside, kept so that they can be given again: values and errors as JSON, and back.

Always true: what is unpacked equals what was packed, and is of the same classes (a text of a class of its own is a text); what
cannot be packed is `Unpackable`, never something similar. Unpacking imports nothing: a class that a text names is looked up among
the modules that the team's own code has loaded, and only data classes, pydantic models, structs, enums and errors are taken.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import json
import math
import sys
import unicodedata
import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from counterpoint.recorder.values import LIMIT, arguments_text
from counterpoint.trace import content_ref

_TAG = "$"
_DEEPEST = 60
_CAUSES = 8
"""Causes of one error that are kept."""
_ERROR_STATE = 20
"""Attributes of an error that are kept."""
Find = Callable[[str], Any]
"""The class of a name such as `openai.types:Completion`; None where no loaded module has it."""
_WORDS: dict[type, str] = {
    datetime.datetime: "datetime", datetime.date: "date", datetime.time: "time", uuid.UUID: "uuid", decimal.Decimal: "decimal",
}  # fmt: skip
_READ: dict[str, Callable[[str], Any]] = {
    "datetime": datetime.datetime.fromisoformat, "date": datetime.date.fromisoformat, "time": datetime.time.fromisoformat,
    "uuid": uuid.UUID, "decimal": decimal.Decimal, "float": float, "bytes": lambda text: base64.b64decode(text),
}  # fmt: skip
_BARE = frozenset({type(None), bool, int, str})
_SEVERAL: dict[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset"}


class Unpackable(Exception):
    """A value that could not be given again as it was; says of which type."""


class Answer(NamedTuple):
    """What a call gave: a value, or the parts of a stream and its end, or an error after them."""

    value: Any = None
    error: BaseException | None = None
    parts: Sequence[Any] | None = None
    """What a generator gave, in order; None for a call that is no stream."""
    is_awaited: bool = False
    """Whether a plain function gave something to await."""
    is_cut: bool = False
    """Whether its reader stopped before the end of the stream."""


def asked_ref(names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """What a call was asked, as a reference: equal for equal arguments, however they are passed."""
    return content_ref(arguments_text(names, args, kwargs) or "")


def is_plain_text(value: Any) -> bool:
    """Whether a value is a text that a trace keeps letter by letter."""
    if type(value) is not str or len(value) > LIMIT or "\r" in value:
        return False
    return value.isascii() or (unicodedata.is_normalized("NFC", value) and not any("\ud800" <= c <= "\udfff" for c in value))


def pack(answer: Answer) -> str:
    """An answer as one line of JSON, or `Unpackable`."""
    return as_line(snapshot(answer))


def snapshot(answer: Answer) -> dict[str, Any]:
    """An answer as it is now, whatever becomes of it: what `as_line` makes a line of; or `Unpackable`."""
    out: dict[str, Any] = {"error": _error(answer.error)} if answer.error is not None else {"value": _packed(answer.value)}
    if answer.parts is not None:
        out["parts"] = _packed(list(answer.parts))
    return out | {name: True for name in ("is_awaited", "is_cut") if getattr(answer, name)}


def as_line(packed: dict[str, Any]) -> str:
    """The line of a snapshot, or `Unpackable` where it is too long."""
    text = json.dumps(packed, separators=(",", ":"))  # ASCII: references of texts do not tell all others apart
    if len(text) > LIMIT:
        raise Unpackable(f"{len(text):,} characters")
    return text


def unpack(text: str, find: Find) -> Answer:
    """The answer again; `Unpackable` where a class of it is not loaded."""
    try:
        told = json.loads(text)
        return Answer(
            value=_unpacked(told.get("value"), find),
            error=_unpacked(told["error"], find) if "error" in told else None,
            parts=_unpacked(told["parts"], find) if "parts" in told else None,
            is_awaited=told.get("is_awaited") is True,
            is_cut=told.get("is_cut") is True,
        )
    except Unpackable:
        raise
    except Exception as error:
        raise Unpackable(f"{type(error).__name__}: {error}") from error


def class_name(kind: type) -> str:
    """The name of a class by which it is found again, or `Unpackable`."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    if loaded_class(name) is not kind:
        raise Unpackable(f"{kind.__qualname__}, which is no class of a module")
    return name


def loaded_class(name: str) -> Any:
    """The class of that name, if its module is loaded."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


# -- packing -----------------------------------------------------------------------------------------------------------------


def _packed(value: Any, depth: int = 0) -> Any:
    kind = type(value)
    if kind in _BARE:
        return value
    if depth > _DEEPEST:
        raise Unpackable("a value within itself")
    if kind is float:
        return value if math.isfinite(value) else {_TAG: "float", "v": str(value)}
    if kind is list:
        return [one if type(one) in _BARE else _packed(one, depth + 1) for one in value]
    if kind is dict:
        if _TAG not in value and all(type(name) is str for name in value):
            return {name: one if type(one) in _BARE else _packed(one, depth + 1) for name, one in value.items()}
        return {_TAG: "dict", "v": [[_packed(k, depth + 1), _packed(v, depth + 1)] for k, v in value.items()]}
    if kind in _SEVERAL:
        return {_TAG: _SEVERAL[kind], "v": [_packed(one, depth + 1) for one in value]}
    if kind is bytes:
        return {_TAG: "bytes", "v": base64.b64encode(value).decode()}
    if kind in _WORDS:
        return {_TAG: _WORDS[kind], "v": value.isoformat() if hasattr(value, "isoformat") else str(value)}
    return _object(value, kind, depth + 1)


def _object(value: Any, kind: type, depth: int) -> Any:
    """An object by the name of its class and what it holds."""
    if isinstance(value, Enum):
        return {_TAG: "enum", "c": class_name(kind), "v": value.name}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {_TAG: "named", "c": class_name(kind), "v": [_packed(one, depth) for one in value]}
    if isinstance(value, BaseException):
        return _error(value, depth)
    if isinstance(value, msgspec.Struct):
        held = {name: getattr(value, name) for name in value.__struct_fields__}
        return {_TAG: "struct", "c": class_name(kind), "v": _packed(held, depth)}
    if hasattr(kind, "__pydantic_fields_set__") or hasattr(value, "__pydantic_fields_set__"):
        names = ("__dict__", "__pydantic_extra__", "__pydantic_private__")
        held = {name: getattr(value, name, None) for name in names} | {"set": sorted(value.__pydantic_fields_set__)}
        return {_TAG: "model", "c": class_name(kind), "v": _packed(held, depth)}
    if dataclasses.is_dataclass(value):
        held = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
        return {_TAG: "data", "c": class_name(kind), "v": _packed(held, depth)}
    raise Unpackable(kind.__qualname__)


def _error(error: BaseException, depth: int = 0) -> dict[str, Any]:
    """An error by its class, its arguments and as much of its state as can be kept."""
    state: dict[str, Any] = {}
    for name, one in list(vars(error).items())[:_ERROR_STATE]:
        try:
            state[name] = _packed(one, depth + 1)
        except Unpackable:  # such as the open response that an endpoint's error holds
            continue
    held: dict[str, Any] = {"args": [_packed(one, depth + 1) for one in error.args], "state": state}
    for name in ("__cause__", "__context__"):
        other = getattr(error, name)
        if other is not None and depth < _CAUSES:
            held[name] = _error(other, depth + 1)
    if error.__suppress_context__:
        held["is_alone"] = True
    return {_TAG: "error", "c": class_name(type(error)), "v": held}


# -- and back ----------------------------------------------------------------------------------------------------------------


def _unpacked(value: Any, find: Find) -> Any:
    if isinstance(value, list):
        return [_unpacked(one, find) for one in value]
    if not isinstance(value, dict):
        return value
    tag, held = value.get(_TAG), value.get("v")
    if tag is None:
        return {name: _unpacked(one, find) for name, one in value.items()}
    if tag in _READ:
        return _READ[tag](str(held))
    if tag == "dict":
        return {_unpacked(k, find): _unpacked(v, find) for k, v in held or ()}
    for kind, word in _SEVERAL.items():
        if tag == word:
            return kind(_unpacked(held, find))
    return _instance(str(tag), str(value.get("c")), held, find)


def _instance(tag: str, name: str, held: Any, find: Find) -> Any:
    kind = find(name)
    if not isinstance(kind, type):
        raise Unpackable(f"{name}, which the team's code has not loaded")
    if tag == "enum" and issubclass(kind, Enum):
        return kind[str(held)]
    if tag == "named" and issubclass(kind, tuple):
        return tuple.__new__(kind, _unpacked(held, find))
    if tag == "error" and issubclass(kind, BaseException):
        args = tuple(_unpacked(held["args"], find))
        error = kind.__new__(kind, *args)
        error.args = args
        error.__dict__.update({k: _unpacked(v, find) for k, v in held["state"].items()})
        for part in ("__cause__", "__context__"):
            if part in held:
                setattr(error, part, _unpacked(held[part], find))
        error.__suppress_context__ = held.get("is_alone") is True
        return error
    fields = _unpacked(held, find)
    if tag == "struct" and issubclass(kind, msgspec.Struct):
        return kind(**fields)
    made: Any = object.__new__(kind)
    if tag == "model" and hasattr(kind, "__pydantic_fields__"):
        for part in ("__dict__", "__pydantic_extra__", "__pydantic_private__"):
            object.__setattr__(made, part, fields[part])
        object.__setattr__(made, "__pydantic_fields_set__", set(fields["set"]))
        return made
    if tag == "data" and dataclasses.is_dataclass(kind):
        for field, one in fields.items():
            object.__setattr__(made, field, one)
        return made
    raise Unpackable(f"{name}, which is no {tag}")
