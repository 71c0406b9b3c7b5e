"""OpenTelemetry's records and the GenAI conventions, attribute by attribute: every name that is read, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.spans.genai import answer, genai_span, kind_of, question, tool_input, tool_output, usage_of
from counterpoint.formats.spans.raw_records import RawSpan, Records, SpanEvent, attributes, records_in
from counterpoint.formats.spans.span import Span, close_wrappers


def raw(name: str = "", events: list[SpanEvent] | None = None, /, **attrs: Any) -> RawSpan:
    named = {key.replace("__", "."): value for key, value in attrs.items()}
    return RawSpan("s", "t", None, name, 1.0, 2.0, named, {}, events=events or [])


def happened(name: str, /, **attrs: Any) -> SpanEvent:
    return SpanEvent(name, None, {key.replace("__", "."): value for key, value in attrs.items()})


OPERATIONS = {
    "chat": "llm", "generate_content": "llm", "text_completion": "llm", "completion": "llm", "embeddings": "llm", "execute_tool": "tool",
    "invoke_agent": "agent", "retrieval": "retriever", "agent_handoff": "handoff", "handoff": "handoff", "run_guardrail": "guardrail",
    "guardrail": "guardrail", "human_input": "human", "evaluate": "evaluator", "invoke_workflow": "chain", "create_agent": "chain", "plan": "chain",
}  # fmt: skip
KINDS = {
    "agent": "agent", "tool": "tool", "LLM": "llm", "embedding": "llm", "retriever": "retriever", "guardrail": "guardrail",
    "evaluator": "evaluator", "workflow": "chain",
}  # fmt: skip


def test_what_a_span_is() -> None:
    assert {name: kind_of(raw(gen_ai__operation__name=name, gen_ai__agent__id="a")) for name in OPERATIONS} == OPERATIONS
    for key in ("traceloop__span__kind", "ioa_observe__span__kind", "openinference__span__kind"):
        assert {name: kind_of(raw(**{key: name})) for name in KINDS} == KINDS
    assert kind_of(raw(gen_ai__operation__name="invoke_agent")) == "chain"
    assert kind_of(raw("invoke_agent guide", gen_ai__operation__name="invoke_agent")) == "agent"
    assert kind_of(raw(gen_ai__operation__name="execute_tool", gen_ai__transfer__mode="pass_control")) == "handoff"
    assert kind_of(raw("execute_tool (merged)", gen_ai__operation__name="execute_tool")) == "chain"
    assert kind_of(raw("merged tools", gen_ai__operation__name="execute_tool")) == "chain"
    assert kind_of(raw(gen_ai__guardrail__name="g")) == "guardrail"
    assert kind_of(raw(gen_ai__tool__name="t")) == kind_of(raw("ai.toolCall")) == "tool"
    assert kind_of(raw("agent run")) == kind_of(raw("agent run x")) == "agent"
    assert kind_of(raw("agent runner")) == kind_of(raw("call_llm")) == kind_of(raw(gen_ai__request__model="m")) == "chain"
    assert kind_of(raw("call_llm", gen_ai__request__model="m")) == "llm"
    called: list[dict[str, Any]] = [{"gen_ai__completion__0__role": "assistant"}, {"llm__request__type": "chat"}, {"llm__usage__prompt_tokens": 1}]
    assert [kind_of(raw(**attrs)) for attrs in called] == ["llm"] * 3


COUNTS = {
    "fresh": "gen_ai.usage.input_tokens gen_ai.usage.prompt_tokens llm.usage.prompt_tokens llm.token_count.prompt",
    "output": "gen_ai.usage.output_tokens gen_ai.usage.completion_tokens llm.usage.completion_tokens llm.token_count.completion",
    "cache_read": """gen_ai.usage.cache_read.input_tokens gen_ai.usage.cache_read_input_tokens gen_ai.usage.details.cache_read_tokens
        gen_ai.usage.cache_read_tokens gen_ai.usage.input_tokens.cached""",
    "cache_write": """gen_ai.usage.cache_creation.input_tokens gen_ai.usage.cache_creation_input_tokens gen_ai.usage.cache_write_input_tokens
        gen_ai.usage.details.cache_write_tokens""",
    "reasoning": "gen_ai.usage.reasoning.output_tokens gen_ai.usage.reasoning_tokens gen_ai.usage.details.reasoning_tokens",
}


def test_tokens_by_every_name() -> None:
    for part, names in COUNTS.items():
        for name in names.split():
            given = {"gen_ai.usage.output_tokens": 9, name: 3} if part == "reasoning" else {name: 3}
            if part.startswith("cache"):
                given["gen_ai.usage.input_tokens"] = 0
            assert getattr(usage_of(given), part) == 3, name
    whole = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.cache_read_tokens": 4, "gen_ai.usage.cache_creation_input_tokens": 6}
    assert usage_of(whole) == Usage(0, 4, 6, 0)
    assert usage_of({**whole, "gen_ai.usage.input_tokens": 9}) == Usage(9, 4, 6, 0)
    assert usage_of({"gen_ai.usage.cache_read_tokens": 4}) is None


MESSAGE = '[{"role": "assistant", "parts": [{"type": "reasoning", "content": "Hm."}, {"type": "text", "content": "Yes."}, {"type": "tool_call", "id": 1}]}]'
ANSWERS: list[tuple[dict[str, Any], list[SpanEvent]]] = [
    ({"gen_ai.output.messages": MESSAGE}, []),
    ({"gen_ai.completion.0.content": "Hm.", "gen_ai.completion.1.content": "Yes.", "gen_ai.completion.3.content": "no"}, []),
    ({"gen_ai.completion": "Yes."}, []),
    ({"gcp.vertex.agent.llm_response": '{"content": {"parts": [{"text": "Yes."}, {"functionCall": {}}, {"text": "Hm.", "thought": true}]}}'}, []),
    ({"ai.response.text": "Yes."}, []),
    ({}, [happened("gen_ai.choice", message='{"content": "Yes."}')]),
    ({}, [happened("gen_ai.choice", content="Yes.")]),
    ({}, [happened("gen_ai.choice", gen_ai__event__content={"message": {"content": "Yes."}})]),
    ({}, [happened("gen_ai.client.inference.operation.details", gen_ai__output__messages=MESSAGE)]),
    ({}, [happened("gen_ai.content.completion", gen_ai__completion="Yes.")]),
    ({"final_result": "Yes."}, []),
    ({"output.value": "Yes."}, []),
    ({"traceloop.entity.output": "Yes."}, []),
    ({"ioa_observe.entity.output": "Yes."}, []),
]


@pytest.mark.parametrize(("attrs", "events"), ANSWERS)
def test_what_was_answered(attrs: dict[str, Any], events: list[SpanEvent]) -> None:
    said = answer(attrs, events)
    assert (said.role, said.text.split("\n")[-1], said.thinking in ("", "Hm.")) == ("assistant", "Yes.", True)
    assert bool(said.thinking) == ("reasoning" in str(attrs) + str(events) or "thought" in str(attrs))
    assert answer({}, []) == ("assistant", "", "")


QUESTIONS: list[tuple[dict[str, Any], list[SpanEvent]]] = [
    ({"gen_ai.input.messages": [{"role": "user", "content": "No."}, {"role": "human", "parts": [{"text": "What?"}]}, {"role": "assistant", "content": "x"}]}, []),
    ({"gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "x", "gen_ai.prompt.1.content": "What?"}, []),
    ({"gen_ai.prompt": "What?"}, []),
    ({}, [happened("gen_ai.system.message", content="x"), happened("gen_ai.user.message", content="What?"), happened("gen_ai.user.other", content="x")]),
    ({}, [happened("gen_ai.user.message", gen_ai__event__content='{"content": "What?"}')]),
    ({}, [happened("gen_ai.user.message", role="user", text="What?")]),
    ({}, [happened("gen_ai.content.prompt", gen_ai__prompt="What?")]),
    ({}, [happened("gen_ai.client.inference.operation.details", gen_ai__input__messages='[{"role": "user", "content": "What?"}]')]),
    ({"gcp.vertex.agent.llm_request": '{"contents": [{"role": "user", "parts": [{"text": "What?"}]}, {"role": "model", "parts": []}]}'}, []),
    ({"ai.prompt.messages": '[{"role": "user", "content": [{"type": "text", "text": "What?"}]}]'}, []),
    ({"ai.prompt": "What?"}, []),
    ({"input.value": "What?"}, []),
    ({"input.value": [{"type": "HumanMessage", "content": "What?"}, "x"][:1]}, []),
    ({"traceloop.entity.input": "What?"}, []),
    ({"ioa_observe.entity.input": "What?"}, []),
]


@pytest.mark.parametrize(("attrs", "events"), QUESTIONS)
def test_what_was_asked(attrs: dict[str, Any], events: list[SpanEvent]) -> None:
    assert question(attrs, events) == "What?"
    assert question({}, []) == ""


def test_json_that_was_said_is_kept_as_it_is() -> None:
    assert answer({"gen_ai.completion": '{"a": 1}'}, []).text == '{"a": 1}'
    assert answer({"gen_ai.completion": "{broken"}, []).text == "{broken"
    assert answer({"gen_ai.output.messages": ["Yes.", "", 7]}, []).text == "Yes."


def test_what_tools_were_given_and_gave() -> None:
    given = "gen_ai.tool.call.arguments gcp.vertex.agent.tool_call_args tool_arguments ai.toolCall.args tool.parameters input.value traceloop.entity.input"
    gave = "gen_ai.tool.call.result gcp.vertex.agent.tool_response tool_response ai.toolCall.result output.value ioa_observe.entity.output"
    assert [tool_input({name: "x", "other": "y"}, []) for name in given.split()] == ["x"] * 7
    assert [tool_output({name: "x", "other": "y"}, []) for name in gave.split()] == ["x"] * 6
    assert tool_input({"tool_arguments": "", "tool.parameters": {"a": 1}}, []) == '{"a":1}'
    assert tool_input({}, [happened("gen_ai.user.message", content="n"), happened("gen_ai.tool.message", content="x")]) == "x"
    assert tool_output({}, [happened("other", message="n"), happened("gen_ai.choice", message="x", content="y")]) == "x"
    assert tool_output({"output.value": ""}, [happened("gen_ai.choice", content="y")]) == "y"
    assert tool_input({}, []) == tool_output({}, []) == ""


def test_a_span_in_our_form() -> None:
    call = genai_span(raw("execute_tool find", gen_ai__operation__name="execute_tool", gen_ai__tool__call__id="c", gen_ai__tool__type="function"))
    assert (call.kind, call.tool, call.call, call.extra, call.usage) == ("tool", "find", "c", {"tool_type": "function"}, None)
    assert genai_span(raw("x.tool", traceloop__span__kind="tool")).tool == "x"
    for key in ("traceloop__entity__name", "ioa_observe__entity__name", "ai__toolCall__name", "tool__name"):
        assert genai_span(raw("x", **{key: "find"}), "tool").tool == "find"
    for key in ("ai__toolCall__id", "tool__id"):
        assert genai_span(raw("x", **{key: "c"}), "tool").call == "c"
    look = genai_span(raw(gen_ai__operation__name="retrieval", gen_ai__retrieval__query__text="q", gen_ai__retrieval__documents=["d"]))
    assert (look.input, look.output) == ("q", '["d"]')
    for key in ("gen_ai__handoff__to_agent", "gen_ai__transfer__target__name", "ag2__handoff__target"):
        over = genai_span(raw(gen_ai__handoff__from_agent="a", gen_ai__agent__name="z", tool_arguments="x", **{key: "b"}), "handoff")
        assert (over.to, over.agent, over.input) == ("b", "a", "x")
    guards = {"deny": False, "escalate": False, "allow": True}
    for key in ("gen_ai__guardrail__verdict__type", "gen_ai__guardrail__action__type"):
        found = [genai_span(raw(**{key: verdict, "gen_ai__guardrail__name": "g"})) for verdict in guards]
        assert {g.verdict: g.ok for g in found} == guards
        assert found[0].extra["gen_ai.guardrail.name"] == "g"
    asked = genai_span(raw(gen_ai__operation__name="human_input", gen_ai__prompt="Really?", gen_ai__completion="Yes."))
    assert (asked.kind, asked.input, asked.output) == ("human", "Really?", "Yes.")


def test_models_costs_names_and_what_else_is_kept() -> None:
    models = ("gen_ai__response__model", "gen_ai__request__model", "llm__model_name", "ai__model__id")
    assert [genai_span(raw(**{key: "m"}), "llm").model for key in models] == ["m"] * 4
    costs = ("gen_ai__usage__cost", "gen_ai__usage__cost_usd", "llm__cost__total")
    assert [genai_span(raw(**{key: 2}), "llm").cost_usd for key in costs] == [2.0] * 3
    names = ("gen_ai__agent__name", "agent_name", "agent__name", "traceloop__entity__name", "ioa_observe__entity__name")
    assert [genai_span(raw("x", **{key: "guide"}), "agent").agent for key in names] == ["guide"] * 5
    assert genai_span(raw("invoke_agent  guide "), "agent").agent == "guide"
    assert genai_span(raw("guide.agent"), "agent").agent == "guide"
    assert genai_span(raw(agent_name="guide"), "llm").agent == "guide"
    kept = {
        "gen_ai.response.id": "r", "gen_ai.response.finish_reasons": ["stop"], "gen_ai.conversation.id": "c", "gen_ai.agent.id": "d",
        "gen_ai.tool.type": "f", "gen_ai.caller.name": "k", "gen_ai.output.messages": MESSAGE,
    }  # fmt: skip
    span = genai_span(raw(**{key.replace(".", "__"): value for key, value in kept.items()}), "llm")
    assert span.extra == {
        "response_id": "r", "finish_reasons": ["stop"], "conversation_id": "c", "agent_definition_id": "d", "tool_type": "f", "caller": "k",
        "thinking": "Hm.",
    }  # fmt: skip
    assert genai_span(raw(session__id="s"), "llm").extra == {"conversation_id": "s"}
    assert genai_span(raw(session__id="s"), "chain").extra == {}


def test_scores_of_a_span() -> None:
    score = {"gen_ai__evaluation__name": "good", "gen_ai__evaluation__score__value": 0.5, "gen_ai__evaluation__score__label": "ok", "gen_ai__evaluation__explanation": "since"}
    for span in (genai_span(raw(**score), "evaluator"), genai_span(raw("", [happened("gen_ai.evaluation.result", **score), happened("other", **score)]), "llm")):
        assert (span.reward, span.extra["label_good"], span.extra["why_good"]) == ({"good": 0.5}, "ok", "since")
    assert genai_span(raw(gen_ai__evaluation__score__value=1), "llm").reward == {}


# -- records


def test_values_in_otlps_wrapping() -> None:
    deep: Any = {"stringValue": "x"}
    for _ in range(20):
        deep = {"arrayValue": {"values": [deep]}}
    wrapped = {
        "s": {"stringValue": "x"}, "i": {"intValue": "-7"}, "big": {"intValue": "1" * 30}, "d": {"doubleValue": 0.5}, "b": {"boolValue": False},
        "y": {"bytesValue": "AA=="}, "a": {"arrayValue": {"values": [{"intValue": "1"}]}}, "m": {"kvlistValue": {"values": [{"key": "k", "value": {"stringValue": "v"}}]}},
    }  # fmt: skip
    plain = {"s": "x", "i": -7, "big": "1" * 30, "d": 0.5, "b": False, "y": "AA==", "a": [1], "m": {"k": "v"}}
    snake = {
        "s": {"string_value": "x"}, "i": {"int_value": "-7"}, "d": {"double_value": 0.5}, "b": {"bool_value": False}, "y": {"bytes_value": "AA=="},
        "a": {"array_value": {"values": [{"int_value": "1"}]}}, "m": {"kvlist_value": {"values": [{"key": "k", "value": {"string_value": "v"}}]}},
        "big": {"Value": "1" * 30},
    }  # fmt: skip
    assert attributes(wrapped) == attributes(snake) == attributes([{"key": k, "value": v} for k, v in wrapped.items()]) == plain
    assert attributes([{"key": 7, "value": 1}, "x"]) == attributes(None) == {}
    assert attributes({"x": {"a": 1, "b": 2, "stringValue": "c"}}) == {"x": {"a": 1, "b": 2, "stringValue": "c"}}
    assert "stringValue" in str(attributes({"x": deep}))  # not followed for ever


SPAN = {"spanId": "00000000000000aa", "traceId": "0" * 31 + "b", "name": "n"}
LOG = {"body": {"stringValue": "said"}, "timeUnixNano": "1700000000000000000"}


@pytest.mark.parametrize(
    ("outer", "inner", "scope"),
    [
        ("resourceSpans", "scopeSpans", "scope"), ("resource_spans", "scope_spans", "scope"), ("batches", "instrumentationLibrarySpans", "instrumentationLibrary"),
        ("resourceSpans", "instrumentation_library_spans", "scope"), (None, "scopeSpans", "scope"),
    ],
)  # fmt: skip
def test_groups_of_spans_by_every_name(outer: str | None, inner: str, scope: str) -> None:
    group = {"resource": {"attributes": [{"key": "r", "value": {"stringValue": "v"}}]}, inner: [{scope: {"name": "tracer"}, "spans": [SPAN, 7]}]}
    records = Records()
    records.add({outer: [group]} if outer else group)
    (span,) = records.spans
    assert (span.id, span.trace, span.name, span.scope, span.resource) == ("00000000000000aa", "0" * 31 + "b", "n", "tracer", {"r": "v"})


@pytest.mark.parametrize(
    ("outer", "inner", "records"),
    [("resourceLogs", "scopeLogs", "logRecords"), ("resource_logs", "scope_logs", "log_records"), ("resourceLogs", "instrumentationLibraryLogs", "logs")],
)
def test_groups_of_logs_by_every_name(outer: str, inner: str, records: str) -> None:
    found = Records()
    found.add([{outer: [{"resource": {"attributes": {"r": "v"}}, inner: [{records: [LOG]}]}]}])
    (log,) = found.logs
    assert (log.name, log.at, log.body, log.resource, log.order) == ("said", 1.7e9, "said", {"r": "v"}, 0)


def test_records_under_every_name_and_not_too_deep() -> None:
    for name in ("data", "trace", "traces", "spans", "observations"):
        assert [kind for kind, *_ in records_in({name: [SPAN]})] == ["span"], name
    deep: Any = SPAN
    for _ in range(12):
        deep = [deep]
    assert len(list(records_in(deep))) == 1
    assert list(records_in([deep])) == []
    assert list(records_in({"other": [SPAN]})) == []
    records = Records()
    records.add([{**SPAN, "spanId": ""}, {**SPAN, "spanId": "0" * 16}, SPAN, {**SPAN, "spanId": "00000000000000ac"}])
    assert (records.broken, [s.order for s in records.spans]) == (2, [0, 1])


def test_a_wrapper_has_the_times_of_what_is_in_it() -> None:
    def spans(*times: tuple[float | None, float | None]) -> list[Span]:
        found = [Span("w", "t", start=9.0), *(Span(f"s{k}", "t", start=a, end=b) for k, (a, b) in enumerate(times)), Span("x", "u", start=0.0)]
        close_wrappers(found, {"w"})
        return found

    first = spans((2.0, 5.0), (1.0, 3.0), (None, 4.0))[0]
    assert (first.start, first.end) == (1.0, 5.0)
    assert (spans((2.0, None), (1.0, 3.0))[0].end, spans((None, 1.0))[0].start, spans()[0].start) == (None, 9.0, 9.0)
    assert (spans((2.0, 3.0))[2].start, spans((2.0, 3.0))[2].end) == (0.0, None)


NAMES = {
    "start": "startTimeUnixNano start_time_unix_nano start_time startTime",
    "end": "endTimeUnixNano end_time_unix_nano end_time endTime",
    "parent": "parentSpanId parent_span_id parent_id",
}


def test_a_span_by_every_name_of_its_fields() -> None:
    for field, names in NAMES.items():
        for name in names.split():
            records = Records()
            records.add({**SPAN, name: "00000000000000cc" if field == "parent" else "2023-11-14T22:13:20Z"})
            assert getattr(records.spans[0], field) == ("00000000000000cc" if field == "parent" else 1.7e9), name
    for ids in ({"span_id": "aa" * 8, "trace_id": "bb" * 16}, {"context": {"span_id": "0x" + "aa" * 8, "trace_id": "BB" * 16}}, {"spanId": "qqqqqqqqqqo=", "traceId": "u7u7u7u7u7u7u7u7u7u7uw=="}):
        records = Records()
        records.add({"name": "n", "parent_id": {"span_id": "cc" * 8}, **ids})
        (span,) = records.spans
        assert (span.id, span.trace, span.parent) == ("aa" * 8, "bb" * 16, "cc" * 8)
    records = Records()
    records.add({**SPAN, "startTimeUnixNano": "0", "resource": {"attributes": {"own": 1}}, "links": [{"context": {"spanID": "aa" * 8, "traceID": "bb" * 16}}, {"span_id": "aa" * 8}, {}]})
    (span,) = records.spans
    assert (span.start, span.resource, span.links) == (None, {"own": 1}, [("bb" * 16, "aa" * 8), ("", "aa" * 8)])


def test_a_log_by_every_name_of_its_fields() -> None:
    for names in (("timeUnixNano", "eventName", "traceId", "spanId"), ("time_unix_nano", "event_name", "trace_id", "span_id"), ("Timestamp", "EventName", "TraceId", "SpanId"), ("timestamp", "eventName", "traceId", "spanId")):
        records = Records()
        row = dict(zip(names, ("2023-11-14T22:13:20Z", "said", "bb" * 16, "aa" * 8), strict=True))
        records.add([{"LogAttributes": {"a": 1}, "ResourceAttributes": {"r": 2}, "Body": "text", **row}])
        (log,) = records.logs
        assert (log.at, log.name, log.trace, log.span, log.attrs, log.resource, log.body) == (1.7e9, "said", "bb" * 16, "aa" * 8, {"a": 1}, {"r": 2}, "text")
    for name in ("observedTimeUnixNano", "observed_time_unix_nano"):
        records = Records()
        records.add({"LogAttributes": {"event.name": "n"}, name: "1700000000000000000"})
        assert (records.logs[0].at, records.logs[0].name) == (1.7e9, "n")


@pytest.mark.parametrize(
    ("status", "attrs", "events", "found"),
    [
        ({"code": 1}, {}, [], (True, None)), ({"code": "STATUS_CODE_OK"}, {}, [], (True, None)), ({}, {}, [], (None, None)), ({"status_code": "StatusCode.UNSET"}, {}, [], (None, None)),
        ({"code": 2, "message": "no"}, {}, [], (False, "no")), ({"statusCode": "ERROR", "description": "no"}, {}, [], (False, "no")),
        ({"code": 2}, {"error.message": "no"}, [], (False, "no")), ({}, {"error.type": "no"}, [], (False, "no")),
        ({"code": 2}, {"error.type": "x"}, [{"name": "other"}, {"name": "exception", "attributes": {"exception.message": "no"}}], (False, "no")),
    ],
)  # fmt: skip
def test_how_a_span_ended(status: dict[str, Any], attrs: dict[str, Any], events: list[Any], found: tuple[bool | None, str | None]) -> None:
    records = Records()
    records.add({**SPAN, "status": status, "attributes": attrs, "events": events})
    assert (records.spans[0].ok, records.spans[0].error) == found


def test_rows_and_jaeger_say_the_same() -> None:
    row = {
        "SpanId": "aa" * 8, "TraceId": "bb" * 16, "ParentSpanId": "cc" * 8, "SpanName": "n", "Timestamp": "2023-11-14T22:13:20Z", "Duration": 2_000_000_000,
        "SpanAttributes": {"k": "v"}, "ResourceAttributes": {"r": 1}, "ScopeName": "tracer", "StatusCode": "Error", "StatusMessage": "no",
        "Events.Name": ["e"], "Events.Timestamp": ["2023-11-14T22:13:21Z"], "Events.Attributes": [{"x": 1}], "LinksTraceId": ["dd" * 16], "LinksSpanId": ["ee" * 8],
    }  # fmt: skip
    jaeger = {
        "spanID": "aa" * 8, "traceID": "bb" * 16, "operationName": "n", "startTime": 1_700_000_000_000_000, "duration": 2_000_000, "processID": "p1",
        "references": [{"refType": "CHILD_OF", "spanID": "cc" * 8}, {"refType": "FOLLOWS_FROM", "traceID": "dd" * 16, "spanID": "ee" * 8}],
        "tags": [{"key": "k", "value": "v"}, {"key": "otel.scope.name", "value": "tracer"}, {"key": "otel.status_code", "value": "ERROR"}, {"key": "otel.status_description", "value": "no"}],
        "logs": [{"timestamp": 1_700_000_001_000_000, "fields": [{"key": "event", "value": "e"}, {"key": "x", "value": 1}]}],
    }  # fmt: skip
    records = Records()
    records.add([row, {"data": [{"spans": [jaeger], "processes": {"p1": {"serviceName": "s", "tags": [{"key": "r", "value": 1}]}}}]}])
    for span in records.spans:
        assert (span.id, span.trace, span.parent, span.name, span.start, span.end) == ("aa" * 8, "bb" * 16, "cc" * 8, "n", 1.7e9, 1.7e9 + 2)
        assert (span.attrs["k"], span.scope, span.ok, span.error, span.links) == ("v", "tracer", False, "no", [("dd" * 16, "ee" * 8)])
        assert [(e.name, e.at, e.attrs) for e in span.events] == [("e", 1.7e9 + 1, {"x": 1})]
    assert [span.resource for span in records.spans] == [{"r": 1}, {"service.name": "s", "r": 1}]
    assert len(records.spans) == 2
