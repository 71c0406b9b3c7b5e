"""Log, head, disk and compaction, piece by piece."""

from __future__ import annotations

import errno
import inspect
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from counterpoint.errors import CounterpointError, InputError, NotFound, TryAgain
from counterpoint.store import Store, compaction, disk, writing
from counterpoint.store.head import Head, Position
from counterpoint.store.log import Commit, Log, Part, Row, Span, State
from counterpoint.store.parts import Note
from counterpoint.store.repair import RepairResult
from counterpoint.store.summary import Day, Info, Summary
from counterpoint.store.verify import Fault, VerifyResult
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Trace


def _trace(i: int, seed: int = 0) -> Trace:
    return synthetic_trace(2, 4, "swarm", seed, trace_id=f"t{i}")


def _row(name: str, part: str) -> Row:
    return Row(id=name, task="d", events=Span(0, 0, 1), edges=Span(0, 0, 0), head=0, agents=1, digest="d", added=1.0, part=part)


def _part(name: str, traces: int = 1) -> Part:
    return Part(name=name, day="1", traces=traces, events=traces, bytes=0)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    Store(tmp_path).close()
    return Log(tmp_path / "log", tmp_path / "head")


def _names(log: Log) -> list[str]:
    return sorted(p.name.lstrip("0") for p in log.folder.iterdir())


def _drop(state: State) -> Commit:
    return Commit(at=0.0, drop=["x"])


# -- the log -----------------------------------------------------------------------------------------------------


def test_how_a_commit_changes_the_state() -> None:
    state = State()
    state.apply(Commit(at=1.0, parts=[_part("A", 2)], rows=[_row("a", "A"), _row("b", "A")]))
    state.apply(Commit(at=2.0, parts=[_part("B")], rows=[_row("a", "B")]))
    assert ({n: r.part for n, r in state.rows.items()}, state.live, state.dead) == ({"b": "A", "a": "B"}, {"A": 1, "B": 1}, {})
    state.apply(Commit(at=3.0, drop=["b", "nobody"]))
    assert (list(state.rows), state.live, list(state.parts), state.dead) == (["a"], {"B": 1}, ["B"], {"A": 3.0})
    state.apply(Commit(at=4.0, parts=[_part("C", 2)], rows=[_row("a", "C"), _row("b", "C")], replaces=["B"]))
    assert ({n: r.part for n, r in state.rows.items()}, state.live) == ({"a": "C"}, {"C": 1})
    assert state.dead == {"A": 3.0, "B": 4.0}
    state.apply(Commit(at=5.0, parts=[_part("D")], rows=[_row("a", "D")], replaces=["B"]))
    assert (state.rows["a"].part, state.dead["D"]) == ("C", 5.0), "it was renewed meanwhile"


def test_a_checkpoint_is_due_after_half_of_the_state_at_least_256_rows(log: Log) -> None:
    log.commit(_drop)
    for since, rows, is_due in ((255, 0, False), (256, 0, True), (299, 600, False), (300, 600, True), (300, 601, True)):
        log.state.rows = {f"r{i}": _row(f"r{i}", "A") for i in range(rows)}
        log.state.parts = {"A": _part("A", rows)} if rows else {}
        log._since_checkpoint = since
        log._maybe_checkpoint()
        assert log.checkpoint_path(1).exists() is is_due, (since, rows)
        log.checkpoint_path(1).unlink(missing_ok=True)
    log._since_checkpoint = 0
    log.state.rows, log.state.parts = {}, {}
    log.commit(lambda state: Commit(at=0.0, parts=[_part("A", 3)], rows=[_row(n, "A") for n in "abc"]))
    assert log._since_checkpoint == 8 + 3


def test_the_numbers_in_the_folder(log: Log) -> None:
    for name in ("x.json", "12.tmp", "7.json.bak", "000000000005.checkpoint", "9.json", "-3.json"):
        (log.folder / name).write_bytes(b"")
    assert log.numbers() == {"json": [9], "checkpoint": [5]}


