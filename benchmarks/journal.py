"""Durable appends: group commit shared by many agents, beside an fsync per event and SQLite in WAL mode.

Wall time on the disk that holds the temporary folder. Events are made before the clock runs and encoded after. An event counts
when its writer knows that it is durable; what one agent waits for that is its acknowledgement time.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _timing import arguments, percentile, report, row

from counterpoint.store import Store
from counterpoint.trace import Event
from counterpoint.trace.wire import encode_event

Measured = tuple[float, list[float]]
"""Events per second, and what each waited, in seconds."""


def _event(k: int, i: int) -> Event:
    return Event(
        id=f"{k}-{i}", t=i, type="tool_call", agent=f"agent{k}", role="coder", tool="grep", content_ref="sha256:" + "ab" * 32,
        tokens_in=120, tokens_out=30, dur=0.25,
    )  # fmt: skip


def _tasks(folder: Path, agents: int, each: int) -> Measured:
    events = [[_event(k, i) for i in range(each)] for k in range(agents)]
    waits: list[float] = []

    async def agent(k: int) -> None:
        for event in events[k]:
            run.event(event)
            await run.sync_async()

    async def timed(k: int) -> None:
        for event in events[k]:
            begin = time.perf_counter()
            run.event(event)
            await run.sync_async()
            waits.append(time.perf_counter() - begin)

    async def team() -> None:  # one agent in ten keeps a watch: the watch costs as much as the recording
        await asyncio.gather(*((agent if k % 10 else timed)(k) for k in range(agents)))

    with Store(folder) as store, store.record("bench", task_id="bench") as run:
        begin = time.perf_counter()
        asyncio.run(team())
        return agents * each / (time.perf_counter() - begin), waits


def _threads(folder: Path, agents: int, each: int) -> Measured:
    events = [[_event(k, i) for i in range(each)] for k in range(agents)]
    waits: list[float] = []

    def agent(k: int) -> None:
        for i in range(each):
            begin = time.perf_counter()
            run.event(events[k][i])
            run.sync()
            waits.append(time.perf_counter() - begin)

    with Store(folder) as store, store.record("bench", task_id="bench") as run:
        crew = [threading.Thread(target=agent, args=(k,)) for k in range(agents)]
        begin = time.perf_counter()
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        return agents * each / (time.perf_counter() - begin), waits


def _fsync_each(folder: Path, count: int) -> Measured:
    folder.mkdir()
    fd = os.open(folder / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    events = [_event(0, i) for i in range(count)]
    waits = []
    begin = time.perf_counter()
    for event in events:
        start = time.perf_counter()
        os.write(fd, encode_event(event) + b"\n")
        os.fsync(fd)
        waits.append(time.perf_counter() - start)
    rate = count / (time.perf_counter() - begin)
    os.close(fd)
    return rate, waits


def _fsync_off_loop(folder: Path, agents: int, each: int) -> Measured:
    """The same agents, each with an fsync of its own that does not stop the others: a thread pool."""
    folder.mkdir()
    fd = os.open(folder / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    events = [[_event(k, i) for i in range(each)] for k in range(agents)]
    waits: list[float] = []

    def keep(event: Event) -> None:
        os.write(fd, encode_event(event) + b"\n")
        os.fsync(fd)

    async def agent(k: int) -> None:
        loop = asyncio.get_running_loop()
        for event in events[k]:
            begin = time.perf_counter()
            await loop.run_in_executor(None, keep, event)
            waits.append(time.perf_counter() - begin)

    async def team() -> None:
        await asyncio.gather(*(agent(k) for k in range(agents)))

    begin = time.perf_counter()
    asyncio.run(team())
    rate = agents * each / (time.perf_counter() - begin)
    os.close(fd)
    return rate, waits


def _sqlite(folder: Path, count: int, *, per_commit: int) -> Measured:
    folder.mkdir()
    base = sqlite3.connect(folder / "events.db", isolation_level=None)
    base.execute("pragma journal_mode=wal")
    base.execute("pragma synchronous=full")
    base.execute("create table events (id text, body text)")
    events = [_event(0, i) for i in range(count)]
    waits = []
    begin = time.perf_counter()
    for first in range(0, count, per_commit):
        start = time.perf_counter()
        base.execute("begin")
        for event in events[first : first + per_commit]:
            base.execute("insert into events values (?, ?)", (event.id, encode_event(event)))
        base.execute("commit")
        waits += [time.perf_counter() - start] * per_commit
    rate = count / (time.perf_counter() - begin)
    base.close()
    return rate, waits


def measure(*, quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    agents, each, repeats = 100, (20 if quick else 100), (3 if quick else 5)
    singles = 500 if quick else 2_000
    ours, threads = f"group commit, {agents} tasks", f"group commit, {agents} threads"
    work: dict[str, Callable[[Path], Measured]] = {
        ours: lambda f: _tasks(f, agents, each),
        threads: lambda f: _threads(f, agents, max(5, each // 5)),
        "group commit, 1 task": lambda f: _tasks(f, 1, singles // 2),
        "JSONL, fsync per event": lambda f: _fsync_each(f, singles),
        f"fsync per event, {agents} tasks": lambda f: _fsync_off_loop(f, agents, max(5, each // 5)),
        "SQLite WAL FULL, per event": lambda f: _sqlite(f, singles, per_commit=1),
        "SQLite WAL FULL, 100 per commit": lambda f: _sqlite(f, singles * 2, per_commit=100),
    }
    rates: dict[str, list[float]] = {name: [] for name in work}
    waits: dict[str, list[float]] = {name: [] for name in work}
    with tempfile.TemporaryDirectory() as base:
        for turn in range(repeats):
            for number, (name, call) in enumerate(work.items()):
                rate, waited = call(Path(base) / f"{turn}-{number}")
                rates[name].append(rate)
                waits[name] += waited
    for name in work:
        p50, p99 = (percentile(waits[name], q) * 1e3 for q in (0.5, 0.99))
        say(f"{name:34} {statistics.median(rates[name]):>10,.0f} events/s   ack p50 {p50:.3f} ms   p99 {p99:.3f} ms")
    best = {name: statistics.median(found) for name, found in rates.items()}
    rows = [
        row(f"durable events, {agents} tasks", best[ours], best["JSONL, fsync per event"], "events/s", target=10.0, is_rate=True),
        row(
            "the same, fsync off the loop",
            best[ours],
            best[f"fsync per event, {agents} tasks"],
            "events/s",
            target=10.0,
            is_rate=True,
        ),
        row(f"durable events, {agents} threads", best[threads], best["JSONL, fsync per event"], "events/s", is_rate=True),
        row("beside SQLite WAL, per event", best[ours], best["SQLite WAL FULL, per event"], "events/s", is_rate=True),
        row("beside SQLite WAL, 100 per commit", best[ours], best["SQLite WAL FULL, 100 per commit"], "events/s", is_rate=True),
    ]
    fsync = [percentile(waits["JSONL, fsync per event"], q) * 1e3 for q in (0.5, 0.99)]
    rows.append(row("acknowledgement p50, against one fsync", percentile(waits[ours], 0.5) * 1e3, fsync[0], "ms"))
    rows.append(row("acknowledgement p99, against one fsync", percentile(waits[ours], 0.99) * 1e3, fsync[1], "ms"))
    return rows


def main() -> None:
    options = arguments(__doc__)
    rows = measure(quick=options.quick, say=(lambda text: None) if options.json else print)
    report("Journal (wall, median of runs)", rows, as_json=options.json)


if __name__ == "__main__":
    main()
