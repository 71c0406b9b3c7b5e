"""How a recording ends: off the recorded program's path its trace is checked and moved into the lake.

Always true: nothing here raises; where sealing fails the journal has what there is, and the problem is noted. Recordings that end
while others are being sealed are sealed together, in one part. The interpreter ends when all are.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import counterpoint.recorder.live_spans as live_spans
import counterpoint.store.pending as pending
from counterpoint.errors import CounterpointError
from counterpoint.recorder.lanes import RecordingSession
from counterpoint.recorder.problems import forget, one_line, say_once
from counterpoint.recorder.shared_store import LateJournal, SharedStore
from counterpoint.trace import Trace

MOST_WAITING = 256
"""Recordings that have ended and are not sealed: while there are as many, new ones are not begun."""
_AT_ONCE = 64
"""Traces that are sealed in one part."""


class _Ending(NamedTuple):
    session: RecordingSession
    place: SharedStore
    journal: LateJournal
    meta: dict[str, Any] | None
    """What is added to the trace's `meta`; None to leave it unfinished."""
    is_kept: bool
    future: Future[Trace | None]


_endings: deque[_Ending] = deque()
_lock = threading.Lock()
_workers: list[ThreadPoolExecutor] = []


def end(
    session: RecordingSession, place: SharedStore, journal: LateJournal, meta: dict[str, Any] | None, *, is_kept: bool
) -> Future[Trace | None]:
    """Nothing more is recorded; the trace is on its way. Without `is_kept` it is forgotten, if nothing of it is on disk."""
    with session.lanes.lock:
        session.is_over = True
    if is_kept and not session.recorder.count:
        session.note("nothing was recorded: no decorated function was called, and nothing was said")
    future: Future[Trace | None] = Future()
    pending.add(place.real_path, session.run.trace_id, future)
    _endings.append(_Ending(session, place, journal, meta, is_kept, future))
    later(_seal_waiting)
    return future


def end_replay(session: RecordingSession, meta: dict[str, Any] | None) -> Future[Trace | None]:
    """The end of a recording that runs again, which is in memory alone."""
    with session.lanes.lock:
        session.is_over = True
    future: Future[Trace | None] = Future()
    costs = {} if session.lanes.cost_usd is None else {"cost_usd": session.lanes.cost_usd}
    is_whole = meta is not None and session.recorder.count
    future.set_result(session.run.finish(session.rewards, costs, session.metrics or None, meta) if is_whole else None)
    return future


def later(work: Callable[[], object]) -> None:
    """Do this off the caller's path, after what was asked for before; at once where the interpreter is ending."""
    with _lock:
        if not _workers:
            _workers.append(ThreadPoolExecutor(1, "counterpoint-sealer", pending.never_wait))
        worker = _workers[0]
    try:
        worker.submit(work)
    except RuntimeError:
        work()


def _seal_waiting() -> None:
    """Seal what has ended, as much of it together as goes into one part."""
    batch: list[_Ending] = []
    while _endings and len(batch) < _AT_ONCE:
        batch.append(_endings.popleft())
    for one in batch:
        if one.session.spans is not None and one.is_kept and one.session.recorder.count:
            live_spans.later(partial(one.session.spans.end, "unfinished" if one.meta is None else one.meta.get("failed")))
    ended = [(one, trace) for one in batch if (trace := _ended(one)) is not None]
    by_place: dict[SharedStore, list[tuple[_Ending, Trace]]] = {}
    for one, trace in ended:
        by_place.setdefault(one.place, []).append((one, trace))
    for place, members in by_place.items():
        try:
            place.open().seal([trace for _, trace in members])
            _done(members)
        except Exception:
            for member in members:  # one of them is refused, or the disk is: each says for itself
                _seal_one(*member)


def _seal_one(one: _Ending, trace: Trace) -> None:
    try:
        one.place.open().seal([trace])
    except Exception as error:
        one.session.note(one_line(error), kind=getattr(error, "what", None))
        _finish(one, None)
    else:
        _done([(one, trace)])


def _done(members: list[tuple[_Ending, Trace]]) -> None:
    for one, trace in members:
        forget(one.session.where)
        try:
            one.session.run.delete()
        except Exception as error:
            one.session.note(one_line(error), kind=getattr(error, "what", None))
        _finish(one, trace)


def _ended(one: _Ending) -> Trace | None:
    """The trace of an ending, whole in its journal; None where it goes no further."""
    session = one.session
    try:
        if not one.is_kept or not session.recorder.count:
            session.run.delete()
        elif one.meta is not None:
            costs = {} if session.lanes.cost_usd is None else {"cost_usd": session.lanes.cost_usd}
            try:
                session.run.sync()
            except CounterpointError:
                for refusal in session.run.drop_refused():
                    session.note(f"a record could not be written and is left out: {refusal.why}")
            return session.run.end(session.rewards, costs, session.metrics or None, one.meta)
    except Exception as error:
        left = "what there is stays in its journal" if one.journal.is_made else "nothing of it is recorded"
        session.note(f"{one_line(error)}; {left}", is_new=False, kind=getattr(error, "what", None))
    _finish(one, None)
    return None


def _finish(one: _Ending, trace: Trace | None) -> None:
    """Nobody needs the journal or the store for this recording any more."""
    session = one.session
    for let_go in (*(() if trace is not None else (session.run.release,)), one.place.leave):
        try:
            let_go()
        except Exception as error:
            if not session.problems:  # else it has been told what is wrong with the disk
                session.note(one_line(error))
    if len(session.problems) > 1:
        line = f"counterpoint: the recording of {session.run.trace_id!r} has {len(session.problems)} problems; see rec.problems"
        say_once(line, f"{session.where}: problems")
    one.future.set_result(trace)


def sync(session: RecordingSession) -> bool:
    """Whether all that was recorded so far is on disk, after waiting for that."""
    try:
        session.run.sync()
    except Exception as error:
        session.note(one_line(error), is_new=False)
        return False
    return True


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _endings.clear()
    _workers.clear()


os.register_at_fork(after_in_child=_after_fork)
