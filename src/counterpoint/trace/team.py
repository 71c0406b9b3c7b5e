"""The team in a trace: who spawned whom, who acted when, and how much of it was parallel.

Always true: nothing here depends on the order of events in the file. The order used is the story's: by time, then by depth
in the graph, then by id. The spawn tree is a forest whatever the trace says: of two spawns of one agent the first counts, and
a spawn that would close a loop counts for nothing. Arrays carry their axis: `_E` events (places in `trace.events`), `_A` agents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.trace.graph import Graph
from counterpoint.trace.link import Ints
from counterpoint.trace.memo import memo
from counterpoint.trace.naming import agent_names
from counterpoint.trace.trace import Trace
from counterpoint.trace.vocabulary import ACTING, EVENT_TYPES

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]

_CODE = {name: code for code, name in enumerate(EVENT_TYPES)}
_SPAWN, _CALL, _RESULT, _RETURN = (_CODE[n] for n in ("spawn", "tool_call", "tool_result", "return"))


def story(trace: Trace) -> Ints:
    """Event numbers in the story's order: `begins`, depth in the graph, length of id, id. It is a topological order."""
    graph, events = trace.graph, trace.events
    t_E = begins(trace)
    level_E = graph.levels()
    order: Ints = np.lexsort((level_E, t_E)).astype(np.int32)
    same = (t_E[order[1:]] == t_E[order[:-1]]) & (level_E[order[1:]] == level_E[order[:-1]])
    if bool(same.any()):
        edge = np.diff(np.concatenate(([False], same, [False])).astype(np.int8))
        for first, last in zip(np.flatnonzero(edge == 1).tolist(), np.flatnonzero(edge == -1).tolist(), strict=True):
            run = order[first : last + 1].tolist()
            order[first : last + 1] = sorted(run, key=lambda i: (len(events[i].id), events[i].id))
    return order


def begins(trace: Trace) -> Floats:
    """When each event begins: its `t`, but no earlier than any of its causes."""
    graph = trace.graph
    t_E = np.array([e.t for e in trace.events], np.float64)
    if not bool((t_E[graph.src] > t_E[graph.dst]).any()):
        return t_E
    begin = t_E.tolist()
    for s, d in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        if begin[s] > begin[d]:
            begin[d] = begin[s]
    return np.array(begin)


