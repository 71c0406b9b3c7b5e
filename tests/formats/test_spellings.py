"""Agents, handoffs, conversations and turns of the GenAI conventions: every spelling is read, one is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

import logs
from counterpoint.formats.importing.values import decode
from counterpoint.formats.otlp import otlp
from counterpoint.formats.spans.genai import genai_span, kind_of
from counterpoint.formats.spans.raw_records import RawSpan, Records
from counterpoint.trace import Edge, Event, Trace

READ: dict[str, str] = {
    "agent_version": "gen_ai.agent.version agent.version",
    "agent_type_id": "agent.type.id gen_ai.agent.type.id",
    "agent_identity_id": "gen_ai.agent.identity.id",
    "agent_identity_name": "gen_ai.agent.identity.name",
    "parent_prompt": "agent.parent.prompt gen_ai.agent.parent.prompt",
    "conversation_id": "gen_ai.conversation.id session.id gen_ai.session.id conversation.id",
    "conversation_turn": "gen_ai.agent.turn gen_ai.conversation.turn gen_ai.conversation.turn_number gen_ai.turn.number",
    "iteration": "gen_ai.agent.iteration gen_ai.react.round",
}
SOURCES = "gen_ai.agent.handoff.source.name gen_ai.handoff.from_agent gen_ai.handoff.source ag2.handoff.source"
TARGETS = """gen_ai.agent.handoff.target.name gen_ai.transfer.target.name gen_ai.handoff.to_agent gen_ai.handoff.target
    gen_ai.agent.handoff.target ag2.handoff.target"""


def raw(operation: str | None, **attributes: Any) -> RawSpan:
    named = {"gen_ai.operation.name": operation} if operation else {}
    return RawSpan("s", "t", None, "x", 1.0, 2.0, {**named, **attributes}, {}, events=[])


@pytest.mark.parametrize(("key", "name"), [(key, name) for key, names in READ.items() for name in names.split()])
def test_every_spelling_is_read(key: str, name: str) -> None:
    assert genai_span(raw("chat", **{name: "v"})).extra == {key: "v"}
    settled = READ[key].split()[0]
    if name != settled:  # the settled one counts
        assert genai_span(raw("chat", **{name: "old", settled: "new"})).extra[key] == "new"


def test_names_ids_and_instances_of_agents() -> None:
    for name in ("gen_ai.agent.id", "agent.id", "agent_id"):
        assert genai_span(raw("invoke_agent", **{name: "asst", "gen_ai.agent.name": "guide"})).definition == "asst"
    for name in ("agent.instance.id", "gen_ai.agent.instance.id"):
        assert genai_span(raw("invoke_agent", **{name: "run-7", "gen_ai.agent.name": "guide"})).agent_id == "run-7"


@pytest.mark.parametrize("source", SOURCES.split())
@pytest.mark.parametrize("target", TARGETS.split())
def test_handoffs_by_every_name(source: str, target: str) -> None:
    span = genai_span(raw("agent_handoff", **{source: "a", target: "b", "gen_ai.agent.name": "z"}))
    assert (span.kind, span.agent, span.to, span.extra["is_handoff"]) == ("handoff", "a", "b", True)


def test_which_calls_pass_control() -> None:
    named = {"gen_ai.agent.handoff.target.name": "b"}
    assert kind_of(raw("execute_tool", **named)) == "handoff"
    assert kind_of(raw(None, **named)) == "handoff"
    assert kind_of(raw("chat", **named)) == "llm"
    assert kind_of(raw("execute_tool", **named, **{"gen_ai.transfer.mode": "return_to_caller"})) == "tool"
    assert kind_of(raw("execute_tool", **{"gen_ai.transfer.mode": "pass_control"})) == "handoff"
    back = {"gen_ai.transfer.mode": "return_to_caller", "gen_ai.transfer.target.name": "b"}
    assert genai_span(raw("execute_tool", **back)).to == "b"


def test_a_plan_is_a_step_where_it_has_words_or_tokens_and_else_what_is_around_one() -> None:
    assert kind_of(raw("plan")) == "chain"
    assert kind_of(raw("plan", **{"gen_ai.usage.output_tokens": 3})) == "llm"
    assert (
        kind_of(raw("plan", **{"gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"First"}]}]'}))
        == "llm"
    )
    assert genai_span(raw("plan")).extra == {"operation": "plan"}


def otlp_of(*spans: tuple[str, str | None, dict[str, Any]]) -> bytes:
    """A document of spans: id, parent and attributes, each a second after the one before."""
    out = []
    for k, (id_, parent, attributes) in enumerate(spans):
        values = [
            {"key": n, "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v}} for n, v in attributes.items()
        ]
        times = {"startTimeUnixNano": str((1_770_000_000 + k) * 10**9), "endTimeUnixNano": str((1_770_000_100 - k) * 10**9)}
        ids = {"traceId": "1" * 32, "spanId": id_ * 16} | ({"parentSpanId": parent * 16} if parent else {})
        out.append({**ids, "name": "x", "attributes": values, **times})
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": out}]}]}).encode()


def test_steps_inside_a_plan_are_a_plan() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "guide"}
    data = otlp_of(
        ("1", None, agent),
        ("2", "1", {"gen_ai.operation.name": "plan", "gen_ai.agent.name": "guide"}),
        ("3", "2", {"gen_ai.operation.name": "chat", "gen_ai.usage.output_tokens": 5, "gen_ai.usage.input_tokens": 7}),
        ("4", "1", {"gen_ai.operation.name": "chat", "gen_ai.usage.output_tokens": 2, "gen_ai.usage.input_tokens": 9}),
    )
    (trace,) = logs.importer("otel").read(data)  # type: ignore[misc]
    told = {e.tokens_out: (e.extra or {}).get("operation") for e in trace.events if e.tokens_out}
    assert told == {5: "plan", 2: None}
    assert trace.costs["tokens"] == 23


def written(trace: Trace) -> list[dict[str, Any]]:
    assert otlp.write is not None
    found = json.loads(otlp.write(trace))["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for span in found:
        span["attributes"] = {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}
    return list(found)


def team() -> Trace:
    kept = {"conversation_id": "c1", "agent_version": "2.1", "conversation_turn": 3, "iteration": 1}
    plan = Event(id="p", t=0.0, dur=1.0, type="orchestrator_decision", agent="a1", role="lead", tokens_in=5, tokens_out=2,
                 extra={"operation": "plan", **kept})  # fmt: skip
    over = Event(id="h", t=1.0, type="message", agent="a1", role="lead", from_="a1", to="b1", extra={"is_handoff": True})
    said = Event(id="m", t=2.0, type="message", agent="b1", role="desk", to="a1")
    return Trace(
        trace_id="t", task_id="t", events=[plan, over, said], edges=[Edge("p", "h", "causal"), Edge("h", "m", "message")]
    )


def test_what_is_written() -> None:
    trace = team()
    by_name = {span["name"]: span["attributes"] for span in written(trace)}
    about = {"gen_ai.agent.id": "a1", "gen_ai.agent.name": "lead", "gen_ai.agent.version": "2.1", "gen_ai.conversation.id": "c1"}
    assert about.items() <= by_name["invoke_agent lead"].items()
    assert "gen_ai.agent.turn" not in by_name["invoke_agent lead"]
    assert {**about, "gen_ai.operation.name": "plan", "gen_ai.agent.turn": "3", "gen_ai.agent.iteration": "1"}.items() <= by_name[
        "plan a1"
    ].items()
    handed = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "transfer_to_b1", "gen_ai.agent.handoff.source.name": "a1",
        "gen_ai.agent.handoff.target.name": "b1", "gen_ai.agent.id": "a1",
    }  # fmt: skip
    assert handed.items() <= by_name["execute_tool transfer_to_b1"].items()
    assert "gen_ai.operation.name" not in by_name["message a1"]  # a message is no handoff
    assert otlp.read is not None
    assert otlp.write is not None
    assert list(otlp.read(otlp.write(trace))) == [trace]


def test_what_is_written_is_read_by_names_alone() -> None:
    """A backend that keeps the conventions' names and drops ours gives the same plan and handoff."""
    spans = written(team())
    assert any(name.startswith("counterpoint.") for span in spans for name in span["attributes"])
    records = Records()
    for span in spans:
        kept = {k: v for k, v in span["attributes"].items() if not k.startswith("counterpoint.")}
        span["attributes"] = [{"key": k, "value": {"stringValue": v}} for k, v in kept.items()]
    records.add(decode(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()))
    read = {raw.name: genai_span(raw) for raw in records.spans}
    over, plan = read["execute_tool transfer_to_b1"], read["plan a1"]
    assert (over.kind, over.agent, over.to, over.definition) == ("handoff", "a1", "b1", "a1")
    assert (plan.kind, plan.extra["operation"], plan.extra["conversation_id"], plan.extra["agent_version"]) == (
        "llm",
        "plan",
        "c1",
        "2.1",
    )
