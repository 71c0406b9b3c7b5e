"""OpenTelemetry in every encoding and dialect: the same team each time, each token once."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.formats.importer import Session
from counterpoint.formats.otel import records_of, spans_of, spans_of_records
from counterpoint.formats.spans.trees import traces_of
from counterpoint.trace import Trace

SAMPLES = logs.SAMPLES / "otel"


def sample(name: str) -> list[Trace]:
    return logs.imported("otel", logs.files_of(SAMPLES / name))


def read(data: bytes) -> list[Trace]:
    return logs.imported("otel", {"x": data})


def report(trace: Trace) -> dict[str, Any]:
    return dict(trace.meta["import"])


def shown(trace: Trace) -> list[tuple[str, str, str | None]]:
    return [(e.type, e.agent, e.to) for e in trace.events]


def text(trace: Trace, name: str) -> str:
    event = next(e for e in trace.events if e.id == name)
    return trace.contents[event.content_ref or ""]


def test_a_first_line_that_is_no_object_costs_only_itself() -> None:
    data = (SAMPLES / "handoff.otlp.jsonl").read_bytes()
    (whole,), (trace,) = read(data), read(b"[1, 2, 3]\n" + data)
    assert shown(trace) == shown(whole)
    assert trace.meta["import"]["session"]["broken"] == whole.meta["import"].get("session", {}).get("broken", 0) + 1


# -- samples ---------------------------------------------------------------------------------------------------------------

LEAD, GUIDE = "0000000000000a01", "0000000000000c01"


def test_a_team_in_otlp_json() -> None:
    (trace,) = sample("team.otlp.json")
    assert shown(trace) == [
        ("human_intervention", "user", LEAD),
        ("orchestrator_decision", LEAD, None),
        ("spawn", LEAD, GUIDE),
        ("message", GUIDE, None),
        ("tool_call", GUIDE, None),
        ("tool_result", GUIDE, None),
        ("return", GUIDE, LEAD),
        ("safety_event", LEAD, None),
        ("orchestrator_decision", LEAD, None),
        ("tool_call", LEAD, None),
        ("tool_result", LEAD, None),
    ]
    assert logs.tokens(trace) == {LEAD: (320, 38), GUIDE: (150, 16)}  # the agents' own sums are not added
    assert report(trace)["links"] == {"exact": {"an agent span inside its caller's": 1}}
    assert text(trace, "0000000000000b01") == "I ask the guide."
    assert text(trace, f"{LEAD}:input") == "A day by the water, please."
    events = {e.id: e for e in trace.events}
    first = events["0000000000000b01"]
    assert (first.extra or {})["tokens_cache_read"] == 100
    assert trace.contents[(first.extra or {})["thinking_ref"]] == "A guide knows towns."
    assert events["0000000000000b04"].reward == {"helpful": 0.75}
    assert (events["0000000000000b03"].extra or {})["verdict"] == "deny"
    assert [(e.ok, e.error) for e in trace.events if e.tool == "book"] == [(None, None), (False, "no answer in 100 ms")]
    assert [(e.trusted, e.source) for e in trace.events if e.type == "tool_result"] == [(False, "tool")] * 2


def test_old_conventions_handoffs_and_a_broken_line() -> None:
    (session,) = logs.sessions("otel", logs.files_of(SAMPLES / "handoff.otlp.jsonl"))
    (trace,) = logs.importer("otel").read_session(session)
    triage, billing, closing = "00000000000000a1", "00000000000000b1", "00000000000000c1"
    assert shown(trace) == [
        ("human_intervention", "user", triage),
        ("orchestrator_decision", triage, None),
        ("message", triage, billing),
        ("message", billing, None),
        ("message", billing, closing),
        ("message", closing, None),
    ]
    assert report(trace)["links"] == {
        "exact": {"a handoff span": 1},
        "inferred": {"agent spans one after the other under one workflow": 1},
    }
    assert logs.tokens(trace) == {triage: (40, 6), billing: (70, 11), closing: (80, 3)}
    assert (session.report.broken_count, session.report.broken[0]["line"], session.report.records) == (1, 4, 8)
    assert text(trace, "00000000000000a2") == "Billing will help."


def test_claude_code_spans_with_what_its_logs_add() -> None:
    (trace,) = sample("claude_code.jsonl")
    assert trace.trace_id == "3f2b6c1e-0000-4000-8000-00000000c0de"
    assert shown(trace) == [
        ("human_intervention", "user", "main"),
        ("orchestrator_decision", "main", None),
        ("spawn", "main", "a1"),
        ("message", "a1", None),
        ("tool_call", "a1", None),
        ("human_intervention", "user", "a1"),
        ("tool_result", "a1", None),
        ("return", "a1", "main"),
        ("spawn", "main", None),
        ("tool_result", "main", None),
        ("orchestrator_decision", "main", None),
    ]
    assert logs.tokens(trace) == {"main": (5 + 1200 + 4 + 1300, 80), "a1": (403 + 462, 35)}
    events = {e.id: e for e in trace.events}
    assert events["0000000000000102"].cost_usd == 0.0125  # from the log record of that request
    assert text(trace, "0000000000000101:prompt") == "Have the parser reviewed."
    assert text(trace, "000000000000010b") == "The parser is fine."
    assert (events["agent:a1"].role, events["000000000000010a"].error) == ("reviewer", "agent type not found")
    assert report(trace)["links"] == {"exact": {"an agent span inside its caller's": 1}}


def test_log_records_alone() -> None:
    claude, codex = sample("logs_only.jsonl")
    assert logs.kinds(claude) == {
        "human_intervention": 1, "orchestrator_decision": 2, "safety_event": 2, "spawn": 1, "return": 1
    }  # fmt: skip
    assert logs.tokens(claude) == {"main": (100, 5)}
    assert report(claude)["links"] == {"inferred": {"an agent span within the time of a tool call": 1}}
    assert [e.error for e in claude.events if e.ok is False and e.type == "orchestrator_decision"] == ["overloaded"]
    assert logs.kinds(codex) == {"human_intervention": 2, "orchestrator_decision": 3, "tool_call": 1, "tool_result": 1}
    assert logs.tokens(codex) == {"main": (1060, 60)}
    step = next(e for e in codex.events if e.tokens_in == 500)
    assert (step.extra or {})["tokens_cache_read"] == 300
    assert step.dur == pytest.approx(1.8)


def test_jaeger_clickhouse_and_the_console() -> None:
    (crew,) = sample("jaeger.json")
    assert logs.tokens(crew) == {"c000000000000002": (30, 8), "c000000000000005": (25, 4)}
    assert [e.tool for e in crew.events if e.type == "tool_call"] == ["lookup"]
    (autogen,) = sample("clickhouse.jsonl")
    manager, namer = (f"{n}_01f41b74-66dd-4438-a040-ac36c58253b6" for n in ("Manager", "Namer"))
    assert shown(autogen) == [
        ("human_intervention", "user", manager),
        ("message", manager, namer),
        ("message", namer, None),
    ]
    assert autogen.events[-1].role == "Namer"
    (ag2,) = sample("console.json")
    asker, painter = "e100000000000002", "e200000000000002"
    assert [(e.agent, e.to) for e in ag2.events if e.to] == [("hub", asker), ("user", asker), (asker, painter)]
    assert ("e100000000000004", "e200000000000003") in {(e.src, e.dst) for e in ag2.edges if e.type == "causal"}


# -- encodings -------------------------------------------------------------------------------------------------------------


def team() -> dict[str, Any]:
    return dict(json.loads((SAMPLES / "team.otlp.json").read_text()))


def snake(value: Any) -> Any:
    """OTLP JSON as collectors and SDKs write it in snake_case, with attributes as a map."""
    if isinstance(value, list):
        return [snake(v) for v in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for k, v in value.items():
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in k)
        out[name] = {a["key"]: snake(a["value"]) for a in v} if k == "attributes" else snake(v)
    return out


def tempo(doc: dict[str, Any]) -> dict[str, Any]:
    groups = [
        {"resource": g["resource"], "instrumentationLibrarySpans": [{"spans": s["spans"]} for s in g["scopeSpans"]]}
        for g in doc["resourceSpans"]
    ]
    return {"batches": groups}


def readable(doc: dict[str, Any]) -> list[dict[str, Any]]:
    out = []
    for span in snake(doc)["resource_spans"][0]["scope_spans"][0]["spans"]:
        attrs = {k: next(iter(v.values())) for k, v in span["attributes"].items()}
        attrs = {k: int(v) if k.startswith("gen_ai.usage") else v for k, v in attrs.items()}
        span = {**span, "attributes": attrs, "start_time": int(span.pop("start_time_unix_nano"))}
        out.append({**span, "end_time": int(span.pop("end_time_unix_nano")), "span_events": span.pop("events", [])})
    return out


@pytest.mark.parametrize(
    "change",
    [snake, tempo, readable, lambda d: {"session_id": "x", "spans": readable(d)}, lambda d: {"trace": d}],
    ids=["snake_case", "tempo", "readable", "readable under spans", "wrapped"],
)
def test_every_encoding_gives_the_same_trace(change: Callable[[dict[str, Any]], Any]) -> None:
    (wanted,) = sample("team.otlp.json")
    (found,) = read(json.dumps(change(team())).encode())
    assert found.events == wanted.events
    assert found.edges == wanted.edges


def binary(doc: dict[str, Any], name: str = "trace") -> bytes:
    """The document as a protobuf body, by the exporter's own classes."""
    service = pytest.importorskip(f"opentelemetry.proto.collector.{name}.v1.{name}_service_pb2")
    from google.protobuf.json_format import ParseDict

    made = service.ExportTraceServiceRequest() if name == "trace" else service.ExportLogsServiceRequest()
    text = json.dumps(doc)
    for key, size in (("traceId", 32), ("spanId", 16), ("parentSpanId", 16)):
        text = re.sub(
            rf'"{key}": "([0-9a-f]{{{size}}})"',
            lambda m, key=key: f'"{key}": "{base64.b64encode(bytes.fromhex(m[1])).decode()}"',
            text,
        )
    return bytes(ParseDict(json.loads(text), made).SerializeToString())


