"""The run folder: made whole, appended to, cut, resumed; after kill -9 and on a full disk everything before is readable."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.errors import CounterpointError, InputError, NotFound, Refused, TryAgain
from counterpoint.lab.train.folder import FORMAT, RunFolder, _about_bytes, check_format, format_of
from counterpoint.lab.train.settings import toml_text

ABOUT = {"preset": "grpo", "world": "s1", "world_version": "1", "world_config": {"horizon": 20}, "seed": 3}
CONFIG = {"preset": "grpo", "seed": 3, "lr": 1e-5, "gpu": None, "world": {"name": "s1", "set": {"horizon": 20}}}


def made(path: Path, updates: int = 0) -> RunFolder:
    run = RunFolder.create(path, CONFIG, ABOUT)
    for k in range(1, updates + 1):
        run.append_metrics(metrics(k))
    return run


def metrics(k: int) -> dict[str, Any]:
    totals = {"episodes": 8 * k, "forks": k, "calls": 100 * k, "decisions": 50 * k}
    return {"update": k, **totals, "reward": 0.1 * k, "entropy": {"spawn": 1.0 / k}, "loss": float("nan") if k == 2 else 1.0}


def evaluation(k: int) -> dict[str, Any]:
    totals = {"episodes": 8 * k, "forks": k, "calls": 100 * k, "decisions": 50 * k}
    return {"update": k, **totals, "first_seed": 10_000, "values": [0.5, 0.25], "agents": [1, 2], "rounds": [3, 4]}


def test_a_new_run_says_what_it_is(tmp_path: Path) -> None:
    with made(tmp_path / "runs" / "a") as run:
        about = json.loads((run.path / "about.json").read_text())
    assert about["format"] == FORMAT == format_of(run.path)
    assert (about["run"], about["status"], about["updates"], about["seed"]) == ("a", "running", 0, 3)
    assert about["versions"]["numpy"] == np.__version__
    assert about["started_at"].endswith("+00:00")
    assert tomllib.loads((run.path / "run.toml").read_text()) == run.config() == {
        "preset": "grpo", "seed": 3, "lr": 1e-5, "world": {"name": "s1", "set": {"horizon": 20}},
    }  # fmt: skip
    assert "# gpu is not set" in (run.path / "run.toml").read_text()
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["a"]  # no draft is left


def test_an_existing_folder_is_refused_unless_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    made(tmp_path / "empty").close()
    with pytest.raises(InputError, match="train resume"):
        made(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="exists already"):
        made(tmp_path / "file")
    with pytest.raises(InputError, match="world_config"):
        RunFolder.create(tmp_path / "b", CONFIG, {k: v for k, v in ABOUT.items() if k != "world_config"})
    assert not (tmp_path / "b").exists()


def _about(said: dict[str, Any]) -> str:
    return _about_bytes(said).decode()


def test_what_is_not_a_run_is_said_clearly(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no run here"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is not a run"):
        RunFolder.open(tmp_path)
    run = made(tmp_path / "a")
    run.close()
    about = run.path / "about.json"
    good = {k: v for k, v in json.loads(about.read_text()).items() if k != "sum"}
    for text, words in [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        (_about({**good, "format": 2}), "is of format 2; this version reads format 1"),
        (_about({k: v for k, v in good.items() if k != "format"}), "of no stated format"),
        (_about({k: v for k, v in good.items() if k != "world"}), "does not say world"),
        (json.dumps(good), "its checksum is"),
    ]:
        about.write_text(text)
        with pytest.raises(InputError, match=words):
            RunFolder.open(run.path)
    with pytest.raises(InputError, match="format 9"):
        check_format(9, "000120.pt")


def test_rows_come_back_and_what_is_not_a_number_is_nan(tmp_path: Path) -> None:
    with made(tmp_path / "a", 3) as run:
        run.append_eval(evaluation(3) | {"values": np.array([0.5, np.nan])})
        run.append_alert({"update": 3, "code": "serial_collapse", "what": "w", "traces": ["t"], "fix": "f"})
    run = RunFolder.open(run.path)
    assert [row["update"] for row in run.metrics()] == [1, 2, 3]
    columns = run.columns("reward", "entropy.spawn", "loss", "nothing")
    np.testing.assert_allclose(columns["reward"], [0.1, 0.2, 0.3])
    np.testing.assert_allclose(columns["entropy.spawn"], [1, 1 / 2, 1 / 3])
    assert np.isnan(columns["loss"]).tolist() == [False, True, False]
    assert np.isnan(columns["nothing"]).all()
    assert run.evals()[0]["values"] == [0.5, None]
    assert run.alerts()[0]["traces"] == ["t"]
    assert b"NaN" not in (run.path / "metrics.jsonl").read_bytes()


def test_rows_that_cannot_be_are_refused(tmp_path: Path) -> None:
    run = made(tmp_path / "a", 3)
    before = (run.path / "metrics.jsonl").read_bytes()
    for row, words in [
        ({**metrics(3)}, "update 3 comes after update 3"),
        ({k: v for k, v in metrics(4).items() if k != "calls"}, "needs calls"),
        ({k: v for k, v in metrics(4).items() if k != "update"}, "needs its update"),
        ({**metrics(4), "x": object()}, "JSON"),
    ]:
        with pytest.raises(InputError, match=words):
            run.append_metrics(row)
    with pytest.raises(InputError, match="1 numbers for 2 tasks"):
        run.append_eval(evaluation(3) | {"agents": [1]})
    with pytest.raises(InputError, match="first_seed"):
        run.append_eval({"update": 3, "values": []})
    with pytest.raises(InputError, match="code"):
        run.append_alert({"update": 3, "what": "w"})
    with pytest.raises(InputError, match="no status"):
        run.set_status("done")
    assert (run.path / "metrics.jsonl").read_bytes() == before


def test_a_reader_does_not_write_and_two_do_not_write_at_once(tmp_path: Path) -> None:
    run = made(tmp_path / "a", 1)
    reader = RunFolder.open(run.path)
    with pytest.raises(Refused, match="reading only"):
        reader.append_metrics(metrics(2))
    with pytest.raises(Refused, match="reading only"):
        reader.set_status("finished")
    with pytest.raises(TryAgain, match="another process"):
        RunFolder.open(run.path, write=True)
    run.close()
    RunFolder.open(run.path, write=True).close()


def test_a_torn_last_line_is_not_there_and_a_broken_middle_is_an_error(tmp_path: Path) -> None:
    run = made(tmp_path / "a", 3)
    run.close()
    file = run.path / "metrics.jsonl"
    whole = file.read_bytes()
    for torn in (b'{"update":4,"ep', b"{", b"\0\0\0"):
        file.write_bytes(whole + torn)
        assert len(RunFolder.open(run.path).metrics()) == 3
        assert file.read_bytes() == whole + torn  # a reader changes nothing
        with RunFolder.open(run.path, write=True) as again:
            assert file.read_bytes() == whole
            again.append_metrics(metrics(4))
            assert len(again.metrics()) == 4
    file.write_bytes(whole.replace(b'{"update":2', b'"update":2'))
    with pytest.raises(InputError, match=r"metrics\.jsonl:2: is damaged"):
        RunFolder.open(run.path).metrics()


def test_resuming_cuts_what_came_after(tmp_path: Path) -> None:
    with made(tmp_path / "a") as run:
        for k in range(1, 7):
            run.append_metrics(metrics(k))
            run.append_eval(evaluation(k))
            run.append_alert({"update": k, "code": "c", "what": "w"})
            run.add_checkpoint(k, b"state %d" % k, is_best=k == 6)
        run.set_status("failed", why="disk")
    with RunFolder.open(run.path, write=True) as run:
        assert run.about["why"] == "disk"
        assert run.spending()["calls"] == 600
        run.resume(4)
        assert [len(run.metrics()), len(run.evals()), len(run.alerts())] == [4, 4, 4]
        assert run.about["status"] == "running"
        assert "why" not in run.about
        assert run.about["updates"] == 4
        assert run.spending() == {"episodes": 32, "forks": 4, "calls": 400, "decisions": 200, "charged": 400}
        latest = run.latest_checkpoint()
        assert latest is not None
        assert run.read_checkpoint(latest) == b"state 4"
        assert run.best_checkpoint() is None
        run.append_metrics(metrics(5))
    assert RunFolder.open(run.path).about["status"] == "running"


def test_the_newest_three_and_the_best_checkpoint_stay(tmp_path: Path) -> None:
    with made(tmp_path / "a") as run:
        assert run.latest_checkpoint() is None
        for k in (20, 40, 60, 80, 100, 1_000_000):
            run.add_checkpoint(k, b"%d" % k, is_best=k == 40)
        names = sorted(p.name for p in (run.path / "checkpoints").iterdir())
        assert names == ["000040.pt", "000080.pt", "000100.pt", "1000000.pt", "best", "last"]
        assert (run.path / "checkpoints" / "last").read_text().startswith("1000000.pt ")
        best, latest = run.best_checkpoint(), run.latest_checkpoint()
        assert best is not None
        assert latest is not None
        assert (best.name, latest.name) == ("000040.pt", "1000000.pt")
        latest.unlink()
        found = run.latest_checkpoint()
        assert found is not None
        assert found.name == "000100.pt"


def test_a_full_disk_leaves_whole_lines_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(tmp_path / "a", 2)
    before = (run.path / "metrics.jsonl").read_bytes()
    write, calls = os.write, 0

    def full(fd: int, data: bytes) -> int:
        """Takes half of the first write, as a full disk does, and nothing of the second."""
        nonlocal calls
        calls += 1
        if calls == 1:
            return write(fd, bytes(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(CounterpointError, match="no space left") as found:
            run.append_metrics(metrics(3))
    assert "train resume" in (found.value.fix or "")
    assert "metrics.jsonl" in (found.value.where or "")
    assert (run.path / "metrics.jsonl").read_bytes() == before
    run.append_metrics(metrics(3))
    assert len(run.metrics()) == 3


FILLS = """
import sys, resource
from counterpoint.lab.train.folder import RunFolder
from counterpoint.errors import CounterpointError
run = RunFolder.open(sys.argv[1], write=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
k = len(run.metrics())
try:
    while True:
        k += 1
        run.append_metrics({"update": k, "episodes": k, "forks": 0, "calls": k, "decisions": k, "reward": 0.5})
except CounterpointError as error:
    print(error.one_line())
try:
    run.add_checkpoint(k - 1, bytes(100_000))
except CounterpointError as error:
    print(error.one_line())
"""


def test_a_real_limit_on_file_size(tmp_path: Path) -> None:
    made(tmp_path / "a").close()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0
    done = subprocess.run([sys.executable, "-c", FILLS, tmp_path / "a"], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 2
    assert all("no space left to write" in line for line in done.stdout.splitlines())
    run = RunFolder.open(tmp_path / "a")
    assert 10 < len(run.metrics()) == run.metrics()[-1]["update"]
    assert (run.path / "metrics.jsonl").read_bytes().endswith(b"}\n")
    assert run.latest_checkpoint() is None
    assert sorted(p.name for p in (run.path / "checkpoints").iterdir()) == []


WRITES = """
import sys
from counterpoint.lab.train.folder import RunFolder
run = RunFolder.open(sys.argv[1], write=True)
k = run.metrics()[-1]["update"] if run.metrics() else 0
print("ready", flush=True)
while True:
    k += 1
    totals = {"episodes": k, "forks": 0, "calls": k, "decisions": k}
    run.append_metrics({"update": k, **totals, "note": "x" * (k % 5000)})
    print(k, flush=True)
    if k % 7 == 0:
        run.change(updates=k, spent=totals)
        run.append_eval({"update": k, **totals, "first_seed": 0, "values": [0.5] * (k % 900)})
        run.add_checkpoint(k, b"%d" % k)
"""


def test_kill_at_any_moment_leaves_a_readable_folder(tmp_path: Path) -> None:
    made(tmp_path / "a").close()
    acknowledged = 0
    for kill in range(6):
        with subprocess.Popen([sys.executable, "-c", WRITES, tmp_path / "a"], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            for _ in range(25 + 13 * kill):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            rest = [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        acknowledged = rest[-1] if rest else acknowledged
        run = RunFolder.open(tmp_path / "a")
        updates = [row["update"] for row in run.metrics()]
        assert updates == list(range(1, len(updates) + 1))
        assert len(updates) in (acknowledged, acknowledged + 1)
        assert run.about["status"] == "running"
        latest = run.latest_checkpoint()
        assert latest is not None
        assert run.read_checkpoint(latest) == b"%d" % int(latest.stem)
        assert run.evals()[-1]["update"] >= int(latest.stem) - 7


_values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), _values, max_size=4))
def test_settings_round_trip_through_toml(settings: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(settings)) == settings


def test_settings_that_toml_has_no_word_for() -> None:
    text = toml_text({"a": np.float64(0.5), "b": (1, 2), "c": None, "t": {"n": float("nan"), "i": float("-inf")}})
    found = tomllib.loads(text)
    assert found["a"] == 0.5
    assert found["b"] == [1, 2]
    assert "c" not in found
    assert np.isnan(found["t"]["n"])
    assert found["t"]["i"] == -np.inf
    for bad, where in [({"x": {"y": object()}}, "x.y"), ({"x": {1: 2}}, "x"), ({"x": "\ud800"}, "x")]:
        with pytest.raises(InputError) as error:
            toml_text(bad)
        assert where in (error.value.where or "")
