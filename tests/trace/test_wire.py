"""Round trips: what passes the survey's schema comes back field for field, number for number."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from counterpoint.errors import InputError, InvalidTrace
from counterpoint.trace import Edge, Event, Trace, decode, encode, wire
from counterpoint.trace.records import OUR_FIELDS
from survey import anything, documents, validator


def same(a: Any, b: Any) -> bool:
    """Equal in JSON's sense: types count (1 is not 1.0 here, and true is not 1), order of keys does not."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and repr(a) == repr(b)


def document(**fields: Any) -> dict[str, Any]:
    event = {"id": "a", "t": 0, "type": "message", "agent": "x"}
    costs = {"tokens": 0, "wall_clock_s": 0}
    return {"trace_id": "t", "task_id": "q", "events": [event], "edges": [], "rewards": {}, "costs": costs} | fields


@settings(max_examples=120, deadline=None)
@given(documents())
def test_whatever_passes_the_schema_is_read_and_written_back_whole(doc: dict[str, Any]) -> None:
    validator.validate(doc)
    trace = decode(json.dumps(doc).encode())
    again = json.loads(encode(trace))
    assert same(again, doc)
    validator.validate(again)
    assert decode(encode(trace)) == trace


@settings(max_examples=80, deadline=None)
@given(anything)
def test_a_field_of_our_name_with_another_type_is_kept(value: Any) -> None:
    for name in (*OUR_FIELDS, "extra", "no_such_field"):
        event = {"id": "a", "t": 0, "type": "message", "agent": "x", name: value}
        assert same(json.loads(wire.encode_event(wire.decode_event(json.dumps(event).encode()))), event), name


def test_null_is_not_absent() -> None:
    doc = document(events=[{"id": "a", "t": 0, "type": "message", "agent": "x", "dur": None, "tokens_in": None}])
    event = decode(json.dumps(doc).encode()).events[0]
    assert event.dur is None
    assert event.extra == {"dur": None, "tokens_in": None}
    assert same(json.loads(encode(decode(json.dumps(doc).encode()))), doc)


def test_a_negative_duration_stays_in_its_field() -> None:
    doc = document(events=[{"id": "a", "t": 0, "type": "message", "agent": "x", "dur": -1.5, "note": 1}])
    event = decode(json.dumps(doc).encode()).events[0]
    assert (event.dur, event.extra) == (-1.5, {"note": 1})


def test_empty_metrics_and_no_metrics_differ() -> None:
    assert decode(json.dumps(document(metrics={})).encode()).metrics == {}
    assert decode(json.dumps(document()).encode()).metrics is None


def test_a_byte_order_mark_is_read_over() -> None:
    assert decode(b"\xef\xbb\xbf" + json.dumps(document()).encode()).trace_id == "t"


def test_typed_fields_become_attributes() -> None:
    fields = {"role": "lead", "from": "x", "dur": 2, "tokens_in": 3, "decision": "spawn", "options": ["a"], "reward": {"R1": 1.0}}
    event = decode(json.dumps(document(events=[{"id": "a", "t": 0, "type": "message", "agent": "x"} | fields])).encode()).events[0]
    assert (event.from_, event.dur, event.decision, event.options, event.reward) == ("x", 2, "spawn", ["a"], {"R1": 1.0})
    assert event.extra is None


def test_what_the_schema_refuses_is_refused_with_every_problem() -> None:
    bad = document(events=[{"id": "", "t": -1, "type": "nope", "agent": 3}], surplus=1)
    with pytest.raises(InvalidTrace) as caught:
        decode(json.dumps(bad).encode())
    assert {p.where for p in caught.value.problems} == {"$.surplus", "events[0].id", "events[0].t", "events[0].type", "events[0].agent"}
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "event",
    [
        Event(id="a", t=0, type="message", agent="x", dur=float("nan")),
        Event(id="a", t=0, type="message", agent="x", extra={"deep": [{"x": float("inf")}]}),
        Event(id="a", t=0, type="message", agent="x", reward={"R1": float("-inf")}),
    ],
)
def test_no_nan_is_ever_written(event: Event) -> None:
    trace = Trace(trace_id="t", task_id="q", events=[event])
    with pytest.raises(InvalidTrace, match="not a JSON number"):
        encode(trace)


def test_half_a_surrogate_pair_is_an_input_error() -> None:
    trace = Trace(trace_id="t", task_id="q", events=[Event(id="\ud800", t=0, type="message", agent="x")])
    with pytest.raises(InputError, match="surrogate"):
        encode(trace)


def test_missing_costs_are_counted_from_the_events() -> None:
    events = [Event(id="a", t=1, type="tool_call", agent="x", tokens_in=3, tokens_out=4, dur=2)]
    written = json.loads(encode(Trace(trace_id="t", task_id="q", events=events)))
    assert written["costs"] == {"tokens": 7, "wall_clock_s": 2}


def test_meta_and_contents_stay_behind() -> None:
    event = Event(id="a", t=0, type="message", agent="x", content_ref="r")
    trace = Trace(trace_id="t", task_id="q", events=[event], meta={"secret": 1}, contents={"r": "hush"})
    assert b"secret" not in encode(trace)
    assert b"hush" not in encode(trace)


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Event(id="a", t=0, type="message", agent="x").id = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Edge("a", "b", "causal").src = "c"  # type: ignore[misc]
    assert msgspec.json.encode(Edge("a", "b", "causal")) == b'{"src":"a","dst":"b","type":"causal"}'
