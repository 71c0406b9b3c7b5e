"""The thread that writes what runs have recorded, and what is left to it when the process ends or forks.

Always true: a disk that refuses ends nothing, for the records stay, and are tried again; a forked child writes nothing of its
parent's.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Protocol


class Flushed(Protocol):
    """What a flusher writes: a `Run`."""

    @property
    def load(self) -> int: ...

    def flush(self) -> None: ...

    def release(self) -> None: ...

    def abandon(self) -> None: ...


class Flusher:
    """One thread per store that syncs what nobody waits for, at most every `interval_s`, and what tasks wait for, at once."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._runs: set[Flushed] = set()
        self._asked: set[Flushed] = set()
        self._lock = threading.Lock()
        self._wakes = threading.Event()
        self._thread: threading.Thread | None = None
        _flushers.add(self)

    def add(self, run: Flushed) -> None:
        with self._lock:
            self._runs.add(run)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="counterpoint-flusher", daemon=True)
                self._thread.start()

    def discard(self, run: Flushed) -> None:
        with self._lock:
            self._runs.discard(run)
        self._wakes.set()

    def wake(self, run: Flushed) -> None:
        self._asked.add(run)
        self._wakes.set()

    def _work(self) -> None:
        due = time.monotonic() + self._interval_s
        while True:
            self._wakes.wait(max(0.0, due - time.monotonic()))
            self._wakes.clear()
            is_due = time.monotonic() >= due
            with self._lock:
                if not self._runs:
                    self._thread = None
                    return
                runs = [r for r in self._runs if is_due or r in self._asked]
                self._asked.difference_update(runs)
            self.flush(runs)
            if is_due:
                due = time.monotonic() + self._interval_s

    def flush(self, runs: Iterable[Flushed]) -> None:
        for run in runs:
            run.flush()

    def load(self) -> int:
        """About how many bytes wait in memory for the disk, of all runs."""
        with self._lock:
            return sum(run.load for run in self._runs)

    def close(self) -> None:
        """Leave every run unfinished in its journal."""
        for run in list(self._runs):
            run.release()


_flushers: weakref.WeakSet[Flusher] = weakref.WeakSet()


def _after_fork() -> None:
    """In a forked child there is no flusher thread, and the journals are its parent's: every run is over."""
    for flusher in list(_flushers):
        for run in flusher._runs:
            run.abandon()
        flusher._runs = set()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _at_exit() -> None:
    """A process that ends without closing its runs still leaves what it recorded."""
    for flusher in list(_flushers):
        flusher.flush(list(flusher._runs))
