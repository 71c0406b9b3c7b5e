"""One recording from its beginning to its end, and the promise that it never disturbs what it records.

Always true: no call into a session raises; what goes wrong is told on stderr once, and kept in `problems`; a session that is
over, or that belongs to the process this one was forked from, does nothing.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from counterpoint.errors import CounterpointError
from counterpoint.store import Run
from counterpoint.team._recording.lanes import Lanes, Scope
from counterpoint.team.recorder import Recorder, WallClock
from counterpoint.trace import Trace

current: ContextVar[Scope | None] = ContextVar("counterpoint_scope", default=None)
"""Who acts here: tasks and copied contexts inherit it."""
_MOST = 100


class Session:
    """A trace that is being recorded."""

    def __init__(self, run: Run, root: str) -> None:
        self.run = run
        self.is_over = False
        self.problems: list[str] = []
        self.rewards: dict[str, int | float] = {}
        self.metrics: dict[str, int | float] = {}
        self.locators: list[Callable[[], Scope | None]] = []
        """How adapters find who acts here, where a framework knows it."""
        self.recorder = Recorder(run, WallClock())
        self.lanes = Lanes(self, self.recorder, root)
        self._is_late = False
        _sessions.add(self)

    @property
    def root(self) -> Scope:
        """The scope of the agent that acts where no other does."""
        return self.lanes.root

    def do(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Record something; None where that cannot be done."""
        if self.is_over:
            self._late()
            return None
        try:
            with self.lanes.lock:
                if self.run.trouble is not None:
                    self.note(str(self.run.trouble), is_new=False)
                return method(*args, **kwargs)
        except Exception as error:
            self.note(_said(error))
            return None

    def note(self, what: str, *, is_new: bool = True) -> None:
        """Keep a problem, and say the first."""
        if not is_new and what in self.problems:
            return
        if not self.problems:
            say(f"counterpoint: recording {self.run.trace_id!r}: {what}; the program goes on")
        if len(self.problems) < _MOST:
            self.problems.append(what)
        elif len(self.problems) == _MOST:
            self.problems.append("and more")

    def _late(self) -> None:
        if not self._is_late:
            self._is_late = True
            self.note("something happened after the end of the recording, and is not in it")

    def sync(self) -> bool:
        """Whether all that was recorded so far is on disk, after waiting for that."""
        try:
            self.run.sync()
        except Exception as error:
            self.note(_said(error))
            return False
        return True

    def finish(self, meta: dict[str, Any]) -> Trace | None:
        """End the trace and seal it; None where that failed, and the journal has what there is."""
        with self.lanes.lock:
            self.is_over = True
        if not self.recorder.count:
            self.note("nothing was recorded: no decorated function was called, and nothing was said")
            self.release()
            return None
        costs = {} if self.lanes.cost_usd is None else {"cost_usd": self.lanes.cost_usd}
        try:
            try:
                self.run.sync()
            except CounterpointError:
                for refusal in self.run.drop_refused():
                    self.note(f"a record could not be written and is left out: {refusal.why}")
            return self.run.finish(self.rewards, costs, self.metrics or None, meta)
        except Exception as error:
            self.note(_said(error))
            self.release()
            return None

    def release(self) -> None:
        """Leave the trace unfinished, in the journal."""
        self.is_over = True
        try:
            self.run.release()
        except Exception as error:
            self.note(_said(error))

    def tell_end(self) -> None:
        """At the end, how much went wrong."""
        if len(self.problems) > 1:
            say(f"counterpoint: the recording of {self.run.trace_id!r} has {len(self.problems)} problems; see rec.problems")


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, CounterpointError) else f"{type(error).__name__}: {error}"


def say(line: str) -> None:
    """Tell whoever watches the program."""
    try:
        print(line, file=sys.stderr)
    except Exception:
        return  # there is nobody to tell


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _after_fork() -> None:
    """A forked child records nothing: the journal is its parent's, and a lock may be held for ever."""
    for session in list(_sessions):
        session.is_over = True
        session._is_late = True


os.register_at_fork(after_in_child=_after_fork)
