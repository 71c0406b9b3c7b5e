"""Drafts and lanes by hand: which edges are drawn, what an event keeps, what is mended and counted."""

from __future__ import annotations

from typing import Any

import pytest

from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import Price, Prices, Usage
from counterpoint.trace import Event, Trace


def fresh(**more: Any) -> Draft:
    return Draft("t", "task", system="test", **more)


def made(draft: Draft) -> Trace:
    (trace,) = draft.traces()
    return trace


def edges(trace: Trace) -> list[tuple[str, str, str]]:
    return [(e.src, e.dst, e.type) for e in trace.edges]


def by(trace: Trace) -> dict[str, Event]:
    return {e.id: e for e in trace.events}


# -- one event


def test_fields_of_the_wrong_kind_are_kept_beside() -> None:
    draft = fresh()
    draft.event(
        "message", "a", id="e", at=5.0, tokens_in="7", tokens_out=-1, turn=2.5, dur=-1, cost_usd="0.5", ok="yes", trusted=True,
        role="", to=7, tool="T", options=["x"], extra={"mine": 1, "none": None, "tool": 2},
    )  # fmt: skip
    event = by(made(draft))["e"]
    assert (event.tokens_in, event.tokens_out, event.turn, event.dur, event.cost_usd) == (7, None, None, None, 0.5)
    assert (event.ok, event.trusted, event.role, event.to, event.tool, event.options) == (None, True, None, None, "T", ["x"])
    assert event.extra == {
        "mine": 1, "source_tool": 2, "source_tokens_out": -1, "source_turn": 2.5, "source_dur": -1, "source_ok": "yes", "source_to": 7,
    }  # fmt: skip


def test_an_edge_of_another_kind_does_not_stand_for_the_spawn() -> None:
    draft = fresh()
    draft.event("spawn", "a", id="s", to="b")
    draft.event("message", "a", id="x", extra={"extra": 1, "from": 2})
    draft.event("message", "b", id="e")
    draft.edge("x", "e", "temporal")
    trace = made(draft)
    assert ("s", "e", "spawn") in [(e.src, e.dst, e.type) for e in trace.edges]
    assert by(trace)["x"].extra == {"source_extra": 1, "source_from": 2}


def test_a_field_that_no_event_has_is_the_importers_mistake() -> None:
    with pytest.raises(AssertionError, match="tokns_in"):
        fresh().event("message", "a", tokns_in=3)


def test_what_is_nothing_says_nothing() -> None:
    draft = fresh()
    draft.event("message", "", id="e", extra={"a": None}, text="", role=None, dur=0, cost_usd=0, tokens_in=0)
    event = by(made(draft))["e"]
    assert event.agent == "unnamed"
    assert event.extra is None
    assert event.content_ref is None
    assert (event.dur, event.cost_usd, event.tokens_in) == (0, 0, 0)


def test_more_can_be_said_of_an_event() -> None:
    draft = fresh(prices=Prices({"m": Price(1e6, 2e6, 3e6, 4e6)}))
    draft.event("message", "a", id="e", at=2.0, extra={"a": 1, "b": 1}, model="m")
    draft.set("e", end=3.25, text="words", usage=Usage(1, 2, 3, 4, 5), extra={"b": 2, "c": None}, from_="x")
    trace = made(draft)
    event = by(trace)["e"]
    assert (event.dur, trace.text(event), event.from_) == (1.25, "words", "x")
    assert (event.tokens_in, event.tokens_out) == (6, 4)
    assert event.cost_usd == 1 + 2 * 3 + 3 * 4 + 4 * 2
    assert event.extra == {"a": 1, "b": 2, "tokens_cache_read": 2, "tokens_cache_write": 3, "tokens_reasoning": 5}


def test_a_price_that_the_source_states_stands() -> None:
    draft = fresh(prices=Prices({"m": Price(1e6, 1e6, 1e6, 1e6)}))
    draft.event("message", "a", id="e", model="m", usage=Usage(1, 0, 0, 1), cost_usd=0.25)
    event = by(made(draft))["e"]
    assert event.cost_usd == 0.25
    assert event.extra is None


def test_an_end_before_the_start_is_no_time_at_all() -> None:
    draft = fresh()
    draft.event("message", "a", id="e", at=5.0, end=4.0)
    draft.event("message", "a", id="f", end=4.0)
    trace = made(draft)
    assert by(trace)["e"].dur == 0
    assert by(trace)["f"].dur is None


