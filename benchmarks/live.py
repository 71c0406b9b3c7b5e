"""The live stream under load: one trace of many events a second, recorded, followed and read over a socket as a browser does.

Lag is from the moment a recorder makes an event (its `at`) until a reader has the batch and has parsed it: the recorder's wait
for the disk (up to 50 ms), the follower's wait for its next look, and the way between. Writer, server and reader are three
processes. It is wall time: on a busy machine it tells of the others; the load is printed beside it.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from _timing import arguments, percentile, report, row

from counterpoint.store import Store
from counterpoint.trace import Event

RATE = 5_000
TARGET_MS = 100.0
_STEP_S = 0.01


def _event(k: int, t: float) -> Event:
    agent = f"agent-{k % 300}"
    return Event(id=f"e{k}", t=t, type="tool_call", agent=agent, tool="grep", tokens_in=120, tokens_out=30, at=time.time())


def _write(folder: str, seconds: float) -> None:
    """Record at an even rate; who falls behind catches up, so the rate is kept."""
    with Store(folder) as store, store.record("live", task_id="load") as run:
        begin, made = time.perf_counter(), 0
        while (past := time.perf_counter() - begin) < seconds:
            while made < past * RATE:
                made += 1
                run.event(_event(made, past))
            time.sleep(_STEP_S)
        run.event(Event(id="last", t=seconds, type="message", agent="agent-0", at=time.time()))
        run.sync()
        time.sleep(1.0)


def _read(url: str, is_open: Callable[[], None]) -> tuple[list[float], int, int]:
    """Lags in seconds, batches, bytes, from the first batch on until the last event; says when the stream is open."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
    connection.request("GET", "/api/live")
    answer = connection.getresponse()
    lags: list[float] = []
    batches = size = 0
    while line := answer.readline():
        if not line.startswith(b"data: "):
            continue
        size += len(line)
        batches += 1
        if batches == 1:
            is_open()
        rows = json.loads(line[6:])["events"].get("live", [])
        now = time.time()
        lags += [now - one["at"] for one in rows]
        if rows and rows[-1]["id"] == "last":
            break
    connection.close()
    return lags, batches, size


def _cpu(pid: int) -> float:
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def measure(*, quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Lags at the rate, and what the server spends on it."""
    seconds = 5.0 if quick else 20.0
    with tempfile.TemporaryDirectory() as base:
        folder = str(Path(base) / "traces")
        Store(folder).close()
        code = "from counterpoint.app.cli import main; main()"
        command = [sys.executable, "-c", code, "view", folder, "--no-open", "--json"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        writer = multiprocessing.Process(target=_write, args=(folder, seconds))
        before = _cpu(server.pid)
        try:
            lags, batches, size = _read(url, writer.start)
            spent = _cpu(server.pid) - before
            writer.join()
        finally:
            server.terminate()
            server.wait()
    p50, p95, p99 = (1e3 * percentile(lags, share) for share in (0.5, 0.95, 0.99))
    say(f"{len(lags):,} events in {seconds:g} s, {batches:,} batches ({batches / seconds:.1f}/s), {size / 1e6:.1f} MB")
    say(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    say(f"lag p50 {p50:.0f} ms   p95 {p95:.0f} ms   p99 {p99:.0f} ms   server {100 * spent / seconds:.0f} % of a core")
    return [
        row(f"lag p95 at {RATE:,} events/s, against {TARGET_MS:g} ms", p95, TARGET_MS, "ms", target=1.0),
        row("events that arrived, against those recorded", float(len(lags)), seconds * RATE + 1, "events", is_rate=True),
    ]


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    rows = measure(quick=options.quick, say=(lambda text: None) if options.json else print)
    report("Live stream (wall)", rows, as_json=options.json)


if __name__ == "__main__":
    main()
