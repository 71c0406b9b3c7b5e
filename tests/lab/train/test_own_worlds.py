"""Worlds and tasks of one's own, those that `counterpoint new` writes among them, are learned in, named by their files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from counterpoint.app.cli import main
from counterpoint.store import Store

torch = pytest.importorskip("torch")

BAKERY = "my_lab/bakery.py:bakery"
SMALL = ("--set", "vote_items=3", "--set", "eval_episodes=16", "--set", "eval_every=100")
TEAMWORLD = '''
"""TeamWorld's rules with numbers of one's own."""

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.world import TeamWorld

bakery = TeamWorld(
    "bakery",
    "bakery",
    Config(
        vote_items=12, types=1, difficulty_shares=(0.6, 0.3, 0.1), skill_a=(0.8, 0.7, 0.6), skill_b=(0.95, 0.9, 0.85),
        price=(0.01, 0.05), spawn_price=0.1, round_price=0.02, max_agents=8, max_rounds=60,
    ),
)
'''
OWN_RULES = '''
"""A world of the contract with rules of its own whose environment asks nothing."""


class Shop:
    name = short = "shop"
    version = "1"
    config = None
    silent = {}

    def replace(self, **changes): ...
    def policies(self): ...
    def policy(self, name): ...
    def optimum(self): ...
    def run(self, policy, seeds, log=False): ...
    def env(self): ...


shop = Shop()
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, as a user has it: Python does not look for modules there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if name.partition(".")[0] == "my_lab":
            del sys.modules[name]


def _bakery(folder: Path) -> None:
    (folder / "my_lab").mkdir()
    (folder / "my_lab" / "bakery.py").write_text(TEAMWORLD)


def _run(*args: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(args))
    return int(end.value.code or 0)


def _train(preset: str, folder: str, *more: str) -> int:
    return _run("train", "net", "--preset", preset, "--world", BAKERY, *SMALL, "-o", folder, *more)


def _about(folder: str) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((Path(folder) / "about.json").read_bytes())
    return about


def _levels(folder: str) -> list[float]:
    """The mean held-out return at each evaluation."""
    rows = (json.loads(line) for line in (Path(folder) / "evals.jsonl").read_text().splitlines())
    return [float(row["mean"]) for row in rows if "mean" in row]


def test_a_network_learns_in_a_world_of_ones_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it learned is compared, plotted, measured and resumed as any other run is."""
    _bakery(here)
    assert _train("counterpoint", "ours", "--cap", "updates=24") == 0
    begin, *_, end = _levels("ours")
    assert end > begin + 0.3  # of at most 2.3 points
    assert (_about("ours")["status"], _about("ours")["world"]) == ("finished", BAKERY)
    for seed in (0, 1):
        assert _train("grpo", f"grpo{seed}", "--cap", "updates=5", "--seed", str(seed)) == 0
    capsys.readouterr()
    assert _run("compare", "runs", "grpo=grpo0", "grpo=grpo1", "ours=ours", "--ignore-mismatch") == 0
    assert BAKERY in capsys.readouterr().out
    assert _run("compare", "plot", "ours", "grpo0", "-o", "curves.png") == 0
    assert (here / "curves.png").stat().st_size > 1000
    with Store(here / "ours" / "store", create=False) as store:
        ids = sorted(row.id for row in store.rows())
    assert _run("show", ids[0], "--store", "ours/store") == 0
    assert _run("train", "resume", "grpo0") == 5  # a file gives no consent
    assert f"--allow {BAKERY}" in capsys.readouterr().err
    assert _run("train", "resume", "grpo0", "--allow", BAKERY) == 0


def test_a_world_named_by_its_file_is_played_in_other_processes(here: Path) -> None:
    """And comes out the same there."""
    _bakery(here)
    assert _train("grpo", "one", "--cap", "updates=2") == 0
    assert _train("grpo", "two", "--cap", "updates=2", "--runner", "processes", "--workers", "2") == 0
    assert _levels("one") == _levels("two")


