"""The critical path of a trace: the chain of dependent events that took longest.

Always true: every moment counts once, so it is at most the span of the events and at most the agents' busy time together; what
its events add sums to its length. Without times it is measured in tokens, without tokens in steps.

In seconds the length of a chain e_1 .. e_k is

    sum over i < k of |busy(e_i) before begin(e_i+1)|  +  |busy(e_k)|

where busy(e) is the time that e adds to its agent's busy time (`busy.pieces`), from begin(e) on: an event counts until the next
one of the chain begins. What an agent does inside a longer event of its own adds nothing; a chain may go from the longer event
straight to what depends on the inner one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from counterpoint.trace.busy import Pieces, pieces, seconds
from counterpoint.trace.graph import Graph
from counterpoint.trace.link import Ints
from counterpoint.trace.team import Team, begins

Unit = Literal["s", "tokens", "steps"]


class CriticalPath(NamedTuple):
    """A chain of dependent events."""

    unit: Unit
    """What it is measured in."""
    length: float
    events: list[int]
    """Places in `trace.events`, first to last."""
    adds: list[float]
    """What each of its events adds; they sum to `length`."""


def critical_path(team: Team, *, cut: Pieces | None = None) -> CriticalPath | None:
    """The path in seconds where durations are recorded, else in tokens, else in steps; None where no edge says what waited.

    `cut`, when given, is the team's busy time, worked out before.
    """
    cut = cut or pieces(team, *seconds(team))
    if bool((cut.end_E > cut.start_E).any()):
        return path_in_seconds(team, cut)
    events = team.trace.events
    tokens_E = np.array([(e.tokens_in or 0) + (e.tokens_out or 0) for e in events], np.float64)
    unit: Unit = "tokens" if bool(tokens_E.any()) else "steps"
    return path_in(team, unit, tokens_E if unit == "tokens" else team.steps_E().astype(np.float64))


def path_in(team: Team, unit: Unit, weight_E: np.ndarray) -> CriticalPath | None:
    """The heaviest chain where each event has its weight; None without edges or weight."""
    if not _is_linked(team):
        return None
    length, path = team.critical_path(weight_E)
    return CriticalPath(unit, length, path, weight_E[path].tolist()) if length else None


def path_in_seconds(team: Team, cut: Pieces) -> CriticalPath | None:
    """The longest chain in time; None without edges or durations."""
    if not _is_linked(team):
        return None
    order, graph = team.order_E, team.in_order
    begin = begins(team.trace)[order]
    start, end = np.maximum(cut.start_E[order], begin), cut.end_E[order]
    src, dst = _with_shortcuts(team, graph, begin, end)
    graph = Graph(graph.n, src, dst)
    along = np.minimum(end[graph.src], begin[graph.dst]) - start[graph.src]
    length, places, adds = graph.heaviest(np.maximum(end - start, 0.0), np.maximum(along, 0.0))
    return CriticalPath("s", length, order[places].tolist(), adds) if length else None


def _is_linked(team: Team) -> bool:
    return bool(len(team.trace.edges)) or len(team.trace.events) == 1


def _with_shortcuts(team: Team, graph: Graph, begin: np.ndarray, end: np.ndarray) -> tuple[Ints, Ints]:
    """The edges in the story's numbers, with one from each longer event to what depends on an event inside it."""
    cover = _covers(team.agent_E[team.order_E], begin, end)
    inside = cover[graph.src]
    # Where the dependent begins no later than the longer event, there is nothing to gain (and no order of the two).
    gains = np.flatnonzero((inside >= 0) & (begin[graph.dst] > begin[inside]))
    if not len(gains):
        return graph.src, graph.dst
    return np.concatenate((graph.src, inside[gains])), np.concatenate((graph.dst, graph.dst[gains]))


def _covers(agent: np.ndarray, begin: np.ndarray, end: np.ndarray) -> Ints:
    """For each event, in the story's order, the earlier one of its agent that is still busy when it is over; -1 for none."""
    by = np.argsort(agent, kind="stable")
    n, sorted_agent = len(by), agent[by]
    is_first = np.concatenate(([True], sorted_agent[1:] != sorted_agent[:-1]))
    values, rank = np.unique(end[by], return_inverse=True)
    lift = np.cumsum(is_first) * len(values)
    # The running latest end of each agent, and whose it is: of equals the earlier.
    latest = np.maximum.accumulate((rank + lift).astype(np.int64) * n + np.arange(n - 1, -1, -1))
    before = np.concatenate(([-1], latest[:-1]))
    holder = n - 1 - before % n
    is_inside = ~is_first & (before // n >= rank + lift) & (values[np.where(is_first, 0, before // n - lift)] > begin[by])
    cover = np.full(n, -1, np.int32)
    cover[by] = np.where(is_inside, by[holder], -1)
    return cover
