"""`TraceBatch`: many traces as columns, one after the other, with offsets. No padding.

Always true: the events of trace i are rows `offsets[i]:offsets[i + 1]` of every column, its edges rows
`edge_offsets[i]:edge_offsets[i + 1]`, and edges count events from the start of their own trace. What is absent is NaN in a
number column and -1 in a code column, never 0. A batch may hold a few columns only; asking for another names those it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray

from counterpoint.errors import InputError, InvalidTrace, NotFound, did_you_mean
from counterpoint.trace.columns import EVENT_SCHEMA, FLAGS, WORDS, codes_of, edge_table, edges_of, event_table, events_of
from counterpoint.trace.link import link
from counterpoint.trace.records import wire_name
from counterpoint.trace.trace import Trace
from counterpoint.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES, SOURCES

# Closed vocabularies: a code is a value's place in its tuple, in every batch.
_FIXED = {"type": EVENT_TYPES, "decision": DECISIONS, "source": SOURCES}


class Codes(NamedTuple):
    """A string column as numbers: `categories[codes[i]]` is row i's value, and -1 means absent."""

    codes: NDArray[np.int32]
    categories: list[str]


class TraceBatch:
    """Many traces as columns: one array for each field, the events of all traces one after another.

    `Store.batch` and `Store.sample` make one; `offsets` says where the events of each trace begin.
    """

    def __init__(
        self,
        heads: Sequence[Trace],
        offsets: NDArray[np.int64],
        events: pa.Table,
        edge_offsets: NDArray[np.int64] | None = None,
        edges: pa.Table | None = None,
        *,
        is_whole: bool = False,
    ) -> None:
        """`heads` are the traces without their events; `is_whole` says that nothing else of them was left out."""
        if len(offsets) != len(heads) + 1 or int(offsets[-1]) != events.num_rows:
            raise InputError(f"{len(heads)} traces and {events.num_rows} events do not fit the offsets")
        self.heads, self.offsets, self.events = list(heads), offsets, events
        self.edge_offsets, self.edges, self.is_whole = edge_offsets, edges, is_whole

    @classmethod
    def of(cls, traces: Iterable[Trace]) -> TraceBatch:
        """The batch of these traces; `InvalidTrace` when one is not a graph (a repeated id, an edge to nowhere)."""
        whole = list(traces)
        if not whole:
            raise InputError("a batch needs at least one trace")
        edges = []
        for trace in whole:
            links = link(trace.events, trace.edges)
            if len(links.repeated) or bool((links.src < 0).any()) or bool((links.dst < 0).any()):
                raise InvalidTrace(
                    "a repeated event id, or an edge to an event that is not there",
                    where=f"trace {trace.trace_id!r}",
                    fix="see `counterpoint store check` for the whole list",
                )
            edges.append(edge_table(trace.edges, links.src, links.dst))
        try:
            events = event_table([e for t in whole for e in t.events])
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidTrace(f"an event holds a value of the wrong type: {error}", fix="`counterpoint store check`") from error
        heads = [replace(t, events=[], edges=[]) for t in whole]
        offsets, edge_offsets = (_offsets([len(x) for x in lists]) for lists in ([t.events for t in whole], edges))
        return cls(heads, offsets, events, edge_offsets, pa.concat_tables(edges), is_whole=True)

    # -- shape ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.heads)

    def __repr__(self) -> str:
        columns = "all" if self.is_whole else str(self.events.num_columns)
        return f"<TraceBatch of {len(self):,} traces, {self.n_events:,} events, {columns} columns>"

    @property
    def ids(self) -> list[str]:
        """The traces' ids, in order."""
        return [h.trace_id for h in self.heads]

    @property
    def columns(self) -> list[str]:
        """The event columns that this batch holds."""
        names = EVENT_SCHEMA.names[:-2]
        return names if self.is_whole else [c for c in self.events.column_names if c in names]

    @property
    def n_events(self) -> int:
        """Events of all traces together."""
        return int(self.offsets[-1])

    @property
    def n_edges(self) -> int:
        """Edges of all traces together."""
        return self._edges.num_rows

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Events per trace."""
        return np.diff(self.offsets)

    # -- events --------------------------------------------------------------------------------------------------

    def _arrow(self, name: str) -> pa.ChunkedArray:
        name = "from_" if name == "from" else name
        if name not in self.events.column_names:
            if self.is_whole and name in EVENT_SCHEMA.names:  # nothing was said in it, so it was not read
                return pa.chunked_array([pa.nulls(self.n_events, EVENT_SCHEMA.field(name).type)])
            known = name in EVENT_SCHEMA.names
            fix = f"ask for it: columns=[{name!r}, ...]" if known else did_you_mean(name, EVENT_SCHEMA.names[:-2])
            raise NotFound(f"this batch has no column {wire_name(name)!r}", fix=fix)
        return self.events[name]

    def column(self, name: str) -> NDArray[Any]:
        """One field of every event: numbers as float64 (NaN where absent) or int64 (when none is), strings as objects."""
        column = self._arrow(name)
        if name in FLAGS:
            column = column.cast(pa.int8()).cast(pa.float64())
        array: NDArray[Any] = column.to_numpy()
        return array

    def codes(self, name: str) -> Codes:
        """A string field as codes; `type`, `decision` and `source` have the same codes in every batch."""
        if name not in WORDS and name != "from":
            raise InputError(f"{name!r} is not a field of few words", fix=did_you_mean(name, WORDS))
        return fixed(name, *self._codes(name))

    def _codes(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        column = self._arrow(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        column = column.unify_dictionaries()
        if not column.num_chunks:
            return np.empty(0, np.int32), []
        words: list[str] = column.chunk(0).dictionary.to_pylist()
        return np.concatenate([codes_of(chunk) for chunk in column.chunks]), words

    # -- edges ---------------------------------------------------------------------------------------------------

    @property
    def _edges(self) -> pa.Table:
        if self.edges is None:
            raise NotFound("this batch was made without edges", fix="ask for them: edges=True")
        return self.edges

    @cached_property
    def src(self) -> NDArray[np.int32]:
        """The sources of all edges, counted from the start of their trace."""
        return self._edges["src"].to_numpy()

    @cached_property
    def dst(self) -> NDArray[np.int32]:
        """Their targets, the same way."""
        return self._edges["dst"].to_numpy()

    @cached_property
    def edge_type(self) -> NDArray[np.uint8]:
        """Codes into `EDGE_TYPES`."""
        import pyarrow.compute as pc  # as slow to import as all else of pyarrow, and needed here alone

        column = self._edges["type"]
        column = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        return pc.index_in(column, value_set=pa.array(EDGE_TYPES)).cast(pa.uint8()).to_numpy()

    # -- traces --------------------------------------------------------------------------------------------------

    def reward(self, channel: str = "team") -> NDArray[np.float64]:
        """One reward channel per trace; NaN where it was not scored."""
        return np.array([h.rewards.get(channel, np.nan) for h in self.heads], np.float64)

    def cost(self, name: str) -> NDArray[np.float64]:
        """One cost per trace; NaN where it is not stated."""
        return np.array([h.costs.get(name, np.nan) for h in self.heads], np.float64)

    def select(self, places: Sequence[int] | NDArray[Any]) -> TraceBatch:
        """The traces at these places, in this order."""
        for i in places:
            if not 0 <= i < len(self):
                raise InputError(f"trace number {i} is not in 0..{len(self) - 1}")
        if not len(places):
            raise InputError("a batch needs at least one trace")
        events = pa.concat_tables([self.events.slice(*_span(self.offsets, i)) for i in places])
        edges = edge_offsets = None
        if self.edges is not None and self.edge_offsets is not None:
            edges = pa.concat_tables([self.edges.slice(*_span(self.edge_offsets, i)) for i in places])
            edge_offsets = _offsets([_span(self.edge_offsets, i)[1] for i in places])
        offsets = _offsets([_span(self.offsets, i)[1] for i in places])
        return TraceBatch([self.heads[i] for i in places], offsets, events, edge_offsets, edges, is_whole=self.is_whole)

    def __getitem__(self, places: slice) -> TraceBatch:
        return self.select(range(*places.indices(len(self))))

    def trace(self, i: int) -> Trace:
        """Trace i, whole again."""
        if not self.is_whole or self.edges is None or self.edge_offsets is None:
            raise InputError("this batch holds a part of its traces", fix="take the trace from the store: store.get(id)")
        if not -len(self) <= i < len(self):
            raise InputError(f"trace number {i} is not in 0..{len(self) - 1}")
        i %= len(self)
        events = events_of(self.events.slice(*_span(self.offsets, i)))
        edges = edges_of(self.edges.slice(*_span(self.edge_offsets, i)), [e.id for e in events])
        return replace(self.heads[i], events=events, edges=edges)

    def traces(self) -> list[Trace]:
        """All of them."""
        return [self.trace(i) for i in range(len(self))]


def fixed(name: str, codes: NDArray[np.int32], words: list[str]) -> Codes:
    """Codes as every batch has them: a closed vocabulary's own for its fields, these for others."""
    if name not in _FIXED:
        return Codes(codes, words)
    place = np.array([*(_FIXED[name].index(w) for w in words), -1], np.int32)
    return Codes(place[codes], list(_FIXED[name]))


def _offsets(lengths: Iterable[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(list(lengths))]).astype(np.int64)


def _span(offsets: NDArray[np.int64], i: int) -> tuple[int, int]:
    return int(offsets[i]), int(offsets[i + 1] - offsets[i])
