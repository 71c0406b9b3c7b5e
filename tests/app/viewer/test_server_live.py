"""The live stream: what is recorded, replaced and silent arrives, in order, and a reader who comes back misses nothing."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.viewer.served import Viewer, viewing
from counterpoint import Event, Store
from counterpoint.app.viewer.collection import Collection
from counterpoint.app.viewer.live import Follower, Ring
from counterpoint.testing import synthetic_trace


class Stream:
    """A reader of the stream."""

    def __init__(self, viewer: Viewer, after: int | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", viewer.port, timeout=300)
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        self._connection.request("GET", "/api/live", headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        assert self._answer.headers["content-type"].startswith("text/event-stream")
        self.resets = 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def batches(self) -> Iterator[dict[str, Any]]:
        """Batches as they come, each with the id of its message checked."""
        fields: dict[str, str] = {}
        while True:
            line = self._answer.readline().decode().rstrip("\n")
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
                continue
            if fields.get("event") == "reset":
                self.resets += 1
            elif "data" in fields:
                batch = json.loads(fields["data"])
                assert int(fields["id"]) == batch["seq"]
                yield batch
            fields = {}

    def until(self, is_it: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The first batch that is it."""
        end = time.monotonic() + 300
        for batch in self.batches():
            if is_it(batch):
                return batch
            assert time.monotonic() < end, "it did not come"
        raise AssertionError("the stream ended")


def event(k: int, **more: Any) -> Event:
    return Event(**{"id": f"e{k}", "t": float(k), "type": "message", "agent": f"a{k % 3}"} | more)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Viewer, Store]]:
    with Store(tmp_path / "traces", flush_ms=5) as store, viewing(Collection(store.path), tmp_path) as found:
        yield found, store


def names(batch: dict[str, Any], trace: str) -> list[str]:
    return [row["id"] for row in batch["events"].get(trace, [])]


def test_what_is_recorded_arrives_and_what_was_there_is_not_news(live: tuple[Viewer, Store]) -> None:
    viewer, store = live
    with store.record("running", task_id="t") as run:
        run.event(event(0))
        run.sync()
        with Stream(viewer) as stream:
            first = next(stream.batches())
            assert [(one["id"], one["events"], one["agents"]) for one in first["traces"]] == [("running", 1, 1)]
            assert first["events"] == {}
            ref = run.content("hello <b>you</b>")
            run.event(event(1, content_ref=ref, tokens_out=5))
            run.sync()
            batch = stream.until(lambda b: b["events"])
            assert names(batch, "running") == ["e1"]
            told = batch["events"]["running"][0]
            assert (told["text"], told["tokens_out"], told["agent"]) == ("hello <b>you</b>", 5, "a1")
            assert batch["traces"][0]["events"] == 2
            assert batch["seq"] > first["seq"]
            run.finish(rewards={"team": 1.0})
            gone = stream.until(lambda b: not b["traces"])
            assert gone["events"] == {}


def test_an_event_that_began_is_open_until_it_ends(live: tuple[Viewer, Store]) -> None:
    viewer, store = live
    with store.record("running", task_id="t") as run, Stream(viewer) as stream:
        next(stream.batches())
        run.open(event(0, type="tool_call", tool="pytest"))
        run.sync()
        began = stream.until(lambda b: b["events"])
        assert began["events"]["running"][0]["open"] is True
        assert [(one["id"], one["agent"], one["tool"], one["since"]) for one in began["traces"][0]["open"]] == [("e0", "a0", "pytest", 0.0)]
        run.event(event(1))
        run.close("e0", dur=3.5, ok=True)
        run.sync()
        ended = stream.until(lambda b: "e0" in names(b, "running"))
        told = next(row for row in ended["events"]["running"] if row["id"] == "e0")
        assert (told["dur"], told["ok"], "open" in told) == (3.5, True, False)
        assert ended["traces"][0]["open"] == []
        assert ended["traces"][0]["last_t"] == 3.5


def test_who_comes_back_gets_every_batch_since(live: tuple[Viewer, Store]) -> None:
    viewer, store = live
    with store.record("running", task_id="t") as run:
        with Stream(viewer) as stream:
            next(stream.batches())
            run.event(event(0))
            run.sync()
            last = stream.until(lambda b: b["events"])["seq"]
        for k in range(1, 4):
            run.event(event(k))
            run.sync()
            time.sleep(0.1)
        with Stream(viewer, after=last) as stream:
            seen: list[str] = []
            for batch in stream.batches():
                assert batch["seq"] > last
                last = batch["seq"]
                seen += names(batch, "running")
                if "e3" in seen:
                    break
            assert seen == ["e1", "e2", "e3"]
            assert stream.resets == 0


@pytest.mark.parametrize("after", [0, 10**15])
def test_who_comes_back_too_late_or_to_another_server_is_told_and_gets_the_picture(live: tuple[Viewer, Store], after: int) -> None:
    viewer, store = live
    with store.record("running", task_id="t") as run:
        run.event(event(0))
        run.sync()
        with Stream(viewer, after=after) as stream:
            first = next(stream.batches())
            assert stream.resets == 1
            assert [one["id"] for one in first["traces"]] == ["running"]


