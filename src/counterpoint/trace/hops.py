"""One run in several processes: who called whom over a wire, and the recordings of both sides as one trace.

A caller sends W3C trace context with its request: `traceparent`, and `tracestate` with a member of ours, which the tracers in
between pass on as it is. The recording that is made on the other side keeps it in `meta["caller"]`. Joined, the one that was
called is a sub-agent of the event that called: a spawn after it, what the other side did, and a return that the result reads.

Always true: the names of a hop are hashes of ids, so that nothing else of a run goes over the wire; only an event that is there
is joined to; joining the same recordings again gives the same trace.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from counterpoint.trace.keys import BEGAN, REPLAY
from counterpoint.trace.model_calls import renamed_call
from counterpoint.trace.records import Edge, Event
from counterpoint.trace.trace import Trace

CALLER = "caller"
"""In `meta` of a recording that was made for a call from outside: `run` and `span` of who called."""
HOPS = "hops"
"""In `meta` of a recording that called others: True."""
JOINED = "joined"
"""In `meta` of a trace: the recordings of other processes in it, by the beginning of their events' ids."""
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")
_STATE = re.compile(r"\s*counterpoint\s*=\s*([0-9a-f]{32})-([0-9a-f]{16})\s*")
_MARK = "-hop-"
_KEY = 16
_MOST_STATE = 512


def hash_of(kind: str, text: str, size: int) -> str:
    """So many bytes, in hex, that stand for an id."""
    return hashlib.sha256(f"{kind}\0{text}".encode("utf-8", "surrogatepass")).digest()[:size].hex()


def run_key(trace_id: str) -> str:
    """What stands for a trace on the wire: the trace id of its spans."""
    return hash_of("trace", trace_id, 16)


def span_key(trace_id: str, event: str) -> str:
    """What stands for an event on the wire: the id of its span."""
    return hash_of("event", f"{trace_id}\0{event}", 8)


class Hop(NamedTuple):
    """Who called: the run that all began with, and the event, as they stand on the wire."""

    run: str
    span: str

    def carrier(self, parent: str | None = None, state: str = "") -> dict[str, str]:
        """The two headers; inside the span of another tracer its own `traceparent` and `tracestate` go along."""
        others = [one for one in state.split(",") if one.strip() and not one.strip().startswith("counterpoint=")]
        members = [f"counterpoint={self.run}-{self.span}", *others[:31]]
        return {"traceparent": parent or f"00-{self.run}-{self.span}-01", "tracestate": ",".join(members)}


def hop_of(carrier: Mapping[str, Any] | None) -> Hop | None:
    """Who called, by the headers or the `_meta` of a request; None where nobody says, or not in the form of W3C."""
    named = {
        str(name).lower(): value for name, value in (carrier or {}).items() if str(name).lower() in ("traceparent", "tracestate")
    }
    parent = named.get("traceparent")
    whole = _PARENT.fullmatch(parent.strip()) if isinstance(parent, str) and len(parent) <= _MOST_STATE else None
    if whole is None or not int(whole[1], 16) or not int(whole[2], 16):
        return None
    state = named.get("tracestate")
    for member in state.split(",")[:32] if isinstance(state, str) else ():
        if own := _STATE.fullmatch(member):
            return Hop(own[1], own[2])
    return Hop(whole[1], whole[2])


def caller_of(meta: Mapping[str, Any]) -> Hop | None:
    """Who called the run that this is the `meta` of."""
    told = meta.get(CALLER)
    run, span = (told.get(name) if isinstance(told, dict) else None for name in ("run", "span"))
    return Hop(run, span) if isinstance(run, str) and isinstance(span, str) and run and span else None


def name_for_call(name: str, hop: Hop, own: str) -> str:
    """The id of a recording that was made for a call: by it the store finds all of one run."""
    return f"{name}{_MARK}{hop.run[:_KEY]}-{own}"


def is_called(name: str, run: str) -> bool:
    """Whether an id is that of a recording that was made for a call within this run."""
    return f"{_MARK}{run[:_KEY]}-" in name


# -- joining -------------------------------------------------------------------------------------------------------------------


def whole_run(root: Trace, served: Sequence[Trace]) -> Trace:
    """The trace with all recordings that its events, or theirs, called; those whose caller is not there are left out."""
    waiting = [one for one in served if caller_of(one.meta) is not None and _beginning(one) not in _parts(root)]
    known = _spans(root)
    while found := [one for one in waiting if caller_of(one.meta).span in known]:  # type: ignore[union-attr]
        for one in sorted(found, key=lambda trace: (float(trace.meta.get(BEGAN) or 0), trace.trace_id)):
            event = known[caller_of(one.meta).span]  # type: ignore[union-attr]
            root = _Join(root, one, event).trace()
            known |= {span_key(one.trace_id, e.id): f"{_beginning(one)}/{e.id}" for e in one.events}
        waiting = [one for one in waiting if one not in found]
    return root


