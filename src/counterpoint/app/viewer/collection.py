"""What is on view: a store, traces that were opened from files, and folders with stores of their own.

Always true: a name asked for is looked up among what is on view and never becomes a path; reading changes nothing; a trace comes
as it is now, and `version` is another one when it is. Opened traces are kept, the last asked first, up to a number of events.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

import counterpoint
from counterpoint.app.search import FACETS, facet, matcher, remarks
from counterpoint.app.viewer.shapes import AlertCount, TraceRow, Traces
from counterpoint.display import zone
from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.store import Store
from counterpoint.store.handles import nearest
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace

_RECENT_S = 1.0
"""For so long a list of folders is not looked for again."""
_HELD = "held"


def is_store(path: Path) -> bool:
    """Whether a folder is a store."""
    return (path / "counterpoint.json").is_file()


def which_store(path: Path) -> tuple[int, ...] | None:
    """Which store is in a folder: another value once it was removed and made anew; None when there is none."""
    try:
        mark = (path / "counterpoint.json").stat()
    except OSError:
        return None
    return mark.st_dev, mark.st_ino, mark.st_mtime_ns


class Collection:
    """Everything that the page can ask for by name."""

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        folders: Sequence[str | os.PathLike[str]] = (),
        traces: Iterable[Trace] = (),
        limit: int = 2_000_000,
    ) -> None:
        """`store` need not be there yet; in `folders` pages find what they show, such as runs; `limit` is in events."""
        self.store_path = None if store is None else Path(store)
        self.folders = [Path(folder) for folder in folders]
        self._limit = limit
        self._stores: dict[Path, tuple[tuple[int, ...], Store]] = {}
        self._left: list[Store] = []
        self._held: dict[str, Trace] = {trace.trace_id: trace for trace in traces}
        self._opened: OrderedDict[str, tuple[str, Trace]] = OrderedDict()
        self._opening: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.RLock()
        self._recent: dict[str, tuple[float, dict[str, Path]]] = {}
        self._more: list[Callable[[Collection], Mapping[str, Path]]] = []

    def close(self) -> None:
        """Let go of the stores' files."""
        with self._lock:
            for store in [*self._left, *(store for _, store in self._stores.values())]:
                store.close()
            self._stores, self._left = {}, []

    # -- stores and runs -----------------------------------------------------------------------------------------

    @property
    def store(self) -> Store | None:
        """The store, to read from; None as long as there is none."""
        return None if self.store_path is None else self._reader(self.store_path)

    def _reader(self, path: Path) -> Store | None:
        with self._lock:
            made = which_store(path)
            found = self._stores.get(path)
            if found is not None and found[0] != made:  # it was removed, and perhaps made anew: what we know is of another store
                self._left.append(self._stores.pop(path)[1])  # somebody may be reading it: closed at the end
                found = None
            if found is None and made is not None:
                found = self._stores[path] = made, Store(path, create=False, read_only=True)
            return None if found is None else found[1]

    def recent(self, name: str, find: Callable[[], dict[str, Path]]) -> dict[str, Path]:
        """Folders that a page finds, looked for at most once a second; `name` says which."""
        with self._lock:
            at, found = self._recent.get(name, (-_RECENT_S, {}))
            if time.monotonic() - at > _RECENT_S:
                found = find()
                self._recent[name] = time.monotonic(), found
            return found

    def add_stores(self, stores: Callable[[Collection], Mapping[str, Path]]) -> None:
        """More stores, by names: a trace in one is asked for as `NAME:ID`."""
        self._more.append(stores)

    def store_named(self, name: str) -> Store | None:
        """One of the stores that were added; None as long as there is none."""
        path = next((stores[name] for stores in self._more_stores() if name in stores), None)
        return None if path is None else self._reader(path)

    def _more_stores(self) -> list[Mapping[str, Path]]:
        return [stores(self) for stores in self._more]

    def trace_named(self, name: str) -> str:
        """The id of the one trace of the store that begins like this, as on the command line; else the name as it is."""
        store = self.store
        if store is None or not name or ":" in name or name in self._held or store.version(name) is not None:
            return name
        with suppress(CounterpointError):  # none, or several: the page says so
            return store.find(name)
        return name

    # -- traces --------------------------------------------------------------------------------------------------

    def open_traces(self) -> list[Trace]:
        """The traces that were opened from files, and forks of them."""
        with self._lock:
            return list(self._held.values())

    def rows(self) -> list[Summary]:
        """A line per trace of the store."""
        store = self.store
        return [] if store is None else store.rows()

    def version(self, trace_id: str) -> str:
        """Another one whenever the trace is another one."""
        if trace_id in self._held:
            return f"{_HELD}-{id(self._held[trace_id])}"
        store, name = self._home(trace_id)
        found = None if store is None else store.version(name)
        if found is None:
            near = [*self._held, *([] if self.store is None else self.store.ids()[-1000:])]
            fix = nearest(trace_id, near) if near else "`counterpoint import` brings sessions in"
            raise NotFound(f"there is no trace {trace_id!r} here", fix=fix)
        return found

    def _home(self, trace_id: str) -> tuple[Store | None, str]:
        """The store that has a trace, and its name there: the main one, or the one whose name comes before a colon."""
        store = self.store
        if store is not None and store.version(trace_id) is not None:
            return store, trace_id
        for name, path in (pair for stores in self._more_stores() for pair in stores.items()):
            if trace_id.startswith(f"{name}:"):
                return self._reader(path), trace_id[len(name) + 1 :]
        return store, trace_id

    def get(self, trace_id: str) -> Trace:
        """A trace, as it is now."""
        version = self.version(trace_id)
        if version.startswith(f"{_HELD}-"):
            return self._held[trace_id]
        with self._opening_of(trace_id):  # who comes second waits, rather than open it once more
            with self._lock:
                kept = self._opened.get(trace_id)
                if kept is not None and kept[0] == version:
                    self._opened.move_to_end(trace_id)
                    return kept[1]
            store, name = self._home(trace_id)
            assert store is not None
            trace = store.get(name)
            if name != trace_id:
                trace = replace(trace, trace_id=trace_id)
            self._put(trace_id, version, trace)
        return trace

    def unread(self, trace_id: str, larger_than: int) -> tuple[Store, Summary] | None:
        """The store and the line of a stored trace with more events than this, unless it has been opened already; else None."""
        store, name = self._home(trace_id)
        if trace_id in self._held or store is None or name != trace_id:
            return None
        with self._lock:
            kept = self._opened.get(trace_id)
        if kept is not None and kept[0] == store.version(name):
            return None
        row = next((row for row in store.rows() if row.id == name), None)
        return None if row is None or row.is_open or row.events <= larger_than else (store, row)

    def _opening_of(self, trace_id: str) -> threading.Lock:
        with self._lock:
            if len(self._opening) > 1000:  # names that nobody is opening are of no use
                for name in [name for name, lock in self._opening.items() if not lock.locked()]:
                    del self._opening[name]
            return self._opening[trace_id]

    def _put(self, trace_id: str, version: str, trace: Trace) -> None:
        with self._lock:
            self._opened[trace_id] = version, trace
            self._opened.move_to_end(trace_id)
            held = sum(len(one.events) for _, one in self._opened.values())
            while held > self._limit and len(self._opened) > 1:
                held -= len(self._opened.popitem(last=False)[1][1].events)

    def keep(self, trace: Trace, beside: str) -> str | None:
        """Keep a fork: in the store where its original is, or here while the viewer runs. Where it is, or None."""
        store = self.store
        if beside in self._held or self.store_path is None or store is None or store.version(beside) is None:
            with self._lock:
                self._held[trace.trace_id] = trace
            return None
        try:
            with Store(self.store_path, create=False) as writable:
                writable.add(trace)
        except InputError:
            raise
        except OSError as error:
            if isinstance(error, CounterpointError):
                raise
            why = error.strerror or str(error)
            raise InputError("the fork cannot be stored", where=os.fspath(self.store_path), why=why) from error
        return os.fspath(self.store_path)


