"""The log of a batch as columns: rows of events and edges, in the order in which they happen.

Always true: a row's number is its place in the log, and an edge joins an earlier row to a later one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

EVENT = {name: i for i, name in enumerate(EVENT_TYPES)}
EDGE = {name: i for i, name in enumerate(EDGE_TYPES)}
# column -> (type, value when not given)
COLUMNS: dict[str, tuple[Any, Any]] = {
    "ep": (np.int32, 0),
    "type": (np.int8, 0),
    "round": (np.int32, 0),
    "agent": (np.int32, 0),
    "to": (np.int32, -1),
    "item": (np.int32, -1),
    "attempt": (np.int32, 0),
    "decision": (np.int8, -1),
    "value": (np.int64, -1),
    "brief": (np.int8, -1),
    "purpose": (np.int8, 0),
    "t": (np.float64, 0.0),
    "dur": (np.float64, -1.0),
    "tokens_in": (np.int64, 0),
    "tokens_out": (np.int64, 0),
    "family": (np.int8, -1),
    "mark": (np.int8, 0),
    "corrupt": (np.int8, 0),
    "ok": (np.int8, -1),
    "logp": (np.float64, 0.0),
    "noop": (np.int8, 0),
    "confidence": (np.float64, -1.0),
    "reward": (np.float64, np.nan),
    "score": (np.float64, np.nan),
    "count": (np.int64, -1),
    "act": (np.int8, -1),
}


class EventLog:
    """Columns of events and edges, in the order in which they happen, and where the last row of everybody is.

    A row's number is its place in the log, an edge joins an earlier row to a later one, so every episode's events are in
    topological order. A log keeps no text; `traces.py` makes traces of it. Copying a log copies references, not rows.
    """

    def __init__(self, episodes: int, slots: int, items: int) -> None:
        self.rows = 0
        self.chunks: list[dict[str, Any]] = []
        self.edges: list[tuple[np.ndarray, np.ndarray, int]] = []
        none = lambda *shape: np.full(shape, -1, np.int64)  # noqa: E731
        self.decision, self.aggregate, self.attack = none(episodes), none(episodes), none(episodes)
        self.spawn, self.last = none(episodes, slots), none(episodes, slots)
        self.returned = none(episodes, items)
        self.said: np.ndarray | None = None
        """(E, N, K) each agent's last return on each item, where workers read each other's (`acts.py`)."""
        self.quality = np.zeros(episodes)
        self.fresh: list[tuple[np.ndarray, np.ndarray]] = []

    def copied(self) -> EventLog:
        """A log that can go on by itself."""
        out = object.__new__(EventLog)
        out.rows, out.chunks, out.edges, out.fresh = self.rows, list(self.chunks), list(self.edges), list(self.fresh)
        for name in ("decision", "aggregate", "attack", "spawn", "last", "returned", "quality"):
            setattr(out, name, getattr(self, name).copy())
        out.said = None if self.said is None else self.said.copy()
        return out

    def add(self, ep: np.ndarray, **columns: Any) -> np.ndarray:
        """Append one row per episode number in `ep`; a column is as long, or one value for all. Returns the rows' numbers."""
        n = len(ep)
        rows = np.arange(self.rows, self.rows + n)
        if n:
            self.chunks.append({"ep": np.asarray(ep), **columns})
            self.rows += n
        return rows

    def link(self, src: np.ndarray, dst: np.ndarray, kind: str) -> None:
        """Edges from earlier rows to later ones; a source of -1 is no edge."""
        keep = (src >= 0).nonzero()[0]
        if len(keep):
            self.edges.append((src[keep], dst[keep], EDGE[kind]))

    def table(self) -> dict[str, np.ndarray]:
        """All rows, every column."""
        out = {name: np.full(self.rows, default, dtype) for name, (dtype, default) in COLUMNS.items()}
        start = 0
        for chunk in self.chunks:
            end = start + len(chunk["ep"])
            for name, column in chunk.items():
                out[name][start:end] = column
            start = end
        return out

    def edge_table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All edges as (src, dst, type)."""
        if not self.edges:
            empty = np.zeros(0, np.int64)
            return empty, empty, empty
        kinds = np.concatenate([np.full(len(s), k) for s, _, k in self.edges])
        return np.concatenate([s for s, _, _ in self.edges]), np.concatenate([d for _, d, _ in self.edges]), kinds
