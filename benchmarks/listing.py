"""The list of a store of 10,000 traces: `counterpoint ls`, and the page's first list from a server that has just been started."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from _timing import arguments, report, row

from counterpoint.envs.synthetic import synthetic_trace
from counterpoint.store import Store


def fill(folder: Path, count: int) -> None:
    """Small traces, in commits of 500; the last 60, which the page draws a picture of, are larger."""
    with Store(folder) as store:
        for begin in range(0, count, 500):
            names = [f"project/run-{n:05}" for n in range(begin, min(begin + 500, count))]
            store.add_many([synthetic_trace(2, 4, seed=k % 50, trace_id=name) for k, name in enumerate(names)])
        store.add_many([synthetic_trace(20, 1000, seed=k, trace_id=f"project/large-{k}") for k in range(60)])


def command_s(folder: Path) -> float:
    """Wall seconds of `counterpoint ls`."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "counterpoint", "ls", "--store", str(folder)], capture_output=True, check=True)
    return time.perf_counter() - begin


def page_s(folder: Path) -> float:
    """Wall seconds from starting the server to the end of its first list."""
    begin = time.perf_counter()
    words = [sys.executable, "-m", "counterpoint", "view", "--store", str(folder), "--no-open", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        with urllib.request.urlopen(f"{url}api/traces") as answer:
            answer.read()
        took = time.perf_counter() - begin
        server.terminate()
    return took


def nothing_s() -> float:
    """Wall seconds of a Python that does nothing."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - begin


def rows(count: int, repeats: int) -> list[dict[str, Any]]:
    """Measured in turns."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "traces"
        fill(folder, count)
        taken: dict[str, list[float]] = {"ls": [], "page": [], "nothing": []}
        for _ in range(repeats):
            taken["ls"].append(command_s(folder))
            taken["page"].append(page_s(folder))
            taken["nothing"].append(nothing_s())
    ls, page, nothing = (statistics.median(times) * 1e3 for times in taken.values())
    return [
        row(f"counterpoint ls, {count:,} traces | python -c pass", ls, nothing, "ms", limit=1000),
        row(f"a cold server's first list, {count:,} traces | python -c pass", page, nothing, "ms", limit=1000),
    ]


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    report("Listing", rows(1_000 if asked.quick else 10_000, 3 if asked.quick else 9), as_json=asked.json)


if __name__ == "__main__":
    main()
