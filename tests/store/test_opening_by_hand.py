"""Opening, journals, numbers and settings, piece by piece."""

from __future__ import annotations

import errno
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from counterpoint.errors import CounterpointError, InputError, InvalidTrace, TryAgain
from counterpoint.store import Store, compaction, disk, journal, lake, opening, parts
from counterpoint.store.journal import Journal, path_of
from counterpoint.store.repair import repair
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event, Trace


def _event(name: str, **fields: Any) -> Event:
    return Event(id=name, **({"t": 0, "type": "message", "agent": "a"} | fields))


def _trace(name: str = "t1", seed: int = 0) -> Trace:
    return synthetic_trace(2, 4, "swarm", seed, trace_id=name)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s", flush_ms=3_600_000)


# -- opening -----------------------------------------------------------------------------------------------------


def test_which_folders_are_new(tmp_path: Path) -> None:
    assert opening._is_new(tmp_path)
    for name in ("journal", "lake"):
        (tmp_path / name).mkdir()
    (tmp_path / "head").write_bytes(b"")
    (tmp_path / ".tmp-1").write_bytes(b"")
    assert opening._is_new(tmp_path)
    (tmp_path / "lake" / "x").mkdir()
    assert not opening._is_new(tmp_path)
    (tmp_path / "lake" / "x").rmdir()
    (tmp_path / "other").mkdir()
    assert not opening._is_new(tmp_path)


def test_the_form_that_a_mark_names(tmp_path: Path) -> None:
    mark = tmp_path / "counterpoint.json"
    assert opening.form_of(mark) is None
    assert opening.form_of(mark / "below") is None
    for form in (1, 2):
        mark.write_text(f'{{"counterpoint_store":{form}}}')
        assert opening.form_of(mark) == form
    assert opening.form_of(mark / "below") is None
    mark.write_text('{"counterpoint_store":0}')
    with pytest.raises(InputError, match="an unknown format: 0"):
        opening.form_of(mark)


@pytest.mark.parametrize(("code", "is_fatal"), [(errno.EACCES, False), (errno.EPERM, False), (errno.EROFS, False), (errno.EIO, True)])
def test_an_old_store_that_cannot_be_renewed_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch, code: int, is_fatal: bool
) -> None:
    def refuses(path: Path) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr(opening, "_renew", refuses)
    if is_fatal:
        with pytest.raises(OSError, match="no"):
            opening.open_log(store.path, 1, read_only=False)
        return
    assert opening.open_log(store.path, 1, read_only=False).is_summed is False
    assert opening.open_log(store.path, 1, read_only=True).is_summed is False
    assert opening.open_log(store.path, 2, read_only=False).is_summed is True
    monkeypatch.setattr(opening, "_renew", lambda path: None)
    assert opening.open_log(store.path, 1, read_only=False).is_summed is True


def test_who_renews_second_changes_nothing(store: Store) -> None:
    store.add(_trace())
    before = sorted(p.name for p in (store.path / "log").iterdir())
    opening._renew(store.path)
    assert sorted(p.name for p in (store.path / "log").iterdir()) == before


@pytest.mark.parametrize(
    ("data", "is_settled"),
    [
        (b"", False),
        (b"head\n", False),
        (b'head\n{"sum":1}\n', False),
        (b'head\n{"sum":1}\nevent\n{"sum":2}\n', True),
        (b'head\n{"sum":1}\nevent\n{"sum":2}', False),
        (b'head\n{"sum":1}\nevent\n{"sum":2}\nev', False),
        (b'head\n{"sum":1}\nevent\n{"sum":2}\nevent\n', False),
        (b'head\n{"sum":1}\n{"finish":{}}\n{"sum":2}\n', False),
        (b"x" * 70_000 + b'\nevent\n{"sum":2}\n', True),
        (b'head\n{"sum":1}\n' + b"x" * 70_000 + b'\n{"sum":2}\n', False),
        (b'{"finish":{}}\nevent\n{"sum":2}\n', True),
    ],
)
def test_a_journal_with_a_whole_end_is_settled(tmp_path: Path, data: bytes, is_settled: bool) -> None:
    (tmp_path / "j").write_bytes(data)
    assert opening._is_settled(tmp_path / "j") is is_settled


def test_what_is_no_file_is_settled_or_not(tmp_path: Path) -> None:
    assert opening._is_settled(tmp_path / "gone")
    assert not opening._is_settled(tmp_path)