def test_protobuf_bodies_and_request_bodies() -> None:
    (wanted,) = sample("team.otlp.json")
    data = binary(team())
    (found,) = read(data)
    assert found.events == wanted.events
    assert [t.events for t in read(gzip.compress(data))] == [wanted.events]
    for body, kind in ((data, "application/x-protobuf"), (data, ""), (json.dumps(team()).encode(), "application/json")):
        spans, said = spans_of(body, kind)
        (again,) = traces_of(spans, Session("", []), system="otel")
        assert (again.events, said.records) == (wanted.events, 11)
    log = json.loads((SAMPLES / "claude_code.jsonl").read_text().splitlines()[-1])
    records, _ = records_of(binary(log, "logs"), "application/x-protobuf")
    assert [(r.name, r.attrs["request_id"]) for r in records.logs] == [("assistant_response", "req_4")]


def test_records_of_many_bodies_join() -> None:
    whole, said = records_of(b"{}", "application/json")
    for line in (SAMPLES / "claude_code.jsonl").read_bytes().splitlines():
        some, _ = records_of(line, "application/json")
        for record in (*some.spans, *some.logs):
            record.order = len(whole.spans) + len(whole.logs)
        whole.spans += some.spans
        whole.logs += some.logs
    (found,) = traces_of(spans_of_records(whole, said), Session("", []), system="otel")
    assert logs.kinds(found) == logs.kinds(sample("claude_code.jsonl")[0])


