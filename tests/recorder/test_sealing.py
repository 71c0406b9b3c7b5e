"""The end of a recording, off the caller's path: who reads waits, what is drawn is kept, memory is bounded, trouble is told once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import counterpoint.recorder.lanes as lanes
import counterpoint.recorder.sealing as sealing
import counterpoint.store.pending as pending
from counterpoint import InputError, Store, problems, record
from counterpoint.trace import Trace
from counterpoint.trace.keys import BEGAN


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is sealed before this is set."""
    opened = threading.Event()
    seal = Store.seal

    def held(self: Store, traces: Any) -> None:
        assert opened.wait(60)
        seal(self, traces)

    monkeypatch.setattr(Store, "seal", held)
    return opened


def one(folder: Path | Store, text: str = "done", **about: Any) -> Any:
    rec = record(folder, task="demo", **about)
    with rec:
        rec.stop(text)
    return rec


def test_leaving_does_not_wait_and_readers_do(tmp_path: Path, gate: threading.Event) -> None:
    rec = one(tmp_path)
    assert pending.count() == 1  # we are past the end, and it is not sealed
    read: list[Trace] = []

    def look() -> None:
        with Store(tmp_path) as store:
            read.append(store.get(rec.trace_id))

    reader = threading.Thread(target=look)
    reader.start()
    reader.join(0.2)
    assert read == []
    gate.set()
    reader.join(60)
    assert read == [rec.trace]
    assert "unfinished" not in read[0].meta
    assert rec.problems == []
    assert rec.sync()
    assert pending.count() == 0


def test_a_task_that_ends_does_not_hold_the_loop(tmp_path: Path, gate: threading.Event) -> None:
    async def request() -> Any:
        async with record(tmp_path, task="demo") as rec:
            rec.stop("x")
        return rec

    async def main() -> list[Any]:
        recs = await asyncio.gather(*(request() for _ in range(20)))
        assert pending.count() == 20
        gate.set()
        return list(recs)

    recs = asyncio.run(main())
    assert [problems(rec.trace) for rec in recs] == [[]] * 20
    with Store(tmp_path) as store:
        assert set(store.ids()) == {rec.trace_id for rec in recs}
        assert len(list((tmp_path / "journal").glob("*.jsonl"))) == 0
        assert len(store.files()) < 20  # those that waited together are one part


def test_a_store_that_its_owner_closes_has_it_all(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        rec = one(store)
    with Store(tmp_path, read_only=True) as store:
        assert store.ids() == [rec.trace_id]


def test_one_that_is_refused_does_not_take_the_others_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seal, opened = Store.seal, threading.Event()

    def refusing(self: Store, traces: Any) -> None:
        assert opened.wait(60)
        if any(trace.trace_id == "b" for trace in traces):
            raise InputError("no")
        seal(self, traces)

    monkeypatch.setattr(Store, "seal", refusing)
    recs = [one(tmp_path, trace_id=name) for name in "abc"]
    opened.set()
    assert [rec.trace is None for rec in recs] == [False, True, False]
    assert recs[1].problems == ["no"]
    assert len(list((tmp_path / "journal").glob("b-*.jsonl"))) == 1  # whole there: the next opening seals it
    monkeypatch.undo()
    with Store(tmp_path) as store:
        assert sorted(store.ids()) == ["a", "b", "c"]


def _python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    head = "import os, sys, threading, time\nfrom counterpoint import Store, record\nfolder = sys.argv[1]\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code), str(folder)], capture_output=True, text=True, timeout=600
    )


