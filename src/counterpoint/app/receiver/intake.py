"""From the spool to the store: records that belong together are read by an importer, as often as they grow, until they rest.

Always true: what the spool holds is in the store at the latest one round after it came to rest, and again after a restart;
reading it twice changes nothing, for a trace is replaced by itself. A trace that got no record for `idle_s` is sealed: its
records leave the spool and lie packed for `keep_s`, so that a late one is read with those before it and never takes
their place. After that a late record is refused. Records that no importer or store takes are put aside, not lost. A trace that
somebody removed stays out, also when more of it comes, until `store rm --restore`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from msgspec.structs import replace

from counterpoint.app.discover import importers
from counterpoint.app.receiver import otlp
from counterpoint.app.receiver.spool import Place, Sealed, Spool
from counterpoint.errors import CounterpointError, InputError
from counterpoint.formats.importing.files import HEAD, File
from counterpoint.store import Store
from counterpoint.trace import Trace

_TICK_S = 0.1
_EVERY_S = 1.0
"""A growing trace is read this often at most."""
_SHARE = 10
"""And takes one part in so many of the time: a long one is read less often."""
_RETRY_S = 5.0
_TIDY_S = 600.0
_TOGETHER, _EVENTS_TOGETHER = 256, 100_000
"""The most traces, and events, that are stored in one commit."""
_DEFAULT = "otel"
_SOURCE = "otlp"
Note = Callable[[str], None]


@dataclass
class _Unit:
    """The records of one key that are in the spool."""

    places: list[Place] = field(default_factory=list)
    arrived: float = 0.0
    due: float = 0.0
    is_changed: bool = False
    is_refused: bool = False
    made: set[str] = field(default_factory=set)
    """Ids of the traces that were made of them."""


class _Made:
    """The traces of keys that were read together."""

    def __init__(self, keys: set[str], traces: list[Trace]) -> None:
        self.keys, self.traces = keys, traces
        self.events = sum(len(trace.events) for trace in traces)


class Intake:
    """Everything that has come and is not sealed."""

    def __init__(self, store: Store, *, idle_s: float, keep_s: float, note: Note) -> None:
        """Read again what an earlier receiver left in the spool."""
        self.counts: Counter[str] = Counter()
        self._store, self._idle_s, self._note = store, idle_s, note
        self._units: dict[str, _Unit] = {}
        self._groups = Groups()
        self._lock = threading.Lock()
        """For units and groups."""
        folder = store.path / "otlp"
        self._spool = Spool(folder / "spool")
        self._sealed = Sealed(folder, keep_s)
        self._ours = {row.id for row in store.rows() if row.source == _SOURCE}
        self._left_out: set[str] = set()
        """Ids of removed traces of which more came, and that this was said of."""
        self._recover()
        self._is_closing = threading.Event()
        self._tidied = time.monotonic()
        self._worker = threading.Thread(target=self._run, name="otlp-intake", daemon=True)
        self._worker.start()

    def _recover(self) -> None:
        damaged: dict[Place, bytes] = {}
        for line, place in self._spool.recovered():
            taken = otlp.read_again(line)
            if taken is None:
                damaged[place] = line
            else:
                self._take(taken, [place])
        if damaged:
            self._note(
                f"{len(damaged):,} damaged lines of the spool were put aside in {self._sealed.put_aside(damaged.values())}"
            )
            self._spool.forget(damaged)
        if self._units:
            self._note(f"{len(self._units):,} open traces were read again from the spool")

    # -- what comes in -----------------------------------------------------------------------------------------------------

    def is_over(self, key: str) -> bool:
        """Whether a trace was sealed so long ago that it takes no more."""
        return key not in self._units and self._sealed.is_over(key)

    def put(self, taken: otlp.OtlpBatch) -> Future[None]:
        """Done when what was taken is durable; from then on every later receiver finds it."""

        def then(places: Sequence[Place]) -> None:
            with self._lock:
                self._take(taken, places)

        return self._spool.append(list(taken.lines.values()), then)

    def _take(self, taken: otlp.OtlpBatch, places: Sequence[Place]) -> None:
        for key, place in zip(taken.lines, places, strict=True):
            unit = self._units.setdefault(key, _Unit())
            unit.places.append(place)
            unit.arrived = time.monotonic()
            unit.is_changed = True
            if key in taken.joins:
                self._groups.join({key, *taken.joins[key]})

    # -- what comes of it --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closing.wait(_TICK_S):
            try:
                self._round()
            except Exception as error:
                # A full disk, a store in other hands, a defect: everything is still in the spool, so wait and try again.
                self.counts["failures"] += 1
                self._note(f"cannot write to the store, trying again: {error}")
                self._is_closing.wait(_RETRY_S)

    def _round(self) -> None:
        now = time.monotonic()
        with self._lock:
            due = [key for key, unit in self._units.items() if unit.is_changed and unit.due <= now]
            resting = [k for k, u in self._units.items() if not u.is_changed and now - u.arrived >= self._idle_s]
        self.read(due)
        self._seal(resting)
        if now - self._tidied >= _TIDY_S:
            self._tidied = now
            self.tidy()

    def read(self, keys: Iterable[str]) -> None:
        """Make traces of the records of these keys and of those joined with them, and store them."""
        ready: list[_Made] = []
        done: set[str] = set()
        for key in keys:
            if key in done:
                continue
            ready.append(self._made(key))
            done |= ready[-1].keys
            if len(ready) >= _TOGETHER or sum(made.events for made in ready) >= _EVENTS_TOGETHER:
                self._store_all(ready)
                ready = []
        self._store_all(ready)

    def _made(self, key: str) -> _Made:
        """Read a key with all that it is joined with, which may show only when it is read: two that give one trace are one."""
        begin = time.monotonic()
        lines: dict[str, list[bytes]] = {}
        traces: list[Trace] = []
        wanted, is_refused = {key}, False
        try:
            while wanted:
                before = sum(map(len, lines.values()))
                self._gather(wanted, lines)
                if before < sum(map(len, lines.values())):
                    data = b"".join(otlp.once(line for found in lines.values() for line in found))
                    traces = list(_traces(f"{key}.otlp.jsonl", data))
                wanted = self._joined(key, {trace.trace_id for trace in traces}) - lines.keys()
        except OSError:
            raise
        except Exception as error:  # whatever a stranger's record does to an importer, the others go on
            lines.setdefault(key, [])
            self._refuse(lines, error)
            traces, is_refused = [], True
        end = time.monotonic()
        for unit in (unit for name in lines if (unit := self._units.get(name)) is not None):
            unit.is_refused, unit.is_changed = is_refused, unit.is_changed and not is_refused
            unit.due = end + max(_EVERY_S, _SHARE * (end - begin))
        return _Made(set(lines), traces)

    def _joined(self, key: str, ids: set[str]) -> set[str]:
        """All names that belong with a key, now that the traces in it are known."""
        with self._lock:
            plain = {_bare(name) for name in self._groups.of(key)}
            self._groups.join([key, *(f"id-{name}" for name in sorted(ids - plain))])
            return self._groups.of(key)

    def _gather(self, wanted: set[str], found: dict[str, list[bytes]]) -> None:
        """Add all lines of some keys, and of every key that they are joined with, sealed ones before those in the spool."""
        while wanted:
            name = wanted.pop()
            joined, lines = self._sealed.read(name)
            with self._lock:
                if joined:
                    self._groups.join([name, *joined])
                wanted |= self._groups.of(name)
                unit = self._units.get(name)
                places = [] if unit is None else list(unit.places)
                if unit is not None:
                    unit.is_changed = False
            try:
                found[name] = [*lines, *self._spool.read(places)]
            except BaseException:
                if unit is not None:
                    unit.is_changed = True
                raise
            wanted -= found.keys()

    def _refuse(self, keys: Iterable[str], error: Exception) -> None:
        units = [(key, self._units[key]) for key in keys if key in self._units]
        if any(not unit.is_refused for _, unit in units):
            self._note(f"{units[0][0]}: cannot be made a trace, its records go to {self._sealed.refused}: {error}")
        for _, unit in units:
            unit.is_refused = True

    def _store_all(self, ready: Sequence[_Made]) -> None:
        """All together, which is quicker; one by one when one of them is refused."""
        traces = [trace for made in ready for trace in made.traces if not self._is_removed(trace)]
        try:
            try:
                whats = self._store.add_many(traces, _SOURCE) if traces else []
                names = [{trace.trace_id for trace in made.traces} for made in ready]
            except InputError:
                whats = []
                names = [set(self._store_alone(made, whats)) for made in ready]
            self.counts.update(whats)
            for made, ids in zip(ready, names, strict=True):
                self._replace(made.keys, ids)
        except BaseException:
            for key in (key for made in ready for key in made.keys if key in self._units):
                self._units[key].is_changed = True
            raise

    def _store_alone(self, made: _Made, whats: list[str]) -> Iterator[str]:
        """An id that another source has is stored under ours, as `import` does."""
        for trace in made.traces:
            try:
                try:
                    if not self._is_removed(trace):
                        whats.append(self._store.add(trace, _SOURCE))
                except InputError:
                    trace = replace(trace, trace_id=f"{_SOURCE}-{trace.trace_id}")
                    if not self._is_removed(trace):
                        whats.append(self._store.add(trace, _SOURCE))
                yield trace.trace_id
            except InputError as error:
                self._refuse(made.keys, error)

    def _is_removed(self, trace: Trace) -> bool:
        """Whether somebody removed it, which is said once."""
        name = trace.trace_id
        if not self._store.removals.has_sent(trace, _SOURCE):
            self._left_out.discard(name)
            return False
        if name not in self._left_out:
            self._left_out.add(name)
            self.counts["removed"] += 1
            self._note(f"{name}: more of it came after its removal: `counterpoint store rm --restore {name}` lets it in")
        return True

    def _replace(self, keys: set[str], ids: set[str]) -> None:
        """With more records two traces may be one, or have another name: what they were before goes."""
        units = [unit for key in keys if (unit := self._units.get(key)) is not None]
        if any(unit.is_refused for unit in units):
            return
        before = set(map(_bare, keys)).union(*(unit.made for unit in units)) & self._ours
        for gone in before - ids:
            if gone in self._store:
                self._store.remove(gone, remember=False)
        self._ours = (self._ours - before) | ids
        for unit in units:
            unit.made = ids

    # -- sealing -----------------------------------------------------------------------------------------------------------

    def _seal(self, keys: Iterable[str]) -> None:
        """Pack the records of groups that rest as a whole; they may go on later, and are then read with them."""
        resting, done = set(keys), set()
        for key in list(resting):
            with self._lock:
                group = self._groups.of(key)
                is_resting = all(name in resting for name in group if name in self._units)
            if key in done or not is_resting:
                continue
            done |= group
            self._pack(group)

    def _pack(self, group: set[str]) -> None:
        with self._lock:
            units = {name: self._units[name] for name in group if name in self._units}
            places = {name: list(unit.places) for name, unit in units.items()}
        is_refused = any(unit.is_refused for unit in units.values())
        # Each file names one of the group, and that one all: so each of many leads to every other.
        hub = min(group)
        for name in sorted(units if is_refused else group):
            _, sealed = self._sealed.read(name, only_refused=is_refused)
            lines = otlp.once([*sealed, *self._spool.read(places.get(name, ()))])
            self._sealed.write(name, group - {name} if name == hub else {hub} - {name}, lines, is_refused=is_refused)
        with self._lock:
            if any(len(self._units[name].places) > len(places[name]) for name in units):
                return  # one more came while we packed; what is packed is only packed twice
            if self._groups.of(next(iter(units))) != group:
                return
            for name in units:
                del self._units[name]
            self._groups.forget(next(iter(units)))
        self._spool.forget(place for found in places.values() for place in found)
        self.counts["refused" if is_refused else "sealed"] += 1

    def tidy(self) -> None:
        """Forget what was sealed long ago, free segments that are kept for a few lines, merge the store's small files."""
        with self._lock:
            is_open = {name for key in self._units for name in self._groups.of(key)}
            sparse = set(self._spool.sparse())
            lone = [key for key, unit in self._units.items() if any(place.segment in sparse for place in unit.places)]
            lone = [name for key in lone for name in self._groups.of(key) if name in self._units]
            lone = [name for name in lone if not self._units[name].is_changed]
        self._sealed.expire(but=is_open)
        self._seal(lone)
        self._store.compact()

    def status(self) -> dict[str, int]:
        """Counts since the start, and how much is open."""
        with self._lock:
            return {**self.counts, "open": len(self._units)}

    def close(self) -> None:
        """Write what waits, store what changed; the open traces stay in the spool for the next receiver."""
        self._is_closing.set()
        self._worker.join()
        self._spool.close()
        try:
            self.read([key for key, unit in self._units.items() if unit.is_changed])
        except (CounterpointError, OSError) as error:
            what, where = f"the store could not be written: {error}", os.fspath(self._spool.folder)
            fix = "repair the store and start the receiver again: everything that was acknowledged is in the spool"
            raise CounterpointError(what, where=where, fix=fix) from error


