"""Threads of a timeline: slices of one thread nest or lie apart.

Always true: `place` is called in order of start; on one thread any two slices are either disjoint or one holds the other.
"""

from __future__ import annotations

from collections.abc import Iterator


class Lanes:
    """Thread numbers, from `first` on: one for each agent, and further ones where its slices would overlap in part."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._open: dict[str, list[tuple[int, list[int]]]] = {}
        """For each agent its threads: the number, and the ends of the slices that are open, the innermost last."""

    def place(self, agent: str, start: int, end: int) -> int:
        """The thread for a slice of the agent."""
        own = self._open.setdefault(agent, [])
        for number, ends in own:
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                return number
        own.append((self._next, [end]))
        self._next += 1
        return self._next - 1

    def threads(self) -> Iterator[tuple[int, str, int]]:
        """Every thread: its number, its agent, and whether it is the agent's first, second, ..."""
        for agent, own in self._open.items():
            for copy, (number, _) in enumerate(own, 1):
                yield number, agent, copy
