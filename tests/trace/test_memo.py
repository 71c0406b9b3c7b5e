"""What is worked out of a trace is made once for all who hold it, and keeps no trace alive."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

from counterpoint.audits.facts import facts_of
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Trace
from counterpoint.trace.memo import memo
from counterpoint.trace.team import team_of


def test_all_who_hold_it_share_one() -> None:
    trace = synthetic_trace(3, 20)
    facts = facts_of(trace)
    assert facts_of(trace) is facts
    assert team_of(trace) is facts.team
    assert facts_of(synthetic_trace(3, 20)) is not facts  # an equal trace is another one


def test_nothing_is_kept_after_its_last_user_without_a_collector() -> None:
    gc.disable()
    try:
        trace = synthetic_trace(3, 20)
        facts = weakref.ref(facts_of(trace))
        assert facts() is None
        gone = weakref.ref(trace)
        held = facts_of(trace)
        del trace
        assert gone() is held.trace
        del held
        assert gone() is None
    finally:
        gc.enable()


def test_threads_that_ask_at_once_get_one_object() -> None:
    class Slow:
        made = 0

        def __init__(self, trace: Trace) -> None:
            time.sleep(0.02)
            Slow.made += 1

    trace, start = synthetic_trace(2, 6), threading.Barrier(8)

    def ask(_: int) -> Slow:
        start.wait()
        return memo(trace, "_slow", Slow)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(ask, range(8)))) == Slow.made == 1