def test_the_world_that_new_writes_is_learned_in(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its run is continued, compared, plotted and shown as any other, in this process or in others."""
    desk, few = ("--world", "my_lab/desk.py:desk"), ("--set", "cases=2", "--set", "eval_episodes=8", "--cap", "updates=2")
    assert _run("new", "world", "desk") == 0
    assert "use it   counterpoint play --world my_lab/desk.py:desk" in capsys.readouterr().out
    assert _run("play", *desk, "--episodes", "4") == 0
    assert _run("train", "net", *desk, *few, "-o", "one") == 0
    assert _about("one")["preset"] == "grpo", "the preset where none is named"
    more = ("--runner", "processes", "--workers", "2", "--set", "staleness=1")
    for folder in ("two", "three"):
        assert _run("train", "net", *desk, *few, *more, "-o", folder) == 0
    assert _levels("two") == _levels("three")
    assert _levels("two")[0] == _levels("one")[0]
    assert _run("train", "net", *desk, *few, "--preset", "ppo", "-o", "four") == 0
    assert _run("compare", "plot", "one", "four", "-o", "curves.png") == 0
    with Store(here / "one" / "store", create=False) as store:
        ids = sorted(row.id for row in store.rows())
    capsys.readouterr()
    assert _run("show", ids[0], "--store", "one/store") == 0
    assert "orchestrator" in capsys.readouterr().out
    assert _run("credit", ids[0], "--store", "one/store", "--mechanism", "uniform") == 0
    assert _run("train", "resume", "one", "--allow", "my_lab/desk.py:desk") == 0
    capsys.readouterr()
    assert _run("bench", "run", "short", "W1-10", "--team", "run:one") == 5
    assert "the run learned in my_lab/desk.py:desk, a world of your own" in capsys.readouterr().err


def test_what_learns_elsewhere_is_refused_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With one error each, that says where to go."""
    assert _run("new", "world", "desk") == 0
    desk = ("--world", "my_lab/desk.py:desk")
    capsys.readouterr()
    for args, code, says in (
        (("train", "net", *desk, "--preset", "counterpoint"), 5, "preset counterpoint cannot learn in desk"),
        (("train", "stop", *desk), 2, "counterpoint train net --world my_lab/desk.py:desk"),
        (("train", "lm", "--model", "tiny", "--task", "my_lab/desk.py:desk"), 2, "counterpoint train net --world my_lab/desk.py:desk"),
        (("play", "--task", "my_lab/desk.py:desk"), 2, "--world my_lab/desk.py:desk"),
        (("train", "net", "--world", "my_lab/desk.py:desk", "--set", "cases=0"), 2, "cases cannot be 0"),
        (("train", "net", "--world", "my_lab/desk.py:desk", "--set", "case=1"), 2, "did you mean 'cases'"),
    ):
        assert _run(*args) == code, args
        error = capsys.readouterr().err
        assert says in error, args
        assert error.count("error: ") == 1
    assert not (here / "runs").exists()


def test_a_world_without_arrays_says_what_it_lacks(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "my_lab").mkdir()
    (here / "my_lab" / "shop.py").write_text(OWN_RULES)
    assert _run("train", "net", "--preset", "grpo", "--world", "my_lab/shop.py:shop", "--cap", "updates=1") == 2
    error = capsys.readouterr().err
    assert "my_lab/shop.py:shop cannot be trained in" in error
    assert "it is no TeamWorld, and its env() has no decision(), which gives a network options as numbers" in error
    assert "counterpoint new world" in error
    (here / "my_lab" / "shop.py").write_text("shop = 3\n")
    assert _run("train", "net", "--world", "my_lab/shop.py:shop") == 2
    assert "is a int, not a world" in capsys.readouterr().err
    assert _run("train", "net", "--world", "my_lab/none.py:shop") == 3
    assert "my_lab/none.py: no such file" in capsys.readouterr().err
    assert not (here / "runs").exists()


def test_a_language_model_learns_in_a_task_of_ones_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers")
    from tests.lm_help import TEXTS
    from tests.tiny_help import make_tiny

    make_tiny(here / "tiny", texts=TEXTS, words=512, spread=0.15, context=2048)
    assert _run("new", "task", "notes") == 0
    small = {"notes": 2, "limits.width": 1, "limits.max_tokens": 8, "limits.turns": 4, "limits.steps": 2, "limits.repairs": 0}
    learn = {"imitate.teams": 4, "imitate.steps": 2, "imitate.batch": 4, "learn.groups": 2, "learn.samples": 2, "eval_episodes": 2}
    pairs = [word for name, value in (small | learn).items() for word in ("--set", f"{name}={value}")]
    named = ("--model", "tiny", "--task", "my_lab/notes.py:notes", "--topology", "harness", "--demos", "fake:1")
    assert _run("train", "lm", *named, *pairs, "--cap", "updates=2", "--workers", "1", "-o", "taught") == 0
    told = capsys.readouterr()
    assert _about("taught")["status"] == "finished"
    rows = [json.loads(line) for line in (here / "taught" / "metrics.jsonl").read_text().splitlines()]
    assert {row["phase"] for row in rows if "phase" in row} == {"imitate", "learn"}
    assert "counterpoint play --task my_lab/notes.py:notes --model local:taught" in told.out + told.err
    assert _run("play", "--task", "my_lab/notes.py:notes", "--model", "local:taught", "--topology", "harness", "--cap", "steps=2") == 0
