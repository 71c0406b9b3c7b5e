"""Which run a trace that was read is, and what becomes of the one that the store has of it.

Where a file lies says nothing about which run it holds. A source with ids of its own is believed: the same id and the same first
event are the same run, which may have grown. An id that is no random number may be a placeholder that every run has: there what
the events say must agree too. Where a source has none, all that the run says tells it from others. Logs only grow: a copy that
holds less than what is stored was cut off, or its source has deleted a part, and does not replace it.

Always true: one process at a time decides and stores, so that two that import at once come to the same.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import msgspec

from counterpoint.app.import_account import Outcome
from counterpoint.app.import_copies import without_copies
from counterpoint.app.import_removed import without_removed
from counterpoint.errors import InputError
from counterpoint.store import Store, Summary
from counterpoint.store.disk import lock
from counterpoint.trace import Trace

# Ids that no two runs get by chance: UUIDs and the ids of tracers; a placeholder repeats a few digits.
_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")
_DIGITS = 8
_LOCK = "lock"


def source_of(importer: str, trace: Trace) -> str:
    """Where a trace comes from, as the store keeps it: another run has another one, the same run the same."""
    run = trace.meta["import"].get("run")
    if run is None and trace.events:
        first = trace.events[0]
        said = f"{first.id}\0{first.at}\0{first.content_ref}"
        run = f"{trace.trace_id}:{blake2b(said.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"
    return f"{importer}:{run}"


def put_away(waiting: list[tuple[Outcome, Trace]], store: Store | None) -> None:
    """Store the waiting traces. A run whose id another run has already is stored under an id of its own, and one of which the
    store has more stays as it is."""
    batch, waiting[:] = list(waiting), []
    if store is None or not batch:
        return
    with _alone(store):
        _put_away(_told_apart(batch, store), store)


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    """While no other process that imports into the store decides which runs it has."""
    folder = store.path / "imports"
    folder.mkdir(exist_ok=True)
    fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        lock(fd, wait=True)
        yield
    finally:
        os.close(fd)


def _told_apart(batch: list[tuple[Outcome, Trace]], store: Store) -> list[tuple[Outcome, Trace]]:
    """The same, with another id for each run whose id, perhaps a placeholder, another run has: the one it got before, if any."""
    out: list[tuple[Outcome, Trace]] = []
    named: dict[str, list[Trace]] = {}
    names: list[str] | None = None
    place: Counter[int] = Counter()
    for outcome, trace in batch:
        own, at = trace.trace_id, place[id(outcome)]
        place[id(outcome)] += 1
        if trace.meta["import"].get("run") is None and not _is_random(own):
            if own not in named:
                names = [row.id for row in store.rows() if not row.is_open] if names is None else names
                named[own] = [store.get(name) for name in names if name == own or name.startswith(f"{own}-")]
            name = outcome.before[at] if len(outcome.before) == len(outcome.traces) else _name_among(trace, named[own])
            if name != own:
                outcome.report.mended["runs whose id another run has: stored under another"] += 1
                outcome.traces[at] = name
                trace = msgspec.structs.replace(trace, trace_id=name)
            named[own].append(trace)
        out.append((outcome, trace))
    return out


def _name_among(trace: Trace, others: list[Trace]) -> str:
    """The name of the run that a trace is among those of one id; its own where no other has it, else a new one."""
    same = next((one.trace_id for one in others if _is_one_run(one, trace)), None)
    if same is not None or all(one.trace_id != trace.trace_id for one in others):
        return same or trace.trace_id
    return f"{trace.trace_id}-{_digest(trace)}"


def _is_random(name: str) -> bool:
    found = _RANDOM.search(name.lower())
    return found is not None and len(set(found[0])) >= _DIGITS


def _is_one_run(a: Trace, b: Trace) -> bool:
    """Whether one of two traces is the other, or what it was before it grew: most of what the shorter says, the longer says."""
    first, second = ({(e.id, e.type, e.content_ref) for e in one.events} for one in (a, b))
    return 2 * len(first & second) > min(len(first), len(second))


def _digest(trace: Trace) -> str:
    said = "\0".join(f"{e.id} {e.type} {e.content_ref}" for e in trace.events)
    return blake2b(said.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _put_away(batch: list[tuple[Outcome, Trace]], store: Store) -> None:
    longest: dict[tuple[str, str], int] = {}
    sources = [source_of(outcome.importer, trace) for outcome, trace in batch]
    for (_, trace), source in zip(batch, sources, strict=True):
        key = trace.trace_id, source
        longest[key] = max(longest.get(key, 0), len(trace.events))
    kept = [
        (outcome, trace, source)
        for outcome, trace, source in without_removed(batch, sources, store)
        if len(trace.events) == longest[trace.trace_id, source]  # of two copies of one run, the one that goes further
    ]
    kept, cut = without_copies(kept, store)
    kept = _without_losses(kept, store)
    new = [trace.trace_id not in store for _, trace, _ in kept]
    try:
        done = store.add_many([trace for _, trace, _ in kept], [source for _, _, source in kept])
    except InputError:
        done = [_store_alone(outcome, trace, source, store) for outcome, trace, source in kept]
    store.add_many([one.trace for one in cut], [one.source for one in cut])
    for (outcome, _, _), what, is_new in zip(kept, done, new, strict=True):
        if outcome.status not in ("failed", "kept") and not is_new:
            outcome.status = what


def _without_losses(batch: list[tuple[Outcome, Trace, str]], store: Store) -> list[tuple[Outcome, Trace, str]]:
    """Those that are stored: not a shorter copy of what is there, as of a file that was cut off, or whose neighbours are gone."""
    if not any(trace.trace_id in store for _, trace, _ in batch):
        return batch
    rows = {row.id: row for row in store.rows() if not row.is_open}
    out = []
    for outcome, trace, source in batch:
        row = rows.get(trace.trace_id)
        if row is None or row.source != source or outcome.is_reread or not _is_part(trace, row):
            out.append((outcome, trace, source))
        elif outcome.status != "failed":
            outcome.status = "kept"
    return out


def _is_part(trace: Trace, row: Summary) -> bool:
    """Whether a run, read again, has lost events and gained no tokens."""
    return len(trace.events) < row.events and int(trace.costs.get("tokens", 0)) <= (row.tokens or 0)


def _store_alone(outcome: Outcome, trace: Trace, source: str, store: Store) -> str:
    """Store a trace whose id may be another run's: then under an id of its own, which it gets again next time."""
    mark = blake2b(source.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    others = [f"{outcome.importer}-{trace.trace_id}"] if _importer_of(store, trace.trace_id) != outcome.importer else []
    for name in (trace.trace_id, *others, f"{trace.trace_id}-{mark}"):
        try:
            what = store.add(msgspec.structs.replace(trace, trace_id=name), source)
        except InputError as error:
            if name == trace.trace_id and not others and _is_same_run(store, trace):
                row = next(row for row in store.rows() if row.id == name)
                return "kept" if _is_part(trace, row) and not outcome.is_reread else store.add(trace)
            outcome.error = error.one_line()
            continue
        if name != trace.trace_id:
            outcome.traces[outcome.traces.index(trace.trace_id)] = name
            outcome.report.mended["runs whose id another run has: stored under another"] += 1
        outcome.error = None
        return what
    outcome.status = "failed"
    return "failed"


def _importer_of(store: Store, trace_id: str) -> str:
    """Which importer stored a trace."""
    return next((str(row.source or "").partition(":")[0] for row in store.rows() if row.id == trace_id), "")


def _is_same_run(store: Store, trace: Trace) -> bool:
    """Whether a stored trace is an earlier reading of this one: most events of the shorter are in the longer.

    Asked only where the first event differs, as when an earlier span came in late.
    """
    if trace.meta["import"].get("run") is not None:
        return False
    stored, own = ({e.id for e in t.events} for t in (store.get(trace.trace_id), trace))
    return 2 * len(stored & own) > min(len(stored), len(own))
