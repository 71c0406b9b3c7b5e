"""A part of a trace: some agents with all below them, or a window of time.

Always true: what is kept is kept whole, events with the edges between them and the texts they refer to; a sum of costs is that of
the part, while rewards stay those of the whole run, because a part earns nothing by itself. What was taken is said in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.trace import Trace, summed_costs
from counterpoint.trace.quantities import has_times
from counterpoint.trace.team import TraceTeam, team_of


def part(trace: Trace, *, agents: Sequence[str] = (), window: tuple[float, float] | None = None) -> tuple[Trace, str]:
    """The part of a trace, and what it is in words; seconds count from the beginning of the trace."""
    team = team_of(trace)
    keep_E = np.ones(len(trace.events), np.bool_)
    words = []
    if agents:
        keep_E &= _of_agents(trace, team, agents)
        words.append("agents " + ", ".join(agents) + " and all below")
    if window is not None:
        keep_E &= _inside(trace, *window)
        words.append(f"seconds {window[0]:g} to {window[1]:g}")
    if not keep_E.any():
        raise NotFound("nothing is left of the trace", where=trace.trace_id, fix="a wider --window, or other --agents")
    events = [event for event, kept in zip(trace.events, keep_E.tolist(), strict=True) if kept]
    names = {event.id for event in events}
    edges = [edge for edge in trace.edges if edge.src in names and edge.dst in names]
    refs = {event.content_ref for event in events}
    contents = {ref: text for ref, text in trace.contents.items() if ref in refs}
    costs = dict(summed_costs(events))
    if not has_times(trace.meta):
        del costs["wall_clock_s"]
    if "cost_usd" in trace.costs:
        costs["cost_usd"] = math.fsum(event.cost_usd or 0.0 for event in events)
    words.append(f"{len(events):,} of {len(trace.events):,} events")
    note = f"a part of the trace: {'; '.join(words)}; rewards are the whole run's"
    return replace(trace, events=events, edges=edges, contents=contents, costs=costs), note


def _of_agents(trace: Trace, team: TraceTeam, agents: Sequence[str]) -> np.ndarray:
    """Events of the named agents and all below them, and the spawns that made them."""
    is_chosen = np.zeros(len(team), np.bool_)
    for name in agents:
        if name not in team.number:
            raise NotFound(f"no agent named {name!r}", where=trace.trace_id, fix=did_you_mean(name, team.names))
        is_chosen[team.number[name]] = True
    for a in team.down:  # spawners before the spawned
        is_chosen[a] |= team.parent_A[a] >= 0 and is_chosen[team.parent_A[a]]
    chosen = np.flatnonzero(is_chosen)
    keep_E = np.isin(team.agent_E, chosen)
    spawns = team.spawn_A[chosen]
    keep_E[spawns[spawns >= 0]] = True
    return keep_E


def _inside(trace: Trace, start: float, end: float) -> np.ndarray:
    """Events that touch the window."""
    if not end >= start:
        raise InputError("ends before it begins", where=f"--window {start:g}-{end:g}", fix="as in --window 12.5-40")
    t_E = np.array([event.t for event in trace.events], np.float64)
    over_E = t_E + np.array([event.dur or 0.0 for event in trace.events], np.float64)
    first = float(t_E.min()) if len(t_E) else 0.0
    kept: np.ndarray = (t_E - first <= end) & (over_E - first >= start)
    return kept
