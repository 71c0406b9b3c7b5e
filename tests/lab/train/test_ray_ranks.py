# ruff: noqa: E402  nothing of ray is imported before it is known to be there
"""One run on a Ray cluster: engine and learner in a placement group, workers beside it, one node of theirs killed in mid-run."""

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

ray = pytest.importorskip("ray", reason="ray is not installed: pip install '.[ray]'")
torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from tests.lm_help import TEXTS
from tests.tiny_help import make_tiny

from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.train.lm.run import train_language
from counterpoint.lab.train.settings import toml_text
from lab.train.lm.test_run import SHORT, config
from lab.train.lm.test_torchrun import TASK, rows_of

ROOT = Path(__file__).parents[3]
SMALL = {"num_cpus": 1, "object_store_memory": 80 << 20}
PATIENCE_S = 900.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    ray.init(made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def start(cluster: Any, cwd: Path, *line: str, size: int = 2) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1"}
    told = [sys.executable, "-m", "counterpoint", "train", "lm", *line, "--runner", f"ray:{cluster.address}", "--json"]
    pipe = subprocess.PIPE
    return subprocess.Popen(told, cwd=cwd, env=env, start_new_session=True, text=True, stdout=pipe, stderr=subprocess.STDOUT)


def ended(process: subprocess.Popen[str]) -> str:
    try:
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return out


def placed() -> list[Any]:
    return [g for g in ray.util.placement_group_table().values() if g["state"] == "CREATED"]


def rows_written(folder: Path) -> int:
    file = folder / "metrics.jsonl"
    return len(file.read_bytes().splitlines()) if file.is_file() else 0


def test_a_run_goes_on_when_a_node_that_plays_is_killed(cluster: Any, tmp_path: Path) -> None:
    tiny = make_tiny(tmp_path / "tiny", texts=TEXTS, words=512, spread=0.15, context=2048)
    told = config(tiny, **SHORT)
    told["imitate"] |= {"teams": 12, "steps": 20, "batch": 12}
    told["learn"] |= {"updates": 6, "samples": 4}
    told |= {"workers": 1, "prices": {"token": 0.01}}
    one = train_language(tmp_path / "one", told)
    (tmp_path / "told.toml").write_text(toml_text(told))
    running, until = start(cluster, tmp_path, "told.toml", "--allow", TASK, "-o", "two", "--workers", "1"), time.monotonic() + PATIENCE_S
    try:
        while not (groups := placed()) and running.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        first = cluster.add_node(**SMALL)  # the learner is on the head's node, which is full: who plays comes here
        while rows_written(tmp_path / "two") < 3 and running.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        cluster.remove_node(first, allow_graceful=False)
        cluster.add_node(**SMALL)
    finally:
        out = ended(running)
    assert running.returncode == 0, out
    (group,) = groups
    assert set(group["bundles_to_node_id"].values()) == {cluster.head_node.node_id}
    assert "was replaced" in out
    assert rows_of(RunFolder.open(tmp_path / "two")) != []
    for mine, yours in zip(rows_of(one), rows_of(RunFolder.open(tmp_path / "two")), strict=True):
        assert {k: pytest.approx(v, abs=1e-3) if isinstance(v, float) else v for k, v in mine.items()} == yours
    assert any(row.get("sequences") for row in rows_of(one))
    assert json.loads((tmp_path / "two" / "about.json").read_text())["status"] == "finished"


def test_what_cannot_be_placed_is_one_error(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpoint.errors import InputError, TryAgain
    from counterpoint.lab.train.lm.ray_ranks import RayRanks

    with pytest.raises(TryAgain, match=r"asked: 9 of 1 CPU and 0 GPU each, .*there is: "):
        RayRanks(9, address=cluster.address, place_s=2.0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(InputError, match="3 processes that learn need a cluster"):
        RayRanks(3, address=None)