def test_stored_traces_that_are_replaced_are_live(live: tuple[Viewer, Store]) -> None:
    viewer, store = live
    whole = synthetic_trace(3, 20, trace_id="followed")
    store.add(_part(whole, 10))
    store.add(synthetic_trace(2, 6, trace_id="at-rest"))
    with Stream(viewer) as stream:
        assert next(stream.batches())["traces"] == []
        store.add(_part(whole, 14))
        batch = stream.until(lambda b: b["events"])
        assert sorted(names(batch, "followed")) == sorted(e.id for e in sorted(whole.events[:14], key=lambda e: e.t)[10:])
        store.add(_part(whole, 17))
        batch = stream.until(lambda b: b["events"])
        assert names(batch, "followed") == [e.id for e in whole.events[14:17]]
        assert [(one["id"], one["events"]) for one in batch["traces"]] == [("followed", 17)]
        store.add(synthetic_trace(2, 6, trace_id="new"))
        assert len(names(stream.until(lambda b: "new" in b["events"]), "new")) > 6


def _part(trace: Any, events: int) -> Any:
    from msgspec.structs import replace

    kept = trace.events[:events]
    ids = {e.id for e in kept}
    return replace(trace, events=kept, edges=[e for e in trace.edges if e.src in ids and e.dst in ids], contents={})


def test_a_silent_trace_is_said_to_be_so(tmp_path: Path) -> None:
    with Store(tmp_path / "traces") as store, store.record("hung", task_id="t") as run:
        run.event(event(0))
        run.sync()
        follower = Follower(store.path)
        before = follower.look()
        assert before.traces[0].silent_s < 10
        journal = next((store.path / "journal").glob("*.jsonl"))
        os.utime(journal, (time.time() - 90, time.time() - 90))
        fresh = Follower(store.path).look()
        assert fresh.traces[0].silent_s >= 89
        assert fresh.shape != before.shape


def test_what_is_not_yet_acknowledged_or_is_torn_is_not_told(tmp_path: Path) -> None:
    with Store(tmp_path / "traces") as store, store.record("running", task_id="t") as run:
        run.event(event(0))
        run.sync()
        follower = Follower(store.path)
        follower.look()
        journal = next((store.path / "journal").glob("*.jsonl"))
        size = journal.stat().st_size
        with open(journal, "ab") as file:
            file.write(b'{"event":{"id":"e1","t":1,"type":"message","agent":"a"}}\n{"event":{"id"')
        assert follower.look().events == {}
        os.truncate(journal, size)
        run.event(event(2))
        run.sync()
        assert [row["id"] for row in follower.look().events["running"]] == ["e2"]
        assert follower.look().traces[0].events == 2


def test_a_journal_that_lost_its_end_is_not_shown_as_a_younger_run(tmp_path: Path) -> None:
    with Store(tmp_path / "traces") as store:
        with store.record("cut", task_id="t") as run:
            for k in range(3):
                run.event(event(k))
                run.sync()
        journal = next((store.path / "journal").glob("*.jsonl"))
        whole = journal.read_bytes()
        follower = Follower(store.path)
        assert follower.look().traces[0].events == 3
        journal.write_bytes(whole[: whole.rindex(b'{"event":')])
        assert follower.look().traces == Follower(store.path).look().traces == []
        journal.write_bytes(whole)
        assert follower.look().traces[0].events == 3


def test_a_long_trace_is_not_held(tmp_path: Path) -> None:
    with Store(tmp_path / "traces") as store, store.record("long", task_id="t") as run:
        follower = Follower(store.path)
        follower.look()
        run.open(event(0))
        for first in range(1, 3_000, 500):
            for k in range(first, first + 500):
                run.event(event(k))
            run.sync()
            follower.look()
        (one,) = follower._journals.values()
        assert follower.look().traces[0].events == 3_001
        assert [e.id for e in one._reader.events] == ["e0"]


def test_without_a_store_the_stream_is_quiet_and_a_later_store_is_found(tmp_path: Path) -> None:
    with viewing(Collection(tmp_path / "traces"), tmp_path) as found, Stream(found) as stream:
        assert next(stream.batches())["traces"] == []
        with Store(tmp_path / "traces") as store, store.record("late", task_id="t") as run:
            run.event(event(0))
            run.sync()
            assert stream.until(lambda b: b["traces"])["traces"][0]["id"] == "late"


def test_a_store_that_is_made_anew_is_followed(tmp_path: Path) -> None:
    home = tmp_path / "traces"
    with Store(home) as store:
        store.add(synthetic_trace(2, 6, trace_id="old"))
    follower = Follower(home)
    assert follower.look().traces == []
    shutil.rmtree(home)
    assert follower.look().traces == []
    with Store(home) as store:
        store.add(synthetic_trace(2, 6, trace_id="new"))
    follower._looked = -1e9  # the lake is not looked at in every round
    assert [one.id for one in follower.look().traces] == ["new"]


def test_the_ring_knows_what_it_has_forgotten() -> None:
    ring = Ring(count=3)
    begin = ring.seq
    for k in range(1, 6):
        ring.add(begin + k, b"x")
    assert [seq - begin for seq, _ in ring.after(begin + 2) or []] == [3, 4, 5]
    assert ring.after(begin + 1) is None
    assert ring.after(begin + 5) == []
    assert ring.after(begin + 6) is None
    small = Ring(count=100, size=10)
    for _ in range(4):
        small.add(small.seq + 1, b"x" * 8)
    assert len(small.after(small.seq - 1) or []) == 1
    assert small.after(small.seq - 2) is None


def test_ending_the_server_ends_the_streams(tmp_path: Path) -> None:
    with Store(tmp_path / "traces") as store:
        with viewing(Collection(store.path), tmp_path) as found:
            stream = Stream(found)
            next(stream.batches())
        assert stream._answer.read() is not None, "a stream that is cut off, and not ended, cannot be read to its end"