def test_a_body_that_is_neither_is_refused() -> None:
    for data, kind in ((b"\x00\x01", ""), (b"\x00\x01", "application/x-protobuf"), (b"{", "application/json"), (b"words", "")):
        with pytest.raises(InputError):
            spans_of(data, kind)


def test_protobuf_is_read_without_protobufs_own_library() -> None:
    data = binary(team())
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('google', 'google.protobuf', 'opentelemetry', 'opentelemetry.proto')))\n"
        "from counterpoint.formats.otel import spans_of; print(len(spans_of(sys.stdin.buffer.read())[0]))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert int(done.stdout) == len(spans_of(json.dumps(team()).encode())[0]) == 11


# -- odd input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0.4, 0.6, 0.8])
@pytest.mark.parametrize("name", ["handoff.otlp.jsonl", "claude_code.jsonl", "clickhouse.jsonl"])
def test_a_file_that_grows_keeps_its_ids(name: str, cut: float) -> None:
    data = (SAMPLES / name).read_bytes()
    ids = {e.id for t in read(data) for e in t.events}
    part = {e.id for t in read(data[: int(len(data) * cut)]) for e in t.events}
    assert part
    assert {i for i in part - ids if not i.endswith((":input", ":result", ":return", ":output"))} <= {"0000000000000104"}


