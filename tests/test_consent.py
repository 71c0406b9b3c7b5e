"""Code that a file names runs only with consent: a trap module at every entrance, which leaves a mark where it is imported."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from counterpoint import Refused, Store, Trace, registry
from counterpoint.app.api.credit import credit_of
from counterpoint.app.cli import main
from counterpoint.app.forks import can_fork, replay_for, replay_of
from counterpoint.app.load_save import save
from counterpoint.app.viewer.credit_tab import credit as page_credit
from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.lab.team.session import Spec, resume_team
from counterpoint.lab.train.evaluate import policy_of
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.train.run import train_run
from counterpoint.lab.worlds.world import world
from lab.train.quick import CONFIG
from team_help import record

TRAP = "strangers:thing"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the trap leaves its mark."""
    mark = tmp_path / "touched"
    (tmp_path / "strangers.py").write_text(f"open({str(mark)!r}, 'w').close()\nthing = None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mark
    sys.modules.pop("strangers", None)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return record(tmp_path_factory.mktemp("live"), trace_id="star")


@pytest.fixture(scope="module")
def simulated() -> Trace:
    trace: Trace = world("W1", vote_items=4, max_agents=4, max_rounds=6).run("reference", [0], log=True).trace(0)
    return trace


def _with(trace: Trace, **meta: Any) -> Trace:
    return msgspec.structs.replace(trace, meta=trace.meta | meta)


def _team(trace: Trace, field: str) -> Trace:
    named: Any = {TRAP: {}} if field == "tools" else TRAP
    return _with(trace, team=trace.meta["team"] | {field: named})


def _exit(*args: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in args])
    assert isinstance(ended.value.code, int)
    return ended.value.code


