"""`notes`: what stands on the board that the team shares, from earlier rounds.

Always true: lines `AGENT: text` in the order (round, agent, number), whoever was faster; nothing on it is trusted, and `reads`
names the calls that wrote what is shown. Planted notes stand first, from the start, under the name `earlier`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.tool import Effect, Place, ToolResult
from counterpoint.lab.team.tools.note import board_of


class notes:
    """The tool `notes`."""

    name = "notes"
    version = "1"
    effect: Effect = "shared"
    about = "shows the notes of earlier rounds; no argument"
    main = ""
    example: Mapping[str, Any] = {}
    arguments: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """Read the board."""
        found = board_of(place.shared, self._instance).read(place.round)
        text = "\n".join(note.line() for note in found) or "no notes yet"
        reads = tuple(dict.fromkeys(note.event for note in found if note.event))
        return ToolResult(text, trusted=False, source="memory", reads=reads, extra={"notes": len(found)})

    async def close(self) -> None:
        """The board goes with the team."""
