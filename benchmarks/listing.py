"""The list of a store of 10,000 traces: `counterpoint ls`, and the page's first list from a server that has just been started."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from _timing import arguments, report, row

from counterpoint.store import Store
from counterpoint.trace.synthetic import synthetic_trace


def fill(folder: Path, count: int) -> None:
    """Small traces, in commits of 500; the last 60, which the page draws a picture of, are larger."""
    with Store(folder) as store:
        for begin in range(0, count, 500):
            names = [f"project/run-{n:05}" for n in range(begin, min(begin + 500, count))]
            store.add_many([synthetic_trace(2, 4, seed=k % 50, trace_id=name) for k, name in enumerate(names)])
        store.add_many([synthetic_trace(20, 1000, seed=k, trace_id=f"project/large-{k}") for k in range(60)])


def cpu_ms(work: Callable[[], None]) -> float:
    """CPU milliseconds of the processes that some work starts and ends: a busy machine says nothing about the wall."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def command(folder: Path) -> None:
    """`counterpoint ls`."""
    subprocess.run([sys.executable, "-m", "counterpoint", "ls", "--store", str(folder)], capture_output=True, check=True)


def page(folder: Path) -> None:
    """A server, from its start to the end of its first list."""
    words = [sys.executable, "-m", "counterpoint", "view", "--store", str(folder), "--no-open", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        with urllib.request.urlopen(f"{url}api/traces") as answer:
            answer.read()
        server.kill()


def nothing() -> None:
    """A Python that does nothing."""
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def rows(count: int, repeats: int) -> list[dict[str, Any]]:
    """Measured in turns."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "traces"
        fill(folder, count)
        work = {"ls": partial(command, folder), "page": partial(page, folder), "nothing": nothing}
        taken: dict[str, list[float]] = {name: [] for name in work}
        for _ in range(repeats):
            for name, one in work.items():
                taken[name].append(cpu_ms(one))
    ls, first, bare = (statistics.median(times) for times in taken.values())
    return [
        row(f"counterpoint ls, {count:,} traces | python -c pass", ls, bare, "ms CPU", limit=1000),
        row(f"a cold server's first list, {count:,} traces | python -c pass", first, bare, "ms CPU", limit=1000),
    ]


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    report("Listing", rows(1_000 if asked.quick else 10_000, 3 if asked.quick else 9), as_json=asked.json)


if __name__ == "__main__":
    main()