def test_the_end_of_the_program_waits_and_a_kill_loses_nothing_acknowledged(tmp_path: Path) -> None:
    done = _python(
        """
        for i in range(5):
            rec = record(folder + "/whole", task="demo", trace_id=f"t{i}")
            with rec:
                rec.stop("x")
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with Store(tmp_path / "whole") as store:
        assert sorted(store.ids()) == [f"t{i}" for i in range(5)]
    done = _python(
        """
        import counterpoint.recorder.sealing as sealing
        Store.seal = lambda self, traces: os.kill(os.getpid(), 9)
        rec = record(folder + "/killed", task="demo", trace_id="t")
        with rec:
            rec.stop("x")
            assert rec.sync()
        rec.trace
        """,
        tmp_path,
    )
    assert done.returncode == -9
    with Store(tmp_path / "killed") as store:  # it was ended in its journal: the next opening seals it
        assert store.ids() == ["t"]


def test_a_sample_is_drawn_by_the_id_and_what_fails_is_kept(tmp_path: Path) -> None:
    recs = [one(tmp_path, sample=0.3) for _ in range(40)]
    kept = {rec.trace_id for rec in recs if rec.trace is not None}
    assert 0 < len(kept) < 30
    for name in (True, -0.1, 1.5, "x"):
        with pytest.raises(InputError, match="is not a share"):
            record(tmp_path, task="demo", sample=name)  # type: ignore[arg-type]
    failed, asked, passed = (record(tmp_path, task="demo", sample=0.0) for _ in range(3))
    with pytest.raises(OSError, match="down"), failed, failed.tool_call("look"):
        raise OSError("down")
    with asked:
        asked.stop("odd")
        asked.keep()
    with passed:
        passed.stop("fine")
        assert not passed.sync()
    assert failed.trace.meta["failed"] == "OSError: down"
    assert [e.type for e in failed.trace.events] == ["tool_call", "tool_result"]
    assert asked.trace is not None
    assert passed.trace is None
    assert passed.problems == []
    with Store(tmp_path) as store:
        assert set(store.ids()) == kept | {failed.trace_id, asked.trace_id}
        assert store.open_ids() == []
    again = record(tmp_path, task="demo", trace_id="one id", sample=0.5)
    draws = set()
    for _ in range(3):
        with again:
            again.stop("x")
        draws.add(again.trace is None)
        if again.trace is not None:
            with Store(tmp_path) as store:
                store.remove("one id", remember=False)
    assert len(draws) == 1


def test_a_store_that_cannot_be_reached_is_told_once_and_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "mount"
    place.write_text("not there yet")
    recs = [one(place) for _ in range(5)]
    assert [rec.trace for rec in recs] == [None] * 5
    assert all("is a file, not a store" in rec.problems[0] for rec in recs)
    assert all("nothing of it is recorded" in rec.problems[-1] for rec in recs)
    assert capsys.readouterr().err.count("is a file, not a store") == 1
    waiting = record(place, task="demo")
    with waiting:
        waiting.stop("while it is away")
        place.unlink()
        time.sleep(0.7)  # it is tried again after half a second
        assert waiting.sync()
    assert waiting.trace is not None


def test_memory_is_bounded_and_the_trace_says_where_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_HELD", 200_000)
    place = tmp_path / "mount"
    place.write_text("not there")
    held = record(place, task="demo")
    with held:
        for i in range(1_000):
            held.event("message", f"{i} " + "x" * 1_000)
        assert held.session is not None
        assert held.session.run.load < 300_000
        place.unlink()
    if held.trace is not None:  # tried again by then
        assert held.trace.meta["cut"] == "memory"
        assert 100 < len(held.trace.events) < 300
    assert any("wait for the disk" in problem for problem in held.problems)


def test_a_crowd_of_ended_recordings_lets_no_more_begin(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sealing, "MOST_WAITING", 3)
    recs = [one(tmp_path) for _ in range(5)]
    gate.set()
    assert [rec.trace is None for rec in recs] == [False] * 3 + [True] * 2
    assert "wait for the disk" in recs[-1].problems[0]
    assert capsys.readouterr().err.count("wait for the disk") == 1
    assert one(tmp_path).trace is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_waits_for_nothing_of_its_parents(tmp_path: Path, gate: threading.Event) -> None:
    rec = one(tmp_path)
    child: Callable[[], int] = os.fork
    pid = child()
    if pid == 0:
        os._exit(0 if rec.trace is None and pending.count() == 0 else 1)
    _, status = os.waitpid(pid, 0)
    gate.set()
    assert os.waitstatus_to_exitcode(status) == 0
    assert rec.trace is not None


def test_a_service_goes_on_while_what_is_old_is_erased(tmp_path: Path) -> None:
    """The recipe of docs/store.md: one store for years, and a job that erases what is older than it may be."""
    old = time.time() - 100 * 86_400
    with Store(tmp_path) as service:  # a service holds its store open
        for i in range(30):
            one(tmp_path, Random(i).randbytes(2_000).hex(), meta={BEGAN: old})
        kept = [one(tmp_path, f"new {i}") for i in range(5)]
        assert len(service.ids()) == 35
        size = sum(path.stat().st_size for path in (tmp_path / "lake").rglob("*.parquet"))
        running = record(tmp_path, task="demo")
        with running:
            running.stop("while it is erased")
            command = [sys.executable, "-m", "counterpoint", "store", "rm", "until:90d", "--yes", "--purge", "--store"]
            done = subprocess.run([*command, os.fspath(tmp_path)], capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr
            assert "30 removed and erased" in done.stdout
            later = one(tmp_path, "later")
        assert running.trace is not None
        assert running.problems == later.problems == []
        assert set(service.ids()) == {rec.trace_id for rec in (*kept, running, later)}
        assert service.get(kept[0].trace_id) == kept[0].trace
        assert sum(path.stat().st_size for path in (tmp_path / "lake").rglob("*.parquet")) < size / 2
        assert len(list((tmp_path / "journal").glob("*.jsonl"))) == 0
