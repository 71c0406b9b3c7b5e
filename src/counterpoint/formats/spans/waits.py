"""What a span waited for: the spans beside it, under one parent, that were over when it began.

A program that starts B after A has ended waited for A, whether or not a model read what A gave: three sub-agents one after the
other take the sum of their times. Wrappers (workflows, nodes, tools around an agent) are looked through.

Always true: what is waited for had ended; spans that begin together wait for the same; what an agent does inside waits for
nothing outside it, for its spawn does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Of many that ended at one barrier the last ones say how long it took: edges grow with the spans and not with their square.
_MOST = 16


@dataclass(slots=True)
class _Frame:
    """What happened so far under one parent, in time."""

    over: list[str] = field(default_factory=list)
    """Events that were over when the latest span began."""
    fresh: list[str] = field(default_factory=list)
    """Events that ended since then."""


class Waits:
    """Told of every beginning and end in the order of time."""

    def __init__(self) -> None:
        self._frames: dict[str, _Frame] = {}

    def begins(self, name: str, parent: str | None, *, is_wrapper: bool) -> list[str]:
        """A span begins: the events it waited for. What is inside a wrapper waits for what the wrapper waited for."""
        frame = self._frames.get(parent) if parent is not None else None
        if frame is not None and frame.fresh:
            frame.over, frame.fresh = frame.fresh[-_MOST:], []
        before = frame.over if frame is not None else []
        self._frames[name] = _Frame(list(before) if is_wrapper else [])
        return before

    def ends(self, name: str, parent: str | None, event: str | None) -> None:
        """A span is over, and with it its event; a wrapper, which has none, hands on what ended last inside it."""
        mine = self._frames.pop(name, None)
        frame = self._frames.get(parent) if parent is not None else None
        if frame is not None:
            frame.fresh += [event] if event is not None else mine.fresh[-_MOST:] if mine is not None else []
