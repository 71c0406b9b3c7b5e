"""A writer that is killed: run by test_kill.py. Forks once per line of stdin, lets the child die, says "done".

The child records and adds traces, and acknowledges each durable thing with one write to a file, which survives its death. It
counts its steps: everything that it asks of the store, and every file that is opened, renamed or removed underneath. When it
dies depends on these steps and not on a clock: it kills itself before the given one, or is killed from outside, while it works
on, once it has reported that one. So a slow machine does the same work as a fast one.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable

from counterpoint.store import Store
from counterpoint.trace import Edge, Event, Trace

FILE_OPERATIONS = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.listdir", "os.scandir"}


def event(i: int) -> Event:
    return Event(id=f"e{i}", t=i, type="message", agent=f"a{i % 3}", tokens_in=i, content_ref=f"ref{i}")


def work(path: str, acks: str, seed: int, step: Callable[[], None]) -> None:
    rng = random.Random(seed)
    fd = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store = Store(path, flush_ms=rng.choice([1, 50]))
    count = 0
    while True:
        name, size = f"t{seed}-{count}", rng.choice([1, 9, 50, 400])
        count += 1
        step()
        if rng.random() < 0.3:
            events = [event(i) for i in range(size)]
            edges = [Edge(f"e{i - 1}", f"e{i}", "causal") for i in range(1, size)]
            store.add(Trace(trace_id=name, task_id="kill", events=events, edges=edges, meta={"expected": size}))
            os.write(fd, f"{name} {size} sealed\n".encode())
            continue
        with store.record(name, task_id="kill", meta={"expected": size}) as run:
            for i in range(size):
                step()
                run.event(event(i))
                if i:
                    run.edge(f"e{i - 1}", f"e{i}", "causal")
                if rng.random() < 0.3:
                    step()
                    run.sync()
                    os.write(fd, f"{name} {i + 1} synced\n".encode())
            step()
            run.finish(rewards={"team": size})
        os.write(fd, f"{name} {size} sealed\n".encode())


def die_at(steps: int) -> Callable[[], None]:
    """A step that kills its own process before the given one."""
    left = steps

    def step() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    return step


def tell(pipe: int) -> Callable[[], None]:
    """A step that is reported to whoever may kill us."""
    return lambda: (os.write(pipe, b"."), None)[1]


def live(path: str, acks: str, seed: int, step: Callable[[], None]) -> None:
    """Work, with a step before each file operation."""
    sys.addaudithook(lambda name, _: step() if name in FILE_OPERATIONS else None)
    work(path, acks, seed, step)


def main() -> None:
    for line in sys.stdin:
        path, acks, seed, steps, how = line.rstrip("\n").split("\t")
        told, tells = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                live(path, acks, int(seed), die_at(int(steps)) if how == "itself" else tell(tells))
            finally:
                os._exit(1)
        os.close(tells)
        left = int(steps)
        while how == "outside" and left and (came := os.read(told, left)):
            left -= len(came)
        if how == "outside":
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(told)
        print("done" if os.WIFSIGNALED(status) else "the writer failed by itself", flush=True)


if __name__ == "__main__":
    main()
