"""T8, Sokoban: the moves that push every box onto a target on a small grid with walls.

Always true: there is a solution, because the boxes were pulled off their targets by a walker (the moves backwards push them
there); its shortest length is known by an exact search over all states, and is at least five moves.

The kind of task is AT-GRPO's Sokoban (arXiv 2510.11062: 6 by 6 grids, a tool user and an executor, four turns). Departures as
in `path_planning`; the border is no part of the grid.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from counterpoint.errors import InputError
from counterpoint.lab.tasks import grids
from counterpoint.lab.tasks._grid_task import SHORTEST, GridTask, size_dial, walls_dial
from counterpoint.lab.tasks._words import KeyedDice, check_seed, check_whole
from counterpoint.lab.tasks.grids import Grid, GridState, neighbour
from counterpoint.lab.worlds.world import parameter

_ATTEMPTS = 10_000
_PULLS = 0.8
"""How often a box that can be pulled is."""


@dataclass(frozen=True)
class Config:
    """The dials."""

    size: int = size_dial()
    walls: int = walls_dial(2)
    boxes: int = parameter(1, "boxes", "Boxes, and targets.")

    def __post_init__(self) -> None:
        check_whole("size", self.size, 4, 8)
        check_whole("walls", self.walls, 0, self.size)
        check_whole("boxes", self.boxes, 1, grids.MOST_BOXES)


@lru_cache(maxsize=4_096)
def _grid(config: Config, seed: int) -> Grid:
    """The first of some drawn grids whose boxes are all off their targets, and that is long enough."""
    for attempt in range(_ATTEMPTS):
        grid = _pulled(config, KeyedDice(seed, "sokoban", str(attempt)))
        if grid is not None and len(grids.solve(grid) or ()) >= SHORTEST:
            return grid
    raise InputError(f"no grid with {config}", where=f"sokoban, seed {seed}", fix="fewer walls or boxes, or a larger size")


def _pulled(config: Config, dice: KeyedDice) -> Grid | None:
    """Boxes on their targets, pulled about by a walker; None where one is on a target in the end."""
    n, count = config.size, config.boxes
    cells = [(i % n, i // n) for i in dice.order(n * n, "cells")]
    walls, goals, start = frozenset(cells[: config.walls]), frozenset(cells[-count:]), cells[config.walls]
    room, state = Grid(n, walls, start, goals, goals), GridState(start, goals)
    names = list(grids.MOVES)
    for step in range(4 * n * count):
        move = names[dice.below(4, "move", step)]
        state = _backwards(room, state, move, is_pull=dice.chance(_PULLS, "pull", step))
    if state.boxes & goals:
        return None
    return Grid(n, walls, state.walker, goals, state.boxes)


def _backwards(room: Grid, state: GridState, move: str, *, is_pull: bool) -> GridState:
    """The state before a walker came here by the opposite move, with the box in front of it where it is pulled along."""
    ahead = _opposite(state.walker, move)
    to = neighbour(state.walker, move)
    if not room.is_free(to) or to in state.boxes:
        return state
    if is_pull and ahead in state.boxes:
        return GridState(to, state.boxes - {ahead} | {state.walker})
    return GridState(to, state.boxes)


def _opposite(cell: grids.Cell, move: str) -> grids.Cell:
    dx, dy = grids.MOVES[move]
    return cell[0] - dx, cell[1] - dy


@dataclass(frozen=True)
class Sokoban(GridTask):
    """The task, with its dials."""

    config: Config = field(default_factory=Config)
    name: str = "sokoban"
    short: str = "T8"

    def grid(self, seed: int) -> Grid:
        """The grid of a seed."""
        return _grid(self.config, check_seed(seed))


sokoban = Sokoban()
