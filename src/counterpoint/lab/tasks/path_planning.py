"""T7, path planning: the moves from a cell to another on a small grid with walls.

Always true: there is a way, because no wall is put where it would cut the last one; its shortest length is known by an exact
search. Start and goal are `size` rows and columns apart or more, or as far as the start allows.

The kind of task is AT-GRPO's Plan-Path (arXiv 2510.11062: 10 by 10 grids, a tool user and an executor, four turns). Departures:
grids are smaller, cells are named and not drawn, a plan always begins at the start, and the tool tries moves and searches
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from counterpoint.lab.tasks import grids
from counterpoint.lab.tasks._grid_task import GridTask, size_dial, walls_dial
from counterpoint.lab.tasks._words import KeyedDice, check_seed, check_whole
from counterpoint.lab.tasks.grids import Grid


@dataclass(frozen=True)
class Config:
    """The dials."""

    size: int = size_dial()
    walls: int = walls_dial(7)

    def __post_init__(self) -> None:
        check_whole("size", self.size, 4, grids.LARGEST)
        check_whole("walls", self.walls, 0, self.size**2)


@lru_cache(maxsize=4_096)
def _grid(config: Config, seed: int) -> Grid:
    dice, n = KeyedDice(seed, "path planning"), config.size
    cells = [(i % n, i // n) for i in dice.order(n * n, "cells")]
    start = cells[0]
    apart = {cell: abs(cell[0] - start[0]) + abs(cell[1] - start[1]) for cell in cells}
    goal = next(cell for cell in cells if apart[cell] >= min(n, max(apart.values())))
    grid = Grid(n, frozenset(), start, frozenset({goal}))
    for wall in (cell for cell in cells if cell not in (start, goal)):
        if len(grid.walls) == config.walls:
            break
        more = Grid(n, grid.walls | {wall}, start, grid.goals)
        grid = more if grids.solve(more) is not None else grid
    return grid


@dataclass(frozen=True)
class PathPlanning(GridTask):
    """The task, with its dials."""

    config: Config = field(default_factory=Config)
    name: str = "path_planning"
    short: str = "T7"

    def grid(self, seed: int) -> Grid:
        """The grid of a seed."""
        return _grid(self.config, check_seed(seed))


path_planning = PathPlanning()
