"""Small grids with walls and boxes: states, moves, drawings, words, and an exact solver.

Always true: a cell is a letter for its column and a number for its row, `a1` top left. A move that leaves the grid, meets a
wall or pushes a box against anything is not made, and nothing after it is. `solve` gives a shortest list of moves or None where
there is none: A* with a consistent bound (Hart, Nilsson and Raphael 1968), ties broken by the order of `MOVES`, so the same
list each time.

The bound of a walker is its Manhattan distance to the goal; of boxes it is the cheapest assignment of boxes to targets by
Manhattan distance: a move changes either by one at most. Drawings are the usual ones of Sokoban: `#` wall, `@` walker, `$` box,
`.` goal, `*` box on a goal, `+` walker on a goal, `-` floor.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, permutations
from typing import NamedTuple

Cell = tuple[int, int]
"""Column and row, counted from 0."""
MOVES: dict[str, Cell] = {"right": (1, 0), "down": (0, 1), "left": (-1, 0), "up": (0, -1)}
LARGEST = 12
MOST_BOXES = 3
_CELL = re.compile(r"(?<![a-z0-9])([a-l])(1[0-2]|[1-9])(?![a-z0-9])")
_QUESTION = re.compile(
    r"grid of (\d{1,2}) by \1 cells.*? You are at (\S+?)\. (?:Goal|Targets): ([a-l0-9 ]+)\.(?: Boxes: ([a-l0-9 ]+)\.)? "
    r"Walls: ([a-l0-9 ]+|none)\."
)
_SEPARATORS = re.compile(r"[\s,;]+")
_MOST_MOVES = 1_000
_SIGNS = {
    "#": (1, 0, 0, 0),
    "@": (0, 1, 0, 0),
    "+": (0, 1, 0, 1),
    "$": (0, 0, 1, 0),
    "*": (0, 0, 1, 1),
    ".": (0, 0, 0, 1),
    "-": (0,) * 4,
}
"""What stands on a cell: a wall, the walker, a box, a goal."""


class GridState(NamedTuple):
    """Where the walker and the boxes are."""

    walker: Cell
    boxes: frozenset[Cell]


@dataclass(frozen=True)
class Grid:
    """A square grid; without boxes the walker itself has to come to the goal."""

    size: int
    walls: frozenset[Cell]
    start: Cell
    goals: frozenset[Cell]
    boxes: frozenset[Cell] = field(default_factory=frozenset)

    @property
    def begin(self) -> GridState:
        """The state before the first move."""
        return GridState(self.start, self.boxes)

    def is_free(self, cell: Cell) -> bool:
        """Whether a cell is of the grid and no wall."""
        return 0 <= cell[0] < self.size and 0 <= cell[1] < self.size and cell not in self.walls

    def is_solved(self, state: GridState) -> bool:
        """Whether every box is on a target, or the walker at the goal."""
        return state.boxes == self.goals if self.boxes else state.walker in self.goals

    def step(self, state: GridState, move: str) -> GridState | None:
        """The state after a move; None where it cannot be made."""
        to = neighbour(state.walker, move)
        if not self.is_free(to):
            return None
        if to not in state.boxes:
            return GridState(to, state.boxes)
        behind = neighbour(to, move)
        if not self.is_free(behind) or behind in state.boxes:
            return None
        return GridState(to, state.boxes - {to} | {behind})


@dataclass(frozen=True)
class Walk:
    """What came of a list of moves."""

    moves: tuple[str, ...]
    """Those that were made."""
    states: tuple[GridState, ...]
    """The state before each of them, and the last one."""
    blocked: Cell | None
    """The cell that could not be entered."""
    is_solved: bool
    """Every move was made, and the grid is solved at the end."""


def neighbour(cell: Cell, move: str) -> Cell:
    """The next cell in a direction."""
    dx, dy = MOVES[move]
    return cell[0] + dx, cell[1] + dy


def walk(grid: Grid, moves: Sequence[str]) -> Walk:
    """Make moves from the start until one cannot be made."""
    states = [grid.begin]
    for k, move in enumerate(moves):
        after = grid.step(states[-1], move)
        if after is None:
            return Walk(tuple(moves[:k]), tuple(states), neighbour(states[-1].walker, move), False)
        states.append(after)
    return Walk(tuple(moves), tuple(states), None, grid.is_solved(states[-1]))


# -- the solver ----------------------------------------------------------------------------------------------------------


def _apart(a: Cell, b: Cell) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def _bound(grid: Grid, state: GridState) -> int:
    """No more moves than this solve the state."""
    if not grid.boxes:
        return min(_apart(state.walker, goal) for goal in grid.goals)
    boxes, goals = sorted(state.boxes), sorted(grid.goals)
    return min(sum(map(_apart, boxes, order)) for order in permutations(goals))


@lru_cache(maxsize=65_536)
def solve(grid: Grid, state: GridState | None = None) -> tuple[str, ...] | None:
    """A shortest list of moves from a state, the start by default; None where there is none."""
    begin = state or grid.begin
    ways: dict[GridState, tuple[int, GridState | None, str]] = {begin: (0, None, "")}
    queue, made, over = [(_bound(grid, begin), 0, 0, begin)], 0, set[GridState]()
    while queue:
        _, _, _, here = heapq.heappop(queue)
        if here in over:
            continue
        over.add(here)
        if grid.is_solved(here):
            return _way(ways, here)
        far = ways[here][0] + 1
        for move in MOVES:
            after = grid.step(here, move)
            if after is not None and (after not in ways or far < ways[after][0]):
                ways[after], made = (far, here, move), made + 1
                heapq.heappush(queue, (far + _bound(grid, after), -far, made, after))
    return None


def _way(ways: dict[GridState, tuple[int, GridState | None, str]], state: GridState) -> tuple[str, ...]:
    out: list[str] = []
    at: GridState | None = state
    while at is not None:
        _, before, move = ways[at]
        out, at = ([*out, move] if move else out), before
    return tuple(reversed(out))


def progress(grid: Grid, state: GridState) -> float:
    """How much of the way is behind a state: 1 - (moves that are left) / (moves from the start), 0 where it leads nowhere."""
    whole, rest = solve(grid), solve(grid, state)
    return 0.0 if not whole or rest is None else max(0.0, 1.0 - len(rest) / len(whole))


# -- words ---------------------------------------------------------------------------------------------------------------


def cell_name(cell: Cell) -> str:
    """A cell as it is written."""
    return f"{'abcdefghijkl'[cell[0]]}{cell[1] + 1}"


def cell_names(cells: Iterable[Cell]) -> str:
    """Cells in their order."""
    return " ".join(map(cell_name, cells))


def cells_of(text: str) -> tuple[Cell, ...]:
    """The cells that a text names, in order."""
    return tuple((ord(m[1]) - ord("a"), int(m[2]) - 1) for m in _CELL.finditer(text))


def moves_of(text: str) -> tuple[str, ...] | None:
    """The moves of a plan: words or their first letters, up to a colon; None where anything else stands there."""
    by_letter = {name[0]: name for name in MOVES}
    words = [word for word in _SEPARATORS.split(text.partition(":")[0].strip().lower()) if word]
    found = [word if word in MOVES else by_letter.get(word, "") for word in words[: _MOST_MOVES + 1]]
    return tuple(found) if found and all(found) and len(found) <= _MOST_MOVES else None


def moves_between(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The moves along cells that touch; the list ends where two do not."""
    names = {d: name for name, d in MOVES.items()}
    out: list[str] = []
    for a, b in pairwise(cells):
        move = names.get((b[0] - a[0], b[1] - a[1]))
        if move is None:
            break
        out.append(move)
    return tuple(out)