def test_what_two_checkpoints_leave(log: Log) -> None:
    for _ in range(2):
        log.commit(_drop)
        log.commit(_drop)
        log.checkpoint()
        assert log._since_checkpoint == 0
    assert _names(log) == ["2.checkpoint", "3.json", "4.checkpoint", "4.json"]
    assert log.head.read() == Position(4, 4)
    log.commit(_drop)
    log.checkpoint()
    assert _names(log) == ["4.checkpoint", "5.checkpoint", "5.json"]
    log.checkpoint(sweep_all=True)
    assert _names(log) == ["5.checkpoint"]
    assert Log(log.folder, log.head.path).refresh().number == 5


def test_a_state_that_was_made_anew_has_a_number_of_its_own(log: Log) -> None:
    for _ in range(3):
        log.commit(_drop)
    state = State()
    state.apply(Commit(at=1.0, parts=[_part("A")], rows=[_row("a", "A")]))
    log.adopt(state)
    assert (log.state.number, log.head.read()) == (4, Position(4, 4))
    read = Log(log.folder, log.head.path).refresh()
    assert (read.number, list(read.rows), read.live) == (4, ["a"], {"A": 1})
    state.number = 9
    log.adopt(state)
    assert log.refresh().number == 10


def test_a_commit_is_done_also_where_head_and_checkpoint_fail(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Head, "write", broken)
        patch.setattr(disk, "replace_file", broken)
        log._since_checkpoint = 1000
        assert log.commit(_drop) is not None
    assert log.commit(lambda state: None) is None
    assert Log(log.folder, log.head.path).refresh().number == 1


def test_what_the_log_names(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.commit(lambda state: Commit(at=1.0, parts=[_part("A")], rows=[_row("a", "A")]))
    assert (log.names("A"), log.names("B")) == (True, False)
    log.commit_path(2).write_bytes(b"damaged")
    assert log.names("B"), "nobody can tell"


def test_what_a_file_of_the_log_must_hold(log: Log) -> None:
    with pytest.raises(InputError, match=r"3\.json: a commit of the store's log is missing"):
        log.read_commit(3)
    with pytest.raises(InputError, match="the checkpoint is missing"):
        log.read_checkpoint(3)
    log.commit(_drop)
    log.state.rows = {"a": _row("a", "A")}
    log.checkpoint()
    with pytest.raises(InputError, match="names the part 'A', which it does not hold"):
        log.read_checkpoint(1)
    other = Log(log.folder, log.head.path)
    other.state.number, other._is_read = 1, True
    with pytest.raises(InputError, match="names the part 'A', which no commit has added"):
        other.commit(lambda state: Commit(at=1.0, rows=[_row("a", "A")]))


# -- the head ----------------------------------------------------------------------------------------------------


def test_the_head_is_cut_to_its_length_and_synced_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "head"
    path.write_bytes(b"x" * 200)
    synced: list[int] = []
    monkeypatch.setattr(disk, "sync_file", synced.append)
    head = Head(path)
    head.write(Position(2, 1))
    assert (path.read_bytes(), synced) == (Position(2, 1).encoded(), [])
    head.write(Position(3, 1), durably=True)
    assert (head.read(), synced) == (Position(3, 1), [head._fd])
    head.close()
    head.close()
    assert (head._fd, head.read()) != (-1, None), "it is opened again when it is asked"
    with head.lock():
        head.close()
    assert head._fd == -1
    assert disk.lock(Head(path)._file())


def test_a_head_that_may_only_be_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Head.create(tmp_path / "head")
    real = os.open
    for code, is_read in ((errno.EACCES, True), (errno.EPERM, True), (errno.EROFS, True), (errno.EIO, False)):

        def refuses(path: Any, flags: int, *args: Any, code: int = code) -> int:
            if flags & os.O_RDWR:
                raise OSError(code, "no")
            return real(path, flags, *args)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuses)
            if is_read:
                assert Head(tmp_path / "head").read() == Position()
            else:
                with pytest.raises(OSError, match="no"):
                    Head(tmp_path / "head").read()


