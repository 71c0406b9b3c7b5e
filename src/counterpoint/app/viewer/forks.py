"""Forks from the page: made by the functions of `counterpoint fork`, kept where their original is, badges per event.

Always true: only a world that is shipped is replayed: a trace may name any code, and looking at it must not run it. The recorded
trace is not touched; one continuation claims no effect.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from counterpoint.app.forks import badges, can_fork, counts, edit, parent_of, replay_for
from counterpoint.app.load_save import about
from counterpoint.app.viewer.collection import Collection
from counterpoint.display import number
from counterpoint.errors import CounterpointError, InputError, NotIdentified, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.outcome import as_recorded

KINDS = ("delete", "substitute", "force")
_KEPT = 8


class Forks:
    """Makes forks of what is in a collection, and knows their badges."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._badges: OrderedDict[tuple[str, str], dict[str, str]] = OrderedDict()
        self._lock = threading.Lock()

    def fork(self, trace_id: str, kind: str, at: str, value: str | None) -> dict[str, Any]:
        """The fork's id, a line that sums it up, and where it is kept."""
        from counterpoint.audits.blast import blast_radius
        from counterpoint.audits.diff import diff

        if kind not in KINDS:
            raise InputError(f"no edit named {kind!r}", where="kind", fix=did_you_mean(kind, KINDS))
        if kind != "delete" and value is None:
            raise InputError(f"{kind} needs a value", where="value", fix="JSON or plain text")
        trace = as_recorded(self._collection.get(trace_id))  # a person's score is of the run as it was, a fork has its own
        if not can_fork(trace):
            fix = "fork a trace of `counterpoint play`, or of a shipped world: `counterpoint play --world wide_verify`"
            raise NotIdentified("this team's continuation is unknown: it cannot be run again", fix, where=trace_id)
        do = edit("delete" if kind == "delete" else None, *(value if kind == name else None for name in ("substitute", "force")))
        with about(trace_id):
            forked = replay_for(trace).fork(trace, at, do, None)
            found = diff(trace, forked)
            summed = counts(found, blast_radius(trace, forked, at), forked)
        place = self._collection.keep(forked, trace_id)
        before, after = trace.rewards.get("team"), forked.rewards.get("team")
        line = " · ".join(f"{name} {count:,}" for name, count in summed.items())
        line += f"; team {number(before)} -> {number(after)} (one continuation does not show an effect)"
        line += "" if place else "; kept only until this viewer ends"
        return {"id": forked.trace_id, "line": line, "badges": summed, "kept": place}

    def badges(self, trace: Trace) -> dict[str, str] | None:
        """Event to badge, for a fork whose original is in the collection too; None for every other trace."""
        parent, edits = parent_of(trace), trace.meta.get("edits")
        last = edits[-1] if isinstance(edits, list) and edits else None
        if parent is None or not isinstance(last, dict) or last.get("seed") is not None:
            return None  # with fresh noise everything after the event is another run
        try:
            key = trace.trace_id, f"{self._collection.version(trace.trace_id)} {self._collection.version(parent)}"
            with self._lock:
                if key not in self._badges:
                    self._badges[key] = badges(self._collection.get(parent), trace, str(last.get("at")))
                    while len(self._badges) > _KEPT:
                        self._badges.popitem(last=False)
                return self._badges[key]
        except CounterpointError:  # the original is not here, or is not what it was
            return None
