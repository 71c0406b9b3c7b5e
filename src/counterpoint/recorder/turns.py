"""In which order recorded answers come: the order in which they came when they were recorded.

Always true: an answer waits until all that was recorded before it came has happened again, and answers that came before it are
given, so that a race is won by who won it. What does not come again is waited for as long as `patience` says, and then no
more.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from typing import Any

Turn = Future[None]
_TICK = 0.02


class Turns:
    """The beginnings and ends of recorded calls, each at its time."""

    def __init__(self, times: Mapping[Hashable, float], patience: Callable[[], float]) -> None:
        """`patience` says for how many seconds of silence something is waited for that may not come."""
        self._times, self._patience = dict(times), patience
        self._order = sorted(self._times, key=self._times.__getitem__)
        self._done: set[Hashable] = set()
        self._front = 0
        self._waiting: list[tuple[float, int, Hashable, Turn]] = []
        self._changed = threading.Condition()
        self._silence = 0.0
        """Seconds since something moved, as this process has seen them: where it gets no time itself, none pass."""
        self._watch: threading.Thread | None = None
        self._is_over = self.is_late = False
        """Whether something that was waited for did not come."""
        self._count = 0

    def done(self, mark: Hashable) -> None:
        """It has happened again."""
        with self._changed:
            self._silence = 0.0
            self._done.add(mark)
            free = self._free()
        _go(free)

    def turn(self, mark: Hashable, begins: Callable[[Turn], Any] | None = None) -> Turn:
        """What is done when it may happen; `begins` is called with it before anything is let go, so that who asks now comes
        before whom his asking frees."""
        turn: Turn = Future()
        if begins is not None:
            begins(turn)
        with self._changed:
            self._silence = 0.0
            self._count += 1
            heapq.heappush(self._waiting, (self._times.get(mark, 0.0), self._count, mark, turn))
            free = self._free()
            if self._waiting and self._watch is None:
                self._watch = threading.Thread(target=self._look, name="counterpoint-turns", daemon=True)
                self._watch.start()
        _go(free)
        return turn

    def close(self) -> None:
        """Nothing is waited for any more."""
        with self._changed:
            self._is_over = True
            free = [turn for *_, turn in self._waiting]
            self._waiting = []
            self._changed.notify_all()
        _go(free)

    def _free(self) -> list[Turn]:
        """Those whose turn it is: nothing that came strictly before them is missing. What came right after each other, with
        nothing in between, is let go at once, in its order: a loop takes it in one round, as it did."""
        free: list[Turn] = []
        while True:
            while self._front < len(self._order) and self._order[self._front] in self._done:
                self._front += 1
            first = self._times[self._order[self._front]] if self._front < len(self._order) else float("inf")
            if not self._waiting or self._waiting[0][0] > first:
                return free
            _, _, mark, turn = heapq.heappop(self._waiting)
            self._done.add(mark)
            free.append(turn)

    def _look(self) -> None:
        """Where nothing moves, what the first that waits is waiting for does not come."""
        while True:
            free: list[Turn] = []
            with self._changed:
                if self._is_over:
                    return
                self._changed.wait(_TICK)
                self._silence = self._silence + _TICK if self._waiting else 0.0
                if self._silence < self._patience():
                    continue
                self.is_late = True
                for mark in self._order[self._front :]:
                    if self._times[mark] >= self._waiting[0][0]:
                        break
                    self._done.add(mark)
                self._silence = 0.0
                free = self._free()
            _go(free)


def _go(turns: list[Turn]) -> None:
    for turn in turns:
        if turn.set_running_or_notify_cancel():
            turn.set_result(None)
