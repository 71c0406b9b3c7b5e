"""Runs shown in the tracker that people watch already: TensorBoard, Weights & Biases, MLflow.

Always true: a tracker is looked up, with its package and its credentials, before anything is played or written. It is told what
the run's own files say, and what goes wrong in it later is said once and never ends a run.
"""

from __future__ import annotations

import importlib
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol

from counterpoint.errors import CounterpointError, InputError, Refused

Progress = Callable[[str, Mapping[str, Any]], None]
_LEAST = {"update", "progress", "run"}
"""What is no measurement: the step itself, and what the tracker knows anyway."""


class Tracker(Protocol):
    """What a run is told to."""

    def open(self, folder: Path, about: Mapping[str, Any]) -> None:
        """The run begins, or goes on."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """What was measured after an update."""

    def close(self, status: str) -> None:
        """The run ended: finished, interrupted, failed."""


def _package(name: str, extra: str = "") -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = extra or name
        what = f"--tracker {package} needs the package {package}, which is not installed"
        raise InputError(what, why=str(error), fix=f"pip install {package}") from error


class TensorBoard:
    """Event files in the run's folder: tensorboard --logdir runs."""

    def __init__(self) -> None:
        self._make = _package("tensorboard.summary", "tensorboard").Writer
        self._writer: Any = None

    def open(self, folder: Path, about: Mapping[str, Any]) -> None:
        """One event file for each time that the run goes on."""
        self._writer = self._make(os.fspath(folder / "tensorboard"))

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Each number under its name."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, status: str) -> None:
        """Write what waits."""
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases, by its own settings: WANDB_PROJECT, WANDB_MODE=offline."""

    def __init__(self) -> None:
        self._wandb, self._run = _package("wandb"), None
        self._mode = os.environ.get("WANDB_MODE") or "online"  # told again below: wandb itself looks once for each process
        if self._mode == "online" and not self._wandb.login(prompt=False):
            fix = "wandb login; or write it here and send it later: WANDB_MODE=offline, then wandb sync DIR/wandb/offline-run-*"
            raise Refused("there are no credentials for Weights & Biases", where="--tracker wandb", fix=fix)

    def open(self, folder: Path, about: Mapping[str, Any]) -> None:
        """The same run where it goes on."""
        named: dict[str, Any] = {"name": folder.name, "project": os.environ.get("WANDB_PROJECT", "counterpoint")}
        named |= {"id": _remembered(folder, "wandb", lambda: secrets.token_hex(4)), "resume": "allow", "mode": self._mode}
        # neither what is on the screen nor the folder around the run is asked for
        quiet = self._wandb.Settings(console="off", disable_git=True, save_code=False)
        self._run = self._wandb.init(dir=os.fspath(folder), config=dict(about), settings=quiet, **named)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Against our own step: a run that goes on may repeat some."""
        assert self._run is not None
        self._run.log({**numbers, "update": step})

    def close(self, status: str) -> None:
        """How it ended, as an exit code."""
        assert self._run is not None
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status == "finished" else 1)


class MLflow:
    """A run of MLflow, by its own settings: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME."""

    ENDS: ClassVar = {"finished": "FINISHED", "interrupted": "KILLED"}

    def __init__(self) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a server that is not there is told at once
        self._client = _package("mlflow").MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "counterpoint")
        try:
            found = self._client.get_experiment_by_name(name)
            self._experiment = found.experiment_id if found is not None else self._client.create_experiment(name)
        except Exception as error:  # of MLflow, of its server, of what its database needs
            why = " ".join(str(error).split())[:300]
            fix = "MLFLOW_TRACKING_USERNAME and _PASSWORD, or _TOKEN; or a file here: MLFLOW_TRACKING_URI=sqlite:///mlflow.db"
            raise Refused("MLflow does not take runs", where=self._client.tracking_uri, why=why, fix=fix) from error
        self._id = ""

    def open(self, folder: Path, about: Mapping[str, Any]) -> None:
        """The same run where it goes on."""
        made = lambda: self._client.create_run(self._experiment, run_name=folder.name).info.run_id  # noqa: E731
        self._id = _remembered(folder, "mlflow", made)
        self._client.update_run(self._id, status="RUNNING")
        for name, value in about.items():
            self._client.set_tag(self._id, name, str(value)[:5000])

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """All numbers of a step at once."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._id, metrics=[Metric(name, value, now, step) for name, value in numbers.items()])

    def close(self, status: str) -> None:
        """How it ended, in MLflow's words."""
        self._client.set_terminated(self._id, self.ENDS.get(status, "FAILED"))


TRACKERS: dict[str, Callable[[], Tracker]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}


def _remembered(folder: Path, name: str, make: Callable[[], str]) -> str:
    """What a tracker calls this run; made once, and kept in the run's folder."""
    path = folder / f"{name}.id"
    if not path.exists():
        path.write_text(make())
    return path.read_text().strip()


def numbers_of(row: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """The finite numbers of a row, those in tables under joined names: `train/entropy/item`."""
    out: dict[str, float] = {}
    for name, value in row.items():
        if name in _LEAST:
            continue
        if isinstance(value, Mapping):
            out |= numbers_of(value, f"{prefix}/{name}")
        elif isinstance(value, (int, float)) and math.isfinite(value):
            out[f"{prefix}/{name}"] = float(value)
    return out


@contextmanager
def tracked(names: Sequence[str], folder: Path, progress: Progress | None) -> Iterator[Progress]:
    """What a run tells its progress to, passed on to these trackers too."""
    trackers = {name: TRACKERS[name]() for name in dict.fromkeys(names)}
    told = progress or (lambda kind, row: None)
    opened: dict[str, Tracker] = {}
    ended = "failed"

    def each(do: Callable[[Tracker], None]) -> None:
        for name, tracker in list(opened.items()):
            try:
                do(tracker)
            except Exception as error:  # whatever a tracker does, the run goes on
                del opened[name]
                why = error.one_line() if isinstance(error, CounterpointError) else f"{type(error).__name__}: {error}"
                told("note", {"what": f"--tracker {name} gets no more rows: {' '.join(why.split())[:300]}"})

    def tell(kind: str, row: Mapping[str, Any]) -> None:
        nonlocal ended
        told(kind, row)
        if kind == "start":
            opened.update(trackers)
            about = {k: v for k, v in row.items() if k not in ("update", "run")}
            each(lambda tracker: tracker.open(folder, about))
        elif kind in ("update", "eval"):
            found = numbers_of(row, "train" if kind == "update" else "held-out")
            each(lambda tracker: tracker.log(found, int(row["update"])))
        elif kind == "alert":
            each(lambda tracker: tracker.log({f"alert/{row['code']}": 1.0}, int(row["update"])))
        elif kind == "end":
            ended = str(row["status"])

    try:
        yield tell
    finally:
        each(lambda tracker: tracker.close(ended))
