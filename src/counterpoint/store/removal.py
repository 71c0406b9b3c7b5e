"""What was removed is remembered by what it was called, so that no later import brings it back.

Always true: what is remembered are hashes: of the id, of where the trace came from, and of the ids of its first events; nothing
of what it said. It lasts through compactions, `purge` and repairs, until it is restored. Who adds or records a trace is not held
up: only imports ask, and the receiver.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from hashlib import sha256

from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.store.handles import is_handle
from counterpoint.store.lake import Lake, MissingFile
from counterpoint.store.log import Commit, Log, Removal, Row, State
from counterpoint.trace import Trace

_FIRST = 16
_BEGIN = 8  # what a list shows of a long id, at least


def _hashed(name: str) -> str:
    """A name as it is remembered; that of an id begins with its handle."""
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def removed_at(state: State, trace_id: str) -> float | None:
    """When a trace of this id was removed last, where that is remembered."""
    if not state.removed:
        return None
    name = _hashed(trace_id)
    return max((gone.at for gone in state.removed.values() if gone.id == name), default=None)


def _own(trace: Trace) -> frozenset[str]:
    return frozenset(_hashed(event.id) for event in trace.events)


def _are_most(remembered: tuple[str, ...], own: frozenset[str]) -> bool:
    """Whether most of the events that are remembered of a removal are among a trace's own."""
    return 2 * sum(event in own for event in remembered) > len(remembered)


class Removals:
    """The removals that a store remembers."""

    def __init__(self, log: Log, lake: Lake) -> None:
        self._log, self._lake = log, lake

    def __len__(self) -> int:
        return len(self._log.refresh().removed)

    def of(self, trace_id: str, row: Row | None) -> Removal:
        """How a trace that is being removed will be known again; `row` is None for one that was never finished."""
        events: list[str] = []
        if row is not None:
            with suppress(CounterpointError, MissingFile):  # one that cannot be read is known by its names alone
                events = self._lake.batch([row], ["id"], edges=False).events["id"][:_FIRST].to_pylist()
        source = None if row is None or row.source is None else _hashed(row.source)
        begin, first = _hashed(trace_id[:_BEGIN]), tuple(map(_hashed, events))
        return Removal(id=_hashed(trace_id), begin=begin, source=source, events=first, at=time.time())

    def has(self, trace: Trace, source: str | None = None, *, is_id_its_own: bool = True) -> bool:
        """Whether a trace that an import found, in another copy or a longer one, was removed.

        The same source is the same run, whatever its id is now. Without a source the id decides. One id from two sources, where
        the id is the run's own, is one run when most of the events that are remembered are in it: it grew, or its beginning came
        late. A trace that somebody added again since is there, and not removed.
        """
        state = self._log.refresh()
        stored = state.rows.get(trace.trace_id)
        if not state.removed or (stored is not None and (source is None or stored.source in (None, source))):
            return False
        name, origin = _hashed(trace.trace_id), None if source is None else _hashed(source)
        of_id = [gone for gone in state.removed.values() if gone.id == name]
        if origin is None:
            return bool(of_id)
        if any(gone.source == origin for gone in state.removed.values()):
            return True
        own = _own(trace) if of_id and is_id_its_own else frozenset()
        return any(_are_most(gone.events, own) for gone in of_id)

    def has_sent(self, trace: Trace, source: str) -> bool:
        """Whether a trace that a sender sends, again or more of it, was removed.

        Its source names the sender and not the run, so the id has to be the same too, and most of the events: a sender may give
        the id of an old run to a new one.
        """
        state = self._log.refresh()
        if not state.removed or trace.trace_id in state.rows:
            return False
        names = _hashed(trace.trace_id), _hashed(source)
        of_both = [gone for gone in state.removed.values() if (gone.id, gone.source) == names]
        own = _own(trace) if of_both else frozenset()
        return any(not gone.events or _are_most(gone.events, own) for gone in of_both)

    def has_id(self, trace_id: str) -> bool:
        """Whether a trace of this id was removed, and is not there again."""
        state = self._log.refresh()
        if not state.removed or trace_id in state.rows:
            return False
        name = _hashed(trace_id)
        return any(gone.id == name for gone in state.removed.values())

    def restore(self, names: Collection[str] | None = None) -> int:
        """Let imports bring back what was removed: of these ids, or handles of ids, or all; returns how many removals it was."""
        back: list[Removal] = []

        def change(state: State) -> Commit | None:
            known = list(state.removed.values())
            back[:] = known if names is None else [gone for name in names for gone in self._matches(known, name)]
            return Commit(at=time.time(), restored=back) if back else None

        self._log.commit(change)
        return len(back)

    def _matches(self, known: list[Removal], name: str) -> list[Removal]:
        """The removals of a trace, by its id, its handle, or a beginning of its id that no other has."""
        matches = [gone for gone in known if gone.id == _hashed(name) or (is_handle(name) and gone.id.startswith(name))]
        if not matches and len(name) >= _BEGIN:
            matches = [gone for gone in known if gone.begin == _hashed(name[:_BEGIN])]
        if len({gone.id for gone in matches}) > 1:
            raise InputError(f"{len(matches)} removed traces have ids that begin with {name!r}", fix="give the whole id")
        if not matches:
            fix = f"the store remembers {len(known):,} removals, none by this name" if known else "nothing is remembered"
            raise NotFound(f"no trace {name!r} was removed", where=str(self._log.folder.parent), fix=fix)
        return matches
