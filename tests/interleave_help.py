"""Steps several workers through their file operations, one at a time, in every order up to a number of delays.

Always true: one worker moves at a time, so a run is decided by the order of steps alone and can be run again; no sleeps, no
clocks. A worker that waits for a lock is not chosen until a lock was given back. Only operations that others can see are steps.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

# What one process does that another can see. Path's own methods end in these, but for reading bytes.
STEPS = ("link", "replace", "unlink", "listdir", "pread", "pwrite")


class Killed(BaseException):
    """The worker died here: nothing that it does afterwards has an effect."""


class Step(NamedTuple):
    """One moment of a run: who could go on, who did, and who was the one before."""

    able: tuple[str, ...]
    """The one who was at it first, if it can go on, then the others in turn: to choose the n-th costs n delays."""
    chosen: str


class _Worker:
    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name, self._work = name, work
        self.go, self.paused = threading.Semaphore(0), threading.Semaphore(0)
        self.is_over = self.is_dead = self.waits = False
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        self.go.acquire()
        try:
            self._work()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.is_over = True
        self.paused.release()

    def pause(self) -> None:
        """Stop before a step, until it is this worker's turn."""
        self.paused.release()
        self.go.acquire()
        if self.is_dead:
            raise Killed

    def move(self) -> None:
        """Let it do one step."""
        if not self.thread.is_alive():
            self.thread.start()
        self.go.release()
        self.paused.acquire()


class Stepper:
    """Runs workers in an order of steps; `patched` must be active."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        self.unlocks = 0

    def _current(self) -> _Worker | None:
        return self._workers.get(threading.current_thread().name)

    def step(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """The operation, with a stop before it when a worker does it."""

        def stepped(*args: Any, **options: Any) -> Any:
            worker = self._current()
            if worker is not None:
                if worker.is_dead:
                    raise Killed
                worker.pause()
            return real(*args, **options)

        return stepped

    def flock(self, real: Callable[[int, int], None]) -> Callable[[int, int], None]:
        """Locks: who would wait is set aside until somebody gives one back."""

        def stepped(fd: int, kind: int) -> None:
            worker = self._current()
            if worker is None or kind & fcntl.LOCK_NB:
                real(fd, kind)
            elif kind & fcntl.LOCK_UN:
                real(fd, kind)
                for other in self._workers.values():
                    other.waits = False
            else:
                worker.pause()
                while True:
                    try:
                        real(fd, kind | fcntl.LOCK_NB)
                        return
                    except BlockingIOError:
                        worker.waits = True
                        worker.pause()

        return stepped

    def run(self, works: dict[str, Callable[[], None]], order: list[str], *, kill: tuple[str, int] | None = None) -> list[Step]:
        """One run: first these choices, then whoever is at it goes on. `kill` ends a worker before its n-th step."""
        self._workers = {name: _Worker(name, work) for name, work in works.items()}
        steps: list[Step] = []
        moves = dict.fromkeys(works, 0)
        before: str | None = None
        while True:
            names = list(works)
            turn = names.index(before) if before is not None else 0
            able = tuple(n for n in names[turn:] + names[:turn] if not self._workers[n].is_over and not self._workers[n].waits)
            if not able:
                break
            chosen = order[len(steps)] if len(steps) < len(order) else able[0]
            assert chosen in able, "the same choices gave another run"
            steps.append(Step(able, chosen))
            if kill is not None and chosen == kill[0] and moves[chosen] == kill[1]:
                self._workers[chosen].is_dead = True
            moves[chosen] += 1
            self._workers[chosen].move()
            before = chosen
        assert all(w.is_over for w in self._workers.values()), "everybody waits for everybody"
        for worker in self._workers.values():
            worker.thread.join()
            if worker.error is not None:
                raise worker.error
        return steps


@contextmanager
def patched(stepper: Stepper) -> Iterator[None]:
    """File operations of workers become steps; what only makes bytes durable does nothing, for speed."""
    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, stepper.step(getattr(os, name)))
        patch.setattr(pathlib.Path, "read_bytes", stepper.step(pathlib.Path.read_bytes))
        patch.setattr(fcntl, "flock", stepper.flock(fcntl.flock))
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda fd: None)
        yield


def orders(run: Callable[[list[str]], list[Step]], delays: int) -> int:
    """Run every order that puts off whose turn it is at most so often; returns how many there were.

    Delay-bounded scheduling (Emmi, Qadeer, Rakamaric 2011): of n steps about n**delays / delays! orders, and a fault that needs
    few unlucky moments is among the first.
    """
    todo: list[list[str]] = [[]]
    count = 0
    while todo:
        prefix = todo.pop()
        steps = run(prefix)
        count += 1
        used = 0
        for i, step in enumerate(steps):
            if i >= len(prefix):
                for cost, other in enumerate(step.able[1:], start=1):
                    if used + cost <= delays:
                        todo.append([s.chosen for s in steps[:i]] + [other])
            used += step.able.index(step.chosen)
    return count
