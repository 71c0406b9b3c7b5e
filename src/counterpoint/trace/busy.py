"""Busy time: how much each event adds to its agent's, and how many agents run at once.

Always true: the pieces of one agent are disjoint, so nested and overlapping spans count once, and their sum over agents is the
serial time. Nothing here depends on the order of events in the file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from counterpoint.trace.link import Ints
from counterpoint.trace.quantities import has_times
from counterpoint.trace.team import Floats, Mask, Team

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


def work(team: Team) -> Mask:
    """Events that are work of a member of the team."""
    return ~team.of_types(_NO_WORK) & team.is_member_A[team.agent_E]


def has_seconds(team: Team) -> Mask:
    """Events whose duration in seconds is recorded: none of a source without times."""
    events = team.trace.events
    if not has_times(team.trace.meta):
        return np.zeros(len(events), np.bool_)
    return np.fromiter((e.dur is not None and e.dur >= 0 for e in events), np.bool_, len(events))


def seconds(team: Team) -> tuple[Floats, Floats]:
    """Start and duration of each event that is work, 0 for what is no work or has no duration."""
    events = team.trace.events
    start_E = np.array([e.t for e in events], np.float64)
    dur_E = np.array([e.dur or 0.0 for e in events], np.float64)
    return start_E, np.where(work(team) & has_seconds(team), dur_E, 0.0)


def pieces(team: Team, start_E: Floats, dur_E: Floats) -> Pieces:
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
