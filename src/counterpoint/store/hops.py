"""Recordings of one run in several processes become one trace as soon as both sides are in a store.

Whichever comes last joins: the recording that was called waits as a trace of its own until the one that began it is there.

Always true: the joined trace takes the place of its parts in one commit, or nothing changes; a part that comes again stays out,
and the trace that called, come again, keeps what was joined to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from counterpoint.store.lake import Lake, MissingFile
from counterpoint.store.log import Commit, Log, Row, State
from counterpoint.store.removal import Removals
from counterpoint.trace import Trace
from counterpoint.trace.hops import HOPS, caller_of, is_called, part_ids, run_key, whole_run, with_parts_of


def runs_of(trace: Trace) -> set[str]:
    """The runs of several processes that a trace is a part of: nothing for almost all."""
    hop = caller_of(trace.meta)
    return {hop.run} if hop is not None else {run_key(trace.trace_id)} if trace.meta.get(HOPS) else set()


def with_parts(trace: Trace, state: State, lake: Lake) -> Trace:
    """A trace that is about to be stored, with what was joined to it when it was stored before."""
    row = state.rows.get(trace.trace_id) if trace.meta.get(HOPS) else None
    return trace if row is None else with_parts_of(trace, lake.trace(row))


def join_hops(runs: Iterable[str], log: Log, lake: Lake, write: Callable[[Trace, Row, Sequence[Row]], bool]) -> None:
    """Join what can be joined of these runs; `write` puts a trace in the place of a row and drops others, unless they changed."""
    for run in sorted(runs):
        while True:
            rows = log.refresh().rows
            parts = [row for name, row in rows.items() if is_called(name, run)]
            root = next((row for name, row in rows.items() if run_key(name) == run), None) if parts else None
            if root is None:
                break
            try:
                whole = whole_run(lake.trace(root), [lake.trace(row) for row in parts])
            except MissingFile:
                if rows == log.refresh().rows:
                    raise
                continue  # a compaction moved them meanwhile
            names = part_ids(whole)
            done = [row for row in parts if row.id in names]
            if not done or write(whole, root, done):
                break


def removal_of(rows: Collection[Row], log: Log, lake: Lake) -> Commit:
    """The commit that drops parts, and remembers them."""
    removals = Removals(log, lake)
    return Commit(at=time.time(), drop=[row.id for row in rows], removed=[removals.of(row.id, row) for row in rows])
