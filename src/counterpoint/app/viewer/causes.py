"""What recurs over the runs that a query finds: the causes of `counterpoint blame --causes`, for the list of traces.

Always true: the newest failed runs of the query are judged, at most `_JUDGED` of them and none that is very long; how many were
judged and how many were not is told with the answer.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec import Struct

from counterpoint.app.api.blame import judged
from counterpoint.app.search import matcher
from counterpoint.app.viewer.collection import Collection
from counterpoint.audits.blame.judge import Blame, causes, succeeded
from counterpoint.errors import CounterpointError
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace

_JUDGED, _LONG = 200, 5_000
"""Runs that are judged at most, and events from which a run is left out: a page waits for the answer."""
_TOLD = 12


class RecurringCause(Struct, frozen=True, kw_only=True):
    """What several runs have in common."""

    words: str
    who: str
    runs: int
    expected: float
    """Runs, each weighted by the ranker's share of its first suspect."""
    example: str
    """The trace in which that share is largest, and there the event."""
    event: str
    reason: str


class RecurringCauses(Struct, frozen=True, kw_only=True):
    """The causes that recur, the most frequent first."""

    causes: list[RecurringCause]
    judged: int
    left_out: int
    """Runs of the query that succeeded, state no outcome, are running, are very long, or were too many."""
    unclear: int
    """Runs that were judged and in which no step stands out."""


def recurring_causes(collection: Collection, query: str) -> RecurringCauses:
    """The causes over the failed runs that match a query of the search language."""
    matches = matcher(query, {} if collection.store is None else collection.store.datasets())
    held = {trace.trace_id: trace for trace in collection.open_traces()}
    rows = [row for row in [*map(Summary.of_trace, held.values()), *reversed(collection.rows())] if matches(row)]
    failed: list[Trace] = []
    for row in rows:
        if len(failed) >= _JUDGED:
            break
        if row.events > _LONG or row.is_open:
            continue
        with suppress(CounterpointError, OSError):  # it says why when it is opened
            trace = held.get(row.id) or collection.get(row.id)
            if succeeded(trace) is False:
                failed.append(trace)
    found = [(trace, told) for trace, told in judged(failed, most=1) if isinstance(told, Blame)]
    told = [
        RecurringCause(
            words=c.words, who=c.who, runs=c.runs, expected=c.expected, example=c.trace_id, event=c.event, reason=c.reason
        )
        for c in causes(found)[:_TOLD]
    ]  # fmt: skip
    unclear = sum(not one.stands_out for _, one in found)
    return RecurringCauses(causes=told, judged=len(found), left_out=len(rows) - len(found), unclear=unclear)
