"""The list of traces: rows, facets and a tiny picture of each, for the page's first screen.

Always true: the rows are those that `counterpoint ls` gives for the same query, the newest first; a row costs no look into the
lake but for its picture, and a picture is made once for each version of a trace, and only of small ones.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

import counterpoint
from counterpoint.app.search import matcher
from counterpoint.app.viewer.collection import Collection
from counterpoint.app.viewer.shapes import TraceRow, Traces
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace
from counterpoint.trace.steered import is_steered

SLICES = 24
_PICTURES, _PICTURE_EVENTS = 60, 5_000
"""So many rows get a picture, if they have no more events than this."""
_KEPT = 5_000
ROWS = 2_000


class Listing:
    """Lists what is in a collection, and keeps the pictures."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._pictures: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = threading.Lock()

    def traces(self, query: str = "", limit: int = ROWS) -> Traces:
        """The traces that match a query of the search language."""
        matches, collection = matcher(query), self._collection
        held = {trace.trace_id: trace for trace in collection.held()}
        every = [*map(_summary, held.values()), *reversed(collection.rows())]
        found = [row for row in every if matches(row)]
        facets = {name: dict(Counter(str(v) for row in found if (v := getattr(row, name)))) for name in ("system", "topology")}
        shown = found[: max(limit, 0)]
        lanes = self._lanes(shown, held)
        rows = [_row(row, lanes.get(row.id, [])) for row in shown]
        where = "" if collection.store_path is None else os.fspath(collection.store_path)
        return Traces(store=where, rows=rows, total=len(found), facets=facets, version=counterpoint.__version__)

    def _lanes(self, rows: Sequence[Summary], held: dict[str, Trace]) -> dict[str, list[float]]:
        store, out = self._collection.store, {}
        small = [row for row in rows[:_PICTURES] if row.events <= _PICTURE_EVENTS and not row.is_open]
        wanted: dict[str, str] = {}
        for row in small:
            if row.id in held:
                out[row.id] = _of_trace(held[row.id])
            elif store is not None and (version := store.version(row.id)) is not None:
                wanted[row.id] = version
        with self._lock:
            missing = [name for name, version in wanted.items() if version not in self._pictures]
            if missing and store is not None:
                for name, picture in zip(missing, _of_store(store, missing), strict=True):
                    self._pictures[wanted[name]] = picture
            while len(self._pictures) > _KEPT:
                self._pictures.popitem(last=False)
            return out | {name: self._pictures[version] for name, version in wanted.items() if version in self._pictures}


def _summary(trace: Trace) -> Summary:
    """A trace that is in no store, as a row of one."""
    return Summary(
        id=trace.trace_id,
        task_id=trace.task_id,
        system=trace.system,
        topology=trace.topology,
        events=len(trace.events),
        edges=len(trace.edges),
        agents=len(trace.members),
        tokens=trace.tokens,
        wall_clock_s=trace.duration_s,
        team_reward=trace.rewards.get("team"),
        errors=0,
        source=None,
        added=0.0,
        cost_usd=trace.cost_usd,
        is_steered=is_steered(trace),
    )


def _row(row: Summary, lanes: list[float]) -> TraceRow:
    return TraceRow(
        id=row.id,
        task_id=row.task_id,
        system=row.system,
        topology=row.topology,
        agents=row.agents,
        events=row.events,
        tokens=_number(row.tokens),
        cost_usd=_number(row.cost_usd),
        seconds=_number(row.wall_clock_s),
        reward=_number(row.team_reward),
        errors=row.errors,
        is_open=row.is_open,
        is_steered=row.is_steered,
        lanes=lanes,
    )


def _number(value: int | float | None) -> float | None:
    return None if value is None else float(value)


# -- pictures --------------------------------------------------------------------------------------------------------------


def _of_trace(trace: Trace) -> list[float]:
    number = {name: a for a, name in enumerate(trace.agents)}
    t = np.array([e.t for e in trace.events], np.float64)
    dur = np.array([e.dur or 0 for e in trace.events], np.float64)
    return _busy(t, dur, np.array([number[e.agent] for e in trace.events], np.int64))


def _of_store(store: Any, ids: list[str]) -> list[list[float]]:
    try:
        batch = store.batch(ids, ["t", "dur", "agent"])
    except (LookupError, ValueError):  # one was removed or replaced meanwhile: the next look draws it
        return [[] for _ in ids]
    t, dur = batch.column("t"), np.nan_to_num(batch.column("dur").astype(np.float64))
    agent = batch.codes("agent").codes
    bounds = batch.offsets.tolist()
    return [_busy(t[a:b], dur[a:b], agent[a:b]) for a, b in itertools.pairwise(bounds)]


def _busy(t: np.ndarray, dur: np.ndarray, agent: np.ndarray) -> list[float]:
    """The share of agents that are at work in each slice of time."""
    if not len(t):
        return []
    begin, end = float(t.min()), float((t + dur).max())
    scale = SLICES / (end - begin) if end > begin else 0.0
    _, lane = np.unique(agent, return_inverse=True)
    first = np.minimum(((t - begin) * scale).astype(np.int64), SLICES - 1)
    last = np.minimum(((t + dur - begin) * scale).astype(np.int64), SLICES - 1)
    lanes = int(lane.max()) + 1
    # A lane's work begins in one slice and ends after another: sums over slices then count what is under way.
    change = np.zeros((lanes, SLICES + 1), np.int64)
    np.add.at(change, (lane, first), 1)
    np.add.at(change, (lane, last + 1), -1)
    share = (np.cumsum(change, axis=1)[:, :SLICES] > 0).mean(axis=0)
    return [round(float(x), 3) for x in share]
