"""Which replay of a team's own code is running here: what `counterpoint.record` asks before it opens a store.

Always true: outside a replay there is none; a replay is seen by the code that it runs, its tasks and its copied contexts alone.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from counterpoint.recorder.lanes import RecordingSession


class Replaying(Protocol):
    """A replay that the team's recording becomes a part of."""

    def session(self, agent: str, guard: Any) -> RecordingSession:
        """The session of the recording that begins."""


playing: ContextVar[Replaying | None] = ContextVar("counterpoint_replay", default=None)
"""The replay that runs here."""
