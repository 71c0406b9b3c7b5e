"""Lists, questions, verify and the store itself, piece by piece."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.store import Store
from counterpoint.store.handles import short_ids
from counterpoint.store.journal import path_of
from counterpoint.store.lake import MissingFile
from counterpoint.store.log import Row, Span
from counterpoint.store.parts import part_path
from counterpoint.store.query import Result
from counterpoint.store.summary import Day, Summary
from counterpoint.store.verify import verify
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event, Trace


def _event(name: str, **fields: Any) -> Event:
    return Event(id=name, **({"t": 0, "type": "message", "agent": "a"} | fields))


def _trace(name: str = "t1", seed: int = 0) -> Trace:
    return synthetic_trace(2, 4, "swarm", seed, trace_id=name)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s", flush_ms=3_600_000)


# -- lists -------------------------------------------------------------------------------------------------------


def test_a_line_about_a_trace() -> None:
    row = Row(
        id="t", task="d", system="s", topology="swarm", events=Span(0, 0, 3), edges=Span(0, 0, 2), head=0, agents=4, tokens=5,
        wall_clock_s=6, rewards={"team": 7, "x": 1}, costs={"cost_usd": 8}, problems=9, digest="", source="f", added=10.0, is_steered=True,
        title="What was asked", project="shop", models=("m", "n"), started=2.0, failures=3, unpriced={"n": 4, "": 1},
    )  # fmt: skip
    assert Summary.of_row(row) == Summary(
        id="t", task_id="d", system="s", topology="swarm", events=3, edges=2, agents=4, tokens=5, wall_clock_s=6, team_reward=7,
        problems=9, source="f", added=10.0, is_open=False, cost_usd=8, is_steered=True,
        title="What was asked", project="shop", models=("m", "n"), started=2.0, errors=3, unpriced={"n": 4, "": 1},
    )  # fmt: skip
    counted = Row(id="t", task="d", events=Span(0, 0, 0), edges=Span(0, 0, 0), head=0, agents=0, digest="", added=1.0, cost_usd=0.0, costs={"cost_usd": 8})
    line = Summary.of_row(row)
    assert (line.model, line.date, line.unpriced_tokens, Summary.of_row(counted).date) == ("m, n", 2.0, 5, 1.0)
    assert (Summary.of_row(counted).cost_usd, Summary.of_row(counted).team_reward) == (0.0, None)


def test_a_line_about_an_open_trace(store: Store) -> None:
    with store.record("t1", task_id="d", system="s", topology="swarm", meta={"k": 1, "title": "What was asked", "cwd": "/a/shop"}) as run:
        run.event(_event("e1", tokens_in=3, cost_usd=0.5, error="no"))
        run.event(_event("e2", t=4, dur=1, agent="b"))
        run.edge("e1", "e2", "causal")
        run.sync()
        (line,) = store.rows()
        at = path_of(store.path / "journal", "t1").stat().st_mtime
        assert (line.id, line.task_id, line.system, line.topology, line.events, line.edges) == ("t1", "d", "s", "swarm", 2, 1)
        assert (line.agents, line.tokens, line.wall_clock_s, line.cost_usd) == (2, 3, 5, 0.5)
        assert (line.team_reward, line.problems, line.source, line.added, line.is_open, line.is_steered) == (None, 0, None, at, True, False)
        assert (line.title, line.project, line.errors) == ("What was asked", "shop", 1)
        run.event(_event("e3", t=5, type="human_intervention", extra={"order": {"id": "o1"}}))
        run.sync()
        assert store.rows()[0].is_steered
        assert store.get("t1").events[2].extra == {"order": {"id": "o1"}}


def test_a_store_in_numbers(store: Store) -> None:
    store.add_many([_trace("a"), _trace("b")])
    store.add(_trace("c"))
    store.remove("b")
    n = len(_trace("a").events)
    store.record("open", task_id="d").release()
    state = store._log.refresh()
    state.rows["c"] = Row(**{f: getattr(state.rows["c"], f) for f in Row.__struct_fields__} | {"added": 86400.0 * 2 - 1})
    told = store.info()
    today = time.strftime("%Y-%m-%d", time.gmtime(state.rows["a"].added))
    assert told.days == [Day(day="1970-01-02", traces=1, events=len(_trace("c").events)), Day(day=today, traces=1, events=n)]
    assert (told.traces, told.open, told.events, told.parts, told.dead_traces) == (2, 1, n + len(_trace("c").events), 2, 1)
    assert (told.form, told.commit, told.path) == (2, 3, str(store.path))
    sizes = {p: sum(f.stat().st_size for f in (store.path / p).rglob("*") if f.is_file()) for p in ("lake", "log", "journal")}
    assert told.bytes == sizes
    for place in ("hot", "control", "set-aside"):
        (store.path / place / "in").mkdir(parents=True, exist_ok=True)
        (store.path / place / "in" / "f").write_bytes(b"123")
    assert store.info().bytes == sizes | {"hot": 3, "control": 3, "set-aside": 3}


# -- the store ---------------------------------------------------------------------------------------------------


def test_versions_and_the_latest(store: Store) -> None:
    store.add_many([_trace("a"), _trace("b"), _trace("c")])
    first = store.version("a")
    assert store.version("x") is None
    store.add(_trace("a", seed=1))
    assert first != store.version("a")
    assert [(v, s.id) for v, s in store.latest(2)] == [(store.version("a"), "a"), (store.version("c"), "c")]
    assert len(store.latest(9)) == 3
    assert ("a" in store, "x" in store, len(store)) == (True, False, 3)
    assert repr(store).endswith(": 3 traces>")
    with store.record("r", task_id="d") as run:
        begun = store.version("r")
        run.event(_event("e1"))
        run.sync()
        assert begun is not None
        assert begun.startswith("open-")
        assert store.version("r") != begun


def test_finding_among_many_and_drawing_among_some(store: Store) -> None:
    store.add_many([_trace(f"run-{i}") for i in range(7)])
    with pytest.raises(InputError, match=r"7 traces have ids that begin with 'run-': run-0, run-1, run-2, run-3, run-4 and 2 more"):
        store.find("run-")
    store.remove("run-6")
    store.remove("run-5")
    with pytest.raises(InputError, match=r"5 traces have ids .*: run-0, run-1, run-2, run-3, run-4; give") as caught:
        store.find("run")
    assert "more " not in caught.value.what
    rng = np.random.default_rng(0)
    assert sorted(store.sample(2, rng, ["t"], among=["run-1", "run-3"]).ids) == ["run-1", "run-3"]
    assert store.sample(1, rng, ["t"], edges=True, among=["run-1"]).n_edges == len(_trace("run-1").edges)
    assert store.sample(1, rng, ["t"]).edges is None
    with pytest.raises(NotFound, match="did you mean 'run-1'"):
        store.batch(["rum-1"])
    with pytest.raises(InputError, match="no column"):
        store.batch(["run-1"], columns=["ints"])
    with pytest.raises(NotFound, match="no trace 'nobody'"):
        store.resume("nobody")


def test_a_damaged_journal_hides_no_other(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.record(name, task_id="d").release()
    bad = path_of(store.path / "journal", "b")
    bad.write_bytes(bad.read_bytes().replace(b'"d"', b'"x"'))
    assert store.open_ids() == ["a", "c"]
    assert list(store.damaged) == [bad]
    store.remove("b")
    assert store.open_ids() == ["a", "c"]
    assert store.damaged == {}


def test_orders_to_an_earlier_trace_of_the_name_are_gone(store: Store) -> None:
    orders = path_of(store.path / "control", "t1")
    orders.parent.mkdir()
    orders.write_bytes(b"stop")
    store.record("t1", task_id="d", meta={"k": 1}).release()
    assert not orders.exists()
    assert store.get("t1").meta == {"k": 1, "unfinished": True}


def test_purging_throws_the_hot_file_away(store: Store) -> None:
    store.add(_trace())
    before = store.hot()
    store.purge()
    assert list((store.path / "hot").iterdir()) == []
    assert store.hot() is not before


# -- questions ---------------------------------------------------------------------------------------------------


def test_an_answer_to_look_at() -> None:
    table = pa.table({"x": [Decimal("2"), Decimal("2.5"), None], "y": [1.5, float("nan"), None], "z": ["a", "b", "c"]})
    answer = Result(table)
    assert answer.rows == [(2, 1.5, "a"), (2.5, None, "b"), (None, None, "c")]
    assert isinstance(answer.rows[0][0], int)
    assert (answer.columns, answer.row_count(), len(answer), list(answer.table_rows())) == (["x", "y", "z"], 3, 3, answer.rows)
    assert (answer.caption(), answer.is_cut, repr(answer)) == ("3 rows", False, "<Result of 3 rows: x, y, z>")
    assert Result(table, is_cut=True).caption() == "3 rows, cut by a limit"
    assert "2.5" in answer._repr_html_()
    assert answer.to_arrow() is table


def test_which_files_a_query_reads(store: Store) -> None:
    store.add(_trace())
    store.sql("select 1")
    asked = store._query
    assert asked is not None
    for query, kinds in (
        ("select * from traces", ["traces"]),
        ("select * from REWARDS", ["events", "traces"]),
        ("select * from costs", ["traces"]),
        ("select * from edges, events", ["edges", "events"]),
        ("select 1", []),
        ("with x as (select * from edges) select * from x", ["edges"]),
        ("selec", ["edges", "events", "traces"]),
    ):
        assert asked._kinds(query) == kinds, query
    store.sql("select 1")
    assert store._query is asked
    store.add(_trace("t2"))
    store.sql("select 1")
    assert store._query is not asked


def test_only_what_a_query_reads_is_compared(store: Store) -> None:
    store.add(_trace())
    (part,) = store._log.state.parts
    path = part_path(store.path / "lake", part, "edges")
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    assert store.sql("select count(*) from traces").rows == [(1,)]
    with pytest.raises(InputError, match="a file of the lake is damaged"):
        store.sql("select count(*) from edges")
    path.unlink()
    with pytest.raises(InputError, match="a file of the lake is missing"):
        Store(store.path).sql("select count(*) from edges")


def test_a_file_that_went_while_a_query_ran_is_gone(store: Store) -> None:
    store.add(_trace())
    store.sql("select 1")
    asked = store._query
    assert asked is not None
    assert len(asked._files) == 3
    error = duckdb.IOException(f"cannot open {asked._files[0]}")
    asked._look_for_files(error)
    Path(asked._files[0]).unlink()
    asked._look_for_files(duckdb.IOException("cannot open something else"))
    with pytest.raises(MissingFile):
        asked._look_for_files(error)


def test_where_a_wrong_query_is_wrong(store: Store) -> None:
    with pytest.raises(InputError) as caught:
        store.sql("select 1,\n froom traces x y")
    assert caught.value.where == "LINE 2:  froom traces x y"
    assert "\n" not in caught.value.what
    with pytest.raises(Refused, match="EXPLAIN ANALYZE"):
        store.sql("explain ANALYZE select 1")
    assert len(store.sql("explain select 1")) > 0
    cut = store.sql("select * from range(3)", limit=3)
    assert (cut.is_cut, len(cut)) == (False, 3)
    assert store.sql("select * from range(3)", limit=2).is_cut
    assert store.sql("select ? + ?", [1, 2]).rows == [(3,)]


# -- verify ------------------------------------------------------------------------------------------------------


def test_strays_and_what_a_fault_says(store: Store) -> None:
    store.add(_trace("a"))
    store.add_many([_trace("b"), _trace("c")])
    store.compact()  # the old ones are dead, and known
    shard = next(store.path.glob("lake/*/*"))
    assert verify(store.path).strays == 0
    (shard / "x.events.parquet").write_bytes(b"")
    assert verify(store.path).strays == 1
    (part,) = store._log.state.parts
    path = part_path(store.path / "lake", part, "edges")
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    (fault,) = verify(store.path).faults
    assert (fault.file, sorted(fault.traces)) == (str(path), ["a", "b", "c"])
    assert fault.what == "a file of the lake is damaged (row group 0 has changed since it was written)"
    path.unlink()
    report = verify(store.path)
    assert ([f.what for f in report.faults], report.traces) == (["a file of the lake is missing"], 3)
    newest = sorted((store.path / "log").glob("*.json"))[-1]
    newest.unlink()
    report = verify(store.path)
    assert [f.file for f in report.faults] == [str(newest)]
    assert (report.traces, report.strays) == (0, 0)


def test_short_names_open_what_they_stand_for(store: Store) -> None:
    ids = ["team", "0a7b1c2d-aaaa-bbbb-cccc-000000000001", "runs/of/a/long/name/one", "runs/of/a/long/name/two", "9f" * 14 + "a", "9f" * 14 + "b"]
    store.add_many([_trace(name) for name in ids])
    short = short_ids(ids)
    assert (short["team"], short[ids[1]]) == ("team", "0a7b1c2d")
    assert [store.find(short[name]) for name in ids] == ids
    assert max(map(len, short.values())) == 8
    with pytest.raises(NotFound):
        store.find("0123456")