def test_ids_are_made_unique_and_names_can_be_written() -> None:
    draft = fresh()
    assert [draft.event("message", "a", id="x") for _ in range(4)] == ["x", "x~2", "x~3", "x~4"]
    assert draft.event("spawn", "a") == "spawn4"
    assert draft.event("message", "\ud800b", id="\udc00", text="\ud800") == "?"
    trace = made(draft)
    assert by(trace)["?"].agent == "?b"
    assert trace.text(by(trace)["?"]) == "?"
    empty = Draft("", "", system="test")
    empty.event("message", "é")
    assert (made(empty).trace_id, made(empty).task_id) == ("unnamed", "unnamed")
    assert made(empty).events[0].agent == "é"


def test_values_that_json_cannot_hold_become_text() -> None:
    draft = fresh()
    draft.event("message", "a", id="e", extra={"f": float("inf"), "d": {1: (1, None, True, 2.5)}, "s": "\ud800", "o": {3}, "id": 9})
    assert by(made(draft))["e"].extra == {"f": "inf", "d": {"1": [1, None, True, 2.5]}, "s": "?", "o": "{3}", "source_id": 9}


def test_an_unknown_kind_is_a_mistake_of_the_importer() -> None:
    draft = fresh()
    with pytest.raises(AssertionError):
        draft.event("shout", "a")
    with pytest.raises(AssertionError):
        draft.edge("a", "b", "shout")


# -- the whole


def test_an_empty_draft_is_no_trace() -> None:
    assert list(fresh().traces()) == []


def test_sums_rewards_and_remarks() -> None:
    records = Report()
    draft = fresh(records=records)
    draft.rewards, draft.metrics = {"team": 1, "bad": float("nan")}, {"score": 2}
    draft.meta, draft.topology = {"k": 1}, "debate"
    draft.event("tool_call", "a", at=1.0, end=4.0, usage=Usage(1, 0, 0, 2), cost_usd=0.5)
    draft.event("message", "a", at=2.0, cost_usd=0.25)
    trace = made(draft)
    assert trace.rewards == {"team": 1.0}
    assert trace.metrics == {"score": 2.0}
    assert (trace.topology, trace.system, trace.meta) == ("debate", "test", {"began": 1.0, "k": 1, "import": {}})
    assert trace.costs == {"tokens": 3, "tool_calls": 1, "messages": 1, "wall_clock_s": 3.0, "cost_usd": 0.75}
    records.unknown["odd"] += 1
    assert made(draft).meta["import"]["session"] == {"unknown": {"odd": 1}}


def test_no_cost_is_not_a_cost_of_nothing() -> None:
    draft = fresh()
    draft.event("message", "a")
    trace = made(draft)
    assert "cost_usd" not in trace.costs
    assert trace.metrics is None


def test_times_that_are_missing_are_those_of_the_event_before() -> None:
    draft = fresh()
    for k, at in enumerate([None, 12.0, None, 10.0, 15.5]):
        draft.event("message", "a", id=f"e{k}", at=at)
    trace = made(draft)
    assert {e.id: e.t for e in trace.events} == {"e0": 2.0, "e1": 2.0, "e2": 2.0, "e3": 0.0, "e4": 5.5}
    assert trace.meta["import"] == {"lacks": {"the time of some events: taken from the one before": 2}}


def test_without_any_time_events_are_counted() -> None:
    draft = fresh()
    for k in range(3):
        draft.event("message", "a", id=f"e{k}")
    draft.edge("e2", "e0", "causal")
    trace = made(draft)
    assert [(e.id, e.t) for e in trace.events] == [("e1", 1.0), ("e2", 2.0), ("e0", 2.0)]
    assert trace.meta["import"] == {"lacks": {"timestamps: t counts events": 1}, "mended": {"times that contradict the order of the records": 1}}


def test_edges_to_nowhere_and_of_a_cycle_are_counted() -> None:
    draft = fresh()
    for k in range(2):
        draft.event("message", "a", id=f"e{k}", at=float(k))
    draft.edge("e0", "e1", "causal")
    draft.edge("e1", "e0", "causal")
    draft.edge("e0", "nowhere", "causal")
    draft.edge("nowhere", "e0", "causal")
    draft.edge(None, "e0", "causal")
    draft.edge("e0", None, "causal")
    draft.edge("e0", "e0", "causal")
    draft.edge("e0", "e1", "causal")
    trace = made(draft)
    assert edges(trace) == [("e0", "e1", "causal")]
    assert trace.meta["import"] == {"mended": {"edges to nowhere": 2, "edges of a cycle": 1}}