def path_id(path: Path) -> str:
    """A path as one would write it here: relative where it is below the working folder."""
    here = Path.cwd()
    full = Path(os.path.abspath(path))
    return (full.relative_to(here) if full.is_relative_to(here) else full).as_posix()


# -- The list of traces: rows, facets and a tiny picture of each, for the page's first screen -------------------------
# Always true: the rows are those that `counterpoint ls` gives for the same query, the last at work first; a row costs no look
# into the lake but for its picture, and a picture is made once for each version of a trace, and only of small ones.

SLICES = 24
_PICTURES, _PICTURE_EVENTS = 60, 5_000
"""So many rows get a picture, if they have no more events than this."""
_KEPT = 5_000
_COUNTED_EVENTS = 20_000
"""Alerts are counted in the list for traces of at most so many events: a larger one is looked at when it is opened."""
ROWS = 2_000
_VALUES = 100
"""So many values of a facet are counted out."""


class Listing:
    """Lists what is in a collection, and keeps the pictures."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._pictures: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = threading.Lock()

    def traces(self, query: str = "", limit: int = ROWS) -> Traces:
        """The traces that match a query of the search language."""
        collection = self._collection
        matches = matcher(query, {} if collection.store is None else collection.store.datasets())
        held = {trace.trace_id: trace for trace in collection.open_traces()}
        newest = sorted(collection.rows(), key=lambda row: (row.active, row.added), reverse=True)
        every = [*map(Summary.of_trace, held.values()), *newest]
        found = [row for row in every if matches(row)]
        counts = {name: Counter(value for row in found for value in facet(row, name)) for name in FACETS}
        facets = {name: dict(count.most_common(_VALUES)) for name, count in counts.items()}
        shown = found[: max(limit, 0)]
        lanes = self._lanes(shown, held)
        rows = [_row(row, lanes.get(row.id, [])) for row in shown]
        where = "" if collection.store_path is None else os.fspath(collection.store_path)
        return Traces(
            store=where, rows=rows, found=len(found), total=len(every), facets=facets, zone=zone(), remarks=remarks(query),
            version=counterpoint.__version__,
        )  # fmt: skip

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


class AlertCounts:
    """Counts the alerts of traces for their lines in the list, once for each version of a trace."""

    def __init__(self, collection: Collection, count: Callable[[Trace], AlertCount]) -> None:
        """`count` looks at one trace."""
        self._collection, self._count = collection, count
        self._known: OrderedDict[tuple[str, str], AlertCount] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, names: Sequence[str]) -> dict[str, AlertCount]:
        """By name; what is not there, or too large to be looked at unasked, is left out."""
        large = {row.id for row in self._collection.rows() if row.events > _COUNTED_EVENTS or row.is_open}
        out = {}
        for name in dict.fromkeys(names):
            if name not in large:
                with suppress(CounterpointError, OSError):  # it says why when it is opened
                    out[name] = self._of(name)
        return out

    def _of(self, name: str) -> AlertCount:
        key = name, self._collection.version(name)
        with self._lock:
            found = self._known.get(key)
        if found is None:
            found = self._count(self._collection.get(name))
            with self._lock:
                self._known[key] = found
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        return found


def _row(row: Summary, lanes: list[float]) -> TraceRow:
    return TraceRow(
        id=row.id,
        title=row.title,
        project=row.project,
        models=list(row.models),
        date=row.date,
        active=row.active,
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
        problems=row.problems,
        unpriced=min(row.unpriced_tokens, 1 << 53),
        is_open=row.is_open,
        is_steered=row.is_steered,
        waits=row.waiting[0].what if row.waiting else "",
        since=row.waiting[0].since if row.waiting else None,
        parent=row.parent,
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
