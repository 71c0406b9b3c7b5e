"""Traces that somebody removed stay out when their logs are imported again, and the account says how many.

A trace is known again by where it came from, or by its id and events (`store/removal.py`): also in another folder, in a copy that
grew, and under any number of processes. `counterpoint store rm --restore` lets it in again.
"""

from __future__ import annotations

from counterpoint.app.import_account import Outcome
from counterpoint.store import Store
from counterpoint.trace import Trace

REMOVED = "removed"


def without_removed(batch: list[tuple[Outcome, Trace]], sources: list[str], store: Store) -> list[tuple[Outcome, Trace, str]]:
    """Those that are to be stored, each with its source; the outcomes of the others say that they were removed."""
    kept = []
    for (outcome, trace), source in zip(batch, sources, strict=True):
        is_id_its_own = trace.meta["import"].get("run") is None
        if store.removals.has(trace, source, is_id_its_own=is_id_its_own):
            left_out(outcome, 1)
        else:
            kept.append((outcome, trace, source))
    return kept


def seen_before(outcome: Outcome, store: Store | None) -> Outcome:
    """The outcome of a session that has not changed: some of its traces may have been removed since."""
    if store is not None:
        left_out(outcome, sum(map(store.removals.has_id, outcome.traces)))
    return outcome


def left_out(outcome: Outcome, count: int) -> None:
    """Count traces of a session that stay out; one with no other trace is removed as a whole."""
    outcome.removed += count
    if outcome.removed and outcome.removed >= len(outcome.traces) and outcome.status != "failed":
        outcome.status = REMOVED
