"""Spans of the GenAI conventions and OpenInference's in one file and in one trace: each is read by its own dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

import logs
from counterpoint.app.receiver import intake
from counterpoint.trace import Trace

GENAI = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.usage.input_tokens": 1000,
    "gen_ai.usage.output_tokens": 50,
    "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "from genai"}]}]',
}
INFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "gpt-4o",
    "llm.token_count.prompt": 10,
    "llm.token_count.completion": 5,
    "llm.output_messages.0.message.content": "from openinference",
}
A, B = "1" * 32, "2" * 32


def line(trace: str, name: str, attributes: dict[str, Any], *, parent: str = "", at: int = 0, scope: str = "some") -> bytes:
    """A line of a collector's file with one span."""
    times = {"startTimeUnixNano": str((1_790_000_000 + at) * 10**9), "endTimeUnixNano": str((1_790_000_001 + at) * 10**9)}
    values = [{"key": k, "value": {"intValue" if isinstance(v, int) else "stringValue": str(v)}} for k, v in attributes.items()]
    span = {"traceId": trace, "spanId": name * 16, "parentSpanId": parent * 16, "name": "step", "attributes": values, **times}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"scope": {"name": scope}, "spans": [span]}]}]}).encode() + b"\n"


def heard(traces: list[Trace]) -> list[tuple[str, str, str | None, int, int]]:
    """System, trace, words and tokens of every step."""
    steps = [(t, e) for t in traces for e in t.events if e.tokens_in is not None]
    return sorted((t.system, t.trace_id[:1], t.text(e), e.tokens_in or 0, e.tokens_out or 0) for t, e in steps)


@pytest.mark.parametrize("is_turned", [False, True])
def test_each_trace_of_a_file_is_read_by_the_dialect_it_speaks(is_turned: bool) -> None:
    lines = [line(A, "a", GENAI), line(B, "b", INFERENCE, scope="openinference.instrumentation.x")]
    traces = logs.imported("openinference", {"x.jsonl": b"".join(reversed(lines) if is_turned else lines)})
    assert heard(traces) == [
        ("openinference", "2", "from openinference", 10, 5),
        ("otel", "1", "from genai", 1000, 50),
    ]


@pytest.mark.parametrize("name", ["openinference", "otel"])
def test_each_span_of_a_trace_is_read_by_its_own_dialect(name: str) -> None:
    agent = {"openinference.span.kind": "AGENT", "agent.name": "lead", "input.value": "go"}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pytest", "gen_ai.tool.call.result": "3 passed"}
    lines = [
        line(A, "a", agent),
        line(A, "b", INFERENCE, parent="a", at=1),
        line(A, "c", GENAI, parent="a", at=2),
        line(A, "d", tool, parent="c", at=3),
    ]
    (trace,) = logs.imported(name, {"x.jsonl": b"".join(lines)})
    assert trace.system == name
    assert [row[2:] for row in heard([trace])] == [("from genai", 1000, 50), ("from openinference", 10, 5)]
    assert logs.kinds(trace) == {"human_intervention": 1, "orchestrator_decision": 2, "tool_call": 1, "tool_result": 1}
    assert {e.agent for e in trace.events} == {"a" * 16, "user"}


def test_a_receiver_reads_both_in_either_order() -> None:
    lines = [line(A, "a", GENAI), line(A, "b", INFERENCE, at=1)]
    for data in (b"".join(lines), b"".join(reversed(lines))):
        assert [row[2:] for row in heard(list(intake._traces("x", data)))] == [
            ("from genai", 1000, 50), ("from openinference", 10, 5)
        ]  # fmt: skip


def test_a_kind_beside_gen_ai_attributes_alone_is_a_courtesy_in_a_mixed_file_too() -> None:
    courtesy = {"openinference.span.kind": "LLM", **GENAI}
    traces = logs.imported("openinference", {"x.jsonl": line(A, "a", courtesy) + line(B, "b", INFERENCE)})
    assert heard(traces) == [("openinference", "2", "from openinference", 10, 5), ("otel", "1", "from genai", 1000, 50)]


def test_tokens_that_stand_under_the_other_name_alone_count() -> None:
    both = {"openinference.span.kind": "LLM", "input.value": "go", "output.value": "done", **GENAI}
    (trace,) = logs.imported("openinference", {"x.jsonl": line(A, "a", both)})
    (step,) = [e for e in trace.events if e.tokens_in is not None]
    assert (step.tokens_in, step.tokens_out, step.model) == (1000, 50, "gpt-4o")


def test_nested_attributes_of_the_conventions_are_read_beside_openinferences() -> None:
    genai = {"gen_ai": {"operation": {"name": "chat"}, "usage": {"input_tokens": 7, "output_tokens": 3}}}
    nested = {"openinference": {"span": {"kind": "LLM"}}, "llm": {"token_count": {"prompt": 10, "completion": 5}}}
    common = {"parent_id": None, "start_time": "2026-01-01T00:00:00+00:00", "end_time": "2026-01-01T00:00:01+00:00", "name": "x"}
    spans = [
        {"context": {"trace_id": A, "span_id": "a" * 16}, "attributes": genai, **common},
        {"context": {"trace_id": B, "span_id": "b" * 16}, "attributes": nested, "openinference.span.kind": "LLM", **common},
    ]
    traces = logs.imported("openinference", {"x.json": json.dumps(spans).encode()})
    assert sum(e.tokens_in or 0 for t in traces for e in t.events) == 17
