"""The store that the recordings of this process share, opened off the recorded program's path and kept open while one needs it.

Always true: nothing is opened in the caller's thread; a store that cannot be opened is tried again after a while, and its records
wait in memory until then.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import counterpoint.store.pending as pending
from counterpoint.errors import CounterpointError, InputError
from counterpoint.recorder.problems import forget
from counterpoint.store import Store
from counterpoint.store.flusher import Flusher
from counterpoint.store.journal import Journal
from counterpoint.trace.lines import LineReader

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
FLUSH_S = 0.05
"""How long a record may wait for the disk when nobody asks."""


class SharedStore:
    """One store of this process."""

    def __init__(self, path: Path, store: Store | None = None) -> None:
        """Use `shared`. With `store` it is one that somebody else opened, and closes."""
        self.path, self._store, self._is_given = path, store, store is not None
        self.real_path = os.path.realpath(path)
        self._users = 0
        self._lock = threading.Lock()
        self._error: CounterpointError | None = None
        self._again, self._wait_s = 0.0, _FIRST_WAIT_S

    def open(self) -> Store:
        """The open store; a `CounterpointError` where it cannot be opened, at once while it has just been tried."""
        with self._lock, pending.unwaiting():
            if self._store is not None:
                return self._store
            if self._error is not None and time.monotonic() < self._again:
                raise self._error
            try:
                self._store, self._error = Store(self.path), None
            except (CounterpointError, OSError) as error:
                known = error if isinstance(error, CounterpointError) else InputError(str(error), where=os.fspath(self.path))
                self._error, self._again = known, time.monotonic() + self._wait_s
                self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s)
                raise known from None
            self._wait_s = _FIRST_WAIT_S
            forget(os.fspath(self.path))
            return self._store

    def take(self) -> None:
        """A recording needs it."""
        with _lock:
            self._users += 1

    def leave(self) -> None:
        """A recording is over; the last one closes what was opened for them."""
        with _lock:
            self._users -= 1
            if self._users or self._is_given:
                return
            _stores.pop(os.fspath(self.path), None)
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            with pending.unwaiting():
                store.close()


_stores: dict[str, SharedStore] = {}
_lock = threading.Lock()
_flushers: list[Flusher] = []


def shared(store: Store | Path) -> SharedStore:
    """The store of a folder, as all recordings of this process have it, and taken once."""
    if isinstance(store, Store):
        given = SharedStore(store.path, store)
        given.take()
        return given
    key = os.path.abspath(store)  # it is opened later, when the program may be in another folder
    with _lock:
        one = _stores.get(key) or _stores.setdefault(key, SharedStore(Path(key)))
        one._users += 1
        return one


def flusher() -> Flusher:
    """The thread that writes what is recorded."""
    with _lock:
        if not _flushers:
            _flushers.append(Flusher(FLUSH_S))
        return _flushers[0]


class LateJournal(Journal):
    """A journal that is made when its first lines are written."""

    def __init__(self, place: SharedStore, trace_id: str, about: dict[str, Any]) -> None:
        self._place, self._trace_id, self._about = place, trace_id, about
        self._made: Journal | None = None
        self._is_closed = False
        self._making = threading.Lock()

    def make(self) -> Journal:
        """The journal, made now if it is not there."""
        with self._making, pending.unwaiting():
            if self._made is None:
                if self._is_closed:
                    raise InputError("this run is over", where=f"trace {self._trace_id!r}")
                self._made = self._place.open().journal(self._trace_id, **self._about)
            return self._made

    @property
    def is_made(self) -> bool:
        """Whether anything is on disk."""
        return self._made is not None and not self._made.is_removed

    @property
    def is_open(self) -> bool:
        """Whether records can be written, now or later."""
        return not self._is_closed and (self._made is None or self._made.is_open)

    def append(self, lines: bytes) -> None:
        """Write whole lines and their sum, and wait until they are durable."""
        self.make().append(lines)

    def read(self) -> LineReader:
        """Everything that is in the file."""
        return self.make().read()

    def delete(self) -> None:
        """Remove the file, if there is one."""
        self._is_closed = True
        if self._made is not None:
            self._made.delete()

    def release(self) -> None:
        """Let go of the file, if there is one; it stays."""
        self._is_closed = True
        if self._made is not None:
            self._made.release()


def _after_fork() -> None:
    """A forked child has no thread that writes, and opens stores of its own."""
    global _lock
    _lock = threading.Lock()
    _stores.clear()
    _flushers.clear()


os.register_at_fork(after_in_child=_after_fork)
