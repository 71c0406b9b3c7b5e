"""The board of issues of a store of 10,000 traces, the first time and again, against the report of the same store."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from _timing import arguments, report, row

from counterpoint.store import Store
from counterpoint.trace import Edge, Event, Trace
from listing import cpu_ms

_REASONS = ("No such file or directory", "timed out after 30 s", "user rejected the call", "Exit code 1", "Channel x7 not found")


def failing(name: str, day: int, draw: random.Random) -> Trace:
    """A run of 24 calls of two agents, of which some fail."""
    events, edges = [], []
    for k in range(24):
        who, tool, ok = f"w{k % 2}", draw.choice(("Bash", "Read", "Edit")), draw.random() > 0.1
        why = None if ok else draw.choice(_REASONS)
        events += [
            Event(id=f"s{k}", t=3 * k, type="orchestrator_decision", agent=who, tokens_in=900, tokens_out=90, cost_usd=0.01),
            Event(id=f"c{k}", t=3 * k + 1, type="tool_call", agent=who, tool=tool, content_ref="ask"),
            Event(id=f"r{k}", t=3 * k + 2, type="tool_result", agent=who, tool=tool, ok=ok, content_ref="got", error=why),
        ]
        edges.append(Edge(f"c{k}", f"r{k}", "tool_dependency"))
    meta = {"began": 1.76e9 + day * 86400.0, "project": f"project-{day % 7}"}
    return Trace(trace_id=name, task_id=name, events=events, edges=edges, contents={"ask": "look", "got": "x" * 200}, meta=meta)


def rows(count: int) -> list[dict[str, Any]]:
    """One store, the commands one after another."""
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "traces"
        with Store(folder) as store:
            for begin in range(0, count, 500):
                store.add_many([failing(f"run-{n:05}", n // 50, draw) for n in range(begin, min(begin + 500, count))])

        def command(name: str) -> None:
            words = [sys.executable, "-m", "counterpoint", name, "--store", str(folder), "--json"]
            subprocess.run(words, capture_output=True, check=True)

        first, again, whole = (cpu_ms(partial(command, name)) for name in ("issues", "issues", "report"))
    return [
        row(f"counterpoint issues, {count:,} traces, the first time | counterpoint report", first, whole, "ms CPU", target=0.7),
        row(f"counterpoint issues again, {count:,} traces | the first time", again, first, "ms CPU", target=5),
    ]


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    report("Issues", rows(1_000 if asked.quick else 10_000), as_json=asked.json)


if __name__ == "__main__":
    main()