# -- the disk ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "what"),
    [
        (errno.ENOSPC, CounterpointError, "no space left to write"),
        (errno.EDQUOT, CounterpointError, "no space left to write"),
        (errno.EFBIG, CounterpointError, "no space left to write"),
        (errno.EACCES, InputError, "permission denied"),
        (errno.EPERM, InputError, "permission denied"),
        (errno.EROFS, InputError, "the file system is read-only"),
        (errno.ENOENT, NotFound, "no such file or folder"),
        (errno.ENOTDIR, InputError, "is a file, not a folder"),
        (errno.EEXIST, InputError, "is a file, not a folder"),
        (errno.EMFILE, TryAgain, "too many open files"),
        (errno.ENFILE, TryAgain, "too many open files"),
        (errno.EIO, CounterpointError, "Input/output error"),
    ],
)
def test_system_errors_in_our_words(code: int, kind: type, what: str) -> None:
    with pytest.raises(CounterpointError) as caught, disk.translate_errors(Path("/some/where")):
        raise OSError(code, os.strerror(code))
    assert (type(caught.value), caught.value.what, caught.value.where) == (kind, what, "/some/where")
    with pytest.raises(CounterpointError) as caught, disk.translate_errors("/some/where"):
        raise OSError(code, os.strerror(code), "/the/file")
    assert caught.value.where == "/the/file"


def test_our_own_errors_stay_and_one_without_words_has_some() -> None:
    with pytest.raises(TryAgain, match="mine"), disk.translate_errors("/some/where"):
        raise TryAgain("mine")
    assert disk.our_error(OSError("odd"), "w").what == "odd"


