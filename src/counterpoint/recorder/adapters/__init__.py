"""Recorders for other people's frameworks, one file each, and what they share: which scope each run of a framework works in.

Always true: a framework is imported only with its file; what it says about a run whose beginning it never told is the work of the
agent that acts here; nothing is recorded where the recording is not running.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from counterpoint.recorder.lanes import Scope
from counterpoint.recorder.recording import ROOT, Recording


class Places:
    """Runs that have begun and not ended, by the framework's id."""

    def __init__(self, recording: Recording, locate: Callable[[], Hashable | None]) -> None:
        """`locate` gives the id of the run that the calling task or thread is in."""
        self.recording = recording
        self._at: dict[Hashable, Scope] = {}
        self._locate = locate

    def above(self, parent: Hashable | None) -> Scope | None:
        """The scope that a run below `parent` begins in."""
        outer = self._at.get(parent) if parent is not None else None
        if outer is not None and not outer.session.is_over:
            return outer
        scope = self.recording.here()
        if scope is not None and self._here not in scope.session.locators:
            scope.session.locators.append(self._here)
        return scope

    def _here(self) -> Scope | None:
        return self._at.get(self._locate())

    def put(self, run: Hashable, scope: Scope | None) -> None:
        """A run has begun: what is below it works in this scope."""
        if scope is not None:
            self._at[run] = scope

    def take(self, run: Hashable) -> Scope | None:
        """A run has ended."""
        return self._at.pop(run, None)

    def of(self, run: Hashable) -> Scope | None:
        """The scope of a run."""
        return self._at.get(run)


def name_root(scope: Scope, name: str) -> None:
    """The team's first agent is the root, where the recording was not told of another and nothing has been done."""
    lane, lanes = scope.session.root.lane, scope.session.lanes
    if lane.agent == ROOT and lane.latest is None and not lane.at_work and name not in lanes.lanes:
        lanes.lanes[name] = lanes.lanes.pop(ROOT)
        lane.agent = lane.role = name


def do(scope: Scope | None, method: str, *args: Any, **kwargs: Any) -> Any:
    """Record an act in a scope."""
    if scope is None:
        return None
    return scope.session.do(getattr(scope.session.lanes, method), scope, *args, **kwargs)
