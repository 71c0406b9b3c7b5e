"""Several at once, one moment at a time: what each finds when the other was quicker."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterpoint.errors import CounterpointError, InputError
from counterpoint.store import Store, compaction, disk, opening
from counterpoint.store import writing as adding
from counterpoint.store.head import Head, Position
from counterpoint.store.log import Commit, Log
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Trace
from fresh_help import in_fresh_process


def _trace(name: str = "t1", seed: int = 0) -> Trace:
    return synthetic_trace(2, 4, "swarm", seed, trace_id=name)


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("lake/*/*/*.parquet"))


def _before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[Any], None]) -> None:
    """Do something once, after the next part is written and before it is committed."""
    real, done = adding.PartWriter.close, []

    def close(self: Any) -> Any:
        part = real(self)
        if not done:
            done.append(1)
            act(self)
        return part

    monkeypatch.setattr(adding.PartWriter, "close", close)


def test_who_comes_second_with_the_same_trace_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    _before_commit(monkeypatch, lambda writer: other.add(_trace()) and None)
    assert store.add(_trace()) == "unchanged"
    assert len(_parts(tmp_path)) == 3
    assert Store(tmp_path).ids() == ["t1"]


def test_who_comes_second_with_another_trace_replaces_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    _before_commit(monkeypatch, lambda writer: other.add(_trace(seed=1)) and None)
    assert store.add(_trace()) == "updated"
    assert other.get("t1") == _trace()


def test_a_part_that_was_taken_for_a_stray_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer was suspended for hours between writing and committing, and a compaction swept its files."""
    store, other = Store(tmp_path), Store(tmp_path)

    def sweep(writer: Any) -> None:
        for path in _parts(tmp_path):
            os.utime(path, (0, 0))
        assert other.compact().deleted == 3

    _before_commit(monkeypatch, sweep)
    assert store.add(_trace()) == "added"
    assert len(_parts(tmp_path)) == 3
    assert Store(tmp_path).get("t1") == _trace()


def test_one_missing_file_of_a_part_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    _before_commit(monkeypatch, lambda writer: _parts(tmp_path)[0].unlink())
    assert store.add(_trace()) == "added"
    assert len(_parts(tmp_path)) == 3, "what was left of the first try is gone"
    assert Store(tmp_path).get("t1") == _trace()


def test_an_error_after_the_commit_keeps_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder could not be synced, but the commit is there for others: its files are the store's."""
    store = Store(tmp_path)
    real = disk.sync_folder

    def broken(path: Path) -> None:
        if path.name == "log":
            raise OSError(5, "Input/output error")
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_folder", broken)
        with pytest.raises(CounterpointError, match="Input/output"):
            store.add(_trace())
    assert Store(tmp_path).get("t1") == _trace()


def test_an_error_before_the_commit_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)

    def full(path: Path, data: bytes) -> bool:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "create", full)
        with pytest.raises(CounterpointError, match="no space left"):
            store.add(_trace())
    assert _parts(tmp_path) == []
    assert Store(tmp_path).ids() == []


def test_a_merge_that_came_too_late_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    for i in range(3):
        store.add(_trace(f"t{i}"))
    other.ids()
    real, done = compaction.PartWriter.close, []

    def close(self: Any) -> Any:
        part = real(self)
        if not done:
            done.append(1)
            assert other.compact(grace_s=0).merged == 3
        return part

    monkeypatch.setattr(compaction.PartWriter, "close", close)
    assert store.compact(grace_s=0).merged == 0
    assert len(_parts(tmp_path)) == 3
    assert sorted(Store(tmp_path).ids()) == ["t0", "t1", "t2"]


# -- opening -----------------------------------------------------------------------------------------------------


def test_a_store_that_somebody_makes_between_our_two_looks_is_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = opening._is_new

    def slow(path: Path) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(opening, "_is_new", real)
            Store(path).add(_trace())
        return real(path)

    (tmp_path / "s").mkdir()
    monkeypatch.setattr(opening, "_is_new", slow)
    assert Store(tmp_path / "s").ids() == ["t1"]


def make_stores_at_once(folder: str) -> None:
    for k in range(5):
        go, waits = os.pipe()
        children = []
        for i in range(8):
            pid = os.fork()
            if pid == 0:
                try:
                    os.read(go, 1)
                    Store(Path(folder) / str(k)).add(_trace(f"t{i}"))
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(pid)
        os.write(waits, b"." * 8)
        assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 8


def test_many_processes_may_make_one_store(tmp_path: Path) -> None:
    in_fresh_process(make_stores_at_once, tmp_path)
    for k in range(5):
        assert sorted(Store(tmp_path / str(k)).ids()) == [f"t{i}" for i in range(8)]


def test_what_is_left_of_a_store_that_was_never_made_is_made_now(tmp_path: Path) -> None:
    for name in ("journal", "log"):
        (tmp_path / name).mkdir()
    Head.create(tmp_path / "head")
    (tmp_path / ".tmp-123").write_text("half a mark")
    assert Store(tmp_path).add(_trace()) == "added"


