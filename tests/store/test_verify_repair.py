"""`verify` finds what is not as it was written, `repair` recovers what is readable and deletes nothing."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.store import Store
from counterpoint.store.repair import repair
from counterpoint.store.verify import verify
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event, Trace


def _trace(i: int, seed: int = 0) -> Trace:
    return synthetic_trace(2, 4, "swarm", seed, trace_id=f"t{i}", contents=i % 2 == 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every kind of file: commits, a checkpoint, parts with and without texts, an open journal, a hot file."""
    folder = tmp_path_factory.mktemp("made") / "store"
    with Store(folder) as store:
        for i in range(4):
            store.add(_trace(i))
        store._log.checkpoint()
        store.add_many([_trace(4), _trace(5)], "file.json")
        store.add(_trace(1, seed=7))
        store.remove("t0")
        with store.record("running", task_id="demo", meta={"k": 1}) as run:
            for i in range(3):
                run.event(Event(id=f"e{i}", t=i, type="message", agent="a", tokens_in=i))
                run.sync()
        store.hot()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


EXPECTED = {f"t{i}": _trace(i, seed=7 if i == 1 else 0) for i in (1, 2, 3, 4, 5)}


def _content(folder: Path) -> dict[str, Trace]:
    with Store(folder) as store:
        return {name: store.get(name) for name in store.ids()}


def _all_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def _bytes_of(folder: Path) -> set[bytes]:
    return {p.read_bytes() for p in _all_files(folder)}


def _open_files() -> list[str]:
    """What this process has open, where it can be listed."""
    return sorted(os.readlink(p) for p in Path("/proc/self/fd").glob("*") if p.is_symlink())


def test_a_whole_store_has_no_faults(folder: Path) -> None:
    before = _bytes_of(folder)
    report = verify(folder)
    assert report.faults == []
    assert (report.traces, report.strays) == (5, 0)
    with Store(folder, read_only=True) as store:
        kept = [*(folder / "log").iterdir(), *(store.path / "journal").iterdir(), *(folder / "hot").glob("*.arrow")]
        kept += [p for kind in ("traces", "events", "edges", "contents") for p in store.files(kind)]
    assert report.files == len(kept) + 1, "the head"
    assert report.bytes == sum(p.stat().st_size for p in [*kept, folder / "head"])
    assert _bytes_of(folder) == before
    done = repair(folder)
    assert (done.done, done.restored, done.lost, done.aside) == ([], [], [], None)
    assert _bytes_of(folder) == before


def test_one_changed_bit_in_any_file_is_never_silent(folder: Path) -> None:
    """Whatever is changed: everything that was stored is read as it was, or there is an error that names a file."""
    rng = random.Random(11)
    with Store(folder) as store:
        dead = list(store._log.state.dead)  # replaced, and read by nobody
    files = [p for p in _all_files(folder) if not any(name in os.fspath(p) for name in dead)]
    assert dead
    query = "select trace_id, tokens, team_reward, (select count(*) from events), (select count(*) from edges) from traces order by 1"
    with Store(folder) as store:
        told = (store.sql(query).rows, [(s.id, s.tokens, s.events) for s in store.rows()], store.get("running"))
    silent = []
    for file in files:
        data = file.read_bytes()
        place, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        file.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
        is_found = False
        try:
            is_found = bool(verify(folder).faults)
            with Store(folder, read_only=True) as store:
                rows = [(s.id, s.tokens, s.events) for s in store.rows()]
                read = ({name: store.get(name) for name in store.ids()}, store.get("running"))
                hot = store.hot()
                assert len(hot.batch(hot.ids).events) > 0
                again = (store.sql(query).rows, rows, read[1])
            if (read[0], again) != (EXPECTED, told):
                silent.append((file.name, place, bit))
        except CounterpointError as error:
            is_found = os.fspath(folder) in str(error)
        if not is_found:
            silent.append((file.name, place, bit, "verify"))
        file.write_bytes(data)
    assert silent == []


def _delete(pattern: str) -> Callable[[Path], None]:
    def work(folder: Path) -> None:
        for file in folder.glob(pattern):
            file.unlink()

    return work


def _newest_commit(folder: Path) -> None:
    sorted(folder.glob("log/*.json"))[-1].unlink()


