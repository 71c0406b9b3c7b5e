"""`--log`: real trackers in their offline modes are told what the run's files say; none of them can end a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.lm_help import TEXTS
from tests.tiny_help import make_tiny

from counterpoint.errors import InputError, Refused
from counterpoint.lab.app.api.train import train_one
from counterpoint.lab.app.tracking import TRACKERS, numbers_of, tracked
from counterpoint.lab.train.folder import RunFolder
from ends_help import Ends
from lab.train.lm.test_run import SHORT, config
from lab.train.quick import CONFIG


def trained(folder: Path, log: str, **more: Any) -> RunFolder:
    return train_one(folder, {**CONFIG, **more}, resume=False, allow=(), progress=None, log=(log,))


def expected(run: RunFolder) -> dict[str, list[tuple[int, float]]]:
    """What a tracker must know: every finite number of the run's own files, with its update."""
    out: dict[str, list[tuple[int, float]]] = {}
    for prefix, rows in (("held-out", run.evals()), ("train", run.metrics())):
        for row in rows:
            for name, value in numbers_of(row, prefix).items():
                out.setdefault(name, []).append((row["update"], value))
    return out


def test_numbers() -> None:
    row = {"update": 3, "a": 1, "b": {"c": 0.5, "d": {"e": True}}, "f": float("nan"), "g": "text", "h": [1], "i": None}
    assert numbers_of(row, "train") == {"train/a": 1.0, "train/b/c": 0.5, "train/b/d/e": 1.0}


@pytest.mark.parametrize("kind", ["world", "language model"])
def test_tensorboard(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if kind == "world":
        run = trained(tmp_path / "run", "tensorboard")
    else:
        tiny = make_tiny(tmp_path / "tiny", texts=TEXTS, words=512, spread=0.15, context=2048)
        run = train_one(tmp_path / "run", config(tiny, **SHORT), resume=False, allow=(), progress=None, log=("tensorboard",))
    read = EventAccumulator(str(tmp_path / "run" / "tensorboard"), size_guidance={"tensors": 0})
    read.Reload()
    wanted = expected(run)
    assert set(read.Tags()["tensors"]) >= set(wanted)
    for name in ("train/reward", "train/seconds", "held-out/mean"):
        found = [(e.step, float(e.tensor_proto.float_val[0])) for e in read.Tensors(name)]
        assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in wanted[name]]


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # nobody's credentials
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(Refused, match=r"no credentials for Weights & Biases.*wandb login.*WANDB_MODE=offline"):
        trained(tmp_path / "refused", "wandb")
    assert not (tmp_path / "refused").exists()
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = trained(tmp_path / "run", "wandb")
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    found = _history(file)
    for name in ("train/reward", "held-out/mean"):
        assert [(row["update"], row[name]) for row in found if name in row] == expected(run)[name]


def _history(file: Path) -> list[dict[str, Any]]:
    """The rows of an offline run's file: records in blocks of 32 KiB, each with its sum, length and kind (whole, or a piece)."""
    from wandb.proto import wandb_internal_pb2

    data, at, record, out = file.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            read, record = wandb_internal_pb2.Record.FromString(record), b""
            items = read.history.item if read.HasField("history") else ()
            out += [{i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}] if items else []
    return out


def test_mlflow_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("alembic", reason="mlflow without its database is installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    with pytest.raises(Refused, match=r"MLflow does not take runs.*MLFLOW_TRACKING_URI=sqlite"):
        trained(tmp_path / "refused", "mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    run = trained(tmp_path / "run", "mlflow")
    client, name = mlflow.MlflowClient(), (tmp_path / "run" / "mlflow.id").read_text()
    assert client.get_run(name).info.status == "FINISHED"
    assert client.get_run(name).data.tags["preset"] == run.about["preset"]
    for metric in ("train/reward", "held-out/mean"):
        assert [(m.step, m.value) for m in client.get_metric_history(name, metric)] == expected(run)[metric]


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboard.summary"), ("wandb", "wandb"), ("mlflow", "mlflow")])
def test_a_package_that_is_missing_is_one_error_before_anything_is_written(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Ends
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = run("train", "net", "--world", "W1", "--cap", "updates=1", "--tracker", name, "-o", "made")
    assert (code, err.splitlines()[0]) == (2, f"error: --tracker {name} needs the package {name}, which is not installed")
    assert f"pip install {name}" in err
    assert not (tmp_path / "made").exists()


class Failing:
    """A tracker whose network is gone after the first row."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def open(self, folder: Path, about: Any) -> None:
        pass

    def log(self, numbers: Any, step: int) -> None:
        self.rows.append(step)
        if step:
            raise ConnectionError("the network is gone")

    def close(self, status: str) -> None:
        raise AssertionError("it was given up before")


def test_a_tracker_that_fails_is_given_up_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, notes = Failing(), []
    monkeypatch.setitem(TRACKERS, "failing", lambda: made)
    with tracked(("failing",), tmp_path, lambda kind, row: notes.append(row["what"]) if kind == "note" else None) as tell:
        for step in range(3):
            tell("start" if step == 0 else "update", {"update": step, "loss": 1.0})
    assert (made.rows, notes) == ([1], ["--tracker failing gets no more rows: ConnectionError: the network is gone"])
    with pytest.raises(InputError, match=r"no tracker named 'tensorbord'.*did you mean 'tensorboard'"):
        trained(tmp_path / "x", "tensorbord")
