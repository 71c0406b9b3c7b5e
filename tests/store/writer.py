"""A writer that is killed: run by test_kill.py. Forks once per line of stdin, kills the child after the delay, says "done".

The child records and adds traces, and acknowledges each durable thing with one write to a file, which survives its death.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

from counterpoint.store import Store
from counterpoint.trace import Edge, Event, Trace


def event(i: int) -> Event:
    return Event(id=f"e{i}", t=i, type="message", agent=f"a{i % 3}", tokens_in=i, content_ref=f"ref{i}")


def work(path: str, acks: str, seed: int) -> None:
    rng = random.Random(seed)
    fd = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store = Store(path, flush_ms=rng.choice([1, 50]))
    count = 0
    while True:
        name, size = f"t{seed}-{count}", rng.choice([1, 9, 50, 400])
        count += 1
        if rng.random() < 0.3:
            events = [event(i) for i in range(size)]
            edges = [Edge(f"e{i - 1}", f"e{i}", "causal") for i in range(1, size)]
            store.add(Trace(trace_id=name, task_id="kill", events=events, edges=edges, meta={"expected": size}))
            os.write(fd, f"{name} {size} sealed\n".encode())
            continue
        with store.record(name, task_id="kill", meta={"expected": size}) as run:
            for i in range(size):
                run.event(event(i))
                if i:
                    run.edge(f"e{i - 1}", f"e{i}", "causal")
                if rng.random() < 0.3:
                    run.sync()
                    os.write(fd, f"{name} {i + 1} synced\n".encode())
            run.finish(rewards={"team": size})
        os.write(fd, f"{name} {size} sealed\n".encode())


def main() -> None:
    for line in sys.stdin:
        path, acks, seed, delay = line.split("\t")
        pid = os.fork()
        if pid == 0:
            try:
                work(path, acks, int(seed))
            finally:
                os._exit(1)
        time.sleep(float(delay))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        print("done" if os.WIFSIGNALED(status) else "the writer failed by itself", flush=True)


if __name__ == "__main__":
    main()
