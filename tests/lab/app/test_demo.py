"""The demo that trains: two methods, several seeds, equal budgets, and one story in every table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from counterpoint.lab.app import demo_training as _demo_training
from counterpoint.lab.app.api.compare import compare_groups, groups_of
from counterpoint.lab.app.demo_screens import decisions_screen, measures_screen, policies_screen, tasks_screen
from counterpoint.lab.train.before_after import by_hand
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.train.runners.here import Here
from counterpoint.lab.worlds.teamworld import suites

TASKS = 6
WIDTH = replace(suites.WIDTH, mix=({**suites.WIDTH.mix[0], "node_modules": 8}, suites.WIDTH.mix[1], {**suites.WIDTH.mix[2], "pool_items": 4}))
"""The world of the demo, with 8 jobs where it has 24, and 4 archives, which somebody alone searches for 240 rounds."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One update of each way, two seeds."""
    from counterpoint.lab.train.runners import processes

    place = tmp_path_factory.mktemp("demo") / "trained"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "Processes", lambda workers: Here())
        patch.setattr(suites, "suite_worlds", lambda: {"width": WIDTH})
        return _demo_training.train_both(place, "width", seed=3, seeds=2, budget=1, tasks=TASKS)


OWN = WIDTH.worlds[1].replace(max_rounds=6)
"""A world of somebody's own, by `module:name`."""


def test_a_world_that_is_named_by_its_code_is_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpoint.lab.train.runners import processes

    monkeypatch.setattr(processes, "Processes", lambda workers: Here())
    name = "lab.app.test_demo:OWN"
    own = _demo_training.train_both(tmp_path / "trained", name, seed=0, seeds=1, budget=1, tasks=1)
    assert {RunFolder.open(Path(run)).config()["world"] for runs in own["runs"].values() for run in runs} == {name}


def test_the_second_way_is_given_what_the_first_was_charged(found: Any) -> None:
    first, second = ([RunFolder.open(Path(p)) for p in found["runs"][way]] for way in ("counterpoint", "grpo"))
    assert [run.about["seed"] for run in first] == [run.about["seed"] for run in second] == [3, 4]
    charged = [run.spending()["charged"] for run in first]
    assert {run.config()["budget_calls"] for run in second} == {round(sum(charged) / 2)}
    assert found["spent"]["counterpoint"]["charged"] == sum(charged) / 2


def test_its_numbers_are_those_of_compare(found: Any) -> None:
    compared = compare_groups(groups_of([p for way in found["runs"].values() for p in way]), "value", None, ignore_mismatch=True)
    rows = {row["name"]: row for row in found["policies"]}
    for group, told in zip(compared.groups, compared.result.means, strict=True):
        assert (rows[group.label]["mean"], rows[group.label]["interval"]) == (told.mean, (told.low, told.high))
        assert rows[group.label]["runs"] == 2
    (difference,) = compared.result.differences
    last = found["differences"][-1]
    assert (last["label"], last["against"], last["mean"]) == ("counterpoint", "grpo", -difference.estimate.mean)
    assert last["interval"] == (-difference.estimate.high, -difference.estimate.low)  # type: ignore[operator]
    assert found["not_comparable"] == list(compared.reasons)
    assert len(compared.sides.tasks) == TASKS


def test_every_policy_plays_the_same_tasks(found: Any) -> None:
    worlds = WIDTH.worlds
    rows = {row["name"]: row for row in found["policies"]}
    assert rows["serial"]["mean"] == pytest.approx(by_hand("serial", worlds, np.arange(TASKS))["value"].mean())
    means = {name: np.mean([row["reward"][name] for row in found["by_task"]]) for name in found["by_task"][0]["reward"]}
    assert set(means) == {"counterpoint", "grpo", found["best"]}
    for name, mean in means.items():  # as many tasks of each of the three sorts
        assert mean == pytest.approx(rows[name]["mean"])
    assert rows[found["best"]]["mean"] == max(rows[name]["mean"] for name in _demo_training.SHOWN)


def test_the_bound_on_these_tasks_has_their_luck_and_says_how_sure_that_is(found: Any) -> None:
    worlds, n = WIDTH.worlds, 3
    here = by_hand("reference", worlds, np.arange(TASKS))["value"]
    seeds = np.arange(200_000, 200_000 + 25 * TASKS)
    others = by_hand("reference", worlds, seeds)["value"]
    ours = np.array([RunFolder.open(Path(p)).evals()[-1]["values"] for p in found["runs"]["counterpoint"]])
    for place, row in enumerate(found["by_task"]):
        many = others[seeds % n == place]
        assert row["luck"] == pytest.approx(here[place::n].mean() - many.mean())
        beside = ours.mean(0)[place::n] - here[place::n]
        both = many.var(ddof=1) / len(many) + beside.var(ddof=1) / len(beside)
        assert row["bound_half"] == pytest.approx(2 * both**0.5)
        assert row["bound_here"] == pytest.approx(worlds[place].optimum().value + row["luck"])
    assert np.mean([row["bound"] for row in found["by_task"]]) == pytest.approx(found["optimum"]["value"])
    # where the reference is the best there is, what it gets here cannot be told from the bound here: its luck is in both
    urgent = found["by_task"][1]
    assert urgent["task"] == "3 nodes, urgent"
    assert abs(here[1::n].mean() - urgent["bound_here"]) < 2 * urgent["bound_half"]


def test_team_sizes_are_the_same_in_the_table_the_bars_and_the_plot(found: Any) -> None:
    from counterpoint.lab.app.plots import panels

    drawn = panels.widths(groups_of([p for way in found["runs"].values() for p in way]))
    assert isinstance(drawn, panels.Widths)
    assert drawn.tasks == tuple(row["task"] for row in found["by_task"])
    for line in drawn.lines:
        assert line.y.tolist() == pytest.approx([row["agents"][line.label] for row in found["by_task"]])
    bars = decisions_screen(found)
    for row in found["by_task"]:
        assert f"{row['agents']['counterpoint']:.1f} ({row['agents']['grpo']:.1f}" in bars


def test_the_screens_say_what_is_compared_and_call_no_points_a_success(found: Any) -> None:
    said = policies_screen(found) + tasks_screen(found) + measures_screen(found) + decisions_screen(found)
    assert "counterpoint - grpo: " in said
    assert "bound of the mean" in said
    assert "task_success" not in said
    assert f"warning: not comparable: {found['not_comparable'][0]}" in said  # one update each: far apart, and it says so