def test_strange_values_break_nothing() -> None:
    span = team()["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    odd = [
        {**span, "spanId": ""},
        {**span, "spanId": 7},
        {**span, "attributes": "x", "events": [1, None, {}], "links": [None, {}], "status": 3},
        {**span, "attributes": [{"key": "gen_ai.operation.name", "value": {"intValue": "x"}}, {"value": 1}, None]},
        {**span, "startTimeUnixNano": "soon", "endTimeUnixNano": "0", "parentSpanId": span["spanId"]},
        {**span, "attributes": [{"key": "gen_ai.output.messages", "value": {"stringValue": "[{"}}]},
        {**span, "attributes": [{"key": "gen_ai.operation.name", "value": {"arrayValue": {"values": []}}}]},
    ]
    for at in range(len(odd)):
        doc = {"resourceSpans": [{"scopeSpans": [{"spans": [odd[at]]}]}, None, 3, {"scopeSpans": [4, {"spans": [5]}]}]}
        read(json.dumps(doc).encode())
    read(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": odd}]}]}).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"a":1}',
        b"\x0a\x05hello",
        b'{"type":"user","message":{"content":"{\\"span_id\\": 1, \\"trace_id\\": 2, \\"resourceSpans\\": []}"}}',
        b'{"span_id":"1"}',
        b'{"trace_id":"t","run_id":"r"}',
    ],
)
def test_other_files_are_not_ours(data: bytes) -> None:
    assert logs.importer("otel").sniff(data) is False


def test_span_ids_need_only_be_unique_in_their_trace() -> None:
    one, two = team(), team()
    for span in two["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        span["traceId"] = "b" * 32
    first, second = read(f"{json.dumps(one)}\n{json.dumps(two)}\n".encode())
    assert (first.events, second.trace_id) == (second.events, "b" * 32)


def test_a_sub_agent_of_claude_code_that_runs_on_in_a_trace_of_its_own() -> None:
    def span(name: str, at: float, trace: str = "1" * 32, **attrs: Any) -> dict[str, Any]:
        ids = {"trace_id": trace, "span_id": attrs.pop("id"), "parent_span_id": attrs.pop("up", None)}
        times = {"start_time": int((1.7e9 + at) * 1e9), "end_time": int((1.7e9 + at + 1) * 1e9)}
        return {**ids, **times, "name": f"claude_code.{name}", "attributes": {"session.id": "s", **attrs}}

    used = {"input_tokens": 1, "output_tokens": 1}
    rows = [
        span("interaction", 0, id="r", user_prompt="go"),
        span("llm_request", 1, id="l", up="r", **used),
        span("tool", 2, id="t", up="r", tool_name="Agent", tool_use_id="u", subagent_type="worker"),
        span("llm_request", 2.5, id="m", up="t", agent_id="a", **used),
        span("llm_request", 9, "2" * 32, id="n", up="gone", agent_id="b", parent_agent_id="a", query_source="helper", **used),
        span("llm_request", 10, "3" * 32, id="o", up="gone", agent_id="c", **used),
    ]
    (trace,) = read(json.dumps(rows).encode())
    assert [(e.agent, e.to, e.role) for e in trace.events if e.type == "spawn"] == [("main", "a", "worker"), ("a", "b", "helper")]
    assert report(trace)["links"] == {"exact": {"an agent span inside its caller's": 2}, "unlinked": 1}
    assert logs.tokens(trace) == {"main": (1, 1), "a": (1, 1), "b": (1, 1), "c": (1, 1)}


def test_a_span_without_an_id_is_counted() -> None:
    spans, said = spans_of(b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"1","name":"x","spanId":""}]}]}]}')
    assert (spans, said.broken_count, said.records) == ([], 1, 0)


