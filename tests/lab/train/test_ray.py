# ruff: noqa: E402  nothing of ray is imported before it is known to be there
"""The Ray runner: the same bytes as one process, on two nodes, with one killed in mid-run; one clear error for each end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

ray = pytest.importorskip("ray", reason="ray is not installed: pip install '.[ray]'")

from tests.lm_help import TEXTS
from tests.tiny_help import make_tiny

from counterpoint.errors import CounterpointError, InputError, Refused, TryAgain
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.train.lm.driver import Driver
from counterpoint.lab.train.lm.ray_workers import RayHost
from counterpoint.lab.train.lm.rollout_worker import Rollout
from counterpoint.lab.train.lm.run import train_language
from counterpoint.lab.train.run import train_run
from counterpoint.lab.train.runner import Job
from counterpoint.lab.train.runners.here import Here
from counterpoint.lab.train.runners.ray_actors import RayActors
from driver_help import LegalEngine
from lab.train.lm.test_driver import SQL, T1
from lab.train.lm.test_run import SHORT, config, timeless
from lab.train.quick import CONFIG, same
from lab.train.runner.test_processes import alive, run

WORK = "lab.train.runner.runner_works:"
SMALL = {"num_cpus": 1, "object_store_memory": 80 << 20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    made.add_node(**SMALL)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def spare(cluster: Any) -> Any:
    """A node that a test may kill; the next test has another."""
    if len(cluster.worker_nodes) == 0:
        cluster.add_node(**SMALL)
    return next(iter(cluster.worker_nodes))


@pytest.mark.filterwarnings("ignore:a Ray worker")
def test_the_same_bytes_as_one_process_when_a_node_is_killed(cluster: Any, spare: Any) -> None:
    jobs = [
        Job(work=WORK + "late", payload=(i, 0.2), version=i // 5, weights={"scale": np.arange(4.0) + i // 5}) for i in range(20)
    ]
    here = [d.result for _, d in sorted(run(Here(), jobs).items())]
    with RayActors(2, address=cluster.address) as runner:
        assert len(set(runner.nodes)) == 2
        numbers = [runner.submit(job) for job in jobs]
        done = runner.collect()
        cluster.remove_node(spare, allow_graceful=False)
        while len(done) < len(jobs):
            done += runner.collect()
        assert [d.result for d in sorted(done, key=lambda d: d.number)] == here
        assert sorted(d.number for d in done) == numbers
        assert len(runner.replaced) == 1


def test_a_run_has_the_same_numbers_on_ray(cluster: Any, spare: Any, tmp_path: Path) -> None:
    told: list[str] = []

    def tell(kind: str, row: Any) -> None:
        told.append(row["what"]) if kind == "note" else None

    for runner in ("processes", "ray"):
        train_run(tmp_path / runner, {**CONFIG, "runner": runner, "workers": 2}, address=cluster.address, progress=tell)
    same(tmp_path / "processes", tmp_path / "ray")
    assert told == [f"Ray: 2 workers of 1 CPU each, 400 MB of memory for each, on the cluster at {cluster.address}"]


def test_workers_have_our_import_path_and_one_thread(cluster: Any) -> None:
    with RayActors(1, address=cluster.address) as runner:
        found = run(runner, [Job(work=WORK + "threads", payload=0)])  # a module of the tests, found by the import path alone
        assert next(iter(found.values())).result[0] == "1"
        weights = {"bias": np.array([1])}
        runner.submit(Job(work=WORK + "double", payload=1, version=7, weights=weights))
        weights["bias"][0] = 9  # a job is fixed when it is submitted
        (done,) = runner.collect()
        assert done.result == 3


@pytest.mark.parametrize(
    ("work", "says"),
    [
        ("bad", "ValueError: no good: 3"),
        ("unsendable", "the result cannot be sent"),
        ("spoil", "read-only"),
        ("die", "it ended 3 workers"),
    ],
)
@pytest.mark.filterwarnings("ignore:a Ray worker")
def test_a_failure_is_one_error_that_names_the_job(cluster: Any, work: str, says: str) -> None:
    with RayActors(1, address=cluster.address) as runner:
        runner.submit(Job(work=WORK + work, payload=3, version=1, weights={"bias": np.array([0])}))
        with pytest.raises(CounterpointError, match=rf"job 0 \({WORK}{work}\): .*{says}"):
            runner.collect(600)


def test_a_stopped_worker_is_noticed_and_its_job_played_again(cluster: Any, tmp_path: Path) -> None:
    with RayActors(1, address=cluster.address, beat_s=0.2, silent_s=2.0) as runner:
        runner.submit(Job(work=WORK + "stand_still_once", payload=str(tmp_path / "done")))
        with pytest.warns(RuntimeWarning, match="no heartbeat for 2 s"):
            (done,) = runner.collect(600)
        assert done.result == "played again"


def test_what_cannot_be_placed_is_told_with_what_there_is(cluster: Any, chat: Path) -> None:
    with pytest.raises(
        TryAgain, match=r"of 9 workers were placed within 1 s .*asked: 9 workers of 1 CPU each.*there is: .* 1 CPU and"
    ):
        RayActors(9, address=cluster.address, place_s=1.0)
    with pytest.raises(TryAgain, match=r"0 of 1 workers were placed within 1 s .*asked: 1 worker of 1 CPU, 9,000,000 MB"):
        Driver(chat, workers=1, host=RayHost(chat, 1, address=cluster.address, place_s=1.0, memory_mb=9_000_000))
    with pytest.raises(TryAgain, match="nothing answers at the address"):
        RayActors(1, address="127.0.0.1:1")
    with pytest.raises(Refused, match=r"Ray Client.*ray job submit"):
        RayActors(1, address="ray://127.0.0.1:10001")
    with pytest.raises(InputError, match="0 workers"):
        RayActors(0)


# -- language models


CHAT = Chat.bytes()


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("chat")
    CHAT.save(made)
    return made


class Killing(LegalEngine):
    """An engine that does something after some answers."""

    def __init__(self, after: int, then: Any) -> None:
        super().__init__(CHAT, at_once=2)
        self._left, self._then = after, then

    def step(self) -> list[tuple[int, Any]]:
        self._left -= 1
        if self._left == 0:
            self._then()
        return super().step()


def test_teams_are_played_on_nodes_and_again_when_one_is_killed(cluster: Any, spare: Any, chat: Path) -> None:
    rollouts = [Rollout(spec=T1, seed=s, trace_id=f"a{s}") for s in range(4)] + [Rollout(spec=SQL, seed=1, trace_id="b")]
    with Driver(chat, workers=1, patience_s=600) as here:
        expected = as_bytes(here.play(rollouts, LegalEngine(CHAT)))
    with Driver(chat, workers=2, patience_s=600, host=RayHost(chat, 2, address=cluster.address)) as driver:
        assert as_bytes(driver.play(rollouts, LegalEngine(CHAT))) == expected
        assert os.getpid() not in driver.pids
        engine = Killing(5, lambda: cluster.remove_node(spare, allow_graceful=False))
        with pytest.warns(RuntimeWarning, match="was replaced"):
            assert as_bytes(driver.play(rollouts, engine)) == expected
        assert len(driver.stats.replaced) == 1


def test_a_language_model_learns_the_same_on_ray(cluster: Any, spare: Any, tmp_path: Path) -> None:
    tiny = make_tiny(tmp_path / "tiny", texts=TEXTS, words=512, spread=0.15, context=2048)
    runs = [
        train_language(tmp_path / runner, config(tiny, **SHORT, runner=runner) | {"workers": 2}, address=cluster.address)
        for runner in ("processes", "ray")
    ]
    assert timeless(runs[0].metrics()) == timeless(runs[1].metrics())
    assert [e["values"] for e in runs[0].evals()] == [e["values"] for e in runs[1].evals()]


def as_bytes(traces: list[Any]) -> list[bytes]:
    return [msgspec.json.encode(trace) for trace in traces]


# -- ends of the whole


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from counterpoint.lab.train.runner import Job
from counterpoint.lab.train.runners.ray_actors import RayActors
address, cluster = None, None
if sys.argv[1] == "head":
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args={{"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}})
    address = cluster.address
with RayActors(1, address=address) as runner:
    pid = runner.submit(Job(work="lab.train.runner.runner_works:about", payload=0))
    print(runner.collect()[0].result, flush=True)
    runner.submit(Job(work="lab.train.runner.runner_works:late", payload=(0, 3600.0), weights={{"scale": 1.0}}))
    if cluster is not None:
        cluster.head_node.kill_gcs_server()
    try:
        runner.collect()
    finally:
        if cluster is not None:
            cluster.shutdown()
"""


@pytest.mark.parametrize("end", ["head", "ctrl-c"])
def test_nothing_is_left_behind(tmp_path: Path, end: str) -> None:
    """The head is killed, or Ctrl-C comes (to the whole group, as a terminal sends it), in the middle of a long job."""
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[2])))
    parent = subprocess.Popen(
        [sys.executable, str(script), end], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    if end == "ctrl-c":
        os.killpg(parent.pid, signal.SIGINT)
    _, errors = parent.communicate(timeout=300)
    assert parent.returncode not in (0, None)
    assert ("KeyboardInterrupt" if end == "ctrl-c" else "the head node of the Ray cluster is lost") in errors
    assert not alive(worker)
