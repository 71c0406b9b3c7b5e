"""What came from outside, what it may have reached, and the effects that it decided, from source to sink.

Always true: orders that were carried out, what a monitor reports, copied words and shared context are told apart; the sinks
are those of `audit.incidents`, as `counterpoint audit --taint` has them, incidents first. A gate is the first event of a
path, past the agent that met the content, without which the sink is no longer reached from that source.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec import Struct

from counterpoint.app.viewer.panel import Panel
from counterpoint.app.viewer.trace_view import TraceView, injected_orders, sinks, view_of
from counterpoint.audits.authority import Sink
from counterpoint.audits.injection import verdict_of
from counterpoint.audits.taint import MayTaint, may_taint, suspects
from counterpoint.trace import Graph, Trace

PATHS = 200
"""Paths that are told; more are counted."""
_TRACED = 50
_RULE = 2000
_SOURCES = 1000
_TOLD, _WORDS = 5, 600
"""Texts that give orders which are told in the notes, and characters of their words."""

_SEVERITY = {"violation": "high", "blocked": "low", "possible": "low"}
"""As the alerts of the trace have it."""


class Gate(Struct, frozen=True, kw_only=True):
    """A place where a check would have stopped it."""

    event: int
    text: str


class TaintPath(Struct, frozen=True, kw_only=True):
    """From content that came from outside to an effect."""

    source: int
    sink: int
    events: list[int]
    strength: str
    """`order` (carried out), `reported` (by a monitor of the run), `copied` (a value that stands in the source) or `context`."""
    rule: str
    severity: str
    is_blocked: bool
    gate: Gate | None


class Safety(Struct, frozen=True, kw_only=True):
    """What came from outside and where it went."""

    sources: list[int]
    tainted: int
    agents: list[int]
    paths: list[TaintPath]
    odd: list[int]
    """Events whose text reads like instructions, though not plainly enough to be counted as an injection."""
    notes: list[str]


def _answer(trace: Trace) -> Safety:
    """Sources, reach and paths of a trace."""
    view = view_of(trace)
    return view.once("safety", lambda: _safety(view))


def _safety(view: TraceView) -> Safety:
    may, found = sinks(view)
    place, tainted = view.team.place_E, view.tainted_E
    rank = {"violation": 0, "blocked": 1, "possible": 2}
    ordered = sorted(found, key=lambda s: (rank[s.status], int(place[view.trace.index[s.event]])))
    paths = [_path(view, may, sink, is_traced=k < _TRACED) for k, sink in enumerate(ordered[:PATHS])]
    return Safety(
        sources=sorted(place[list(may.sources)].tolist())[:_SOURCES],
        tainted=int(tainted.sum()),
        agents=[a for a in np.unique(view.team.agent_E[tainted]).tolist() if view.team.is_member_A[a]],
        paths=paths,
        odd=_odd(view),
        notes=_notes(view, may, found),
    )


def _path(view: TraceView, may: MayTaint, sink: Sink, *, is_traced: bool) -> TaintPath:
    index, place = view.trace.index, view.team.place_E
    end = index[sink.event]
    start = index[sink.source] if sink.source is not None else -1
    way = [index[name] for name in sink.path]
    if is_traced and len(way) == 2 and sink.strength in ("copied", "order"):
        # the audit names both ends; the page shows the way between them
        way = may_taint(view.trace, [sink.path[0]]).path(end) or way
    return TaintPath(
        source=int(place[start]) if start >= 0 else -1,
        sink=int(place[end]),
        events=place[way].tolist(),
        strength="copied" if sink.strength == "flow" else sink.strength,
        rule=sink.rule if len(sink.rule) <= _RULE else sink.rule[: _RULE - 1] + "…",
        severity=_SEVERITY[sink.status],
        is_blocked=sink.status == "blocked",
        gate=_gate(view, start, way) if is_traced and start >= 0 and sink.status != "blocked" else None,
    )


def _gate(view: TraceView, source: int, way: list[int]) -> Gate:
    """The first hand-over on the way that every other way passes too; else the sink itself."""
    agent_E, sink = view.team.agent_E, way[-1]
    crossings = [b for a, b in pairwise(way) if agent_E[a] != agent_E[b] and b != sink]
    for event in crossings[:8]:
        if not _reaches(view.facts.info, source, sink, event):
            who = view.team.names[agent_E[event]]
            name = view.trace.events[event].id
            text = f"a check where {who} takes the content over ({name}) stops every recorded path to the effect"
            return Gate(event=int(view.team.place_E[event]), text=text)
    text = "only a check right before the effect: the content reaches it by several paths, which share no earlier event"
    return Gate(event=int(view.team.place_E[sink]), text=text)


def _reaches(graph: Graph, source: int, sink: int, without: int) -> bool:
    keep = graph.dst != without
    return bool(Graph(graph.n, graph.src[keep], graph.dst[keep], order=graph.order).reach([source])[sink])


def _notes(view: TraceView, may: MayTaint, found: list[Sink]) -> list[str]:
    notes = []
    if not may.sources:
        said = any(e.trusted is not None for e in view.trace.events)
        why = "every event that has the field says that it can be trusted" if said else "no event says whether it can be trusted"
        notes.append(f"Nothing is marked as coming from outside: {why} (field `trusted`).")
    if len(may.sources) > _SOURCES:
        notes.append(f"The first {_SOURCES:,} of {len(may.sources):,} sources are listed.")
    if len(found) > PATHS:
        notes.append(f"{len(found) - PATHS:,} more sinks: counterpoint audit --taint --json lists all.")
    if not view.is_large:
        given = injected_orders(view)
        notes.append(f"Injection: {verdict_of(given)}.")
        notes += [f"{one.says}. It says: {one.excerpt[:_WORDS]}" for one in given[:_TOLD]]
    return notes


def _odd(view: TraceView) -> list[int]:
    if view.is_large:
        return []
    told = {one.event for one in injected_orders(view)}
    return [int(view.team.place_E[view.trace.index[name]]) for name in suspects(view.trace) if name not in told]


safety = Panel(name="Safety", key="5", answer=_answer, shapes=(Gate, TaintPath, Safety))