def _second_last_commit(folder: Path) -> None:
    path = sorted(folder.glob("log/*.json"))[-2]
    path.write_bytes(path.read_bytes().replace(b"t", b"T", 1))


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (_newest_commit, "a commit of the store's log is missing"),
        (_second_last_commit, "the store's log is damaged"),
        (_delete("log/*"), "a commit of the store's log is missing"),
        (_delete("head"), "the head of the store's log is missing"),
        (lambda folder: (folder / "head").write_bytes(b"x"), "the head of the store's log is damaged"),
        (_delete("counterpoint.json"), "the store's version file is missing"),
        (lambda folder: (folder / "counterpoint.json").write_bytes(b"{}"), "the store's version file is damaged"),
        (lambda folder: (_delete("log/*")(folder), _delete("head")(folder)), "the head of the store's log is missing"),
    ],
    ids=["newest", "middle", "all commits", "head", "head's bytes", "mark", "mark's bytes", "log and head"],
)
def test_a_log_that_lost_something_is_noticed_and_rebuilt(folder: Path, damage: Callable[[Path], None], what: str) -> None:
    damage(folder)
    with pytest.raises(InputError, match=what) as caught:
        Store(folder)
    assert "store repair" in (caught.value.fix or "")
    done = repair(folder)
    assert done.done
    assert done.lost == []
    content = _content(folder)
    content.pop("t0", None)  # that it was removed stood in the log alone
    assert content == EXPECTED
    assert verify(folder).faults == []
    with Store(folder) as store:
        assert store.add(_trace(9)) == "added"
        assert store.add(_trace(4), "file.json") == "unchanged"
        assert {s.id: s.source for s in store.rows()}["t4"] == "file.json"
        assert len(store.get("running").events) == 3
    assert repair(folder).done == []


def test_a_damaged_commit_is_named_in_what_was_done(folder: Path) -> None:
    newest = sorted((folder / "log").glob("*.json"))[-1]
    data = newest.read_bytes()
    newest.write_bytes(data[:9] + b"~" + data[10:])
    told = repair(folder).done
    assert any(line.startswith(f"{newest.name} of the log was damaged: ") for line in told), told


def test_a_trace_that_was_removed_stays_so_where_the_log_still_says_it(folder: Path) -> None:
    _second_last_commit(folder)  # an update; the removal is the commit after it
    assert "t0" not in repair(folder).restored
    assert "t0" not in _content(folder)


def test_a_restored_row_is_the_row_that_was(folder: Path) -> None:
    with Store(folder) as store:
        before = dict(store._log.state.rows)
    _delete("log/*")(folder)
    repair(folder)
    with Store(folder) as store:
        after = store._log.state.rows
        for name, row in before.items():
            if name != "t1":  # of one that was replaced, when that was stands in the log alone
                assert abs(after[name].added - row.added) < 1e-5
            for field in row.__struct_fields__:
                if field != "added":
                    assert getattr(after[name], field) == getattr(row, field), field


