"""Sessions that begin with a copy of another: what both have counts in one of them, whichever came first and in how many imports.

A session that was resumed or forked under a new id begins with the records of the one it came from. Where both are read at once
their importer leaves the copy out; here it is found in what the store has already. Copies are known by the first event, which
`source_of` keeps of every trace, and then event by event: the same id, moment, words and tokens. Runs that only do the same task
have other moments; a source without a clock has no copies, and runs that stand in one file are none.

Always true: of two sessions the one that has the transcripts of the sub-agents keeps what both have, else the one whose main
transcript is shorter, else the one that is stored; the other holds what it added, and names it in `meta.resumed_from`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from counterpoint.app.import_account import Outcome
from counterpoint.store import Store
from counterpoint.trace import Event, Trace
from counterpoint.trace.keys import BEGAN, RESUMED_FROM
from counterpoint.trace.quantities import NO_TRANSCRIPT
from counterpoint.trace.sides import sub_agents
from counterpoint.trace.trace import summed_costs

COPIED = "events copied from another session: counted there"

Kept = tuple[Outcome, Trace, str]
"""A trace that is to be stored, what becomes of its session, and where it comes from."""


class Stored(NamedTuple):
    """A trace of the store that was found to begin with a copy, as it is without it."""

    trace: Trace
    source: str | None


def without_copies(batch: Sequence[Kept], store: Store) -> tuple[list[Kept], list[Stored]]:
    """The same without what other sessions have; and what of the store is to be replaced."""
    marks = {_mark(source) for _, _, source in batch}
    rows = [row for row in store.rows() if row.source and not row.is_open and _mark(row.source) in marks]
    here: dict[str, dict[str, Stored]] = {}
    for row in rows:
        here.setdefault(_mark(str(row.source)), {})[row.id] = Stored(store.get(row.id), row.source)
    out: list[Kept] = []
    changed: dict[str, Stored] = {}
    for _, trace, source in sorted(batch, key=lambda one: len(one[1].events)):
        others = here.setdefault(_mark(source), {})
        for name in sorted(others.keys() - {trace.trace_id}):
            trace, other = _settled(trace, others[name].trace)
            if other is not others[name].trace:
                others[name] = changed[name] = others[name]._replace(trace=other)
        others[trace.trace_id] = Stored(trace, source)
    for outcome, before, source in batch:
        trace = here[_mark(source)][before.trace_id].trace
        outcome.tokens -= int(before.tokens or 0) - int(trace.tokens or 0)
        outcome.events -= len(before.events) - len(trace.events)
        if trace.events:
            out.append((outcome, trace, source))
        else:
            outcome.status = "unchanged" if outcome.status == "added" else outcome.status
            outcome.traces.remove(before.trace_id)
    own = {trace.trace_id for _, trace, _ in batch}
    return out, [one for name, one in changed.items() if name not in own and one.trace.events]


def _mark(source: str) -> str:
    """The importer and the first event in where a trace comes from."""
    return f"{source.partition(':')[0]}:{source.rpartition(':')[2]}"


def _settled(trace: Trace, other: Trace) -> tuple[Trace, Trace]:
    """A new trace and one that is there, with what both have in one of them."""
    both = _copies(trace, other) if _files(trace) != _files(other) else set()
    if not both:
        return trace, other
    if _rank(trace, both) < _rank(other, both):
        return trace, _cut(other, trace, both)
    return _cut(trace, other, both), other


def _rank(trace: Trace, both: set[str]) -> tuple[int, int]:
    """What of two sessions keeps what both have comes first: it knows more of the sub-agents, and goes on less far itself."""
    made, subs = _made(trace, both), sub_agents(trace)
    return -sum(e.agent in made for e in trace.events), sum(e.agent not in subs for e in trace.events)


def _made(trace: Trace, both: set[str]) -> set[str]:
    """The sub-agents that what both have spawned."""
    return {e.to for e in trace.events if e.id in both and e.type == "spawn" and e.to is not None}


def _files(trace: Trace) -> object:
    """The files that a trace was read from: of the runs in one file none is a copy, or their importer has seen to it."""
    about = trace.meta.get("import")
    return (about.get("files") if isinstance(about, dict) else None) or trace.trace_id


def _copies(trace: Trace, other: Trace) -> set[str]:
    """The events that both have."""
    seen = {e.id: _said(e) for e in other.events if e.at is not None}
    return {e.id for e in trace.events if e.at is not None and seen.get(e.id) == _said(e)}


def _said(e: Event) -> tuple[object, ...]:
    return e.type, e.at, e.content_ref, e.tokens_in, e.tokens_out


def _cut(trace: Trace, other: Trace, both: set[str]) -> Trace:
    """A trace without the events that another has, and without what it says of sub-agents that are the other's."""
    last = max((e.at for e in other.events if e.at is not None), default=float("inf"))
    made = _made(trace, both)
    gone = both | {e.id for e in trace.events if e.agent in made and (e.at is None or e.at <= last)}
    events = [e for e in trace.events if e.id not in gone]
    edges = [edge for edge in trace.edges if edge.src not in gone and edge.dst not in gone]
    costs = dict(summed_costs(events))
    if "wall_clock_s" not in trace.costs:
        costs.pop("wall_clock_s", None)
    if any(e.cost_usd is not None for e in events):
        costs["cost_usd"] = sum(e.cost_usd or 0 for e in events)
    about = dict(trace.meta.get("import") or {})
    about["mended"] = {
        **about.get("mended", {}),
        COPIED: about.get("mended", {}).get(COPIED, 0) + len(trace.events) - len(events),
    }
    lacks = dict(about.get("lacks") or {})
    left = sum(e.type == "spawn" and e.to is not None for e in events)
    if NO_TRANSCRIPT in lacks:
        lacks[NO_TRANSCRIPT] = min(lacks[NO_TRANSCRIPT], left)
        about["lacks"] = {what: count for what, count in lacks.items() if count}
    meta = {**trace.meta, "import": about, RESUMED_FROM: other.trace_id}
    if BEGAN in meta and (times := [e.at for e in events if e.at is not None]):
        meta[BEGAN] = round(min(times), 3)
    return msgspec.structs.replace(trace, events=events, edges=edges, costs=costs, meta=meta)
