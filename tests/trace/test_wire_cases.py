"""The survey's format at its edges: which road a file takes, what stays where, and which number is named."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from counterpoint.errors import InputError, InvalidTrace
from counterpoint.trace import Edge, Event, Trace, edges, encode, wire
from counterpoint.trace.edges import Edges, scan
from counterpoint.trace.vocabulary import EDGE_TYPES

EVENT = {"id": "e1", "t": 0, "type": "message", "agent": "x"}
WHOLE: dict[str, Any] = {
    "trace_id": "t", "task_id": "q", "events": [EVENT], "edges": [], "rewards": {}, "costs": {"tokens": 0, "wall_clock_s": 0},
}  # fmt: skip


def data(**fields: Any) -> bytes:
    return json.dumps(WHOLE | fields).encode()


def ev(name: str = "e1", **fields: Any) -> Event:
    return Event(id=name, t=0, type="message", agent="x", **fields)


# -- roads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
def test_only_what_is_declared_and_in_range_takes_the_fast_road(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(wire, "_LARGE", 0)
    full = wire.decode_strictly(data(system="s", topology="swarm", metrics={"m": 1}, rewards={"team": 2}))
    assert full is not None
    assert (full.trace_id, full.task_id, full.system, full.topology) == ("t", "q", "s", "swarm")
    assert (full.rewards, full.costs, full.metrics, full.meta) == ({"team": 2}, {"tokens": 0, "wall_clock_s": 0}, {"m": 1}, {})
    for wrong in (
        data(events=[EVENT | {"colour": "red"}]),
        data(events=[]),
        data(costs={"tokens": 0}),
        data(costs={"tokens": 0, "wall_clock_s": 0, "messages": -1}),
        data(edges=[{"src": "e1", "dst": "e1", "type": "friend"}]),
        data(surplus=1),
        data()[:-1],
        b"\xff" + data(),
        b"[" * 100_000,
    ):
        assert wire.decode_strictly(wrong) is None


def test_the_loose_road_names_the_file_and_keeps_to_the_limit() -> None:
    wrong = data(events=[{}] * 20)
    with pytest.raises(InvalidTrace) as caught:
        wire.decode_loosely(wrong, where="x.json", limit=3)
    assert (caught.value.where, len(caught.value.problems)) == ("x.json", 3)
    assert caught.value.what == "events[0]: required field 'id' is missing (`counterpoint store schema` prints what is allowed), and 79 more errors"
    with pytest.raises(InvalidTrace) as caught:
        wire.decode(wrong, where="y.json")
    assert (caught.value.where, len(caught.value.problems)) == ("y.json", 50)
    with pytest.raises(InvalidTrace, match="required cost 'tokens'"):
        wire.decode(data(costs={"wall_clock_s": 0}, events=[EVENT | {"colour": "red"}]))


def test_a_byte_order_mark_is_three_bytes() -> None:
    assert wire.decode(memoryview(b"\xef\xbb\xbf" + data())).trace_id == "t"
    for broken in (b"\xef\xbb", b"\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbf"):
        with pytest.raises(InvalidTrace):
            wire.decode(broken + data())


# -- one event ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        ({}, ev()),
        ({"dur": 0}, ev(dur=0)),
        ({"dur": -1}, ev(dur=-1)),
        ({"turn": -2, "ok": 1}, ev(turn=-2, extra={"ok": 1})),
        ({"tokens_in": -1.5}, ev(extra={"tokens_in": -1.5})),
        ({"logp": -3}, ev(logp=-3)),
        ({"dur": True}, ev(extra={"dur": True})),
        ({"dur": None, "cost_usd": -0.5}, ev(cost_usd=-0.5, extra={"dur": None})),
        ({"extra": {"a": 1}}, ev(extra={"extra": {"a": 1}})),
        ({"from_": "z", "from": "y"}, ev(from_="y", extra={"from_": "z"})),
        ({"decision": "guess", "source": "peer"}, ev(source="peer", extra={"decision": "guess"})),
    ],
)
def test_every_field_of_a_file_has_one_place(fields: dict[str, Any], event: Event) -> None:
    assert wire.decode_event(json.dumps(EVENT | fields).encode()) == event
    assert wire.event_from_dict(EVENT | fields) == event
    assert json.loads(wire.encode_event(event)) == wire.event_dict(event) == EVENT | fields


@pytest.mark.parametrize("change", [{"id": ""}, {"t": -1}, {"type": "shout"}, {"agent": 1}, {"role": None}])
def test_a_survey_field_that_is_wrong_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        wire.event_from_dict(EVENT | {"colour": "red"} | change)


def test_a_name_in_extra_never_hides_the_field_itself() -> None:
    assert wire.event_dict(ev(dur=2, extra={"dur": 3, "x": 1})) == EVENT | {"dur": 2, "x": 1}
    assert wire.event_dict(ev(extra={})) == EVENT
    assert wire.encode_event(ev(extra={})) == json.dumps(EVENT, separators=(",", ":")).encode()


# -- writing -----------------------------------------------------------------------------------------------------


def test_what_is_absent_is_not_written() -> None:
    bare = json.loads(encode(Trace(trace_id="t", task_id="q", events=[ev()])))
    assert bare == WHOLE
    assert list(bare) == ["trace_id", "task_id", "events", "edges", "rewards", "costs"]
    full = Trace(trace_id="t", task_id="q", events=[ev(), ev("e2", extra={"x": 1})], system="", topology="swarm", metrics={})
    assert list(json.loads(encode(full))) == ["trace_id", "task_id", "system", "topology", "events", "edges", "rewards", "costs", "metrics"]
    assert json.loads(encode(full))["events"] == [EVENT, EVENT | {"id": "e2", "x": 1}]


@pytest.mark.parametrize(
    ("costs", "written"),
    [
        ({}, {"tokens": 7, "wall_clock_s": 2}),
        ({"tokens": 1}, {"tokens": 1, "wall_clock_s": 2}),
        ({"wall_clock_s": 9, "messages": 4}, {"tokens": 7, "wall_clock_s": 9, "messages": 4}),
        ({"tokens": 1, "wall_clock_s": 9, "cost_usd": 0.5}, {"tokens": 1, "wall_clock_s": 9, "cost_usd": 0.5}),
    ],
)
def test_what_is_stated_is_not_counted(costs: dict[str, float], written: dict[str, float]) -> None:
    trace = Trace(trace_id="t", task_id="q", events=[ev(tokens_in=3, tokens_out=4, dur=2)], costs=costs)
    assert json.loads(encode(trace))["costs"] == written


NAN = float("nan")


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"rewards": {"a": 1.0, "b": NAN}}, "$.rewards.b"),
        ({"costs": {"tokens": NAN}}, "$.costs.tokens"),
        ({"metrics": {"m": NAN}}, "$.metrics.m"),
        ({"events": [ev(), ev("e2", logp=NAN)]}, "events[1].logp"),
        ({"events": [ev(dur=NAN)]}, "events[0].dur"),
        ({"events": [ev(cost_usd=NAN)]}, "events[0].cost_usd"),
        ({"events": [ev(at=NAN)]}, "events[0].at"),
        ({"events": [ev(reward={"R1": NAN})]}, "events[0].R1"),
        ({"events": [ev(extra={"x": [0, {"y": NAN}]})]}, "events[0].x[1].y"),
        ({"events": [ev(extra={"x": None})], "rewards": {"b": NAN}}, "$.rewards.b"),
    ],
)
def test_a_number_that_json_has_not_is_named(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidTrace) as caught:
        encode(Trace(**{"trace_id": "t", "task_id": "q", "events": [ev()]} | fields))
    assert (caught.value.what, caught.value.where) == ("nan is not a JSON number", where)


def test_a_null_that_was_one_is_written() -> None:
    assert b'"x":null' in encode(Trace(trace_id="t", task_id="q", events=[ev(extra={"x": None})]))
    with pytest.raises(InputError, match="half of a surrogate pair"):
        wire.encode_event(ev(error="\ud800"))


# -- edges as arrays ---------------------------------------------------------------------------------------------


def events_of(*names: str) -> list[Event]:
    return [ev(name) for name in names]


def array(*listed: tuple[str, str, str]) -> bytes:
    return msgspec.json.encode([Edge(*e) for e in listed])  # type: ignore[arg-type]


TEN = events_of(*(f"e{i}" for i in range(10)))


def test_every_type_is_told_apart_in_a_scan() -> None:
    listed = [(f"e{k}", f"e{9 - k}", name) for k, name in enumerate(EDGE_TYPES)]
    found = scan(array(*listed), TEN)
    assert found is not None
    assert [(e.src, e.dst, e.type) for e in found] == listed
    assert found.type.tolist() == list(range(8))


@pytest.mark.parametrize(
    "name",
    ["causa", "causall", "cause", "spaw", "tool_dependencz", "tool_dependenc", "tool_depxndency", "x", "temporak", "zzzzzzzz", "safety_flov"],
)
def test_a_type_that_is_nearly_one_is_none(name: str) -> None:
    good = ("e1", "e2", "tool_dependency")
    assert scan(array(good, ("e3", "e4", "safety_flow")), TEN) is not None
    assert scan(array(good, ("e3", "e4", name)), TEN) is None
    assert scan(array(("e3", "e4", name), good), TEN) is None


@pytest.mark.parametrize(
    ("ids", "edge", "is_found"),
    [
        (("e5", "e7", "e6"), ("e7", "e5"), True),
        (("e5", "e7", "e6"), ("e4", "e5"), False),
        (("e5", "e7", "e6"), ("e5", "e8"), False),
        (("e5", "e7"), ("e5", "e6"), False),
        (("e5", "e7"), ("e6", "e5"), False),
        (("e5", "e5"), ("e5", "e5"), False),
        (("e0", "e1039"), ("e1039", "e0"), True),
        (("e0", "e1040"), ("e1040", "e0"), False),
    ],
)
def test_every_end_must_be_an_event(ids: tuple[str, ...], edge: tuple[str, str], is_found: bool) -> None:
    found = scan(array((*edge, "causal"), (*edge[::-1], "spawn")), events_of(*ids))
    assert (found is not None) is is_found
    if found is not None:
        assert [(e.src, e.dst) for e in found] == [edge, edge[::-1]]


def test_what_is_no_array_of_edges_needs_a_decoder() -> None:
    whole = array(("e1", "e2", "causal"), ("e2", "e3", "causal"))
    assert scan(whole, TEN) is not None
    assert scan(b" \n" + whole + b"\t ", TEN) is not None
    for broken in (
        b"[]",
        b"",
        whole[:-1],
        whole[:-1] + b",]",
        whole + b"]",
        b"x" + whole,
        b"[" + whole,
        whole.replace(b"},{", b"} {"),
        whole.replace(b"},{", b"},,{"),
        whole.replace(b'"e3"', b"3"),
        whole.replace(b'"src":', b'"src";'),  # all alike, and all wrong
        whole.replace(b'"src"', b'"scr"'),
        whole.replace(b'"src"', b'"dst"').replace(b',"dst"', b',"src"'),
        whole.replace(b'"causal"}', b'"causal"]'),
        whole.replace(b"e3", b"e\\u0033"),
        whole[:-2] + b',"x":1}]',
        whole[:-1] + b',{"src":"e1"}]',
    ):
        assert scan(broken, TEN) is None, broken
    assert scan(whole, []) is None


def test_one_edge_is_an_array_too() -> None:
    found = scan(array(("e1", "e2", "causal")), TEN)
    assert found is not None
    assert list(found) == [Edge("e1", "e2", "causal")]


@pytest.mark.parametrize("chunk", [1, 41, 45, 90, 200])
def test_chunks_end_with_an_edge_wherever_they_are_cut(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "_CHUNK", chunk)
    listed = [(f"e{i % 10}", f"e{(i * 7) % 10}", EDGE_TYPES[i % 8]) for i in range(12)]
    raw = array(*listed)
    found = scan(raw, TEN)
    assert found is not None
    assert [(e.src, e.dst, e.type) for e in found] == listed
    assert scan(raw.replace(b'},{"src":"e8"', b'} ,{"src":"e8"'), TEN) is None
    assert scan(raw.replace(b'"e8"', b'"e10"'), TEN) is None


def test_a_chunk_ends_after_the_first_object_that_ends_there_or_later() -> None:
    text = np.frombuffer(b"{a},{b},{c}" + b" " * 5000, np.uint8)
    assert [edges._next_break(text, after) for after in (0, 2, 3, 6, 10)] == [3, 3, 7, 7, 11]
    assert edges._next_break(text, 11) == edges._next_break(text, len(text)) == edges._next_break(text, len(text) + 9) == len(text)


def test_edges_compare_as_sequences_do() -> None:
    found = Edges(TEN, np.array([0, 1], np.int32), np.array([1, 2], np.int32), np.array([1, 2], np.uint8))
    listed = [Edge("e0", "e1", "causal"), Edge("e1", "e2", "spawn")]
    assert found == listed
    assert found == tuple(listed)
    assert found != listed[::-1]
    assert found != listed[:1]
    assert found != "ab"
    assert found != 3
    assert (found == 3) is (found == "ab") is False
    assert (len(found), found[-1], found[1:], found[::-1]) == (2, listed[1], listed[1:], listed[::-1])
    assert Edges.__hash__ is None
