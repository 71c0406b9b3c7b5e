"""Who set each agent span to work: its caller, a handoff, the workflow, or the one before it.

Always true: it is found before anything is put down, because a handoff names an agent that comes later; an agent span has one
of these at most.
"""

from __future__ import annotations

from itertools import pairwise

from counterpoint.formats.spans.nests import MAIN, Nest


class Entries:
    """The agent spans of a nest and how each came to work."""

    def __init__(self, nest: Nest, calls: set[str]) -> None:
        self.nest, self.spans = nest, nest.spans
        agents = [n for n in nest.order if n in nest.agents]
        boss = nest.boss
        self.inner = {n for n in agents if (b := boss[n]) is not None and nest.agents[b] == nest.agents[n]}
        """Agent spans inside another of the same agent."""
        self.payers = self._payers(calls)
        acting = {nest.root[n] for n in nest.order if boss[n] is None and self._acts(n)}
        self.tops = sorted(
            (n for n in agents if boss[n] is None and nest.via[n] is None), key=lambda n: (nest.starts[n], nest.place[n])
        )
        self._join_turns()
        self.instances = set(nest.agents.values())
        self.named = {s.agent: nest.agents[n] for n in reversed(agents) if (s := self.spans[n]).agent}
        """Agent name to its first instance."""
        self.targets: dict[str, str] = {}
        """Handoff span to the instance that control passes to."""
        self.handed: set[str] = set()
        self._hand_off(agents)
        self.led = self._led(acting)
        self.last = {nest.agents[n]: n for n in agents}
        """Instance to its last span."""
        self.before: dict[str, str] = {}
        """Agent span to the instance that worked before it under the same workflow."""
        self._follow()

    def _acts(self, name: str) -> bool:
        span = self.spans[name]
        return span.kind in ("llm", "tool", "retriever") and span.agent is None and span.agent_id is None

    def _payers(self, calls: set[str]) -> set[str]:
        """Agent spans with tokens, inside which no model call and no other agent has any."""
        paid = {n for n in self.nest.agents if self.spans[n].usage is not None}
        inside: set[str] = set()
        for name in reversed(self.nest.order):
            span, parent = self.spans[name], self.nest.parent[name]
            counts = name in inside or (name in calls and span.usage is not None) or name in paid
            if name in inside:
                paid.discard(name)
            if counts and parent is not None:
                inside.add(parent)
        return paid

    def _join_turns(self) -> None:
        """Spans of one name under one workflow, one after the other, are turns of one agent."""
        latest: dict[tuple[str, str], str] = {}
        for name in self.tops:
            span, root = self.spans[name], self.nest.root[name]
            if span.agent_id is None and span.agent and root != name:
                before = latest.get((root, span.agent))
                if before is not None and not self.nest.overlap(before, name):
                    self.nest.agents[name] = self.nest.agents[before]
                latest[root, span.agent] = name

    def _led(self, acting: set[str]) -> dict[str, str]:
        """Top agents that the main agent leads, with the rule: it acts beside them, or they run at one time."""
        led: dict[str, str] = {}
        groups: dict[str, list[str]] = {}
        for name in self.tops:
            if self.nest.root[name] != name and name not in self.handed:
                groups.setdefault(self.nest.root[name], []).append(name)
        for root, names in groups.items():
            at_once = any(self.nest.overlap(a, b) for a, b in pairwise(names))
            if root in acting:
                led.update(dict.fromkeys(names, "agent spans beside steps of the main agent"))
            elif at_once:
                led.update(dict.fromkeys(names, "agent spans of one workflow at one time"))
        return led

    def _hand_off(self, agents: list[str]) -> None:
        """Each handoff passes control to the next agent span of that name, or to the one of that name that is running."""
        waiting: dict[str, list[str]] = {}
        for name in sorted(agents, key=lambda n: (-self.nest.starts[n], -self.nest.place[n])):
            span = self.spans[name]
            for key in {span.agent, span.agent_id, span.name} - {None}:
                waiting.setdefault(str(key), []).append(name)
        handoffs = [n for n in self.nest.order if self.spans[n].kind == "handoff" and self.spans[n].to]
        for name in sorted(handoffs, key=lambda n: (self.nest.starts[n], self.nest.place[n])):
            there = waiting.get(str(self.spans[name].to), [])
            before = []
            while there and (there[-1] in self.handed or self.nest.starts[there[-1]] < self.nest.starts[name]):
                before.append(there.pop())
            if there:
                self.handed.add(there[-1])
                self.targets[name] = self.nest.agents[there[-1]]
            elif running := [n for n in before if self.nest.overlap(n, name)]:
                self.targets[name] = self.nest.agents[running[-1]]

    def _follow(self) -> None:
        latest: dict[str, str] = {}
        for name in self.tops:
            root = self.nest.root[name]
            if root == name or name in self.nest.orphans:
                continue
            before = latest.get(root)
            if before is not None and name not in self.led and name not in self.handed:
                is_other = self.nest.agents[before] != self.nest.agents[name]
                if is_other and not self.nest.overlap(before, name):
                    self.before[name] = self.nest.agents[before]
            latest[root] = name

    def boss_of(self, name: str) -> str | None:
        """The instance that an agent span's agent works for."""
        above = self.nest.boss[name]
        if above is not None:
            return self.nest.agents[above] if self.nest.agents[above] != self.nest.agents[name] else None
        return MAIN if name in self.led or self.nest.via[name] is not None else None
