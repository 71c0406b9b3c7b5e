"""A thousand agents at once through the whole runtime: prompts, recording, tools, limits and steering, over a plain asyncio loop.

The same trivial work twice: a fake model that answers at once and a tool that looks up a page, some forty events each. Plain: a
task per agent that asks both in turn and keeps nothing. Ours: `record_team` in the swarm topology, with every prompt rendered
and addressed, every event with its edges in the journal, the control file watched, and the trace sealed at the end. Each in a
process of its own, taking turns; overhead is the CPU time of the whole process over that of the plain loop. A smaller team beside
it shows whether an event costs more in a larger one, and one orchestrator with many turns what long prompts cost.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import arguments, report, row

LOOKS = 9
"""Tool calls of an agent before it returns; a swarm gives each part to two agents, so each does two parts."""
TESTS = Path(__file__).parents[2] / "tests"


def _plain(agents: int) -> dict[str, Any]:
    """The work alone: the same pages, looked up by as many tasks."""
    from many_help import Many

    pages = {page.id: page.text for page in Many().replace(parts=agents).instance(0).documents}

    async def model(step: int, page: str) -> str:
        await asyncio.sleep(0)
        return f"TOOL open: {page}" if step < LOOKS else "RETURN: done"

    async def agent(k: int) -> str:
        said = ""
        for step in range(LOOKS + 1):
            act = await model(step, f"p{k}")
            if act.startswith("TOOL"):
                await asyncio.sleep(0)
                said = pages[act.partition(": ")[2]]
        return said

    async def every() -> None:
        await asyncio.gather(*(agent(k) for k in range(1, agents + 1)))

    return _timed(lambda: asyncio.run(every()), lambda _: agents * (2 * LOOKS + 1))


def _team(agents: int, topology: str = "swarm", looks: int = LOOKS) -> dict[str, Any]:
    from counterpoint import Store
    from counterpoint.lab.team.session import Spec, record_team
    from counterpoint.lab.team.state import Limits

    limits = Limits(width=agents, agents=agents + 2, turns=4 * agents + 10, steps=looks + 2)
    config, options = {"parts": agents, "looks": looks}, {"explore": 0.0}
    spec = Spec(task="many_help:many", config=config, topology=topology, model="fake:1", options=options, limits=limits)
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        found = _timed(lambda: asyncio.run(record_team(spec, store, trace_id="bench")), lambda trace: len(trace.events))
        trace = store.get("bench")
    assert trace.rewards == {"team": 1.0}
    return found


def _orchestrator(agents: int) -> dict[str, Any]:
    return _team(agents, "centralized", 1)


def _timed(work: Any, count: Any) -> dict[str, Any]:
    before, cpu, wall = _memory_mb(), time.process_time(), time.perf_counter()
    done = work()
    took = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    return took | {"count": count(done), "grown_mb": _memory_mb() - before, "memory_mb": _memory_mb()}


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


MODES = {"plain": _plain, "team": _team, "orchestrator": _orchestrator}


def _ask(mode: str, agents: int) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, mode, str(agents)], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _median(found: list[dict[str, Any]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def measure(*, quick: bool) -> list[dict[str, Any]]:
    agents, repeats = (200, 1) if quick else (1_000, 3)
    asked = [("plain", agents), ("team", agents), ("team", agents // 10)]
    asked += [("orchestrator", agents // 5), ("orchestrator", agents // 10)]
    found: dict[tuple[str, int], list[dict[str, Any]]] = {one: [] for one in asked}
    for _ in range(repeats):
        for one in asked:
            found[one].append(_ask(*one))
    plain, team, small, many, few = (_median(found[one]) for one in asked)

    def overhead(one: dict[str, float]) -> float:
        return (one["cpu_s"] / one["count"] - plain["cpu_s"] / plain["count"]) * 1e6

    rate, plain_rate = (one["count"] / one["wall_s"] for one in (team, plain))
    return [
        row(f"overhead per event, {agents} agents (a tenth of them)", overhead(team), overhead(small), "us"),
        row("events on disk per second (plain steps)", rate, plain_rate, "1/s", is_rate=True),
        row("memory grown by the run (plain)", team["grown_mb"], plain["grown_mb"] or None, "MB"),
        row("memory of the process (plain)", team["memory_mb"], plain["memory_mb"], "MB"),
        row(f"one orchestrator of {agents // 5}: per event (of {agents // 10})", overhead(many), overhead(few), "us"),
    ]


def main() -> None:
    sys.path.insert(0, str(TESTS))
    if len(sys.argv) == 3 and sys.argv[1] in MODES:
        print(json.dumps(MODES[sys.argv[1]](int(sys.argv[2]))))
        return
    options = arguments(__doc__)
    count = "Two hundred" if options.quick else "A thousand"
    title = f"{count} agents through the whole runtime (CPU of the whole process, median)"
    report(title, measure(quick=options.quick), as_json=options.json)


if __name__ == "__main__":
    main()