def with_parts_of(fresh: Trace, stored: Trace) -> Trace:
    """A trace as it came again, with what had been joined to it before."""
    parts = _parts(stored)
    if not parts or _parts(fresh):
        return fresh
    added = {e.id: e for e in stored.events if e.id.partition("/")[0] in parts}
    known = {e.id for e in fresh.events} | added.keys()
    edges = [e for e in stored.edges if (e.src in added or e.dst in added) and e.src in known and e.dst in known]
    about = {**fresh.meta, JOINED: parts, HOPS: True}
    own = {name: n - _own_cost(stored, name) for name, n in stored.costs.items()}
    return _ordered(fresh, [*fresh.events, *added.values()], [*fresh.edges, *edges], meta=about,
                    contents={**stored.contents, **fresh.contents}, costs=_summed(fresh.costs, own))  # fmt: skip


def _own_cost(trace: Trace, name: str) -> float:
    """What of a cost is the trace's own, and not of what was joined."""
    return trace.costs.get(name, 0) - sum(part.get("costs", {}).get(name, 0) for part in _parts(trace).values())


def _parts(trace: Trace) -> dict[str, Any]:
    parts = trace.meta.get(JOINED)
    return {k: v for k, v in parts.items() if isinstance(v, dict)} if isinstance(parts, dict) else {}


def part_ids(trace: Trace) -> set[str]:
    """The ids of the recordings that a trace has taken in."""
    return {str(part.get("id")) for part in _parts(trace).values()}


def _beginning(served: Trace) -> str:
    """What the ids of a recording's events begin with, once it is joined."""
    own = served.trace_id.rpartition("-")[2]
    return f"hop{own}"


def _spans(root: Trace) -> dict[str, str]:
    """Span to event, for all events that can have called: the trace's own, and those that were joined."""
    parts = _parts(root)
    out = {}
    for event in root.events:
        begin, _, rest = event.id.partition("/")
        trace_id = parts[begin]["id"] if begin in parts else root.trace_id
        out[span_key(trace_id, rest if begin in parts else event.id)] = event.id
    return out