def _bare(name: str) -> str:
    """A key without its kind, which is what the importer of OpenTelemetry calls its trace."""
    return name.partition("-")[2]


def _traces(name: str, data: bytes) -> Iterator[Trace]:
    """The traces in some lines of OTLP JSON, read by the first importer that knows them."""
    known = importers()
    head = data[:HEAD]
    owner = next((owner for owner, importer in known.items() if importer.sniff(head)), _DEFAULT)
    for session in known[owner].group([File.of(data, name)]):
        for trace in known[owner].read_session(session):
            trace.meta["import"] = {"format": owner, **trace.meta.get("import", {})}
            yield trace


# -- groups ----------------------------------------------------------------------------------------------------------------


class Groups:
    """Sets of names that grow together; each name is in one."""

    def __init__(self) -> None:
        self._of: dict[str, set[str]] = {}

    def join(self, names: Iterable[str]) -> None:
        """These belong together, with all that belong to any of them."""
        whole: set[str] | None = None
        for name in names:
            group = self._of.setdefault(name, {name})
            if whole is not None and group is not whole:
                # The smaller moves into the larger, so that each name moves a few times at most.
                small, group = sorted((group, whole), key=len)
                group |= small
                self._of.update(dict.fromkeys(small, group))
            whole = group

    def of(self, name: str) -> set[str]:
        """All names that belong with this one, itself among them."""
        return set(self._of.get(name, {name}))

    def forget(self, name: str) -> None:
        """Drop the whole group of a name."""
        for other in self.of(name):
            self._of.pop(other, None)
