"""Our exporter of OTLP: what others see in it, and that it comes back equal whichever way it went."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

import logs
from counterpoint.errors import InputError
from counterpoint.formats.format import detect
from counterpoint.formats.otel import spans_of
from counterpoint.formats.otlp import otlp
from counterpoint.testing import odd_trace
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.synthetic import SHAPES, synthetic_trace

TRACES = [odd_trace(), *(synthetic_trace(4, 30, shape, contents=True) for shape in SHAPES)]


def written(trace: Trace) -> bytes:
    assert otlp.write is not None
    return otlp.write(trace)


def back(data: bytes) -> list[Trace]:
    assert otlp.read is not None
    return list(otlp.read(data))


def spans(trace: Trace) -> list[dict[str, Any]]:
    found = json.loads(written(trace))["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for span in found:
        span["attributes"] = {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}
    return list(found)


def test_our_files_are_ours_and_not_the_importers() -> None:
    for trace in TRACES:
        data = written(trace)
        assert detect(data[:4096]) == "otlp"
        assert logs.importer("otel").sniff(data[: 1 << 16]) is False


@pytest.mark.parametrize("trace", TRACES, ids=lambda t: t.trace_id)
def test_what_a_backend_gives_back_is_the_same_trace(trace: Trace) -> None:
    """As rows of ClickHouse and as Jaeger's document: neither keeps resources, links and kinds as we wrote them."""
    document = json.loads(written(trace))
    (group,) = document["resourceSpans"]
    resource = {a["key"]: a["value"]["stringValue"] for a in group["resource"]["attributes"]}
    rows, jaeger = [], []
    for span in reversed(group["scopeSpans"][0]["spans"]):
        attrs = {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}
        ids = {"TraceId": span["traceId"], "SpanId": span["spanId"], "ParentSpanId": span.get("parentSpanId", "")}
        rows.append({**ids, "SpanName": span["name"], "ResourceAttributes": resource, "SpanAttributes": attrs, "Timestamp": "x"})
        tags = [{"key": k, "type": "string", "value": v} for k, v in attrs.items()]
        jaeger.append({"traceID": span["traceId"], "spanID": span["spanId"], "operationName": span["name"], "tags": tags})
        jaeger[-1]["processID"] = "p1"
    process = {"serviceName": "x", "tags": [{"key": k, "value": v} for k, v in resource.items()]}
    lines = "\n".join(map(json.dumps, rows)).encode()
    for data in (lines, json.dumps({"data": [{"spans": jaeger, "processes": {"p1": process}}]}).encode()):
        (found,) = logs.importer("otel").read(data)  # type: ignore[misc]
        assert found == trace


def test_two_traces_in_one_file_and_none() -> None:
    one, two = TRACES[1:3]
    both = json.loads(written(one))
    both["resourceSpans"] += json.loads(written(two))["resourceSpans"]
    assert back(json.dumps(both).encode()) == [one, two]
    for data in (b'{"resourceSpans":[]}', b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"spanId":"1","traceId":"2"}]}]}]}'):
        with pytest.raises(InputError, match="no trace"):
            back(data)


def test_a_span_that_was_lost_or_changed() -> None:
    trace = TRACES[1]
    document = json.loads(written(trace))
    inside = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    lost = next(s for s in inside if any(a["key"] == "counterpoint.id" for a in s["attributes"]))
    inside.remove(lost)
    (found,) = back(json.dumps(document).encode())
    assert len(found.events) == len(trace.events) - 1
    with pytest.raises(InputError):
        back(written(trace).replace(b'{\\"event\\":', b'{\\"evil\\":'))


