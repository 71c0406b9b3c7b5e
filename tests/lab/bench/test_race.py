"""Every method side by side: rows that are computed once, by whoever comes first, and survive a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.bench.race import running
from counterpoint.lab.bench.race.plan import OURS, change_of, grid, methods, planned_race
from counterpoint.lab.bench.race.rows import RaceFolder, read_rows, write_rows
from counterpoint.lab.bench.race.running import RaceSession
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.preset import named_preset
from lab.bench.race_made import TINY, TinyWorld, tiny

TWO = ("grpo", OURS)
_TIMES = ("cpu_s", "ended")


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in _TIMES} for row in rows]


def test_rows_are_the_same_here_and_in_a_process_and_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpoint.lab.train.runners.processes import Processes

    race, told = tiny(TWO, seeds=1), []
    here = RaceFolder.begin(tmp_path / "here", race.head())
    RaceSession(race, here, lambda kind, row: told.append((kind, dict(row)))).go()
    apart = RaceFolder.begin(tmp_path / "apart", race.head())
    with Processes(1) as runner:
        RaceSession(race, apart).go(runner)
    assert len(here.rows()) == 2
    assert without_times(here.rows()) == without_times(apart.rows())
    assert [kind for kind, _ in told] == ["start", "row", "row", "end"]
    assert [(row["method"], row["seed"]) for kind, row in told if kind == "row"] == [(OURS, 0), ("grpo", 0)]
    assert told[-1][1] == {"rows_done": 2, "rows_total": 2, "rows_failed": 0, "left_s": 0}
    first = here.rows()[0]
    assert first["curve"][0][0] == 0
    assert first["curve"][-1][:2] == [first["spent"]["charged"], round(first["value"], 6)]

    monkeypatch.setattr(running, "work", lambda payload: pytest.fail("computed twice"))
    assert RaceSession(race, here).go().done == 2
    with pytest.raises(InputError, match="another plan"):
        RaceFolder.begin(here.path, tiny(TWO, budget=600).head())


def test_a_run_that_calls_nobody_for_long_ends_there_and_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny(("grpo",), seeds=1, budget=600, world=TinyWorld(set=TINY)).final(methods(("grpo",))[0], "published")[0]
    usual, before = running.work(run.payload()), Network.items
    assert usual["spent"]["charged"] >= 600
    assert not usual["collapsed"]

    def leaves(self: Network, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        purpose, brief, query = before(self, x)
        return purpose + torch.tensor([50.0, 0.0, 0.0, 0.0]), brief, query

    monkeypatch.setattr(Network, "items", leaves)
    monkeypatch.setattr(running, "IDLE", 3)
    idle = running.work(run.payload())
    assert (idle["status"], idle["collapsed"], idle["updates"], idle["spent"]["calls"]) == ("done", True, 3, 0)
    assert idle["curve"][-1][:2] == [idle["spent"]["charged"], round(idle["value"], 6)]
    assert idle["spent"]["charged"] < 600


def test_a_row_in_other_hands_is_left_to_them_and_a_dead_process_frees_its_claim(tmp_path: Path) -> None:
    race = tiny(("grpo",), seeds=1)
    folder = RaceFolder.begin(tmp_path / "race", race.head())
    run = race.final(race.methods[0], "published")[0]
    code = (
        "import sys, time; sys.path[:0] = sys.argv[1:2]; from lab.bench.race_made import tiny; from counterpoint.lab.bench.race.rows import RaceFolder\n"
        "race = tiny(('grpo',), seeds=1); run = race.final(race.methods[0], 'published')[0]\n"
        "held = RaceFolder(sys.argv[2]).claim(run); print('held', held is not None, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parents[2]), str(folder.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held True\n"
        assert folder.claim(run) is None
        other.send_signal(signal.SIGKILL)
        other.wait()
    claim = folder.claim(run)
    assert claim is not None
    assert folder.claim(run) is None  # ours too is exclusive, in one process
    claim.close()
    assert os.listdir(folder.path / "claims") == []
    RaceSession(race, folder).go()
    assert folder.claim(run) is None  # it is there


def test_an_interruption_keeps_what_is_done_and_the_rest_comes_later(tmp_path: Path) -> None:
    race, count = tiny(("grpo",), seeds=3), 0

    def stop(kind: str, row: Any) -> None:
        nonlocal count
        count += kind == "row"
        if count == 2:
            raise KeyboardInterrupt

    folder = RaceFolder.begin(tmp_path / "race", race.head())
    with pytest.raises(KeyboardInterrupt):
        RaceSession(race, folder, stop).go()
    kept = folder.rows()
    assert len(kept) == 2
    assert os.listdir(folder.path / "claims") == []
    RaceSession(race, folder).go()
    assert len(folder.rows()) == 3
    assert [row for row in folder.rows() if row in kept] == kept


def test_the_grid_is_run_on_other_seeds_and_tasks_and_its_best_point_counts(tmp_path: Path) -> None:
    race = tiny(("grpo",), seeds=1, plan="small", tune_budget=40, tune_seeds=1)
    folder = RaceFolder.begin(tmp_path / "race", race.head())
    RaceSession(race, folder).go()
    tuned = [row for row in folder.rows() if row["phase"] == "tune"]
    final = [row for row in folder.rows() if row["phase"] == "final"]
    assert {row["point"] for row in tuned} == set(grid(named_preset("grpo")))
    assert len(tuned) == 6
    assert {row["seed"] for row in tuned} == {100}
    assert not {row["tasks"][0] for row in tuned} & {row["tasks"][0] for row in final}
    best = running.chosen_point(tuned)
    assert {row["point"] for row in final} == {best, "published"}


def test_a_method_that_fails_is_a_row_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    race = tiny(TWO, seeds=1)
    plain = running._trained

    def failing(payload: Any) -> Any:
        if payload["settings"]["preset"] == "grpo":
            raise ValueError("no such\nluck")
        return plain(payload)

    monkeypatch.setattr(running, "_trained", failing)
    folder = RaceFolder.begin(tmp_path / "race", race.head())
    progress = RaceSession(race, folder).go()
    assert (progress.done, progress.failed) == (2, 1)
    errors = {row["method"]: row.get("error") for row in folder.rows()}
    assert errors == {"grpo": "ValueError: no such luck", OURS: None}
    # With the same code it is not tried again; with other code it is.
    run = race.final(next(m for m in race.methods if m.name == "grpo"), "published")[0]
    assert folder.claim(run) is None
    monkeypatch.setattr("counterpoint.lab.bench.race.rows.code_digest", lambda: "other")
    claim = folder.claim(run)
    assert claim is not None
    claim.close()


def test_points_of_the_grid() -> None:
    preset = named_preset("grpo")
    assert grid(preset) == ("published", "lr/3", "lr*3", "knob", "knob lr/3", "knob lr*3")
    assert change_of(preset, "published") == {}
    assert change_of(preset, "lr*3")["rates"] == {name: 3 * rate for name, rate in preset.rates.items()}
    assert change_of(preset, "knob") == dict(preset.knob)
    both = change_of(preset, "knob lr/3")
    assert both["rates"]["policy"] == pytest.approx(preset.rates["policy"] / 3)
    assert {k: v for k, v in both.items() if k != "rates"} == dict(preset.knob)


def test_shards_share_the_methods_out() -> None:
    every = [m.name for m in methods()]
    assert every[:2] == ["counterpoint", "grpo"]
    assert "clone" not in every
    parts = [[m.name for m in planned_race(shard=(i, 3)).methods] for i in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(every)
    assert len(planned_race().worlds) == 1
    for wrong, kind in (({"shard": (4, 3)}, InputError), ({"plan": "smal"}, NotFound), ({"only": ["grop"]}, NotFound),
                        ({"only": ["clone"]}, InputError), ({"seeds": 100}, InputError), ({"suite": "cor"}, NotFound)):  # fmt: skip
        with pytest.raises(kind):
            planned_race(**wrong)  # type: ignore[arg-type]


def test_a_race_as_one_file(tmp_path: Path) -> None:
    head, rows = {"suite": "core", "plan": {"name": "screening"}}, [{"method": "a"}, {"method": "b"}]
    write_rows(tmp_path / "rows.jsonl", head, rows)
    assert read_rows(tmp_path / "rows.jsonl") == (head, rows)
    (tmp_path / "bad.jsonl").write_text(json.dumps(rows[0]))
    with pytest.raises(InputError, match="does not begin"):
        read_rows(tmp_path / "bad.jsonl")
    with pytest.raises(NotFound):
        read_rows(tmp_path / "none.jsonl")
