"""`torchrun -m counterpoint train lm`: one run, which two processes learn; its numbers are those of one process."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from tests.lm_help import TEXTS  # noqa: E402
from tests.tiny_help import make_tiny  # noqa: E402

from counterpoint.errors import InputError  # noqa: E402
from counterpoint.lab.lm.network import read  # noqa: E402
from counterpoint.lab.train.folder import RunFolder  # noqa: E402
from counterpoint.lab.train.lm.run import train_language  # noqa: E402
from counterpoint.lab.train.settings import toml_text  # noqa: E402
from lab.train.lm.test_run import SHORT, config  # noqa: E402
from lab.train.lm.test_sharded import PATIENCE_S, end, start, torchrun  # noqa: E402

TASK = "tests.lm_help:colours"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny(tmp_path_factory.mktemp("tiny"), texts=TEXTS, words=512, spread=0.15, context=2048)


def rows_of(run: RunFolder) -> list[dict[str, Any]]:
    """What a run says of each update, but how long it took."""
    return [{k: v for k, v in row.items() if not k.endswith("_s") and k not in ("seconds", "profile")} for row in run.metrics()]


@pytest.mark.parametrize("adapters", ["", "shared"])
def test_a_run_of_two_processes_is_that_of_one(model: Path, tmp_path: Path, adapters: str) -> None:
    told = config(model, adapters=adapters, **SHORT)
    told["imitate"] |= {"teams": 12, "steps": 20, "batch": 12}
    told["learn"] |= {"samples": 4, "beta": 0.01, "average": 0.5, "recompute": True}
    told["prices"] = {"token": 0.01}  # so that samples differ, whatever the model has learned
    one = train_language(tmp_path / "one", told)
    (tmp_path / "told.toml").write_text(toml_text({**told, "task": told["task"]}))
    line = ["train", "lm", "told.toml", "--allow", TASK, "-o", "two", "--json"]
    out = torchrun(2, "-m", "counterpoint", *line, cwd=tmp_path)
    assert sum('"status": "finished"' in row or '"status":"finished"' in row for row in out.splitlines()) == 1, out
    two = RunFolder.open(tmp_path / "two")
    assert two.about["status"] == "finished"
    for mine, yours in zip(rows_of(one), rows_of(two), strict=True):
        assert {k: pytest.approx(v, abs=1e-3) if isinstance(v, float) else v for k, v in mine.items()} == yours
    assert any(row.get("sequences") for row in rows_of(one))  # reinforcement has taught something
    assert [row["values"] for row in one.evals()] == [row["values"] for row in two.evals()]
    if not adapters:
        mine, yours = (read(tmp_path / name / "model")[1] for name in ("one", "two"))
        for name, weight in mine.items():
            torch.testing.assert_close(weight, yours[name], atol=1e-4, rtol=1e-3)
    else:
        assert json.loads((tmp_path / "two" / "model.json").read_text()) == json.loads((tmp_path / "one" / "model.json").read_text())


def test_an_interrupted_run_of_two_processes_is_finished_by_one(model: Path, tmp_path: Path) -> None:
    told = config(model, **SHORT) | {"checkpoint_every": 100}
    told["learn"] |= {"updates": 20}
    one = train_language(tmp_path / "one", told)
    (tmp_path / "told.toml").write_text(toml_text(told))
    running = start(2, "-m", "counterpoint", "train", "lm", "told.toml", "--allow", TASK, "-o", "two", cwd=tmp_path)
    try:
        file, until = tmp_path / "two" / "metrics.jsonl", time.monotonic() + PATIENCE_S
        while not (file.is_file() and len(file.read_bytes().splitlines()) > 2) and time.monotonic() < until:
            assert running.poll() is None
            time.sleep(0.02)
        running.send_signal(signal.SIGTERM)  # as a scheduler does: to torchrun alone
        running.communicate(timeout=PATIENCE_S)
    finally:
        end(running)
    two = RunFolder.open(tmp_path / "two")
    assert two.about["status"] == "interrupted"
    assert two.latest_checkpoint() is not None
    resumed = train_language(tmp_path / "two", {}, resume=True, allow=[TASK])
    assert resumed.about["status"] == "finished"
    for mine, yours in zip(rows_of(one), rows_of(resumed), strict=True):
        assert {k: pytest.approx(v, abs=1e-3) if isinstance(v, float) else v for k, v in mine.items()} == yours


def test_what_is_wrong_is_said_once(model: Path, tmp_path: Path) -> None:
    line = ["-m", "counterpoint", "train", "lm", "--model", str(model), "--task", "T1", "--set", "learn.nope=1"]
    running = start(2, *line, cwd=tmp_path)
    try:
        out, _ = running.communicate(timeout=PATIENCE_S)
    finally:
        end(running)
    assert running.returncode == 1
    assert out.count("no setting learn.nope") == 1


def test_a_reference_does_not_go_from_several_cards_to_one(model: Path, tmp_path: Path) -> None:
    told = config(model, **SHORT)
    told["learn"] |= {"beta": 0.1}
    (tmp_path / "told.toml").write_text(toml_text(told))
    torchrun(2, "-m", "counterpoint", "train", "lm", "told.toml", "--allow", TASK, "-o", "two", cwd=tmp_path)
    run = RunFolder.open(tmp_path / "two", write=True)
    with run:
        kept = run.latest_checkpoint()
        assert kept is not None
        run.set_status("interrupted")
    with pytest.raises(InputError, match="resume it by torchrun"):
        train_language(tmp_path / "two", {}, resume=True, allow=[TASK])
