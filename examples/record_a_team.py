"""Record a team of your own: three workers as asyncio tasks, durable as they go, then checked and asked.

Run it: python examples/record_a_team.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import sys
import time

from counterpoint import Event, Store, problems

BEGIN = time.monotonic()


def now() -> float:
    """Seconds since the run began."""
    return round(time.monotonic() - BEGIN, 6)


async def worker(run, name: str, spawn: str) -> str:
    """One sub-agent: a tool call, its result, and a return. `sync_async` waits for the disk, shared by all who wait."""
    call, result, back = f"{name}-call", f"{name}-result", f"{name}-return"
    run.event(Event(id=call, t=now(), type="tool_call", agent=name, role="worker", tool="search", tokens_in=120, tokens_out=30))
    run.edge(spawn, call, "causal")
    await asyncio.sleep(0.01)  # the tool
    run.event(Event(id=result, t=now(), type="tool_result", agent=name, tool="search", trusted=False, source="tool", ok=True))
    run.edge(call, result, "tool_dependency")
    text = run.content(f"{name}: found it")
    run.event(Event(id=back, t=now(), type="return", agent=name, from_=name, to="lead", content_ref=text))
    run.edge(result, back, "return")
    await run.sync_async()
    return back


async def team(run) -> None:
    """The orchestrator: decide, spawn, merge, stop. Passing a decision point over is an event too (`decision="noop"`)."""
    run.event(Event(id="plan", t=now(), type="orchestrator_decision", agent="lead", decision="spawn", options=["spawn", "noop"]))
    names = ["ada", "ben", "cy"]
    for name in names:
        run.event(Event(id=f"spawn-{name}", t=now(), type="spawn", agent="lead", role="worker", to=name))
        run.edge("plan", f"spawn-{name}", "spawn")
    returns = await asyncio.gather(*(worker(run, name, f"spawn-{name}") for name in names))
    run.event(Event(id="merge", t=now(), type="aggregate", agent="lead", tokens_in=90, tokens_out=60))
    for event in returns:
        run.edge(event, "merge", "aggregate")
    run.event(Event(id="stop", t=now(), type="orchestrator_decision", agent="lead", decision="stop", options=["stop", "spawn"]))
    run.edge("merge", "stop", "temporal")


def main(folder: str = "traces") -> None:
    """Record, seal, check, ask."""
    with Store(folder) as store:
        name = f"team-{len(store) + 1}"
        with store.record(name, task_id="example", topology="centralized") as run:
            asyncio.run(team(run))
            run.finish(rewards={"team": 1.0})
        trace = store.get(name)
        print(trace, "problems:", [str(p) for p in problems(trace)])
        print(store.sql("select agent, count(*) as events from events where trace_id = ? group by 1 order by 1", [name]).rows)
    print(f"next: counterpoint show {name} --store {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
