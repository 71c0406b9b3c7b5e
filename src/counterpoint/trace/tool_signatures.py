"""The tools that an agent could call, as an endpoint is told of them: from the log where it has them, else from recorded calls.

Always true: a definition that is inferred says so; it demands what every recorded call of the tool gave, and allows all that any
of them gave, with the types that were seen.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from counterpoint.display import counted
from counterpoint.trace.conversation import Conversation, tool_of
from counterpoint.trace.keys import TOOLS

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}


def function_of(stated: Any) -> dict[str, Any] | None:
    """A tool's definition in one form, from that of OpenAI, of Anthropic or of MCP; None for what is none."""
    if not isinstance(stated, dict):
        return None
    inner = stated.get("function")
    about = inner if isinstance(inner, dict) else stated
    name = about.get("name")
    shapes = (about.get(key) for key in ("parameters", "input_schema", "inputSchema"))
    schema = next((shape for shape in shapes if isinstance(shape, dict)), {"type": "object", "properties": {}})
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return None
    words = about.get("description")
    return _function(name, words if isinstance(words, str) else "", schema)


def tools_of(conversation: Conversation) -> tuple[list[dict[str, Any]], list[str]]:
    """The functions that the agent could call, and sentences about where they are from."""
    stated = conversation.trace.meta.get(TOOLS)
    known = [found for one in stated if (found := function_of(one)) is not None] if isinstance(stated, list) else []
    names = {one["function"]["name"] for one in known}
    seen: dict[str, list[dict[str, Any]]] = {}
    for turn in conversation.turns:
        for event in turn.calls:
            tool = tool_of(event, conversation.trace)
            if tool not in names:
                seen.setdefault(tool, []).append(msgspec.json.decode(conversation.arguments(event)))
    inferred = [_inferred(tool, calls) for tool, calls in sorted(seen.items())]
    notes = []
    if inferred:
        what = counted(len(inferred), "tool")
        notes.append(f"the definitions of {what} are inferred from recorded calls: tools that were offered and never called lack")
    if known:
        notes.append(f"the definitions of {counted(len(known), 'tool')} are the log's own")
    return known + inferred, notes


def _inferred(tool: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name in dict.fromkeys(name for call in calls for name in call):
        kinds = sorted({_KINDS.get(type(call[name]), "string") for call in calls if name in call})
        kind = {"type": kinds[0] if len(kinds) == 1 else kinds}
        properties[name] = {**kind, "items": {}} if "array" in kinds else kind
    required = [name for name in properties if all(name in call for call in calls)]
    about = f"The tool {tool} of the recorded session; its arguments are inferred from {counted(len(calls), 'call')}."
    return _function(tool, about, {"type": "object", "properties": properties, "required": required})


def _function(name: str, about: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}
