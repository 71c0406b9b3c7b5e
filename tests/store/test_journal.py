"""The journal: durable when it says so, cut where it was torn, and loud about what is wrong."""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
import zlib
from pathlib import Path

import pytest

from counterpoint.errors import CounterpointError, InputError, InvalidTrace, NotFound, TryAgain
from counterpoint.store import Run, Store, disk
from counterpoint.store.journal import path_of
from counterpoint.store.repair import repair
from counterpoint.store.tally import Tally
from counterpoint.store.verify import verify
from counterpoint.trace import Event, Trace
from counterpoint.trace.lines import sum_line


def _event(name: str, **fields: object) -> Event:
    return Event(id=name, t=0, type="message", agent="a", **fields)  # type: ignore[arg-type]


async def _sync_async(run: Run) -> None:
    await run.sync_async()


def _journal(folder: Path) -> Path:
    (path,) = folder.glob("journal/*.jsonl")
    return path


def _killed(folder: Path, events: int = 5) -> bytes:
    """A journal as a killed writer leaves it: no finish, and a copy of its bytes."""
    store = Store(folder)
    with store.record("t1", task_id="demo") as run:
        for i in range(events):
            run.event(_event(f"e{i}", tool="grep"))
            run.edge(f"e{i - 1}", f"e{i}", "causal") if i else None
            run.sync()
    return _journal(folder).read_bytes()


def _of_an_older_version(folder: Path) -> bytes:
    """The same journal as a version without tallies leaves it."""
    path = _journal(folder)
    path.with_suffix(".tally").unlink()
    path.write_bytes(path.read_bytes().replace(b',"tally":true}', b"}"))
    return path.read_bytes()


def _tallied(path: Path, data: bytes) -> None:
    """Let the tally of a journal say that these bytes were acknowledged."""
    path.with_suffix(".tally").write_bytes(Tally(len(data), zlib.crc32(data), "t1").encoded())


def test_what_is_synced_is_in_the_file(tmp_path: Path) -> None:
    store = Store(tmp_path, flush_ms=60_000)
    with store.record("t1", task_id="demo") as run:
        run.event(_event("e1"))
        assert b"e1" not in _journal(tmp_path).read_bytes()
        run.sync()
        assert b"e1" in _journal(tmp_path).read_bytes()


def test_what_nobody_syncs_reaches_the_file_soon(tmp_path: Path) -> None:
    store = Store(tmp_path, flush_ms=5)
    with store.record("t1", task_id="demo") as run:
        run.event(_event("e1"))
        for _ in range(400):
            if b"e1" in _journal(tmp_path).read_bytes():
                return
            threading.Event().wait(0.01)
    pytest.fail("four seconds without a flush")


@pytest.mark.parametrize("is_tallied", [True, False])
def test_a_journal_torn_at_any_byte_gives_a_prefix_and_goes_on(tmp_path: Path, is_tallied: bool) -> None:
    """A writer that was killed before anything was acknowledged; one of an older version, which says nothing about that."""
    whole = _killed(tmp_path / "made", events=2)
    name = _journal(tmp_path / "made").name
    header = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    if not is_tallied:
        whole = _of_an_older_version(tmp_path / "made")
        header = whole.index(b"\n") + 1
    folder = tmp_path / "cut"
    Store(folder).close()
    for cut in range(header, len(whole) + 1):
        path = folder / "journal" / name
        path.write_bytes(whole[:cut])
        path.with_suffix(".tally").unlink(missing_ok=True)
        if is_tallied:
            _tallied(path, whole[:header])
        written = whole[:cut].count(b'{"sum":') - (b'{"sum":' in whole[:cut].rsplit(b"\n", 1)[-1]) - 1  # one is the header's
        with Store(folder) as store:
            assert whole.startswith(path.read_bytes())
            assert path.read_bytes().endswith(b"\n")
            trace = store.get("t1")
            assert len(trace.events) == max(written, 0)
            assert [e.id for e in trace.events] == [f"e{i}" for i in range(len(trace.events))]
            with store.resume("t1") as run:
                run.event(_event("after"))
                run.sync()
            assert store.get("t1").events[-1].id == "after"