def test_who_does_nothing_before_is_rooted_at_the_spawn() -> None:
    draft = fresh()
    draft.event("spawn", "main", id="s", at=0.0, to="w")
    draft.event("spawn", "main", id="again", at=0.5, to="w")
    draft.event("message", "w", id="a", at=1.0)
    draft.event("message", "w", id="b", at=2.0)
    draft.event("message", "w", id="c", at=3.0)
    draft.edge("a", "c", "causal")
    draft.event("message", "x", id="d", at=1.0)
    assert edges(made(draft)) == [("a", "c", "causal"), ("s", "a", "spawn"), ("s", "b", "temporal")]


def test_a_spawn_that_is_named_by_an_edge_is_not_drawn_twice() -> None:
    draft = fresh()
    draft.event("spawn", "main", id="s", at=0.0, to="w")
    draft.event("message", "w", id="a", at=1.0)
    draft.edge("s", "a", "spawn")
    draft.event("message", "w", id="b", at=2.0)
    assert edges(made(draft)) == [("s", "a", "spawn"), ("s", "b", "temporal")]


def test_words_of_another_do_not_stand_for_the_spawn() -> None:
    draft = fresh()
    draft.event("spawn", "main", id="s", at=0.0, to="w")
    draft.event("message", "x", id="m", at=0.5)
    draft.event("message", "w", id="a", at=1.0)
    draft.edge("m", "a", "message")
    assert edges(made(draft)) == [("m", "a", "message"), ("s", "a", "spawn")]


def test_an_agent_that_spawns_itself_is_not_rooted_at_that() -> None:
    draft = fresh()
    draft.event("spawn", "w", id="s", at=0.0, to="w")
    draft.event("message", "w", id="a", at=1.0)
    assert edges(made(draft)) == [("s", "a", "spawn")]


def test_a_spawn_after_its_agent_acted_loses_its_agent() -> None:
    draft = fresh()
    draft.event("message", "w", id="a", at=0.0)
    draft.event("spawn", "main", id="s", at=5.0, to="w")
    draft.event("message", "w", id="b", at=6.0)
    draft.edge("a", "b", "causal")
    draft.edge("a", "s", "causal")
    trace = made(draft)
    found = by(trace)["s"]
    assert (found.to, found.extra) == (None, {"contradicted_to": "w"})
    assert trace.meta["import"] == {"mended": {"edges of a cycle": 1, "spawns after their agent acted": 1}}
    same = fresh()
    same.event("spawn", "main", id="s", at=1.0, to="w")
    same.event("message", "w", id="a", at=1.0)
    assert by(made(same))["s"].to == "w"


def test_shapes_follow_from_who_spawned_whom() -> None:
    draft = fresh()
    draft.event("spawn", "main", to="a", at=0.0)
    assert made(draft).topology == "centralized"
    draft.event("spawn", "a", to="b", at=1.0)
    assert made(draft).topology == "hierarchical"
    alone = fresh()
    alone.event("spawn", "main", at=0.0)
    assert made(alone).topology == "unknown"


# -- lanes


def test_a_step_reads_all_that_was_heard_and_begins_when_the_last_of_it_came() -> None:
    draft = fresh()
    lane = draft.lane("a", role="r")
    lane.prompt("go", at=1.0, id="u")
    lane.prompt("note", by="system", source="system", at=3.0, id="n", trusted=False)
    assert lane.step(end=5.0, text="one", id="s1") == "s1"
    lane.step(end=6.0, text="two", id="s2")
    lane.reached(9.0)
    lane.reached(7.0)
    lane.reached(None)
    lane.step(end=10.0, text="three", id="s3")
    lane.step(end=8.0, text="back", id="s4")
    lane.step(at=2.0, text="given", id="s5")
    trace = made(draft)
    found = by(trace)
    assert [(found[s].at, found[s].dur, found[s].turn) for s in ("s1", "s2", "s3", "s4", "s5")] == [
        (3.0, 2.0, 0), (5.0, 1.0, 1), (9.0, 1.0, 2), (8.0, 0.0, 3), (2.0, None, 4),
    ]  # fmt: skip
    assert (found["u"].type, found["n"].type, found["n"].from_, found["n"].to) == ("human_intervention", "message", "system", "a")
    assert (found["s1"].role, found["s1"].extra) == ("r", {"aloud": True})
    assert edges(trace) == [
        ("u", "s1", "message"), ("n", "s1", "message"), ("n", "s1", "safety_flow"), ("s1", "s2", "causal"), ("s2", "s3", "causal"),
        ("s3", "s4", "causal"), ("s4", "s5", "causal"),
    ]  # fmt: skip


