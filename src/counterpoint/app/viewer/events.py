"""One event whole, and windows of the transcript: of one agent, of it and all below it, or of everybody. `find` is here too.

Always true: an event is named by its number, its place in the story; a text that is cut says so and how long it is. What JSON
cannot carry (half a surrogate pair, integers beyond 64 bits, infinities) is made plain here, not in the trace.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from counterpoint.app.viewer.overview import depth_first
from counterpoint.app.viewer.shapes import TYPES, EventDetail, Neighbour, Talk, TalkRow
from counterpoint.app.viewer.trace_view import TraceView, view_of
from counterpoint.errors import NotFound
from counterpoint.trace import Event, Trace
from counterpoint.trace.vocabulary import EDGE_TYPES
from counterpoint.trace.wire import event_dict

TEXT_CAP = 64 * 1024
"""Bytes of a text that come with an event, unless it is asked for whole."""
TALK_CAP = 4 * 1024
"""Bytes of a text in a line of the transcript."""
_NEIGHBOURS = 500
_LINES = 2000


def event(trace: Trace, n: int, *, whole: bool = False) -> EventDetail:
    """The n-th event. What became of it in a fork takes both traces: who has them adds the badge."""
    view = view_of(trace)
    if not 0 <= n < view.n:
        raise NotFound(f"no event number {n}", where=trace.trace_id, fix=f"0 to {view.n - 1}" if view.n else "it has none")
    i = int(view.team.order_E[n])
    record = trace.events[i]
    text = trace.text(record)
    cut, size = cut_text(text or "", None if whole else TEXT_CAP)
    graph = view.facts.graph
    causes, effects = np.flatnonzero(graph.dst == i), np.flatnonzero(graph.src == i)
    return EventDetail(
        n=n,
        id=record.id,
        fields=fields(record, None if whole else TEXT_CAP),
        text=None if text is None else cut,
        text_size=size,
        is_cut=not whole and size > TEXT_CAP,
        causes=[_neighbour(view, int(graph.src[k]), int(graph.edge_type[k])) for k in causes[:_NEIGHBOURS].tolist()],
        effects=[_neighbour(view, int(graph.dst[k]), int(graph.edge_type[k])) for k in effects[:_NEIGHBOURS].tolist()],
        badge=None,
    )


def fields(record: Event, cap: int | None = None) -> dict[str, Any]:
    """Every field of an event, `extra` spread out, as JSON can carry it; texts in it cut to `cap` bytes."""
    return {str(name): _plain(value, cap) for name, value in event_dict(record).items()}


def cut_text(text: str, cap: int | None) -> tuple[str, int]:
    """A text cut to so many bytes, without half characters, and how many bytes it has whole."""
    data = text.encode("utf-8", "replace")
    if cap is None or len(data) <= cap:
        return data.decode("utf-8"), len(data)
    return data[:cap].decode("utf-8", "ignore"), len(data)


def _neighbour(view: TraceView, i: int, edge: int) -> Neighbour:
    record = view.trace.events[i]
    place, agent = int(view.team.place_E[i]), int(view.team.agent_E[i])
    return Neighbour(n=place, id=record.id, type=TYPES[view.kind_E[i]], agent=agent, edge=EDGE_TYPES[edge])


def _plain(value: Any, cap: int | None) -> Any:
    """A value of a record as JSON can carry it."""
    if isinstance(value, str):
        text, size = cut_text(value, cap)
        return text if cap is None or size <= cap else f"{text}… [cut: {len(text):,} of {size:,} bytes]"
    if isinstance(value, dict):
        return {cut_text(str(name), None)[0]: _plain(inner, cap) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, cap) for inner in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def talk(trace: Trace, agent: int = -1, tree: bool = False, first: int = 0, count: int = 100) -> Talk:
    """Lines `first` to `first + count` of a transcript; agent -1 is everybody, `tree` takes in all below the agent."""
    view = view_of(trace)
    team, order = view.team, view.team.order_E
    if not -1 <= agent < len(team):
        raise NotFound(f"no agent number {agent}", where=trace.trace_id, fix=f"0 to {len(team) - 1}, or -1 for all")
    chosen = order
    if agent >= 0:
        wanted = np.zeros(len(team), np.bool_)
        wanted[depth_first(view, agent) if tree else [agent]] = True
        chosen = order[wanted[team.agent_E[order]]]
    first = min(max(first, 0), len(chosen))
    base = int(team.depth_A[agent]) if agent >= 0 else 0
    rows = [_line(view, i, base) for i in chosen[first : first + min(max(count, 0), _LINES)].tolist()]
    return Talk(total=len(chosen), first=first, rows=rows)


def _line(view: TraceView, i: int, base: int) -> TalkRow:
    record, team = view.trace.events[i], view.team
    text, size = cut_text(view.trace.text(record) or record.error or "", TALK_CAP)
    agent = int(team.agent_E[i])
    return TalkRow(
        n=int(team.place_E[i]),
        t=float(view.facts.t_E[i]),
        type=TYPES[view.kind_E[i]],
        agent=agent,
        to=team.number.get(record.to, -1) if record.to is not None else -1,
        tool=record.tool,
        text=text,
        text_size=size,
        is_cut=size > TALK_CAP,
        trusted=record.trusted,
        ok=record.ok,
        tokens=_tokens(record),
        depth=int(team.depth_A[agent]) - base,
    )


def _tokens(record: Event) -> float | None:
    if record.tokens_in is None and record.tokens_out is None:
        return None
    return float((record.tokens_in or 0) + (record.tokens_out or 0))
