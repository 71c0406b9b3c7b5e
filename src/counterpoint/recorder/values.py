"""What other people's arguments and results look like in a trace: texts, token counts, and fields that a record can hold.

Always true: nothing here raises, and nothing runs the code of the values it looks at beyond reading their `usage` and asking what
number, or what name, they are; a value of no known shape is the name of its type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from numbers import Integral
from typing import Any

import msgspec

from counterpoint.trace import Event
from counterpoint.trace.vocabulary import SOURCES

LIMIT = 1_000_000
"""Characters of a text that are kept."""
_DEEPEST = 60
"""Levels of a value in `extra` that are kept: what holds itself has no last one."""
_BARE = {"id": "-", "t": 0, "type": "message", "agent": "-"}
_FIELDS = frozenset(Event.__struct_fields__) - {"id", "t", "type", "agent", "extra"}
_COUNTS = frozenset({"tokens_in", "tokens_out"})
_WORDS = ("text", "content", "final_output")
"""Attributes in which answers of models and agents hold their text."""
_IN = ("tokens_in", "input_tokens", "prompt_tokens")
_OUT = ("tokens_out", "output_tokens", "completion_tokens")


def plain(text: str) -> str:
    """Text that can be written down: cut to the limit, lone surrogates as question marks."""
    text = text if len(text) <= LIMIT else f"{text[:LIMIT]} [cut, {len(text):,} characters]"
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def word(value: Any, instead: str) -> str:
    """A name that a record can hold: a text as it is, else what `str` makes of it; `instead` where that is nothing."""
    value = value.value if isinstance(value, Enum) else value
    if value is None:
        return instead
    try:
        return plain(value if isinstance(value, str) else str(value)) or instead
    except Exception:
        return instead


def name_or_none(value: Any) -> str | None:
    """A name that a record can hold; None for nothing."""
    return word(value, "") or None


def number(value: Any) -> int | float | None:
    """A finite number as Python has it: a truth value is 1 or 0, one of numpy, a tensor or a `Decimal` what it says."""
    if isinstance(value, (str, bytes, bytearray)):
        return None
    try:
        finite = int(value) if isinstance(value, Integral) else float(value)
        return finite if math.isfinite(finite) else None
    except Exception:
        return None


def listed(values: Iterable[Any] | None) -> Any:
    """The values as a list; what is none is left as it is, for `clean` to say so."""
    try:
        return None if values is None else list(values)
    except Exception:
        return values


def text_of(value: Any) -> str | None:
    """A value as text: itself, its JSON, or the name of its type."""
    if isinstance(value, str):
        return plain(value)
    if value is None:
        return None
    if isinstance(value, bytes):
        return plain(value[:LIMIT].decode("utf-8", "replace"))
    for name in () if isinstance(value, (int, float, list, tuple)) else _WORDS:
        inner = attribute(value, name)
        if isinstance(inner, str):
            return plain(inner)
    return _object(value)


def _type_name(value: Any) -> str:
    """Of what JSON has no word for the name of its type; a text of a class of its own (LangChain's) is that text."""
    return str.__str__(value) if isinstance(value, str) else f"<{type(value).__name__}>"


def attribute(value: Any, name: str) -> Any:
    """A plain attribute; a method is none, and a mapping has items instead."""
    if isinstance(value, (int, float, list, tuple, dict, set)):
        return value.get(name) if isinstance(value, dict) else None
    try:
        member = getattr(value, name, None)
    except Exception:
        return None
    return None if callable(member) else member


def arguments_text(names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """The arguments of a call as text: a lone text is itself, others are an object by name."""
    if names and names[0] in ("self", "cls"):
        names, args = names[1:], args[1:]
    if len(args) == 1 and not kwargs and isinstance(args[0], str):
        return plain(args[0])
    if len(args) <= len(names):
        named: dict[str, Any] = dict(zip(names, args, strict=False))
    else:
        named = {names[i] if i < len(names) else str(i): value for i, value in enumerate(args)}
    named.update(kwargs)
    return _object(named) if named else None


def _object(value: Any) -> str:
    try:
        return plain(msgspec.json.encode(value, enc_hook=_type_name).decode())
    except Exception:
        return _type_name(value)


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names of a function's positional parameters."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return list(code.co_varnames[: code.co_argcount]) if code is not None else []


def usage_of(value: Any) -> dict[str, Any]:
    """Tokens and money that a model's answer states: its own fields, its `usage`, or its `usage_metadata`."""
    usage: dict[str, Any] = {}
    if isinstance(value, str):
        return usage
    for holder in (value, attribute(value, "usage"), attribute(value, "usage_metadata")):
        if holder is None or isinstance(holder, str):
            continue
        for field, names in (("tokens_in", _IN), ("tokens_out", _OUT), ("cost_usd", ("cost_usd",))):
            for name in names:
                stated = attribute(holder, name)
                if field in usage or stated is None or isinstance(stated, bool):
                    continue
                amount = stated if isinstance(stated, (int, float)) else number(stated)
                if amount is not None:
                    usage[field] = amount
    model = attribute(value, "model")
    if isinstance(model, str) and model:
        usage["model"] = plain(model)
    return usage


def usage_fields(make: Callable[[Any], dict[str, Any]] | None, value: Any, note: Callable[[str], None]) -> dict[str, Any]:
    """The same as fields of an event; `make`, which may raise, reads them where they are not to be seen."""
    stated = usage_of(value) if make is None else make(value)
    return clean(stated, note) if stated else {}


def origin_of(trusted: Any, source: Any, note: Callable[..., None]) -> dict[str, Any]:
    """Where a result comes from; what is not said clearly is not trusted."""
    if not isinstance(trusted, bool):
        note(f"trusted={short(trusted)} is neither True nor False: taken as False", is_new=False)
    is_known = is_source(source)
    if not is_known:
        note(f"source={short(source)} is none of {', '.join(SOURCES)}: taken as tool", is_new=False)
    return {"trusted": trusted is True, "source": str(source) if is_known else "tool"}


def is_source(source: Any) -> bool:
    """Whether it is a word of the survey's for where something comes from."""
    return isinstance(source, str) and source in SOURCES


def clean(fields: Mapping[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """Fields that an event can carry: None is left out, other names go to `extra`, a wrong type is noted and left out."""
    if all(type(value) is int and value >= 0 and name in _COUNTS for name, value in fields.items()):
        return dict(fields)  # by far the most common
    known = {k: v for k, v in fields.items() if v is not None and k in _FIELDS}
    if not _fit(known):
        for name in [n for n in known if not _fit({n: known[n]})]:
            value = known.pop(name)
            counted = None if isinstance(value, (bool, float)) else number(value)
            if counted is not None and _fit({name: counted}):
                known[name] = counted
            else:
                note(f"{name}={short(value)} is not what an event's {name!r} can be: left out")
    more = fields.get("extra")
    if more is not None and not isinstance(more, Mapping):
        note(f"extra={short(more)} is not a table of names and values: dropped")
    pairs = more.items() if isinstance(more, Mapping) else ()
    extra = dict([*pairs, *((k, v) for k, v in fields.items() if v is not None and k not in _FIELDS and k != "extra")])
    if extra:
        known["extra"] = {f"told_{k}" if k in Event.__struct_fields__ else word(k, "-"): as_json(v) for k, v in extra.items()}
    return known


def _fit(fields: dict[str, Any]) -> bool:
    if any(isinstance(v, float) and not math.isfinite(v) for v in fields.values()):
        return False
    known = {("from" if k == "from_" else k): v for k, v in fields.items()}
    try:
        msgspec.convert(_BARE | known, Event)
    except (msgspec.MsgspecError, TypeError, UnicodeError):
        return False
    texts = [t for v in known.values() for t in (v if isinstance(v, list) else (v,)) if isinstance(t, str)]
    return all(t.isascii() or plain(t) == t for t in texts)


def as_json(value: Any, depth: int = 0) -> Any:
    """A copy that JSON can hold: the caller may change the original before it is written."""
    if isinstance(value, str):
        return plain(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {word(k, "-"): as_json(v, depth + 1) for k, v in value.items()}
    if depth < _DEEPEST and isinstance(value, (list, tuple)):
        return [as_json(v, depth + 1) for v in value]
    return _type_name(value)


def short(value: Any) -> str:
    """A value, in a message."""
    text = (str(value) if isinstance(value, float) else text_of(value)) or "None"
    return text if len(text) < 40 else f"{text[:37]}..."
