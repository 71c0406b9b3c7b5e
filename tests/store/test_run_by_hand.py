"""A run, step by step: what each call takes, refuses, keeps and says."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from counterpoint.errors import CounterpointError, InputError, InvalidTrace
from counterpoint.store import Store, disk
from counterpoint.store import flusher as flusher_module
from counterpoint.store.run import Run
from counterpoint.trace import Edge, Event, Trace, content_ref
from steer_help import until


def _event(name: str, **fields: Any) -> Event:
    return Event(id=name, t=0, type="message", agent="a", **fields)


def _bytes(folder: Path) -> bytes:
    (path,) = folder.glob("journal/*.jsonl")
    return path.read_bytes()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, flush_ms=3_600_000)


def _broken(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_resumed_run_knows_what_was_recorded(store: Store) -> None:
    with store.record("t1", task_id="demo") as run:
        ref = run.content("hello")
        run.event(_event("e1"))
        assert run.open(_event("e2")) == "e2"
    with store.resume("t1") as run:
        assert run.content("hello") == ref
        run.edge("e1", "e2", "causal")
        run.close("e2", dur=2.5)
        run.sync()
        assert _bytes(store.path).count(b'"hello"') == 1
        trace = run.finish()
    assert [e.id for e in trace.events] == ["e1", "e2"]
    assert (trace.events[1].dur, trace.edges) == (2.5, [Edge("e1", "e2", "causal")])
    assert "open_events" not in trace.meta


def test_a_text_that_is_hashed_later_has_its_reference_in_every_record(store: Store) -> None:
    with store.record("t1", task_id="demo") as run:
        names = [run.text(text) for text in ("hello", "line\r\nline", "hello")]
        run.event(_event("e1", content_ref=names[0]))
        run.open(_event("e2", content_ref=names[2]))
        run.sync()
        run.close("e2", content_ref=names[1], extra={"call": {"more": names}, "said": f"see {names[0][:-1]}"})
        trace = run.finish()
    refs = [content_ref("hello"), content_ref("line\nline"), content_ref("hello")]
    assert trace.contents == {refs[0]: "hello", refs[1]: "line\r\nline"}
    assert [e.content_ref for e in trace.events] == [refs[0], refs[1]]
    assert trace.events[1].extra is not None
    assert trace.events[1].extra["call"] == {"more": refs}


def test_notes_are_filled_once_however_often_the_disk_refuses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(keep: Callable[[str], str]) -> dict[str, Any]:
        made.append("made")
        return {"answer": keep("packed"), "n": len(made)}

    with store.record("t1", task_id="demo") as run:
        first, second = dict[str, Any](), dict[str, Any]()
        run.open(_event("e1"))
        run.later(first, make)
        run.close("e1", content_ref=run.text("hello"), extra={"replay": first})
        with monkeypatch.context() as patched:
            patched.setattr(disk, "write_all", _broken)
            for _ in range(2):
                with pytest.raises(CounterpointError, match="no space left"):
                    run.sync()
        run.open(_event("e2"))
        run.later(second, make)
        run.close("e2", content_ref=run.text("hello"), extra={"replay": second})
        run.sync()
        assert _bytes(store.path).count(b'"packed"') == _bytes(store.path).count(b'"hello"') == 1
        assert run.load == 0
        trace = run.finish()
    ref = content_ref("packed")
    assert [e.extra for e in trace.events] == [{"replay": {"answer": ref, "n": 1}}, {"replay": {"answer": ref, "n": 2}}]
    assert {e.content_ref for e in trace.events} == {content_ref("hello")}


def test_a_run_that_nobody_writes_holds_each_text_once_and_all_is_counted(store: Store) -> None:
    journal = store.journal("t1", task_id="demo")
    run = Run("t1", journal, store._flusher, lambda trace: None, lambda trace: None, is_idle=True)
    note: dict[str, Any] = {}
    name = run.text("x" * 1_000)
    before = run.load
    assert [run.text("".join(["x"] * 1_000)) for _ in range(9)] == [name] * 9
    assert run.load == before > 1_000
    run.later(note, lambda keep: {"answer": keep("packed" * 100)}, 700)
    assert run.load > before + 700
    assert note == {}
    run.event(_event("e1", content_ref=name, extra={"replay": note}))
    run.sync()
    assert run.load == 0
    assert note == {"answer": content_ref("packed" * 100)}
    [kept] = run.end().events
    assert (kept.content_ref, kept.extra) == (content_ref("x" * 1_000), {"replay": note})


def test_a_text_is_written_once(store: Store) -> None:
    with store.record("t1", task_id="demo") as run:
        run.content("hello")
        run.content("hello")
        run.sync()
        run.content("hello")
        run.content("other")
        run.sync()
        assert (_bytes(store.path).count(b'"hello"'), _bytes(store.path).count(b'"other"')) == (1, 1)


def test_an_id_is_taken_by_an_open_event_too_and_it_is_closed_once(store: Store) -> None:
    with store.record("t1", task_id="demo") as run:
        run.open(_event("e1"))
        for again in (run.open, run.event):
            with pytest.raises(InvalidTrace, match="'e1' was used before"):
                again(_event("e1"))
        run.close("e1")
        with pytest.raises(InvalidTrace, match="'e1' is not open"):
            run.close("e1")
        run.open(_event("call-7"))
        with pytest.raises(InvalidTrace, match="did you mean 'call-7'"):
            run.close("call-8")
        with pytest.raises(InvalidTrace, match="no event 'x' yet"):
            run.edge("x", "e1", "causal")
        with pytest.raises(InvalidTrace, match="no event 'x' yet"):
            run.edge("x", "y", "causal")


def test_what_an_event_closes_with(store: Store) -> None:
    with store.record("t1", task_id="demo") as run:
        for name in ("e1", "e2", "e3"):
            run.open(_event(name, extra={"a": 1}))
        for fields in ({"id": "e9"}, {"nothing": None}, {"extra_": 1}):
            with pytest.raises(InputError, match="an event has no field"):
                run.close("e1", **fields)
        for name in ("dur", "from", "extra", "id"):
            with pytest.raises(InputError, match=f"'{name}' is a field of an event, not extra"):
                run.close("e1", extra={"b": 1, name: 2})
        run.close("e1", dur=3, ok=False, error=None, tokens_in=4, model="m", extra={"b": 2})
        run.close("e2", from_="z", role=None, dur=1.5)
        run.close("e3", extra={})
        one, two, three = run.finish().events
    assert (one.dur, one.ok, one.error, one.tokens_in, one.model) == (3, False, None, 4, "m")
    assert one.extra == {"a": 1, "b": 2}
    assert (two.from_, two.role, two.dur) == ("z", None, 1.5)
    assert three == _event("e3", extra={"a": 1})


def test_the_usual_fields_are_not_looked_at_twice_and_the_first_unknown_is_named(store: Store) -> None:
    with store.record("t1", task_id="demo") as run:
        run.open(_event("e1"))
        with pytest.raises(InputError, match="no field 'tokns_in' to close with; did you mean 'tokens_in'"):
            run.close("e1", tokns_in=1, dr=2)
        run._odd = None  # type: ignore[assignment, method-assign]
        usual = {"dur": 1.5, "ok": True, "tokens_in": 1, "tokens_out": 2, "cost_usd": 0.5, "content_ref": "r", "error": "x", "model": "m"}
        run.close("e1", **usual)
        run.open(_event("e2"))
        run.close("e2", dur=1, cost_usd=1, **dict.fromkeys(("ok", "tokens_in", "tokens_out", "content_ref", "error", "model")))
        one, two = run.finish().events
    assert {name: getattr(one, name) for name in usual} == usual
    assert (two.dur, two.cost_usd, two.ok) == (1, 1, None)


def test_a_task_that_waits_wakes_the_flusher_for_its_run_alone(store: Store) -> None:
    flushed: list[list[Run]] = []
    real = store._flusher.flush

    def flush(runs: list[Run]) -> None:
        flushed.append(runs)
        real(runs)

    store._flusher.flush = flush  # type: ignore[method-assign]
    with store.record("t1", task_id="demo") as run, store.record("t2", task_id="demo") as other:
        other.event(_event("e1"))
        for name in ("e1", "e2"):
            run.event(_event(name))
            asyncio.run(_sync_async(run))
        until(lambda: not store._flusher._asked)
        # The flush that serves the first wait may serve the second one, too, where that comes before it ends.
        assert [runs for runs in flushed if runs] in ([[run]], [[run], [run]])
        assert [e.id for e in store.get("t1").events] == ["e1", "e2"]
        assert store.get("t2").events == []


def test_after_its_end_a_run_takes_nothing(store: Store) -> None:
    with store.record("t1", task_id="demo") as run:
        run.open(_event("e1"))
    for act in (
        run.sync,
        run.finish,
        lambda: run.open(_event("e2")),
        lambda: run.event(_event("e1")),
        lambda: run.close("e1"),
        lambda: run.edge("e1", "x", "causal"),
    ):
        with pytest.raises(InputError, match="this run is over"):
            act()
    run.release()  # once more, and nothing happens
    assert store.get("t1").meta == {"unfinished": True, "open_events": ["e1"]}


def test_what_was_refused_is_counted_and_edges_fall_with_their_events(store: Store) -> None:
    with store.record("t1", task_id="demo") as run:
        run.event(_event("good"))
        run.event(_event("bad", dur=float("nan")))
        with pytest.raises(InvalidTrace, match="record 'bad'") as caught:
            run.sync()
        assert " more" not in str(caught.value)
        run.edge("bad", "good", "causal")
        run.edge("good", "bad", "causal")
        run.edge("good", "good", "causal")
        run.event(_event("later"))
        with pytest.raises(InvalidTrace, match="and 2 more"):
            run.sync()
        assert [type(r.record) for r in run.refused] == [Event, Edge, Edge]
        assert {r.why for r in run.refused[1:]} == {"one of its events was refused"}
        assert [e.id for e in store.get("t1").events] == ["good", "later"]
        assert [(e.src, e.dst) for e in store.get("t1").edges] == [("good", "good")]
        assert [r.record for r in run.drop_refused()][1:] == [Edge("bad", "good", "causal"), Edge("good", "bad", "causal")]
        assert run.refused == []
        run.sync()
        run.event(_event("bad"))
        run.edge("good", "bad", "causal")
        run.sync()
        assert [e.id for e in store.get("t1").events] == ["good", "later", "bad"]
        run.edge("good", "bad", "friend")
        with pytest.raises(InvalidTrace, match="record 'edge' cannot be written"):
            run.sync()
        with pytest.raises(InvalidTrace, match="record 'edge' cannot be written"):
            asyncio.run(_sync_async(run))
        run.drop_refused()


async def _sync_async(run: Run) -> None:
    first, second = run.sync_async(), run.sync_async()
    assert first is second
    assert run.is_awaited
    assert not first.cancel()
    await first
    assert not run.is_awaited


def test_a_task_waits_for_the_disk_and_cannot_cancel_it_for_others(store: Store) -> None:
    with store.record("t1", task_id="demo") as run:
        assert not run.is_awaited
        run.event(_event("e1"))
        asyncio.run(_sync_async(run))
        assert b'"e1"' in _bytes(store.path)


def test_trouble_with_the_disk_is_kept_until_it_is_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.record("t1", task_id="demo") as run:
        run.event(_event("e1"))
        with monkeypatch.context() as patch:
            patch.setattr(disk, "write_all", _broken)
            store._flusher.flush([run])  # nobody waits, so nobody is told
            assert "no space left" in str(run.trouble)
            with pytest.raises(CounterpointError, match="no space left"):
                run.sync()
        run.sync()
        assert run.trouble is None
        assert len(store.get("t1").events) == 1


def test_leaving_with_a_broken_disk_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(name: str, error: type[Exception] | None) -> Run:
        with store.record(name, task_id="demo") as run:
            run.event(_event("e1"))
            monkeypatch.setattr(disk, "write_all", _broken)
            if error is not None:
                raise error
        return run

    with pytest.raises(CounterpointError, match="no space left"):
        leave("t1", None)
    monkeypatch.undo()
    with pytest.raises(ZeroDivisionError) as caught:
        leave("t2", ZeroDivisionError)
    monkeypatch.undo()
    assert "the journal could not be written" in caught.value.__notes__[0]
    assert store._flusher._runs == set()
    for name in ("t1", "t2"):
        store.resume(name).release()  # its lock is free


def test_how_a_trace_ends(store: Store) -> None:
    with store.record("t1", task_id="demo", meta={"a": 1}) as run:
        run.event(_event("e1", tokens_in=5))
        trace = run.finish({"team": 1}, costs={"messages": 9, "cost_usd": 0.5}, metrics={"m": 2}, meta={"b": 2})
    assert (trace.rewards, trace.metrics, trace.meta) == ({"team": 1}, {"m": 2}, {"a": 1, "b": 2})
    assert (trace.costs["messages"], trace.costs["tokens"], trace.costs["cost_usd"]) == (9, 5, 0.5)
    assert store.get("t1") == trace
    assert list(store.path.glob("journal/*")) == []


def test_a_trace_that_cannot_end_so_can_end_otherwise(store: Store) -> None:
    run = store.record("t1", task_id="demo")
    run.event(_event("e1"))
    for wrong in ({"rewards": {"team": float("nan")}}, {"meta": {"k": (1, 2)}}):
        with pytest.raises(InvalidTrace):
            run.finish(**wrong)
    assert b"finish" not in _bytes(store.path)
    real = run._check

    def check(trace: Trace) -> object:
        run.event(_event("e2"))  # as another thread might
        run._check = real
        return real(trace)

    run._check = check
    with pytest.raises(InputError, match="recorded while the trace was ending"):
        run.finish()
    assert [e.id for e in run.finish({"team": 1}).events] == ["e1", "e2"]


def test_a_trace_that_could_not_be_sealed_is_sealed_later(store: Store) -> None:
    run = store.record("t1", task_id="demo")
    run.event(_event("e1"))
    real, run._seal = run._seal, _broken
    with pytest.raises(OSError, match="No space"):
        run.finish({"team": 1})
    with pytest.raises(InputError, match="this run is over"):
        run.event(_event("e2"))
    assert store.ids() == []
    run._seal = real
    assert run.finish().rewards == {"team": 1}
    assert store.ids() == ["t1"]
    assert _bytes_left(store.path) == []


def _bytes_left(folder: Path) -> list[Path]:
    return list(folder.glob("journal/*"))


def test_what_a_line_cannot_carry_does_not_end_a_run(store: Store) -> None:
    run = store.record("t1", task_id="demo")
    run.event(_event("e1"))
    run._check = lambda trace: None
    with pytest.raises(InvalidTrace, match="the trace cannot be finished"):
        run.finish({"team": float("nan")})
    run.finish()


def test_in_a_forked_child_every_run_is_over_and_the_store_can_be_used(store: Store) -> None:
    run = store.record("t1", task_id="demo")
    run.event(_event("e1"))
    holds, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with store._log._lock:
            holds.set()
            ends.wait(600)

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait(600)
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            code += 1 * run._is_over
            code += 2 * (store._flusher._runs == set())
            code += 4 * (not run._journal.is_open)
            code += 8 * store._log._lock.acquire(blocking=False)
            code += 16 * (store._log.head._fd < 0)
        finally:
            os._exit(code)
    ends.set()
    thread.join(600)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 31
    run.event(_event("e2"))
    assert len(run.finish().events) == 2


def test_a_process_that_ends_leaves_what_it_recorded(store: Store) -> None:
    run = store.record("t1", task_id="demo")
    run.event(_event("e1"))
    assert b'"e1"' not in _bytes(store.path)
    flusher_module._at_exit()
    assert b'"e1"' in _bytes(store.path)
    run.release()


def test_the_flusher_keeps_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock by hand: every ten seconds all runs, in between those that are asked for, and an end without runs."""
    flusher = flusher_module.Flusher(10.0)
    now = [100.0]
    asked: list[float] = []
    flushed: list[int] = []
    flusher._runs = {object()}  # type: ignore[arg-type]
    steps = iter((4.0, 6.0, 12.0, 3.0, 0.0))

    class Wakes:
        def wait(self, timeout: float) -> None:
            asked.append(timeout)
            now[0] += next(steps)
            if len(asked) == 4:
                flusher._asked = set(flusher._runs)
            if len(asked) == 5:
                flusher._runs = set()

        def clear(self) -> None:
            pass

    flusher._wakes = Wakes()  # type: ignore[assignment]
    flusher._thread = threading.current_thread()
    flusher.flush = lambda runs: flushed.append(len(runs))  # type: ignore[method-assign]
    monkeypatch.setattr(flusher_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    flusher._work()
    assert asked == [10.0, 6.0, 10.0, 10.0, 7.0]
    assert flushed == [0, 1, 1, 1]
    assert (flusher._asked, flusher._thread) == (set(), None)
