"""The caller's side of a pool of workers: jobs are queued, a thread feeds them to workers, and what ended is collected.

Always true: numbers count jobs in the order of launch; a job is fixed when it is submitted, weights are packed once per version;
the first error of a job or worker is raised by every later call. What a worker is (a process, a Ray actor) is the subclass's.
"""

from __future__ import annotations

import pickle
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.train.runner import Done, Job, packed, resolve

_P = TypeVar("_P", bound="Pool")


@dataclass(order=True)
class QueuedJob:
    """A job on its way; jobs are ordered by their numbers."""

    number: int
    work: str = field(compare=False)
    version: int = field(compare=False)
    payload: bytes = field(compare=False)
    weights: Any = field(compare=False)
    """As `Pool.pack_weights` gave them."""
    ends: int = field(default=0, compare=False)
    """Workers that ended while they had it."""


class Pool(ABC):
    """Jobs, and what became of them; also a context manager that closes the workers."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        """Held while anything below is read or changed."""
        self.queue: list[QueuedJob] = []
        self.under_way = 0
        self.is_closed = False
        self._done: list[tuple[QueuedJob, float, bytes]] = []
        self._next = 0
        self._weights: tuple[int, Any] | None = None
        self._error: CounterpointError | None = None
        self._known: set[str] = set()

    @abstractmethod
    def pack_weights(self, weights: Any, number: int, work: str) -> Any:
        """Weights in the form in which they travel; asked once per version."""

    @abstractmethod
    def wake(self) -> None:
        """Have the thread look at the queue."""

    @abstractmethod
    def close(self) -> None:
        """End the workers."""

    def submit(self, job: Job) -> int:
        """Queue a job; the payload is copied now, the weights when their version is first seen."""
        if job.work not in self._known:
            resolve(job.work)  # an unknown name is an error here, not in a process far away
            self._known.add(job.work)
        with self.changed:
            self.check_open()
            number = self._next
            payload = packed(job.payload, "payload", number, job.work)
            if self._weights is None or self._weights[0] != job.version:
                self._weights = (job.version, self.pack_weights(job.weights, number, job.work))
            self.queue.append(QueuedJob(number, job.work, job.version, payload, self._weights[1]))
            self._next += 1
            self.under_way += 1
        self.wake()
        return number

    def collect(self, timeout_s: float | None = None) -> list[Done]:
        """Jobs that have ended, in the order in which they did."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with self.changed:
            while not self._done and self.under_way:
                self.check_open()
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    break
                self.changed.wait(left)
            self.check_open()
            done, self._done = self._done, []
            self.under_way -= len(done)
        return [Done(number=s.number, version=s.version, result=pickle.loads(blob), took_s=took) for s, took, blob in done]

    def add_result(self, job: QueuedJob, took_s: float, blob: bytes) -> None:
        """The result of a job, from the thread that feeds the workers, which holds `changed`."""
        self._done.append((job, took_s, blob))
        self.changed.notify_all()

    def fail(self, error: CounterpointError) -> None:
        """End with this error, unless another came first."""
        with self.changed:
            self._error = self._error or error
            self.changed.notify_all()

    @property
    def has_failed(self) -> bool:
        """Whether an error ended it."""
        return self._error is not None

    def check_open(self) -> None:
        """Raise the error that ended it, or where it is closed."""
        if self._error is not None:
            raise self._error
        if self.is_closed:
            raise InputError("the runner is closed", fix="make another")

    def begin_close(self) -> bool:
        """Drop what is queued; False where it was closed before."""
        with self.changed:
            if self.is_closed:
                return False
            self.is_closed = True
            self.queue.clear()
            self.changed.notify_all()
        self.wake()
        return True

    def __enter__(self: _P) -> _P:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