def _is_said(folder: Path, changed: bytes | None) -> bool:
    """Whether everybody who asks for the run is told that it is damaged, and nothing of it is changed."""
    with Store(folder) as store:
        is_listed = "t1" in store.open_ids()
        is_reported = bool(store.damaged)
        for ask in (store.get, store.resume, lambda name: store.record(name, task_id="d")):
            with pytest.raises(InputError):
                ask("t1")
        with pytest.raises(InputError):
            store.add(Trace(trace_id="t1", task_id="d", events=[_event("x")]))
    path = path_of(folder / "journal", "t1")
    is_left = not path.exists() if changed is None else path.read_bytes() == changed
    return is_reported and is_left and not is_listed and bool(verify(folder).faults)


def test_a_journal_that_lost_an_acknowledged_byte_is_damaged(tmp_path: Path) -> None:
    """Cut anywhere, also between two commits and to nothing: not a younger run."""
    whole = _killed(tmp_path, events=2)
    path = _journal(tmp_path)
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert _is_said(tmp_path, whole[:cut]), cut
    path.write_bytes(whole)
    with Store(tmp_path) as store:
        assert len(store.get("t1").events) == 2


@pytest.mark.parametrize("block", [16, 64, 512])
def test_zeros_at_the_end_of_a_journal_are_damage(tmp_path: Path, block: int) -> None:
    whole = _killed(tmp_path, events=9)
    changed = whole[:-block] + bytes(block)
    _journal(tmp_path).write_bytes(changed)
    assert _is_said(tmp_path, changed)


def test_commits_that_changed_places_are_damage(tmp_path: Path) -> None:
    """Each commit is whole by its own sum."""
    whole = _killed(tmp_path, events=4)
    commits = re.split(rb"(?<=\}\n)(?=\{\"event)", whole)
    changed = b"".join([commits[0], commits[2], commits[1], *commits[3:]])
    assert len(commits) == 5
    for other in (changed, b"".join([*commits[:3], *commits[2:]]), b"".join([commits[0], *commits[2:]])):
        _journal(tmp_path).write_bytes(other)
        assert _is_said(tmp_path, other)


def test_a_missing_journal_and_a_missing_tally_are_damage(tmp_path: Path) -> None:
    whole = _killed(tmp_path)
    path = _journal(tmp_path)
    tally = path.with_suffix(".tally").read_bytes()
    ends = [at for at, byte in enumerate(tally) if byte == ord("\n")]
    # every end of a line and its neighbours, and some of all other places, other ones in every run
    near = {at + k for at in (0, *ends) for k in (-1, 0, 1)} & set(range(len(tally)))
    for cut in sorted(near | set(random.sample(range(len(tally)), min(24, len(tally))))):
        path.with_suffix(".tally").write_bytes(tally[:cut])
        assert _is_said(tmp_path, whole), cut
    path.with_suffix(".tally").unlink()
    assert _is_said(tmp_path, whole)
    path.unlink()
    path.with_suffix(".tally").write_bytes(tally)
    assert _is_said(tmp_path, None)
    done = repair(tmp_path)
    assert done.lost == [path.name]
    assert verify(tmp_path).faults == []


def test_a_run_that_was_just_begun_needs_no_tally(tmp_path: Path) -> None:
    """A power cut may leave none, or an empty one: nothing of it was acknowledged, and it goes on."""
    whole = _killed(tmp_path, events=0)
    tally = _journal(tmp_path).with_suffix(".tally")
    for left in (None, b"", tally.read_bytes()[:-3]):
        tally.unlink(missing_ok=True)
        _journal(tmp_path).write_bytes(whole)
        if left is not None:
            tally.write_bytes(left)
        with Store(tmp_path) as store:
            assert (store.open_ids(), store.damaged, store.unsealed) == (["t1"], {}, [])
            with store.resume("t1") as run:
                run.event(_event("e1"))
            assert len(store.get("t1").events) == 1
        assert verify(tmp_path).faults == []


def test_repair_keeps_what_is_left_and_says_how_much_was_acknowledged(tmp_path: Path) -> None:
    whole = _killed(tmp_path)
    path = _journal(tmp_path)
    good = whole.rindex(b'{"event":{"id":"e3"')
    path.write_bytes(whole[: good + 9])
    assert repair(tmp_path).done == [f"{path.name} was damaged: {good:,} of {len(whole):,} bytes are kept"]
    with Store(tmp_path) as store:
        assert len(store.get("t1").events) == 3
        with store.resume("t1") as run:
            run.event(_event("after"))
        assert store.damaged == {}
    assert verify(tmp_path).faults == []


