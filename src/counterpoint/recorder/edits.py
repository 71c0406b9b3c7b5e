"""What an edit makes of what a function gave, or of what it is given.

Always true: an answer keeps its shape: a text becomes another text, an object the same object with its text changed; what is
deleted has no text, or is empty (an empty text, list or table, 0, or None). What a value cannot become is one clear error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from counterpoint.errors import InputError, NotIdentified
from counterpoint.recorder.answers import Answer, Find, Unpackable, pack, unpack
from counterpoint.recorder.values import parameters
from counterpoint.trace.replay import Delete, Do, Substitute

_EMPTY: dict[str, Callable[[], Any]] = {
    kind.__name__: kind for kind in (str, list, dict, tuple, set, frozenset, bytes, int, float, bool)
}


def empty_like(kind: str) -> Any:
    """What is there in the place of a value of this type that never came."""
    make = _EMPTY.get(kind)
    return None if make is None else make()


def changed_answer(kept: Answer, do: Do, text: str | None, find: Find) -> Answer:
    """The answer after the edit; `text` is what the trace says it was."""
    if isinstance(do, Delete):
        value = "" if kept.error is not None else _emptied(kept.value, text, find)
        return kept._replace(value=value, error=None, parts=None if kept.parts is None else [], is_cut=False)
    if not isinstance(do, Substitute):
        raise NotIdentified(
            f"nothing in your code asks what {type(do).__name__.lower()} would answer", "--substitute VALUE, or --do delete"
        )
    if kept.parts is not None:
        return Answer(do.value, parts=[_worded(do.value)], is_awaited=kept.is_awaited)
    return Answer(_changed(kept.value, do.value, text, find), is_awaited=kept.is_awaited)


def _emptied(was: Any, text: str | None, find: Find) -> Any:
    """The same object with its text gone; what has no text of its own in it is empty of its kind."""
    if text and not isinstance(was, str) and (other := _reworded(was, text, "", find)) is not None:
        return other
    return empty_like(type(was).__name__)


def _reworded(was: Any, old: str, new: str, find: Find) -> Any:
    """A copy of an object with its text changed; None where it has no such text, or is none that can be copied."""
    try:
        told, count = _replaced(json.loads(pack(Answer(was))), old, new)
        return unpack(json.dumps(told), find).value if count else None
    except Unpackable:
        return None


def _changed(was: Any, value: Any, text: str | None, find: Find) -> Any:
    if was is None:
        return value
    if isinstance(was, str):
        return _worded(value)
    if type(value) is type(was) or (isinstance(was, (int, float)) and isinstance(value, (int, float))):
        return value
    if isinstance(value, str) and text and (other := _reworded(was, text, value, find)) is not None:
        return other
    what = f"the answer was a {type(was).__name__}, which {_worded(value)[:40]!r} cannot stand for"
    raise InputError(what, fix="substitute a value of its shape as JSON, or another text where its own text stands in it")


def _replaced(told: Any, old: str, new: str) -> tuple[Any, int]:
    """A tree with every text `old` replaced, and how many there were."""
    if isinstance(told, str):
        return (new, 1) if told == old else (told, 0)
    if isinstance(told, list):
        parts = [_replaced(one, old, new) for one in told]
        return [part for part, _ in parts], sum(count for _, count in parts)
    if isinstance(told, dict):
        named = {name: _replaced(one, old, new) for name, one in told.items()}
        return {name: part for name, (part, _) in named.items()}, sum(count for _, count in named.values())
    return told, 0


def arguments_of(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with others in their place: a lone text by a text, several by name."""
    names = parameters(function)
    own = args[:1] if names and names[0] in ("self", "cls") else ()
    if isinstance(value, dict) and not (len(args) - len(own) == 1 and isinstance(args[-1], dict) and not kwargs):
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        unknown = [name for name in value if name not in given and name not in names]
        if unknown:
            raise InputError(f"the function has no argument {unknown[0]!r}", fix=f"one of {', '.join(names)}")
        return own, {name: one for name, one in (given | value).items() if not own or name != names[0]}
    if len(args) - len(own) + len(kwargs) != 1:
        raise InputError("the function takes several arguments", fix='substitute them by name: {"name": value}')
    if kwargs:
        return own, dict.fromkeys(kwargs, value)
    return (*own, value), {}


def _worded(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
