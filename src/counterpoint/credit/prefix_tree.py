"""Traces that share their beginning, as a tree: siblings are what was said next after the same words.

Always true: two actions are one node when they, and everything before them in their traces, agree in who, what kind and which
content. The last action of a trace is a sample of its own even where another trace ends on the same words. A node's value is
the mean reward of the traces that pass through it.

What was passed over (a noop) has no words: it is told by what was not done.

Two samples of the same text in the middle of a trace cannot be told apart by content; `sample` (a function of an event) can.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from counterpoint.credit.rows import actions
from counterpoint.errors import NotIdentified
from counterpoint.trace import Event, Trace


class Step(NamedTuple):
    """An action of a trace and its place in the tree."""

    trace: int
    place: int
    """In the trace's events."""
    parent: int
    """The node of everything before it; the same number means the same prefix."""
    node: int
    depth: int


class PrefixTree(NamedTuple):
    """All steps, trace by trace, and what became of each node."""

    steps: list[Step]
    value_N: np.ndarray
    """Mean reward of the traces through each node."""
    leaves_N: np.ndarray
    """How many there are."""

    def first_steps(self) -> list[int]:
        """For each node that is a step, the first step that reached it: a node counts once, however many traces pass."""
        seen: dict[int, int] = {}
        for i, step in enumerate(self.steps):
            seen.setdefault(step.node, i)
        return list(seen.values())


def _said(event: Event) -> Hashable:
    """What tells an action from another one after the same prefix; None where nothing does."""
    if event.content_ref is None and event.decision is not None:
        return event.decision, str((event.extra or {}).get("sub_decision"))
    return event.content_ref


def tree_of(
    traces: Sequence[Trace],
    keys: Sequence[Hashable],
    rewards: Sequence[float],
    sample: Callable[[Event], Hashable] | None = None,
) -> PrefixTree:
    """The forest of these traces, one tree per key."""
    number: dict[tuple[Any, ...], int] = {}
    steps: list[Step] = []
    through: list[tuple[int, float]] = []
    for i, (trace, key) in enumerate(zip(traces, keys, strict=True)):
        node = number.setdefault(("root", key), len(number))
        own = actions(trace)
        for depth, place in enumerate(own):
            event = trace.events[place]
            said = sample(event) if sample is not None else _said(event)
            if said is None:
                raise NotIdentified(
                    f"event {event.id!r} has no content: shared prefixes cannot be seen",
                    "record contents, or give sample=",
                    where=trace.trace_id,
                )
            last = i if place == own[-1] else None
            parent, node = node, number.setdefault((node, event.agent, event.type, said, last), len(number))
            steps.append(Step(i, place, parent, node, depth))
            through.append((node, rewards[i]))
    nodes = np.array([n for n, _ in through], np.int64)
    leaves = np.bincount(nodes, minlength=len(number))
    sums = np.bincount(nodes, [r for _, r in through], len(number))
    return PrefixTree(steps, sums / np.maximum(leaves, 1), leaves)
