"""Edges as arrays: the same records as a decoder gives, or no answer at all."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.testing import synthetic_trace
from counterpoint.trace import Edge, Event, decode, edges, encode, problems, wire
from counterpoint.trace.edges import Edges, scan
from counterpoint.trace.vocabulary import EDGE_TYPES

_names = st.integers(0, 30).map(lambda i: f"e{i}") | st.sampled_from(["e01", "e", "x1", 'e"1', "e\\1", "é1", "e1}", "e,{"])
_types = st.sampled_from(EDGE_TYPES) | st.sampled_from(["causa", "causal ", "tool_dependencx", "Spawn"])
_edge = st.fixed_dictionaries({"src": _names, "dst": _names, "type": _types})
_layout = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " : ")])


def events_of(names: list[str]) -> list[Event]:
    return [Event(id=name, t=0, type="message", agent="x") for name in names]


@settings(max_examples=120, deadline=None)
@given(st.lists(_edge, min_size=1, max_size=9), _layout, st.booleans(), st.sampled_from([1 << 20, 64]))
def test_a_scan_is_what_a_decoder_says_or_nothing(listed: list[dict[str, str]], layout: tuple[str, str], ascii_: bool, chunk: int) -> None:
    raw = json.dumps(listed, separators=layout, ensure_ascii=ascii_).encode()
    events = events_of([f"e{i}" for i in range(25)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edges, "_CHUNK", chunk)
        found = scan(raw, events)
    try:
        truth = msgspec.json.decode(raw, type=list[Edge])
    except msgspec.ValidationError:
        assert found is None
        return
    if found is not None:
        assert list(found) == truth
        assert {e.src for e in truth} | {e.dst for e in truth} <= {e.id for e in events}


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 6), st.data())
def test_one_edge_of_another_shape_is_never_misread(count: int, data: st.DataObject) -> None:
    """Swap, drop, add or retype fields of one edge among regular ones."""
    listed: list[dict[str, Any]] = [{"src": "e1", "dst": "e2", "type": "causal"} for _ in range(count)]
    odd = data.draw(st.permutations([("src", "e3"), ("dst", "e4"), ("type", "spawn")]))
    changed: dict[str, Any] = dict(odd[: data.draw(st.integers(0, 3))])
    changed |= data.draw(st.dictionaries(st.sampled_from(["src", "dst", "type", "foo"]), st.sampled_from([1, "dst", "e5", "type", None]), max_size=3))
    listed[data.draw(st.integers(0, count - 1))] = changed
    raw = json.dumps(listed, separators=(",", ":")).encode()
    found = scan(raw, events_of([f"e{i}" for i in range(9)]))
    try:
        truth = msgspec.json.decode(raw, type=list[Edge])
    except msgspec.ValidationError:
        truth = None
    assert found is None or list(found) == truth


def test_a_regular_array_is_scanned_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = synthetic_trace(20, 200, "debate", 3)
    raw = msgspec.json.encode(trace.edges)
    monkeypatch.setattr(edges, "_CHUNK", 1000)
    found = scan(raw, trace.events)
    assert found is not None
    assert list(found) == list(trace.edges)


@pytest.mark.parametrize("ids", [["e1", "e1", "e2"], ["e1", "f2", "e3"], ["e1", "e2", "e900000"]])
def test_ids_that_are_no_table_need_a_decoder(ids: list[str]) -> None:
    raw = json.dumps([{"src": "e1", "dst": "e2", "type": "causal"}] * 2).encode()
    assert scan(raw, events_of(ids)) is None


def test_it_reads_as_a_sequence_of_records() -> None:
    trace = synthetic_trace(3, 19, "swarm", 1)
    found = scan(msgspec.json.encode(trace.edges), trace.events)
    assert isinstance(found, Edges)
    assert found == list(trace.edges)
    assert found != list(trace.edges)[:-1]
    assert (found[0], found[-1], found[2:4]) == (trace.edges[0], trace.edges[-1], list(trace.edges)[2:4])
    assert trace.edges[5] in found
    assert repr(found) == f"Edges({len(trace.edges)})"


def test_a_large_file_gives_the_same_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = synthetic_trace(30, 300, "hierarchical", 5)
    data = encode(trace)
    plain = decode(data)
    monkeypatch.setattr(wire, "_LARGE", 0)
    large = decode(data)
    assert isinstance(large.edges, Edges)
    assert large == plain == trace
    assert encode(large) == data
    assert problems(large) == []
    assert large.graph.edge_type.tolist() == plain.graph.edge_type.tolist()
    assert large.graph.src.tolist() == plain.graph.src.tolist()


def test_edges_of_other_events_are_resolved_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_LARGE", 0)
    large = decode(encode(synthetic_trace(3, 19, "swarm", 1)))
    backwards = msgspec.structs.replace(large, events=large.events[::-1])
    pairs = {(backwards.events[s].id, backwards.events[d].id) for s, d in zip(backwards.graph.src, backwards.graph.dst, strict=True)}
    assert pairs == {(e.src, e.dst) for e in large.edges}
