"""Compaction: fewer files, the same traces, and nobody is disturbed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from counterpoint.store import Store, compaction, disk
from counterpoint.store.log import Part, State
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Trace


def _trace(i: int, seed: int = 0) -> Trace:
    return synthetic_trace(2, 4, "swarm", seed, trace_id=f"t{i}", contents=i % 2 == 0)


def _parts(folder: Path) -> int:
    return len(list(folder.glob("lake/*/*/*.events.parquet")))


def test_small_parts_become_one_and_dead_rows_go(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for i in range(10):
        store.add(_trace(i))
    store.add(_trace(3, seed=1))
    store.remove("t4")
    report = store.compact(grace_s=0)
    assert (report.merged, report.written) == (9, 1)
    assert _parts(tmp_path) == 1
    expected = {f"t{i}": _trace(i, seed=int(i == 3)) for i in range(10) if i != 4}
    assert {name: store.get(name) for name in store.ids()} == expected
    assert store.sql("select count(*) from events").rows == [(sum(len(t.events) for t in expected.values()),)]
    assert store.compact(grace_s=0).merged == 0
    assert Store(tmp_path).get("t3") == expected["t3"]


def test_parts_are_merged_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_LARGE_TRACES", 10)
    monkeypatch.setattr(compaction, "_LARGE_EVENTS", 100)

    def grouped(*sizes: tuple[int, int]) -> list[list[tuple[int, int]]]:
        parts = [Part(name=f"p{k}", day="1", traces=t, events=e, bytes=0) for k, (t, e) in enumerate(sizes)]
        return [[(p.traces, p.events) for p in group] for group in compaction._groups(parts)]

    assert grouped((7, 1), (4, 1), (6, 1)) == [[(4, 1), (6, 1)], [(7, 1)]]
    assert grouped((1, 60), (2, 40), (3, 1), (4, 99)) == [[(1, 60), (2, 40)], [(3, 1), (4, 99)]]
    assert grouped((1, 60), (1, 41), (1, 59)) == [[(1, 60)], [(1, 41), (1, 59)]]
    assert grouped() == []


def test_what_is_merged_along_the_way() -> None:
    """32 parts of a day below 16 traces, or 16 below 128; a part is large from 1,024 traces or two million events on."""

    def merged(*groups: tuple[int, int], day: str = "1", events: int = 1) -> list[int]:
        sizes = [traces for many, traces in groups for _ in range(many)]
        parts = [Part(name=f"p{k}", day=f"{day}{k % len(day)}", traces=t, events=events, bytes=0) for k, t in enumerate(sizes)]
        state = State()
        state.parts = {p.name: p for p in parts}
        return [len(found) for found in compaction._many(state)]

    assert merged((31, 15)) == [31]  # as parts below 128
    assert merged((32, 15)) == [32, 32]
    assert merged((31, 15), (9, 16)) == [40]
    assert merged((15, 127), (9, 128)) == []
    assert merged((16, 127)) == [16]
    assert merged((16, 127), events=2_000_000) == []
    assert merged((16, 127), events=1_999_999) == [16]
    assert merged((30, 15), day="ab") == []
    large = Part(name="p", day="1", traces=1023, events=1_999_999, bytes=0)
    assert [compaction._is_large(replace(large, **more)) for more in ({}, {"traces": 1024}, {"events": 2_000_000})] == [False, True, True]


def test_a_reader_with_the_old_manifest_goes_on_reading(tmp_path: Path) -> None:
    writer, reader = Store(tmp_path), Store(tmp_path)
    for i in range(4):
        writer.add(_trace(i))
    assert len(reader) == 4
    writer.compact(grace_s=600)
    assert _parts(tmp_path) == 5
    assert [reader.get(f"t{i}") for i in range(4)] == [_trace(i) for i in range(4)]
    writer.compact(grace_s=0)
    assert _parts(tmp_path) == 1
    assert [reader.get(f"t{i}") for i in range(4)] == [_trace(i) for i in range(4)]


def test_a_file_taken_away_between_look_and_read_is_looked_for_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for i in range(3):
        store.add(_trace(i))
    reader = Store(tmp_path)
    state = reader._log.refresh()
    store.compact(grace_s=0)
    looked = []
    real = reader._log.refresh

    def stale() -> object:
        looked.append(state.number)
        return state if len(looked) == 1 else real()

    reader._log.refresh = stale  # type: ignore[method-assign, assignment]
    reader._log.state = state
    assert reader.get("t1") == _trace(1)
    assert len(looked) > 1


def test_many_small_additions_are_merged_along_the_way(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for i in range(70):
        store.add(_trace(i))
    assert len(store._log.state.parts) < 40
    assert store.get("t0") == _trace(0)
    assert len(store.sql("select trace_id from traces").rows) == 70


def test_an_update_during_compaction_wins(tmp_path: Path) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    for i in range(4):
        store.add(_trace(i))
    lake_unit = store._lake.unit
    once = threading.Event()

    def unit(row: object) -> object:
        if not once.is_set():
            once.set()
            assert other.add(_trace(2, seed=9)) == "updated"
            other.remove("t3")
        return lake_unit(row)  # type: ignore[arg-type]

    store._lake.unit = unit  # type: ignore[method-assign, assignment]
    store.compact(grace_s=0)
    assert store.get("t2") == _trace(2, seed=9)
    assert sorted(store.ids()) == ["t0", "t1", "t2"]
    assert sorted(store.sql("select trace_id from traces").rows) == [("t0",), ("t1",), ("t2",)]


def test_of_two_compactions_one_wins_and_nothing_is_lost(tmp_path: Path) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    for i in range(6):
        store.add(_trace(i))
    other.ids()
    threads = [threading.Thread(target=s.compact, kwargs={"grace_s": 600}) for s in (store, other)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(store.ids()) == 6
    assert all(store.get(f"t{i}") == _trace(i) for i in range(6))


def test_strays_of_killed_writers_are_swept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(_trace(0))
    folder = next(tmp_path.glob("lake/*/*"))
    stray = folder / "0123.events.parquet"
    stray.write_bytes(b"half")
    store.compact(grace_s=0)
    assert stray.exists(), "its writer may be about to commit it"
    os.utime(stray, (0, 0))
    store.compact(grace_s=0)
    assert not stray.exists()
    assert store.get("t0") == _trace(0)


def test_a_merge_whose_files_another_took_away_gives_up_without_a_word(tmp_path: Path) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    for i in range(4):
        store.add(_trace(i))
    lake_unit = store._lake.unit

    def unit(row: object) -> object:
        other.compact(grace_s=0)
        return lake_unit(row)  # type: ignore[arg-type]

    store._lake.unit = unit  # type: ignore[method-assign, assignment]
    assert store.compact(grace_s=0).merged == 0
    assert _parts(tmp_path) == 1
    assert sorted(store.ids()) == ["t0", "t1", "t2", "t3"]


def test_only_one_merges_while_adding(tmp_path: Path) -> None:
    """Who finds that somebody is at it adds and goes on."""
    store = Store(tmp_path)
    fd = os.open(tmp_path / "lake", os.O_RDONLY)
    try:
        assert disk.lock(fd)
        for i in range(40):
            store.add(_trace(i))
        assert len(store._log.state.parts) == 40
    finally:
        os.close(fd)
    store.add(_trace(40))
    assert len(store._log.state.parts) < 10
    assert len(Store(tmp_path).ids()) == 41