class TraceTeam:
    """The agents of a trace as arrays: numbers follow their first appearance in the story."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        events = trace.events
        self.order_E: Ints = story(trace)
        """Event numbers in the story's order."""
        self.place_E: Ints = np.empty_like(self.order_E)
        """Event number to its place in the story."""
        self.place_E[self.order_E] = np.arange(len(events), dtype=np.int32)
        self.type_E = np.frombuffer(bytes([_CODE[e.type] for e in events]), np.uint8)
        """Codes into `EVENT_TYPES`."""
        actors = [e.agent for e in events]
        spawns = self.order_E[self.type_E[self.order_E] == _SPAWN].tolist()
        named = [to for i in spawns if (to := events[i].to) is not None]
        self.names: list[str] = list(dict.fromkeys([*map(actors.__getitem__, self.order_E.tolist()), *named]))
        """Agent number to name; an agent that was spawned and never acts has a number too."""
        self.number: dict[str, int] = {name: a for a, name in enumerate(self.names)}
        actor_E = np.fromiter(map(self.number.__getitem__, actors), np.int32, len(actors))
        self.parent_A, self.spawn_A = self._forest(spawns)
        self.is_member_A: Mask = np.fromiter((name in trace.members for name in self.names), np.bool_, len(self.names))
        """Who is in the team (`quantities.members`); the others are only heard."""
        self.agent_E: Ints = self._owners(actor_E)
        """Who an event counts for: its agent; the caller for a tool's own answer."""

    def __len__(self) -> int:
        return len(self.names)

    def _forest(self, spawns: Iterable[int]) -> tuple[Ints, Ints]:
        """Parent and spawn event of each agent, -1 for none. A union-find over tops keeps it linear and free of loops."""
        top = list(range(len(self.names)))
        parent, event = [-1] * len(top), [-1] * len(top)

        def find(a: int) -> int:
            while top[a] != a:
                top[a] = top[top[a]]
                a = top[a]
            return a

        for i in spawns:
            spawn = self.trace.events[i]
            if spawn.to is None:
                continue
            a, child = self.number[spawn.agent], self.number[spawn.to]
            if parent[child] < 0 and find(a) != child:
                parent[child], event[child], top[child] = a, i, a
        return np.array(parent, np.int32), np.array(event, np.int32)

    def _owners(self, actor_E: Ints) -> Ints:
        """A tool that answers under its own name is no agent: its results count for whoever called it."""
        strays = np.flatnonzero((self.type_E == _RESULT) & ~self.is_member_A[actor_E])
        if not len(strays):
            return actor_E
        owner_E = actor_E.copy()
        first, sources = self.trace.graph.parents
        for i in strays.tolist():
            before = sources[first[i] : first[i + 1]]
            calls = before[self.type_E[before] == _CALL]
            if len(calls):
                owner_E[i] = actor_E[calls[np.argmin(self.place_E[calls])]]
        return owner_E

    def of_types(self, types: Collection[str]) -> Mask:
        """Which events are of these types."""
        wanted = np.zeros(len(EVENT_TYPES), np.bool_)
        wanted[[_CODE[t] for t in types]] = True
        return wanted[self.type_E]

    def events_of(self, types: Collection[str]) -> list[int]:
        """The events of these types, in the story's order."""
        chosen: list[int] = self.order_E[self.of_types(types)[self.order_E]].tolist()
        return chosen

    # -- the spawn tree ------------------------------------------------------------------------------------------

    @cached_property
    def children(self) -> list[list[int]]:
        """The agents that each agent spawned, in the order of their spawns."""
        out: list[list[int]] = [[] for _ in self.names]
        spawned = np.flatnonzero(self.parent_A >= 0)
        for a in spawned[np.argsort(self.place_E[self.spawn_A[spawned]])].tolist():
            out[self.parent_A[a]].append(a)
        return out

    @cached_property
    def down(self) -> list[int]:
        """Every agent, spawners before the spawned."""
        out = [a for a, parent in enumerate(self.parent_A.tolist()) if parent < 0]
        for a in out:
            out.extend(self.children[a])
        return out

    @cached_property
    def depth_A(self) -> Ints:
        """Spawns between an agent and the top of its tree."""
        depth = [0] * len(self.names)
        parent = self.parent_A.tolist()
        for a in self.down:
            depth[a] = depth[parent[a]] + 1 if parent[a] >= 0 else 0
        return np.array(depth, np.int32)

    @cached_property
    def roots(self) -> list[int]:
        """Members that nobody spawned."""
        roots: list[int] = np.flatnonzero((self.parent_A < 0) & self.is_member_A).tolist()
        return roots

    @cached_property
    def main(self) -> int | None:
        """The orchestrator: the root with the most agents under it, then decisions and aggregates, then steps, then first."""
        if not self.roots:
            return None
        size = self.with_children(np.ones(len(self.names), np.int64))
        leads = self.per_agent(self.of_types(("orchestrator_decision", "aggregate")))
        acts = self.per_agent(self.of_types(ACTING))
        return max(self.roots, key=lambda a: (size[a], leads[a], acts[a], -a))

    @cached_property
    def role_A(self) -> list[str | None]:
        """The role of each agent: the first it acts in, else the one it was spawned for."""
        events, roles = self.trace.events, [None] * len(self.names)  # type: list[Any], list[str | None]
        for i, a in zip(self.order_E.tolist(), self.agent_E[self.order_E].tolist(), strict=True):
            if roles[a] is None and (event := events[i]).type != "spawn" and self.names[a] == event.agent:
                roles[a] = event.role
        for a, i in enumerate(self.spawn_A.tolist()):
            if roles[a] is None and i >= 0:
                roles[a] = events[i].role
        return roles

    @cached_property
    def label_A(self) -> list[str]:
        """What people call each agent (`naming.agent_names`)."""
        names = agent_names(self.trace)
        return [names.get(name, name) for name in self.names]

    # -- the story's graph ---------------------------------------------------------------------------------------

    @cached_property
    def in_order(self) -> Graph:
        """The graph with events numbered by their place in the story."""
        graph = self.trace.graph
        return Graph(len(self.order_E), self.place_E[graph.src], self.place_E[graph.dst])

    def critical_path(self, weight_E: NDArray[Any]) -> tuple[float, list[int]]:
        """`Graph.critical_path`, with ties broken by the story and not by the file."""
        total, places = self.in_order.critical_path(weight_E[self.order_E])
        path: list[int] = self.order_E[places].tolist()
        return total, path

    # -- per agent -----------------------------------------------------------------------------------------------

    def per_agent(self, weight_E: NDArray[Any]) -> NDArray[Any]:
        """The sum of a weight over each agent's own events; integers stay exact."""
        out = np.zeros(len(self.names), np.float64 if weight_E.dtype.kind == "f" else np.int64)
        weight = weight_E[self.order_E].astype(out.dtype, copy=False)  # adding from another type is several times slower
        np.add.at(out, self.agent_E[self.order_E], weight)  # in one order, so that floats add up the same
        return out

    def with_children(self, own_A: NDArray[Any]) -> NDArray[Any]:
        """Own plus that of every agent below in the spawn tree."""
        total, parent = own_A.tolist(), self.parent_A.tolist()
        for a in reversed(self.down):
            if parent[a] >= 0:
                total[parent[a]] += total[a]
        return np.array(total, own_A.dtype)

    def steps_E(self, acting: Collection[str] = ACTING) -> Mask:
        """Which events begin a step of a member: an acting event, or the first acting event of an (agent, turn) pair."""
        act_E = self.of_types(acting) & self.is_member_A[self.agent_E]
        turns = [e.turn for e in self.trace.events]
        if all(turn is None for turn in turns):
            return act_E
        has_turn = act_E & np.fromiter((turn is not None for turn in turns), np.bool_, len(turns))
        chosen = self.order_E[has_turn[self.order_E]]
        code: dict[tuple[int, int | None], int] = {}
        for i, a in zip(chosen.tolist(), self.agent_E[chosen].tolist(), strict=True):
            code.setdefault((a, turns[i]), i)
        out = act_E & ~has_turn
        out[list(code.values())] = True
        return out


