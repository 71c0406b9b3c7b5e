"""What measures and detectors read from a trace, as arrays, each worked out once.

Always true: facts are what the records say; where they say nothing there is a mask that says so (`has_tokens_E`, `has_dur_E`).
Information flows along every edge but one kind: a `temporal` edge between two agents says when, not what was read. Within one
agent a temporal edge is its memory.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from counterpoint.trace import Event, Graph, Trace
from counterpoint.trace.critical_path import CriticalPath, Pieces, critical_path, has_seconds, pieces, seconds, work
from counterpoint.trace.memo import memo
from counterpoint.trace.quantities import has_times, span_s
from counterpoint.trace.team import CriticalSteps, critical_steps, team_of
from counterpoint.trace.vocabulary import ACTING, EDGE_TYPES, OUTSIDE_ROLES

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_TEMPORAL = EDGE_TYPES.index("temporal")
ACTIONS = (*ACTING, "return")
"""What an agent does that can help: its acts, and handing over its result."""
_MOST = 1 << 40


class Facts:
    """One trace, looked at."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.team = team_of(trace)
        self.graph: Graph = trace.graph

    @property
    def events(self) -> list[Event]:
        return self.trace.events

    @property
    def n(self) -> int:
        return len(self.trace.events)

    def in_story(self, mask_E: Mask) -> list[int]:
        """The marked events in the story's order."""
        order: list[int] = self.team.order_E[mask_E[self.team.order_E]].tolist()
        return order

    # -- amounts -------------------------------------------------------------------------------------------------

    @cached_property
    def tokens_in_E(self) -> Counts:
        return _counts([e.tokens_in or 0 for e in self.events])

    @cached_property
    def tokens_out_E(self) -> Counts:
        return _counts([e.tokens_out or 0 for e in self.events])

    @cached_property
    def tokens_E(self) -> Counts:
        return self.tokens_in_E + self.tokens_out_E

    @cached_property
    def has_tokens_E(self) -> Mask:
        return np.array([e.tokens_in is not None or e.tokens_out is not None for e in self.events], np.bool_)

    @cached_property
    def cost_E(self) -> Floats:
        return np.array([e.cost_usd or 0.0 for e in self.events], np.float64)

    @cached_property
    def has_cost_E(self) -> Mask:
        return np.array([e.cost_usd is not None for e in self.events], np.bool_)

    @cached_property
    def failed_E(self) -> Mask:
        """Events that went wrong, each failure once (`Trace.failures`)."""
        out = np.zeros(self.n, np.bool_)
        out[self.trace.failures] = True
        return out

    @cached_property
    def thinks_E(self) -> Mask:
        """Events that a member's model wrote: those that ought to carry tokens."""
        return self.team.of_types(ACTIONS) & self.team.is_member_A[self.team.agent_E]

    # -- time ----------------------------------------------------------------------------------------------------

    @cached_property
    def t_E(self) -> Floats:
        return np.array([e.t for e in self.events], np.float64)

    @cached_property
    def dur_E(self) -> Floats:
        """Durations in seconds, 0 where none is recorded."""
        return np.where(self.has_dur_E, np.array([e.dur or 0.0 for e in self.events], np.float64), 0.0)

    @cached_property
    def has_dur_E(self) -> Mask:
        """Events whose duration in seconds is recorded."""
        return has_seconds(self.team)

    @cached_property
    def work_E(self) -> Mask:
        """Events that are work of a member of the team."""
        return work(self.team)

    @cached_property
    def pieces(self) -> Pieces:
        """The busy time that each work event adds to its agent's."""
        return pieces(self.team, *seconds(self.team))

    @cached_property
    def makespan(self) -> float:
        """From the first start to the last end; 0 without times."""
        return float(span_s(self.events)) if has_times(self.trace.meta) else 0.0

    @cached_property
    def path(self) -> CriticalPath | None:
        """The critical path: in seconds, else in tokens, else in steps."""
        return critical_path(self.team, cut=self.pieces)

    @cached_property
    def spans(self) -> tuple[Floats, Floats]:
        """The start of each agent's first work and the end of its last."""
        first, last = np.full(len(self.team), np.inf), np.full(len(self.team), -np.inf)
        works = np.flatnonzero(self.work_E)
        np.minimum.at(first, self.team.agent_E[works], self.t_E[works])
        np.maximum.at(last, self.team.agent_E[works], self.t_E[works] + self.dur_E[works])
        return first, last

    @cached_property
    def returned(self) -> set[int]:
        """Agents that returned."""
        return set(self.team.agent_E[self.team.of_types(("return",))].tolist())

    # -- steps ---------------------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> CriticalSteps:
        return critical_steps(self.team)

    @cached_property
    def steps_E(self) -> Mask:
        return self.team.steps_E()

    @cached_property
    def steps_path(self) -> tuple[float, list[int]]:
        """The longest chain of dependent steps."""
        return self.team.critical_path(self.steps_E)

    # -- what was read -------------------------------------------------------------------------------------------

    @cached_property
    def _informs(self) -> Mask:
        agent_E = self.team.agent_E
        return (self.graph.edge_type != _TEMPORAL) | (agent_E[self.graph.src] == agent_E[self.graph.dst])

    @cached_property
    def info(self) -> Graph:
        """The graph of information: what may have flowed where."""
        keep, graph = self._informs, self.graph
        return graph if bool(keep.all()) else Graph(graph.n, graph.src[keep], graph.dst[keep], order=graph.order)

    @cached_property
    def used_E(self) -> Mask:
        """Events that some later event read."""
        out = np.zeros(self.n, np.bool_)
        out[self.info.src] = True
        return out

    @cached_property
    def read_E(self) -> Mask:
        """Events that an event of another agent read."""
        out = np.zeros(self.n, np.bool_)
        agent_E = self.team.agent_E
        out[self.info.src[agent_E[self.info.src] != agent_E[self.info.dst]]] = True
        return out

    @cached_property
    def result(self) -> tuple[list[int], str]:
        """The events that are the result, and the rule by which they are.

        Every aggregate of the orchestrator and its last stop decision (what it aggregated once stays in its context); else
        the last return to it; else its last act, or where nobody leads (several roots, no spawn) the last act of all. The
        orchestrator is `TraceTeam.main`.
        """
        team, main = self.team, self.team.main
        if main is None:
            return [], "no agent acts"
        own = [i for i in team.events_of(("aggregate",)) if team.agent_E[i] == main]
        stops = [i for i in team.events_of(("orchestrator_decision",)) if self.events[i].decision == "stop"]
        own += [i for i in stops if team.agent_E[i] == main][-1:]
        who = team.names[main]
        if own:
            return own, f"{who}'s aggregates and stop"
        returns = [i for i in team.events_of(("return",)) if self.events[i].to == who]
        if returns:
            return returns[-1:], f"the last return to {who}"
        if len(team.roots) > 1 and not team.children[main]:
            acts = [i for i in team.events_of(ACTIONS) if team.is_member_A[team.agent_E[i]]]
            return acts[-1:], "the last act of a team that nobody leads"
        acts = [i for i in team.events_of(ACTIONS) if team.agent_E[i] == main]
        return acts[-1:], f"{who}'s last act"

    @cached_property
    def result_t(self) -> float:
        """When the result was there."""
        return max((float(self.t_E[i]) for i in self.result[0]), default=float("inf"))

    @cached_property
    def relevant_E(self) -> Mask:
        """The result, and all events that it depends on through what was read."""
        info = self.info
        return Graph(info.n, info.dst, info.src, order=np.ascontiguousarray(info.order[::-1])).reach(self.result[0])

    @cached_property
    def is_sub_A(self) -> Mask:
        """Sub-agents: all members but the orchestrator."""
        out = self.team.is_member_A.copy()
        if self.team.main is not None:
            out[self.team.main] = False
        return out

    @cached_property
    def acts_A(self) -> tuple[Counts, Counts]:
        """What each agent did that can help, and how much of it the result depends on: the one definition of useful work.

        Nothing counts where no edge says what was read.
        """
        acts_E = self.team.of_types(ACTIONS) & bool(self.graph.m)
        return self.team.per_agent(acts_E), self.team.per_agent(acts_E & self.relevant_E)

    @cached_property
    def sub_acts(self) -> tuple[int, int]:
        """The same of all sub-agents together."""
        acts_A, useful_A = self.acts_A
        return int(acts_A[self.is_sub_A].sum()), int(useful_A[self.is_sub_A].sum())

    # -- messages ------------------------------------------------------------------------------------------------

    @cached_property
    def messages(self) -> list[int]:
        """Messages between agents of the team, in the story's order."""
        return [i for i in self.team.events_of(("message",)) if self._is_between(self.events[i])]

    @cached_property
    def between(self) -> frozenset[int]:
        """The same as a set."""
        return frozenset(self.messages)

    @cached_property
    def _is_team(self) -> bool:
        return int(self.team.is_member_A.sum()) > 1

    def _is_between(self, event: Event) -> bool:
        team = self.team
        sender, receiver = event.from_ or event.agent, event.to
        a = team.number.get(sender)
        if a is None or not team.is_member_A[a]:
            return False
        if receiver is None:  # to everybody, unless an importer says that it only thought aloud
            return self._is_team and not (event.extra or {}).get("aloud")
        b = team.number.get(receiver)
        return receiver != sender and receiver not in OUTSIDE_ROLES and (b is None or bool(team.is_member_A[b]))

    def text(self, i: int) -> str | None:
        return self.trace.text(self.events[i])

    @property
    def role_A(self) -> list[str | None]:
        """The role of each agent."""
        return self.team.role_A


def facts_of(trace: Trace) -> Facts:
    """The facts of a trace, one for all who hold them."""
    return memo(trace, "_facts", Facts)


def _counts(values: list[int]) -> Counts:
    """Counts as an array; one that no machine word holds is as many as can still be added up."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return np.array([min(value, _MOST) for value in values], np.int64)
