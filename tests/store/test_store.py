"""The store as its users meet it."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

import counterpoint
from counterpoint.errors import InputError, InvalidTrace, NotFound, TryAgain
from counterpoint.store import Store, parts
from counterpoint.store.journal import path_of
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Edge, Event, Trace


def _trace(name: str, seed: int = 0) -> Trace:
    return synthetic_trace(3, 12, "swarm", seed, trace_id=name, task_id="demo")


def test_the_api_of_the_design(tmp_path: Path) -> None:
    store = counterpoint.Store(tmp_path / "traces")
    with store.record("t1", task_id="demo", topology="swarm") as run:
        run.event(Event(id="e1", t=0, type="message", agent="a"))
        run.event(Event(id="e2", t=1, type="message", agent="b", tokens_in=7))
        run.edge("e1", "e2", "causal")
        run.sync()
        run.finish(rewards={"team": 1.0})
    trace = store.get("t1")
    assert [e.id for e in trace.events] == ["e1", "e2"]
    assert trace.rewards == {"team": 1.0}
    assert trace.costs == {"tokens": 7, "wall_clock_s": 1, "tool_calls": 0, "messages": 2}
    assert store.ids() == ["t1"]
    assert store.add(replace(trace, trace_id="t2")) == "added"
    assert store.sql("select sum(tokens) from traces").rows == [(14,)]


def test_adding_again_changes_nothing_and_adding_more_updates(tmp_path: Path) -> None:
    store = Store(tmp_path)
    small, grown = _trace("t1"), synthetic_trace(3, 20, "swarm", trace_id="t1", task_id="demo")
    assert store.add(small, "file.json") == "added"
    first = store.rows()[0].added
    assert store.add(small, "file.json") == "unchanged"
    assert len(list(tmp_path.glob("lake/*/*/*.events.parquet"))) == 1
    time.sleep(0.01)
    assert store.add(grown, "file.json") == "updated"
    assert store.get("t1") == grown
    assert store.ids() == ["t1"]
    assert store.rows()[0].added == first
    assert store.sql("select count(*) from events").rows == [(len(grown.events),)]


def test_one_id_from_two_sources_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(_trace("t1"), "a.json")
    assert store.add(_trace("t1"), "b.json") == "unchanged"
    with pytest.raises(InputError, match=r"stored already, from a\.json"):
        store.add(_trace("t1", seed=1), "b.json")
    assert store.get("t1") == _trace("t1")


def test_adding_many_says_what_happened_to_each(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(_trace("a"))
    many = [_trace("a"), _trace("b"), _trace("b"), _trace("b", seed=1), _trace("a", seed=1)]
    assert store.add_many(many) == ["unchanged", "added", "unchanged", "updated", "updated"]
    assert store.get("b") == _trace("b", seed=1)
    assert len(store) == 2
    assert store.add_many([]) == []


def test_what_came_before_a_bad_trace_is_stored(tmp_path: Path) -> None:
    store = Store(tmp_path)
    bad = Trace(trace_id="bad", task_id="d", events=[Event(id="e", t=0, type="message", agent="a")] * 2)
    with pytest.raises(InvalidTrace, match="'e' was used before"):
        store.add_many([_trace("a"), bad, _trace("b")])
    assert store.ids() == ["a"]


E1, E2 = (Event(id=f"e{i}", t=2 - i, type="message", agent="a") for i in (1, 2))


@pytest.mark.parametrize(
    "trace",
    [
        Trace(trace_id="x", task_id="d", events=[]),
        Trace(trace_id="x", task_id="d", events=[E1], edges=[Edge("e1", "e9", "causal")]),
        Trace(trace_id="x", task_id="d", events=[E1], rewards={"team": float("nan")}),
        Trace(trace_id="x", task_id="d", events=[E1], meta={"x": float("inf")}),
        Trace(trace_id="x", task_id="d", events=[E1], meta={"x": (1, 2)}),
        Trace(trace_id="x", task_id="d", events=[E1], contents={"r": "\ud800"}),
        Trace(trace_id="x", task_id="d", events=[replace(E1, t=10**400)]),
        Trace(trace_id="", task_id="d", events=[E1]),
    ],
)
def test_what_cannot_be_kept_exactly_is_refused_and_nothing_is_written(tmp_path: Path, trace: Trace) -> None:
    store = Store(tmp_path)
    with pytest.raises(InvalidTrace):
        store.add(trace)
    assert store.ids() == []
    assert list(tmp_path.glob("lake/**/*.parquet")) == []


def test_errors_that_can_be_kept_are_kept_and_counted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    loop = Trace(trace_id="x", task_id="d", events=[E1, E2], edges=[Edge("e1", "e2", "causal"), Edge("e2", "e1", "causal")])
    assert store.add(loop) == "added"
    assert store.get("x") == loop
    assert store.rows()[0].problems == 2
    assert store.sql("select problems, errors from traces").rows == [(2, 0)]


def test_rows_list_finished_and_open_without_the_lake(tmp_path: Path) -> None:
    store = Store(tmp_path)
    trace = _trace("done")
    store.add(trace, "x.json")
    for file in tmp_path.glob("lake/**/*.parquet"):
        file.write_bytes(b"not read")
    with store.record("open", task_id="demo", system="sim") as run:
        run.event(Event(id="e1", t=0, type="message", agent="a", tokens_in=3))
        run.sync()
        done, running = store.rows()
    assert (done.id, done.events, done.edges, done.agents) == ("done", len(trace.events), len(trace.edges), len(trace.agents))
    assert (done.tokens, done.wall_clock_s) == (trace.costs["tokens"], trace.costs["wall_clock_s"])
    assert (done.team_reward, done.source, done.is_open) == (trace.rewards.get("team"), "x.json", False)
    assert (running.id, running.system, running.events, running.tokens, running.is_open) == ("open", "sim", 1, 3, True)


def test_a_trace_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add_many([_trace("run-a1"), _trace("run-b2"), _trace("run")])
    assert store.find("run-a") == "run-a1"
    assert store.find("run") == "run"
    with pytest.raises(InputError, match=r"2 traces have ids that begin with .*: run-a1, run-b2"):
        store.find("run-")
    store.add_many([_trace("run-a1~f"), _trace("run-a1~f~g")])
    assert [store.find(name) for name in ("run-a", "run-a1~")] == ["run-a1", "run-a1~f"]  # a trace goes before its forks
    with pytest.raises(NotFound, match="did you mean 'run-b2'"):
        store.find("run-b3")
    with pytest.raises(NotFound):
        store.find("")


def test_a_stored_id_cannot_be_recorded_again_nor_an_open_one_added(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(_trace("t1"))
    with pytest.raises(InputError, match="stored already"):
        store.record("t1", task_id="demo")
    with store.record("t2", task_id="demo"), pytest.raises(InputError, match="is being recorded"):
        store.add(_trace("t2"))


def test_removing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add_many([_trace("a"), _trace("b")])
    store.remove("a")
    assert store.ids() == ["b"]
    with pytest.raises(NotFound, match="no trace 'a'"):
        store.get("a")
    with pytest.raises(NotFound):
        store.remove("a")
    assert store.sql("select trace_id from traces").rows == [("b",)]
    assert store.sql("select distinct trace_id from events").rows == [("b",)]
    assert store.add(_trace("a")) == "added"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are listed on Linux only")
def test_what_was_opened_is_closed(tmp_path: Path) -> None:
    def all_of_it() -> int:
        with Store(tmp_path / "traces") as store:
            store.add_many([_trace("t1"), _trace("t2")])
            store.add(_trace("t1", seed=1))
            with store.record("open", task_id="demo") as run:
                run.event(Event(id="e1", t=0, type="message", agent="a"))
            with store.resume("open") as run, pytest.raises(TryAgain):
                store.resume("open")
            store.remove("open")
            with store.record("done", task_id="demo") as run:
                run.event(Event(id="e1", t=0, type="message", agent="a"))
                run.finish()
            assert store.get("t2") == _trace("t2")
            store.remove("t2")
            store.remove("done")
            store.compact(grace_s=-2.0)
            assert store.ids() == ["t1"]
            assert store.sql("select count(*) from traces").rows == [(1,)]
            asked = store._query
        assert asked is not None
        for connection in (asked._connection, asked._names):
            with pytest.raises(duckdb.ConnectionException, match="closed"):
                connection.execute("select 1")
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.collect()  # what tests before this one left behind is closed now, and not in between
    before = all_of_it()  # the first time libraries open what is theirs
    assert all_of_it() <= before


def test_a_closed_store_has_let_go_of_its_runs_and_a_finished_run_is_not_looked_after(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run, other = store.record("t1", task_id="demo"), store.record("t2", task_id="demo")
    for one in (run, other):
        one.event(Event(id="e1", t=0, type="message", agent="a"))
    run.finish()
    thread = store._flusher._thread
    assert store._flusher._runs == {other}
    store.close()
    assert store._flusher._runs == set()
    assert thread is not None
    thread.join(600)
    assert not thread.is_alive()
    with Store(tmp_path) as again, again.resume("t2") as resumed:
        resumed.finish()
        assert again.ids() == ["t1", "t2"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are listed on Linux only")
def test_a_part_is_durable_with_its_folder_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, link = os.fsync, os.link

    def synced(fd: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        fsync(fd)

    def linked(source: str, target: str) -> None:
        link(source, target)
        done.append("commit")

    with Store(tmp_path) as store:
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "link", linked)
        store.add(_trace("t1"))
        monkeypatch.undo()
    before, after = done[: done.index("commit")], done[done.index("commit") :]
    shard = next(name for name in before if name.startswith("shard="))
    files = [name.split(".")[1] for name in before[: before.index(shard)] if name.endswith(".parquet")]
    assert files == ["events", "edges", "traces"]  # it has no texts
    assert "log" in after, "and so is the name"


def test_batches_hold_what_was_asked_for(tmp_path: Path) -> None:
    store = Store(tmp_path)
    traces = [_trace(f"t{i}", seed=i) for i in range(5)]
    store.add_many(traces[:3])
    store.add_many(traces[3:])
    batch = store.batch(["t4", "t0"], columns=["t", "agent", "from"], edges=True)
    assert batch.column("t").tolist() == [e.t for i in (4, 0) for e in traces[i].events]
    codes, names = batch.codes("agent")
    assert [names[c] for c in codes] == [e.agent for i in (4, 0) for e in traces[i].events]
    assert batch.n_edges == len(traces[4].edges) + len(traces[0].edges)
    assert batch.reward().tolist() == [traces[i].rewards["team"] for i in (4, 0)]
    with pytest.raises(NotFound, match="ask for it"):
        batch.column("tokens_in")
    with pytest.raises(InputError, match=r"store\.get"):
        batch.trace(0)
    assert store.batch(["t1"]).traces() == [traces[1]]
    with pytest.raises(InputError, match="did you mean 'agent'"):
        store.batch(["t1"], columns=["agnt"])
    with pytest.raises(NotFound):
        store.batch(["t9"])
    with pytest.raises(InputError):
        store.batch([])


def test_a_batch_of_traces_that_lie_in_several_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "GROUP_ROWS", 1)
    traces = [_trace(f"t{i}", seed=i) for i in range(3)]
    store = Store(tmp_path)
    store.add_many(traces)
    assert [row.events.group for row in store._log.state.rows.values()] == [0, 1, 2]
    batch = store.batch(["t2", "t0", "t1"], columns=["id", "t"], edges=True)
    assert batch.column("t").tolist() == [e.t for i in (2, 0, 1) for e in traces[i].events]
    assert store.batch(["t1", "t2"]).traces() == traces[1:]


def test_sampling_is_repeatable_and_without_repeats(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add_many(_trace(f"t{i}") for i in range(6))
    first = store.sample(4, np.random.default_rng(3), columns=["t"]).ids
    assert first == store.sample(4, np.random.default_rng(3), columns=["t"]).ids
    assert len(set(first)) == 4
    for n in (7, 0, -1):
        with pytest.raises(InputError, match=f"cannot draw {n} traces from 6"):
            store.sample(n, np.random.default_rng(0))


def test_read_only_reads_and_writes_nothing(tmp_path: Path) -> None:
    Store(tmp_path).add(_trace("t1"))
    before = sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    with Store(tmp_path, read_only=True) as store:
        assert store.get("t1") == _trace("t1")
        assert store.sql("select count(*) from events").rows == [(len(_trace("t1").events),)]
        for write in (
            lambda: store.add(_trace("x")),
            lambda: store.remove("t1"),
            store.compact,
            lambda: store.record("x", task_id="d"),
        ):
            with pytest.raises(InputError, match="read-only"):
                write()
    assert before == sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))


def test_ids_of_any_kind_have_files_of_their_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    names = ["a/b", "a_b", "..", "A", "a", "ü" * 300, "x\ny", "CON", "-"]
    for name in names:
        with store.record(name, task_id="demo") as run:
            run.event(Event(id="e", t=0, type="message", agent="a"))
    assert sorted(store.open_ids()) == sorted(names)
    for name in names:
        with store.resume(name) as run:
            run.finish()
    assert sorted(store.ids()) == sorted(names)
    assert all(store.get(n).trace_id == n for n in names)


def test_the_name_of_a_journal_stays(tmp_path: Path) -> None:
    """A journal of an older version is found by its name."""
    assert path_of(tmp_path, "a/b c" + "x" * 60).name == "a_b_c" + "x" * 35 + "-cdc683bcce1fe9d7.jsonl"
    assert path_of(tmp_path, "..").name == "trace-5ec1f7e700f37c3d.jsonl"


def test_another_process_or_object_sees_what_was_committed(tmp_path: Path) -> None:
    one, two = Store(tmp_path), Store(tmp_path)
    for i in range(80):  # past a checkpoint and its sweep
        (one if i % 2 else two).add(_trace(f"t{i}"))
        assert len(one) == len(two) == i + 1
    assert Store(tmp_path, create=False).ids() == one.ids() == two.ids()


def test_threads_share_one_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(_trace("first"))
    wrong: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for i in range(6):
                store.add(_trace(f"t{k}-{i}"))
                assert store.get(f"t{k}-{i}").task_id == "demo"
                assert store.sql("select count(*) from traces").rows[0][0] >= 1
                assert store.rows()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(store) == len(Store(tmp_path)) == 25


def test_other_tools_read_the_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    trace = _trace("t1")
    store.add_many([trace, _trace("t2")])
    table = pq.read_table(store.files("events"), partitioning=None)
    assert table.filter(pc.field("trace_id") == "t1")["id"].to_pylist() == [e.id for e in trace.events]
    assert store.files("contents") == []
    with pytest.raises(InputError, match="did you mean 'events'"):
        store.files("event")


def test_a_whole_batch_answers_for_columns_that_nobody_filled(tmp_path: Path) -> None:
    store = Store(tmp_path)
    trace = Trace(trace_id="t", task_id="d", events=[Event(id="e", t=1.5, type="message", agent="a")])
    store.add(trace)
    batch = store.batch(["t"])
    assert np.isnan(batch.column("tokens_in")).all()
    assert batch.codes("role").codes.tolist() == [-1]
    assert "role" in batch.columns
    assert batch.traces() == [trace]


def test_the_manifest_counts_what_it_lists(tmp_path: Path) -> None:
    """A row says of a trace what the trace says: agents, tokens, decisions, errors, digest and where it came from."""
    trace = synthetic_trace(3, 9, "centralized", 4, trace_id="t1")
    with Store(tmp_path) as store:
        store.add(trace, "file.json")
        row = store._log.state.rows["t1"]
    assert row.decisions == len([e for e in trace.events if e.decision is not None]) > 0
    assert row.decisions != len(trace.events) - row.decisions
    assert row.agents == len({e.agent for e in trace.events})
    assert (row.events.rows, row.edges.rows) == (len(trace.events), len(trace.edges))
    assert (row.task, row.source, row.problems, row.is_steered) == (trace.task_id, "file.json", 0, False)
    assert row.tokens == sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in trace.events)
    assert (row.rewards, row.costs, row.metrics) == (trace.rewards, trace.costs, trace.metrics)