# -- the head ----------------------------------------------------------------------------------------------------


def test_the_head_says_how_far_the_log_goes(tmp_path: Path) -> None:
    head = Head(tmp_path / "head")
    Head.create(tmp_path / "head")
    assert head.read() == Position(0, 0)
    with head.lock():
        head.write(Position(12, 7))
    assert Head(tmp_path / "head").read() == Position(12, 7)
    Head.create(tmp_path / "head")
    assert head.read() == Position(12, 7), "one that is there stays"
    assert Position.decoded(Position(3, 2).encoded()) == Position(3, 2)
    said = b'{"commit":000000000012,"checkpoint":000000000007,'
    assert (tmp_path / "head").read_bytes() == said + b'"sum":%010d}\n' % zlib.crc32(said)


def test_what_is_too_long_or_too_short_is_no_head(tmp_path: Path) -> None:
    whole = Position(3, 2).encoded()
    for wrong in (whole[:-1], whole + b"x", b"", whole.replace(b"3", b"4")):
        (tmp_path / "head").write_bytes(wrong)
        with pytest.raises(InputError, match="the head of the store's log is damaged"):
            Head(tmp_path / "head").read()


def test_a_head_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    Head.create(tmp_path / "head")
    writer, reader = Head(tmp_path / "head"), Head(tmp_path / "head")
    found: list[Position] = []
    with writer.lock():
        (fd := os.open(tmp_path / "head", os.O_WRONLY), os.pwrite(fd, b"{????", 0), os.close(fd))
        thread = threading.Thread(target=lambda: found.append(reader.read()))
        thread.start()
        writer.write(Position(5, 0))
    thread.join()
    assert found == [Position(5, 0)]


def test_the_lock_is_one_and_inside_itself_it_is_held_already(tmp_path: Path) -> None:
    Head.create(tmp_path / "head")
    one, two = Head(tmp_path / "head"), Head(tmp_path / "head")
    with one.lock():
        with one.lock(shared=True):
            assert not disk.lock(two._file()), "a look for oneself does not let others in"
        assert not disk.lock(two._file()), "nor does its end"
    assert disk.lock(two._file())


def test_a_forked_child_has_no_part_in_the_lock(tmp_path: Path) -> None:
    """The parent dies while it commits; its child lives on, and nobody waits for it."""
    Store(tmp_path).close()
    told, tells = os.pipe()
    parent = os.fork()
    if parent == 0:
        store = Store(tmp_path)
        with store._log.head.lock():
            child = os.fork()
            if child == 0:
                os.read(told, 1)
                os._exit(0)
            os._exit(0)
    os.waitpid(parent, 0)
    assert Store(tmp_path).add(_trace()) == "added"
    os.write(tells, b".")


def test_a_checkpoint_of_another_counts(tmp_path: Path) -> None:
    """Two writers in turn write no more checkpoints than one alone would."""
    Store(tmp_path).close()
    one, two = (Log(tmp_path / "log", tmp_path / "head") for _ in range(2))
    numbers = set()
    for i in range(130):
        (one, two)[i % 2].commit(lambda state: Commit(at=0.0, drop=["x"]))
        numbers |= {p.name for p in (tmp_path / "log").glob("*.checkpoint")}
    assert len(numbers) == 130 // 32
    assert one.refresh().number == two.refresh().number == 130
    assert len(list((tmp_path / "log").glob("*.checkpoint"))) == 2
    assert len(list((tmp_path / "log").glob("*.json"))) == 130 - 96


def test_a_number_that_was_taken_without_the_lock_is_said(tmp_path: Path) -> None:
    Store(tmp_path).close()
    log = Log(tmp_path / "log", tmp_path / "head")

    def change(state: object) -> Commit:
        log.commit_path(1).write_bytes(b"of an older Counterpoint")
        return Commit(at=0.0, drop=["x"])

    with pytest.raises(InputError, match="did not hold the head's lock"):
        log.commit(change)
    assert log.commit_path(1).read_bytes() == b"of an older Counterpoint"


def test_drafts_of_dead_writers_are_swept_with_a_checkpoint(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old, new = (tmp_path / "log" / f"{disk.TEMPORARY}{name}" for name in ("old", "new"))
    for draft in (old, new):
        draft.write_text("half")
    os.utime(old, (0, 0))
    store._log.checkpoint()
    assert (old.exists(), new.exists()) == (False, True)


def test_a_summed_file_lies_under_its_own_name(tmp_path: Path) -> None:
    data = disk.with_sum(b"what it holds", "one.json")
    assert disk.without_sum(data, "one.json") == b"what it holds"
    assert disk.is_summed(data)
    assert not disk.is_summed(b"what it holds")
    for wrong, name in ((data, "two.json"), (data[:-1], "one.json"), (data + b"x", "one.json"), (b"", "one.json")):
        with pytest.raises(disk.SumError):
            disk.without_sum(wrong, name)
