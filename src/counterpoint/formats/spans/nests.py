"""How spans nest: parents that exist and form no circle, who is whose agent, who set each agent to work, and in what order.

`Entries` says who set each agent span to work: its caller, a handoff, the workflow, or the agent before it. It is found
before anything is put down, because a handoff names an agent that comes later.

Always true, whatever comes in: every span has at most one parent, which is another span of the trace; walking up ends; a span
begins after its parent and ends after what it waited for; nothing here recurses, so depth is no limit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import pairwise

from counterpoint.formats.importing.report import Report
from counterpoint.formats.spans.span import Span

MAIN = "main"
"""The agent that acts where no span is an agent's."""
_NEVER = float("inf")


class Nest:
    """The spans of one trace as a forest."""

    def __init__(self, spans: Iterable[Span], report: Report) -> None:
        self.report = report
        self.spans = _once(spans, report)
        _forget_shared(self.spans.values())
        self.parent = self._parents()
        self.adopted: dict[str, str] = {}
        """Agent span to the tool span in whose time it ran, where that is all that joins them."""
        self._build()
        if self._adopt():
            self.parent.update(self.adopted)
            self._cut_circles(self.parent)
            self._build()

    def _build(self) -> None:
        self.children: dict[str | None, list[str]] = {None: []}
        for name, parent in self.parent.items():
            self.children.setdefault(parent, []).append(name)
        self.starts = self._starts()
        self.order = self._preorder()
        self.place = {name: i for i, name in enumerate(self.order)}
        self.boss: dict[str, str | None] = {}
        """Span to the nearest agent span above it."""
        self.via: dict[str, str | None] = {}
        """Span to the nearest tool span between it and its boss."""
        self.outer: dict[str, str | None] = {}
        """Span to the nearest model call above it, with no tool or agent between."""
        self.root: dict[str, str] = {}
        self._walk()

    # -- parents ---------------------------------------------------------------------------------------------------------

    def _parents(self) -> dict[str, str | None]:
        parent: dict[str, str | None] = {}
        self.orphans: set[str] = set()
        """Spans whose parent is not in the trace."""
        for name, span in self.spans.items():
            known = span.parent is None or (span.parent in self.spans and span.parent != name)
            parent[name] = span.parent if known else None
            if not known:
                self.orphans.add(name)
        if self.orphans:
            self.report.lacks["the parents of some spans: taken for roots"] += len(self.orphans)
        self._cut_circles(parent)
        return parent

    def _cut_circles(self, parent: dict[str, str | None]) -> None:
        done: set[str] = set()
        for first in parent:
            path: dict[str, None] = {}
            at: str | None = first
            while at is not None and at not in done and at not in path:
                path[at] = None
                at = parent[at]
            if at is not None and at in path:
                circle = list(path)[list(path).index(at) :]
                earliest = min(circle, key=lambda n: (_or(self.spans[n].start, _NEVER), self.spans[n].order))
                parent[earliest] = None
                self.orphans.add(earliest)
                self.report.mended["spans that are their own ancestors"] += 1
            done.update(path)

    # -- order -----------------------------------------------------------------------------------------------------------

    def _down(self) -> Iterator[str]:
        """Parents before children."""
        stack = list(reversed(self.children[None]))
        while stack:
            name = stack.pop()
            yield name
            stack.extend(reversed(self.children.get(name, ())))

    def _starts(self) -> dict[str, float]:
        """When each span begins, never before its parent; what has no time begins with its parent."""
        starts: dict[str, float] = {}
        for name in self._down():
            parent = self.parent[name]
            floor = starts[parent] if parent is not None else -_NEVER
            starts[name] = max(_or(self.spans[name].start, floor), floor)
        return starts

    def _preorder(self) -> list[str]:
        for names in self.children.values():
            names.sort(key=lambda n: (self.starts[n], self.spans[n].order))
        return list(self._down())

    def moments(self) -> Iterator[tuple[str, bool]]:
        """Every span twice, at its beginning (True) and at its end (False), in an order that time and nesting both allow.

        An end waits for the ends of what the span contains, apart from other agents: those may outlive it.
        """
        waits = {name: sum(self._holds(c) for c in self.children.get(name, ())) for name in self.order}
        begun: set[str] = set()
        heap = [(self.starts[n], 1, self.place[n], n) for n in self.children[None]]  # sorted, and so a heap already
        while heap:
            time, phase, _, name = heapq.heappop(heap)
            if phase:
                begun.add(name)
                yield name, True
                for child in self.children.get(name, ()):
                    heapq.heappush(heap, (max(self.starts[child], time), 1, self.place[child], child))
                if not waits[name]:
                    self._push_end(heap, name, time)
                continue
            yield name, False
            parent = self.parent[name]
            if parent is not None and self._holds(name):
                waits[parent] -= 1
                if not waits[parent]:
                    self._push_end(heap, parent, time)

    def _push_end(self, heap: list[tuple[float, int, int, str]], name: str, time: float) -> None:
        heapq.heappush(heap, (max(_or(self.spans[name].end, time), self.starts[name], time), 0, -self.place[name], name))

    def _holds(self, child: str) -> bool:
        return self.spans[child].kind != "agent"

    # -- agents ----------------------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        """Boss, tool between, and root of every span. An agent span inside one of the same agent is a wrapper's inside."""
        self.agents: dict[str, str] = {}
        """Agent span to agent instance; spans of one agent share it."""
        for name in self.order:
            span, parent = self.spans[name], self.parent[name]
            boss: str | None = None
            via: str | None = None
            outer: str | None = None
            if parent is not None:
                kind = self.spans[parent].kind
                boss = parent if kind == "agent" else self.boss[parent]
                via = None if kind == "agent" else parent if kind == "tool" else self.via[parent]
                outer = parent if kind == "llm" else None if kind in ("agent", "tool") else self.outer[parent]
            self.root[name] = name if parent is None else self.root[parent]
            self.boss[name], self.via[name], self.outer[name] = boss, via, outer
            if span.kind == "agent":
                self.agents[name] = self._instance(name, boss, via)

    def _instance(self, name: str, boss: str | None, via: str | None) -> str:
        span = self.spans[name]
        if boss is None or via is not None:
            own = span.agent_id or name
            is_again = boss is not None and own == self.agents[boss]  # an agent that calls itself is another instance
            return f"{own}/{name}" if is_again else own
        above = self.spans[boss]
        same_id = span.agent_id is not None and span.agent_id == self.agents[boss]
        same_name = span.agent is not None and span.agent == above.agent and (span.agent_id is None or above.agent_id is None)
        return self.agents[boss] if same_id or same_name else span.agent_id or name

    def _adopt(self) -> bool:
        """Some tracers put every agent under the workflow: one that ran within one tool call of another is that tool's."""
        used = {self.via[n] for n in self.agents}
        tools: dict[str, list[str]] = {}
        for name in self.order:
            if self.spans[name].kind == "tool" and name not in used and self.spans[name].end is not None:
                tools.setdefault(self.root[name], []).append(name)
        everywhere = [name for some in tools.values() for name in some]
        for name in self.agents:
            if self.boss[name] is None and self.via[name] is None:
                # The agent may have a trace of its own: then the tool must be called after it, too.
                is_below = self.parent[name] is not None
                around = [t for t in (tools.get(self.root[name], ()) if is_below else everywhere) if self._surrounds(t, name)]
                if len(around) > 1 or not is_below:
                    around = [t for t in around if _names(self.spans[t], self.spans[name])]
                if len(around) == 1:
                    self.adopted[name] = around[0]
        return bool(self.adopted)

    def _surrounds(self, tool: str, agent: str) -> bool:
        outer, inner = self.spans[tool], self.spans[agent]
        if inner.start is None or inner.end is None or self.boss[tool] == agent:
            return False
        return _or(outer.start, _NEVER) <= inner.start and inner.end <= _or(outer.end, -_NEVER)

    def overlap(self, a: str, b: str) -> bool:
        """Whether two spans ran at the same time; False when a time is missing."""
        one, two = sorted((self.spans[a], self.spans[b]), key=lambda s: _or(s.start, -_NEVER))
        return one.end is not None and two.start is not None and one.end > two.start + 1e-6

    # -- model calls -----------------------------------------------------------------------------------------------------

    def leaves(self) -> tuple[set[str], dict[str, str]]:
        """The model calls that contain no other, and each wrapper of some with the last of them."""
        calls = [n for n in self.order if self.spans[n].kind == "llm"]
        wrappers = {self.outer[n] for n in calls}
        last: dict[str, str] = {}
        for name in calls:
            up = self.outer[name] if name not in wrappers else None
            while up is not None:
                last[up] = name
                up = self.outer[up]
        return {n for n in calls if n not in wrappers}, last


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
        self.defined = {s.definition: nest.agents[n] for n in reversed(agents) if (s := self.spans[n]).definition}
        """Id of what was configured to its first instance."""
        self.targets: dict[str, str] = {}
        """Handoff span to the instance that control passes to."""
        self.handed: set[str] = set()
        self._hand_off(agents)
        self.alone: dict[str, str] = {}
        """Root to the one agent below it: what is beside that agent is its work too, for one agent is no team."""
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
        """Spans of one agent under one workflow, one after the other, are its turns; so are its roots in one session."""
        latest: dict[tuple[str, str], str] = {}
        for name in self.tops:
            span, root = self.spans[name], self.nest.root[name]
            if span.agent_id is None and (called := span.definition or span.agent):
                key = root if root != name else "", called
                before = latest.get(key)
                if before is not None and not self.nest.overlap(before, name):
                    self.nest.agents[name] = self.nest.agents[before]
                latest[key] = name

    def _led(self, acting: set[str]) -> dict[str, str]:
        """Top agents that the main agent leads, with the rule: it acts beside them, or they run at the same time."""
        led: dict[str, str] = {}
        groups: dict[str, list[str]] = {}
        for name in self.tops:
            if self.nest.root[name] != name and name not in self.handed:
                groups.setdefault(self.nest.root[name], []).append(name)
        for root, names in groups.items():
            if len({self.nest.agents[n] for n in names}) == 1 and not self._has_others(root, names):
                self.alone[root] = self.nest.agents[names[0]]
                continue
            at_once = any(self.nest.overlap(a, b) for a, b in pairwise(names))
            if root in acting:
                led.update(dict.fromkeys(names, "agent spans beside steps of the main agent"))
            elif at_once:
                led.update(dict.fromkeys(names, "agent spans of one workflow at one time"))
        return led

    def _has_others(self, root: str, names: list[str]) -> bool:
        """Whether the steps beside an agent are of several agents, or a tool of theirs is what set it to work."""
        beside = [n for n in self.nest.order if self.nest.root[n] == root and self.nest.boss[n] is None and n not in names]
        return any(s.kind == "agent" or s.agent or s.agent_id or s.definition for n in beside if (s := self.spans[n]))

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


