"""`counterpoint train`: what it prints, how it ends, how it goes on, and one clear line for everything that cannot be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from counterpoint import registry
from counterpoint.app.cli import main
from counterpoint.errors import install
from counterpoint.lab.app.cli.train._table import Json, Lines, Live, printer
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.worlds.teamworld.suites import suite_worlds
from counterpoint.store import Store
from lab.train.quick import TINY
from warm_help import programs

TESTS = Path(__file__).parents[2]
TOML = """
preset = "lab.train.quick:quick"
world = "W1"
updates = 2
eval_every = 2
eval_episodes = 3
keep_traces = 1
[set]
vote_items = 4
max_agents = 4
max_rounds = 6
"""


@pytest.fixture
def ends(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `train net` in an empty folder with a run.toml, or another part of `train`: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(TOML)

    def run(*arguments: str, part: str = "net", allow: bool = True) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            main(["train", part, *arguments, *(("--allow", "lab.train.quick:quick") if allow else ())])
        out = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, out.out, out.err

    return run


# -- what it prints


def test_a_table_and_what_to_run_next(ends: Any, tmp_path: Path) -> None:
    code, out, _ = ends("run.toml", "-o", "mine")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "run mine  preset lab.train.quick:quick  world wide_verify  seed 0"
    assert lines[1].split() == [
        "step", "reward", "R1", "agents", "rounds", "calls/ep", "KL", "held-out", "decisions/s", "traces",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[2:4]] == ["0", "2"]
    assert lines[4].startswith("finished  mine: 2 updates")
    run = RunFolder.open(tmp_path / "mine")
    held = run.evals()[-1]
    assert f"{held['mean']:.2f} ±{held['se']:.2f}" in lines[3]
    assert lines[3].split()[-1] == "2"  # traces
    assert "counterpoint compare plot mine" in out
    assert f"counterpoint show {held['traces'][0]} --store mine/store" in out
    with Store(tmp_path / "mine" / "store", create=False) as store:
        assert held["traces"][0] in store


def test_json_lines(ends: Any) -> None:
    code, out, _ = ends("run.toml", "--json", "--seed", "3")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [r["kind"] for r in rows] == ["start", "eval", "update", "update", "eval", "checkpoint", "end"]
    assert rows[0]["run"] == "runs/run-seed3"
    assert rows[-1]["status"] == "finished"
    assert rows[3]["decisions"] > 0


def test_seeds_make_runs_that_a_second_call_leaves_alone(ends: Any, tmp_path: Path) -> None:
    asked = ("run.toml", "--seeds", "2", "--cap", "updates=1", "-o", "runs/mine")
    code, out, _ = ends(*asked)
    assert code == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["mine-seed0", "mine-seed1"]
    assert "2 runs: counterpoint compare plot mine=runs/mine-seed*" in out
    code, _, err = ends(*asked)
    assert code == 0
    assert err.count("is finished already") == 2
    code, _, err = ends(*asked, "--cap", "calls=5")
    assert (code, "was started with other settings: budget_calls" in err) == (2, True)


def test_options_override_the_file_and_dry_run_writes_nothing(ends: Any, tmp_path: Path) -> None:
    more = ("--set", "vote_items=6", "--set", "eval_every=7", "--workers", "3", "--set", "staleness=1", "--cap", "calls=900")
    code, out, _ = ends("run.toml", "--dry-run", "--json", "--preset", "grpo", *more)
    (planned,) = json.loads(out)["would_train"]
    assert code == 0
    assert planned["folder"] == "runs/run-seed0"
    assert planned["set"] == {**TINY, "vote_items": 6}
    wanted = {"preset": "grpo", "eval_every": 7, "workers": 3, "staleness": 1, "budget_calls": 900, "runner": "processes"}
    assert {k: planned[k] for k in wanted} == wanted
    assert [p.name for p in tmp_path.iterdir()] == ["run.toml"]
    assert "would train runs/counterpoint-mixture-seed0" in ends("--world", "M", "--dry-run")[1]


def test_a_world_of_the_suites_is_its_parameters_and_sorts_of_tasks(ends: Any) -> None:
    (found,) = json.loads(ends("--world", "width", "--dry-run", "--json")[1])["would_train"]
    made = suite_worlds()["width"].settings()
    assert (found["folder"], found["world"], found["mix"]) == ("runs/counterpoint-width-seed0", made["world"], made["mix"])
    assert found["set"] == json.loads(json.dumps(made["set"]))
    code, out, _ = ends("--world", "width", "--set", "round_price=2", "--dry-run")
    assert (code, "would train runs/counterpoint-project_graph-seed0" in out) == (0, True)  # no world of the suites any more
    assert "did you mean 'width'" in ends("--world", "widht")[2]


def test_the_presets_are_listed_with_their_sources(ends: Any) -> None:
    code, out, _ = ends("--json", part="presets", allow=False)
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    presets = [r for r in rows if "preset" in r]
    assert [r["preset"] for r in presets] == registry.ids("preset")
    assert all(r["source"] and r["grade"] in "PRSTM" and r["trains"] and r["unit"] and r["learns"] for r in presets)
    others = {r["no_preset"]: r for r in rows if "no_preset" in r}
    assert {"halo", "hera", "langmarl", "latentmas", "mas_zero", "lamo", "agentspawn"} <= set(others)
    assert not set(others) & set(registry.ids("preset"))
    assert all(r["why"] and r["works_when"] and r["source"] for r in others.values())
    lines = ends(part="presets", allow=False)[1].splitlines()
    assert {"trains", "unit", "regime", "learns", "grade", "source"} <= set(lines[0].split())
    assert any(line.startswith("halo ") for line in lines)


# -- how it goes on


def test_ctrl_c_keeps_a_checkpoint_says_how_to_go_on_and_does(ends: Any, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "WARM_IMPORTS": "torch torch._dynamo"}
    command = [
        programs() / "counterpoint",
        "train",
        "net",
        "run.toml",
        "--cap",
        "updates=500",
        "--set",
        "checkpoint_every=1",
        "-o",
        "mine",
        "--allow",
        "lab.train.quick:quick",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and not (tmp_path / "mine" / "checkpoints" / "last").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 130, err
    assert "resume it with: counterpoint train resume mine --allow lab.train.quick:quick" in err
    assert "Traceback" not in out + err
    done = RunFolder.open(tmp_path / "mine")
    assert done.about["status"] == "interrupted"
    assert f"{done.about['updates']:06d}.pt" == done.latest_checkpoint().name  # type: ignore[union-attr]
    # cut to what is spent, so that the rest is short
    toml = (tmp_path / "mine" / "run.toml").read_text()
    (tmp_path / "mine" / "run.toml").write_text(toml.replace("updates = 500", f"updates = {done.about['updates'] + 1}"))
    code_, out, _ = ends("mine", part="resume")
    assert code_ == 0
    assert f"resumed after update {done.about['updates']}" in out
    assert ends("mine", part="resume")[2].strip() == "mine is finished already"


# -- what cannot be


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "no world to train in"),
        (("--world", "W9"), 3, "no world named 'W9'"),
        (("--world", "s1", "--preset", "grpo"), 2, "s1 is a stopping world, where a stop rule is learned\nfix    counterpoint train stop --world s1"),
        (("--world", "W1", "--preset", "clone"), 2, "clone learns from recorded traces\nfix    counterpoint train log"),
        (("--world", "W1", "--preset", "grop"), 3, "no preset named 'grop'\nfix    did you mean 'grpo'?"),
        (("--world", "W1", "--preset", "no.such:thing"), 3, "no preset named 'no.such:thing'"),
        (("--world", "D", "--preset", "lab.train.quick:needy"), 5, "needs votes, which the world does not have"),
        (("--world", "W1", "--set", "vote_itmes=3"), 2, "setting 'vote_itmes'\nfix    did you mean 'vote_items'?"),
        (("--world", "W1", "--set", "vote_items=many"), 2, "vote_items is a whole number, not 'many'"),
        (("--world", "W1", "--set", "eval_every=0"), 2, "eval_every is 0"),
        (("--world", "W1", "--set", "vote_items"), 2, "not NAME=VALUE"),
        (("--world", "W1", "--set", "max_agents=-1"), 2, "max_agents"),
        (("--world", "W1", "--set", "device=tpu"), 2, "no device 'tpu'"),
        (("none.toml",), 3, "none.toml: no such file"),
        (("bad.toml",), 2, "bad.toml: is not valid TOML"),
        (("keys.toml",), 2, "keys.toml: no setting 'wordl'\nfix    did you mean 'world'?"),
        (("folder",), 2, "folder: is a folder, not a TOML file"),
        (("--world", "W1", "--cap", "calls=0"), 2, "calls is 0"),
        (("--world", "W1", "--cap", "call=3"), 2, "no limit named 'call'\nfix    did you mean 'calls'?"),
        (("--world", "W1", "--runner", "rya"), 2, "no runner named 'rya'\nfix    did you mean 'ray'?"),
        (("--world", "W1", "--runner", "processes:1"), 2, "the runner processes has no address\nfix    --runner ray:1"),
        (("lm.toml",), 2, "this file trains a language model\nfix    counterpoint train lm lm.toml"),
        (("run.toml", "-o", "folder"), 2, "folder: exists already and is not empty"),
        (("run.toml", "--set", "episodes=3", "--dry-run"), 2, "3 episodes do not make groups of 2\nfix    episodes = a multiple of 2"),
    ],
)
def test_one_clear_line(arguments: tuple[str, ...], code: int, words: str, ends: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("preset = \n")
    (tmp_path / "keys.toml").write_text('preset = "grpo"\nwordl = "W1"\n')
    (tmp_path / "lm.toml").write_text('model = "smollm2-135m"\n')
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    got, out, err = ends(*arguments)
    assert (got, out) == (code, "")
    assert err.startswith("error: ")
    assert words in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("run", "code", "words"), [("none", 3, "there is no run here"), ("folder", 2, "is not a run")])
def test_only_a_run_is_resumed(run: str, code: int, words: str, ends: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    got, out, err = ends(run, part="resume")
    assert (got, out, words in err) == (code, "", True)
    assert ends(run, "--seed", "0", part="resume")[0] == 2  # a resumed run keeps its own settings


def test_without_torch_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what it says depends on where a clone lies from here
    code = "import sys; sys.modules['torch'] = None; from counterpoint.app.cli import main; main(['train', 'net', '--world', 'W1'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"error: training needs torch, which is not installed\nfix    {install('train')}\n"


def test_help_and_the_list_of_presets_load_nothing_heavy() -> None:
    for arguments in (["train", "--help"], ["train", "net", "--help"], ["train", "presets"]):
        code = f"import sys; from counterpoint.app.cli import cli; cli.main({arguments}, standalone_mode=False)"
        code += "; print(sorted({'torch', 'numba', 'duckdb'} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


# -- the table itself


def told(to: Json | Lines) -> None:
    """A run of two evaluations with an alert at the second."""
    about = {"run": "runs/x", "update": 0, "preset": "p", "world": "w", "seed": 0, "spent": {"decisions": 0}}
    to("start", about)
    to("eval", {"update": 0, "mean": 1.0, "se": 0.1, "stored": 2, "decisions": 0})
    for u in (1, 2):
        row = {"update": u, "reward": 2.0 * u, "reward_se": 0.3, "R1": 3.0, "agents": 2.0, "rounds": 4.0, "kl": 0.01}
        to("update", {**row, "calls_per_episode": 5.0, "seconds": 0.5, "decisions": 1000 * u, "progress": u / 2})
    to("eval", {"update": 2, "mean": 1.5, "se": 0.1, "stored": 4, "decisions": 2000})
    to("alert", {"update": 2, "code": "serial_collapse", "what": "spawning collapsed 3.4 -> 1.1", "traces": ["t1", "t2"]})
    to("checkpoint", {"update": 2})
    to.close()


def test_a_line_holds_means_and_alerts_mark_their_column(capsys: pytest.CaptureFixture[str]) -> None:
    told(Lines())
    lines = capsys.readouterr().out.splitlines()
    # reward: mean of 2 and 4; se: sqrt(2 * 0.3^2) / 2 = 0.21
    assert lines[3].split() == ["2", "3.00", "±0.21", "3.00", "2.0", "!", "4.0", "5.0", "0.0100", "1.50", "±0.10", "2,000", "4"]
    look = "look at 2 traces -> counterpoint show t1 --store runs/x/store"
    assert lines[4] == f"! step 2  serial_collapse  spawning collapsed 3.4 -> 1.1: {look}"


def test_json_lines_say_what_they_are_whatever_kind_of_run_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Json()("start", {"kind": "language model", "seed": 0})
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["run_kind"]) == ("start", "language model")


def test_watching_draws_the_same_rows(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert type(printer(as_json=False, watch=True)) is Lines  # nobody looks at a live table in a pipe
    told(Live())
    out = capsys.readouterr().out
    assert "held-out" in out
    assert "serial_collapse" in out
    assert "3.00 ±0.21" in out


def test_a_reader_that_goes_away_stops_the_run_as_ctrl_c_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    with pytest.raises(KeyboardInterrupt):
        Json()("update", {"update": 1})


def test_an_evaluation_says_that_it_is_one_and_how_far_it_is() -> None:
    from contextlib import contextmanager

    from counterpoint.display import watched_by
    from counterpoint.lab.train.evaluate import held_out
    from counterpoint.lab.train.settings import settings_of
    from counterpoint.lab.train.training import Training

    told: list[tuple[str, float | None, float]] = []

    @contextmanager
    def show(what: str, total: float | None) -> Iterator[Any]:
        class Work:
            def at(self, done: float, total_: float | None = None, about: str = "") -> None:
                told.append((what, total, done))

        yield Work()

    training = Training(settings_of({"preset": "counterpoint", "world": "W1", "set": {"vote_items": 4}}))
    with watched_by(show):
        found = held_out(training.player(), training.worlds, 6)
    assert {(what, total) for what, total, _ in told} == {("evaluating on held-out episodes", 6)}
    done = [count for _, _, count in told]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 6)
    unseen = held_out(training.player(), training.worlds, 6)
    assert unseen.values.tolist() == found.values.tolist()  # nobody's watching changes a number
