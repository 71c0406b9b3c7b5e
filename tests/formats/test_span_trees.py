"""Spans of any tracer become the same traces: who is whose sub-agent, who said what, and each token once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logs
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.spans.span import Kind, Span
from counterpoint.formats.spans.trees import traces_of
from counterpoint.trace import Trace


def S(id: str, kind: Kind, parent: str | None = None, start: float | None = 0.0, end: float | None = None, **more: Any) -> Span:
    return Span(id=id, trace="t", parent=parent, kind=kind, name=more.pop("name", id), start=start, end=end, **more)


def one(*spans: Span) -> Trace:
    (trace,) = traces_of(spans, Session("s", []), system="test")
    logs.assert_sound(trace)
    return trace


def shown(trace: Trace) -> list[tuple[str, str, str | None]]:
    return [(e.type, e.agent, e.to) for e in trace.events]


def links(trace: Trace) -> dict[str, Any]:
    return dict(trace.meta["import"].get("links", {}))


def edges(trace: Trace, kind: str) -> set[tuple[str, str]]:
    return {(e.src, e.dst) for e in trace.edges if e.type == kind}


def team() -> list[Span]:
    return [
        S("lead", "agent", None, 0, 20, agent="planner", input="plan a trip", usage=Usage(30, output=6)),
        S("l1", "llm", "lead", 1, 2, usage=Usage(10, output=2), model="m", output="ask the guide"),
        S("call", "tool", "lead", 3, 9, tool="ask_guide", input="which town?", output="Ghent", call="c1"),
        S("sub", "agent", "call", 3.5, 8.5, agent="guide"),
        S("l2", "llm", "sub", 4, 5, usage=Usage(7, output=1), output="looking"),
        S("find", "tool", "sub", 5, 6, tool="search", input="towns", output="Ghent, Bruges"),
        S("l3", "llm", "sub", 6, 8, usage=Usage(9, output=3), output="Ghent"),
        S("l4", "llm", "lead", 10, 12, usage=Usage(13, output=4), output="go to Ghent"),
    ]


def test_an_agent_inside_a_tool_is_a_sub_agent_and_the_tool_is_no_call() -> None:
    trace = one(*team())
    assert shown(trace) == [
        ("human_intervention", "user", "lead"),
        ("orchestrator_decision", "lead", None),
        ("spawn", "lead", "sub"),
        ("message", "sub", None),
        ("tool_call", "sub", None),
        ("tool_result", "sub", None),
        ("return", "sub", "lead"),
        ("orchestrator_decision", "lead", None),
    ]
    assert logs.tokens(trace) == {"lead": (23, 6), "sub": (16, 4)}
    assert links(trace) == {"exact": {"an agent span inside its caller's": 1}}
    spawn = trace.events[2]
    assert (spawn.role, trace.contents[spawn.content_ref or ""], spawn.extra) == (
        "guide", "which town?", {"tool_call": "c1", "source_tool": "ask_guide"}
    )  # fmt: skip
    assert ("sub", "l2") in edges(trace, "spawn")
    assert ("l3", "l4") in edges(trace, "return")
    assert ("find", "find:result") in edges(trace, "tool_dependency")
    assert ("find:result", "l3") in edges(trace, "safety_flow")
    result = next(e for e in trace.events if e.type == "tool_result")
    assert (result.trusted, result.source) == (False, "tool")


def test_the_order_of_the_records_does_not_matter() -> None:
    assert one(*reversed(team())).events == one(*team()).events


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_trace_that_grows_keeps_its_ids(cut: int) -> None:
    ended = sorted(team(), key=lambda s: s.end or 0)  # as exporters write: on end, so children before parents
    assert {e.id for e in one(*ended[:cut]).events} - {e.id for e in one(*ended).events} <= {
        "call", "call:result", "l1:input", "l2:input"  # what was a call until the agent inside it was seen
    }  # fmt: skip


def test_wrappers_of_model_calls_count_no_tokens() -> None:
    trace = one(
        S("a", "agent", None, 0, 9, agent="x", usage=Usage(5, output=5)),
        S("outer", "llm", "a", 1, 4, usage=Usage(5, output=5), output="said"),
        S("chain", "chain", "outer", 1, 4),
        S("inner", "llm", "chain", 1, 4, usage=Usage(5, output=5)),
    )
    assert logs.tokens(trace) == {"a": (5, 5)}
    (step,) = [e for e in trace.events if e.tokens_in]
    assert (step.id, trace.contents[step.content_ref or ""]) == ("inner", "said")


def test_tokens_that_only_a_wrapper_knows_are_counted_once() -> None:
    trace = one(
        S("w", "llm", None, 0, 9, usage=Usage(8, output=2), model="m"), S("i", "llm", "w", 1, 2), S("j", "llm", "w", 3, 4)
    )
    assert [(e.id, e.tokens_in, e.model) for e in trace.events] == [("i", None, None), ("j", 8, "m")]


def test_an_agent_of_which_only_the_sum_is_known() -> None:
    trace = one(
        S("a", "agent", None, 0, 9, agent="lead", usage=Usage(50, output=5)),
        S("b", "agent", "a", 1, 8, agent="remote", usage=Usage(40, output=4), output="done"),
    )
    assert logs.tokens(trace) == {"b": (40, 4)}
    assert shown(trace) == [("spawn", "a", "b"), ("return", "b", "a"), ("orchestrator_decision", "a", None)]
    assert trace.events[1].dur == 7, "nothing inside says what it did: it worked from its beginning to its end"


def test_one_response_told_by_two_instrumentations() -> None:
    both = [S(i, "llm", None, 1, 2, usage=Usage(3, output=1), extra={"response_id": "r"}) for i in ("x", "y")]
    trace = one(*both, S("z", "llm", None, 3, 4, usage=Usage(3, output=1), extra={"response_id": "other"}))
    assert logs.tokens(trace) == {"main": (6, 2)}


def test_a_model_call_around_a_sub_agent_is_no_wrapper() -> None:
    trace = one(
        S("l", "llm", None, 0, 9, usage=Usage(3, output=1)),
        S("t", "tool", "l", 1, 8, tool="ask"),
        S("b", "agent", "t", 1, 8, agent="sub"),
        S("m", "llm", "b", 2, 3, usage=Usage(2, output=1)),
    )
    assert logs.tokens(trace) == {"main": (3, 1), "b": (2, 1)}
    assert shown(trace)[1] == ("spawn", "main", "b")


def test_handoff_spans_and_siblings_under_one_workflow() -> None:
    spans = [
        S("w", "chain", None, 0, 20),
        S("a", "agent", "w", 0, 5, agent="triage", input="my bill"),
        S("l1", "llm", "a", 1, 2),
        S("h", "handoff", "a", 4, 4.5, to="billing"),
        S("b", "agent", "w", 5, 9, agent="billing"),
        S("l2", "llm", "b", 6, 7),
        S("c", "agent", "w", 10, 12, agent="closing"),
        S("l3", "llm", "c", 11, 12),
    ]
    trace = one(*spans)
    assert [(e.id, e.agent, e.to) for e in trace.events if e.type == "message" and e.to] == [("h", "a", "b"), ("c", "b", "c")]
    assert links(trace) == {
        "exact": {"a handoff span": 1},
        "inferred": {"agent spans one after the other under one workflow": 1},
    }
    assert {("h", "l2"), ("c", "l3")} <= edges(trace, "message")


def test_a_handoff_to_nobody_is_said() -> None:
    trace = one(S("a", "agent", None, 0, 5, agent="triage"), S("h", "handoff", "a", 4, 4.5, to="billing", ok=False, error="x"))
    assert [(e.type, e.to, e.ok) for e in trace.events] == [("message", "billing", False)]
    assert links(trace) == {"unlinked": 1}


def test_turns_of_one_agent_are_one_agent_and_agents_at_one_time_are_led() -> None:
    turns = one(
        S("w", "chain", None, 0, 20),
        *(S(f"a{i}", "agent", "w", 3 * i, 3 * i + 2, agent="bot", input=f"turn {i}") for i in range(3)),
        *(S(f"l{i}", "llm", f"a{i}", 3 * i + 1, 3 * i + 2) for i in range(3)),
    )
    assert turns.agents == ["user", "a0"]
    assert links(turns) == {}
    at_once = one(
        S("w", "chain", None, 0, 20),
        S("a", "agent", "w", 1, 9, agent="bot", output="x"),
        S("b", "agent", "w", 1, 9, agent="bot", output="y"),
    )
    assert shown(at_once)[:2] == [("spawn", "main", "a"), ("spawn", "main", "b")]
    assert links(at_once) == {"inferred": {"agent spans of one workflow at one time": 2}}


def test_an_agent_within_the_time_of_one_tool_call_is_that_tools() -> None:
    spans = [
        S("w", "chain", None, 0, 30),
        S("a", "agent", "w", 0, 20, agent="lead"),
        S("t", "tool", "a", 2, 9, tool="ask_math", output="4"),
        S("u", "tool", "a", 3, 9.5, tool="ask_law"),
        S("b", "agent", "w", 3, 8, agent="math"),
        S("c", "agent", "w", 4, 8, agent="history"),
        S("d", "agent", "w", 21, 22, agent="closing"),
    ]
    trace = one(*spans)
    assert [(e.agent, e.to) for e in trace.events if e.type == "spawn"] == [
        ("main", "a"), ("a", "b"), ("main", "c"), ("main", "d")  # history runs beside two calls: whose it is nothing says
    ]  # fmt: skip
    assert [e.tool for e in trace.events if e.type == "tool_call"] == ["ask_law"]
    assert links(trace)["inferred"]["an agent span within the time of a tool call"] == 1
    assert one(*[s for s in spans if s.id in "watd"]).meta["import"]["links"] == {
        "inferred": {"agent spans one after the other under one workflow": 1}
    }


def test_agents_beside_the_main_agents_steps_are_its_own() -> None:
    trace = one(
        S("w", "chain", None, 0, 20, name="crew"),
        S("p", "llm", "w", 1, 2, usage=Usage(1, output=1)),
        S("a", "agent", "w", 3, 4, agent="bot", output="x"),
        S("q", "llm", "w", 5, 6, usage=Usage(1, output=1)),
        S("b", "agent", "w", 7, 8, agent="other", output="y"),
    )
    assert shown(trace)[1] == ("spawn", "main", "a")
    assert ("a:return", "q") in edges(trace, "return")
    assert (trace.events[0].role, trace.topology) == ("crew", "centralized")


def test_one_agent_is_no_team() -> None:
    """What is beside the only agent is its work too: no parent is inferred for it."""
    trace = one(
        S("w", "chain", None, 0, 20, name="main"),
        S("p", "llm", "w", 1, 2, usage=Usage(1, output=1)),
        S("a", "agent", "w", 3, 4, agent="bot", output="x"),
        S("q", "llm", "w", 5, 6, usage=Usage(1, output=1)),
        S("b", "agent", "w", 7, 8, agent="bot", output="y"),
    )
    assert (trace.agents, trace.topology, links(trace)) == (["a"], "unknown", {})
    sub = one(
        S("w", "chain", None, 0, 20, name="main"),
        S("p", "llm", "w", 1, 2),
        S("a", "agent", "w", 3, 9, agent="bot"),
        S("t", "tool", "a", 4, 8, tool="ask"),
        S("c", "agent", "t", 5, 7, agent="helper"),
    )
    assert (sub.agents, sub.topology) == (["a", "c"], "centralized")


def test_an_agent_of_an_id_is_one_over_traces_of_its_session() -> None:
    """No agent spans at all: model calls and tools that say whose they are."""
    five = [S(f"{kind}{k}{n}", kind, None, 10 * n + k, 10 * n + k + 0.5, agent=f"role{k % 2}", definition=f"id{k}", tool="look" if kind == "tool" else None)
            for n in range(3) for k in range(5) for kind in ("llm", "tool")]  # fmt: skip
    trace = one(*five)
    assert sorted(trace.members) == [f"id{k}" for k in range(5)]
    assert {e.role for e in trace.events if e.agent == "id3"} == {"role1"}
    shared = one(S("a", "llm", None, 0, 1, agent="x", definition="d"), S("b", "llm", None, 2, 3, agent="y", definition="d"))
    assert sorted(shared.members) == ["x", "y"]  # an id that two names share tells nobody apart
    inside = one(S("a", "agent", None, 0, 9, agent="A", definition="d"), S("l", "llm", "a", 1, 2, definition="d"), S("m", "llm", "a", 3, 4, definition="?"))
    assert inside.agents == ["a"]


def test_an_agent_in_a_trace_of_its_own_hangs_on_the_tool_that_is_called_after_it() -> None:
    trace = one(
        S("a", "agent", None, 0, 20, agent="lead"),
        S("t", "tool", "a", 2, 9, tool="ask_math_helper"),
        S("u", "tool", "a", 2, 9, tool="ask_weather"),
        S("c", "agent", None, 3, 8, agent="math_helper"),
        S("d", "agent", None, 30, 38, agent="weather"),
    )
    assert [(e.agent, e.to) for e in trace.events if e.type == "spawn"] == [("a", "c")]


def test_spans_that_share_an_id_are_counted_and_kept() -> None:
    trace = one(
        S("r", "agent", None, 0, 9, agent="a"),
        S("x", "llm", "r", 1, 2, name="first", usage=Usage(5, output=1)),
        S("x", "llm", "r", 3, 4, name="second", usage=Usage(7, output=1)),
        S("y", "llm", "r", 5, None, name="third"),
        S("y", "llm", "r", 5, 6, name="third", output="done"),
        S("z", "llm", "r", 7, 8, name="fourth", output="one"),
        S("z", "llm", "r", 7, 8, name="fourth", output="two"),
    )
    assert sorted(e.id for e in trace.events) == ["x", "x~2", "y", "z"]
    assert trace.meta["import"]["mended"] == {
        "spans that share the id of another span: kept under another id": 1,
        "spans that are told twice and not alike: the later counts": 1,
    }


def test_an_agent_wrapped_in_itself_and_one_that_calls_itself() -> None:
    trace = one(
        S("a", "agent", None, 0, 9, agent="x"),
        S("a2", "agent", "a", 0, 9, agent="x"),
        S("l", "llm", "a2", 1, 2),
        S("t", "tool", "a2", 3, 6, tool="x"),
        S("a3", "agent", "t", 3, 6, agent="x"),
        S("m", "llm", "a3", 4, 5),
    )
    assert trace.agents == ["a", "a3"]
    assert [e.to for e in trace.events if e.type == "spawn"] == ["a3"]


def test_an_agent_set_to_work_twice_is_spawned_once() -> None:
    trace = one(
        S("a", "agent", None, 0, 9, agent="x"),
        S("b", "agent", "a", 1, 2, agent="y", agent_id="Y", output="1"),
        S("c", "agent", "a", 3, 4, agent="y", agent_id="Y", output="2"),
    )
    run = [("spawn", "a", "Y"), ("return", "Y", "a"), ("message", "a", "Y"), ("return", "Y", "a"), ("aggregate", "a", None)]
    assert shown(trace) == run
    assert [(e.t, e.dur) for e in trace.events if e.type == "return"] == [(0, 1), (2, 1)]


def test_a_tool_in_the_same_tool_is_one_call_and_a_failed_start_is_a_spawn_of_nobody() -> None:
    trace = one(
        S("x", "tool", None, 0, 3, tool="read"),
        S("y", "tool", "x", 1, 2, tool="read"),
        S("z", "tool", "y", 1, 2, tool="open"),
        S("s", "tool", None, 4, 5, tool="Agent", to="reviewer", ok=False, error="no such agent"),
    )
    assert [(e.id, e.type) for e in trace.events] == [
        ("x", "tool_call"), ("z", "tool_call"), ("z:result", "tool_result"), ("x:result", "tool_result"),
        ("s", "spawn"), ("s:result", "tool_result"),
    ]  # fmt: skip
    assert (trace.events[4].to, trace.events[4].role, trace.events[4].ok) == (None, "reviewer", False)


def test_guardrails_humans_scores_and_links() -> None:
    trace = one(
        S("a", "agent", None, 0, 20, agent="x", reward={"quality": 0.5}),
        S("l1", "llm", "a", 1, 2, output="may I?"),
        S("g", "guardrail", "a", 2, 2.5, verdict="deny", ok=False),
        S("h", "human", "a", 3, 5, output="yes"),
        S("r", "retriever", "a", 6, 7, input="q", output="docs"),
        S("l2", "llm", "a", 8, 9, output="done", links=["l1"]),
        S("e", "evaluator", "a", 10, 11, reward={"judge": 1.0}, links=["l2"]),
    )
    events = {e.id: e for e in trace.events}
    assert [(e.id, e.type) for e in trace.events] == [
        ("l1", "orchestrator_decision"), ("g", "safety_event"), ("h", "human_intervention"),
        ("r", "tool_call"), ("r:result", "tool_result"), ("l2", "orchestrator_decision"),
    ]  # fmt: skip
    assert (events["g"].extra or {})["verdict"] == "deny"
    assert (events["l2"].reward, trace.rewards) == ({"judge": 1.0}, {"quality": 0.5})
    assert {("l1", "l2"), ("l1", "h")} <= edges(trace, "causal")
    assert ("h", "l2") in edges(trace, "message")


def test_spans_may_lack_parents_times_and_ends() -> None:
    trace = one(
        S("o", "llm", "gone", 1, 2, usage=Usage(1, output=1)),
        S("p", "agent", "gone", 3, None, agent="sub"),
        S("t", "tool", "p", None, None, tool="x"),
        S("u", "tool", "p", 5, None, tool="y", output="said"),
    )
    report = trace.meta["import"]
    assert report["lacks"]["the parents of some spans: taken for roots"] == 2
    assert report["lacks"]["the end of some spans: still running, or lost"] == 3
    assert report["unlinked_first"] == ["agent sub: no span says who set it to work"]
    assert logs.kinds(trace) == {"orchestrator_decision": 1, "tool_call": 2, "tool_result": 1}


def test_spans_that_are_their_own_ancestors() -> None:
    trace = one(S("a", "agent", "b", 0, 5, agent="a"), S("b", "agent", "a", 1, 4, agent="b"), S("l", "llm", "l", 2, 3))
    assert trace.meta["import"]["mended"] == {"spans that are their own ancestors": 1}
    assert ("spawn", "a", "b") in shown(trace)


def test_a_child_whose_clock_is_ahead() -> None:
    trace = one(
        S("a", "agent", None, 10, 20, agent="x"),
        S("b", "agent", "a", 5, 30, agent="y", output="ok"),
        S("l", "llm", "b", 4, 6, usage=Usage(1, output=1)),
    )
    assert shown(trace) == [("spawn", "a", "b"), ("return", "b", "a")]
    assert [(e.t, e.at, e.dur) for e in trace.events] == [(0, 10, None), (0, 4, 2)], "as its caller's clock has it, and as long"
    assert trace.meta["import"]["mended"] == {"clock skew": 1}


def ahead(by: float, **more: Any) -> list[Span]:
    """A worker of 41 s whose clock is wrong by so many seconds, and a caller that waits for it."""
    return [
        S("a", "agent", None, 0, 60, agent="lead", host="one"),
        S("p", "llm", "a", 0, 5, host="one"),
        S("b", "agent", "a", 10 - by, 51 - by, agent="worker", output="ok", **more),
        *(S(f"l{k}", "llm", "b", start - by, start + 10 - by, **more) for k, start in enumerate((10, 20, 30, 41))),
        S("q", "llm", "a", 52, 60, host="one"),
    ]


def test_an_agent_with_a_clock_of_its_own_is_moved_as_a_whole() -> None:
    right, wrong = one(*ahead(0, host="two")), one(*ahead(300, host="two"))
    assert wrong.meta["import"]["mended"] == {"clock skew": 4}
    assert "mended" not in right.meta["import"]
    assert [(e.id, e.dur) for e in wrong.events] == [(e.id, e.dur) for e in right.events]
    work = [[e.t for e in trace.events if e.agent == "b"] for trace in (right, wrong)]
    assert [t - work[1][0] for t in work[1]] == [t - work[0][0] for t in work[0]] == [0, 10, 20, 31], "as long as its clock says"
    assert wrong.events[-1].t >= work[1][-1] + 10, "its caller reads what it returned"


def test_one_machine_has_one_clock() -> None:
    trace = one(*ahead(300, host="one"))
    assert "clock skew" not in trace.meta["import"].get("mended", {})


def test_the_later_telling_of_a_span_wins() -> None:
    trace = one(S("l", "llm", None, 0, None), S("l", "llm", None, 0, 3, usage=Usage(4, output=1)), S("l", "llm", None, 0, None))
    assert logs.tokens(trace) == {"main": (4, 1)}


def test_agents_that_each_seem_to_run_within_the_other() -> None:
    one(
        S("w", "chain", None, 0, 9),
        S("a", "agent", "w", 2, 3, agent="a"),
        S("b", "agent", "w", 2, 3, agent="b"),
        S("t", "tool", "a", 1, 4),
        S("u", "tool", "b", 1, 4),
    )


def test_deep_nesting() -> None:
    n = 5000
    spans = [S(f"s{i}", "agent" if i % 2 else "tool", f"s{i - 1}" if i else None, i, 2 * n - i, agent=f"a{i}") for i in range(n)]
    trace = one(*spans)
    assert logs.kinds(trace)["spawn"] == n // 2


KINDS = ["agent", "llm", "tool", "handoff", "guardrail", "human", "retriever", "evaluator", "chain"]
IDS = st.sampled_from("abcdefgh")
TIME = st.one_of(st.none(), st.floats(0, 9))
SPAN = st.builds(
    Span,
    id=IDS,
    trace=st.just("t"),
    parent=st.one_of(st.none(), IDS, st.just("gone")),
    kind=st.sampled_from(KINDS),
    start=TIME,
    end=TIME,
    agent=st.sampled_from([None, "x", "y"]),
    agent_id=st.sampled_from([None, None, "X", "main"]),
    usage=st.sampled_from([None, Usage(2, output=1)]),
    input=st.sampled_from(["", "in"]),
    output=st.sampled_from(["", "out"]),
    to=st.sampled_from([None, "x", "z"]),
    reward=st.sampled_from([{}, {"r": 1.0}]),
    links=st.lists(IDS, max_size=2),
)


@given(st.lists(SPAN, min_size=1, max_size=9))
def test_whatever_comes_in_gives_sound_traces_and_no_token_twice(spans: list[Span]) -> None:
    known = sum(s.usage is not None for s in spans)
    for trace in traces_of(spans, Session("s", []), system="test"):
        logs.assert_sound(trace)
        assert sum(e.tokens_in or 0 for e in trace.events) <= 2 * known


def test_an_agents_sum_counts_where_the_calls_inside_it_have_no_tokens() -> None:
    trace = one(S("a", "agent", None, 0, 9, agent="x", usage=Usage(5, output=1)), S("l", "llm", "a", 1, 2, output="hm"))
    assert [(e.tokens_in, e.tokens_out) for e in trace.events if e.tokens_in is not None] == [(5, 1)]


def test_one_model_call_that_two_spans_tell_counts_once() -> None:
    call: dict[str, Any] = {"usage": Usage(5, output=1), "extra": {"response_id": "r"}}
    trace = one(S("a", "agent", None, 0, 9, agent="x"), S("l", "llm", "a", 1, 2, **call), S("m", "llm", "a", 3, 4, **call))
    assert sum(e.tokens_in or 0 for e in trace.events) == 5
    assert trace.meta["import"]["mended"] == {"model calls that two spans tell: tokens counted once": 1}


def test_a_link_leaves_the_end_of_what_is_over_and_the_beginning_of_what_runs() -> None:
    tools = [S("over", "tool", "a", 1, 2, output="x"), S("runs", "tool", "a", 1, 8, output="y")]
    trace = one(S("a", "agent", None, 0, 9, agent="x"), *tools, S("l", "llm", "a", 4, 5, output="z", links=["over", "runs"]))
    assert {("over:result", "l"), ("runs", "l")} <= edges(trace, "causal")


def test_a_handoff_to_an_agent_that_already_runs_reaches_it() -> None:
    agents = [S("a", "agent", "flow", 0, 10, agent="x"), S("b", "agent", "flow", 1, 20, agent="y"), S("c", "agent", "flow", 0, 2, agent="z")]
    trace = one(S("flow", "chain", None, 0, 30), *agents, S("h", "handoff", "a", 5, 6, to="y"), S("i", "handoff", "a", 7, 8, to="z"))
    assert [(e.id, e.to) for e in trace.events if e.id in "hi"] == [("h", "b"), ("i", "z")]
    assert trace.meta["import"]["unlinked_first"] == ["handoff to z: no agent span follows it"]


def test_a_top_agent_that_failed_says_so_on_its_last_event() -> None:
    trace = one(S("a", "agent", None, 0, 9, agent="x", ok=False, error="lost"), S("l", "llm", "a", 1, 2, output="hm", ok=True))
    assert [(e.id, e.ok, e.error) for e in trace.events] == [("l", False, "lost")]


def test_a_link_to_a_sub_agent_reaches_its_spawn() -> None:
    spans = [*team(), S("pre", "tool", "lead", 2.1, 2.5, output="x")]
    spans[3].links = ["pre"]
    assert ("pre:result", "sub") in edges(one(*spans), "causal")


def test_the_error_of_a_step_stands_on_its_last_event_once() -> None:
    trace = one(
        S("a", "agent", None, 0, 40, agent="bot", ok=False, error="Step 2: it broke: no such file"),
        S("s1", "chain", "a", 1, 9, name="Step 1", ok=False, error="AgentError: no such tool 'x'"),
        S("l1", "llm", "s1", 2, 3, output="call x"),
        S("t1", "tool", "s1", 4, 5, tool="x", ok=False, error="no such tool 'x'"),
        S("s2", "chain", "a", 10, 19, name="Step 2", ok=False, error="it broke: no such file"),
        S("l2", "llm", "s2", 11, 12, output="open()"),
        S("s3", "chain", "a", 20, 29, name="Step 3", ok=False, error="nothing was done"),
    )
    assert [(e.id, e.error) for e in trace.events if e.error] == [
        ("t1:result", "no such tool 'x'"),
        ("l2", "it broke: no such file"),
        ("s3:error", "nothing was done"),
    ]
    assert (next(e for e in trace.events if e.id == "l2").extra or {})["failed_step"] == "Step 2"
    assert next(e for e in trace.events if e.id == "t1").ok is None


def test_a_guardrail_that_lets_pass_is_no_incident() -> None:
    trace = one(
        S("a", "agent", None, 0, 9, agent="bot"),
        S("g", "guardrail", "a", 1, 2, name="pii", ok=True, verdict="allow"),
        S("h", "guardrail", "a", 3, 4, name="pii", ok=False, verdict="deny"),
    )
    assert [(e.id, e.type, e.ok) for e in trace.events] == [("g", "message", True), ("h", "safety_event", True)]
    assert sorted(trace.members) in (["a"], [])
