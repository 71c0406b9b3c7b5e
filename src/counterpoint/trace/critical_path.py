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

from counterpoint.trace.graph import Graph
from counterpoint.trace.link import Ints
from counterpoint.trace.quantities import has_times
from counterpoint.trace.team import Floats, Mask, TraceTeam, begins

# -- Busy time: how much each event adds to its agent's, and how many agents run at once ------------------------------
# Always true: the pieces of one agent are disjoint, so nested and overlapping spans count once, and their sum over agents is
# the serial time. Nothing here depends on the order of events in the file.

# A spawn's duration is often its sub-agent's whole life, and people and monitors are not the team: none of these is work.
_NO_WORK = ("spawn", "despawn", "human_intervention", "safety_event")


class Pieces(NamedTuple):
    """The time each event adds to its agent's busy time: disjoint within an agent, so nested spans count once."""

    start_E: Floats
    end_E: Floats

    @property
    def length_E(self) -> Floats:
        """Seconds that each event adds."""
        return self.end_E - self.start_E


def work(team: TraceTeam) -> Mask:
    """Events that are work of a member of the team."""
    return ~team.of_types(_NO_WORK) & team.is_member_A[team.agent_E]


def has_seconds(team: TraceTeam) -> Mask:
    """Events whose duration in seconds is recorded: none of a source without times."""
    events = team.trace.events
    if not has_times(team.trace.meta):
        return np.zeros(len(events), np.bool_)
    return np.fromiter((e.dur is not None and e.dur >= 0 for e in events), np.bool_, len(events))


def seconds(team: TraceTeam) -> tuple[Floats, Floats]:
    """Start and duration of each event that is work, 0 for what is no work or has no duration."""
    events = team.trace.events
    start_E = np.array([e.t for e in events], np.float64)
    dur_E = np.array([e.dur or 0.0 for e in events], np.float64)
    return start_E, np.where(work(team) & has_seconds(team), dur_E, 0.0)


def pieces(team: TraceTeam, start_E: Floats, dur_E: Floats) -> Pieces:
    """Cut each agent's intervals [start, start + dur) into disjoint pieces: an event gets what no earlier one covers.

    The pieces of an agent sum to the length of the union of its intervals, so no chain of events is longer than all work.
    """
    end_E = start_E + dur_E
    chosen = np.flatnonzero(dur_E > 0)
    if not len(chosen):
        return Pieces(start_E, start_E)
    agent = team.agent_E[chosen]
    by = chosen[np.lexsort((team.place_E[chosen], start_E[chosen], agent))]
    agent, end = team.agent_E[by], end_E[by]
    # The running latest end per agent: ends as ranks, lifted per agent, so that one accumulate serves all of them exactly.
    values, rank = np.unique(end, return_inverse=True)
    lift = np.cumsum(np.concatenate(([0], agent[1:] != agent[:-1]))) * len(values)
    latest = values[np.maximum.accumulate(rank + lift) - lift]
    before = np.concatenate(([-np.inf], latest[:-1]))
    before[np.concatenate(([True], agent[1:] != agent[:-1]))] = -np.inf
    begin_E, until_E = start_E.copy(), start_E.copy()
    begin_E[by] = np.maximum(start_E[by], before)
    until_E[by] = np.maximum(begin_E[by], end)
    return Pieces(begin_E, until_E)


def profile(cut: Pieces) -> tuple[Floats, Ints]:
    """How many agents run at once: times, and the count from each time until the next (the last is zero)."""
    has = cut.end_E > cut.start_E
    start, end = cut.start_E[has], cut.end_E[has]
    times, at = np.unique(np.concatenate((start, end)), return_inverse=True)
    change = np.bincount(at, np.repeat((1, -1), len(start)), minlength=len(times))
    return times, np.cumsum(change).astype(np.int32)


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


def critical_path(team: TraceTeam, *, cut: Pieces | None = None) -> CriticalPath | None:
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


def path_in(team: TraceTeam, unit: Unit, weight_E: np.ndarray) -> CriticalPath | None:
    """The heaviest chain where each event has its weight; None without edges or weight."""
    if not _is_linked(team):
        return None
    length, path = team.critical_path(weight_E)
    return CriticalPath(unit, length, path, weight_E[path].tolist()) if length else None


def path_in_seconds(team: TraceTeam, cut: Pieces) -> CriticalPath | None:
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


def _is_linked(team: TraceTeam) -> bool:
    return bool(len(team.trace.edges)) or len(team.trace.events) == 1


def _with_shortcuts(team: TraceTeam, graph: Graph, begin: np.ndarray, end: np.ndarray) -> tuple[Ints, Ints]:
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