def _summed(costs: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Costs of both; seconds of one run are not added up."""
    names = {**costs, **more}
    return {n: costs.get(n, 0) if n == "wall_clock_s" else costs.get(n, 0) + more.get(n, 0) for n in names}


class _Join:
    """A recording on its way into the trace of who called it."""

    def __init__(self, root: Trace, served: Trace, event: str) -> None:
        self.root, self.served, self.begin = root, served, _beginning(served)
        self.call = root.events[root.index[event]]
        answers = [e.dst for e in root.edges if e.src == event and e.type == "tool_dependency" and e.dst in root.index]
        self.result = root.events[root.index[answers[0]]] if answers else None
        taken = set(root.agents) | {e.to for e in root.events if e.to}
        self.agents = {name: _fresh(name, taken) for name in self._names()}
        self.names = {e.id: f"{self.begin}/{e.id}" for e in served.events}
        self.shift = self._shift()

    def _names(self) -> list[str]:
        outside = set(self.served.agents) - self.served.members
        named = [name for e in self.served.events for name in (e.agent, e.from_, e.to) if name and name not in outside]
        return list(dict.fromkeys(named))

    @property
    def leader(self) -> str:
        """The agent that was called: the first of the recording that is one of its team."""
        told = self.served.meta.get(REPLAY)
        root = told.get("root") if isinstance(told, dict) else None
        first = next((agent for agent in self.served.agents if agent in self.agents), "")
        return root if isinstance(root, str) and root in self.agents else first

    def _shift(self) -> float:
        """What is added to its times: it is moved into the time of the call where it fits, for two machines have two clocks."""
        call, served = self.call, self.served
        began, own = served.meta.get(BEGAN), self.root.meta.get(BEGAN)
        wanted = float(began) - float(own) if isinstance(began, int | float) and isinstance(own, int | float) else float(call.t)
        first = min((float(e.t) for e in served.events), default=0.0)
        last = max((float(e.t) + float(e.dur or 0) for e in served.events), default=0.0)
        until = float(self.result.t) if self.result is not None else float(call.t) + float(call.dur or 0)
        return round(max(min(wanted, until - last), float(call.t) - first), 6)

    def trace(self) -> Trace:
        """Both as one."""
        events, edges = self._moved()
        part = {"id": self.served.trace_id, "event": self.call.id, "system": self.served.system, "costs": dict(self.served.costs)}
        part |= {"began": self.served.meta.get(BEGAN), "rewards": dict(self.served.rewards)}
        known = {name: value for name, value in part.items() if value not in (None, {})}
        meta = {**self.root.meta, HOPS: True, JOINED: {**_parts(self.root), self.begin: known}}
        return _ordered(self.root, [*self.root.events, *events], [*self.root.edges, *edges], meta=meta,
                        contents={**self.served.contents, **self.root.contents},
                        costs=_summed(self.root.costs, self.served.costs))  # fmt: skip

    def _moved(self) -> tuple[list[Event], list[Edge]]:
        served, lead = self.served, self.agents.get(self.leader, self.leader)
        events = [self._event(e) for e in served.events]
        edges = [
            Edge(self.names[e.src], self.names[e.dst], e.type)
            for e in served.edges
            if e.src in self.names and e.dst in self.names
        ]
        begin = min((e.t for e in events), default=self.call.t)
        role = next((e.role for e in served.events if e.agent == self.leader and e.type != "spawn"), None)
        spawn = Event(id=f"{self.begin}/spawn", t=begin, type="spawn", agent=self.call.agent, to=lead, role=role,
                      content_ref=self.call.content_ref, extra={"hop": served.trace_id})  # fmt: skip
        edges.append(Edge(self.call.id, spawn.id, "causal"))
        read = {e.dst for e in edges}
        first = [e for e in events if e.agent == lead and e.id not in read]
        edges += [Edge(spawn.id, e.id, "temporal" if k else "spawn") for k, e in enumerate(first)]
        events.append(spawn)
        if self.result is not None:
            back, more = self._return(events, edges, lead, self.result)
            events.append(back)
            edges += more
        return events, edges

    def _event(self, e: Event) -> Event:
        extra = e.extra
        if extra is not None and isinstance(note := extra.get("call"), dict):
            extra = {**extra, "call": renamed_call(note, self.names)}
        fields = {name: self.agents.get(value, value) for name in ("agent", "from_", "to") if (value := getattr(e, name))}
        key = f"{self.begin}/{e.key}" if e.key is not None else None
        return replace(e, id=self.names[e.id], t=max(round(e.t + self.shift, 6), 0), key=key, extra=extra, **fields)

    def _return(self, events: list[Event], edges: list[Edge], lead: str, result: Event) -> tuple[Event, list[Edge]]:
        """What goes back to who called: it follows from the last of the leader that was done when the answer was there."""
        done = [e for e in events if e.agent == lead and e.t <= result.t and e.type != "spawn"]
        last = max(done, key=lambda e: e.t + (e.dur or 0), default=events[-1])
        at = min(max(last.t + (last.dur or 0), last.t), result.t)
        back = Event(id=f"{self.begin}/return", t=at, type="return", agent=lead, role=last.role, from_=lead, to=self.call.agent,
                     content_ref=result.content_ref, trusted=result.trusted, source="peer", ok=result.ok)  # fmt: skip
        ends = {e.src for e in edges}
        others = [e for e in done if e.id not in ends and e is not last]
        more = [Edge(e.id, back.id, "causal") for e in [last, *others] if e.t <= at]
        return back, [*more, Edge(back.id, result.id, "return")]


def _fresh(name: str, taken: set[str]) -> str:
    unique, k = name, 2
    while unique in taken:
        unique, k = f"{name}-{k}", k + 1
    taken.add(unique)
    return unique


def _ordered(trace: Trace, events: list[Event], edges: list[Edge], **fields: Any) -> Trace:
    """The trace with these events, by time, and none before what it read."""
    place = {e.id: i for i, e in enumerate(events)}
    waits, after = [0] * len(events), [list[int]() for _ in events]
    for edge in edges:
        if edge.src in place and edge.dst in place:
            waits[place[edge.dst]] += 1
            after[place[edge.src]].append(place[edge.dst])
    ready = [(float(e.t), i) for i, e in enumerate(events) if not waits[i]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for j in after[i]:
            waits[j] -= 1
            if not waits[j]:
                heapq.heappush(ready, (float(events[j].t), j))
    order += [i for i in range(len(events)) if waits[i]]  # a circle was there before
    return replace(trace, events=[events[i] for i in order], edges=edges, **fields)
