"""Contents in blocks, as Anthropic's messages and the AI SDK's have them: texts, thoughts, calls of tools, and their answers.

Always true: a block of no known kind is counted and left out; nothing raises on a strange block.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import Answer
from counterpoint.formats.importing.values import as_dict, string, text_of

_THOUGHTS = ("thinking", "reasoning", "redacted_thinking")
_CALLS = ("tool_use", "tool-call", "server_tool_use", "mcp_tool_use")
_ANSWERS = ("tool_result", "tool-result", "mcp_tool_result")
_DATA = ("image", "document", "file", "image_url", "imageUrl", "video", "audio")
_FAILED = "[ERROR]"


@dataclass
class Blocks:
    """What the blocks of one content say."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    images: int = 0

    @property
    def text(self) -> str:
        """All texts."""
        return "\n".join(self.texts)

    @property
    def thinking(self) -> str:
        """All thoughts."""
        return "\n".join(self.thoughts)


def blocks_of(content: Any, unknown: Counter[str] | None = None) -> Blocks:
    """The blocks of a content: a text, or a list of texts and blocks."""
    out = Blocks()
    for block in content if isinstance(content, list) else [content] if content is not None else []:
        if isinstance(block, str):
            out.texts += [block] if block else []
        elif not _block(as_dict(block), out) and unknown is not None:
            unknown[f"block of type {as_dict(block).get('type')}"] += 1
    return out


def _block(block: dict[str, Any], out: Blocks) -> bool:
    """Take a block; False where its kind is not known."""
    kind = block.get("type")
    if kind == "text":
        if text := string(block.get("text")):
            out.texts.append(text)
    elif kind in _THOUGHTS:
        if text := text_of(block.get("thinking") or block.get("text") or block.get("summary") or ""):
            out.thoughts.append(text)
    elif kind in _CALLS:
        tool = string(block.get("name")) or string(block.get("toolName")) or "unnamed"
        out.calls.append(
            Call(string(block.get("id")) or string(block.get("toolCallId")), tool, block.get("input", block.get("args")))
        )
    elif kind in _ANSWERS:
        out.answers.append(_answer(block))
    elif kind in _DATA:
        out.images += 1
    else:
        return False
    return True


def _answer(block: dict[str, Any]) -> Answer:
    call = string(block.get("tool_use_id")) or string(block.get("toolCallId"))
    output = block.get("content", block.get("output", block.get("result")))
    shown = as_dict(output)
    text = text_of(shown["value"]) if {"type", "value"} <= shown.keys() else _shown(output)
    failed = block.get("is_error", block.get("isError"))
    if failed is None and isinstance(output, list) and any(as_dict(o).get("success") is False for o in output):
        failed = True  # Cline's CLI says of each command how it went
    if failed is None and (str(shown.get("type")).startswith("error") or text.lstrip().startswith(_FAILED)):
        failed = True
    ok = not failed if isinstance(failed, bool) else None
    return Answer(text, call, string(block.get("toolName")), ok, (text[:500] or "error") if ok is False else None)


def _shown(output: Any) -> str:
    """The text of an answer, without the data of its pictures."""
    if isinstance(output, list):
        return "\n".join(filter(None, (text_of(o) for o in output if as_dict(o).get("type") not in _DATA)))
    return text_of(output)