def test_what_recovery_reports(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store.path / "journal"
    now = time.time()
    for name, age in ((".tmp-old", 4000), (".tmp-new", 3000)):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (now - age, now - age))
    (folder / "x.jsonl").write_bytes(b"head")
    errors: list[CounterpointError] = []

    def fails(path: Path, writer: object) -> None:
        raise errors[0] from errors[0].__cause__

    monkeypatch.setattr(opening, "_mend", fails)
    for cause, is_reported in ((None, True), (OSError(5, "x"), True), (OSError(13, "x"), False), (OSError(1, "x"), False), (OSError(30, "x"), False)):
        error = InputError("no")
        error.__cause__ = cause
        errors[:] = [error]
        assert opening.recover(folder, store._writer) == ([error] if is_reported else []), cause
    assert sorted(p.name for p in folder.iterdir()) == [".tmp-new", "x.jsonl"]


# -- journals ----------------------------------------------------------------------------------------------------


def test_who_holds_a_journal(store: Store) -> None:
    folder = store.path / "journal"
    path = path_of(folder, "t1")
    assert not journal.is_held(path)
    with store.record("t1", task_id="d") as run:
        assert journal.is_held(path)
        assert not Journal.drop(path, "t1")
        assert Journal.resume(path) is None
        assert sorted(p.name for p in folder.iterdir()) == [path.name, path.with_suffix(".tally").name]
        with pytest.raises(TryAgain, match="is being recorded"):
            store.record("t1", task_id="d")
        assert run._journal.is_open
    assert not run._journal.is_open
    assert not journal.is_held(path)
    with pytest.raises(InputError, match="this run is closed"):
        run._journal.append(b"")
    with pytest.raises(InputError, match="is unfinished"):
        store.record("t1", task_id="d")
    assert sorted(p.name for p in folder.iterdir()) == [path.name, path.with_suffix(".tally").name]
    assert Journal.drop(path, "t1")
    assert list(folder.iterdir()) == []
    assert Journal.resume(path) is None
    assert isinstance(journal._taken_error(path, "t1"), TryAgain)


def test_the_journals_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.json", ".tmp-1"):
        (tmp_path / name).write_bytes(b"")
    assert [p.name for p in journal.journals(tmp_path)] == ["a.jsonl", "b.jsonl"]
    assert list(journal.journals(tmp_path / "gone")) == []
    assert journal.peek(tmp_path / "gone") is None


def test_where_sums_end() -> None:
    line = b'\n{"sum":1}'
    for data, end in ((b"", 0), (b"head\n", 0), (b"head" + line, 0), (b"head" + line + b"\n", 15), (b"head" + line + b"\nx" + line, 15)):
        assert journal._end_of_sums(data) == end, data
    assert journal._end_of_sums(b"head" + line + b"\nx" + line + b"\n") == 27


def test_the_good_bytes_of_a_journal(store: Store) -> None:
    with store.record("t1", task_id="d") as run:
        ends = []
        for i in range(3):
            run.event(_event(f"e{i}"))
            run.sync()
            ends.append(run._journal._tally.tally.size)
    path = path_of(store.path / "journal", "t1")
    whole = path.read_bytes()
    assert ends[-1] == len(whole)
    assert journal.good_bytes(whole, path) == len(whole)
    assert journal.good_bytes(whole + b"torn", path) == len(whole)
    assert journal.good_bytes(whole.replace(b"e2", b"eX"), path) == ends[1]
    assert journal.good_bytes(whole.replace(b"e1", b"eX"), path) == ends[0]
    assert journal.good_bytes(whole.replace(b"t1", b"tX"), path) == 0
    path.write_bytes(whole[:-1] + b" ")
    with pytest.raises(InvalidTrace, match="the journal is not what was acknowledged"):
        journal.peek(path)
    path.write_bytes(path.read_bytes().replace(b',"tally":true}', b"}"))
    path.with_suffix(".tally").unlink()
    with pytest.raises(InvalidTrace, match="the end of the last sum has changed"):
        journal.peek(path)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are listed on Linux only")
