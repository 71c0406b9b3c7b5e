"""A team that can be steered, in a process of its own: a few agents that work in small steps, recorded as they go.

Run as a program: `python steer_help.py STORE TRACE STEP_S LIMIT_S AGENT...`. It says `ready` when every agent has acted. It ends
when all agents were stopped, or when its time is over.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from counterpoint.recorder.control import Control, FileControl
from counterpoint.recorder.recorder import Recorder, WallClock
from counterpoint.store import Store
from counterpoint.store.run import Run

AGENTS = ("lead", "lead.1", "lead.2")


async def work(agent: str, recorder: Recorder, control: Control, step_s: float, is_over: asyncio.Event) -> None:
    """One agent: a safe point, a tool call, and so on until it is stopped."""
    last: str | None = None
    for k in range(100_000):
        key, told, n = f"{agent}|tool_call|{k}", [], 0
        is_stopped = is_over.is_set()
        while orders := await control.safe_point(agent, key):
            for order in orders:
                told.append(recorder.event(**order.event(agent, key, n)))
                n += 1
                is_stopped |= order.action == "stop"
        reads = [*((name, "message") for name in told), *([(last, "temporal")] if last else [])]
        if is_stopped or is_over.is_set():
            recorder.event(agent, "return", key=f"{agent}|return", reads=reads, text="done")
            return
        last = recorder.open(agent, "tool_call", key=key, reads=reads, tool="step", role="lead" if agent == "lead" else "worker")
        await asyncio.sleep(step_s)
        recorder.close(last, ok=True)


async def team(run: Run, store: Path, step_s: float, limit_s: float, agents: tuple[str, ...]) -> None:
    """All of them, until the last one ends or the time is over."""
    recorder, is_over = Recorder(run, WallClock()), asyncio.Event()
    control = FileControl(store, run.trace_id, is_over=is_over.is_set, poll_s=0.02)
    asyncio.get_running_loop().call_later(limit_s, is_over.set)
    for agent in agents[1:]:
        recorder.event(agents[0], "spawn", key=f"spawn|{agent}", to=agent, role="worker")
    tasks = [asyncio.create_task(work(agent, recorder, control, step_s, is_over)) for agent in agents]
    await asyncio.sleep(0)
    await run.sync_async()
    print("ready", flush=True)
    await asyncio.gather(*tasks)
    await control.close()


def main(store: str, trace_id: str, step_s: str, limit_s: str, *agents: str) -> None:
    with Store(store, flush_ms=5) as opened, opened.record(trace_id, task_id="steps", system="test") as run:
        asyncio.run(team(run, Path(store), float(step_s), float(limit_s), agents or AGENTS))
        run.finish(rewards={"team": 1.0})


@contextmanager
def running(store: Path, trace_id: str = "running", *, step_s: float = 0.02, limit_s: float = 600.0) -> Iterator[subprocess.Popen[str]]:
    """The program under way; killed at the end if it is still there."""
    command = [sys.executable, __file__, str(store), trace_id, str(step_s), str(limit_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def until(is_it: object, limit_s: float = 300.0) -> None:
    """Wait for a condition; an error when it does not come."""
    end = time.monotonic() + limit_s
    while not is_it():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