def team_of(trace: Trace) -> TraceTeam:
    """The team of a trace, one for all who hold it."""
    return memo(trace, "_team", TraceTeam)


# -- critical steps --------------------------------------------------------------------------------------------------


class Stage(NamedTuple):
    """One stage of an agent's run: its own steps in it, the agents it spawned, and their critical steps."""

    agent: int
    own: int
    children: list[int]
    critical: list[int]


class CriticalSteps(NamedTuple):
    """PARL's critical steps, all steps, the stages behind them and the events on the critical way."""

    critical: int
    total: int
    stages: list[Stage]
    events_E: Mask
    ended: int
    """Spawned agents with a recorded return; the others are taken to end at their last event."""
    spawned: int


def critical_steps(team: TraceTeam) -> CriticalSteps:
    """Critical steps (PARL, Kimi K2.5, arXiv 2602.02276): sum over stages t of S_main(t) + max_i S_sub,i(t).

    Main is the root; a sub-agent's S is, in turn, the critical steps of its own subtree. A stage ends at the spawner's first
    step (or spawn, where its decision was not recorded) after an agent spawned in that stage has returned.
    Departures: the paper speaks of one main agent. With several roots the result is the largest root's, but no less than the
    longest chain of dependent steps, since roots that wait for each other do not run at once.
    """
    steps_E = team.steps_E(ACTING)
    own = team.per_agent(steps_E).tolist()
    ends, returned = _ends(team)
    entries = _entries(team, steps_E, ends)
    critical, slowest = list(own), [[] for _ in own]  # type: list[int], list[list[int]]
    stages: list[Stage] = []
    for a in reversed(team.down):
        if not team.children[a]:
            continue
        mine = [Stage(a, n, kids, [critical[c] for c in kids]) for n, kids in _stages(entries[a])]
        critical[a] = sum(s.own + max(s.critical, default=0) for s in mine)
        slowest[a] = [s.children[int(np.argmax(s.critical))] for s in mine if s.children]
        stages += mine
    top = max(team.roots, key=lambda a: (critical[a], -a), default=None)
    on_way = np.zeros(len(own), np.bool_)
    walk = [] if top is None else [top]
    for a in walk:
        on_way[a] = True
        walk.extend(slowest[a])
    best, events_E = 0 if top is None else critical[top], steps_E & on_way[team.agent_E]
    if len(team.roots) > 1:
        chain, path = team.critical_path(steps_E)
        if chain > best:
            best, events_E = int(chain), np.zeros_like(steps_E)
            events_E[path] = True
            events_E &= steps_E
    return CriticalSteps(best, int(steps_E.sum()), stages[::-1], events_E, returned, int((team.parent_A >= 0).sum()))


