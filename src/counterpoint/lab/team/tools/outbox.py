"""`outbox`: sends a line to the world outside, which cannot be undone: a fork never does it without consent.

Always true: each call appends one JSON line to the file, whole or not at all, and is on disk before it answers. No topology
offers it by itself: `counterpoint play --tool outbox` does.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.tool import Effect, Place, ToolResult


class outbox:
    """The tool `outbox`."""

    name = "outbox"
    version = "1"
    effect: Effect = "irreversible"
    about = "sends a line to the people outside, at once and for good; argument: the text"
    main = "text"
    example: Mapping[str, Any] = {"text": "done"}
    guarded = ("path",)
    arguments: Mapping[str, Any] = {
        "type": "object",
        "properties": {"text": {"type": "string", "minLength": 1, "maxLength": 2000}},
        "required": ["text"],
        "additionalProperties": False,
    }

    def __init__(self, instance: Instance, *, path: str = "outbox.jsonl") -> None:
        """`path`: the file that stands for the world outside."""
        self._path = Path(path)

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """Send it."""
        line = json.dumps({"from": place.agent, "text": args["text"]}, ensure_ascii=False).encode() + b"\n"
        await asyncio.to_thread(self._append, line)
        return ToolResult("sent", trusted=True)

    def _append(self, line: bytes) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line)
            os.fsync(file)
        finally:
            os.close(file)

    async def close(self) -> None:
        """Nothing is held."""
