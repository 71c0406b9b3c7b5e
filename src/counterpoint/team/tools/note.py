"""`note`: a line on the board that the team shares; others see it from the next round on.

Always true: a note is one line with its writer's name; the same call made again writes nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterpoint.envs.task import Instance
from counterpoint.team.shared_notes import board_of
from counterpoint.team.tool import Effect, Place, ToolResult


class note:
    """The tool `note`."""

    name = "note"
    version = "1"
    effect: Effect = "shared"
    about = "writes a note that all can read from the next round on; argument: the text"
    main = "text"
    example: Mapping[str, Any] = {"text": "the harbour has two cranes"}

    def __init__(self, instance: Instance, *, longest: int = 1000) -> None:
        """`longest`: the most characters of a note."""
        self._instance = instance
        self.arguments: Mapping[str, Any] = {
            "type": "object",
            "properties": {"text": {"type": "string", "minLength": 1, "maxLength": longest}},
            "required": ["text"],
            "additionalProperties": False,
        }

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """Put the note up."""
        board_of(place.shared, self._instance).write(place.agent, args["text"], round=place.round, event=place.event)
        return ToolResult("noted", source="memory", trusted=True)

    async def close(self) -> None:
        """The board goes with the team."""
