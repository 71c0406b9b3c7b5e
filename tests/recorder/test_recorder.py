"""The recorder by hand: what is kept in memory, what a fork forgets, when events begin and end, and what a resumed run writes."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from counterpoint import Edge, Event, Store, Trace
from counterpoint.errors import InputError
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder, WallClock
from counterpoint.trace import content_ref


def _edges(sink: MemorySink) -> list[tuple[str, str, str]]:
    return [(e.src, e.dst, e.type) for e in sink.edges]


def test_what_a_fork_says_never_happened_is_forgotten_with_its_edges() -> None:
    sink = MemorySink()
    rec = Recorder(sink, LogicalClock())
    first, other = rec.event("a", "message", text="hello"), rec.event("b", "message")
    gone = rec.open("a", "tool_call", reads=[(first, "causal"), (other, "message")], tool="look")
    later = rec.event("a", "message", reads=[(first, "causal"), (gone, "causal")])
    assert rec.drop(gone) == [(first, "causal"), (other, "message")]
    assert list(sink.events) == [first, other, later]
    assert _edges(sink) == [(first, later, "causal")]
    rec.close(gone, text="too late")  # it is not there any more: nothing is written
    assert content_ref("too late") not in sink.contents
    assert rec.event("a", "message") == "e5"  # ids are not given twice
    with pytest.raises(KeyError):
        rec.drop(gone)


def test_a_journal_forgets_nothing(tmp_path: Path) -> None:
    with Store(tmp_path) as store, store.record("t", task_id="x") as run:
        rec = Recorder(run, WallClock())
        event = rec.event("a", "message")
        with pytest.raises(InputError, match="only a recording in memory"):
            rec.drop(event)
        assert [e.id for e in run.finish({}).events] == [event]


def test_memory_keeps_what_is_known_at_the_end_beside_what_was_known_before() -> None:
    sink = MemorySink()
    rec = Recorder(sink, LogicalClock())
    event = rec.open("a", "tool_call", text="what", tool="look", extra={"x": 1})
    assert sink.events[event].content_ref == content_ref("what")
    rec.close(event, dur=2.5, extra={"y": 2}, ok=False, error="gone", tokens_in=None)
    got = sink.events[event]
    assert (got.extra, got.ok, got.error, got.dur, got.tool, got.tokens_in) == ({"x": 1, "y": 2}, False, "gone", 2.5, "look", None)
    assert got.content_ref == content_ref("what")
    assert sink.contents == {content_ref("what"): "what"}
    rec.close(event, error="twice")
    assert sink.events[event].error == "gone"
    bare = rec.open("a", "message", content_ref="r")
    rec.close(bare)
    assert (sink.events[bare].extra, sink.events[bare].content_ref) == (None, "r")
    assert rec.texts == {content_ref("what")}
    assert sink.content("more") == content_ref("more")


def test_time_by_dependence() -> None:
    sink = MemorySink()
    rec = Recorder(sink, LogicalClock())
    slow = rec.event("a", "message", dur=3.0)
    quick = rec.event("b", "message", dur=1.0)
    both = rec.open("b", "message", reads=[(slow, "message"), (quick, "causal")])
    rec.close(both, dur=0.1234567)
    after = rec.event("b", "message")
    alone = rec.event("a", "message")
    began = {name: (float(sink.events[name].t), sink.events[name].dur) for name in (slow, quick, both, after, alone)}
    assert began == {slow: (0.0, 3.0), quick: (0.0, 1.0), both: (3.0, 0.123457), after: (3.123457, None), alone: (3.0, None)}


def test_time_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(5_000_000_000, 1_000_500)  # a millisecond and half a microsecond
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(ticks))
    clock = WallClock()
    assert [clock.start("a", ()) for _ in range(2)] == [0.001, 0.002001]
    assert clock.end("e", "a", 0.001, 99.0) == 0.002001  # until now, whatever anybody says
    assert clock.end("e", "a", 9.0, None) == 0.0
    clock.restore("e", "a", 10.0, 2.5)
    assert clock.start("a", ()) >= 12.5
    clock.restore("e", "a", 1.0, 1.0)  # earlier than what is known: time does not go back
    assert clock.start("a", ()) >= 12.5


def _so_far() -> Trace:
    events = [
        Event(id="e1", t=0, type="message", agent="a", key="k1", dur=2.0, content_ref=content_ref("said")),
        Event(id="e2", t=2, type="tool_call", agent="a", key="k2"),
        Event(id="e3", t=2, type="message", agent="b"),
    ]
    return Trace(trace_id="t", task_id="x", events=events, contents={content_ref("said"): "said"})


class _Told(MemorySink):
    """A sink that also says in which order it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []

    def close(self, event_id: str, **fields: Any) -> None:  # type: ignore[override]
        self.told.append((event_id, fields.get("dur"), fields.get("ok")))


def test_a_run_that_is_resumed_writes_only_what_is_missing() -> None:
    sink = _Told()
    rec = Recorder(sink, LogicalClock(), so_far=_so_far(), open_ids=["e2"])
    assert rec.event("a", "message", key="k1", text="said") == "e1"
    assert rec.open("a", "tool_call", key="k2") == "e2"
    assert sink.events == {}
    assert rec.texts == {content_ref("said")}
    rec.close("e1", ok=True)  # whole already
    rec.close("e2", ok=True, dur=1.5)
    rec.close("e2", ok=False, dur=9.0)
    assert sink.told == [("e2", 1.5, True)]
    rec.edge("e1", "e3", "causal")  # of an event that was recorded before
    rec.edge("e1", "e2", "causal")
    assert _edges(sink) == [("e1", "e2", "causal")]
    new = rec.event("a", "message", reads=[("e1", "causal")])
    assert (new, float(sink.events[new].t)) == ("e4", 3.5)
    assert float(sink.events[rec.event("b", "message")].t) == 2.0
    assert Edge("e1", "e4", "causal") in sink.edges


def test_what_a_sink_refuses_may_be_closed_again_without_it() -> None:
    class Refuses(MemorySink):
        def close(self, event_id: str, *, extra: Any = None, **fields: Any) -> None:
            if fields.get("error"):
                raise InputError("no")
            super().close(event_id, extra=extra, **fields)

    sink = Refuses()
    rec = Recorder(sink, LogicalClock())
    event = rec.open("a", "message")
    with pytest.raises(InputError):
        rec.close(event, error="bad")
    rec.close(event, ok=True)
    assert sink.events[event].ok is True
