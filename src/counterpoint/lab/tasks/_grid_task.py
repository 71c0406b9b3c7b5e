"""What the two tasks on grids share: instances, the checker, merges, and a player for every role.

Always true: a right answer is a list of moves that can all be made and ends with the grid solved; it scores 1. Any other scores
half of the progress that its moves make before the first that cannot be made (`grids.progress`), so less than 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

from counterpoint.errors import NotFound, did_you_mean
from counterpoint.lab.tasks import grids
from counterpoint.lab.tasks._players import JUDGING, answer, is_final, judged, slip, use
from counterpoint.lab.tasks.grids import Grid
from counterpoint.lab.tasks.leakage import marker
from counterpoint.lab.tasks.task import Act, Draw, Instance, Score, Subtask, View
from counterpoint.lab.worlds.world import changed, parameter

RULES = ("last", "first", "vote")
FILE = "grid.txt"
"""Where the drawing of an instance is, for tools."""
_FORMAT = "moves with a space between them, such as right down"
_HOW = "Whoever plans names the cells to walk, from the first to the last; whoever has tools makes moves of them and tries them."
_TRIES = 2
SHORTEST = 5
"""Moves that every instance needs at least: more than the example has."""


def size_dial() -> Any:
    """How large a grid is."""
    return parameter(5, "cells", "Rows, and columns.")


def walls_dial(usual: int) -> Any:
    """How many walls there are."""
    return parameter(usual, "cells", "Walls; fewer where more would leave no way.")


@dataclass(frozen=True)
class GridTask(ABC):
    """A task on grids: its grid is the seed's, and all else follows from the grid."""

    config: Any
    name: str
    short: str
    version: str = "1"
    rules: tuple[str, ...] = RULES

    @abstractmethod
    def grid(self, seed: int) -> Grid:
        """The grid of a seed."""

    def replace(self, **changes: Any) -> Self:
        """The same task with other dials."""
        return replace(self, config=changed(self.config, changes))

    def instance(self, seed: int) -> Instance:
        """The instance of a seed."""
        return grid_instance(self.name, seed, self.grid(seed))

    def check(self, instance: Instance, answer: str) -> Score:
        """1 for moves that solve the grid, else half of their progress."""
        return grid_score(self.grid(instance.seed), answer)

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        """Of the texts that are lists of moves the last, the first, or the one that most say."""
        return merged_moves(rule, texts)

    def truth_file(self, instance: Instance) -> str:
        """The marker, and a shortest solution."""
        return truth_text(self.name, instance.seed, self.grid(instance.seed))

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        """Plan, try, report, judge: what the view asks for."""
        return play_grid(view, draw, skill)


def grid_instance(task: str, seed: int, grid: Grid) -> Instance:
    """The instance of a grid."""
    question = f"{grids.question_of(grid)} Moves: {', '.join(grids.MOVES)}."
    if grid.boxes:
        question += " Who walks into a box pushes it, where the cell behind it is free."
    part = Subtask("s1", "Find the moves, try them with simulate, and return those that solve the grid.")
    return Instance(
        task=task, seed=seed, question=f"{question} {_HOW}", answer_format=_FORMAT, subtasks=(part,), tools=("simulate",),
        files={FILE: grids.grid_text(grid)},
    )  # fmt: skip


def grid_score(grid: Grid, answer: str) -> Score:
    """The score of a list of moves."""
    moves = grids.moves_of(answer)
    if moves is None:
        return Score(0.0, False, {"legal": 0.0, "progress": 0.0, "shortest": 0.0})
    way, best = grids.walk(grid, moves), grids.solve(grid) or ()
    far = 1.0 if way.is_solved else grids.progress(grid, way.states[-1])
    parts = {"legal": len(way.moves) / len(moves), "progress": far}
    parts["shortest"] = len(best) / len(moves) if way.is_solved else 0.0
    return Score(1.0 if way.is_solved else far / 2, way.is_solved, parts)


def merged_moves(rule: str, texts: Sequence[str]) -> str:
    """Last, first: of the texts that are lists of moves. Vote: the one that most say, of equals the first."""
    if rule not in RULES:
        raise NotFound(f"no rule named {rule!r}", fix=did_you_mean(rule, RULES))
    every = [" ".join(moves) for text in texts if (moves := grids.moves_of(text)) is not None]
    if not every:
        return ""
    return max(every, key=every.count) if rule == "vote" else every[-1 if rule == "last" else 0]


