"""Parts, the lake and the hot file, piece by piece."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from counterpoint.errors import InputError, NotFound
from counterpoint.store import Store, hot, lake, parts
from counterpoint.store.hot import Hot
from counterpoint.store.log import Part, Span
from counterpoint.store.parts import part_path
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event, Trace


def _trace(name: str, events: int = 2, **fields: Any) -> Trace:
    made = [Event(id=f"e{i}", t=i, type="message", agent="ab"[i % 2], from_="a" if i else None) for i in range(events)]
    return Trace(trace_id=name, task_id="d", events=made, **fields)


def _only(store: Store) -> Part:
    (part,) = store._log.refresh().parts.values()
    return part


# -- parts -------------------------------------------------------------------------------------------------------


def test_traces_share_a_row_group_up_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "GROUP_ROWS", 10)
    monkeypatch.setattr(parts, "_GROUP_TEXT", 1)
    store = Store(tmp_path)
    made = [_trace(f"t{i}", n, contents={"r": str(i)}, meta={"i": i}) for i, n in enumerate((4, 6, 1, 10, 12, 3))]
    store.add_many(made)
    rows = list(store._log.state.rows.values())
    assert [r.events for r in rows] == [Span(0, 0, 4), Span(0, 4, 6), Span(1, 0, 1), Span(2, 0, 10), Span(3, 0, 12), Span(4, 0, 3)]
    assert [r.edges for r in rows] == [Span(0, 0, 0)] * 6
    assert [r.contents for r in rows] == [Span(i, 0, 1) for i in range(6)]
    assert [r.head for r in rows] == list(range(6))
    part = _only(store)
    assert (part.traces, part.events, part.has_rewards) == (6, 36, False)
    files = {kind: part_path(tmp_path / "lake", part.name, kind) for kind in parts.SCHEMAS}
    assert part.bytes == sum(file.stat().st_size for file in files.values())
    assert {kind: found[-1][0] for kind, found in part.sums.items()} == {kind: f.stat().st_size for kind, f in files.items()}
    assert [store.get(t.trace_id) for t in made] == made
    assert store.batch([t.trace_id for t in reversed(made)]).traces() == made[::-1]
    assert (len(part.name.split("/")), part.name.split("/")[1]) == (3, f"shard={part.name.split('/')[2][0]}")


def test_the_heads_of_many_traces_lie_in_several_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "GROUP_ROWS", 2)
    store = Store(tmp_path)
    made = [_trace(f"t{i}", 1, meta={"i": i}) for i in range(5)]
    store.add_many(made)
    rows = store._log.state.rows
    assert [store._lake._head_place(rows[f"t{i}"]) for i in range(5)] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert [store.get(f"t{i}").meta for i in range(5)] == [{"i": i} for i in range(5)]


def test_the_table_of_traces(tmp_path: Path) -> None:
    events = [Event(id="e", t=0, type="message", agent="a", reward={"r": 1}, tokens_in=3)]
    trace = _trace("t1", system="sim", topology="swarm", rewards={"team": 2, "x": 1}, costs={"tokens": 3}, metrics={"m": 1}, meta={"k": 1})
    trace = replace(trace, events=events)
    store = Store(tmp_path)
    store.add_many([trace, _trace("bare", 1)], "file")
    part = _only(store)
    assert part.has_rewards
    row = store._log.state.rows["t1"]
    read, other = pq.read_table(part_path(tmp_path / "lake", part.name, "traces"), partitioning=None).to_pylist()
    assert abs(read.pop("added").timestamp() - row.added) < 1e-5
    assert read == {
        "trace_id": "t1", "task_id": "d", "system": "sim", "topology": "swarm", "n_events": 1, "n_edges": 0, "n_agents": 1,
        "tokens": 3.0, "wall_clock_s": row.wall_clock_s, "team_reward": 2.0, "errors": 0, "source": "file",
        "rewards": '{"team":2,"x":1}', "costs": '{"tokens":3}', "metrics": '{"m":1}', "meta": '{"k":1}',
    }  # fmt: skip
    assert (other["team_reward"], other["metrics"], other["meta"]) == (None, None, None)
    assert (parts._float(3), parts._float(None), parts._float(10**400)) == (3.0, None, None)


def test_how_columns_are_packed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(synthetic_trace(3, 20, "swarm", trace_id="t1", contents=True))
    part = _only(store)
    found = {}
    for kind in parts.SCHEMAS:
        group = pq.read_metadata(part_path(tmp_path / "lake", part.name, kind)).row_group(0)
        for column in (group.column(i) for i in range(group.num_columns)):
            assert column.compression == "ZSTD"
            assert column.is_stats_set == (column.path_in_schema == "trace_id")
            found[kind, column.path_in_schema] = set(column.encodings)
    packed = {key for key, used in found.items() if "DELTA_BINARY_PACKED" in used}
    assert packed == {("events", "n"), ("edges", "src"), ("edges", "dst"), *(("events", name) for name in parts.COUNTS)}
    assert [key for key, used in found.items() if "DELTA_BYTE_ARRAY" in used] == [("events", "id")]
    coded = {key[1] for key, used in found.items() if key[0] == "events" and "RLE_DICTIONARY" in used}
    assert coded == {"trace_id", "ints", *parts.WORDS}
    assert {"task_id", "rewards", "costs"} <= {key[1] for key, used in found.items() if key[0] == "traces" and "RLE_DICTIONARY" in used}
    assert {key[1] for key, used in found.items() if key[0] in ("edges", "contents") and "RLE_DICTIONARY" in used} == {"trace_id", "type"}


# -- the lake ----------------------------------------------------------------------------------------------------


def test_so_many_files_are_open_and_the_one_used_longest_ago_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    for name in "abc":
        store.add(_trace(name))
    reader = Store(tmp_path)
    monkeypatch.setattr(lake, "_OPEN_FILES", 2)
    part = {row.id: row.part for row in reader._log.state.rows.values()}
    for name, left in (("a", "a"), ("b", "ab"), ("a", "ba"), ("c", "ac"), ("b", "cb")):
        assert reader.get(name) == _trace(name)
        assert list(reader._lake._files) == [(part[n], "events") for n in left]
    reader._lake.forget(part["c"])
    assert list(reader._lake._files) == [(part["b"], "events")]
    assert {key[0] for key in reader._lake._verified} == {part["a"], part["b"]}
    reader._lake.close()
    assert not reader._lake._files


def test_sums_are_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path).add_many([_trace("a"), _trace("b")])
    store = Store(tmp_path)
    compared: list[int] = []
    real = lake.segment_sum

    def counted(file: Any, begin: int, end: int) -> int:
        compared.append(begin)
        return real(file, begin, end)

    monkeypatch.setattr(lake, "segment_sum", counted)
    store.get("a")
    assert len(compared) == 2  # the footer of the events, and their row group
    store.get("b")
    part = _only(store).name
    store._lake.verify(part, "events")
    store._lake.verify(part, "contents")
    assert len(compared) == 2
    store._lake.verify_all([part], ["events", "edges"])
    assert (len(compared), store._lake._whole) == (3, {(part, "events"), (part, "edges")})
    store._lake.verify_all([part], ["events", "edges"])
    store._lake.forget("nobody")
    assert (len(store._lake._whole), len(store._lake._verified)) == (2, 6)
    store._lake.forget(part)
    assert (store._lake._whole, store._lake._verified) == (set(), set())


@pytest.mark.parametrize(("place", "what"), [(10, "row group 0 has"), (-10, "its footer has"), (None, "its footer has")])
def test_what_changed_is_said(tmp_path: Path, place: int | None, what: str) -> None:
    Store(tmp_path).add(_trace("a"))
    store = Store(tmp_path)
    path = part_path(tmp_path / "lake", _only(store).name, "events")
    data = bytearray(path.read_bytes())
    if place is None:
        data += b"x"
    else:
        data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=what) as caught:
        store.get("a")
    assert caught.value.where == os.fspath(path)
    path.unlink()
    with pytest.raises(InputError, match="a file of the lake is missing"):
        Store(tmp_path).get("a")


def test_batches_with_and_without_edges(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = synthetic_trace(3, 8, "swarm", trace_id="x")
    store.add_many([made, _trace("lone")])
    with_edges = store.batch(["lone", "x"], columns=["t"], edges=True)
    assert (with_edges.n_edges, with_edges.edge_offsets.tolist()) == (len(made.edges), [0, 0, len(made.edges)])  # type: ignore[union-attr]
    assert (with_edges.offsets.tolist(), with_edges.is_whole) == ([0, 2, 2 + len(made.events)], False)
    without = store.batch(["x"], columns=["t"])
    assert (without.edges, without.edge_offsets) == (None, None)
    assert store.batch(["lone"], columns=["t"], edges=True).n_edges == 0
    assert store.batch(["lone"]).is_whole


# -- the hot file ------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.add_many([_trace("a", 3, rewards={"team": 1}), _trace("b", 1), _trace("c", 2)])
    return made


def test_the_columns_of_a_hot_batch(store: Store) -> None:
    warm = store.hot()
    assert (warm.number, len(warm), warm.ids) == (store._log.state.number, 3, ["a", "b", "c"])
    assert (warm.lengths.tolist(), warm.offsets.tolist()) == ([3, 1, 2], [0, 3, 4, 6])
    batch = warm.batch(["c", "a"], columns=["from", "agent", "t"])
    assert (batch.columns, len(batch), batch.offsets.tolist()) == (["from_", "agent", "t"], 2, [0, 2, 5])
    assert batch.column("from").tolist() == batch.column("from_").tolist() == [None, "a", None, "a", "a"]
    assert batch.column("agent").tolist() == ["a", "b", "a", "b", "a"]
    assert batch.column("t").tolist() == [0, 1, 0, 1, 2]
    codes, words = batch.codes("from")
    assert ([int(c) for c in codes], list(words)) == ([-1, 0, -1, 0, 0], ["a"])
    assert batch.events.column_names == ["from_", "agent", "t"]
    assert batch.events["t"].to_pylist() == [0, 1, 0, 1, 2]
    assert [(h.trace_id, h.task_id, h.rewards, h.events) for h in batch.heads] == [("c", "d", {}, []), ("a", "d", {"team": 1}, [])]
    assert (batch.is_whole, batch.edges, batch.edge_offsets) == (False, None, None)
    assert np.isnan(warm.batch(["a"]).column("tokens_in")).all()
    assert warm.batch(["a"]).columns == list(hot.COLUMNS)
    assert warm.array("t") is warm.array("t")


def test_wrong_questions_to_a_hot_batch(store: Store) -> None:
    warm = store.hot()
    batch = warm.batch(["a"], columns=["t"])
    with pytest.raises(NotFound, match=r"ask for it: columns=\['agent'"):
        batch.column("agent")
    with pytest.raises(NotFound, match=r"ask for it: columns=\['from_'"):
        batch.column("from")
    with pytest.raises(NotFound, match="did you mean 'agent'"):
        batch.column("agnt")
    with pytest.raises(InputError, match="at least one"):
        warm.batch([])
    rng = np.random.default_rng(0)
    for n in (0, -1, 4):
        with pytest.raises(InputError, match=f"cannot draw {n} traces from 3"):
            warm.sample(n, rng)
    assert sorted(warm.sample(3, rng, ["t"]).ids) == ["a", "b", "c"]
    for n in (0, 1):
        with pytest.raises(InputError, match=f"cannot draw {n} decisions from 0"):
            warm.decisions(n, rng)


def test_decisions_at_the_edges_of_traces(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = [Event(id=f"e{i}", t=i, type="message", agent="a", decision="spawn" if i in (0, 2) else None) for i in range(3)]
    store.add_many([_trace("a", 2), replace(_trace("b"), events=made), replace(_trace("c"), events=made)])
    drawn = store.hot().decisions(4, np.random.default_rng(0))
    assert sorted(drawn) == [("b", 0), ("b", 2), ("c", 0), ("c", 2)]


def test_dead_rows_and_several_row_groups_are_left_out_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "GROUP_ROWS", 5)
    store = Store(tmp_path)
    store.add_many([_trace(f"t{i}", 1 + i) for i in range(5)])
    store.add_many([_trace(f"u{i}", 1 + i) for i in range(3)])
    store.remove("t1")
    warm = store.hot()
    assert sorted(warm.ids) == ["t0", "t2", "t3", "t4", "u0", "u1", "u2"]
    for name in warm.ids:
        assert warm.batch([name]).column("t").tolist() == [e.t for e in store.get(name).events], name


def test_the_hot_file_is_kept_until_something_changes_or_somebody_asks(store: Store) -> None:
    def files() -> dict[str, int]:
        return {p.name: p.stat().st_ino for p in (store.path / "hot").iterdir()}

    store.hot()
    first = files()
    assert sorted(first) == ["000000000001.arrow", "000000000001.key.json"]
    Store(store.path).hot()
    assert files() == first
    (store.path / "hot" / "000000000001.key.json").unlink()
    Store(store.path).hot()
    assert files().keys() == first.keys()
    (store.path / "hot" / "left.over").write_bytes(b"")
    before = store.hot()
    assert store.hot() is before
    assert store.hot(rebuild=True) is not before
    assert files().keys() == first.keys()
    state = store._log.state
    with pytest.raises(InputError, match="does not fit the store"):
        Hot(before.path, 1, list(state.rows.values())[:-1])


def test_every_byte_of_the_hot_file_is_looked_at(store: Store) -> None:
    path = store.hot().path
    hot.verify(path)
    whole, said = path.read_bytes(), set()
    for place in range(8, len(whole), 101):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InputError, match="the hot file is damaged") as caught:
            hot.verify(path)
        said.add((caught.value.why or "").split("column '")[0])
    assert {"", "bytes between its columns have changed since it was written"} <= said
    path.write_bytes(whole)
    key = path.with_suffix(".key.json")
    key.write_bytes(key.read_bytes().replace(b'"whole":', b'"Whole":'))
    with pytest.raises(InputError, match="bytes have changed"):
        hot.verify(path)
