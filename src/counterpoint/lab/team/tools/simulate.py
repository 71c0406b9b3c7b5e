"""`simulate`: the moves of a walker on the grid of an instance, one after another, until one fails.

Always true: the walker begins at the start in every call, so the same moves get the same answer. What is no list of moves is
refused with the moves that there are; an instance without a drawing in `grid.txt` has nothing to walk on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterpoint.lab.tasks import grids
from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.tool import Effect, Place, ToolResult, fingerprint

_FILE = "grid.txt"


class simulate:
    """The tool `simulate` over an instance's grid."""

    name = "simulate"
    effect: Effect = "pure"
    about = "makes moves from the start and says how they end; argument: moves"
    main = "moves"
    example: Mapping[str, Any] = {"moves": "right down"}

    def __init__(self, instance: Instance) -> None:
        drawing = instance.files.get(_FILE, "")
        self._grid = grids.read_grid(drawing)
        self.version = f"1-{fingerprint(drawing)}"
        self.arguments: Mapping[str, Any] = {
            "type": "object",
            "properties": {"moves": {"type": "string", "minLength": 1}},
            "required": ["moves"],
            "additionalProperties": False,
        }

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """The moves that were made, and how it ended: solved, blocked at a cell, or not there yet."""
        if self._grid is None:
            return ToolResult(f"there is no grid in {_FILE}", ok=False, error="not found")
        moves = grids.moves_of(args["moves"])
        if moves is None:
            return ToolResult(f"moves are {', '.join(grids.MOVES)}, with a space between them", ok=False, error="not found")
        return ToolResult(grids.report(self._grid, grids.walk(self._grid, moves)))

    async def close(self) -> None:
        """Nothing is held."""