def truth_text(task: str, seed: int, grid: Grid) -> str:
    """The marker, and a shortest list of moves."""
    return f"{marker(task, seed)}\n{' '.join(grids.solve(grid) or ())}\n"


# -- a player ------------------------------------------------------------------------------------------------------------


def plan_text(grid: Grid, moves: Sequence[str]) -> str:
    """A plan as a planner says it: the cells that each box goes over, and those that are walked."""
    way = grids.walk(grid, moves)
    routes: list[list[grids.Cell]] = []
    for before, after in pairwise(way.states):
        for gone, new in zip(before.boxes - after.boxes, after.boxes - before.boxes, strict=True):
            mine = next((route for route in routes if route[-1] == gone), None)
            if mine is None:
                routes.append(mine := [gone])
            mine.append(new)
    boxes = "".join(f"box {grids.cell_names(route)}; " for route in routes)
    return f"{boxes}walk {grids.cell_names(state.walker for state in way.states)}"


def planned_moves(text: str) -> tuple[str, ...]:
    """The moves that a plan, or a list of moves, asks for."""
    return grids.moves_of(text) or grids.moves_between(grids.cells_of(text.rpartition("walk")[2]))


def play_grid(view: View, draw: Draw, skill: float) -> Act:
    """What a competent planner, tool user, critic or lone worker does next; each step goes wrong with chance 1 - skill."""
    grid = next((g for s in view.seen if s.kind == "question" and (g := grids.grid_in(s.text)) is not None), None)
    if grid is None:
        return answer(view, "no grid")
    heard = [s.text for s in view.seen if s.kind in ("return", "message") and grids.moves_of(s.text) is not None]
    if view.purpose == "judge" and view.role == "critic":
        is_good = bool(heard) and _solves(grid, heard[-1])
        return judged(view, [] if is_good else ["the moves do not solve the grid"], draw("judge") >= skill)
    tellable = [c for c in view.choices if c.verb == "message" and c.target]
    if view.purpose == "work" and tellable:
        return _planner(view, grid, heard, draw, skill, tellable[0].target)
    if view.purpose in JUDGING and heard:
        good = [text for text in heard if _solves(grid, text)] or heard
        return answer(view, _bare(slip(draw, skill, "judge", [lambda: heard[-1]], good[0])))
    return _tool_user(view, grid, draw, skill)


def _solves(grid: Grid, text: str) -> bool:
    moves = grids.moves_of(text)
    return moves is not None and grids.walk(grid, moves).is_solved


def _bare(text: str) -> str:
    return " ".join(grids.moves_of(text) or ())


def _planner(view: View, grid: Grid, heard: Sequence[str], draw: Draw, skill: float, to: str) -> Act:
    """Stop at a report of success, else say a plan."""
    fixed = [c for c in view.choices if c.verb == "stop" and c.text == ""]
    is_over = bool(heard) and heard[-1].endswith(": solved")
    if is_over and is_final(view):
        return Act("stop", "", "") if fixed else answer(view, _bare(heard[-1]))
    moves = grids.solve(grid) or ()
    return Act("message", to, plan_text(grid, _slipped(moves, draw, skill, "plan")))


def _tool_user(view: View, grid: Grid, draw: Draw, skill: float) -> Act:
    """Try the moves of the plan, or of its own where there is none, and return what the simulator says."""
    at = max((i for i, s in enumerate(view.seen) if s.kind in ("subtask", "message")), default=0)
    told = planned_moves(view.seen[at].text) if view.seen and view.seen[at].kind in ("subtask", "message") else ()
    results = [s.text for s in view.seen[at:] if s.kind == "result" and s.by == "simulate"]
    moves = _slipped(told or grids.solve(grid) or (), draw, skill, "moves")
    is_over = bool(results) and (bool(told) or results[-1].endswith(": solved") or len(results) >= _TRIES)
    call = None if is_over else use(view, "simulate", " ".join(moves) or "none")
    if call is not None:
        return call
    if not results:
        return answer(view, " ".join(moves))
    return answer(view, results[-1] if told and not is_final(view) else _bare(results[-1]))


def _slipped(moves: Sequence[str], draw: Draw, skill: float, name: str) -> tuple[str, ...]:
    """Moves, of which with chance 1 - skill one is another, or the last is missing."""
    right = tuple(moves)
    if not right:
        return right
    k = int(draw(f"{name}: where") * len(right))
    other = [move for move in grids.MOVES if move != right[k]][int(draw(f"{name}: which") * 3)]
    return slip(draw, skill, name, [lambda: (*right[:k], other, *right[k + 1 :]), lambda: right[:-1] or (other,)], right)
