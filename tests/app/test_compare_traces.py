"""Collections of traces against each other: tasks are the units, intervals are Student's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from counterpoint.app.api.compare_traces import FigureRow, TraceComparison, _row, compare_traces
from counterpoint.store import Store
from counterpoint.store.summary import Summary
from counterpoint.trace import Event, Trace


def rows(side: str, rewards: Iterable[tuple[str, float]]) -> list[Summary]:
    return [
        Summary.of_trace(Trace(trace_id=f"{side}-{k}", task_id=task, events=[Event(id="e", t=0, type="result", agent="a")],
                         rewards={"team": reward}))
        for k, (task, reward) in enumerate(rewards)
    ]  # fmt: skip


def row(group: list[Summary], first: list[Summary]) -> FigureRow:
    found = _row("b", "reward", "team_reward", group, first)
    assert found is not None
    return found


def test_runs_of_one_task_are_averaged_first() -> None:
    # task means 1, 2, 3, whatever the number of runs: mean 2, s = 1, t(0.975, 2) = 4.302653
    a = rows("a", [("x", 0), ("x", 2), ("y", 2), ("z", 3), ("z", 3), ("z", 3)])
    half = 4.302653 / math.sqrt(3)
    found = row(a, a)
    assert (found.traces, found.mean, found.diff) == (6, 2.0, None)
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half), abs=1e-6)
    # shared tasks: differences 1, 1, 4 (mean 2, s = sqrt(3))
    b = rows("b", [("x", 2), ("y", 3), ("z", 6), ("z", 8)])
    found = row(b, a)
    assert (found.diff, found.tasks) == (2.0, 3)
    assert (found.diff_low, found.diff_high) == pytest.approx((2 - 4.302653, 2 + 4.302653), abs=1e-6)


def test_other_tasks_are_compared_by_welch() -> None:
    # 1, 2, 3 against 2, 3, 4: v = 1/3 each, df = 4, t(0.975, 4) = 2.776445
    found = row(rows("b", [("u", 2), ("v", 3), ("w", 4)]), rows("a", [("x", 1), ("y", 2), ("z", 3)]))
    half = 2.776445 * math.sqrt(2 / 3)
    assert (found.diff, found.tasks) == (1.0, 0)
    assert (found.diff_low, found.diff_high) == pytest.approx((1 - half, 1 + half), abs=1e-6)


def test_one_task_and_unknown_tasks_have_their_runs_as_units() -> None:
    half = 4.302653 / math.sqrt(3)
    for task in ("x", "unnamed"):
        a, b = rows("a", [(task, 1), (task, 2), (task, 3)]), rows("b", [(task, 2), (task, 3), (task, 4)])
        found = row(b, a)
        assert (found.mean, found.diff, found.tasks) == (3.0, 1.0, 0)
        assert (found.low, found.high) == pytest.approx((3 - half, 3 + half), abs=1e-6)


def test_twelve_tasks_of_three_runs_hold_95_percent() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(300):
        task = rng.standard_normal(12)
        found = row(given := rows("a", [(f"t{k}", task[k] + 0.3 * rng.standard_normal()) for k in range(12) for _ in "abc"]), given)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0 <= found.high
    assert 0.91 < held / 300 < 0.99  # as 36 independent traces they hold 70 %


def test_too_wide_is_said_only_of_intervals_that_are() -> None:
    def remark(shared: int, low: float, high: float, tasks: int) -> str | None:
        one = FigureRow("b", "reward", 3, 0.0, -1.0, 1.0, 0.0, low, high, tasks)
        return TraceComparison(("a", "b"), (3, 3), (one,), shared).remark()

    assert remark(0, -1, 1, 0) is None
    assert remark(3, -1, 1, 0) == "3 traces are on more than one side: the intervals of the differences are too wide"
    assert remark(3, 0, 0, 3) == "3 traces are on more than one side"
    assert remark(1, -1, 1, 3) == "1 trace is on more than one side"


def test_the_caption_names_sides_whose_runs_are_the_units(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        for side, tasks in (("alone", "xx"), ("many", "xyz"), ("single", "w")):
            for k, task in enumerate(tasks):
                event = Event(id="e", t=0, type="message", agent="a")
                store.add(Trace(trace_id=f"{side}-{k}", task_id=task, events=[event], rewards={"team": float(k)}))
    told = compare_traces("id:alone", "id:many", "id:single", store=tmp_path / "store")
    assert told.of_one_task == ("id:alone",)
    assert told.caption().endswith("tasks as units, runs as units of one task (id:alone)")
    assert compare_traces("id:many", "id:single", store=tmp_path / "store").caption().endswith("tasks as units")
