"""Whether a log was written by one clock or by several, and what to do where its times contradict its edges.

Logs of one machine have one clock: there a message that is later than the step which is said to have read it was not read by that
step, and the edge is wrong, not the time. Spans come from many processes. There an agent whose work seems to begin before what
set it to work has a clock of its own, if moving all of its work by one amount ends the contradiction and makes no new one.

Always true: an agent is moved as a whole, so that what it did lasts as long as its clock says; differences below `JITTER` are
the order in which records were written, and prove nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

Link = tuple[int, int, str]
"""Numbers of two events, and the kind of edge."""
JITTER = 1.0
"""Seconds."""
_STARTS = ("spawn", "message")


def backward(agents: Sequence[str], times: Sequence[float], links: Sequence[Link]) -> set[int]:
    """Numbers of the links by which an agent would have read another's message before it was sent."""
    late = {(s, d) for s, d, kind in links if kind == "message" and agents[s] != agents[d] and times[s] > times[d] + JITTER}
    return {k for k, (s, d, _) in enumerate(links) if (s, d) in late}


def one_time(agents: Sequence[str], times: Sequence[float], links: Sequence[Link]) -> tuple[list[float], int]:
    """Times by one clock, and how many events were moved for it: each agent with a clock of its own by one amount."""
    between = [(s, d, kind) for s, d, kind in links if agents[s] != agents[d]]
    into: dict[str, list[Link]] = {}
    out: dict[str, list[Link]] = {}
    for link in between:
        into.setdefault(agents[link[1]], []).append(link)
        out.setdefault(agents[link[0]], []).append(link)
    shift: dict[str, float] = {}
    # Who starts whom goes down: an agent is looked at after those that set it to work.
    for agent in _down(agents, between):
        own = shift.get(agent, 0.0)
        gap = max(
            (times[s] + shift.get(agents[s], 0.0) - times[d] - own for s, d, k in into.get(agent, ()) if k in _STARTS),
            default=0.0,
        )
        if gap > JITTER and _is_consistent(agent, gap, agents, times, shift, out):
            shift[agent] = gap
    moved = [t + shift.get(agent, 0.0) for agent, t in zip(agents, times, strict=True)]
    first = min(moved, default=0.0) if shift else 0.0  # time starts at 0 again
    return [round(t - first, 6) for t in moved] if shift else list(times), sum(agent in shift for agent in agents)


def _is_consistent(
    agent: str, gap: float, agents: Sequence[str], times: Sequence[float], shift: dict[str, float], out: dict[str, list[Link]]
) -> bool:
    """Whether nobody read what the agent gave before it gave it, once its clock is put right; its own sub-agents follow it."""
    reads = [(s, d) for s, d, kind in out.get(agent, ()) if kind not in _STARTS]
    return all(times[s] + gap <= times[d] + shift.get(agents[d], 0.0) + JITTER for s, d in reads)


def _down(agents: Sequence[str], between: Sequence[Link]) -> list[str]:
    """Agents, those that set others to work before those."""
    below: dict[str, dict[str, None]] = {}
    above: dict[str, set[str]] = {agent: set() for agent in agents}
    for s, d, kind in between:
        if kind == "spawn":
            below.setdefault(agents[s], {})[agents[d]] = None
            above[agents[d]].add(agents[s])
    ready = [agent for agent, bosses in above.items() if not bosses]
    for agent in ready:
        for child in below.get(agent, ()):
            above[child].discard(agent)
            if not above[child]:
                ready.append(child)
    return ready + [agent for agent, bosses in above.items() if bosses]
