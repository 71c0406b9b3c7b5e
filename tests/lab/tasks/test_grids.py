"""T7 and T8: an exact solver against trying everything, grids that can be solved, plans that say what they mean, honest scores."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.tasks import grids
from counterpoint.lab.tasks.grids import Grid, GridState, cells_of, moves_of, question_of, read_grid, solve, walk
from counterpoint.lab.tasks.leakage import truth
from counterpoint.lab.tasks.path_planning import path_planning
from counterpoint.lab.tasks.sokoban import sokoban
from counterpoint.lab.tasks.task import Act, Choice, Instance, View, ViewItem
from counterpoint.lab.tasks.task import task as find
from counterpoint.lab.team.tool import Place, ToolResult
from counterpoint.lab.team.tools.simulate import simulate
from counterpoint.lab.testing import check_tool
from play_help import RETURN, STOP, drawn, play

SOME = settings(max_examples=40, deadline=None)
BOTH = pytest.mark.parametrize("name", ["path_planning", "sokoban"])
SMALL = """
@-#-
-#--
--#.
----
"""
PUSH = """
@---
-$--
---.
----
"""


def grid_of(drawing: str) -> Grid:
    found = read_grid(drawing)
    assert found is not None
    return found


@st.composite
def random_grids(draw: st.DrawFn, most_boxes: int = 2) -> Grid:
    """Any grid of 3 or 4 rows, solvable or not."""
    n = draw(st.integers(3, 4))
    cells = draw(st.permutations([(x, y) for x in range(n) for y in range(n)]))
    boxes, walls = draw(st.integers(0, most_boxes)), draw(st.integers(0, n))
    goals = cells[1 + boxes : 1 + boxes + (boxes or 1)]
    return Grid(n, frozenset(cells[-walls:] if walls else ()), cells[0], frozenset(goals), frozenset(cells[1 : 1 + boxes]))


def shortest(grid: Grid) -> int | None:
    """The fewest moves, by trying everything in the order of length."""
    far: dict[GridState, int] = {grid.begin: 0}
    queue = deque([grid.begin])
    while queue:
        here = queue.popleft()
        if grid.is_solved(here):
            return far[here]
        for move in grids.MOVES:
            after = grid.step(here, move)
            if after is not None and after not in far:
                far[after] = far[here] + 1
                queue.append(after)
    return None


# -- grids by hand -------------------------------------------------------------------------------------------------------


def test_a_path_by_hand() -> None:
    grid = grid_of(SMALL)
    assert (grid.start, grid.goals, grid.size) == ((0, 0), {(3, 2)}, 4)
    assert grids.cell_names(sorted(grid.walls)) == "b2 c1 c3"
    assert solve(grid) == ("down", "down", "right", "down", "right", "right", "up")
    way = walk(grid, ["down", "right", "up"])
    assert (way.moves, way.blocked, way.is_solved) == (("down",), (1, 1), False)
    assert grids.report(grid, way) == "down: blocked at b2"
    assert grids.report(grid, walk(grid, ["up"])) == "no move: left the grid"
    assert grids.report(grid, walk(grid, ["down", "down"])) == "down down: not there yet, at a3"
    assert grids.report(grid, walk(grid, solve(grid) or ())) == "down down right down right right up: solved"
    assert grids.progress(grid, GridState((0, 2), frozenset())) == pytest.approx(2 / 7)


def test_a_push_by_hand() -> None:
    grid = grid_of(PUSH)  # the box b2 to d3: from the left twice, then from above
    assert len(solve(grid) or ()) == shortest(grid) == 7 - 1
    pushed = walk(grid, ["down", "right", "right"])
    assert pushed.states[-1] == GridState((2, 1), frozenset({(3, 1)}))
    assert walk(grid, ["down", "right", "right", "right"]).blocked == (3, 1)  # the box stands at the edge
    assert not grid.is_solved(GridState((3, 2), grid.boxes))  # a walker on the target is no box on it
    wall = grid_of(PUSH.replace("-$--", "-$#-"))
    assert walk(wall, ["down", "right"]).blocked == (1, 1)
    two = grid_of("@$$-\n----\n----\n..--\n")
    assert walk(two, ["right"]).moves == ()  # a box does not push another
    assert grids.solve(grid_of("$-@\n---\n--.\n")) is None  # a box in a corner


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("right down", ("right", "down")),
        (" R, d;L up ", ("right", "down", "left", "up")),
        ("right: blocked at b1", ("right",)),
        ("right maybe", None),
        ("", None),
        (": solved", None),
        ("down " * 1001, None),
    ],
)
def test_what_is_a_list_of_moves(text: str, moves: tuple[str, ...] | None) -> None:
    assert moves_of(text) == moves


@pytest.mark.parametrize("drawing", ["", "@.\n--\nx", "@@\n-.", "@-\n--", "##\n#.", "@$\n-.\n--", "@-\n.?"])
def test_what_is_no_grid(drawing: str) -> None:
    assert read_grid(drawing) is None


def test_what_is_no_question() -> None:
    question = question_of(grid_of(SMALL))
    assert grids.grid_in(question) == grid_of(SMALL)
    assert grids.grid_in(question.replace("Goal: d3", "Goal: b2")) is None  # in a wall
    assert grids.grid_in(question.replace("Goal: d3", "Goal: l9")) is None  # off the grid
    assert grids.grid_in("a grid of 4 by 4 cells") is None


# -- laws ----------------------------------------------------------------------------------------------------------------


@SOME
@given(random_grids())
def test_the_solver_is_exact(grid: Grid) -> None:
    moves, least = solve(grid), shortest(grid)
    assert (None if moves is None else len(moves)) == least
    if moves:
        assert walk(grid, moves).is_solved


@SOME
@given(random_grids())
def test_drawings_and_words_say_the_whole_grid(grid: Grid) -> None:
    assert read_grid(grids.grid_text(grid)) == grid
    assert grids.grid_in(f"{question_of(grid)} and more") == grid


@SOME
@given(random_grids(), st.lists(st.sampled_from(list(grids.MOVES)), max_size=9))
def test_a_plan_names_the_cells_of_the_moves_that_can_be_made(grid: Grid, moves: list[str]) -> None:
    from counterpoint.lab.tasks._grid_task import plan_text, planned_moves

    text, way = plan_text(grid, moves), walk(grid, moves)
    assert planned_moves(text) == way.moves
    assert cells_of(text.rpartition("walk")[2]) == tuple(s.walker for s in way.states)
    assert text.count("box") == len(grid.boxes - way.states[-1].boxes) or len(grid.boxes) > 1


@BOTH
@SOME
@given(seed=st.integers(0, 2**63 - 1), size=st.integers(4, 6), walls=st.integers(0, 4))
def test_every_instance_can_be_solved_and_says_so_in_its_truth(name: str, seed: int, size: int, walls: int) -> None:
    task = find(name, size=size, walls=walls)
    grid, instance = task.grid(seed), task.instance(seed)
    assert (grid.size, len(grid.walls)) == (size, walls)
    assert grids.grid_in(instance.question) == read_grid(instance.files["grid.txt"]) == grid
    right = truth(instance, task)[1]
    assert len(right.split()) == shortest(grid)
    assert task.check(instance, right).parts == {"legal": 1.0, "progress": 1.0, "shortest": 1.0}
    if name == "sokoban":
        assert len(right.split()) >= 5
        assert not grid.boxes & grid.goals
    else:
        (goal,) = grid.goals
        apart = abs(goal[0] - grid.start[0]) + abs(goal[1] - grid.start[1])
        assert apart >= size or apart >= size - 1  # a start in the middle has nothing farther away


def test_walls_never_cut_the_way() -> None:
    full = path_planning.replace(walls=25).grid(0)
    moves = solve(full)
    assert moves is not None
    assert len(full.walls) == 25 - len(moves) - 1  # only one way is left, and nothing beside it


@BOTH
def test_a_longer_prefix_of_the_solution_scores_more_and_only_the_whole_is_right(name: str) -> None:
    task = find(name)
    for seed in range(6):
        instance = task.instance(seed)
        right = truth(instance, task)[1].split()
        scores = [task.check(instance, " ".join(right[:k])).value for k in range(len(right) + 1)]
        assert scores == sorted(scores)
        assert [s for s in scores if s == 1] == [1]
        assert max(scores[:-1]) < 0.5
        assert task.check(instance, " ".join([*right, right[-1]])).value < 1 or name == "sokoban"


@BOTH
@SOME
@given(texts=st.lists(st.text(max_size=30), max_size=4), cut=st.integers(0, 40))
def test_any_text_is_scored_and_merged(name: str, texts: list[str], cut: int) -> None:
    task = find(name)
    instance = task.instance(1)
    for text in (*texts, truth(instance, task)[1][:cut]):
        score = task.check(instance, text)
        moves = moves_of(text)
        assert score.is_solved == (moves is not None and walk(task.grid(1), moves).is_solved)
        assert 0 <= score.value <= 1
    for rule in task.rules:
        assert moves_of(task.merge(instance, rule, texts)) == moves_of(task.merge(instance, rule, texts))


def test_merges_by_hand() -> None:
    instance, some = path_planning.instance(0), ["up", "nonsense", "R: solved", "right", "down: blocked at a1"]
    assert [path_planning.merge(instance, rule, some) for rule in ("last", "first", "vote")] == ["down", "up", "right"]
    with pytest.raises(NotFound, match="no rule named 'best'"):
        path_planning.merge(instance, "best", some)


@pytest.mark.parametrize(
    ("name", "dials"),
    [
        ("path_planning", {"size": 3}), ("path_planning", {"size": 13}), ("path_planning", {"walls": -1}), ("path_planning", {"walls": 2.5}),
        ("sokoban", {"boxes": 0}), ("sokoban", {"boxes": 4}), ("sokoban", {"walls": 6}), ("sokoban", {"size": True}),
    ],
)  # fmt: skip
def test_impossible_dials_are_one_error(name: str, dials: dict[str, float]) -> None:
    with pytest.raises(InputError, match="a whole number"):
        find(name, **dials)


def test_the_same_seed_gives_the_same_bytes_in_another_process() -> None:
    code = (
        "import dataclasses, hashlib\nfrom counterpoint.lab.tasks.task import task\n"
        "for n in ('T7', 'T8'): print(hashlib.sha256(repr(dataclasses.asdict(task(n).instance(11))).encode()).hexdigest())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    mine = [hashlib.sha256(repr(dataclasses.asdict(find(n).instance(11))).encode()).hexdigest() for n in ("T7", "T8")]
    assert out.stdout.split() == mine


# -- the tool and the player ---------------------------------------------------------------------------------------------


def called(instance: Instance, moves: str) -> ToolResult:
    return asyncio.run(simulate(instance).call({"moves": moves}, Place("lead.1", Path("."), {})))


def test_the_simulator() -> None:
    check_tool(simulate)
    instance = sokoban.instance(3)
    right = truth(instance, sokoban)[1]
    assert called(instance, right).text == f"{right}: solved"
    assert called(instance, "hop").error == "not found"
    assert "right, down, left, up" in called(instance, "hop").text
    assert called(dataclasses.replace(instance, files={}), "up").text == "there is no grid in grid.txt"


@BOTH
def test_skill_decides_how_often_one_alone_is_right(name: str, tmp_path: Path) -> None:
    task = find(name)
    solved = {
        skill: sum(
            task.check(i, play(task, i, [], tmp_path, skill=skill, seed=i.seed, choices=STOP)[0].text).is_solved
            for i in map(task.instance, range(30))
        )
        for skill in (0.0, 0.6, 1.0)
    }
    assert solved[1.0] == 30
    assert 0 <= solved[0.0] < solved[0.6] < 30


def test_a_tool_user_does_what_the_plan_says_and_reports_what_came_of_it() -> None:
    grid, instance = path_planning.grid(0), path_planning.instance(0)
    move = next(m for m in grids.MOVES if grid.is_free(grids.neighbour(grid.start, m)))
    to = grids.neighbour(grid.start, move)
    seen = [
        ViewItem("question", "user", instance.question),
        ViewItem("subtask", "lead", f"walk {grids.cell_names([grid.start, to])}", "t1"),
    ]
    choices = (Choice("tool", "simulate"), *RETURN)
    call = path_planning.work(View("lead.1", "executor", "work", tuple(seen), choices), drawn(0), 1.0)
    assert call == Act("tool", "simulate", move)
    seen += [ViewItem("own", "lead.1", f"TOOL simulate: {move}"), ViewItem("result", "simulate", called(instance, move).text)]
    back = path_planning.work(View("lead.1", "executor", "work", tuple(seen), choices), drawn(0), 1.0)
    assert back == Act("return", "", f"{move}: not there yet, at {grids.cell_name(to)}")


def test_critics_and_resolvers_see_which_moves_are_right(tmp_path: Path) -> None:
    instance = sokoban.instance(4)
    right = truth(instance, sokoban)[1]
    heard = [
        ViewItem("return", "lead.1", "up"),
        ViewItem("return", "lead.2", f"{right}: solved"),
        ViewItem("return", "lead.3", "down"),
    ]
    assert play(sokoban, instance, heard, tmp_path, purpose="judge", choices=STOP)[0].text == right