def test_a_step_without_words_that_only_calls_is_its_first_call() -> None:
    draft = fresh()
    lane = draft.lane("a")
    lane.prompt("go", at=0.0, id="u")
    assert lane.step(end=1.0, only_calls=True, usage=Usage(3, 0, 0, 4), model="m") is None
    lane.call("T", "{}", call="1", at=1.0, id="c1")
    lane.call("T", call="2", at=1.0, id="c2")
    lane.result("1", "one", at=2.0, id="r1", ok=True)
    lane.result("2", "two", at=4.0, id="r2", ok=False, tool="Named")
    lane.result("9", "stray", at=4.5, id="r9")
    lane.result(None, "none", id="r0", trusted=True)
    assert lane.called("1") == "c1"
    assert lane.called("9") is None
    lane.step(end=6.0, text="done", only_calls=True, id="s")
    trace = made(draft)
    found = by(trace)
    assert (found["c1"].tokens_in, found["c1"].tokens_out, found["c1"].model, found["c1"].dur) == (3, 4, "m", 1.0)
    assert (found["c2"].tokens_in, found["c2"].dur, found["c2"].ok) == (None, 3.0, None)
    assert [(found[r].ok, found[r].error) for r in ("r1", "r2")] == [(True, None), (False, "two")]
    assert found["c1"].ok is None
    assert [found[r].tool for r in ("r1", "r2", "r9", "r0")] == ["T", "Named", None, None]
    assert [found[r].trusted for r in ("r1", "r0")] == [False, True]
    assert (found["s"].at, found["s"].turn) == (4.5, 0)
    assert edges(trace) == [
        ("u", "c1", "message"), ("u", "c2", "message"), ("c1", "r1", "tool_dependency"), ("c2", "r2", "tool_dependency"),
        ("r1", "s", "causal"), ("r1", "s", "safety_flow"), ("r2", "s", "causal"), ("r2", "s", "safety_flow"), ("r9", "s", "causal"),
        ("r9", "s", "safety_flow"), ("r0", "s", "causal"),
    ]  # fmt: skip


def test_a_leader_decides_even_without_words() -> None:
    draft = fresh()
    lead = draft.lane("lead", leads=True)
    lead.step(end=1.0, only_calls=True, id="s1")
    lead.call("T", id="c", at=1.0)
    lead.send("b", "hello", at=1.5, id="m")
    lead.step(end=2.0, id="s2")
    lead.spawn("b", role="r", text="work", at=2.0, id="sp")
    lead.spawn(None, at=2.0, id="no", ok=False)
    lead.step(end=3.0, text="x", thinking="why", id="s3", extra={"k": 1})
    lead.step(end=4.0, thinking="only", id="s4")
    lead.stops()
    trace = made(draft)
    found = by(trace)
    assert [(found[s].type, found[s].decision) for s in ("s1", "s2", "s3", "s4")] == [
        ("orchestrator_decision", "communicate"), ("orchestrator_decision", "spawn"), ("orchestrator_decision", None),
        ("orchestrator_decision", "stop"),
    ]  # fmt: skip
    assert found["s3"].extra is not None
    assert trace.contents[found["s3"].extra["thinking_ref"]] == "why"
    assert found["s3"].extra["k"] == 1
    assert (trace.text(found["s3"]), trace.text(found["s4"]), found["s4"].extra) == ("x", "only", {"is_thinking": True})
    assert (found["sp"].to, found["sp"].role, found["no"].to) == ("b", "r", None)
    assert draft.has_lane("b")
    assert not draft.has_lane("c")
    assert draft.lane("b").role == "r"
    assert draft.lane("b", role="other").role == "r"
    assert draft.lane("b").heard == [("m", "message"), ("sp", "spawn")]


