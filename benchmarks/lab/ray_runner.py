"""The Ray runner beside processes of this machine, at equal work: start, jobs, weights, rollouts, teams; and one collector.

Both have the same workers, jobs and weights; Ray is a cluster of one node on this machine, without its dashboard, so that only
its own cost is measured and no network. The peer is processes. Rollouts are those of the preset grpo in W1 (8 items), 24
episodes a job; teams are those of `driver.py`, played by demonstrators. The collector is `counterpoint serve` on this machine,
with senders that have a store each. Nothing here can be faster on Ray: what is looked for is how much slower it is.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import arguments, interleaved, report, row

from counterpoint import Store
from counterpoint.app.push import Push
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.runner import Job
from counterpoint.lab.train.runners.processes import Processes
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training

try:
    import ray
except ImportError:
    ray = None  # type: ignore[assignment]


def nothing(payload: Any, weights: Any) -> None:
    """A job without work."""


def resident(payload: Any, weights: Any) -> float:
    """Megabytes that the worker has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) - int(Path("/proc/self/statm").read_text().split()[2])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _all(runner: Any, jobs: list[Job]) -> list[Any]:
    numbers = [runner.submit(job) for job in jobs]
    done: dict[int, Any] = {}
    while len(done) < len(numbers):
        done |= {d.number: d.result for d in runner.collect()}
    return [done[n] for n in numbers]


def _timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _versions(runner: Any, versions: range, megabytes: int) -> None:
    for version in versions:
        weights = {"w": np.full(megabytes << 17, float(version))}
        _all(runner, [Job(work="ray_runner:nothing", payload=i, version=version, weights=weights) for i in range(4)])


def _started(make: Callable[[], Any]) -> tuple[Any, float]:
    """A runner, and how long it took until it had done a job that needs torch."""
    begin = time.perf_counter()
    runner = make()
    _all(runner, _jobs(2, 0))
    return runner, time.perf_counter() - begin


def _jobs(count: int, version: int) -> list[Job]:
    config = {"preset": "grpo", "world": "W1", "set": {"vote_items": 8}, "updates": 10**6, "episodes": 24}
    training = Training(settings_of(config))
    weights = training.weights()
    return [training.job(i, version, weights) for i in range(count)]


def _runners(*, quick: bool) -> list[dict[str, Any]]:
    from counterpoint.lab.train.runners.ray_actors import RayActors

    jobs, megabytes, versions, rounds = (200, 4, 5, 1) if quick else (1000, 16, 10, 3)
    ray_, ray_start_s = _started(lambda: RayActors(2))
    processes, start_s = _started(lambda: Processes(2))
    out = [row("start of 2 workers, to the first rollout", ray_start_s, start_s, "s")]
    with ray_, processes:
        both = {"ray": ray_, "processes": processes}
        empty = [Job(work="ray_runner:nothing", payload=i) for i in range(jobs)]
        taken = interleaved({n: lambda r=r: _all(r, empty) for n, r in both.items()}, rounds)
        out.append(row("a job without work", taken["ray"] / jobs * 1e3, taken["processes"] / jobs * 1e3, "ms"))
        named = itertools.count(1000, versions)
        work = {n: lambda r=r: _versions(r, range(at := next(named), at + versions), megabytes) for n, r in both.items()}
        taken = {n: t / versions * 1e3 for n, t in interleaved(work, rounds).items()}
        out.append(row(f"a version of {megabytes} MB of weights, and 4 jobs of it", taken["ray"], taken["processes"], "ms"))
        held = {n: max(_all(r, [Job(work="ray_runner:resident", payload=i) for i in range(4)])) for n, r in both.items()}
        out.append(row("memory of a worker that has played", held["ray"], held["processes"], "MB"))
    for workers in (1, 2, 4):
        with RayActors(workers) as one, Processes(workers) as other:
            some = _jobs(8, 1)
            work = {n: lambda r=r, s=some: _all(r, s) for n, r in {"ray": one, "processes": other}.items()}
            rates = {n: 24 * len(some) / t for n, t in interleaved(work, rounds).items()}
        name = f"episodes per second, {workers} workers on {os.cpu_count()} cores"
        out.append(row(name, rates["ray"], rates["processes"], "1/s", is_rate=True))
    job = _jobs(1, 0)[0]
    alone_s = interleaved({"here": lambda: play(job.payload, job.weights)}, 3 * rounds, "cpu")["here"]
    out.append(row("CPU of an episode, in this process", alone_s / 24 * 1e3, None, "ms"))
    return [*out, row("weights of the policy", sum(w.nbytes for w in job.weights.values()) / 1e3, None, "kB")]


