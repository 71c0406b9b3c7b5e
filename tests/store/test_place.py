"""Which store is meant where none is named: the project's, else the user's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import counterpoint as cpt
from counterpoint.app.cli import main
from counterpoint.store import Store
from counterpoint.store.place import store_path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, and a project in it, which is the working folder."""
    (tmp_path / "project" / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "src")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("COUNTERPOINT_STORE", raising=False)
    return tmp_path


def test_without_a_project_it_is_the_users_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = home / ".local" / "share" / "counterpoint"
    assert store_path() == store_path("") == own
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # which the specification tells us to leave aside
    assert store_path() == own
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    assert store_path() == home / "data" / "counterpoint"
    assert not (home / "data").exists()


def test_the_nearest_traces_that_is_a_store_is_the_projects(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "project" / "src" / "traces").mkdir()  # a folder of that name is no store
    (home / "project" / "src" / "traces" / "notes.txt").write_text("mine")
    Store(home / "project" / "traces").close()
    Store(home / "traces").close()
    assert store_path() == home / "project" / "traces"
    monkeypatch.chdir(home / "project" / "src" / "deep")
    assert store_path() == home / "project" / "traces"
    monkeypatch.chdir(home / "project")
    assert store_path() == Path("traces")
    (home / "project" / "traces" / "counterpoint.json").unlink()
    assert store_path() == Path("traces"), "damaged, and still the project's"
    monkeypatch.chdir(home)
    assert store_path() == Path("traces")


def test_the_variable_and_the_path_win(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(home / "project" / "src" / "traces").close()
    assert store_path() == Path("traces")
    monkeypatch.setenv("COUNTERPOINT_STORE", "other")
    assert store_path() == Path("other")
    assert store_path("given") == Path("given")


def test_a_working_folder_or_a_home_that_is_gone_is_no_crash(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert store_path() == home / ".local" / "share" / "counterpoint"

    def lost() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", lost)
    assert store_path() == Path("traces")


def test_commands_and_recordings_mean_the_same_store(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def code(*words: str) -> object:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        return ended.value.code

    assert code("ls") == 3
    said = capsys.readouterr().err
    assert "counterpoint import" in said
    assert "demo" not in said
    with cpt.record(task="look") as recording:

        @recording.agent
        def reader() -> str:
            return "seen"

        reader()
    own = home / ".local" / "share" / "counterpoint"
    assert recording.trace is not None
    assert (own / "counterpoint.json").is_file()
    assert code("ls", "--ids") == 0
    assert recording.trace_id in capsys.readouterr().out
    assert list((home / "project" / "src").iterdir()) == [home / "project" / "src" / "deep"]


def test_tests_never_touch_the_real_home(tmp_path: Path) -> None:
    """Not even where a test starts a process of its own in an empty folder."""
    said = subprocess.run(
        [sys.executable, "-c", "from counterpoint.store.place import store_path; print(store_path().absolute())"],
        cwd=tmp_path, env={k: v for k, v in os.environ.items() if k != "COUNTERPOINT_STORE"}, capture_output=True, text=True,
    )  # fmt: skip
    assert not Path(said.stdout.strip()).is_relative_to(Path.home() / ".local")
    assert Path(said.stdout.strip()).is_relative_to(os.environ["XDG_DATA_HOME"])
