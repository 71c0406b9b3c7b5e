"""`counterpoint new` writes plug-ins that work and pass their own tests; commands of other packages are found by name."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from counterpoint import registry
from counterpoint.app.cli import main
from counterpoint.app.cli.new import templates
from counterpoint.testing import checks
from counterpoint.trace import encode
from counterpoint.trace.example import rollouts

ROOT = Path(__file__).parents[1]


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(args))
    return int(end.value.code or 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [n for n in sys.modules if n.partition(".")[0] in ("my_lab", "labs")]:
        del sys.modules[name]
    return tmp_path


@pytest.mark.parametrize("kind", sorted({*templates()} - {"panel"}))
def test_what_is_written_passes_its_own_test(kind: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("new", kind, "mine", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["name"] == "my_lab.mine:mine"
    assert sorted(p.name for p in (here / "my_lab").iterdir()) == ["__init__.py", "mine.py", "test_mine.py"]
    written = (here / "my_lab" / "mine.py").read_text() + (here / "my_lab" / "test_mine.py").read_text()
    assert "plugin_name" not in written
    assert "templates" not in written
    test = importlib.import_module("my_lab.test_mine")
    by_hand = [name for name in vars(test) if name.startswith("test_") and name != "test_it_keeps_the_contract"]
    assert len(by_hand) == (2 if kind == "world" else 1)
    assert registry.get(kind, report["name"]) is not None
    test.test_it_keeps_the_contract()
    for name in by_hand:
        getattr(test, name)(*([here] if "tmp_path" in getattr(test, name).__annotations__ else []))


def test_a_world_that_was_written_can_be_trained_in(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert run("new", "world", "desk") == 0
    small = ["--cap", "updates=1", "--set", "eval_episodes=2", "--set", "cases=3", "--set", "change.group=2"]
    assert run("train", "net", "--world", "my_lab.desk:desk", *small, "-o", "learned") == 0
    told = capsys.readouterr()
    assert "finished" in told.out + told.err
    assert json.loads((here / "learned" / "about.json").read_bytes())["status"] == "finished"
    assert run("play", "--world", "my_lab.desk:desk", "--episodes", "2", "--policy", "quick") == 0


def test_one_folder_holds_many_and_none_is_replaced(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("new", "mechanism", "one") == run("new", "reward", "two") == 0
    assert re.search(
        r"test it  pytest my_lab/test_one.py\nuse it   counterpoint credit TRACE --mechanism my_lab/one.py:one",
        capsys.readouterr().out,
    )
    (here / "my_lab" / "one.py").write_text("mine")
    assert run("new", "mechanism", "one") == 2
    assert "my_lab/one.py: exists already" in capsys.readouterr().err
    assert (here / "my_lab" / "one.py").read_text() == "mine"


def test_a_package_in_a_package_has_its_whole_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "labs").mkdir()
    (here / "labs" / "__init__.py").touch()
    assert run("new", "tool", "counts", "-o", "labs/team", "--json") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "labs.team.counts:counts"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("mechanim", "mine"), "did you mean 'mechanism'"),
        (("credit", "mine"), "did you mean 'mechanism'"),
        (("env", "mine"), "did you mean 'world'"),
        (("panel", "mine"), "new panel mine --ours"),
        (("mechanism", "my-mech"), "my_mech"),
        (("mechanism", "Mine"), "mine"),
        (("mechanism", "class"), "my_class"),
        (("mechanism", "3"), "my_mechanism"),
        (("mechanism", "test_it"), "underscores: it"),
        (("mechanism", "mine", "-o", "my-lab"), "-o my_lab"),
        (("mechanism", "mine", "-o", "file/lab"), "file.*cannot be written"),
    ],
)
def test_a_bad_name_or_place_writes_nothing(
    args: tuple[str, ...], says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "file").touch()
    assert run("new", *args) == 2
    assert re.search(says, capsys.readouterr().err)
    assert [p.name for p in here.iterdir()] == ["file"]


def test_our_own_tree_gets_a_file_of_the_plural_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("new", "mechanism", "mine", "--ours") == 3
    (here / "src" / "counterpoint").mkdir(parents=True)
    (here / "src" / "counterpoint" / "registry.py").touch()
    assert run("new", "mechanism", "ledger", "--ours") == 2
    assert run("new", "world", "mine", "--ours") == 0
    assert (here / "src/counterpoint/lab/worlds/mine.py").is_file()
    assert "from counterpoint.lab.worlds.mine import Day, mine" in (here / "tests/lab/worlds/test_mine.py").read_text()
    assert "use it   counterpoint play --world mine" in capsys.readouterr().out


def test_every_kind_has_a_template_and_a_contract() -> None:
    assert set(templates()) == set(checks()) == set(registry.kinds())


# Tests that look at all plug-ins of a kind, or at all modules.
HOUSE = (
    "tests/test_architecture.py", "tests/test_registry.py", "tests/formats/test_sniff.py", "tests/formats/test_sample_listings.py",
    "tests/app/viewer/test_typescript.py",
)  # fmt: skip
_SELECTED = "another_ and not keeps_the_contract or not test_conformance and not test_another"  # each contract once


def test_the_house_stands_with_one_more_plugin_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a copy of the tree: one of each kind with `--ours`, then their own tests, and those of the house that look at all."""
    for name in ("src", "tests", "web/src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules", "*.html"))
    for path in ROOT.iterdir():
        if path.name not in ("src", "tests", "web", ".git", ".venv"):
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    tests = []
    for kind in templates():
        assert run("new", kind, f"another_{kind}", "--ours") == 0
        tests += [str(path.relative_to(tmp_path)) for path in (tmp_path / "tests").rglob(f"test_another_{kind}.py")]
    assert len(tests) == len(templates()) - 1  # all but the panel
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    shapes = [sys.executable, "-m", "counterpoint.app.viewer.typescript"]
    made = subprocess.run(shapes, env=environment, capture_output=True, check=True)
    (tmp_path / "web/src/shapes.gen.ts").write_bytes(made.stdout)
    selected = [*tests, *HOUSE, "tests/test_conformance.py"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *selected, "-k", _SELECTED]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:]


def test_commands_of_other_packages(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("new", "command", "tokens")
    (here / "run.trace.json").write_bytes(encode(rollouts()[0]))
    capsys.readouterr()
    assert run("my_lab.tokens:tokens", "run.trace.json") == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["18", "lead"]
    assert run("tokens", "run.trace.json") == 2  # not installed: unknown
    capsys.readouterr()
    assert run("my_lab.tokens:json", "x") == 2  # a module, no command
    assert "not a click command" in capsys.readouterr().err


def test_a_warning_is_one_line_on_stderr_and_names_its_place_only_in_debugging(tmp_path: Path) -> None:
    (tmp_path / "warns.py").write_text(
        "import click, warnings\n@click.command()\ndef it():\n    warnings.warn('a worker was replaced', RuntimeWarning)\n    click.echo('{}')\n"
    )
    for asked, said in (([], ["warning: a worker was replaced"]), (["--debug"], ["RuntimeWarning: a worker was replaced"])):
        words = [sys.executable, "-m", "counterpoint", *asked, "warns:it"]
        found = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)})
        assert (found.returncode, found.stdout) == (0, "{}\n")
        assert [line for line in said if line in found.stderr] == said
        assert ("warns.py:4" in found.stderr) == bool(asked)