def test_two_returns_make_an_aggregate_and_one_does_not() -> None:
    draft = fresh()
    lead = draft.lane("lead", leads=True)
    lead.step(end=1.0, text="go", id="s1")
    for child in "ab":
        lead.spawn(child, at=1.0, id=f"sp{child}")
        draft.lane(child).step(end=2.0, text=f"I am {child}", id=f"w{child}")
    draft.lane("a").returns("lead", "not these words", at=3.0, id="unused")
    lead.step(end=4.0, text="one", id="s2")
    draft.lane("b").call("T", id="c", at=2.0)
    draft.lane("b").returns("lead", "the result", at=5.0, id="rb")
    draft.lane("a").returns("lead", "once more", at=5.5, id="ra")
    draft.lane("a").returns(None, "to nobody", at=5.6, id="rn")
    draft.lane("a").returns("lead", "unheard", at=5.7, id="ru", heard=False)
    lead.step(end=6.0, text="both", id="s3")
    trace = made(draft)
    found = by(trace)
    assert "unused" not in found
    assert (found["wa"].type, found["wa"].to, trace.text(found["wa"])) == ("return", "lead", "I am a")
    assert (found["wb"].type, found["rb"].type, trace.text(found["rb"])) == ("message", "return", "the result")
    assert (found["s2"].type, found["s3"].type) == ("orchestrator_decision", "aggregate")
    assert (found["s2"].at, found["s3"].at) == (3.0, 5.5)
    assert edges(trace) == [
        ("s1", "spa", "causal"), ("spa", "wa", "spawn"), ("s1", "spb", "causal"), ("spb", "wb", "spawn"), ("wa", "s2", "return"),
        ("s1", "s2", "causal"), ("wb", "c", "causal"), ("wb", "rb", "causal"), ("wa", "ra", "causal"), ("ra", "rn", "causal"),
        ("rn", "ru", "causal"), ("rb", "s3", "aggregate"), ("ra", "s3", "aggregate"), ("s2", "s3", "causal"),
    ]  # fmt: skip


def test_a_return_of_a_step_without_words_takes_the_words_given() -> None:
    draft = fresh()
    lane = draft.lane("a")
    lane.step(end=1.0, id="s", decision="stop")
    lane.returns("lead", "words", ok=True)
    event = by(trace := made(draft))["s"]
    assert (event.type, trace.text(event), event.ok, event.decision, event.extra) == ("return", "words", True, None, None)
    assert (event.from_, event.source, event.trusted) == ("a", "peer", True)


def test_a_return_after_something_new_was_heard_is_an_event_of_its_own() -> None:
    draft = fresh()
    lane = draft.lane("a")
    lane.step(end=1.0, text="x", id="s")
    lane.prompt("wait", at=2.0, id="u")
    lane.returns("lead", "late", at=3.0, id="r")
    trace = made(draft)
    assert [e.id for e in trace.events if e.type == "return"] == ["r"]
    assert edges(trace) == [("u", "r", "message"), ("s", "r", "causal")]


def test_what_acts_without_a_step_follows_from_what_came_before() -> None:
    draft = fresh()
    lane = draft.lane("a")
    lane.call("T", id="c1", at=0.0)
    lane.call("T", id="c2", at=1.0)
    lane.despawn("b", at=2.0, id="d")
    lane.send(None, "all", at=3.0, id="m")
    lane.send("b", "psst", at=3.0, id="q", heard=False)
    lane.stops()
    trace = made(draft)
    assert edges(trace) == [("c1", "c2", "causal"), ("c2", "d", "causal"), ("d", "m", "causal"), ("m", "q", "causal")]
    assert [e.decision for e in trace.events] == [None] * 5
    assert not draft.has_lane("b")


def test_a_decision_of_one_who_leads_nobody_is_a_remark() -> None:
    draft = fresh()
    lane = draft.lane("a")
    lane.step(end=1.0, text="x", id="s", to="b")
    lane.send("b", "hello", at=1.0, id="m")
    event = by(made(draft))["s"]
    assert (event.type, event.decision, event.extra) == ("message", None, {"decided": "communicate"})


def test_a_step_that_heard_after_it_did_not_stop() -> None:
    draft = fresh()
    lane = draft.lane("a", leads=True)
    lane.step(end=1.0, text="x", id="s")
    lane.prompt("more", at=2.0)
    lane.stops()
    assert by(made(draft))["s"].decision is None


def test_what_came_with_its_length_is_heard_at_its_end() -> None:
    draft = fresh()
    lane = draft.lane("a")
    event = draft.event("message", "system", id="m", at=1.0, end=4.0)
    lane.hears(event)
    lane.step(end=6.0, text="x", id="s")
    lane.hears(draft.event("message", "system", id="n", at=7.0), "message", at=9.0)
    lane.step(end=10.0, text="y", id="s2")
    found = by(made(draft))
    assert (found["s"].at, found["s2"].at) == (4.0, 9.0)


def test_a_kind_that_is_given_stands() -> None:
    draft = fresh()
    lane = draft.lane("a")
    lane.step(end=1.0, only_calls=True, kind="aggregate", id="s")
    assert by(made(draft))["s"].type == "aggregate"
