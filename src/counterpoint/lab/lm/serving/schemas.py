"""JSON schemas that allow few values: all of these, so that a model can be held to them token by token.

Always true: what is listed the schema allows; a schema whose values cannot be listed has none.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

_MOST, _DEEPEST = 64, 8
"""Values that may be listed, and schemas within schemas."""


def every(schema: Mapping[str, Any]) -> list[Any]:
    """All objects that a schema allows, where each value is one of a few; none where they cannot be listed."""
    return _object(schema, schema, 0) or []


def _values(about: Any, whole: Mapping[str, Any], depth: int) -> list[Any] | None:
    """All values of one schema; None where they cannot be listed."""
    if not isinstance(about, Mapping) or depth > _DEEPEST:
        return None
    if isinstance(about.get("$ref"), str):
        return _values(_at(whole, about["$ref"]), whole, depth + 1)
    if isinstance(about.get("enum"), list):
        return list(about["enum"])
    if "const" in about:
        return [about["const"]]
    if isinstance(about.get("anyOf"), list):
        parts = [_values(part, whole, depth + 1) for part in about["anyOf"]]
        return None if None in parts else [value for part in parts for value in part or ()]
    if about.get("type") == "object" and about.get("properties"):
        return _object(about, whole, depth + 1)
    simple: dict[str, list[Any]] = {"boolean": [True, False], "null": [None]}
    return simple.get(str(about.get("type")))


def _object(schema: Mapping[str, Any], whole: Mapping[str, Any], depth: int) -> list[Any] | None:
    fields = schema.get("properties") or {}
    required = set(schema.get("required") or fields)
    choices: list[list[Any]] = []
    count = 1
    for name, about in fields.items():
        listed = _values(about, whole, depth)
        if not listed:
            return None
        choices.append([(name, value) for value in listed] + ([] if name in required else [None]))
        count *= len(choices[-1])
    return [dict(filter(None, chosen)) for chosen in itertools.product(*choices)] if count <= _MOST else None


def _at(whole: Mapping[str, Any], reference: str) -> Any:
    """The schema that another one names, such as `#/$defs/Next`."""
    if not reference.startswith("#/"):
        return None
    place: Any = whole
    for name in reference[2:].split("/"):
        place = place.get(name) if isinstance(place, Mapping) else None
    return place
