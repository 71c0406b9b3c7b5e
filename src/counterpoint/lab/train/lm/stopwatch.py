"""How long the parts of an update take: by the wall clock, or by the GPU's own, without waiting for it.

Always true: a part that runs on the GPU is timed between two of its events, which are read when the update is over: measuring
makes nothing wait. So the parts of an update may add up to more than it took: the host prepares while the GPU computes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")


class Stopwatch:
    """Seconds of named parts since they were last taken."""

    def __init__(self, *, is_gpu: bool = False) -> None:
        """`is_gpu`: parts of the device are timed by CUDA's events."""
        self._is_gpu = is_gpu
        self._seconds: dict[str, float] = {}
        self._events: list[tuple[str, Any, Any]] = []

    def add(self, name: str, seconds: float) -> None:
        """So many seconds more of a part."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What is done in here is this part, by the wall clock."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - begin)

    @contextmanager
    def device_part(self, name: str) -> Iterator[None]:
        """What is asked of the device in here is this part; on a CPU the same as `part`."""
        if not self._is_gpu:
            with self.part(name):
                yield
            return
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        try:
            yield
        finally:
            end.record()
            self._events.append((name, begin, end))

    def each(self, name: str, values: Iterable[_T]) -> Iterator[_T]:
        """The values; what it takes to make them is this part."""
        found = iter(values)
        while True:
            with self.part(name):
                try:
                    value = next(found)
                except StopIteration:
                    return
            yield value

    def take(self) -> dict[str, float]:
        """The seconds of each part, and begin anew; waits for the device."""
        for name, begin, end in self._events:
            end.synchronize()
            self.add(name, begin.elapsed_time(end) / 1000)
        self._events.clear()
        seconds, self._seconds = self._seconds, {}
        return seconds
