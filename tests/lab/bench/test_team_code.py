"""Results are those of the code that is there now: a repaired team is played again, an unchanged one is not, and both are said."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from counterpoint.errors import InputError
from counterpoint.lab.app.cli.bench import bench
from counterpoint.lab.bench.scorecard.contestants import Caps, OwnTeam, contestant
from counterpoint.lab.bench.scorecard.playing import play_suite
from counterpoint.lab.bench.scorecard.rows import BenchFolder
from counterpoint.lab.bench.scorecard.team_code import code_of, weights_of

BROKEN = "from parts import answer\n\n\ndef team(job):\n    return answer(job)\n"


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A team's folder goes onto the path: not on to the next test's team."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def _tree(folder: Path) -> Path:
    """A team of three files: the function, a module beside it, and a package that this imports late."""
    (folder / "kit").mkdir(parents=True)
    (folder / "team.py").write_text(BROKEN)
    (folder / "parts.py").write_text("def answer(job):\n    from kit import deep\n    return deep.words()\n")
    (folder / "kit" / "__init__.py").write_text("")
    (folder / "kit" / "deep.py").write_text("def words():\n    raise KeyError('not yet')\n")
    (folder / "other.py").write_text("nobody = 'imports this'\n")
    return folder / "team.py"


def _run(team: Path, out: Path, *more: str) -> Any:
    said = ["run", "short", "T1-10", "--team", f"{team}:team", "--seeds", "1", "-o", str(out), *more]
    done = CliRunner().invoke(bench, said)
    assert done.exit_code == 0, done.output
    return done


def test_a_repaired_team_is_played_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    team, out = _tree(tmp_path / "src"), tmp_path / "out"
    _run(team, out)
    (row,) = BenchFolder(out).rows()
    assert (row.status, "KeyError: 'not yet'" in row.why) == ("crashed", True)
    done = _run(team, out)
    assert "1 row reused, code unchanged since they were played (20" in done.output
    assert "--overwrite" in done.output
    assert len(BenchFolder(out).every_row()) == 1
    broken = (tmp_path / "src" / "kit" / "deep.py").read_text()
    (tmp_path / "src" / "kit" / "deep.py").write_text("def words():\n    return 'nothing'\n")
    done = _run(team, out)
    assert "1 run of other code not counted: played again" in done.output
    assert "reused" not in done.output
    assert [r.status for r in BenchFolder(out).rows()] == ["played"]
    assert "KeyError" not in CliRunner().invoke(bench, ["card", str(out)]).output
    (tmp_path / "src" / "kit" / "deep.py").write_text(broken)  # back to what was: those rows are there
    _run(team, out)
    assert [r.status for r in BenchFolder(out).rows()] == ["crashed"]
    assert len(BenchFolder(out).every_row()) == 2


def test_what_is_there_can_be_played_again(tmp_path: Path) -> None:
    team, out = _tree(tmp_path / "src"), tmp_path / "out"
    _run(team, out)
    first = BenchFolder(out).rows()[0].at
    events = [json.loads(line) for line in _run(team, out, "--overwrite", "--json").output.splitlines() if line.startswith("{")]
    assert [e["event"] for e in events if "event" in e] == ["reused", "playing", "played"]
    assert events[0]["rows"] == 0
    (row,) = BenchFolder(out).rows()
    assert row.at is not None
    assert first is not None
    assert row.at > first
    assert len(BenchFolder(out).every_row()) == 2


def test_rows_that_do_not_say_which_code_played_them_are_not_an_own_teams_results(tmp_path: Path) -> None:
    team, out = _tree(tmp_path / "src"), tmp_path / "out"
    _run(team, out)
    row = json.loads((out / "rows.jsonl").read_text())
    for key in ("code", "at"):
        del row[key]
    (out / "rows.jsonl").write_text(json.dumps(row) + "\n")
    about = json.loads((out / "about.json").read_text())
    del about["code"], about["code_files"]
    (out / "about.json").write_text(json.dumps(about))
    assert [r.status for r in BenchFolder(out).rows()] == ["crashed"]  # an old folder can still be read
    _run(team, out)
    assert len(BenchFolder(out).every_row()) == 2
    assert len(BenchFolder(out).rows()) == 1


def test_a_run_that_hung_is_played_again_under_another_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    team = contestant(f"{_tree(tmp_path / 'src')}:team")
    from counterpoint.lab.bench.scorecard.contestants import Attempt

    monkeypatch.setattr(OwnTeam, "play", lambda self, cell, seed, caps: Attempt(None, "hung" if caps.seconds < 10 else "played"))
    out = tmp_path / "out"
    BenchFolder.begin(out, "short", team, [0])
    for seconds, status, rows in ((1, "hung", 1), (1, "hung", 1), (60, "played", 2), (1, "played", 2)):
        play_suite(BenchFolder(out), team, [0], caps=Caps(seconds=seconds), only=["T1-10"])
        assert [r.status for r in BenchFolder(out).rows()] == [status]
        assert len(BenchFolder(out).every_row()) == rows


def test_code_that_changes_while_it_is_played_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _tree(tmp_path / "src")
    team, out = contestant(f"{file}:team"), tmp_path / "out"
    BenchFolder.begin(out, "short", team, [0])
    was = OwnTeam.play

    def play(self: OwnTeam, *args: Any) -> Any:
        file.write_text(BROKEN + "# saved meanwhile\n")
        return was(self, *args)

    monkeypatch.setattr(OwnTeam, "play", play)
    with pytest.raises(InputError, match="changed while T1-10 was played"):
        play_suite(BenchFolder(out), team, [0], caps=Caps(), only=["T1-10"])
    assert BenchFolder(out).every_row() == []


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the path with every way of importing."""
    pack = tmp_path / "lab_of_ours"
    (pack / "inner").mkdir(parents=True)
    (tmp_path / "space_of_ours").mkdir()
    files = {
        "lab_of_ours/__init__.py": "",
        "lab_of_ours/team.py": (
            "import json, numpy\nfrom . import beside\nfrom .inner import *\nimport space_of_ours.far as far\n"
            "def team(job):\n    import importlib\n    importlib.import_module('lab_of_ours.named')\n    from .late import x\n"
        ),
        "lab_of_ours/beside.py": "from ..lab_of_ours import circle\nfrom lab_of_ours import circle\n",
        "lab_of_ours/circle.py": "from lab_of_ours import beside\n",
        "lab_of_ours/inner/__init__.py": "__all__ = ['starred']\n",
        "lab_of_ours/inner/starred.py": "",
        "lab_of_ours/named.py": "",
        "lab_of_ours/late.py": "x = 1\n",
        "lab_of_ours/unused.py": "",
        "space_of_ours/far.py": "def broken(:\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return tmp_path


USED = ["__init__.py", "beside.py", "circle.py", "inner/__init__.py", "inner/starred.py", "late.py", "named.py", "team.py"]


def test_every_way_of_importing_from_its_own_tree_is_followed(tree: Path) -> None:
    code = code_of("lab_of_ours.team:team")
    names = {"lab_of_ours", "lab_of_ours.beside", "lab_of_ours.circle", "lab_of_ours.inner", "lab_of_ours.inner.starred"}
    assert set(code.files) == names | {"lab_of_ours.late", "lab_of_ours.named", "lab_of_ours.team", "space_of_ours.far"}
    assert not any(name.split(".")[0] in sys.modules for name in ("lab_of_ours", "space_of_ours"))  # nothing was run


@pytest.mark.parametrize("name", [*(f"lab_of_ours/{name}" for name in USED), "space_of_ours/far.py"])
def test_a_change_in_any_of_them_is_other_code(tree: Path, name: str) -> None:
    before = code_of("lab_of_ours.team:team").digest
    (tree / name).write_text((tree / name).read_text() + "\nmore = 1\n")
    assert code_of("lab_of_ours.team:team").digest != before


def test_what_is_not_imported_is_no_part_of_it(tree: Path) -> None:
    before = code_of("lab_of_ours.team:team").digest
    (tree / "lab_of_ours" / "unused.py").write_text("more = 1\n")
    assert code_of("lab_of_ours.team:team").digest == before != ""
    assert code_of("reference").digest == code_of("counterpoint.lab.worlds.world:world").digest == code_of("json:loads").digest == ""


def test_a_folder_that_moved_is_the_same_code(tmp_path: Path) -> None:
    one, two = _tree(tmp_path / "a"), _tree(tmp_path / "b")
    assert code_of(f"{one}:team") == code_of(f"{two}:team")
    assert set(code_of(f"{one}:team").files) == {"team.py", "parts", "kit", "kit.deep"}


def test_a_run_that_was_trained_on_is_other_code(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "000001.pt").write_bytes(b"one")
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    before = weights_of(tmp_path).digest
    (tmp_path / "metrics.jsonl").write_text("{}\n{}\n")
    assert weights_of(tmp_path).digest == before != ""
    (tmp_path / "checkpoints" / "000001.pt").write_bytes(b"two")
    assert weights_of(tmp_path).digest != before
