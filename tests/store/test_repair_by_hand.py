"""Repair, piece by piece: what a part says of itself, what the log still tells, and what is said of the rest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from counterpoint.store import Store, parts
from counterpoint.store.log import Commit, Log, Part, Row, Span, State
from counterpoint.store.parts import SCHEMAS, part_path
from counterpoint.store.repair import _Reading, _Repair, part_names, repair, salvage, written_at
from counterpoint.store.verify import verify
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event, Trace


def _trace(i: int, seed: int = 0) -> Trace:
    return synthetic_trace(2, 4, "swarm", seed, trace_id=f"t{i}", contents=i % 2 == 0)


def _no_log(folder: Path) -> None:
    for path in (folder / "log").iterdir():
        path.unlink()


def _aside(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix().split("/", 2)[2] for p in folder.glob("set-aside/**/*") if p.is_file())


# -- a part without the log --------------------------------------------------------------------------------------


def test_a_part_says_of_itself_what_the_log_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "GROUP_ROWS", 8)
    lone = Trace(trace_id="lone", task_id="d", events=[Event(id="e", t=0, type="message", agent="a")], meta={"k": 1}, metrics={"m": 1})
    with Store(tmp_path) as store:
        store.add_many([_trace(0), lone, _trace(1), _trace(2)], "file")
        (part,) = store._log.state.parts.values()
        rows = list(store._log.state.rows.values())
    assert len(part.sums["events"]) > 2
    lake = tmp_path / "lake"
    assert part_names(lake) == [part.name]
    found = salvage(lake, part.name)
    assert (found.part.sums, found.part.bytes, found.part.day) == (part.sums, part.bytes, part.day)
    assert (found.part.name, found.part.traces, found.part.events) == (part.name, part.traces, part.events)
    assert found.lost == {}
    assert found.at == written_at(lake, part.name)
    assert abs(found.at - rows[0].added) < 600
    for read, row in zip(found.rows, rows, strict=True):
        for field in row.__struct_fields__:
            if field != "added":
                assert getattr(read, field) == getattr(row, field), field
        assert abs(read.added - row.added) < 1e-5


def test_a_part_of_the_first_form_has_no_note(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add_many([_trace(0), _trace(1)])
        (part,) = store._log.state.parts.values()
        rows = list(store._log.state.rows.values())
    lake = tmp_path / "lake"
    path = part_path(lake, part.name, "traces")
    assert written_at(lake, part.name) > 1000
    pq.write_table(pq.read_table(path, partitioning=None).replace_schema_metadata(None), path)
    os.utime(path, (1000, 1000))
    found = salvage(lake, part.name)
    assert (found.at, written_at(lake, part.name)) == (1000.0, 1000.0)
    assert [r.digest for r in found.rows] == [r.digest for r in rows]


def test_a_trace_that_is_not_what_was_written_is_not_given_back(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add_many([_trace(0), _trace(1)])
        (part,) = store._log.state.parts.values()
    lake = tmp_path / "lake"
    path = part_path(lake, part.name, "traces")
    table = pq.read_table(path, partitioning=None)
    note = pq.read_metadata(path).metadata[parts.NOTE.encode()]
    other = table.set_column(table.column_names.index("task_id"), SCHEMAS["traces"].field("task_id"), [["other", table["task_id"][1]]])
    pq.write_table(other.replace_schema_metadata({parts.NOTE: note}), path)
    found = salvage(lake, part.name)
    assert [r.id for r in found.rows] == ["t1"]
    assert list(found.lost) == ["t0"]
    assert "the checksum differs" in found.lost["t0"]
    assert (found.part.traces, found.part.events) == (2, len(_trace(1).events))
    _no_log(tmp_path)
    done = repair(tmp_path)
    assert (done.restored, done.lost) == (["t1"], ["t0"])


# -- what is said and set aside ----------------------------------------------------------------------------------


def test_a_part_that_cannot_be_read_is_named_and_set_aside(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add(_trace(0))
        (bad,) = store._log.state.parts
        store.add(_trace(1))
    part_path(tmp_path / "lake", bad, "traces").write_bytes(b"no table")
    _no_log(tmp_path)
    done = repair(tmp_path)
    assert [line for line in done.done if line.startswith(f"part {bad} cannot be read: ")] != []
    assert not [line for line in done.done if line.endswith(": None")]
    assert _aside(tmp_path) == sorted(f"lake/{bad}.{kind}.parquet" for kind in SCHEMAS)
    assert (tmp_path / "lake" / f"{bad}.traces.parquet").exists() is False
    assert done.restored == ["t1"]
    with Store(tmp_path) as store:
        assert store.ids() == ["t1"]


def test_a_damaged_hot_file_is_named_and_set_aside(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add(_trace(0))
        store.hot()
    (file,) = (tmp_path / "hot").glob("*.arrow")
    key = file.with_suffix(".key.json")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = repair(tmp_path)
    (line,) = done.done
    assert line.startswith("the hot file was damaged: ")
    assert "has changed since it was written; it is rebuilt on demand" in line
    assert (done.restored, done.lost) == ([], [])
    assert _aside(tmp_path) == sorted([f"hot/{file.name}", f"hot/{key.name}"])
    assert list((tmp_path / "hot").iterdir()) == []
    assert verify(tmp_path).faults == []


def test_the_bytes_of_a_journal_that_are_kept_are_counted(tmp_path: Path) -> None:
    with Store(tmp_path) as store, store.record("running", task_id="demo") as run:
        for i in range(2):
            run.event(Event(id=f"e{i}", t=i, type="message", agent="a"))
            run.sync()
    (path,) = tmp_path.glob("journal/*.jsonl")
    whole = path.read_bytes()
    good = whole.index(b'{"event":{"id":"e1"')
    path.write_bytes(whole.replace(b'"e1"', b'"eX"'))
    done = repair(tmp_path)
    assert done.done == [f"{path.name} was damaged: {good:,} of {len(whole):,} bytes are kept"]
    assert path.read_bytes() == whole[:good]
    assert _aside(tmp_path) == [f"journal/{path.name}", f"journal/{path.stem}.tally"]
    assert (done.lost, done.restored) == ([], [])


def test_what_is_said_of_mark_and_head(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add(_trace(0))
    (tmp_path / "counterpoint.json").write_bytes(b"{")
    done = repair(tmp_path).done
    assert done[0].startswith("the version file was damaged: ")
    assert "the store's version file" not in done[0]
    assert done[1:] == ["the version file was rewritten"]
    assert _aside(tmp_path) == ["counterpoint.json"]
    (tmp_path / "head").unlink()
    assert repair(tmp_path).done == ["the head of the log was missing"]
    (tmp_path / "head").write_bytes(b"x")
    done = repair(tmp_path)
    assert done.done == ["the head of the log was damaged"]
    assert (done.restored, done.lost) == ([], [])
    assert _aside(tmp_path) == ["counterpoint.json", "head"]
    (tmp_path / "counterpoint.json").write_bytes(b'{"counterpoint_store":0}')
    assert repair(tmp_path).done[0] == "the version file was damaged: the store's version file names an unknown format: 0"
    with Store(tmp_path) as store:
        assert store.ids() == ["t0"]


def test_parts_that_were_merged_live_on_when_the_log_lost_where_they_came_from(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add(_trace(0))
        store.add(_trace(1))
        store.compact()
        store.remove("t1")
    for lost in ((2,), (1, 2)):
        for number in lost:
            (tmp_path / "log" / f"{number:012d}.json").unlink(missing_ok=True)
        repair(tmp_path)
        with Store(tmp_path) as store:
            store.compact(grace_s=-1)
            assert store.get("t0") == _trace(0)
            assert store._log.state.dead == {}


# -- which of two is believed ------------------------------------------------------------------------------------


def test_which_traces_of_an_unknown_part_are_wanted(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add(_trace(0))
        state = store._log.state
        row = state.rows["t0"]
        at = written_at(tmp_path / "lake", row.part)

        class Told:
            drops: dict[str, float] = {}

        def is_wanted(known: State, row: Row, at: float, **drops: float) -> bool:
            Told.drops = drops
            return _Repair(tmp_path)._is_wanted(known, Told, row, at)  # type: ignore[arg-type]

        assert is_wanted(State(), row, 0.0)
        assert is_wanted(State(), row, 5.0, t0=4.0)
        assert not is_wanted(State(), row, 5.0, t0=5.0)
        assert not is_wanted(State(), row, 5.0, t0=6.0)
        assert not is_wanted(state, row, at + 1), "it is that very trace"
        other = _row("t0", "q", digest="other")
        assert is_wanted(state, other, at + 1)
        assert not is_wanted(state, other, at), "not newer"
        assert not is_wanted(state, other, at - 1)
        part_path(tmp_path / "lake", row.part, "traces").unlink()
        assert is_wanted(state, other, at - 1), "of the stored one nothing is left"


# -- the log as far as it can be read ----------------------------------------------------------------------------


def _row(name: str, part: str, digest: str = "d") -> Row:
    return Row(id=name, task="d", events=Span(0, 0, 1), edges=Span(0, 0, 0), head=0, agents=1, digest=digest, added=1.0, part=part)


def _part(name: str, traces: int = 1) -> Part:
    return Part(name=name, day="1", traces=traces, events=traces, bytes=0)


def _log(folder: Path, *commits: dict[str, Any]) -> Log:
    Store(folder).close()
    log = Log(folder / "log", folder / "head")
    for at, fields in enumerate(commits, 1):
        commit = Commit(at=float(at), **fields)
        log.commit(lambda state, commit=commit: commit)  # type: ignore[misc]
    return log


A = {"parts": [_part("A")], "rows": [_row("a", "A")]}
B = {"parts": [_part("B")], "rows": [_row("b", "B")]}
BOTH = {"parts": [_part("C", 2)], "rows": [_row("a", "C"), _row("b", "C")], "replaces": ["A", "B"]}


def _told(reading: _Reading) -> tuple[dict[str, str], dict[str, int]]:
    return {name: row.part for name, row in reading.state.rows.items()}, reading.state.live


def test_a_whole_log_is_read_as_it_is(tmp_path: Path) -> None:
    log = _log(tmp_path, A, B, {"drop": ["a"]})
    reading = _Reading(log)
    assert _told(reading) == ({"b": "B"}, {"B": 1})
    assert (reading.broken, reading.has_hole, reading.state.number) == ({}, False, 3)
    assert (reading.drops, reading.known) == ({"a": 3.0}, {"A", "B"})
    log.checkpoint()
    log.commit(lambda state: Commit(at=9.0, **A))
    reading = _Reading(log)
    assert _told(reading) == ({"b": "B", "a": "A"}, {"B": 1, "A": 1})
    assert (reading.broken, reading.has_hole, reading.state.number) == ({}, False, 4)
    assert (reading.drops, reading.known) == ({}, {"A", "B"})


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_missing_commit_is_a_hole(tmp_path: Path, missing: int) -> None:
    log = _log(tmp_path, A, B, {"drop": ["x"]})
    log.commit_path(missing).unlink()
    reading = _Reading(log)
    assert (reading.has_hole, reading.broken, reading.state.number) == (True, {}, 3)
    assert set(reading.state.rows) == {"a", "b"} - {{1: "a", 2: "b", 3: ""}[missing]}


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    log = _log(tmp_path, A, B)
    log.checkpoint()
    log.commit(lambda state: Commit(at=3.0, drop=["a"]))
    log.checkpoint()
    log.commit(lambda state: Commit(at=4.0, drop=["b"]))
    log.checkpoint_path(3).write_bytes(b"x")
    log.commit_path(4).write_bytes(b"y")
    reading = _Reading(log)
    assert list(reading.broken) == [log.checkpoint_path(3), log.commit_path(4)]
    assert all("are in lake/" in why for why in reading.broken.values())
    assert (reading.has_hole, reading.state.number) == (True, 4)
    assert _told(reading) == ({"b": "B"}, {"B": 1})
    assert reading.known == {"A", "B"}


def test_traces_that_moved_out_of_a_part_that_a_lost_commit_named_are_found(tmp_path: Path) -> None:
    log = _log(tmp_path, A, B, BOTH)
    log.commit_path(2).unlink()
    reading = _Reading(log)
    assert _told(reading) == ({"a": "C", "b": "C"}, {"C": 2})
    assert (set(reading.state.parts), set(reading.state.dead), reading.known) == ({"C"}, {"A"}, {"A", "C"})


def test_a_removal_of_one_of_them_leaves_the_others(tmp_path: Path) -> None:
    log = _log(tmp_path, A, B, BOTH, {"drop": ["b"]})
    log.commit_path(2).unlink()
    reading = _Reading(log)
    assert _told(reading) == ({"a": "C"}, {"C": 1})
    assert set(reading.state.parts) == {"C"}


def test_a_part_that_came_back_is_not_dead(tmp_path: Path) -> None:
    log = _log(tmp_path, A, B, BOTH)
    log.commit_path(1).unlink()
    log.commit_path(2).unlink()
    reading = _Reading(log)
    assert _told(reading) == ({"a": "C", "b": "C"}, {"C": 2})
    assert (set(reading.state.parts), reading.state.dead) == ({"C"}, {})


def test_what_was_removed_before_it_moved_stays_so(tmp_path: Path) -> None:
    log = _log(tmp_path, A, B, {"drop": ["b"]}, {"drop": ["a"]}, BOTH)
    log.commit_path(2).unlink()
    reading = _Reading(log)
    assert _told(reading) == ({}, {})