def test_what_others_see() -> None:
    trace = Trace(
        trace_id="t",
        task_id="trip",
        events=[
            Event(id="a", t=0, type="orchestrator_decision", agent="lead", model="m", tokens_in=5, tokens_out=2, content_ref="r1", at=1e9),
            Event(id="b", t=1, type="spawn", agent="lead", to="sub", role="guide"),
            Event(id="c", t=2, type="tool_call", agent="sub", tool="search", content_ref="r2", ok=False, error="gone", dur=1.5),
            Event(id="d", t=3.5, type="tool_result", agent="sub", tool="search", ok=False, trusted=False),
            Event(id="e", t=4, type="return", agent="sub", to="lead", tokens_in=7, tokens_out=1),
        ],
        edges=[Edge("a", "b", "causal"), Edge("b", "c", "spawn"), Edge("c", "d", "tool_dependency"), Edge("d", "e", "causal")],
        contents={"r1": "Ask.", "r2": "{}"},
    )  # fmt: skip
    found = {s["name"]: s for s in spans(trace)}
    assert list(found) == [
        "invoke_workflow trip", "invoke_agent lead", "invoke_agent guide", "chat m", "spawn sub", "execute_tool search",
        "tool_result", "chat",
    ]  # fmt: skip
    lead, guide, chat, tool = (found[n] for n in ("invoke_agent lead", "invoke_agent guide", "chat m", "execute_tool search"))
    assert (lead["parentSpanId"], guide["parentSpanId"]) == (found["invoke_workflow trip"]["spanId"], lead["spanId"])
    assert chat["attributes"]["gen_ai.usage.input_tokens"] == "5"
    assert json.loads(chat["attributes"]["gen_ai.output.messages"])[0]["parts"][0]["content"] == "Ask."
    assert chat["startTimeUnixNano"] == "1000000000000000000"
    assert (tool["status"], tool["endTimeUnixNano"]) == ({"code": 2, "message": "gone"}, "1000000003500000000")
    assert found["tool_result"]["links"][0]["spanId"] == tool["spanId"]


def test_read_as_anybodys_spans_it_is_the_same_team() -> None:
    """Without our own attributes, as another exporter that knows only the conventions would have written it."""
    trace = synthetic_trace(4, 30, "hierarchical", contents=True)
    document = json.loads(written(trace))
    group = document["resourceSpans"][0]
    group["resource"]["attributes"] = group["resource"]["attributes"][1:]
    for span in group["scopeSpans"][0]["spans"]:
        span["attributes"] = [a for a in span["attributes"] if not a["key"].startswith("counterpoint.")]
    found, report = spans_of(json.dumps(document).encode(), "application/json")
    assert report.broken_count == 0
    agents = {s.extra["agent_definition_id"] for s in found if s.kind == "agent"}
    assert agents == set(trace.agents)
    calls = [e for e in trace.events if e.type == "tool_call"]
    assert sum(s.kind == "tool" for s in found) == len(calls)
    told = sum(e.tokens_in or 0 for e in trace.events if e.type != "tool_call")
    assert sum(s.usage.input for s in found if s.kind == "llm" and s.usage) == told


def test_edges_to_nowhere_and_agents_that_spawn_each_other() -> None:
    odd = replace(
        odd_trace(),
        events=[
            Event(id="x", t=0, type="spawn", agent="a", to="b"),
            Event(id="y", t=1e300, type="spawn", agent="b", to="a"),
            Event(id="z", t=2, type="spawn", agent="b", to="b"),
        ],
        edges=[Edge("x", "gone", "causal"), Edge("gone", "y", "causal"), Edge("x", "y", "spawn"), Edge("x", "y", "spawn")],
    )
    assert back(written(odd)) == [odd]


def test_half_of_a_surrogate_pair_becomes_a_question_mark() -> None:
    trace = Trace(trace_id="t", task_id="S1", system="x", topology="unknown", events=[Event(id="e", t=0, type="message", agent="S2")], edges=[], rewards={"S3": 1.0}, costs={})
    data = written(trace)
    for name in (b"S1", b"S2", b"S3"):
        data = data.replace(name, b"\\ud800")
    (found,) = back(data)
    assert (found.task_id, found.events[0].agent, list(found.rewards)) == ("?", "?", ["?"])
