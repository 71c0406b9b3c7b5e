"""Races: the commands, the page and the papers show the same lines of the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from app.viewer.served import viewing
from counterpoint.app.viewer.collection import Collection
from counterpoint.lab.bench.race.plan import planned_race
from counterpoint.lab.bench.race.rows import RaceFolder
from lab.bench.race_made import row


@pytest.fixture
def ends(ends_of: Any) -> Any:
    """Run the command in an empty folder: exit code, stdout, stderr."""
    return ends_of("compare")


def filled(folder: Path) -> Path:
    found = RaceFolder.begin(folder, planned_race().head())
    for method, base in (("grpo", 4.0), ("counterpoint", 6.0), ("kimi_parl", 5.0)):
        for seed in range(3):
            (found.path / "rows" / f"{method}-{seed}.json").write_text(json.dumps(row(method, seed, base + seed)))
    return found.path


def test_the_page_has_the_lines_that_the_command_prints(tmp_path: Path, ends: Any) -> None:
    folder = filled(tmp_path / "runs" / "methods")
    told = json.loads(ends("standings", str(folder), "--json")[1])["worlds"][0]
    with viewing(Collection(folders=[tmp_path / "runs"]), tmp_path) as viewer:
        listed = next(one for one in viewer.ask("/api/races").json if one["id"].endswith("methods"))
        assert (listed["rows"], listed["methods"], listed["worlds"]) == (9, 3, ["w"])
        world = viewer.ask(f"/api/race?id={quote(listed['id'], safe='')}").json["worlds"][0]
        assert viewer.ask("/api/race?id=/etc").status == 404
    for line, standing in zip(world["lines"], told["standings"], strict=True):
        assert [line["method"], line["rank"], line["mean"]] == [standing["method"], standing["rank"], standing["share"][0]]
        assert {d["baseline"]: d["mean"] for d in line["differences"]} == {b: a["mean"] for b, a in standing["against"].items()}
    assert [line["method"] for line in world["lines"]] == ["counterpoint", "kimi_parl", "grpo"]
    parl = world["lines"][1]
    assert (parl["families"], parl["unit"], parl["trains"]) == (["R1", "R7"], "orchestrator", ["O1", "O2"])
    assert parl["guessed"]
    assert world["is_screening"]
    assert {one["name"] for one in world["curves"]} == {f"share of the bound/{line['method']}" for line in world["lines"]}


def test_a_folder_called_as_ours_is_not_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    filled(tmp_path / "released")
    with viewing(Collection(folders=[tmp_path / "released"]), tmp_path) as viewer:
        listed = {one["id"]: one["is_released"] for one in viewer.ask("/api/races").json}
        assert listed == {"./released": False, "released": True}
        assert len(viewer.ask(f"/api/race?id={quote('./released', safe='')}").json["worlds"]) == 1


def test_a_race_as_a_page_and_as_one_file(tmp_path: Path, ends: Any) -> None:
    folder = filled(tmp_path / "race")
    for file in ("page.md", "rows.jsonl"):
        assert ends("standings", str(folder), "-o", file)[0] == 0
    assert ends("standings", "rows.jsonl", "--json")[1] == ends("standings", str(folder), "--json")[1]
    page = Path("page.md").read_text()
    assert "|1 [1, 1]|counterpoint|published|3|70.0 [45.2, 94.8]|" in page
    assert "kimi_parl ?" in page
    assert len(Path("rows.jsonl").read_text().splitlines()) == 10


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["methods", "--shard", "3"], 2, "as in 1/4"),
        (["methods", "--world", "W9"], 3, "suite core has no world 'W9'"),
        (["methods", "--plan", "smal"], 3, "did you mean 'small'?"),
        (["methods", "--runner", "rya"], 2, "did you mean 'ray'?"),
        (["methods", "grop"], 3, "grpo"),
        (["standings"], 3, "there are no rows of a race here"),
        (["standings", "released:small"], 3, "screening"),
        (["standings", "released", "-o", "page.html"], 2, "FILE.md or FILE.jsonl"),
    ],
)
def test_what_does_not_go_together_is_said(ends: Any, words: list[str], code: int, told: str) -> None:
    found = ends(*words)
    assert found[0] == code
    assert told in found[2]


def test_a_dry_run_counts_runs_and_calls(ends: Any) -> None:
    found = json.loads(ends("methods", "grpo", "counterpoint", "--plan", "small", "--dry-run", "--json")[1])
    assert found["methods"] == ["counterpoint", "grpo"]
    assert [(one["phase"], one["runs"], one["calls"]) for one in found["would_run"]] == [
        ("tune", 2 * 6 * 2, 2 * 6 * 2 * 50_000), ("final", 2 * 12 * 2, 2 * 12 * 2 * 200_000),
    ]  # fmt: skip


def test_a_paper_leads_to_its_preset(ends_of: Any) -> None:
    code, printed, _ = ends_of("papers")("show", "dr-mas", "--json")
    assert code == 0
    assert [one["preset"] for one in json.loads(printed)["presets"]] == ["dr_mas"]
