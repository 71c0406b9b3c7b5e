"""The page's TypeScript types, made from the shapes, the survey's vocabulary and the fields of the search language.

Run it after changing a shape: python -m counterpoint.app.viewer.typescript > web/src/shapes.gen.ts
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable
from typing import Any

import msgspec

from counterpoint.app.search import EVENT_FIELDS, EVENT_FLAGS
from counterpoint.app.viewer import annotation_shapes, issue_shapes, shapes
from counterpoint.app.viewer.pages import pages
from counterpoint.app.viewer.panel import panels
from counterpoint.trace.vocabulary import EDGE_TYPES, TOPOLOGIES

_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", Any: "unknown", type(None): "null"}


def source() -> str:
    """The text of `shapes.gen.ts`."""
    parts = ["// Made by `python -m counterpoint.app.viewer.typescript`; do not edit.", ""]
    parts.append(f"export const VERSION = {shapes.VERSION};")
    for name, values in (("EVENT_TYPES", shapes.TYPES), ("EDGE_TYPES", EDGE_TYPES), ("TOPOLOGIES", TOPOLOGIES)):
        parts.append(f"export const {name} = {json.dumps(list(values))} as const;")
    parts.append(f"export const COLUMNS = {json.dumps(shapes.COLUMNS)} as const;")
    parts.append(f"export const FLAGS = {json.dumps(shapes.FLAGS)} as const;")
    parts.append(f"export const FAMILIES = {json.dumps(shapes.FAMILIES)} as const;")
    parts.append(f"export const EVENT_FIELDS = {json.dumps(EVENT_FIELDS)} as const;")
    parts.append(f"export const EVENT_FLAGS = {json.dumps(EVENT_FLAGS)} as const;")
    listed = [{"id": name, "name": panel.name, "key": panel.key} for name, panel in panels().items()]
    parts.append(f"export const PANELS = {json.dumps(listed)} as const;")
    more = [{"id": page.id, "name": page.name} for page in pages()]
    parts.append(f"export const PAGES = {json.dumps(more)} as const;")
    own = [shape for module in (shapes, annotation_shapes, issue_shapes) for shape in _structs(module)]
    of_panels = [shape for panel in panels().values() for shape in panel.shapes]
    of_pages = [shape for page in pages() for shape in page.shapes]
    parts.append(interfaces(dict.fromkeys([*own, *of_panels, *of_pages])))
    return "\n".join(parts) + "\n"


def interfaces(listed: Iterable[type[msgspec.Struct]]) -> str:
    """Shapes as TypeScript interfaces."""
    parts = []
    for shape in listed:
        hints = typing.get_type_hints(shape)
        parts.append(f"\n/** {(shape.__doc__ or '').splitlines()[0].strip()} */")
        parts.append(f"export interface {shape.__name__} {{")
        parts += [f"  {field.name}: {_type(hints[field.name])};" for field in msgspec.structs.fields(shape)]
        parts.append("}")
    return "\n".join(parts)


def _structs(module: types.ModuleType) -> list[type[msgspec.Struct]]:
    """The shapes that a module defines, in its order."""
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, msgspec.Struct)]
    return [shape for shape in found if shape.__module__ == module.__name__]


def _type(hint: Any) -> str:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(_type, inside)))
    if origin is list:
        one = _type(inside[0])
        return f"({one})[]" if "|" in one else f"{one}[]"
    if origin is dict:
        return f"Record<string, {_type(inside[1])}>"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint.__name__
    raise TypeError(f"no TypeScript for {hint!r}")


if __name__ == "__main__":
    print(source(), end="")
