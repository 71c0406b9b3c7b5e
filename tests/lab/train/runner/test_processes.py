"""Runners: the same results here and in processes, one clear error per failure, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.lab.train.child_process import exit_reason
from counterpoint.lab.train.runner import Done, Job, Runner
from counterpoint.lab.train.runners.here import Here
from counterpoint.lab.train.runners.processes import Processes

HERE = Path(__file__).parent
WORK = "lab.train.runner.runner_works:"


@pytest.fixture(scope="module")
def pool() -> Iterator[Processes]:
    # Between two beats nothing but a job, an answer or an end wakes it: what only came with the next beat would come too late here.
    with Processes(2, beat_s=600, silent_s=1200) as made:
        yield made


def run(runner: Runner, jobs: list[Job]) -> dict[int, Done]:
    numbers = [runner.submit(job) for job in jobs]
    found: dict[int, Done] = {}
    while len(found) < len(numbers):
        done = runner.collect()
        assert done, "nothing is under way, and something is missing"
        found |= {d.number: d for d in done}
    assert sorted(found) == numbers
    return found


def test_processes_give_what_here_gives(pool: Processes) -> None:
    weights = {v: {"bias": np.array([100 * v])} for v in range(3)}
    jobs = [Job(work=WORK + "double", payload=i, version=i // 4, weights=weights[i // 4]) for i in range(12)]
    here, there = run(Here(), jobs), run(pool, jobs)
    expected = [2 * i + 100 * (i // 4) for i in range(12)]
    assert [here[n].result for n in sorted(here)] == [there[n].result for n in sorted(there)] == expected
    assert [there[n].version for n in sorted(there)] == [i // 4 for i in range(12)]


def test_a_job_is_fixed_when_it_is_submitted(pool: Processes) -> None:
    for runner in (Here(), pool):
        weights, payload = {"bias": np.array([1])}, [5]
        runner.submit(Job(work=WORK + "double", payload=payload[0], version=77, weights=weights))
        weights["bias"][0] = 9
        number = runner.submit(Job(work=WORK + "double", payload=payload[0], version=77, weights=weights))
        found: dict[int, Done] = {}
        while number not in found or len(found) < 2:
            found |= {d.number: d for d in runner.collect()}
        assert {d.result for d in found.values()} == {11}


def test_workers_have_one_thread_and_ignore_ctrl_c(pool: Processes) -> None:
    found = run(pool, [Job(work=WORK + "threads", payload=0)])
    assert next(iter(found.values())).result == ("1", str(signal.SIG_IGN))
    for pid in pool.pids:
        os.kill(pid, signal.SIGINT)
    assert next(iter(run(pool, [Job(work=WORK + "double", payload=4)]).values())).result == 8


def test_waiting_ends_with_the_time_or_with_the_work(pool: Processes) -> None:
    assert pool.collect() == []
    pool.submit(Job(work=WORK + "late", payload=(1, 0.3), version=5, weights={"scale": 1.0}))
    assert pool.collect(0.0) == []
    assert pool.collect(0.01) == []
    (done,) = pool.collect()
    assert done.result[0] == 1
    assert 0.3 <= done.took_s < 3


@pytest.mark.parametrize("work", ["no_such_module:f", WORK + "no_such", "double", WORK, ":double"])
def test_work_that_is_not_there_is_told_at_once(pool: Processes, work: str) -> None:
    for runner in (Here(), pool):
        with pytest.raises((NotFound, InputError), match=r"no_such|names no function"):
            runner.submit(Job(work=work, payload=0))
    assert next(iter(run(pool, [Job(work=WORK + "double", payload=1)]).values())).result == 2


def test_a_payload_that_cannot_travel_is_told_at_once(pool: Processes) -> None:
    for runner in (Here(), pool):
        with pytest.raises(InputError, match=r"job .*double.*payload cannot be sent"):
            runner.submit(Job(work=WORK + "double", payload=lambda: 1))


@pytest.mark.parametrize(
    ("work", "says"),
    [
        ("bad", "ValueError: no good: 3"),
        ("unsendable", "the result cannot be sent"),
        ("spoil", "read-only"),
        ("die", r"its worker died \(SIGKILL\)"),
        ("stand_still", "its worker process has sent no heartbeat for 0.5 s"),
    ],
)
def test_a_failure_is_one_error_that_names_the_job(work: str, says: str) -> None:
    with Processes(1, beat_s=0.1, silent_s=0.5) as runner:
        run(runner, [Job(work=WORK + "double", payload=1)])
        runner.submit(Job(work=WORK + work, payload=3, version=1, weights={"bias": np.array([0])}))
        with pytest.raises(CounterpointError, match=rf"job 1 \({WORK}{work}\): .*{says}") as caught:
            runner.collect(600)
        assert "\n" not in str(caught.value)
        if work == "die":  # after an answer, so the script has its guard
            assert caught.value.fix == "run the work in this process (Here) to see why"
        with pytest.raises(CounterpointError, match="job 1"):  # and it stays so
            runner.submit(Job(work=WORK + "double", payload=1))
        pids = runner.pids
    assert not any(alive(pid) for pid in pids)


def test_how_a_worker_ended_is_told() -> None:
    assert [exit_reason(code) for code in (None, 0, 3, -9, -63)] == ["no exit code", "exit code 0", "exit code 3", "SIGKILL", "signal 63"]


def test_here_names_the_job_too() -> None:
    runner = Here()
    runner.submit(Job(work=WORK + "bad", payload=3))
    with pytest.raises(CounterpointError, match=r"job 0 .*ValueError: no good: 3") as caught:
        runner.collect()
    assert "runner_works.py" in "".join(caught.value.__notes__)


def test_a_closed_runner_says_so_and_closing_twice_is_fine() -> None:
    runner = Processes(1)
    runner.submit(Job(work=WORK + "late", payload=(0, 3600.0), weights={"scale": 1.0}))
    begin = time.monotonic()
    runner.close()
    runner.close()
    assert time.monotonic() - begin < 600, "nobody waits for the job, which takes an hour"
    for one in (runner, Here()):
        one.close()
        with pytest.raises(InputError, match="closed"):
            one.submit(Job(work=WORK + "double", payload=0))


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"workers": 1, "beat_s": 0.0}, {"workers": 1, "beat_s": 2.0, "silent_s": 1.0}])
def test_impossible_pools_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="workers"):
        Processes(**wrong)  # type: ignore[arg-type]


PARENT = """
import sys, time
sys.path.insert(0, {tests!r})
from counterpoint.lab.train.runner import Job
from counterpoint.lab.train.runners.processes import Processes
if __name__ == "__main__":
    runner = Processes(2)
    for i in range(4):
        runner.submit(Job(work="lab.train.runner.runner_works:late", payload=(i, 3600.0), weights={{"scale": 1.0}}))
    print(*runner.pids, flush=True)
    with runner:
        runner.collect()
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # a zombie waits for whoever adopted it
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return Path("/proc").is_dir() is False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_orphans(tmp_path: Path, how: signal.Signals) -> None:
    """The parent is killed, or meets Ctrl-C (sent to its whole group, as a terminal does), in the middle of long jobs."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(tests=str(HERE.parents[2])))
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    pids = [int(p) for p in parent.stdout.readline().split()]
    assert len(pids) == 2
    if how == signal.SIGINT:
        os.killpg(parent.pid, how)
    else:
        os.kill(parent.pid, how)
    _, errors = parent.communicate(timeout=300)
    until = time.monotonic() + 300
    while any(alive(p) for p in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(p) for p in pids)
    assert errors.count("KeyboardInterrupt") == (how == signal.SIGINT)


def test_a_script_without_its_guard_is_told_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from counterpoint.lab.train.runner import Job\n"
        "from counterpoint.lab.train.runners.processes import Processes\n"
        "runner = Processes(1)\n"
        "runner.submit(Job(work='operator:add', payload=1))\n"
        "runner.collect(600)\n"
    )
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600)
    assert out.returncode == 1
    assert '__name__ == "__main__"' in out.stderr.splitlines()[-1]