def test_every_byte_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    assert disk.create(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_files_and_folders_that_are_made(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        disk.make_folder(tmp_path / "x" / "y")
        disk.make_folder(tmp_path / "x" / "y")
        path = tmp_path / "x" / "y" / "a"
        assert disk.create(path, b"one")
        assert path.stat().st_mode & 0o777 == 0o644
        with Store(tmp_path / "store") as store, store.record("t1", task_id="d"):
            assert [p.stat().st_mode & 0o777 for p in store.path.glob("journal/*")] == [0o644, 0o644]
    finally:
        os.umask(mask)
    assert not disk.create(path, b"two")
    assert path.read_bytes() == b"one"
    disk.replace_file(path, b"three")
    assert path.read_bytes() == b"three"
    assert [p.name for p in path.parent.iterdir()] == ["a"]
    disk.remove(path)
    disk.remove(path)
    with pytest.raises(FileExistsError):
        disk.write_new(tmp_path / "x", b"")
    with pytest.raises(NotADirectoryError):
        disk.sync_folder(tmp_path / "store" / "head")


def test_locks(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    one, two = (os.open(tmp_path / "f", os.O_RDWR) for _ in range(2))
    assert disk.lock(one, shared=True)
    assert disk.lock(two, shared=True)
    assert not disk.lock(two)
    disk.unlock(one)
    assert disk.lock(two)
    assert not disk.lock(one, shared=True)
    disk.unlock(two)
    assert disk.lock(one, wait=True)
    os.close(one)
    os.close(two)
    with pytest.raises(OSError, match="Bad file"):
        disk.lock(one)


def test_drafts_older_than_asked_are_swept(tmp_path: Path) -> None:
    now = time.time()
    for name, age in ((".tmp-old", 100), (".tmp-new", 20), ("other", 100)):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (now - age, now - age))
    disk.sweep(tmp_path, 60)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".tmp-new", "other"]


# -- compaction --------------------------------------------------------------------------------------------------


def _files(folder: Path) -> int:
    return len(list(folder.glob("lake/**/*.parquet")))


def test_what_is_worth_compacting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_LARGE_TRACES", 2)
    store = Store(tmp_path)
    store.add_many([_trace(0), _trace(1)])
    store.add_many([_trace(2), _trace(3)])
    assert store.compact() == compaction.CompactionResult(0, 0, 0), "large, and whole"
    store.remove("t0")
    assert store.compact() == compaction.CompactionResult(1, 1, 0), "large, with a dead row"
    assert store.compact() == compaction.CompactionResult(0, 0, 0), "small, whole and alone"
    assert store.compact(grace_s=0) == compaction.CompactionResult(0, 0, 3)
    assert (store._log.state.dead, _files(tmp_path)) == ({}, 6)
    assert [store.get(f"t{i}") for i in (1, 2, 3)] == [_trace(i) for i in (1, 2, 3)]


def test_parts_are_merged_within_their_day_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    for i in range(6):

        class Clock:
            day = datetime(2026, 1, 1 + i % 2, tzinfo=UTC)

            @classmethod
            def now(cls, zone: object) -> datetime:
                return cls.day

        monkeypatch.setattr(writing, "datetime", Clock)
        store.add_many([_trace(2 * i), _trace(2 * i + 1)])
    old = sorted(store._log.state.rows.values(), key=lambda r: (r.part, r.head))
    assert store.compact() == compaction.CompactionResult(6, 2, 0)
    state = store._log.state
    assert sorted(p.day for p in state.parts.values()) == ["2026-01-01", "2026-01-02"]
    for part in state.parts.values():
        rows = sorted((r for r in state.rows.values() if r.part == part.name), key=lambda r: r.head)
        assert [r.id for r in rows] == [r.id for r in old if r.id in {m.id for m in rows}]
        assert part.name.startswith(f"day={part.day}/")


def test_what_purge_does(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add_many([_trace(0), _trace(1)])
    store.add(_trace(2))
    store.add(_trace(3))
    assert store.purge() == compaction.CompactionResult(0, 0, 0)
    store.remove("t0")
    store.remove("t2")
    store._log.state.dead = dict.fromkeys(store._log.state.dead, time.time() + 1e6)  # the clock was set back since
    assert store.purge() == compaction.CompactionResult(1, 1, 6)
    assert (sorted(store.ids()), _files(tmp_path)) == (["t1", "t3"], 6)
    assert [p.suffix for p in (tmp_path / "log").iterdir()] == [".checkpoint"]


def test_strays_have_an_age_and_the_dead_a_grace(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(_trace(0))
    store.add(_trace(1))
    store.compact()
    stray = next(tmp_path.glob("lake/*/*")) / "0123.events.parquet"
    now = time.time()
    for path in tmp_path.glob("lake/*/*/*"):
        os.utime(path, (0, 0))
    for age, grace_s, deleted in ((3000, 0.0, 6), (5000, 9000.0, 0), (5000, 600.0, 1)):
        stray.write_bytes(b"half")
        os.utime(stray, (now - age, now - age))
        if grace_s:
            assert store.compact(grace_s=grace_s).deleted == deleted
        else:
            assert store.compact(grace_s=600.0).deleted == 0, "the dead are no strays"
            assert store.compact(grace_s=0.0).deleted == deleted
        assert stray.exists() == (deleted != 1)
    assert [store.get("t0"), store.get("t1")] == [_trace(0), _trace(1)]
    stray.write_bytes(b"")
    os.utime(stray, (5, 5))
    assert (compaction._age(stray, 8.0), compaction._age(tmp_path / "gone", 8.0)) == (3.0, 0.0)


@pytest.mark.parametrize("error", [InputError("no"), OSError(28, "no")])
def test_a_merge_that_fails_does_not_fail_the_addition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(compaction, "_TIERS", ((16, 2),))
    store = Store(tmp_path)
    calls: list[int] = []

    def fails(*_: Any) -> bool:
        calls.append(1)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "_merge", fails)
        assert store.add(_trace(0)) == "added"
        assert calls == []
        assert store.add(_trace(1)) == "added"
    assert calls == [1]
    assert len(store._log.state.parts) == 2
    assert store.add(_trace(2)) == "added"
    assert len(store._log.state.parts) == 1


def test_who_only_reads_lets_other_readers_in(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[bool] = []
    real = disk.lock

    def lock(fd: int, *, shared: bool = False, wait: bool = False) -> bool:
        kinds.append(shared)
        assert wait
        return real(fd, shared=shared)

    monkeypatch.setattr(disk, "lock", lock)
    log.commit(_drop)
    assert kinds == [False]
    log.head.path.write_bytes(b"damaged")
    with pytest.raises(InputError, match="is damaged"):
        Head(log.head.path).read()
    assert kinds == [False, True]
    log.head.write(Position(1, 0))
    log.commit_path(1).unlink()
    with pytest.raises(InputError, match="is missing"):
        Log(log.folder, log.head.path).refresh()
    assert kinds == [False, True, True]


def test_what_a_row_says_where_an_older_version_said_nothing() -> None:
    bare = msgspec.json.decode(b'["t","d",null,null,[0,0,1],[0,0,0],null,0,2,null,null,{},{},null,false,0,0,"x",null,1.5]', type=Row)
    assert bare == Row(id="t", task="d", events=Span(0, 0, 1), edges=Span(0, 0, 0), head=0, agents=2, digest="x", added=1.5)
    assert (bare.tokens, bare.wall_clock_s, bare.rewards, bare.costs, bare.metrics) == (None, None, {}, {}, None)
    assert (bare.has_meta, bare.problems, bare.decisions, bare.source, bare.part) == (False, 0, 0, None, "")
    assert (bare.present, bare.is_steered, bare.cost_usd, bare.system, bare.topology, bare.contents) == (0, False, None, None, None, None)
    part = msgspec.json.decode(b'{"name":"A","day":"1","traces":1,"events":1,"bytes":0}', type=Part)
    assert (part.sums, part.has_rewards) == ({}, False)
    commit = msgspec.json.decode(b'{"at":1}', type=Commit)
    assert (commit.parts, commit.rows, commit.drop, commit.replaces) == ([], [], [], [])


def test_how_old_a_draft_must_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[tuple[str, float]] = []
    monkeypatch.setattr(disk, "sweep", lambda folder, age: swept.append((folder.name, age)))
    store = Store(tmp_path)
    store._log.checkpoint()
    assert swept == [("journal", 3600.0), ("log", 60.0)]


def test_files_of_parts_that_are_gone_are_closed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(_trace(0))
    store.add(_trace(1))
    store.compact(grace_s=600)
    (part,) = store._log.state.parts
    assert {key[0] for key in store._lake._files} != {part}
    store.compact(grace_s=0)
    assert {key[0] for key in store._lake._files} <= {part}
    assert {key[0] for key in store._lake._verified} <= {part}


def test_records_are_made_by_name_and_have_one_form() -> None:
    """Fields of the same type in a row are not told apart by place; what the log holds is never changed in memory."""
    for kind in (Row, Part, Commit, Summary, Day, Info, Fault, VerifyResult, RepairResult, Note):
        assert {p.kind for p in inspect.signature(kind).parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}, kind
    for kind in (Row, Part, Commit, Span, Summary, Fault, compaction.CompactionResult):
        assert kind.__struct_config__.frozen, kind
    assert msgspec.json.encode(Span(1, 2, 3)) == b"[1,2,3]"
    assert msgspec.json.encode(_row("a", "A")).startswith(b'["a","d",null')
    assert msgspec.json.encode(Commit(at=1.0)) == b'{"at":1.0}'
    assert msgspec.json.encode(_part("A")) == b'{"name":"A","day":"1","traces":1,"events":1,"bytes":0}'
    bare = dict.fromkeys(("system", "topology", "tokens", "wall_clock_s", "team_reward", "source"))
    line = Summary(id="t", task_id="d", events=0, edges=0, agents=0, problems=0, added=0.0, **bare)
    assert (line.is_open, line.cost_usd, line.is_steered) == (False, None, False)
    assert VerifyResult() == VerifyResult(files=0, bytes=0, traces=0, faults=[], strays=0)
    assert RepairResult() == RepairResult(aside=None, done=[], restored=[], lost=[])
    assert Day(day="1") == Day(day="1", traces=0, events=0)