def test_a_run_of_an_older_version_goes_on_and_is_tallied_from_then_on(tmp_path: Path) -> None:
    _killed(tmp_path)
    whole = _of_an_older_version(tmp_path)
    path = _journal(tmp_path)
    assert verify(tmp_path).untallied == 1
    path.write_bytes(whole[: whole.rindex(b'{"event":')])  # what was acknowledged is not known, so nobody can tell
    with Store(tmp_path) as store:
        assert len(store.get("t1").events) == 4
        with store.resume("t1") as run:
            run.event(_event("after"))
    assert verify(tmp_path).untallied == 0
    changed = path.read_bytes()[:-20]
    path.write_bytes(changed)
    assert _is_said(tmp_path, changed)


def test_what_was_tallied_is_on_disk_before_it_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal first, then its tally: what the tally says is there after a power cut too."""
    synced: list[tuple[int, int]] = []
    real = disk.sync_file

    def seen(fd: int) -> None:
        real(fd)
        synced.append((_journal(tmp_path).stat().st_size, Tally.decoded(tally.read_bytes()).size))  # type: ignore[union-attr]

    with Store(tmp_path, flush_ms=60_000) as store, store.record("t1", task_id="demo") as run:
        tally = _journal(tmp_path).with_suffix(".tally")
        before = _journal(tmp_path).stat().st_size
        monkeypatch.setattr(disk, "sync_file", seen)
        run.event(_event("e1"))
        run.sync()
        after = _journal(tmp_path).stat().st_size
        assert synced == [(after, before), (after, after)]


def test_a_tally_that_cannot_be_written_acknowledges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = [False, True]
    real = disk.sync_file

    def failing(fd: int) -> None:
        if fails and fails.pop(0):
            raise OSError(5, "Input/output error")
        real(fd)

    with Store(tmp_path, flush_ms=60_000) as store, store.record("t1", task_id="demo") as run:
        before = _journal(tmp_path).read_bytes()
        monkeypatch.setattr(disk, "sync_file", failing)
        run.event(_event("e1"))
        with pytest.raises(CounterpointError):
            run.sync()
        assert _journal(tmp_path).read_bytes() == before
        assert store.get("t1").events == []
        run.sync()
        assert [e.id for e in store.get("t1").events] == ["e1"]
    assert verify(tmp_path).faults == []


def test_a_drop_or_a_seal_that_was_killed_half_way_is_ended(tmp_path: Path) -> None:
    """The journal goes first; the tally has said before that the run is over."""
    _killed(tmp_path)
    path = _journal(tmp_path)
    path.with_suffix(".tally").write_bytes(Tally(0, 0, "t1").encoded())
    with Store(tmp_path, read_only=True) as store:
        assert store.open_ids() == ["t1"]
    with Store(tmp_path) as store:
        assert (store.open_ids(), store.damaged, store.unsealed) == ([], {}, [])
        with store.record("t1", task_id="demo") as run:
            tally = path.with_suffix(".tally").read_bytes()
            run.event(_event("e1"))
            run.finish()
        assert list(tmp_path.glob("journal/*")) == []
    path.with_suffix(".tally").write_bytes(tally)  # a power cut after the journal was gone
    with Store(tmp_path, read_only=True) as store:
        assert (len(store.rows()), store.damaged) == (1, {})
    with Store(tmp_path) as store:
        assert store.unsealed == []
        assert list(tmp_path.glob("journal/*")) == []
        path.with_suffix(".tally").write_bytes(tally)
        assert store.add(Trace(trace_id="t1", task_id="d", events=[_event("x")])) == "updated"


@pytest.mark.parametrize("at", [b"grep", b'{"event"', b'"e2"'])
def test_a_wrong_byte_in_the_middle_is_reported_and_nothing_is_dropped(tmp_path: Path, at: bytes) -> None:
    whole = _killed(tmp_path)
    path = _journal(tmp_path)
    place = whole.index(at, whole.index(b"\n"))
    bad = whole[: place + 1] + b"~" + whole[place + 2 :]
    path.write_bytes(bad)
    with Store(tmp_path) as store:
        with pytest.raises(InvalidTrace, match=r"jsonl: line \d"):
            store.get("t1")
        with pytest.raises(InvalidTrace):
            store.resume("t1")
    assert path.read_bytes() == bad


def test_a_torn_and_garbled_tail_is_cut_with_what_follows_the_last_sum(tmp_path: Path) -> None:
    whole = _killed(tmp_path)
    _journal(tmp_path).write_bytes(whole + b'{"event":{"id":"x"\x00\x00\x00}\n{"eve')
    with Store(tmp_path) as store:
        assert len(store.get("t1").events) == 5
    assert _journal(tmp_path).read_bytes() == whole


def _is_noticed(folder: Path, path: Path, changed: bytes, whole: Trace) -> bool:
    """Whether a journal with other bytes is an error for everybody, or gives what was recorded all the same."""
    path.write_bytes(changed)
    with Store(folder) as store:
        try:
            read = store.get("t1")
        except (InvalidTrace, NotFound):
            with pytest.raises((InvalidTrace, NotFound)):
                store.resume("t1")
            return path.read_bytes() == changed
    return read == whole


def test_one_changed_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    """In the header, in the last commit, in a sum, in a line break: nothing is read otherwise than it was written."""
    whole = _killed(tmp_path, events=3)
    path = _journal(tmp_path)
    with Store(tmp_path) as store:
        recorded = store.get("t1")
    unnoticed = []
    for place in range(len(whole)):
        bit = 1 << (place * 5 % 8)
        changed = whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :]
        if not _is_noticed(tmp_path, path, changed, recorded):
            unnoticed.append((place, bit))
    assert unnoticed == []


@pytest.mark.parametrize("bit", range(8))
def test_every_bit_of_the_last_commit_is_noticed(tmp_path: Path, bit: int) -> None:
    whole = _killed(tmp_path, events=2)
    path = _journal(tmp_path)
    with Store(tmp_path) as store:
        recorded = store.get("t1")
    last = whole.rindex(b'{"event":')
    for place in range(last, len(whole)):
        changed = whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]
        assert _is_noticed(tmp_path, path, changed, recorded), place


def test_a_last_commit_with_a_hole_was_never_acknowledged(tmp_path: Path) -> None:
    """A power cut may leave the sum of a commit on disk and not the blocks before it."""
    whole = _of_an_older_version(tmp_path) if _killed(tmp_path) else b""
    last = whole.rindex(b'{"event":')
    end = whole.index(b"\n", last)
    _journal(tmp_path).write_bytes(whole[:last] + bytes(end - last) + whole[end:])
    with Store(tmp_path) as store:
        assert len(store.get("t1").events) == 4
        with store.resume("t1") as run:
            run.event(_event("after"))
        assert [e.id for e in store.get("t1").events] == ["e0", "e1", "e2", "e3", "after"]


def test_a_hole_before_the_last_commit_is_damage(tmp_path: Path) -> None:
    whole = _killed(tmp_path)
    first = whole.index(b'{"event":')
    bad = whole[:first] + bytes(8) + whole[first + 8 :]
    _journal(tmp_path).write_bytes(bad)
    with Store(tmp_path) as store, pytest.raises(InvalidTrace):
        store.resume("t1")
    assert _journal(tmp_path).read_bytes() == bad


def test_a_journal_of_the_first_form_has_a_header_without_a_sum(tmp_path: Path) -> None:
    _killed(tmp_path, events=0)
    whole = _of_an_older_version(tmp_path)
    header = whole[: whole.index(b"\n") + 1]
    _journal(tmp_path).write_bytes(header)
    with Store(tmp_path) as store:
        with store.resume("t1") as run:
            run.event(_event("e0"))
        assert [e.id for e in store.get("t1").events] == ["e0"]


def test_a_finished_journal_is_sealed_when_the_store_opens(tmp_path: Path) -> None:
    whole = _killed(tmp_path)
    finish = b'{"finish":{"rewards":{"team":1}}}\n'
    _journal(tmp_path).write_bytes(whole + finish + sum_line(zlib.crc32(finish)))
    with Store(tmp_path, read_only=True) as store:
        assert store.open_ids() == ["t1"]
        assert store.get("t1").rewards == {"team": 1}
    with Store(tmp_path) as store:
        assert store.ids() == ["t1"]
        assert store.open_ids() == []
        assert store.get("t1").rewards == {"team": 1}
    assert list(tmp_path.glob("journal/*")) == []


def test_opening_does_not_touch_a_journal_that_is_being_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.record("t1", task_id="demo") as run:
        run.event(_event("e1"))
        run.sync()
        with open(_journal(tmp_path), "ab") as torn:
            torn.write(b'{"eve')
        size = _journal(tmp_path).stat().st_size
        with Store(tmp_path) as other:
            assert _journal(tmp_path).stat().st_size == size
            assert [e.id for e in other.get("t1").events] == ["e1"]
            for take in (other.resume, lambda name: other.record(name, task_id="x"), other.remove):
                with pytest.raises(TryAgain, match="is being recorded"):
                    take("t1")


def test_what_nobody_waits_for_is_looked_at_once_in_an_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    waits = threading.Event.wait

    def seen(self: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread().name == "counterpoint-flusher":
            asked.append(timeout or 0.0)
        return waits(self, timeout)

    monkeypatch.setattr(threading.Event, "wait", seen)
    with Store(tmp_path, flush_ms=3_600_000) as store, store.record("t1", task_id="demo") as run:
        run.event(_event("e1"))
        run.sync()
    assert 1800 < asked[0] <= 3600
    assert len(asked) < 10


def test_threads_that_wait_together_share_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = []
    real = disk.sync_file

    def slow(fd: int) -> None:
        syncs.append(fd)
        threading.Event().wait(0.005)
        real(fd)

    monkeypatch.setattr(disk, "sync_file", slow)
    store = Store(tmp_path, flush_ms=60_000)
    with store.record("t1", task_id="demo") as run:
        together = threading.Barrier(20)

        def agent(k: int) -> None:
            for i in range(5):
                run.event(_event(f"{k}-{i}"))
                together.wait()
                run.sync()

        threads = [threading.Thread(target=agent, args=(k,)) for k in range(20)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert len(syncs) <= 20  # of a hundred calls: whoever comes first syncs for all that were recorded
        assert len(store.get("t1").events) == 100


def test_tasks_share_syncs_too(tmp_path: Path) -> None:
    store = Store(tmp_path)

    async def agent(k: int) -> None:
        for i in range(20):
            run.event(_event(f"{k}-{i}"))
            await run.sync_async()
            assert f'"{k}-{i}"'.encode() in _journal(tmp_path).read_bytes()

    async def team() -> None:
        await asyncio.wait_for(asyncio.gather(*(agent(k) for k in range(20))), 600)

    with store.record("t1", task_id="demo") as run:
        asyncio.run(team())
        assert _journal(tmp_path).read_bytes().count(b'{"sum":') < 400
        assert len(run.finish().events) == 400


def test_a_full_disk_is_said_and_the_records_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, flush_ms=60_000)
    with store.record("t1", task_id="demo") as run:
        run.event(_event("e1"))
        run.sync()
        durable = _journal(tmp_path).read_bytes()

        def full(fd: int, data: bytes) -> None:
            os.write(fd, data[:10])
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(disk, "write_all", full)
            run.event(_event("e2"))
            with pytest.raises(CounterpointError, match="no space left") as caught:
                run.sync()
            assert caught.value.exit_code == 1
            assert _journal(tmp_path).read_bytes() == durable
            with pytest.raises(CounterpointError, match="no space left"):
                asyncio.run(_sync_async(run))
        run.sync()
        assert [e.id for e in store.get("t1").events] == ["e1", "e2"]


def test_a_failed_sync_is_no_acknowledgement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, flush_ms=60_000)

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with store.record("t1", task_id="demo") as run:
        run.event(_event("e1"))
        with monkeypatch.context() as patch:
            patch.setattr(disk, "sync_file", broken)
            with pytest.raises(CounterpointError, match="Input/output error"):
                run.sync()
        run.sync()
        assert [e.id for e in store.get("t1").events] == ["e1"]


def test_a_record_that_cannot_be_written_is_named_until_dropped(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.record("t1", task_id="demo") as run:
        run.event(_event("good"))
        run.event(_event("bad", dur=float("nan")))
        run.edge("good", "bad", "causal")
        for _ in range(2):
            with pytest.raises(InvalidTrace, match="record 'bad' cannot be written"):
                run.sync()
        with pytest.raises(InvalidTrace):
            run.finish()
        assert len(run.drop_refused()) == 2
        run.event(_event("bad", dur=1.5))
        run.edge("good", "bad", "causal")
        assert len(run.finish().edges) == 1


def test_wrong_records_are_refused_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.record("t1", task_id="demo") as run:
        run.event(_event("e1"))
        with pytest.raises(InvalidTrace, match="'e1' was used before"):
            run.event(_event("e1"))
        with pytest.raises(InvalidTrace, match="no event 'e2' yet"):
            run.edge("e1", "e2", "causal")
        with pytest.raises(InvalidTrace, match="cannot be written"):
            run.open(_event("e3", dur=float("nan")))
        run.open(_event("e3"))
        with pytest.raises(InvalidTrace, match="'e1' is not open"):
            run.close("e1")
        with pytest.raises(InputError, match="did you mean 'dur'"):
            run.close("e3", duration=1)
        with pytest.raises(InvalidTrace, match="another type"):
            run.close("e3", dur="long")
        run.close("e3", dur=1, ok=True, from_="b")
        run.edge("e1", "e3", "friend")
        with pytest.raises(InvalidTrace, match="Invalid enum value 'friend'"):
            run.sync()
        run.drop_refused()
        run.finish()
    assert store.get("t1").events[1].from_ == "b"
    with pytest.raises(InputError, match="this run is over"):
        run.event(_event("e9"))
    with pytest.raises(InputError, match="this run is over"):
        run.edge("e1", "e3", "causal")
    with pytest.raises(InputError, match="this run is over"):
        run.content("late")
    with pytest.raises(InputError, match="this run is over"):
        asyncio.run(_sync_async(run))
    with pytest.raises(InputError, match="this run is over"):
        run.finish()


@pytest.mark.parametrize("field", [{"t": "soon"}, {"dur": [1]}, {"tokens_in": "many"}, {"agent": 3}])
def test_an_event_cannot_close_with_a_field_of_another_type(tmp_path: Path, field: dict[str, object]) -> None:
    with Store(tmp_path) as store, store.record("t1", task_id="demo") as run:
        run.open(_event("e1"))
        with pytest.raises(InvalidTrace, match="event 'e1' cannot close with a field of another type"):
            run.close("e1", **field)
        run.close("e1")
        run.finish()
        assert store.get("t1").events == [_event("e1")]


def test_a_run_that_somebody_else_stored_meanwhile_does_not_replace_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = store.record("t1", task_id="demo")
    run.event(_event("e1"))
    other = Trace(trace_id="t1", task_id="demo", events=[_event("e2")])
    store._writer.add_many([other], None, is_open=lambda name: False)  # as one that looked before the run began
    with pytest.raises(InputError, match="another process stored trace 't1' meanwhile"):
        run.finish()
    store.close()
    assert [e.id for e in Store(tmp_path).get("t1").events] == ["e2"]


def test_a_hung_tool_is_visible(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.record("t1", task_id="demo") as run:
        run.open(_event("call", tool="browser"))
        run.sync()
        assert store.get("t1").meta == {"unfinished": True, "open_events": ["call"]}
        run.finish()
    assert store.get("t1").meta == {"open_events": ["call"]}


def test_leaving_by_an_exception_leaves_the_trace_unfinished(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(ZeroDivisionError), store.record("t1", task_id="demo") as run:  # noqa: PT012
        run.event(_event("e1"))
        raise ZeroDivisionError
    assert store.ids() == []
    assert store.open_ids() == ["t1"]
    assert store.get("t1").meta == {"unfinished": True}
    with pytest.raises(InputError, match=r"is unfinished.*store\.resume"):
        store.record("t1", task_id="demo")
    with store.resume("t1") as run, pytest.raises(InvalidTrace, match="used before"):
        run.event(_event("e1"))
    store.remove("t1")
    assert store.open_ids() == []


def test_a_content_is_kept_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.record("t1", task_id="demo") as run:
        ref = run.content("hello")
        assert run.content("hello") == ref
        run.event(_event("e1", content_ref=ref))
        trace = run.finish(rewards={"team": 1.0}, meta={"k": 1})
    assert store.get("t1") == trace
    assert trace.text(trace.events[0]) == "hello"


def test_a_fork_cannot_write_into_its_parents_journal(tmp_path: Path) -> None:
    store = Store(tmp_path, flush_ms=60_000)
    with store.record("t1", task_id="demo") as run:
        run.event(_event("e1"))
        pid = os.fork()
        if pid == 0:
            try:
                run.sync()
            except InputError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        run.sync()
        run.finish()
