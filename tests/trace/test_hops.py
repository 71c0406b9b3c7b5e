"""Trace context on the wire, and recordings of two sides as one trace."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from counterpoint.trace import Edge, Event, Trace, problems
from counterpoint.trace.hops import (
    CALLER,
    HOPS,
    JOINED,
    Hop,
    caller_of,
    hop_of,
    is_called,
    name_for_call,
    run_key,
    span_key,
    whole_run,
    with_parts_of,
)

RUN, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OWN, CALL = "a" * 32, "b" * 16


def test_trace_context_goes_and_comes() -> None:
    hop = Hop(OWN, CALL)
    assert hop.carrier() == {"traceparent": f"00-{OWN}-{CALL}-01", "tracestate": f"counterpoint={OWN}-{CALL}"}
    assert hop_of(hop.carrier()) == hop
    inside = hop.carrier(f"00-{RUN}-{SPAN}-00", f"vendor=1,counterpoint={RUN}-{SPAN}")
    assert inside == {"traceparent": f"00-{RUN}-{SPAN}-00", "tracestate": f"counterpoint={OWN}-{CALL},vendor=1"}
    assert hop_of(inside) == hop
    assert hop_of({"TraceParent": f"00-{RUN}-{SPAN}-01", "TRACESTATE": "vendor=1"}) == Hop(RUN, SPAN)
    assert hop_of({"traceparent": f"cc-{RUN}-{SPAN}-01-what-comes-later"}) == Hop(RUN, SPAN)


@pytest.mark.parametrize(
    "carrier",
    [
        None, {}, {"traceparent": 7}, {"traceparent": ""}, {"tracestate": f"counterpoint={OWN}-{CALL}"},
        {"traceparent": f"ff-{RUN}-{SPAN}-01"}, {"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, {"traceparent": f"00-{RUN}-{'0' * 16}-01"},
        {"traceparent": f"00-{RUN.upper()}-{SPAN}-01"}, {"traceparent": f"00-{RUN}-{SPAN}"}, {"traceparent": f"00-{RUN}-{SPAN}-01" * 99},
    ],
)  # fmt: skip
def test_what_is_no_trace_context_says_nothing(carrier: Any) -> None:
    assert hop_of(carrier) is None


def test_ids_of_what_was_called() -> None:
    name = name_for_call("ask", Hop(RUN, SPAN), "12345678")
    assert name == "ask-hop-4bf92f3577b34da6-12345678"
    assert is_called(name, RUN)
    assert not is_called(name, OWN)
    assert caller_of({CALLER: {"run": RUN, "span": SPAN}}) == Hop(RUN, SPAN)
    assert caller_of({CALLER: {"run": RUN}}) is caller_of({CALLER: "x"}) is caller_of({}) is None


def root() -> Trace:
    """A lead calls a tool from second 1 to 4, and stops."""
    events = [
        Event(id="e1", t=1.0, dur=3.0, type="tool_call", agent="lead", tool="ask", content_ref="q"),
        Event(id="e2", t=4.0, type="tool_result", agent="lead", tool="ask", trusted=False, content_ref="a"),
        Event(id="e3", t=5.0, type="orchestrator_decision", agent="lead", decision="stop"),
    ]
    edges = [Edge("e1", "e2", "tool_dependency"), Edge("e2", "e3", "causal")]
    costs = {"tokens": 0, "wall_clock_s": 4.0}
    return Trace(
        trace_id="r",
        task_id="t",
        events=events,
        edges=edges,
        costs=costs,
        meta={"began": 100.0, HOPS: True},
        contents={"q": "why", "a": "so"},
    )


def served(own: str, span: str, began: float, **meta: Any) -> Trace:
    """What a server did for a call: a step of a model, in which it calls on, and a stop."""
    call = {"prompt": {"of": "e0", "first": 1, "more": []}, "prompt_ids": [["e0", 0, 3], 7]}
    events = [
        Event(id="e0", t=0.0, dur=0.5, type="message", agent="lead", tokens_in=5, tokens_out=2, key="k"),
        Event(id="e1", t=0.5, dur=0.5, type="tool_call", agent="lead", tool="deeper", extra={"call": call}),
        Event(id="e2", t=1.0, type="tool_result", agent="lead", tool="deeper"),
        Event(id="e3", t=1.5, type="orchestrator_decision", agent="lead", decision="stop"),
    ]
    edges = [Edge("e0", "e1", "causal"), Edge("e1", "e2", "tool_dependency"), Edge("e2", "e3", "causal")]
    about = {"began": began, CALLER: {"run": run_key("r"), "span": span}, **meta}
    name = name_for_call("ask", Hop(run_key("r"), span), own)
    return Trace(trace_id=name, task_id="ask", events=events, edges=edges, costs={"tokens": 7, "wall_clock_s": 1.5}, meta=about)


def clean(trace: Trace) -> list[str]:
    return [str(p) for p in problems(trace) if p.severity == "error"]


def test_a_recording_becomes_a_sub_agent_of_the_call() -> None:
    whole = whole_run(root(), [served("11", span_key("r", "e1"), 101.5)])
    assert clean(whole) == []
    assert [(e.id, e.t, e.agent) for e in whole.events] == [
        ("e1", 1.0, "lead"), ("hop11/spawn", 1.5, "lead"), ("hop11/e0", 1.5, "lead-2"), ("hop11/e1", 2.0, "lead-2"),
        ("hop11/e2", 2.5, "lead-2"), ("hop11/e3", 3.0, "lead-2"), ("hop11/return", 3.0, "lead-2"), ("e2", 4.0, "lead"), ("e3", 5.0, "lead"),
    ]  # fmt: skip
    new = {(e.src, e.dst, e.type) for e in whole.edges} - {(e.src, e.dst, e.type) for e in root().edges}
    assert new == {
        ("e1", "hop11/spawn", "causal"), ("hop11/spawn", "hop11/e0", "spawn"), ("hop11/e0", "hop11/e1", "causal"),
        ("hop11/e1", "hop11/e2", "tool_dependency"), ("hop11/e2", "hop11/e3", "causal"), ("hop11/e3", "hop11/return", "causal"),
        ("hop11/return", "e2", "return"),
    }  # fmt: skip
    by = {e.id: e for e in whole.events}
    assert (by["hop11/spawn"].to, by["hop11/spawn"].content_ref, by["hop11/return"].to, by["hop11/return"].content_ref) == (
        "lead-2",
        "q",
        "lead",
        "a",
    )
    assert by["hop11/return"].trusted is False
    note = (by["hop11/e1"].extra or {})["call"]
    assert (note["prompt"]["of"], note["prompt_ids"]) == ("hop11/e0", [["hop11/e0", 0, 3], 7])
    assert by["hop11/e0"].key == "hop11/k"
    assert whole.costs == {"tokens": 7, "wall_clock_s": 4.0}
    assert whole.tokens == 7


@pytest.mark.parametrize(("began", "first"), [(0.0, 1.0), (1e9, 2.5), (102.0, 2.0), (None, 1.0)])
def test_a_clock_that_goes_wrong_is_set_into_the_call(began: float | None, first: float) -> None:
    part = served("11", span_key("r", "e1"), began or 0.0)
    if began is None:
        part = replace(part, meta={k: v for k, v in part.meta.items() if k != "began"})
    whole = whole_run(root(), [part])
    assert clean(whole) == []
    assert next(e.t for e in whole.events if e.id == "hop11/e0") == first


def test_calls_of_calls_join_whichever_comes_first() -> None:
    one = served("11", span_key("r", "e1"), 101.5)
    two = served("22", span_key(one.trace_id, "e1"), 102.1)
    both = whole_run(root(), [two, one])
    assert clean(both) == []
    assert whole_run(whole_run(root(), [one]), [two]) == whole_run(root(), [one, two]) == both
    assert {e.to: e.agent for e in both.events if e.type == "spawn"} == {"lead-2": "lead", "lead-3": "lead-2"}
    assert ("hop22/return", "hop11/e2", "return") in {(e.src, e.dst, e.type) for e in both.edges}
    assert whole_run(both, [one, two]) == both
    assert whole_run(root(), [two]) == root()  # who called it is not there


def test_nobody_is_joined_to_what_is_not_there() -> None:
    assert whole_run(root(), [served("11", span_key("r", "e9"), 101.5)]) == root()


def test_a_call_without_an_answer_has_a_spawn_and_no_return() -> None:
    cut = replace(root(), events=root().events[:1], edges=[])
    whole = whole_run(cut, [served("11", span_key("r", "e1"), 101.5)])
    assert clean(whole) == []
    assert [e.type for e in whole.events if e.id in ("hop11/spawn", "hop11/return")] == ["spawn"]


def test_the_caller_comes_again_and_keeps_what_was_joined() -> None:
    whole = whole_run(root(), [served("11", span_key("r", "e1"), 101.5)])
    scored = replace(root(), rewards={"team": 1}, costs={"tokens": 3, "wall_clock_s": 4.0})
    again = with_parts_of(scored, whole)
    assert again.events == whole.events
    assert set(map(repr, again.edges)) == set(map(repr, whole.edges))
    assert (again.rewards, again.costs["tokens"], list(again.meta[JOINED])) == ({"team": 1}, 10, ["hop11"])
    assert with_parts_of(whole, whole) is whole
    assert with_parts_of(scored, root()) is scored
