"""The arguments of a tool call: read from an agent's text, checked against the tool's schema.

Always true: any text gives either arguments that the schema allows or a `ToolResult` with error `malformed` that shows the right
form; nothing raises. A text that begins with `{` is a JSON object; any other is the tool's main argument, as it stands. Of JSON
Schema we check type, enum, length, range, required and additionalProperties, and let the rest pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from counterpoint.team.tool import Tool, ToolResult

_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def read_arguments(tool: Tool, text: str) -> dict[str, Any] | ToolResult:
    """The arguments that a text gives a tool, or why it gives none."""
    text = text.strip()
    if text.startswith("{"):
        try:
            args = json.loads(text)
        except (ValueError, RecursionError) as error:
            return _malformed(tool, f"the arguments are no JSON object ({error})")
        if not isinstance(args, dict):
            return _malformed(tool, "the arguments are no JSON object")
    elif not text:
        args = {}
    elif not tool.main:
        return _malformed(tool, "it takes no argument")
    else:
        args = {tool.main: _bare(text, tool.arguments.get("properties", {}).get(tool.main, {}))}
    problem = _problem(args, tool.arguments)
    return _malformed(tool, problem) if problem else args


def right_form(tool: Tool) -> str:
    """How a call of the tool is written."""
    properties: Mapping[str, Any] = tool.arguments.get("properties", {})
    required = tool.arguments.get("required", ())
    bare = f"TOOL {tool.name}: {tool.main}" if tool.main else f"TOOL {tool.name}"
    if not properties:
        return bare
    fields = ", ".join(
        f'"{name}": {schema.get("type", "anything")}' + ("" if name in required else " (may be left out)")
        for name, schema in properties.items()
    )
    return f"{bare}, or TOOL {tool.name}: {{{fields}}}"


def _malformed(tool: Tool, problem: str) -> ToolResult:
    return ToolResult(f"{tool.name}: {problem}; write {right_form(tool)}", ok=False, error="malformed", trusted=True)


def _bare(text: str, schema: Mapping[str, Any]) -> Any:
    """A bare text as its argument's type; one that does not fit stays a text, and the check says so."""
    if schema.get("type") in ("integer", "number", "boolean"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _problem(args: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    properties: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in args:
            return f"{name!r} is missing"
    for name, value in args.items():
        if name not in properties:
            if schema.get("additionalProperties", True) is False:
                return f"there is no argument {name[:40]!r}"
        elif problem := _wrong(value, properties[name]):
            return f"{name!r} {problem}"
    return None


def _wrong(value: Any, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with one value."""
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES.get(kind, lambda _: True)(value) for kind in kinds):
        return f"must be of type {' or '.join(kinds)}"
    if "enum" in schema and value not in schema["enum"]:
        return "must be one of " + ", ".join(map(str, schema["enum"]))
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            return "is empty" if not value else f"must have at least {schema['minLength']} characters"
        if len(value) > schema.get("maxLength", len(value)):
            return f"has {len(value)} characters; at most {schema['maxLength']}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high:
            return f"must be from {schema.get('minimum', 'any')} to {schema.get('maximum', 'any')}"
    return None
