"""Adding, step by step: what is refused, how traces become parts, and what the manifest says of them."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from counterpoint.errors import InputError, InvalidTrace
from counterpoint.store import Store, writing
from counterpoint.store.log import Row, State
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event, Trace


def _event(name: str, **fields: Any) -> Event:
    return Event(id=name, t=0, type="message", agent="a", **fields)


def _trace(name: str = "t1", seed: int = 0) -> Trace:
    return synthetic_trace(2, 4, "swarm", seed, trace_id=name)


def _files(folder: Path) -> list[Path]:
    return list(folder.glob("lake/**/*.parquet"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.mark.parametrize(
    ("trace", "count"),
    [
        (Trace(trace_id="x", task_id="d", events=[_event("e1"), _event("e2", extra={"k": (1, 2)})]), None),
        (Trace(trace_id="x", task_id="d", events=[_event("e1", extra={"k": float("nan")}), _event("e2")]), None),
        (Trace(trace_id="x", task_id="d", events=[_event("e1", extra={"k": "\ud800"})]), None),
        (Trace(trace_id="x", task_id="d", events=[_event("e1")], contents={"r": 3}), None),  # type: ignore[dict-item]
        (Trace(trace_id="x", task_id="d", events=[_event("e1")], contents={"\ud800": "text"}), None),
        (Trace(trace_id="x", task_id="d", events=[_event("e1")], meta={"k": object()}), None),
        (Trace(trace_id="x", task_id="d", events=[_event("e1", extra={"k": [1, "two", None, 2.5]})], meta={"k": {}}), 0),
    ],
)
def test_what_json_cannot_carry_is_refused(trace: Trace, count: int | None) -> None:
    if count is not None:
        assert writing.check(trace) == count
        return
    with pytest.raises(InvalidTrace, match="trace 'x'"):
        writing.check(trace)


def test_what_is_fatal_is_counted_and_kept_with_the_error() -> None:
    bad = Trace(trace_id="x", task_id="d", events=[_event("e")] * 3)
    with pytest.raises(InvalidTrace, match="and 1 more") as caught:
        writing.check(bad)
    assert [p.code for p in caught.value.problems][:2] == ["duplicate-id", "duplicate-id"]
    with pytest.raises(InvalidTrace) as caught:
        writing.check(replace(bad, events=bad.events[:2]))
    assert "more" not in str(caught.value)


def test_the_digest_is_of_all_that_a_trace_says() -> None:
    trace = synthetic_trace(2, 4, "swarm", trace_id="t", contents=True)
    others = [
        trace,
        replace(trace, meta={"k": 1}),
        replace(trace, task_id="other"),
        replace(trace, contents={}),
        replace(trace, edges=trace.edges[1:]),
        replace(trace, rewards={"team": 0.5}),
        replace(trace, events=trace.events[:-1]),
    ]
    assert len({writing.digest_of(t) for t in others}) == len(others)
    assert writing.digest_of(trace) == writing.digest_of(replace(trace))
    with pytest.raises(InvalidTrace, match="cannot be stored"):
        writing.digest_of(replace(trace, contents={"r": "\ud800"}))


def test_a_row_says_what_the_trace_says() -> None:
    trace = Trace(
        trace_id="t1", task_id="d", system="sim", topology="swarm", meta={"k": 1}, metrics={"m": 2}, rewards={"team": 1},
        costs={"tokens": 3, "cost_usd": 0.25}, events=[_event("e1", dur=2), replace(_event("e2", decision="spawn"), t=5)],
        contents={"r1": "one", "r2": "two"},
    )  # fmt: skip
    before = time.time()
    unit = writing.unit_of(trace, "file", "abc", 7)
    row = unit.row
    assert before <= row.added <= time.time()
    assert (row.id, row.task, row.system, row.topology, row.source, row.digest) == ("t1", "d", "sim", "swarm", "file", "abc")
    assert (row.agents, row.decisions, row.problems, row.has_meta, row.is_steered) == (1, 1, 7, True, False)
    assert (row.title, row.project, row.models, row.started, row.failures, row.unpriced) == ("d", None, (), None, 0, {})
    assert (row.tokens, row.wall_clock_s, row.cost_usd) == (trace.tokens, trace.duration_s, trace.cost_usd)
    assert (row.rewards, row.costs, row.metrics, row.head) == (trace.rewards, trace.costs, trace.metrics, 0)
    assert (unit.meta, unit.events.num_rows, unit.edges.num_rows) == ('{"k":1}', 2, 0)
    assert unit.contents is not None
    assert unit.contents.to_pydict() == {"ref": ["r1", "r2"], "text": ["one", "two"]}
    bare = writing.unit_of(Trace(trace_id="t1", task_id="d", events=[_event("e1")]), None, "abc", 0)
    assert (bare.contents, bare.meta, bare.row.has_meta, bare.row.source, bare.row.metrics) == (None, None, False, None, None)
    assert bare.row.present != row.present


@pytest.mark.parametrize(("limit", "sizes"), [({"_PART_TRACES": 2}, [2, 2, 1]), ({"_PART_EVENTS": 3}, [2, 2, 1]), ({}, [5])])
def test_a_part_is_full_at_some_traces_or_events(
    store: Store, monkeypatch: pytest.MonkeyPatch, limit: dict[str, int], sizes: list[int]
) -> None:
    for name, value in limit.items():
        monkeypatch.setattr(writing, name, value)
    many = [Trace(trace_id=f"t{i}", task_id="d", events=[_event("e1"), _event("e2")]) for i in range(5)]
    assert store.add_many(iter(many)) == ["added"] * 5
    assert [p.traces for p in store._log.state.parts.values()] == sizes
    assert [store.get(f"t{i}") for i in range(5)] == many
    assert tuple(
        limit.get(k, v) for k, v in (("_PART_TRACES", 1024), ("_PART_EVENTS", 2_000_000))
    ) == (writing._PART_TRACES, writing._PART_EVENTS)


def test_each_trace_has_its_source_and_keeps_the_first_that_was_known(store: Store) -> None:
    def sources() -> list[str | None]:
        return [store._log.refresh().rows[name].source for name in ("a", "b", "c")]

    assert store.add_many([_trace("a"), _trace("b"), _trace("c")], ["x", None, "z"]) == ["added"] * 3
    assert sources() == ["x", None, "z"]
    first = {name: row.added for name, row in store._log.state.rows.items()}
    assert store.add_many([_trace("a", 1), _trace("b", 1), _trace("c", 1)], [None, "y", "z"]) == ["updated"] * 3
    assert sources() == ["x", "y", "z"]
    assert {name: row.added for name, row in store._log.state.rows.items()} == first
    with pytest.raises(InputError, match="stored already, from x"):
        store.add(_trace("a", 2), "y")


def test_a_part_of_which_nothing_is_wanted_leaves_no_file(store: Store) -> None:
    unit = writing.unit_of(_trace(), None, "abc", 0)

    def nothing(state: State, rows: list[Row]) -> list[Row]:
        assert [r.id for r in rows] == ["t1"]
        assert len(_files(store.path)) == 3
        return []

    store._writer.write([unit], nothing)
    assert (_files(store.path), store.ids(), store._log.state.number) == ([], [], 0)

    def fails(state: State, rows: list[Row]) -> list[Row]:
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        store._writer.write([unit], fails)
    assert _files(store.path) == []


def test_what_others_did_while_we_wrote(tmp_path: Path, store: Store) -> None:
    """A batch looks again when it commits: equal is unchanged, another one is replaced and keeps when it was first added."""
    other = Store(tmp_path)
    batch = writing._Batch(store._writer, store._log.refresh())
    for name in ("a", "b", "c"):
        batch.take(_trace(name), "here")
    assert batch.whats == ["added"] * 3
    other.add(_trace("a"), "there")
    other.add(_trace("b", seed=1))
    added = other._log.state.rows["b"].added
    batch.commit()
    assert batch.whats == ["unchanged", "updated", "added"]
    rows = store._log.refresh().rows
    assert {name: row.source for name, row in rows.items()} == {"a": "there", "b": "here", "c": "here"}
    assert rows["b"].added == added
    assert store.get("b") == _trace("b")
    number = store._log.state.number
    batch.commit()
    assert store._log.refresh().number == number


def test_sealing_what_is_there_already_changes_nothing(store: Store) -> None:
    store._writer.seal(_trace())
    number = store._log.refresh().number
    store._writer.seal(_trace())
    assert store._log.refresh().number == number
    assert store.rows()[0].source is None


@pytest.mark.parametrize("texts", [0, 1, 255, 256, 257, 600])
def test_a_digest_is_that_of_the_whole_as_json(texts: int) -> None:
    trace = replace(_trace(), contents={f"sha256:{k:064x}": f"text {k} ü" for k in range(texts)}, meta={"k": 1})
    whole = msgspec.json.encode([getattr(trace, name) for name in trace.__struct_fields__])
    assert writing.digest_of(trace) == hashlib.sha256(whole).hexdigest()
