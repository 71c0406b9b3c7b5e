"""The synchronous runner: jobs run in this process, one per `collect`, in the order of launch.

Always true: a job sees what any other runner would show it: a copy of its payload, and read-only weights of its version as
they were when they were first submitted.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from typing import Any

from counterpoint.errors import InputError
from counterpoint.lab.train.runner import Done, Job, error_lines, failed, frozen, packed, resolve


class Here:
    """No processes at all."""

    def __init__(self) -> None:
        self._queue: deque[tuple[int, Job, bytes, Any]] = deque()
        self._next = 0
        self._weights: tuple[int, Any] | None = None
        self._is_closed = False

    def submit(self, job: Job) -> int:
        """Queue a job."""
        if self._is_closed:
            raise InputError("the runner is closed", fix="make another")
        resolve(job.work)
        number = self._next
        payload = packed(job.payload, "payload", number, job.work)
        if self._weights is None or self._weights[0] != job.version:
            self._weights = (job.version, frozen(pickle.loads(packed(job.weights, "weights", number, job.work))))
        self._queue.append((number, job, payload, self._weights[1]))
        self._next += 1
        return number

    def collect(self, timeout_s: float | None = None) -> list[Done]:
        """Run the oldest job that waits."""
        if not self._queue:
            return []
        number, job, payload, weights = self._queue.popleft()
        work, begin = resolve(job.work), time.perf_counter()
        try:
            result = work(pickle.loads(payload), weights)
        except Exception as error:
            what, trace = error_lines(error)
            raise failed(number, job.work, what, trace=trace) from error
        return [Done(number=number, version=job.version, result=result, took_s=time.perf_counter() - begin)]

    def close(self) -> None:
        """Forget what waits."""
        self._queue.clear()
        self._is_closed = True

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
