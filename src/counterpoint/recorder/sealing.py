"""How a recording ends: its trace is checked and moved into the lake, or left unfinished in the journal.

Always true: nothing here raises; where sealing fails the journal has what there is, and the problem is noted.
"""

from __future__ import annotations

from typing import Any

from counterpoint.errors import CounterpointError
from counterpoint.recorder.lanes import RecordingSession
from counterpoint.recorder.problems import one_line, say
from counterpoint.trace import Trace


def sync(session: RecordingSession) -> bool:
    """Whether all that was recorded so far is on disk, after waiting for that."""
    try:
        session.run.sync()
    except Exception as error:
        session.note(one_line(error))
        return False
    return True


def close(session: RecordingSession) -> bool:
    """Nothing more is recorded; whether anything was."""
    with session.lanes.lock:
        session.is_over = True
    if not session.recorder.count:
        session.note("nothing was recorded: no decorated function was called, and nothing was said")
        release(session)
    return bool(session.recorder.count)


def seal(session: RecordingSession, meta: dict[str, Any]) -> Trace | None:
    """End the trace of a closed session and seal it; None where that failed, and the journal has what there is."""
    costs = {} if session.lanes.cost_usd is None else {"cost_usd": session.lanes.cost_usd}
    try:
        try:
            session.run.sync()
        except CounterpointError:
            for refusal in session.run.drop_refused():
                session.note(f"a record could not be written and is left out: {refusal.why}")
        return session.run.finish(session.rewards, costs, session.metrics or None, meta)
    except Exception as error:
        session.note(one_line(error))
        release(session)
        return None


def release(session: RecordingSession) -> None:
    """Leave the trace unfinished, in the journal."""
    session.is_over = True
    try:
        session.run.release()
    except Exception as error:
        session.note(one_line(error))


def tell_end(session: RecordingSession) -> None:
    """At the end, how much went wrong."""
    if len(session.problems) > 1:
        say(f"counterpoint: the recording of {session.run.trace_id!r} has {len(session.problems)} problems; see rec.problems")
