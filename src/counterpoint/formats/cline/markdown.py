"""A task that was saved as Markdown, as the messages it was made of.

Always true: a result of a tool belongs to the oldest call without one, as no id is written.
"""

from __future__ import annotations

import re
from typing import Any

_ROLE = re.compile(r"(?:\A|\n---\n\n)\*\*(User|Assistant):\*\*\n\n")
_BEGINS = re.compile(rb"\s*\*\*(?:User|Assistant):\*\*\r?\n\r?\n")
_MARKS = (b"<task>", b"<user_message>", b"<environment_details>", b"[Tool Use: ", b"<feedback>", b"[TASK RESUMPTION]")
_TOOL = re.compile(r"^\[(?:Tool Use: (?P<name>[\w.-]+)|(?P<result>Tool)(?P<failed> \(Error\))?)\]\n", re.M)
_FIELD = re.compile(r"^([A-Z]\w*): ", re.M)


def is_markdown(head: bytes) -> bool:
    """Whether a text is a task that Cline or Roo Code saved."""
    return _BEGINS.match(head.removeprefix(b"\xef\xbb\xbf")) is not None and any(mark in head for mark in _MARKS)


def markdown_messages(text: str) -> list[dict[str, Any]]:
    """The messages, with their contents in blocks."""
    parts = _ROLE.split(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    pairs = zip(parts[1::2], parts[2::2], strict=False)
    return [{"role": role.lower(), "content": _blocks(content.strip("\n"))} for role, content in pairs]


def _blocks(content: str) -> list[dict[str, Any]]:
    marks = list(_TOOL.finditer(content))
    ends = [*(mark.start() for mark in marks[1:]), len(content)][: len(marks)]
    first = content[: marks[0].start()].strip() if marks else content.strip()
    blocks: list[dict[str, Any]] = [{"type": "text", "text": first}] if first else []
    for mark, end in zip(marks, ends, strict=True):
        body = content[mark.end() : end].strip("\n")
        if mark["name"]:
            blocks.append({"type": "tool_use", "name": mark["name"], "input": _fields(body)})
        else:
            blocks.append({"type": "tool_result", "content": body, "is_error": mark["failed"] is not None})
    return blocks


def _fields(body: str) -> dict[str, str] | str:
    """The arguments, one on a line, each with its first letter made large."""
    parts = _FIELD.split(body)
    if parts[0].strip():
        return body
    return {name[0].lower() + name[1:]: value.rstrip("\n") for name, value in zip(parts[1::2], parts[2::2], strict=True)}