def _teams(*, quick: bool) -> list[dict[str, Any]]:
    from driver import _spec

    from counterpoint.lab.lm.chat import Chat
    from counterpoint.lab.train.lm.driver import Driver
    from counterpoint.lab.train.lm.ray_workers import RayHost
    from counterpoint.lab.train.lm.rollout_worker import Rollout

    teams, rounds = (40, 1) if quick else (100, 3)
    rollouts = [Rollout(spec=_spec(s, "fake:1")) for s in range(teams)]
    with tempfile.TemporaryDirectory() as folder:
        Chat.bytes().save(Path(folder))
        with Driver(folder, workers=2, host=RayHost(folder, 2)) as one, Driver(folder, workers=2) as other:
            drivers = {"ray": one, "processes": other}
            taken = interleaved({n: lambda d=d: d.play(rollouts, None) for n, d in drivers.items()}, rounds)
            cpu = {n: d.stats.worker_cpu_s / d.stats.calls * 1e3 for n, d in drivers.items()}
    rates = {n: teams / t for n, t in taken.items()}
    return [
        row("teams of demonstrators per second, 2 workers", rates["ray"], rates["processes"], "1/s", is_rate=True),
        row("the same: CPU of the workers for each model call", cpu["ray"], cpu["processes"], "ms"),
    ]


def _collector(*, quick: bool) -> list[dict[str, Any]]:
    """Traces per second that one collector acknowledges."""
    traces = play({**_jobs(1, 0)[0].payload, "log": True}, _jobs(1, 0)[0].weights).traces
    out, count = [], 100 if quick else 500
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "counterpoint", "serve", "--store", f"{folder}/all", "--port", "0", "--json"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        for senders in (1, 4):
            nodes = [_filled(Path(folder) / f"{senders}-{k}", traces, count, f"{senders}-{k}") for k in range(senders)]
            threads = [threading.Thread(target=_push, args=(node, url)) for node in nodes]
            took = _timed(lambda t=threads: ([x.start() for x in t], [x.join() for x in t]))
            out.append(row(f"traces per second into a collector, {senders} senders", senders * count / took, None, "1/s"))
        used = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        cpu_s = sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
        server.send_signal(signal.SIGINT)
        server.wait()
        size = sum(p.stat().st_size for p in Path(folder, "all", "lake").rglob("*.parquet")) / (5 * count)
    out.append(row("CPU of the collector for each trace", cpu_s / (5 * count) * 1e3, None, "ms"))
    events = sum(len(t.events) for t in traces) / len(traces)
    return [*out, row(f"bytes of a trace in the collector's store ({events:.0f} events each)", size, None, "B")]


def _filled(folder: Path, traces: list[Any], count: int, name: str) -> Path:
    from msgspec.structs import replace

    with Store(folder) as store:
        store.add_many([replace(traces[i % len(traces)], trace_id=f"{name}-{i}") for i in range(count)])
    return folder


def _push(folder: Path, url: str) -> None:
    with Store(folder) as store:
        push = Push(store, url)
        push.send(patience_s=60)
        push.close()


def main() -> None:
    given = arguments(__doc__)
    if ray is None:
        print("ray is not installed, so there is nothing to compare: pip install '.[ray]'")
        return
    rows = [*_runners(quick=given.quick), *_teams(quick=given.quick), *_collector(quick=given.quick)]
    report("Ray beside processes", rows, as_json=given.json)


if __name__ == "__main__":
    main()
