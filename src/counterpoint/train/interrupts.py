"""Ctrl-C, held back while something must stay whole.

Always true: outside `whole()` an interruption is a `KeyboardInterrupt` at once; inside, the first one waits for its end and a
second one does not. `is_broken` says that something was cut in two. Who ignored or handled the signal before gets it back.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """A context manager around a long task."""

    def __init__(self) -> None:
        self.is_broken = self._is_pending = False
        self._depth = 0
        self._before: Any = None
        self._is_ours = False

    def __enter__(self) -> Interrupts:
        # only the main thread may listen; a process that was told to ignore the signal goes on ignoring it
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._hear)
            self._is_ours = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        if self._depth and not self._is_pending:
            self._is_pending = True
            return
        self.is_broken = self.is_broken or self._depth > 0
        raise KeyboardInterrupt

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is done in here is finished before an interruption counts."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._is_pending and not self._depth:
            self._is_pending = False
            raise KeyboardInterrupt
