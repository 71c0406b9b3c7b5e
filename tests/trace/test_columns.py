"""Events and edges as columns and back: numbers of every kind, gaps, chunks, slices; and batches of a few columns."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from counterpoint.errors import InputError, InvalidTrace, NotFound
from counterpoint.testing import odd_trace, synthetic_trace
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.batch import TraceBatch, fixed
from counterpoint.trace.columns import (
    COUNTS,
    EDGE_SCHEMA,
    EVENT_SCHEMA,
    FLAGS,
    NUMBERS,
    TEXTS,
    WORDS,
    codes_of,
    columns_in,
    edge_table,
    edges_of,
    event_table,
    events_of,
    present,
)


def ev(name: str = "e", t: Any = 0, **fields: Any) -> Event:
    return Event(id=name, t=t, type="message", agent="a", **fields)


def same(a: list[Event], b: list[Event]) -> bool:
    return a == b and all(type(x.t) is type(y.t) and repr(x) == repr(y) for x, y in zip(a, b, strict=True))


FULL: dict[str, Any] = {
    "role": "r", "from_": "f", "to": "t", "tool": "x", "content_ref": "c", "trusted": True, "dur": 1.5, "tokens_in": 3, "tokens_out": 0,
    "cost_usd": 2, "model": "m", "turn": 0, "task": "k", "decision": "stop", "options": ["a", "b"], "logp": -1, "policy": "p", "key": "y",
    "ok": False, "error": "", "source": "peer", "reward": {"R1": 1, "R2": 0.5}, "at": 17.0, "extra": {"x": [None, 1, 1.0]},
}  # fmt: skip


def test_every_field_comes_back_alone_and_with_all_others() -> None:
    events = [ev(), ev("full", 0.5, **FULL), *(ev(name, 3, **{name: value}) for name, value in FULL.items())]
    assert same(events_of(event_table(events)), events)
    for event in events:
        assert same(events_of(event_table([event])), [event])
        assert same(events_of(event_table([event, event])), [event, event])


BIG = [0, 1, -1, 0.0, 1.0, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**400, 1e300, 0.1]


@pytest.mark.parametrize("name", [*NUMBERS, *COUNTS])
def test_numbers_come_back_number_for_number(name: str) -> None:
    values = [v for v in BIG if name in NUMBERS or isinstance(v, int)]
    events = [ev(f"e{k}", **({name: v} if name != "t" else {"t": v})) for k, v in enumerate(values)]
    events += [ev("gap")] if name != "t" else []
    assert same(events_of(event_table(events)), events)
    for event in events:
        assert same(events_of(event_table([event])), [event])


@pytest.mark.parametrize("seed", range(20))
def test_gaps_of_every_pattern_come_back(seed: int) -> None:
    rng = random.Random(seed)
    events = [
        ev(f"e{k}", rng.choice([0, 1.5, 2**70]), **{n: v for n, v in FULL.items() if rng.random() < 0.3}) for k in range(rng.randrange(1, 30))
    ]
    table = event_table(events)
    assert same(events_of(table), events)
    a, b = sorted(rng.choices(range(len(events) + 1), k=2))
    assert same(events_of(table.slice(a, b - a)), events[a:b])
    chunks = pa.concat_tables([table.slice(0, a), table.slice(a)])
    assert same(events_of(chunks), events)
    words = pa.table([c.dictionary_encode() if n in WORDS else c for n, c in zip(table.column_names, table.columns, strict=True)], table.column_names)
    assert same(events_of(words.slice(a)), events[a:])
    assert same(events_of(table.select(columns_in(present(table)))), events)


def test_the_schema_says_what_each_column_is() -> None:
    kinds = {f.name: str(f.type) for f in EVENT_SCHEMA}
    assert list(kinds) == [*Event.__struct_fields__, "ints", "exact"]
    assert {kinds[n] for n in NUMBERS} == {"double"}
    assert {kinds[n] for n in COUNTS} == {"int64"}
    assert {kinds[n] for n in FLAGS} == {"bool"}
    assert {kinds[n] for n in (*WORDS, *TEXTS, "options", "reward", "extra", "exact")} == {"string"}
    assert kinds["ints"] == "uint8"
    assert sorted([*NUMBERS, *COUNTS, *FLAGS, *WORDS, *TEXTS, "options", "reward", "extra"]) == sorted(Event.__struct_fields__)
    assert [(f.name, str(f.type)) for f in EDGE_SCHEMA] == [("src", "int32"), ("dst", "int32"), ("type", "string")]
    assert NUMBERS == ("t", "dur", "cost_usd", "logp", "at")  # the bits of `ints`, in files too


def test_what_a_typed_column_cannot_say_stands_beside_it() -> None:
    table = event_table([ev("a", 1), ev("b", 1.0, dur=2), ev("c", 2**53 + 1, tokens_in=2**63), ev("d", 10**400)])
    assert table["ints"].to_pylist()[:3] == [0b00001, 0b00010, 0b00001]
    assert table["t"].to_pylist() == [1.0, 1.0, 2.0**53, None]
    assert table["exact"].to_pylist()[:3] == [None, None, f'{{"t":{2**53 + 1},"tokens_in":{2**63}}}']
    assert table["tokens_in"].to_pylist() == [None] * 4
    counts = event_table([ev("a", tokens_in=2**63 - 1), ev("b", tokens_in=2**63), ev("c", tokens_in=0), ev("d", turn=-(2**63)), ev("e", turn=-(2**63) - 1)])
    assert counts["tokens_in"].to_pylist() == [2**63 - 1, None, 0, None, None]  # only what does not fit stands beside
    assert counts["turn"].to_pylist() == [None, None, None, -(2**63), None]
    assert table["extra"].null_count == 4


def test_which_columns_say_anything() -> None:
    assert columns_in(present(event_table([ev("a", 0.5)]))) == ["id", "t", "type", "agent"]
    assert columns_in(present(event_table([ev("a", 1), ev("b", 1, ok=False)]))) == ["id", "t", "type", "agent", "ok", "ints"]
    assert columns_in(present(event_table([ev("a", 2**53 + 1)])))[-1] == "exact"
    assert columns_in(0) == []


def test_no_events() -> None:
    table = event_table([])
    assert table.schema == EVENT_SCHEMA
    assert (table.num_rows, events_of(table), present(table)) == (0, [], 0)


def test_codes_and_their_gaps() -> None:
    array = pa.array(["x", None, "y", "x"]).dictionary_encode()
    assert codes_of(array).tolist() == [0, -1, 1, 0]
    assert codes_of(array.slice(1)).tolist() == [-1, 1, 0]
    assert codes_of(array.slice(2)).tolist() == [1, 0]


@pytest.mark.parametrize("encoded", [False, True])
def test_edges_come_back_by_the_ids_of_their_events(encoded: bool) -> None:
    edges = [Edge("b", "a", "causal"), Edge("a", "c", "safety_flow"), Edge("c", "b", "temporal")]
    table = edge_table(edges, np.array([1, 0, 2], np.int32), np.array([0, 2, 1], np.int32))
    assert table.schema == EDGE_SCHEMA
    if encoded:
        table = table.set_column(2, "type", table["type"].dictionary_encode())
    assert edges_of(table, ["a", "b", "c"]) == edges
    assert edges_of(table.slice(1, 1), ["a", "b", "c"]) == edges[1:2]
    assert edges_of(table.slice(0, 0), []) == []


# -- batches -----------------------------------------------------------------------------------------------------


def _trace(name: str, n: int, **fields: Any) -> Trace:
    events = [ev(f"e{i}", i, role=f"r{i}" if i % 2 else None, ok=[True, False, None][i % 3]) for i in range(n)]
    return Trace(trace_id=name, task_id="d", events=events, edges=[Edge(f"e{i}", f"e{i + 1}", "causal") for i in range(n - 1)], **fields)


A, B = _trace("a", 3, rewards={"team": 1}, costs={"tokens": 5}), _trace("b", 2)


def part(batch: TraceBatch, names: list[str]) -> TraceBatch:
    """As the store makes one: a few columns, no edges."""
    return TraceBatch(batch.heads, batch.offsets, batch.events.select(names))


def test_a_batch_says_what_it_holds() -> None:
    whole = TraceBatch.of([A, B])
    assert repr(whole) == "<TraceBatch of 2 traces, 5 events, all columns>"
    assert whole.columns == list(Event.__struct_fields__)
    few = part(whole, ["t", "agent", "ints"])
    assert not few.is_whole
    assert repr(few) == "<TraceBatch of 2 traces, 5 events, 3 columns>"
    assert few.columns == ["t", "agent"]
    assert few.column("t").tolist() == [0, 1, 2, 0, 1]


def test_a_column_that_is_not_there_is_named() -> None:
    few = part(TraceBatch.of([A, B]), ["t", "agent"])
    with pytest.raises(NotFound) as caught:
        few.column("from")
    assert (caught.value.what, caught.value.fix) == ("this batch has no column 'from'", "ask for it: columns=['from_', ...]")
    with pytest.raises(NotFound, match="did you mean 'agent'"):
        few.column("agnt")
    for asked in (lambda: few.n_edges, lambda: few.src, lambda: few.dst, lambda: few.edge_type):
        with pytest.raises(NotFound, match="made without edges"):
            asked()
    with pytest.raises(InputError, match="holds a part of its traces"):
        few.trace(0)


def test_a_whole_batch_has_columns_that_nobody_filled() -> None:
    whole = TraceBatch.of([A, B])
    said = TraceBatch(whole.heads, whole.offsets, whole.events.select(["id", "t", "type", "agent"]), whole.edge_offsets, whole.edges, is_whole=True)
    assert np.isnan(said.column("dur")).all()
    assert said.column("tool").tolist() == [None] * 5
    assert said.codes("from").codes.tolist() == [-1] * 5
    assert said.codes("decision").codes.tolist() == [-1] * 5
    assert said.columns == whole.columns


def test_flags_are_numbers_with_gaps() -> None:
    column = TraceBatch.of([A]).column("ok")
    assert column[:2].tolist() == [1.0, 0.0]
    assert np.isnan(column[2])
    assert TraceBatch.of([Trace(trace_id="x", task_id="d", events=[ev(trusted=True)])]).column("trusted").tolist() == [1.0]


def test_codes_of_closed_words_are_their_places_and_others_are_the_batchs_own() -> None:
    events = [ev("1", decision="stop", source="peer"), ev("2"), ev("3", decision="spawn", source="user")]
    batch = TraceBatch.of([Trace(trace_id="x", task_id="d", events=events)])
    assert batch.codes("decision").codes.tolist() == [4, -1, 0]
    assert batch.codes("source").codes.tolist() == [2, -1, 0]
    assert batch.codes("type").codes.tolist() == [3, 3, 3]
    found = fixed("role", np.array([0, -1], np.int32), ["x"])
    assert (found.codes.tolist(), found.categories) == ([0, -1], ["x"])


def test_codes_over_many_chunks_are_one_dictionary() -> None:
    batch = TraceBatch.of([A, B]).select([1, 0, 1])
    codes, names = batch.codes("role")
    assert [None if c < 0 else names[c] for c in codes] == [None, "r1", None, "r1", None, None, "r1"]
    encoded = TraceBatch(batch.heads, batch.offsets, batch.events.set_column(4, "role", batch.events["role"].dictionary_encode()))
    codes, names = encoded.codes("role")
    assert [None if c < 0 else names[c] for c in codes] == [None, "r1", None, "r1", None, None, "r1"]
    empty = TraceBatch([], np.zeros(1, np.int64), pa.table({"role": pa.chunked_array([], pa.string())}))
    assert (empty.codes("role").codes.tolist(), len(empty)) == ([], 0)


def test_rewards_and_costs_are_nan_where_they_are_not_stated() -> None:
    batch = TraceBatch.of([A, B])
    assert batch.reward()[0] == 1
    assert np.isnan(batch.reward()[1])
    assert batch.cost("tokens")[0] == 5
    assert np.isnan(batch.cost("tokens")[1])


def test_traces_are_taken_out_by_place() -> None:
    batch = TraceBatch.of([A, B, odd_trace()])
    again = batch.select([2, 0, 0])
    assert again.traces() == [odd_trace(), A, A]
    assert again.edge_offsets is not None
    assert np.diff(again.edge_offsets).tolist() == [len(odd_trace().edges), 2, 2]
    assert again.is_whole
    assert batch[:2].ids == ["a", "b"]
    assert batch[::-1].ids == [odd_trace().trace_id, "b", "a"]
    assert [batch.trace(i).trace_id for i in (-3, -1, 0, 2)] == ["a", odd_trace().trace_id, "a", odd_trace().trace_id]
    few = part(batch, ["t"]).select([1])
    assert (few.edges, few.edge_offsets, few.is_whole, few.column("t").tolist()) == (None, None, False, [0, 1])
    for wrong in (-4, 3):
        with pytest.raises(InputError, match=rf"trace number {wrong} is not in 0\.\.2"):
            batch.trace(wrong)
    for wrong in (-1, 3):
        with pytest.raises(InputError, match=rf"trace number {wrong} is not in 0\.\.2"):
            batch.select([wrong])


def test_edge_types_have_codes_whatever_their_form() -> None:
    trace = synthetic_trace(3, 30, "swarm", 1)
    batch = TraceBatch.of([trace])
    types = batch.edge_type
    assert types.dtype == np.uint8
    assert batch.edges is not None
    encoded = TraceBatch(batch.heads, batch.offsets, batch.events, batch.edge_offsets, batch.edges.set_column(2, "type", batch.edges["type"].dictionary_encode()))
    assert encoded.edge_type.tolist() == types.tolist()
    assert batch.n_edges == len(trace.edges)


def test_offsets_must_fit() -> None:
    whole = TraceBatch.of([A, B])
    for offsets in ([0, 3], [0, 3, 4], [0, 3, 5, 5]):
        with pytest.raises(InputError, match="2 traces and 5 events do not fit the offsets"):
            TraceBatch(whole.heads, np.array(offsets), whole.events)


@pytest.mark.parametrize(
    ("events", "edges"), [([ev("a"), ev("a")], []), ([ev("a")], [Edge("a", "z", "causal")]), ([ev("a")], [Edge("z", "a", "causal")])]
)
def test_what_is_no_graph_is_named_by_its_trace(events: list[Event], edges: list[Edge]) -> None:
    with pytest.raises(InvalidTrace) as caught:
        TraceBatch.of([A, Trace(trace_id="x", task_id="d", events=events, edges=edges)])
    assert caught.value.where == "trace 'x'"
    with pytest.raises(InvalidTrace, match="an event holds a value of the wrong type"):
        TraceBatch.of([Trace(trace_id="x", task_id="d", events=[ev(role=3)])])
