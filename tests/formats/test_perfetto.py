"""The timeline file, held to what Chrome's trace-event format and Perfetto's importer ask of it."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint import registry
from counterpoint.errors import InvalidTrace
from counterpoint.formats.perfetto import Threads
from counterpoint.testing import SHAPES, odd_trace, synthetic_trace
from counterpoint.trace import Edge, Event, Trace, decode
from survey import documents


def _written(trace: Trace) -> dict[str, Any]:
    file: dict[str, Any] = json.loads(registry.get("format", "perfetto").write(trace))
    return file


def _assert_valid(trace: Trace) -> list[dict[str, Any]]:
    """Every rule of the format that a reader relies on; returns the records."""
    file = _written(trace)
    assert file["displayTimeUnit"] in ("ms", "ns")
    records: list[dict[str, Any]] = file["traceEvents"]
    for r in records:
        assert r["ph"] in ("M", "X", "i", "s", "f", "C")
        assert type(r["pid"]) is int
        assert type(r["tid"]) is int
        assert type(r["ts"]) is int
        assert r["ts"] >= 0
        assert isinstance(r["name"], str)
    slices = [r for r in records if r["ph"] in "Xi"]
    assert sorted(r["args"]["id"] for r in slices) == sorted(e.id for e in trace.events)
    assert all(type(r["dur"]) is int and r["dur"] >= 0 for r in slices if r["ph"] == "X")
    assert all(r["s"] == "t" and "dur" not in r for r in slices if r["ph"] == "i")
    _assert_nested(slices)
    _assert_flows(records)
    named = {r["tid"] for r in records if r["name"] == "thread_name"}
    assert {r["tid"] for r in slices} == named
    assert not named & {r["pid"] for r in records}
    assert [r["args"]["name"] for r in records if r["name"] == "process_name"] == [trace.trace_id]
    for r in records:
        if r["ph"] == "C":
            assert all(type(v) is int and v >= 0 for v in r["args"].values())
    return records


def _assert_nested(slices: list[dict[str, Any]]) -> None:
    threads = defaultdict(list)
    for r in slices:
        threads[r["tid"]].append((r["ts"], r["ts"] + r.get("dur", 0)))
    for spans in threads.values():
        open_: list[int] = []
        for start, end in spans:  # in file order, which a reader sorts stably by start
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1]
            open_.append(end)
        assert [s for s, _ in spans] == sorted(s for s, _ in spans)


def _assert_flows(records: list[dict[str, Any]]) -> None:
    """Each arrow has one start and one end, in this order, each right behind a slice of its thread at the same time."""
    ends: dict[tuple[int, str, str], list[tuple[str, int]]] = defaultdict(list)
    last_slice: dict[int, int] = {}
    for place, r in enumerate(records):
        if r["ph"] in "Xi":
            last_slice[r["tid"]] = r["ts"]
        elif r["ph"] in "sf":
            assert last_slice[r["tid"]] == r["ts"]
            assert r.get("bp") == ("e" if r["ph"] == "f" else None)
            ends[r["id"], r["cat"], r["name"]].append((r["ph"], place))
    assert all([phase for phase, _ in pair] == ["s", "f"] for pair in ends.values())
    assert len({key[0] for key in ends}) == len(ends)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(shape: str) -> None:
    trace = synthetic_trace(12, 120, shape)
    records = _assert_valid(trace)
    wanted = [e for e in trace.edges if e.type in ("spawn", "message", "return", "aggregate", "safety_flow")]
    assert sum(r["ph"] == "s" for r in records) == len(wanted)
    assert max(r["args"]["agents"] for r in records if r["name"] == "agents alive") > 1
    total = [r["args"] for r in records if r["name"] == "tokens"][-1]
    assert total["read"] + total["written"] == trace.costs["tokens"]


@settings(max_examples=60, deadline=None)
@given(documents())
def test_any_valid_document_with_times_in_range(document: dict[str, Any]) -> None:
    for i, event in enumerate(document["events"]):
        event["id"] = f"{i}:{event['id']}"
        event["t"] = event["t"] % 1000
        event.pop("dur", None)
    _assert_valid(decode(json.dumps(document).encode()))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.none() | st.integers(0, 9)), min_size=1, max_size=25))
def test_overlapping_work_of_one_agent_gets_further_threads(acts: list[tuple[str, int, int | None]]) -> None:
    events = [Event(id=f"e{i}", t=t, type="tool_call", agent=a, dur=d) for i, (a, t, d) in enumerate(acts)]
    edges = [Edge(f"e{i}", f"e{i + 1}", "message") for i in range(len(events) - 1)]
    _assert_valid(Trace(trace_id="t", task_id="t", events=events, edges=edges))


def test_times_are_microseconds_and_meet_where_they_met() -> None:
    events = [
        Event(id="a", t=0.1, type="tool_call", agent="x", dur=0.2, tool="search"),
        Event(id="b", t=0.1 + 0.2, type="tool_result", agent="x", dur=0.7),
        Event(id="c", t=1.0, type="orchestrator_decision", agent="x", decision="stop"),
    ]
    a, b, c = (r for r in _assert_valid(Trace(trace_id="t", task_id="t", events=events)) if r["ph"] in "Xi")
    assert (a["ts"], a["dur"], a["name"], a["cat"]) == (100_000, 200_000, "search", "tool_call")
    assert (b["ts"], b["dur"]) == (300_000, 700_000)
    assert (c["ts"], c["ph"], c["name"]) == (1_000_000, "i", "decide stop")
    assert a["tid"] == b["tid"] == c["tid"]


def test_the_critical_path_is_marked() -> None:
    events = [
        Event(id="a", t=0, type="spawn", agent="x", dur=1),
        Event(id="b", t=1, type="tool_call", agent="y", dur=5),
        Event(id="c", t=1, type="tool_call", agent="z", dur=2),
        Event(id="d", t=6, type="aggregate", agent="x", dur=1),
    ]
    edges = [Edge("a", "b", "spawn"), Edge("a", "c", "spawn"), Edge("b", "d", "return"), Edge("c", "d", "return")]
    records = _assert_valid(Trace(trace_id="t", task_id="t", events=events, edges=edges))
    marked = {r["args"]["id"] for r in records if r["ph"] == "X" and r["args"].get("critical_path")}
    assert marked == {"a", "b", "d"}
    assert all(("critical" in r["cat"]) == (r["args"]["id"] in marked) for r in records if r["ph"] == "X")


def test_edges_to_nowhere_or_backwards_are_left_out() -> None:
    events = [Event(id="a", t=5, type="message", agent="x"), Event(id="b", t=1, type="message", agent="y")]
    edges = [Edge("a", "b", "message"), Edge("a", "gone", "message")]
    records = _assert_valid(Trace(trace_id="t", task_id="t", events=events, edges=edges))
    assert not [r for r in records if r["ph"] in "sf"]


@pytest.mark.parametrize("fields", [{"t": 1e300}, {"t": float("nan")}, {"t": -1}, {"t": 1, "dur": -2}, {"t": float("inf")}])
def test_times_that_no_timeline_holds_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(InvalidTrace):
        _written(Trace(trace_id="t", task_id="t", events=[Event(id="a", type="message", agent="x", **fields)]))  # type: ignore[arg-type]


def test_threads_by_hand() -> None:
    threads = Threads(first=7)
    assert [threads.place("a", *span) for span in ((0, 10), (2, 5), (5, 10), (6, 12), (10, 11))] == [7, 7, 7, 8, 7]
    assert list(threads.threads()) == [(7, "a", 1), (8, "a", 2)]


def test_odd_names_and_numbers() -> None:
    _assert_valid(odd_trace())


def test_a_negative_number_of_tokens_does_not_turn_a_counter_back() -> None:
    event = {"id": "0", "t": 0, "type": "orchestrator_decision", "agent": "0", "tokens_in": -1, "tokens_out": 3}
    document = {"trace_id": "0", "task_id": "0", "events": [event], "edges": [], "rewards": {}, "costs": {"tokens": 0, "wall_clock_s": 0}}
    records = _assert_valid(decode(json.dumps(document).encode()))
    assert [r["args"] for r in records if r["ph"] == "C" and r["name"] == "tokens"] == [{"read": 0, "written": 3}]
