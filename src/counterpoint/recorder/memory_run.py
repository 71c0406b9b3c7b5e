"""A recording that is kept in memory and goes to no store: what a session writes to where somebody else takes the trace.

Always true: nothing here waits, raises or is written to a disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from counterpoint.recorder.lanes import RecordingSession
from counterpoint.recorder.recorder import MemorySink
from counterpoint.trace import Trace, summed_costs


class MemoryRun(MemorySink):
    """One recording in memory."""

    trouble = None

    def __init__(self, trace_id: str, task_id: str) -> None:
        super().__init__()
        self.trace_id, self.task_id = trace_id, task_id
        self.rewards: dict[str, Any] = {}
        """What the recorded code has paid, once its recording has ended."""

    def sync(self) -> None:
        """Nothing is waited for."""

    def sync_async(self) -> asyncio.Future[None]:
        """Nothing is waited for."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def is_crowded(self, most: int) -> bool:
        """It is held in memory anyway."""
        return False

    def drop_refused(self) -> list[Any]:
        """Nothing is refused."""
        return []

    def release(self) -> None:
        """The recording breaks off."""

    def finish(self, rewards: Any, costs: Any, metrics: Any, meta: dict[str, Any]) -> Trace:
        """The trace."""
        self.rewards, events = dict(rewards), list(self.events.values())
        return Trace(
            trace_id=self.trace_id, task_id=self.task_id, events=events, edges=self.edges, contents=self.contents,
            rewards=self.rewards, metrics=metrics, costs=dict(summed_costs(events)) | dict(costs or {}), meta=dict(meta),
        )  # fmt: skip


class Captured:
    """The recordings that code begins while `playing` holds this: kept here, none in a store (`replaying.Replaying`).

    The first is the one around the code; one that the code begins itself takes its place.
    """

    def __init__(self, trace_id: str, task_id: str) -> None:
        self._ids = trace_id, task_id
        self.sessions: list[RecordingSession] = []
        self.on_own: Callable[[], None] = lambda: None
        """Called when the code begins a recording itself."""

    def session(self, agent: str, guard: Any) -> RecordingSession:
        """The session of the recording that begins."""
        if len(self.sessions) == 1:
            self.sessions[0].is_over = True
            self.on_own()
        made = RecordingSession(MemoryRun(*self._ids), agent, guard)  # type: ignore[arg-type]
        self.sessions.append(made)
        return made

    @property
    def longest(self) -> RecordingSession:
        """Of several recordings the one with the most events."""
        return max(self.sessions, key=lambda one: one.recorder.count)

    def trace(self) -> Trace:
        """What the longest recording holds."""
        session = self.longest
        with session.lanes.lock:
            run: Any = session.run
            return run.finish(session.rewards or run.rewards, {}, session.metrics or None, {})