def test_a_document_of_which_the_end_is_missing() -> None:
    data = (SAMPLES / "console.json").read_bytes()
    (session,) = logs.sessions("otel", {"console.json": data[:-40]})
    (trace,) = logs.importer("otel").read_session(session)
    assert session.report.broken_count == 1
    assert len(trace.events) == 4


# -- real exports ----------------------------------------------------------------------------------------------------------


def real(*parts: str) -> tuple[Any, list[Trace]]:
    path = logs.real(*parts)
    return json.loads(path.read_text()), logs.imported("otel", logs.files_of(path))


def attr_sum(spans: list[dict[str, Any]], *names: str) -> int:
    return sum(int(s[n]) for s in spans for n in names if n in s)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["adk_live_spans", "openai_agents_genai_adot_spans", "openai_agents_genai_live_spans"])
def test_real_spans_of_sdks(name: str) -> None:
    doc, traces = real("otel_genai", "strands-evals_live_spans", f"{name}.json")
    spans = doc["spans"] if isinstance(doc, dict) else doc
    by_op: Counter[str] = Counter()
    paid = []
    for span in spans:
        operation = span["attributes"].get("gen_ai.operation.name")
        by_op[str(operation)] += 1
        if operation in ("chat", "generate_content"):  # ADK's call_llm around them repeats the tokens
            paid.append(span["attributes"])
    (trace,) = traces
    found = logs.tokens(trace)
    assert sum(a for a, _ in found.values()) == attr_sum(paid, "gen_ai.usage.input_tokens")
    assert sum(b for _, b in found.values()) == attr_sum(paid, "gen_ai.usage.output_tokens")
    kinds = logs.kinds(trace)
    spawned = {s["attributes"]["gen_ai.tool.name"] for s in spans if s["name"].startswith("ask_")}
    assert kinds["spawn"] == kinds["return"] == len(spawned)
    assert kinds["tool_call"] == kinds["tool_result"] == by_op["execute_tool"] - len(spawned)
    named = {
        s["attributes"]["gen_ai.agent.name"] for s in spans if s["name"].startswith("invoke_agent ") or ".agent" in s["name"]
    }
    assert {e.role for e in trace.events if e.agent != "user"} >= named
    handoffs = [e for e in trace.events if e.type == "message" and e.to]
    assert len(handoffs) == by_op["agent_handoff"]


@pytest.mark.shared
def test_a_real_jaeger_export_in_which_two_tracers_tell_one_call() -> None:
    doc, (trace,) = real("otel_genai", "agentevals_samples", "k8s.json")
    tags = [{t["key"]: t["value"] for t in s["tags"]} for s in doc["data"][0]["spans"]]
    outer, inner = attr_sum(tags, "gen_ai.usage.input_tokens"), attr_sum(tags, "gen_ai.usage.prompt_tokens")
    assert outer == inner > 0
    assert sum(a for a, _ in logs.tokens(trace).values()) == inner


@pytest.mark.shared
def test_real_rows_of_autogens_runtime() -> None:
    rows, traces = real("otel_genai", "agntcy_clickhouse_rows", "api_noa_2.json")
    attrs = [r["SpanAttributes"] for r in rows]
    assert sum(a for t in traces for a, _ in logs.tokens(t).values()) == attr_sum(attrs, "gen_ai.usage.prompt_tokens")
    assert sum(b for t in traces for _, b in logs.tokens(t).values()) == attr_sum(attrs, "gen_ai.usage.completion_tokens")
    worked = [a for a in attrs if a.get("messaging.operation") == "process"]
    sent = Counter((a["sender_agent_type"], a["recipient_agent_type"]) for a in worked if "sender_agent_type" in a)
    team = max(traces, key=lambda t: len(t.events))
    assert Counter((e.agent, e.to) for e in team.events if e.type == "message" and e.to) == sent
    by_people = [a for a in attrs if a.get("ioa_observe.span.kind") == "agent" or (a in worked and "sender_agent_type" not in a)]
    assert (len(traces), logs.kinds(team)["human_intervention"]) == (1, len(by_people))
    names = {"moderator-agent", *(a["recipient_agent_type"].split("_")[0] for a in worked)}
    assert {next(e.role for e in team.events if e.agent == agent and e.role) for agent in team.members} == names


