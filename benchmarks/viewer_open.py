"""A trace from a cold server: the page, what it is told of the trace and its picture, from the first request to the last byte.

The server has just said that it listens, and nothing of the trace is in memory. Both the wall and the server's own CPU are told:
on a busy machine the wall says more about the neighbours. And what a one-file page of 23,000 events weighs.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from _timing import arguments, report, row

from counterpoint.app.viewer.one_file import one_file
from counterpoint.app.viewer.trace_view import LARGE
from counterpoint.store import Store
from counterpoint.testing import synthetic_trace

SIZES = {"20,000 events of 1,000 agents": (1_000, 8_500, 1.0), "1,000,000 events of 1,000 agents": (1_000, 498_500, 3.0)}
"""Name to agents, steps, and the most seconds that it may take."""


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / 100


def opened(folder: Path, name: str, is_large: bool) -> tuple[float, float]:
    """Seconds on the wall and of CPU for everything that the page asks for before its first picture."""
    words = [sys.executable, "-m", "counterpoint", "view", str(folder), "--no-open", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            used, begin = cpu_s(server.pid), time.perf_counter()
            for path in (f"t/{name}", f"api/t/{name}?first=1", f"api/t/{name}/{'bins?first=1' if is_large else 'columns'}"):
                request = urllib.request.Request(url + path, headers={"accept-encoding": "gzip"})
                with urllib.request.urlopen(request) as answer:
                    answer.read()
            return time.perf_counter() - begin, cpu_s(server.pid) - used
        finally:
            server.kill()


def rows(*, is_quick: bool) -> list[dict[str, Any]]:
    """Each size several times, in turns."""
    sizes = dict(list(SIZES.items())[: 1 if is_quick else None])
    with tempfile.TemporaryDirectory() as place:
        events = {}
        with Store(place) as store:
            for k, (agents, steps, _) in enumerate(sizes.values()):
                trace = synthetic_trace(agents, steps, trace_id=f"t{k}")
                events[f"t{k}"] = len(trace.events)
                store.add(trace)
                del trace
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in events}
        for _ in range(3 if is_quick else 5):
            for name, count in events.items():
                taken[name].append(opened(Path(place), name, count > LARGE))
    out = []
    for (label, (_, _, limit)), times in zip(sizes.items(), taken.values(), strict=True):
        wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        out.append(row(f"{label}, cold, until the first picture", wall, None, "s", limit=limit))
        out.append(row(f"{label}, the server's CPU", cpu, None, "s CPU"))
    weighed = synthetic_trace(1_000, 9_550)
    size = len(one_file([weighed], masked=Counter()).data) / 1e6
    return [*out, row(f"one file of {len(weighed.events):,} events, all fields, no texts", size, None, "MB", limit=1.0)]


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    report("Opening", rows(is_quick=asked.quick), as_json=asked.json)


if __name__ == "__main__":
    main()
