"""Starting processes of ours, and how they end: what every pool of workers needs.

Always true: a child is started afresh ("spawn"), with one thread each for numpy and torch and with Ctrl-C blocked, and ends when
its parent does. What was set in this process to start it is as it was afterwards.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing import connection, parent_process, resource_tracker
from types import ModuleType

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
START_S = 120.0
"""How long a child may import before its silence counts: disks of busy machines are slow."""


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Children that are started inside inherit one thread each and a blocked Ctrl-C, from before their first line."""
    resource_tracker.ensure_running()  # it would unblock the signal again, were it started below
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    can_block = hasattr(signal, "pthread_sigmask")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if can_block else None
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def without_script() -> Iterator[None]:
    """Children that are started inside do not run the caller's script again: for work that needs nothing of it.

    So a script that loads torch does not load it into every child, and needs no `if __name__ == "__main__":`.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def collect_seldom() -> tuple[int, int, int]:
    """Look seldom for garbage that goes in circles; gives what was set before, for `gc.set_threshold`.

    Records make no circles, and looking through all of them again and again costs a tenth to a half of the time that makes them.
    """
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 100)
    return before


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """The same for as long as this is open."""
    before = collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)


def exit_reason(code: int | None) -> str:
    """An exit code in words: what it was, or which signal ended the process."""
    if code is None:
        return "no exit code"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def end_with_parent(beat: Callable[[], None] | None = None, every_s: float | None = None) -> None:
    """End this process when its parent is gone; for a thread of its own, which calls `beat` every so often meanwhile."""
    parent = parent_process()
    while True:
        if beat is not None:
            beat()
        # Without a parent nothing is waited for but the time.
        if connection.wait([] if parent is None else [parent.sentinel], every_s):
            os._exit(1)  # nobody waits for the work any more