@pytest.mark.shared
def test_a_real_sub_agent_inside_a_tool() -> None:
    doc, (trace,) = real("otel_genai", "agentv_nested-subagent.json")
    spans = {s["span_id"]: s for s in doc["trace"]["spans"]}
    agents = [s for s in spans.values() if s["attributes"]["gen_ai.operation.name"] == "invoke_agent"]
    subs = [s["span_id"] for s in agents if s["parent_span_id"]]
    assert [e.to for e in trace.events if e.type == "spawn"] == subs
    tools = [s for s in spans.values() if s["attributes"]["gen_ai.operation.name"] == "execute_tool"]
    assert logs.kinds(trace)["tool_call"] == len(tools) - len(subs)


# -- one run over several traces and files ---------------------------------------------------------------------------------


def flat(k: int, at: float, trace: str, **attrs: Any) -> dict[str, Any]:
    ids = {"trace_id": trace, "span_id": f"{k:016x}", "parent_span_id": None}
    times = {"start_time": int((1.7e9 + at) * 1e9), "end_time": int((1.7e9 + at + 1) * 1e9)}
    return {**ids, **times, "name": "chat m", "attributes": {"gen_ai.operation.name": "chat", **attrs}}


def five_agents() -> list[dict[str, Any]]:
    used = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2, "gen_ai.request.model": "m"}
    return [
        flat(k + 1, k, f"{k % 5 + 1:032x}", **{"gen_ai.agent.id": f"agent-{k % 5}", "gen_ai.agent.name": "worker", "session.id": "day-1", **used})
        for k in range(20)
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["session.id", "gen_ai.conversation.id"])
def test_five_agents_in_five_traces_of_one_session_are_one_team(key: str) -> None:
    rows = five_agents()
    for row in rows:
        row["attributes"][key] = row["attributes"].pop("session.id")
    (trace,) = read("".join(json.dumps(row) + "\n" for row in rows).encode())
    assert sorted(trace.members) == [f"agent-{k}" for k in range(5)]
    assert (trace.trace_id, trace.tokens) == (f"{1:032x}", 240)


def test_files_of_one_session_are_read_together() -> None:
    rows = five_agents()
    halves = {f"spans-{k}.jsonl": "".join(json.dumps(row) + "\n" for row in rows[k::2]).encode() for k in range(2)}
    other = json.dumps({**flat(99, 0, "f" * 32), "name": "chat z"}) + "\n"
    session, alone = logs.sessions("otel", {**halves, "z.jsonl": (other + other.replace("63", "64")).encode()})
    assert [f.name for f in session.files] == ["spans-0.jsonl", "spans-1.jsonl"]
    (trace,) = logs.importer("otel").read_session(session)
    assert trace.tokens == 240
    assert [f.name for f in alone.files] == ["z.jsonl"]


@pytest.mark.parametrize("wrap", [json.dumps, lambda value: value], ids=["text", "object"])
def test_spans_inside_a_log_routers_raw(wrap: Any) -> None:
    plain = read("".join(json.dumps(row) + "\n" for row in five_agents()).encode())
    routed = [{"_time": 1.7e9, "host": "h", "source": "otel", "_raw": wrap(row), "cribl_pipe": "p"} for row in five_agents()]
    assert read("".join(json.dumps(row) + "\n" for row in routed).encode()) == plain
    whole = {"_raw": wrap(team()), "_time": 1}
    assert read(json.dumps([whole]).encode()) == read(json.dumps(team()).encode())