def _ends(team: TraceTeam) -> tuple[list[int], int]:
    """Where in the story each spawned agent ends (-1: it never acts), and how many did so by a return."""
    events, place = team.trace.events, team.place_E
    end = np.full(len(team), -1, np.int64)
    np.maximum.at(end, team.agent_E, place)
    spawned: set[int] = set()
    for i in team.events_of(("return",)):
        a = team.number.get(events[i].from_ or events[i].agent, -1)
        if a >= 0 and a not in spawned and team.spawn_A[a] >= 0 and place[team.spawn_A[a]] < place[i]:
            spawned.add(a)
            end[a] = place[i]
    return end.tolist(), len(spawned)


def _entries(team: TraceTeam, steps_E: Mask, ends: list[int]) -> dict[int, list[tuple[int, int, int]]]:
    """For every agent that spawned: its steps (0), its spawns (1) and the ends of the spawned (2), in the story's order."""
    has_children = np.zeros(len(team), np.bool_)
    has_children[team.parent_A[team.parent_A >= 0]] = True
    out: dict[int, list[tuple[int, int, int]]] = {a: [] for a in np.flatnonzero(has_children).tolist()}
    for i in np.flatnonzero(steps_E & has_children[team.agent_E]).tolist():
        out[int(team.agent_E[i])].append((int(team.place_E[i]), 0, -1))
    for child in np.flatnonzero(team.parent_A >= 0).tolist():
        mine = out[int(team.parent_A[child])]
        mine.append((int(team.place_E[team.spawn_A[child]]), 1, child))
        mine.append((ends[child], 2, child))
    for mine in out.values():
        mine.sort()
    return out


def _stages(entries: list[tuple[int, int, int]]) -> list[tuple[int, list[int]]]:
    """Cut one agent's entries into stages: its own steps and the agents it spawned in each."""
    out: list[tuple[int, list[int]]] = []
    own, spawned, is_over = 0, [], False  # type: int, list[int], bool
    members: set[int] = set()
    for _, kind, child in entries:
        if kind == 2:
            is_over = is_over or child in members
            continue
        if is_over:
            out.append((own, spawned))
            own, spawned, members, is_over = 0, [], set(), False
        if kind == 0:
            own += 1
        else:
            spawned.append(child)
            members.add(child)
    return [*out, (own, spawned)]
