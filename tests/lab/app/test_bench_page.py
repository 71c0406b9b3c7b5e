"""The Bench page: the tables are those of the command, for the leaderboard, a card and two side by side; odd folders say why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.viewer.served import Viewer, viewing
from counterpoint.app.viewer.collection import Collection
from counterpoint.lab.app.cli.bench import bench

RESULTS = ("random", "reference")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("bench")
    for name in RESULTS:
        args = ["run", "short", "W1-10", "--team", f"policy:{name}", "--seeds", "2", "-o", str(home / name)]
        assert CliRunner().invoke(bench, args).exit_code == 0
    for name, rows in (("broken", "{}\n"), ("old", (home / "random" / "rows.jsonl").read_text().replace("W1-10", "W0-10"))):
        (home / name).mkdir()
        (home / name / "about.json").write_bytes((home / "random" / "about.json").read_bytes())
        (home / name / "rows.jsonl").write_text(rows)
    return home


@pytest.fixture(scope="module")
def viewer(folder: Path) -> Iterator[Viewer]:
    with viewing(Collection(None, folders=[folder]), folder) as found:
        yield found


def test_the_leaderboard_is_the_commands(viewer: Viewer, folder: Path, tmp_path: Path) -> None:
    found = viewer.ask("/api/bench").json
    assert sorted(row["team"] for row in found["results"]) == ["policy:random", "policy:reference"]
    (table,) = found["tables"]
    for name in RESULTS:
        (tmp_path / name).symlink_to(folder / name)
    said = json.loads(CliRunner().invoke(bench, ["leaderboard", str(tmp_path), "--json"]).output)
    assert [dict(zip(table["head"], row, strict=True)) for row in table["rows"]] == said["teams"]
    assert [name.rpartition("/")[2] for name in table["results"]] == [row[0].removeprefix("policy:") for row in table["rows"]]
    assert viewer.ask("/api/runs").json == []  # results are no runs of training


def test_a_card_and_two_side_by_side(viewer: Viewer) -> None:
    one, two = (next(r["id"] for r in viewer.ask("/api/bench").json["results"] if r["id"].endswith(name)) for name in RESULTS)
    card = viewer.ask(f"/api/bench?a={one}").json
    assert card["title"] == "policy:random on short"
    assert [t["title"] for t in card["tables"]] == ["Card", "By cell"]
    beside = viewer.ask(f"/api/bench?a={one}&b={two}").json
    assert beside["tables"][0]["head"][2:4] == ["policy:random", "policy:reference"]
    assert viewer.ask("/bench").status == viewer.ask("/bench/x..y").status == 200


@pytest.mark.parametrize(
    ("name", "status", "why"), [("nobody", 404, "no results"), ("broken", 400, "not a result row"), ("old", 400, "W0-10")]
)
def test_what_cannot_be_shown_says_why(viewer: Viewer, folder: Path, name: str, status: int, why: str) -> None:
    found = next(iter(viewer.ask("/api/bench").json["results"]))["id"].rpartition("/")[0]
    answer = viewer.ask(f"/api/bench?a={found}/{name}")
    assert answer.status == status
    assert why in answer.json["error"]["what"]
