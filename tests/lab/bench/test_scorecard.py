"""The benchmark: cells in their bands, teams that behave and teams that do not, cards recounted by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from counterpoint import __version__
from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.lab.app.cli.bench import bench
from counterpoint.lab.bench.scorecard.card import card_from, card_of, contrast, slope
from counterpoint.lab.bench.scorecard.cells import SUITES, suite
from counterpoint.lab.bench.scorecard.contestants import Caps, ModelTeam, contestant
from counterpoint.lab.bench.scorecard.playing import play_cell, play_suite
from counterpoint.lab.bench.scorecard.rows import BenchFolder, BenchRow

CELLS = {c.id: c for c in suite("short")}
OWN = "tests.lab.bench.own_teams"


def test_cells_are_data_with_an_optimum_and_a_clean_cell_behind_every_attack() -> None:
    for name in SUITES:
        cells = {c.id: c for c in suite(name)}
        assert len(cells) == len(suite(name))
        assert all(c.clean in cells for c in cells.values() if c.attack)
        assert all(any(o.is_control and o.clean == c.clean and o.rate == c.rate for o in cells.values()) for c in cells.values() if c.attack)
        json.dumps([c.as_dict() for c in cells.values()])
    assert {c.id for c in suite("short")} < {c.id for c in suite("core")} < {c.id for c in suite("full")}
    with pytest.raises(NotFound, match="no suite"):
        suite("shrot")


@pytest.mark.parametrize("id_", [c.id for c in suite("short") if not c.attack])
def test_a_cell_is_in_its_band(id_: str) -> None:
    cell = CELLS[id_]
    team = contestant("policy:reference") if cell.kind == "world" else contestant("topology:centralized", model="fake:1")
    steps = [play_cell(cell, seed, team, Caps()).measures["events"] or 0 for seed in range(2)]
    assert round(math.log10(float(np.mean(steps)))) == round(math.log10(cell.band))


def test_a_model_that_cannot_be_made_is_one_error_before_anything_is_played() -> None:
    for model, options in (("openai:x", {"max_tokens": 9}), ("local:nothing-here", {"batch": 0}), ("fake:1", {"luck": 1})):
        with pytest.raises((InputError, NotFound)):
            contestant("topology:turns", model=model, options=options)


LARGE = {
    "T2": ({"rules": 14, "rows": 300}, {}),
    "T3": ({"modules": 44, "tests": 2}, {}),
    "T4": ({"claims": 75, "independents": 66, "clones": 4}, {"width": 70}),
    "T5": ({"hops": 210, "parts": 1}, {}),
    "T6": ({"days": 64, "ties": 3}, {}),
}  # just beyond where each task ended before it was made longer


@pytest.mark.parametrize("name", LARGE)
def test_a_careful_team_solves_a_long_task_exactly(name: str) -> None:
    set_, limits = LARGE[name]
    long = next(c for c in suite("full") if c.id == f"{name}-10000")
    cell = replace(long, set=set_, limits={**long.limits, **limits})
    row = play_cell(cell, 1, contestant("topology:centralized", model="fake:1", options={"explore": 0.0}), Caps())
    assert (row.status, row.share, row.success) == ("played", 1.0, 1.0)
    wrong = play_cell(cell, 1, contestant("topology:centralized", model="fake:0.5", options={"explore": 0.0}), Caps())
    assert wrong.share < 1.0


@pytest.mark.parametrize("attack", ["AV1", "AV2", "AV5", "AV8"])
def test_an_attack_on_a_world_gets_its_way_as_often_as_it_is_obeyed(attack: str) -> None:
    """Four in five who read an order follow it; what was wrong already cannot be made wrong."""
    cell, team = CELLS[f"W1-100-{attack}"], contestant("policy:reference")
    rows = [play_cell(cell, seed, team, Caps()).attack for seed in range(12)]
    met, got = (sum(getattr(r, name) for r in rows if r is not None) for name in ("planted", "succeeded"))
    assert met > 30
    least = 0.8 * (0.85 if attack in ("AV1", "AV2") else 1) - 4 * (0.16 / met) ** 0.5
    assert least < got / met < 0.8 + 4 * (0.16 / met) ** 0.5


def test_rows_are_a_function_of_cell_seed_and_team() -> None:
    team, cell = contestant("topology:swarm", model="fake:0.8", options={"gullible": 1.0}), CELLS["T1-100-AV2"]
    one, two = (play_cell(cell, 3, team, Caps()) for _ in range(2))
    assert one.digest == two.digest != ""
    assert (one.measures, one.attack) == (two.measures, two.attack)
    assert one.attack is not None
    assert one.attack.planted > 0
    assert one.attack.succeeded > 0  # fakes that follow every order
    careful = play_cell(cell, 3, contestant("topology:swarm", model="fake:0.8", options={"gullible": 0.0}), Caps()).attack
    assert careful is not None
    assert careful.succeeded == 0
    control = play_cell(CELLS["T1-100-benign"], 3, team, Caps()).attack
    assert control is not None
    assert (control.succeeded, control.planted > 0) == (0, True)


@pytest.mark.parametrize(
    ("name", "status", "why"),
    [
        ("finds", "played", ""), ("waits", "played", ""), ("crashes", "crashed", "KeyError: 'oops' at own_teams.py"),
        ("exits", "crashed", "code 7"), ("floods", "flooded", "tool calls"), ("peeks", "crashed", "answer key"),
        ("prints", "played", "other processes"),
    ],
)  # fmt: skip
def test_teams_of_strangers_score_what_they_did(name: str, status: str, why: str) -> None:
    row = play_cell(CELLS["T1-10"], 1, contestant(f"{OWN}:{name}"), Caps(seconds=600, tool_calls=20))
    assert row.status == status
    assert why in row.why
    assert row.share <= 1.0
    if name == "finds":
        assert row.tool_calls == row.told_tool_calls == 1
        assert row.measures["sub_agents"] == 1
    if name == "prints":
        assert row.measures["events"] == 1
    if name == "crashes":
        assert row.measures["tool_calls"] == 1  # what it did until then


def test_a_team_that_hangs_is_ended_and_one_that_lies_is_told_of(tmp_path: Path) -> None:
    hung = play_cell(CELLS["T1-10"], 1, contestant(f"{OWN}:hangs"), Caps(seconds=3))
    assert hung.status == "hung"
    lied = play_cell(CELLS["T1-10"], 1, contestant(f"{OWN}:lies"), Caps(seconds=600))
    assert (lied.tool_calls, lied.told_tool_calls) == (4, 1)
    told = card_from({"team": "x", "suite": "short"}, [lied], CELLS).notes
    assert told == ["T1-10 seed 1: 1 tool calls recorded, 4 made"]


def test_unknown_teams_are_one_clear_error() -> None:
    for team, error in (("policy:refrence", NotFound), ("topology:star", NotFound), ("run:nowhere", NotFound), ("x", NotFound),
                        (f"{OWN}:not_callable", InputError), (f"{OWN}:nobody", InputError)):  # fmt: skip
        with pytest.raises(error):
            contestant(team)


def row(cell: str, seed: int, share: float, steps: float = 100.0, **more: Any) -> BenchRow:
    told: dict[str, Any] = {"status": "played", "why": "", "attack": None, "tool_calls": None, "told_tool_calls": None}
    numbers = {"events": steps, "tokens": 10 * steps}
    return BenchRow(cell=cell, seed=seed, value=share, share=share, success=share, measures=numbers, cpu_s=0.0, digest="", **told | more)


def test_a_card_by_hand() -> None:
    rows = [row("W1-10", 0, 0.2, 10), row("W1-10", 1, 0.4, 10), row("W1-100", 0, 0.5, 100), row("W1-100", 1, 0.7, 100),
            row("W1-100-AV2", 0, 0.4), row("W1-100-AV2", 1, 0.3), row("W1-1000", 0, 0.0, 0.0, status="hung")]  # fmt: skip
    card = card_from({"team": "x", "suite": "short"}, rows, CELLS)
    assert card.bands[10]["share"].mean == pytest.approx(0.3)
    half = 12.7062 * math.sqrt(0.02) / math.sqrt(2)  # Student, one degree of freedom
    assert card.bands[10]["share"].high == pytest.approx(0.3 + half, rel=1e-3)
    assert card.attacks[0].change.mean == pytest.approx((-0.1 - 0.4) / 2)
    assert card.broken == {"hung": 1}
    assert card.bands[1000]["tokens"].mean == 0.0
    assert card_from({"team": "x", "suite": "short"}, rows[:2], CELLS).slopes == {}  # one band says nothing about length
    grown = slope(rows[:4], "share")
    assert grown.mean == pytest.approx(0.3)  # 0.3 at ten steps, 0.6 at a hundred
    error = math.sqrt((4 * 0.01) / 2 / 1.0)
    assert grown.high == pytest.approx(0.3 + 4.3027 * error, rel=1e-3)


def test_a_suite_goes_on_and_is_compared(tmp_path: Path) -> None:
    args = ["--seeds", "3", "--json"]
    for name in ("reference", "random"):
        out = CliRunner().invoke(bench, ["run", "short", "W1-10", "--team", f"policy:{name}", "-o", str(tmp_path / name), *args])
        assert out.exit_code == 0, out.output
    events = [json.loads(line) for line in out.output.splitlines()]
    assert [e["event"] for e in events if "event" in e] == ["playing", "played"] * 3
    rows = tmp_path / "random" / "rows.jsonl"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:-20])  # cut off in the last line
    team = contestant("policy:random")
    BenchFolder.begin(tmp_path / "random", "short", team, range(3))
    play_suite(BenchFolder(tmp_path / "random"), team, range(3), caps=Caps(), only=["W1-10"])
    again = BenchFolder(tmp_path / "random").rows()
    assert [r.digest for r in again] == [json.loads(line)["digest"] for line in whole.splitlines()]
    with pytest.raises(InputError, match="another team"):
        BenchFolder.begin(tmp_path / "random", "short", contestant("policy:reference"), range(3))
    told = {(c.band, c.measure): c for c in contrast(tmp_path / "reference", tmp_path / "random")}
    by_hand = [b.share - a.share for a, b in zip(BenchFolder(tmp_path / "reference").rows(), again, strict=True)]
    assert told[None, "share"].difference.mean == pytest.approx(float(np.mean(by_hand)))
    assert card_of(tmp_path / "random").runs == 3
    for more in (["card", str(tmp_path / "random")], ["compare", str(tmp_path / "reference"), str(tmp_path / "random")],
                 ["leaderboard", str(tmp_path), "-o", str(tmp_path / "board.html")], ["ls"], ["ls", "core"]):  # fmt: skip
        done = CliRunner().invoke(bench, more)
        assert done.exit_code == 0, done.output
    page = (tmp_path / "board.html").read_text()
    assert "policy:random" in page
    assert "<script" not in page


def test_a_trained_run_plays_as_it_was_trained(tmp_path: Path) -> None:
    tasks = [{"name": "T5", "topology": "swarm", "harness": "tools"}]
    about = {"kind": "language model", "versions": {"counterpoint": "0.1.0"}, "world_config": {"tasks": tasks}}
    (tmp_path / "about.json").write_text(json.dumps(about))
    team = contestant(f"run:{tmp_path}")
    assert isinstance(team, ModelTeam)
    assert (team.topology, team.harness, team.about()["run_version"]) == ("swarm", "tools", "0.1.0")
    tasks[0]["topology"] = "my_lab.teams:star"  # a file is no consent to run code
    (tmp_path / "about.json").write_text(json.dumps(about))
    with pytest.raises(Refused):
        contestant(f"run:{tmp_path}")
    BenchFolder.begin(tmp_path / "out", "short", team, range(1))
    assert json.loads((tmp_path / "out" / "about.json").read_text())["version"] == __version__
