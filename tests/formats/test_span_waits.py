"""Spans of sub-agents one after the other, side by side and nested: what the run waited for, what was read, what coordinated."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import logs
from counterpoint.audits.facts import Facts
from counterpoint.audits.measures import measures
from counterpoint.audits.waste import waste
from counterpoint.trace import Trace

T0 = 1_760_000_000
Attributes = dict[str, Any]


def otlp_attributes(values: Attributes) -> list[dict[str, Any]]:
    return [{"key": k, "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v}} for k, v in values.items()]


class Spans:
    """A run of agents as OTLP spans, in one of two conventions."""

    def __init__(self, convention: str) -> None:
        self.convention = convention
        self.spans: list[dict[str, Any]] = []

    def add(self, name: str, parent: str | None, start: float, end: float, attributes: Attributes) -> str:
        span = f"{len(self.spans) + 1:016x}"
        times = {"startTimeUnixNano": str(round((T0 + start) * 1e9)), "endTimeUnixNano": str(round((T0 + end) * 1e9))}
        above = {} if parent is None else {"parentSpanId": parent}
        self.spans.append({"traceId": "a" * 32, "spanId": span, "name": name, **above, **times, "attributes": otlp_attributes(attributes)})  # fmt: skip
        return span

    def agent(self, name: str, parent: str | None, start: float, end: float) -> str:
        if self.convention == "genai":
            said = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        else:
            said = {"openinference.span.kind": "AGENT", "agent.name": name}
        return self.add(f"invoke_agent {name}", parent, start, end, said)

    def model(self, parent: str, start: float, end: float, read: int, wrote: int) -> str:
        if self.convention == "genai":
            said: Attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
            said |= {"gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": wrote}
        else:
            said = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
            said |= {"llm.token_count.prompt": read, "llm.token_count.completion": wrote}
        return self.add("chat m", parent, start, end, said)

    def tool(self, name: str, parent: str, start: float, end: float) -> str:
        if self.convention == "genai":
            said = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        else:
            said = {"openinference.span.kind": "TOOL", "tool.name": name}
        return self.add(f"execute_tool {name}", parent, start, end, said)

    def read(self, encoding: str) -> Trace:
        document = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "test"}, "spans": self.spans}]}]}
        data = json.dumps(document).encode()
        if encoding == "protobuf":
            data = in_protobuf(document)
        name = "otel" if self.convention == "genai" else "openinference"
        (trace,) = logs.imported(name, {"x.json" if encoding == "json" else "x.pb": data})
        logs.assert_sound(trace)
        return trace


def in_protobuf(document: dict[str, Any]) -> bytes:
    pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="needs opentelemetry-proto")
    from base64 import b64encode

    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    document = json.loads(json.dumps(document))
    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in {"traceId", "spanId", "parentSpanId"} & span.keys():
            span[key] = b64encode(bytes.fromhex(span[key])).decode()
    return bytes(ParseDict(document, ExportTraceServiceRequest()).SerializeToString())


def one_after_the_other(spans: Spans) -> None:
    """A caller without a model of its own: 0.7, 0.75 and 0.8 s of one model call each."""
    lead = spans.agent("lead", None, 0, 2.25)
    for k, (start, end) in enumerate([(0.0, 0.7), (0.7, 1.45), (1.45, 2.25)]):
        spans.model(spans.agent(f"worker{k}", lead, start, end), start, end, 100, 20)


def planned(spans: Spans) -> None:
    """The same with a caller that plans for 0.3 s before, and writes for 0.4 s after."""
    lead = spans.agent("lead", None, 0, 3.0)
    spans.model(lead, 0, 0.3, 50, 10)
    for k, (start, end) in enumerate([(0.3, 1.0), (1.0, 1.75), (1.75, 2.55)]):
        spans.model(spans.agent(f"worker{k}", lead, start, end), start, end, 100, 20)
    spans.model(lead, 2.6, 3.0, 200, 30)


def side_by_side(spans: Spans) -> None:
    lead = spans.agent("lead", None, 0, 1.0)
    for k, end in enumerate((0.7, 0.8, 1.0)):
        spans.model(spans.agent(f"worker{k}", lead, 0, end), 0, end, 100, 20)


def two_waves(spans: Spans) -> None:
    """Two at once (the longer takes 1.5 s), then two at once (2.0 s)."""
    lead = spans.agent("lead", None, 0, 3.5)
    for start, end in ((0, 1.0), (0, 1.5), (1.5, 2.5), (1.5, 3.5)):
        spans.model(spans.agent(f"worker{start}-{end}", lead, start, end), start, end, 100, 20)


def with_tools(spans: Spans) -> None:
    """Each calls a model, a tool and the model again, for 2 s."""
    lead = spans.agent("lead", None, 0, 6.0)
    for k in range(3):
        start = 2.0 * k
        worker = spans.agent(f"worker{k}", lead, start, start + 2)
        spans.model(worker, start, start + 0.6, 100, 20)
        spans.tool("grep", worker, start + 0.6, start + 1.2)
        spans.model(worker, start + 1.2, start + 2, 150, 30)


def nested(spans: Spans) -> None:
    """The lead asks one through a tool, which first runs a tool of its own and then asks another."""
    lead = spans.agent("lead", None, 0, 4)
    spans.model(lead, 0, 0.5, 50, 10)
    mid = spans.agent("mid", spans.tool("ask_mid", lead, 0.5, 3.2), 0.55, 3.15)
    spans.model(mid, 0.6, 1.0, 60, 10)
    spans.tool("search", mid, 1.0, 1.4)
    spans.model(spans.agent("leaf", mid, 1.5, 2.5), 1.5, 2.4, 70, 12)
    spans.model(mid, 2.6, 3.1, 80, 15)
    spans.model(lead, 3.3, 3.9, 90, 20)


def bare(spans: Spans) -> None:
    """Spans of agents alone: 1, 2 and 3 s."""
    lead = spans.agent("lead", None, 0, 6)
    for k, (start, end) in enumerate(((0, 1), (1, 3), (3, 6))):
        spans.agent(f"worker{k}", lead, start, end)


# By hand: the seconds of the critical path, and the tokens that coordinate: what the lead plans (where all that follows are
# spawns) and merges, and what each return writes.
BY_HAND: dict[Callable[[Spans], None], tuple[float, float | None]] = {
    one_after_the_other: (0.7 + 0.75 + 0.8, 3 * 20 / 360),
    planned: (0.3 + 0.7 + 0.75 + 0.8 + 0.4, (60 + 3 * 20 + 230) / 650),
    side_by_side: (1.0, 3 * 20 / 360),
    two_waves: (1.5 + 2.0, 4 * 20 / 480),
    with_tools: (6.0, 3 * 30 / 900),
    # of mid's plan half, for it also calls a tool of its own; the lead's last word is its decision to stop
    nested: (0.5 + 0.4 + 0.4 + 0.9 + 0.5 + 0.6, (60 + 35 + 12 + 15 + 110) / 417),
    bare: (6.0, None),
}


@pytest.mark.parametrize("encoding", ["json", "protobuf"])
@pytest.mark.parametrize("convention", ["genai", "openinference"])
@pytest.mark.parametrize("run", BY_HAND, ids=lambda f: f.__name__)
def test_what_a_run_of_spans_waited_for_read_and_coordinated(
    run: Callable[[Spans], None], convention: str, encoding: str
) -> None:
    spans = Spans(convention)
    run(spans)
    trace = spans.read(encoding)
    path, coordination = BY_HAND[run]
    found = {m.name: m for m in measures(trace)}
    assert found["critical_path_s"].value == pytest.approx(path)
    assert found["protocol_overhead"].value == pytest.approx(coordination) if coordination else True
    assert found["useful_agent_utilisation"].value == 1, "the caller reads what its callees return"
    (unused,) = [w for w in waste(Facts(trace)) if w.kind == "unused_agents"]
    assert unused.count == 0


def test_agents_under_a_workflow_that_nobody_leads() -> None:
    spans = Spans("genai")
    flow = spans.add("workflow", None, 0, 2.25, {})
    for k, (start, end) in enumerate([(0.0, 0.7), (0.7, 1.45), (1.45, 2.25)]):
        spans.model(spans.agent(f"worker{k}", flow, start, end), start, end, 100, 20)
    found = {m.name: m.value for m in measures(spans.read("json"))}
    assert found["critical_path_s"] == pytest.approx(2.25)
    assert found["protocol_overhead"] == 0, "each does its own work, and hands it on"
    assert found["useful_agent_utilisation"] == 1, "the last one's word rests on the others'"


def test_a_caller_that_does_not_wait_reads_nothing() -> None:
    spans = Spans("genai")
    lead = spans.agent("lead", None, 0, 1.0)
    spans.model(spans.agent("late", lead, 0.5, 3.0), 0.5, 3.0, 100, 20)
    trace = spans.read("json")
    assert {e.type for e in trace.events if e.agent.endswith("1")} == {"spawn"}
    assert not [e for e in trace.edges if e.type == "return"]


def test_calls_of_one_answer_wait_for_each_other_and_do_not_read_each_other() -> None:
    spans = Spans("genai")
    lead = spans.agent("lead", None, 0, 9)
    spans.model(lead, 0, 1, 50, 10)
    first, second = spans.tool("read", lead, 1, 3), spans.tool("write", lead, 3, 5)
    third = spans.tool("list", lead, 4, 6)
    spans.model(lead, 6, 9, 80, 10)
    trace = spans.read("json")
    assert {(e.src, e.dst) for e in trace.edges if e.type == "temporal"} == {(first, second), (first, third)}
    assert not [e for e in trace.edges if e.src == f"{first}:result" and e.dst in (second, third)]
    assert {m.name: m.value for m in measures(trace)}["critical_path_s"] == pytest.approx(1 + 2 + 2 + 3)


def test_many_at_one_barrier_make_few_edges() -> None:
    spans = Spans("genai")
    lead = spans.agent("lead", None, 0, 12.99)
    for wave in range(2):
        for k in range(200):
            start, end = 10.0 * wave, 10.0 * wave + 1 + k / 100
            spans.model(spans.agent(f"worker{wave}.{k}", lead, start, end), start, end, 1, 1)
    trace = spans.read("json")
    assert len([e for e in trace.edges if e.type == "temporal"]) <= 16 * 200
    assert {m.name: m.value for m in measures(trace)}["critical_path_s"] == pytest.approx(2.99 * 2)