# -- traces ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["task", "topology", "tools"])
def test_a_fork_and_credit_of_a_trace_that_names_code(
    field: str, live: Trace, mark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = _team(live, field)
    file = save(trace, tmp_path / "trace.jsonl")
    at = trace.events[-1].id
    for args in (("fork", file, "--at", at, "--do", "delete"), ("fork", file, "--at", at, "--do", "delete", "--model", "fake"),
                 ("credit", file, "--mechanism", "message_delete"), ("credit", file, "--mechanism", "message_delete", "--model", "fake"),
                 ("credit", file, "--mechanism", "message_delete", "--allow", "strangers:other")):  # fmt: skip
        assert _exit(*args) == 5
        assert f"--allow {TRAP}" in capsys.readouterr().err
    for ask in (lambda: replay_of(trace), lambda: replay_for(trace), lambda: credit_of("message_delete", [trace])):
        with pytest.raises(Refused, match=f"--allow {TRAP}"):
            ask()
    assert not can_fork(trace)
    assert not mark.exists()
    assert _exit("fork", file, "--at", at, "--do", "delete", "--allow", TRAP) != 0  # the trap is no task, topology or tool
    assert mark.exists()


def test_a_trace_whose_world_is_code(simulated: Trace, mark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = _with(simulated, world=TRAP)
    file = save(trace, tmp_path / "trace.jsonl")
    at = next(e.id for e in trace.events if e.type == "message")
    assert _exit("fork", file, "--at", at, "--do", "delete") == 5
    assert f"--allow {TRAP}" in capsys.readouterr().err
    assert _exit("credit", file, "--mechanism", "message_delete") == 5
    for ask in (lambda: replay_of(trace), lambda: replay_for(trace)):
        with pytest.raises(Refused, match=f"--allow {TRAP}"):
            ask()
    assert not can_fork(trace)
    assert page_credit(trace, "message_delete").refusal
    with pytest.raises(NotFound):
        page_credit(trace, TRAP)  # the page never allows
    assert not mark.exists()
    with pytest.raises(InputError, match="not a world"):
        replay_of(trace, allow=[TRAP])
    assert mark.exists()


# -- journals --------------------------------------------------------------------------------------------------------------


def _journal(folder: Path, live: Trace, **team: Any) -> None:
    """A run that broke off, as a stranger would have written it."""
    meta = live.meta | {"team": live.meta["team"] | team}
    about: dict[str, Any] = {"task_id": live.task_id, "system": "counterpoint team", "topology": "centralized", "meta": meta}
    with Store(folder) as store, store.record("broken", **about) as run:
        run.event(live.events[0])


@pytest.mark.parametrize("field", ["task", "topology", "tools", "model"])
def test_resuming_a_journal_that_names_code(
    field: str, live: Trace, mark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _journal(tmp_path / "s", live, **{field: {TRAP: {}} if field == "tools" else TRAP})
    assert _exit("play", "--resume", "broken", "--store", tmp_path / "s", "-q") == 5
    assert f"--allow {TRAP}" in capsys.readouterr().err
    assert not mark.exists()
    assert _exit("play", "--resume", "broken", "--store", tmp_path / "s", "-q", "--allow", TRAP) != 0
    assert mark.exists()


def test_resuming_in_python_needs_the_same_consent(live: Trace, mark: Path, tmp_path: Path) -> None:
    _journal(tmp_path / "s", live, topology=TRAP)
    with Store(tmp_path / "s") as store, pytest.raises(Refused, match=f"--allow {TRAP}"):
        asyncio.run(resume_team("broken", store))
    assert not mark.exists()


@pytest.mark.parametrize("tools", [{"python": {"weak": True}}, {"outbox": {"path": "elsewhere"}}])
def test_an_option_that_loosens_a_tool_is_not_taken_from_a_file(tools: dict[str, Any], live: Trace, tmp_path: Path) -> None:
    _journal(tmp_path / "s", live, tools=tools)
    with Store(tmp_path / "s") as store, pytest.raises(Refused, match=f"--allow {next(iter(tools))}"):
        asyncio.run(resume_team("broken", store))


@pytest.mark.parametrize("team", [{"task": 5}, {"tools": ["os:system"]}, {"tools": {"x": 1}}, {"model": None}, {"limits": "x"}])
def test_a_team_of_other_types_is_one_clear_error(team: dict[str, Any], live: Trace) -> None:
    with pytest.raises(InputError, match="team cannot be read"):
        Spec.of(live.meta["team"] | team)


# -- run.toml --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train_run(folder, CONFIG | {"updates": 1, "keep_traces": 0})
    return folder


@pytest.mark.parametrize("field", ["preset", "world"])
def test_training_from_a_file_that_names_code(
    field: str, trained: Path, mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"preset": "grpo", "world": "W1"} | {field: TRAP}
    (tmp_path / "their.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in names.items()))
    assert _exit("train", "net", "their.toml", "--dry-run") == 5
    assert f"--allow {TRAP}" in capsys.readouterr().err
    assert _exit("train", "net", "their.toml", "--cap", "updates=1", "--allow", "grpo") == 5
    assert not mark.exists()
    assert _exit("train", "net", "their.toml", "--cap", "updates=1", "--allow", TRAP) == 2  # it is nothing of the kind
    assert mark.exists()


def test_a_name_that_was_typed_is_consent(mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their.toml").write_text(f'preset = "{TRAP}"\nworld = "W1"\n')
    assert _exit("train", "net", "their.toml", "--preset", "grpo", "--dry-run") == 0  # the file's is not used
    assert not mark.exists()
    assert _exit("train", "net", "their.toml", "--preset", TRAP, "--cap", "updates=1") == 2
    assert mark.exists()


@pytest.mark.parametrize("field", ["preset", "world"])
def test_resuming_a_run_that_names_code(
    field: str, trained: Path, mark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(trained, tmp_path / "theirs"))
    config = RunFolder.open(folder).config()
    text = (folder / "run.toml").read_text()
    (folder / "run.toml").write_text(text.replace(json.dumps(config[field]), json.dumps(TRAP)).replace("updates = 1", "updates = 2"))
    with RunFolder.open(folder, write=True) as run:
        run.set_status("interrupted")
    assert _exit("train", "resume", folder, *(("--allow", CONFIG["preset"]) if field == "world" else ())) == 5
    assert f"--allow {TRAP}" in capsys.readouterr().err
    with pytest.raises(Refused, match=f"--allow {TRAP}"):
        policy_of(RunFolder.open(folder), allow=[CONFIG["preset"]])
    assert not mark.exists()
    for command in (("compare", "runs", f"a={folder}", f"b={folder}", "--ignore-mismatch"), ("compare", "plot", folder)):
        _exit(*command)
    assert not mark.exists()
    _exit("train", "resume", folder, "--allow", TRAP, "--allow", CONFIG["preset"])
    assert mark.exists()


# -- the function ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../sandbox/launch", "/tmp/x", "x\0y", "", "no such", "..", "python/../python"])
def test_a_path_is_no_name(name: str) -> None:
    with pytest.raises(NotFound):
        registry.get("tool", name)


@pytest.mark.parametrize("name", [":x", ".a:b", "a b:c", "a..b:c", "../x:y"])
def test_what_is_no_module_is_one_clear_error(name: str) -> None:
    with pytest.raises(CounterpointError, match="is not a module"):
        registry.get("tool", name)