@pytest.mark.parametrize("kind", ["traces", "events", "edges", "contents"])
def test_a_damaged_part_loses_what_is_broken_and_keeps_the_rest(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "store"
    traces = [synthetic_trace(2, 1800, "swarm", i, trace_id=f"t{i}", contents=True) for i in range(4)]
    with Store(folder) as store:
        store.add_many(traces)
        store.add(_trace(9))
        (part,) = (p for p in store._log.state.parts.values() if p.traces == 4)
    file = folder / "lake" / f"{part.name}.{kind}.parquet"
    data = bytearray(file.read_bytes())
    data[part.sums[kind][0][0] // 2] ^= 4
    file.write_bytes(data)
    (fault,) = verify(folder).faults
    assert fault.file == os.fspath(file)
    assert fault.traces == ["t0", "t1", "t2", "t3"]
    done = repair(folder)
    content = _content(folder)
    kept = {t.trace_id: t for t in traces if t.trace_id in content}
    assert {n: t for n, t in content.items() if n != "t9"} == kept
    assert sorted(done.lost) == sorted({"t0", "t1", "t2", "t3"} - kept.keys())
    if kind != "traces":  # its one row group holds all heads
        assert kept
        assert done.lost
    assert content["t9"] == _trace(9)
    assert done.aside is not None
    assert bytes(data) in _bytes_of(Path(done.aside))
    assert verify(folder).faults == []


def test_a_missing_file_of_the_lake_is_a_fault(folder: Path) -> None:
    with Store(folder) as store:
        file = store.files("edges")[0]
    file.unlink()
    faults = verify(folder).faults
    assert [f.file for f in faults] == [os.fspath(file)]
    lost = repair(folder).lost
    assert lost == [name for name in EXPECTED if name not in _content(folder)]


def test_a_damaged_journal_is_cut_where_it_still_holds(folder: Path) -> None:
    (path,) = folder.glob("journal/*.jsonl")
    whole = path.read_bytes()
    place = whole.index(b'"e2"')
    path.write_bytes(whole[:place] + b"!" + whole[place + 1 :])
    assert [f.file for f in verify(folder).faults] == [os.fspath(path)]
    with Store(folder) as store:
        assert store.open_ids() == []
        assert list(store.damaged) == [path]
        assert len(store.rows()) == 5
        assert store.find("running") == "running"
    done = repair(folder)
    assert "bytes are kept" in done.done[0]
    with Store(folder) as store:
        assert [e.id for e in store.get("running").events] == ["e0", "e1"]
        with store.resume("running") as run:
            run.finish()
        assert store.get("running").task_id == "demo"
    assert done.aside is not None
    assert any(b"!" in data for data in _bytes_of(Path(done.aside)))


def test_a_journal_that_somebody_writes_is_left_alone(folder: Path) -> None:
    (path,) = folder.glob("journal/*.jsonl")
    with Store(folder) as store, store.resume("running"):
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b'"e1"', b'"eX"', 1))
        assert "it was left alone" in repair(folder).done[0]
        assert path.read_bytes() == whole.replace(b'"e1"', b'"eX"', 1)


def test_a_journal_of_which_nothing_is_left_is_set_aside(folder: Path) -> None:
    (path,) = folder.glob("journal/*.jsonl")
    path.write_bytes(path.read_bytes().replace(b"demo", b"dEmo", 1))
    done = repair(folder)
    assert done.lost == [path.name]
    assert not path.exists()
    assert verify(folder).faults == []


def test_repair_works_beside_a_writer(folder: Path) -> None:
    """Who has the store open goes on, and finds what the repair has made."""
    with Store(folder) as store:
        assert len(store) == 5
        _newest_commit(folder)
        repair(folder)
        assert store.add(_trace(8)) == "added"
        assert set(store.ids()) - {"t0"} == {*EXPECTED, "t8"}
    assert verify(folder).faults == []


def test_no_store_is_not_repaired(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        repair(tmp_path / "nowhere")
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="not a store"):
        repair(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_newer_store_is_not_repaired(folder: Path) -> None:
    (folder / "counterpoint.json").write_text('{"counterpoint_store":9}')
    with pytest.raises(InputError, match="newer"):
        repair(folder)


def test_a_store_of_the_first_form_gets_sums_and_a_head(folder: Path) -> None:
    """As an older Counterpoint left it: no head, and nothing of the log ends with a sum."""
    for path in (folder / "log").iterdir():
        path.write_bytes(path.read_bytes()[:-19])
    (folder / "head").unlink()
    (folder / "counterpoint.json").write_text('{"counterpoint_store":1}')
    before = _bytes_of(folder)
    with Store(folder, read_only=True) as store:
        assert {name: store.get(name) for name in store.ids()} == EXPECTED
    assert _bytes_of(folder) == before
    files = _open_files()
    assert _content(folder) == EXPECTED
    assert _open_files() == files
    assert (folder / "counterpoint.json").read_bytes() == b'{"counterpoint_store":2}\n'
    assert verify(folder).faults == []
    with Store(folder) as store:
        store.add(_trace(6))
    assert len(_content(folder)) == 6


def test_purge_leaves_no_trace_of_what_was_removed(folder: Path) -> None:
    marker = Trace(trace_id="zebra-9", task_id="quagga", events=[Event(id="e", t=0, type="message", agent="okapi", content_ref="r1")])
    with Store(folder) as store:
        store.add_many([_trace(6), marker])
        assert store.hot().words["agent"]
        assert any(b"quagga" in data for data in _bytes_of(folder))
        store.remove("zebra-9")
        store.purge()
        assert "t6" in store.ids()
        for word in (b"zebra-9", b"quagga", b"okapi"):
            assert not [p for p in _all_files(folder) if word in p.read_bytes()], word
        assert store.get("t6") == _trace(6)
        assert "okapi" not in store.hot().words["agent"]
    assert verify(folder).faults == []
