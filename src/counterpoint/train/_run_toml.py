"""A run's settings as TOML text, which `tomllib` reads back.

Always true: `tomllib.loads(toml_text(x)) == x` for tables of text, whole numbers, floats, truth values, lists and tables (a
tuple comes back as a list); what is None, which TOML has no word for, becomes a comment, so that every key can be seen.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from counterpoint.errors import InputError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(settings: Mapping[str, Any]) -> str:
    """The settings: plain values first, then one section per table."""
    return "\n".join(_section(settings, ())) + "\n"


def _section(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping)}
    lines = [
        f"# {_key(k, path)} is not set" if v is None else f"{_key(k, path)} = {_value(v, (*path, k))}" for k, v in plain.items()
    ]
    for name, inner in table.items():
        if isinstance(inner, Mapping):
            inside = (*path, name)
            lines += ["", "[" + ".".join(_key(part, path) for part in inside) + "]", *_section(inner, inside)]
    return lines


def _key(name: Any, path: tuple[str, ...]) -> str:
    if not isinstance(name, str):
        raise InputError(f"a key is text, not {name!r}", where=".".join(path) or "settings")
    return name if _BARE.fullmatch(name) else _text(name, path)


def _value(value: Any, path: tuple[str, ...]) -> str:
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(v, path) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k, path)} = {_value(v, path)}" for k, v in value.items() if v is not None) + "}"
    raise InputError(
        f"cannot be written as TOML: {type(value).__name__}", where=".".join(path), fix="text, numbers, lists, tables"
    )


def _text(text: str, path: tuple[str, ...]) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError("holds half a character, which no file can", where=ascii(".".join(path))) from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