def test_what_is_made_durable_and_when(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal with its folder when it begins and ends, a torn tail when it is cut, a part that repair moves, its two folders."""
    synced: list[str] = []
    real = {name: getattr(os, name) for name in ("fsync", "fdatasync")}

    def counted(name: str) -> Any:
        def sync(fd: int) -> None:
            synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name.split("-")[0])
            real[name](fd)

        return sync

    for name in real:
        monkeypatch.setattr(os, name, counted(name))

    def since() -> list[str]:
        found, synced[:] = synced[:], []
        return found

    run = store.record("t1", task_id="d")
    assert since() == [".tmp", "journal"]
    run.event(_event("e1"))
    run.sync()
    assert since() == [".tmp", "t1"]  # the journal, by the name under which it was opened, and its tally
    run.sync()
    assert since() == []
    run.release()
    path = path_of(store.path / "journal", "t1")
    path.write_bytes(path.read_bytes() + b'{"ev')
    taken = Journal.resume(path)
    assert (taken is not None, since()) == (True, ["t1"])
    assert taken is not None
    taken[0].release()
    assert (Journal.resume(path) or [taken[0]])[0].release() is None
    assert since() == [], "nothing was torn"
    store.remove("t1")
    assert since() == ["t1", "journal", ".tmp", "log"]
    with store.record("t2", task_id="d") as run:
        run.event(_event("e1"))
        run.finish()
    assert since()[-1] == "journal"
    store.hot()
    (file,) = (store.path / "hot").glob("*.arrow")
    file.write_bytes(b"")
    since()
    repair(store.path)
    assert since()[-4:] == ["hot"] * 4
    disk.make_folder(store.path / "x" / "y")
    assert since() == ["s", "x"]
    disk.replace_file(store.path / "x" / "f", b"")
    assert since() == [".tmp", "x"]


# -- numbers and settings ----------------------------------------------------------------------------------------


def test_what_a_query_may_not_set(store: Store) -> None:
    store.add(_trace())
    store.sql("select 1")
    asked = store._query
    assert asked is not None
    wanted = {"autoinstall_known_extensions": False, "autoload_known_extensions": False, "enable_external_access": False}
    for connection in (asked._connection, asked._names):
        for name, value in (wanted | {"lock_configuration": True, "parquet_metadata_cache": True}).items():
            assert connection.execute(f"select current_setting('{name}')").fetchall() == [(value,)], name
    columns = store.sql("select * from events").columns
    assert columns[:3] == ["trace_id", "n", "id"]
    assert {"ints", "exact"}.isdisjoint(columns)


def test_numbers_that_decide_how_a_store_behaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "s")
    assert store._flusher._interval_s == 0.05
    asked: list[float] = []
    monkeypatch.setattr(compaction, "compact", lambda log, lake, *, grace_s: asked.append(grace_s))
    store.compact()
    assert asked == [600.0]
    assert (parts.GROUP_ROWS, parts._GROUP_TEXT, lake._OPEN_FILES, opening.VERSION, opening._TAIL) == (4096, 1 << 20, 256, 2, 65536)
    assert (tmp_path / "s" / "counterpoint.json").read_bytes() == b'{"counterpoint_store":2}\n'


def test_the_age_of_strays_and_the_grace_of_the_dead_to_the_second(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add(_trace())
    shard = next(store.path.glob("lake/*/*"))
    monkeypatch.setattr(compaction, "time", SimpleNamespace(time=lambda: 10_000.0))
    for name, at in (("young", 6400.0), ("old", 6399.5)):
        (shard / f"{name}.events.parquet").write_bytes(b"")
        os.utime(shard / f"{name}.events.parquet", (at, at))
    assert store.compact(grace_s=0).deleted == 1
    assert (shard / "young.events.parquet").exists()
    store._log.state.dead = {"day=1/shard=1/x": 9400.0, "day=1/shard=1/y": 9401.0}
    assert compaction._delete_dead(store._log, store._lake, 600.0) == 0
    assert list(store._log.state.dead) == ["day=1/shard=1/y"]


def test_names_that_are_compared_with_one_that_is_not_there(store: Store) -> None:
    many = [f"xy{i:08d}" for i in range(999)]
    assert "did you mean 'abcde'" in str(store._not_found("abcdf", [*many, "zzzzzz", "abcde"]))
    assert "did you mean 'zbcde'" in str(store._not_found("abcde", [*many, "zbcde"]))
    assert "did you mean" not in str(store._not_found("abcde", [*many, "x", "zbcde"]))
    alike = [f"ab{i:08d}" for i in range(999)]
    assert "did you mean 'abcde'" in str(store._not_found("abcdf", [*alike, "abcde"]))
    assert "did you mean" not in str(store._not_found("abcdf", [*alike, "abzzzzzzzz", "abcde"]))
    long = [f"0198{i:04d}-7000-8000-000000000000" for i in range(9)]
    assert str(store._not_found("01989999", long)).count("7000") == 5, "the few that begin most like it, whole"
    assert str(store._not_found("zzz", long)).count("7000") == 5, "not all where none is like it"


def test_a_long_last_commit_is_looked_at_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b'head\n{"sum":1}\n' + b"x" * 60_000 + b'\n{"sum":2}\n')
    assert opening._is_settled(tmp_path / "j")


def test_what_is_set_aside_lies_in_a_folder_of_its_time(store: Store) -> None:
    (store.path / "counterpoint.json").write_bytes(b"{")
    aside = Path(repair(store.path).aside or "")
    assert aside.parent == store.path / "set-aside"
    when = datetime.strptime(aside.name, "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)
    assert abs(time.time() - when.timestamp()) < 3600
    assert (aside / "counterpoint.json").read_bytes() == b"{"
