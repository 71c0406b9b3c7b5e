"""Traces that this process has ended and that are on their way into the lake: who reads their store here waits for them.

Always true: the thread that does the work never waits for itself; a forked child waits for nothing of its parent's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_futures: dict[str, dict[Future[Any], str]] = {}
_lock = threading.Lock()
_here = threading.local()


def add(key: str, trace_id: str, future: Future[Any]) -> None:
    """A trace will be in the store at this path, without links, when the future is done."""
    with _lock:
        _futures.setdefault(key, {})[future] = trace_id
    future.add_done_callback(lambda done: _done(key, done))


def _done(key: str, future: Future[Any]) -> None:
    with _lock:
        kept = _futures.get(key, {})
        kept.pop(future, None)
        if not kept:
            _futures.pop(key, None)


def count() -> int:
    """How many there are."""
    with _lock:
        return sum(map(len, _futures.values()))


def settle(path: Path, trace_id: str | None = None) -> None:
    """Wait until all that was ended before is in the store at this path; or this trace alone."""
    if not _futures or getattr(_here, "is_worker", False):
        return
    with _lock:
        known = _futures.get(os.path.realpath(path), {})
        waiting = {future for future, name in known.items() if trace_id in (None, name)}
    wait(waiting)


def never_wait() -> None:
    """This thread is the one that does the work."""
    _here.is_worker = True


@contextmanager
def unwaiting() -> Iterator[None]:
    """What happens here is a part of the work, or holds what the work needs."""
    before = getattr(_here, "is_worker", False)
    _here.is_worker = True
    try:
        yield
    finally:
        _here.is_worker = before


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _futures.clear()


os.register_at_fork(after_in_child=_after_fork)