def _once(spans: Iterable[Span], report: Report) -> dict[str, Span]:
    """Spans by id: of a span that is recorded twice, the record that has its end, and the later of those.

    Two spans that only share an id are both kept, the second under another; this is counted.
    """
    by_id: dict[str, Span] = {}
    for span in spans:
        before = by_id.get(span.id)
        if before is not None and _differ(before, span):
            report.mended["spans that share the id of another span: kept under another id"] += 1
            k = 2
            while (name := f"{span.id}~{k}") in by_id and _differ(by_id[name], span):
                k += 1
            span.id = name
            before = by_id.get(name)
        elif before is not None and before.end is not None and span.end is not None and _speech(before) != _speech(span):
            report.mended["spans that are told twice and not alike: the later counts"] += 1
        if before is None or span.end is not None or before.end is None:
            by_id[span.id] = span
    return by_id


def _forget_shared(spans: Iterable[Span]) -> None:
    """An id that agents of several names share tells no agent from another."""
    names: dict[str, set[str]] = {}
    for span in spans:
        if span.definition and span.agent:
            names.setdefault(span.definition, set()).add(span.agent)
    for span in spans:
        if span.definition and len(names.get(span.definition, ())) > 1:
            span.definition = None


def _differ(a: Span, b: Span) -> bool:
    """Whether two records of one id are two spans: another name, kind or start."""
    return a.name != b.name or a.kind != b.kind or (a.start is not None and b.start is not None and abs(a.start - b.start) > 1e-3)


def _speech(span: Span) -> tuple[object, ...]:
    return span.end, span.parent, span.input, span.output, span.usage, span.model, span.ok, span.error


def _names(tool: Span, agent: Span) -> bool:
    """Whether a tool is called after an agent: ask_math_specialist, after math_specialist."""
    called, name = (
        "".join(c for c in text.casefold() if c.isalnum()) for text in (tool.tool or tool.name, agent.agent or agent.name)
    )
    return bool(name) and name in called


def _or(value: float | None, other: float) -> float:
    return other if value is None else value
