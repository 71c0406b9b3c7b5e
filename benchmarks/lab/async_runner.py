"""Asynchronous against synchronous rollouts with a 20 % straggler tail, and the runner against concurrent.futures.

Rollouts wait (`time.sleep`) as for model calls, longer where the team is wide; one in five is four times as long. Everybody has
as many workers, the same rollouts, and an update of 5 ms. The peer is what a user would write: `ProcessPoolExecutor`, all results
of an update awaited (`map`); and, for asynchrony, one that keeps as many futures in flight and learns from whichever come first,
without limit on their age and without weights. The last row has jobs that do not wait, and weights of 1 MB per update, which the
pool pickles into every task.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import arguments, report, row

from counterpoint.lab.bench.claims.async_ import LEVELS, Launch, rollouts
from counterpoint.lab.train.feed import Deadline, Ordered
from counterpoint.lab.train.runner import Job
from counterpoint.lab.train.runners.processes import Processes

WORK = "counterpoint.lab.bench.claims.async_:rollouts"
BATCH, PACE_S, UPDATE_S = 12, 0.004, 0.005
VERSIONS = count()


def payloads(n: int, pace_s: float) -> list[Launch]:
    """The same rollouts for everybody."""
    rng = np.random.default_rng(0)
    return [(int(s), int(a), int(u), pace_s) for s, a, u in zip(*rng.integers(0, (2**40, 2, LEVELS), (n, 3)).T, strict=True)]


def ours(pool: Processes, kind: Callable[..., Any], staleness: int, updates: int, pace_s: float, weights: Any = None) -> float:
    """Consumed rollouts per second."""
    feed, todo, consumed, begin = (
        kind(pool, batch=BATCH, staleness=staleness),
        payloads(20 * BATCH * updates, pace_s),
        0,
        time.perf_counter(),
    )
    base = pool.version = getattr(pool, "version", 0) + 1000  # weights of another measurement are other weights
    for update in range(updates):
        version = base + update
        feed.fill(lambda i, v=version: Job(work=WORK, payload=todo[i], version=v, weights=weights))
        consumed += len(feed.take(version).done)
        time.sleep(UPDATE_S if pace_s else 0.0)
    rate = consumed / (time.perf_counter() - begin)
    while pool.collect():  # what was launched ahead
        pass
    return rate


def peer_sync(pool: ProcessPoolExecutor, updates: int, pace_s: float, weights: Any = None) -> float:
    """Map, learn, map."""
    todo, begin = payloads(BATCH * updates, pace_s), time.perf_counter()
    for update in range(updates):
        list(pool.map(partial(rollouts, weights=weights), todo[update * BATCH : (update + 1) * BATCH]))
        time.sleep(UPDATE_S if pace_s else 0.0)
    return BATCH * updates / (time.perf_counter() - begin)


def peer_async(pool: ProcessPoolExecutor, staleness: int, updates: int, pace_s: float) -> float:
    """As many futures in flight as our window; learn from the first that are there, however old."""
    todo = iter(payloads(20 * BATCH * updates, pace_s))
    consumed, begin, open_ = 0, time.perf_counter(), set()
    for _ in range(updates):
        while len(open_) < (staleness + 1) * BATCH:
            open_.add(pool.submit(rollouts, next(todo), None))
        got = 0
        while got < BATCH:
            done, open_ = wait(open_, return_when=FIRST_COMPLETED)
            got += len(done)
        consumed += got
        time.sleep(UPDATE_S)
    rate = consumed / (time.perf_counter() - begin)
    wait(open_)
    return rate


def measure(*, quick: bool) -> list[dict[str, Any]]:
    """Candidates take turns; medians are compared."""
    updates, repeats = (10, 2) if quick else (30, 5)
    weights = {"scale": np.ones(()), "rest": np.zeros(131_072)}
    context = multiprocessing.get_context("spawn")
    with Processes(BATCH) as mine, ProcessPoolExecutor(BATCH, mp_context=context) as theirs:
        work: dict[str, Callable[[], float]] = {
            "sync": lambda: ours(mine, Ordered, 0, updates, PACE_S),
            "ordered": lambda: ours(mine, Ordered, 2, updates, PACE_S),
            "deadline": lambda: ours(mine, Deadline, 2, updates, PACE_S),
            "peer sync": lambda: peer_sync(theirs, updates, PACE_S),
            "peer async": lambda: peer_async(theirs, 2, updates, PACE_S),
            "empty": lambda: ours(mine, Ordered, 0, updates, 0.0, weights),
            "peer empty": lambda: peer_sync(theirs, updates, 0.0, weights),
        }
        found: dict[str, list[float]] = {name: [] for name in work}
        for turn in range(repeats + 1):
            for name, call in work.items():
                rate = call()
                if turn:  # the first turn starts the processes
                    found[name].append(rate)
    rate = {name: statistics.median(rates) for name, rates in found.items()}
    pairs = [
        ("by launch order, staleness 2 | ours, synchronous", "ordered", "sync", 1.5),
        ("by deadline, staleness 2 | ours, synchronous", "deadline", "sync", 1.5),
        ("by launch order, staleness 2 | pool.map", "ordered", "peer sync", 1.5),
        ("synchronous | pool.map", "sync", "peer sync", None),
        ("by deadline, staleness 2 | futures, first come", "deadline", "peer async", None),
        ("no wait, weights of 1 MB | pool.map", "empty", "peer empty", None),
    ]
    return [row(what, rate[a], rate[b], "rollouts/s", is_rate=True, target=target) for what, a, b, target in pairs]


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    report(
        f"Asynchronous runner, {BATCH} workers, one rollout in five a straggler", measure(quick=asked.quick), as_json=asked.json
    )


if __name__ == "__main__":
    main()