def report(grid: Grid, way: Walk) -> str:
    """What a simulator says: the moves that were made, and how it ended."""
    if way.is_solved:
        end = "solved"
    elif way.blocked is not None:
        end = (
            f"blocked at {cell_name(way.blocked)}" if grid.is_free(way.blocked) or way.blocked in grid.walls else "left the grid"
        )
    else:
        end = f"not there yet, at {cell_name(way.states[-1].walker)}"
    return f"{' '.join(way.moves) or 'no move'}: {end}"


def question_of(grid: Grid) -> str:
    """The grid in words that `grid_in` reads."""
    last = cell_name((grid.size - 1, grid.size - 1))
    ends, asks = ("Targets", "push each box onto a target") if grid.boxes else ("Goal", "lead to the goal")
    boxes = f" Boxes: {cell_names(sorted(grid.boxes))}." if grid.boxes else ""
    return (
        f"Which moves {asks} on a grid of {grid.size} by {grid.size} cells, a1 top left, {last} bottom right? "
        f"You are at {cell_name(grid.start)}. {ends}: {cell_names(sorted(grid.goals))}.{boxes} "
        f"Walls: {cell_names(sorted(grid.walls)) or 'none'}."
    )


def grid_in(text: str) -> Grid | None:
    """The grid that a question describes, None where there is none."""
    found = _QUESTION.search(text)
    if found is None:
        return None
    start = cells_of(found[2])
    size, goals, boxes, walls = int(found[1]), cells_of(found[3]), cells_of(found[4] or ""), cells_of(found[5])
    grid = Grid(size, frozenset(walls), start[0], frozenset(goals), frozenset(boxes)) if start else None
    return grid if grid is not None and _is_sound(grid) else None


def grid_text(grid: Grid) -> str:
    """The grid as a drawing, a line for each row."""
    signs = {sign: key for key, sign in _SIGNS.items()}
    every = [[(x, y) for x in range(grid.size)] for y in range(grid.size)]
    of = lambda c: (int(c in grid.walls), int(c == grid.start), int(c in grid.boxes), int(c in grid.goals))  # noqa: E731
    return "".join("".join(signs[of(cell)] for cell in row) + "\n" for row in every)


def read_grid(drawing: str) -> Grid | None:
    """The grid of a drawing, None where it is none."""
    rows = drawing.split()
    if not rows or any(len(row) != len(rows) for row in rows) or any(c not in _SIGNS for row in rows for c in row):
        return None
    parts: tuple[list[Cell], ...] = ([], [], [], [])
    for y, row in enumerate(rows):
        for x, sign in enumerate(row):
            for cells, is_there in zip(parts, _SIGNS[sign], strict=True):
                cells.extend([(x, y)] * is_there)
    walls, starts, boxes, goals = parts
    grid = Grid(len(rows), frozenset(walls), starts[0], frozenset(goals), frozenset(boxes)) if len(starts) == 1 else None
    return grid if grid is not None and _is_sound(grid) else None


def _is_sound(grid: Grid) -> bool:
    """Whether things stand on free cells of the grid, and each box has a target."""
    there = [grid.start, *grid.goals, *grid.boxes]
    pairs = len(grid.goals) == (len(grid.boxes) or 1) and len(grid.boxes) <= MOST_BOXES
    return pairs and grid.size <= LARGEST and all(map(grid.is_free, there)) and grid.start not in grid.boxes
