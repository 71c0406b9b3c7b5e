"""OpenInference: agents in tools, handoffs, lost kinds, and tokens counted once, in every envelope."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.formats.spans.openinference import flat
from counterpoint.trace import Trace

FOLDER = logs.SAMPLES / "openinference"


def sample(name: str) -> Trace:
    (trace,) = logs.imported("openinference", logs.files_of(FOLDER / name))
    return trace


def spans() -> list[dict[str, Any]]:
    return json.loads((FOLDER / "team.json").read_text())


def read(found: Any) -> list[Trace]:
    return logs.imported("openinference", {"x.json": json.dumps(found).encode()})


def test_an_agent_inside_a_tool_is_a_sub_agent_named_by_its_type() -> None:
    trace = sample("team.json")
    assert [(e.id, e.type, e.agent[:2], e.role) for e in trace.events] == [
        ("a0000000000000a1:input", "human_intervention", "us", "user"),
        ("a1000000000000a1", "orchestrator_decision", "a0", "ClaudeAgentSDK"),
        ("b1000000000000a1", "spawn", "a0", "reader"),
        ("c0000000000000a1", "message", "b1", "reader"),
        ("c1000000000000a1", "tool_call", "b1", "reader"),
        ("c1000000000000a1:result", "tool_result", "b1", "reader"),
        ("c2000000000000a1", "tool_call", "b1", "reader"),
        ("c2000000000000a1:result", "tool_result", "b1", "reader"),
        ("c3000000000000a1", "return", "b1", "reader"),
        ("b3000000000000a1", "safety_event", "a0", "ClaudeAgentSDK"),
        ("b4000000000000a1", "tool_call", "a0", "ClaudeAgentSDK"),
        ("b4000000000000a1:result", "tool_result", "a0", "ClaudeAgentSDK"),
        ("b5000000000000a1", "orchestrator_decision", "a0", "ClaudeAgentSDK"),
    ]
    spawn, back = trace.events[2], trace.events[8]
    assert (spawn.to, trace.text(spawn)) == ("b1000000000000a1", "Read page 3.")
    assert (back.to, trace.text(back)) == ("a0000000000000a1", "Page 3 is blank.")
    assert trace.meta["import"]["links"] == {"exact": {"an agent span inside its caller's": 1}}
    assert trace.topology == "centralized"


def test_tokens_stand_once_and_hold_the_cache() -> None:
    trace = sample("team.json")
    # 120 + (40 + 500 + 60, a count that leaves the cache out) and 300 + 340, of which 200 cached; not the agent's 1,500.
    assert logs.tokens(trace) == {"a0000000000000a1": (720, 29), "b1000000000000a1": (640, 20)}
    last = trace.events[-1]
    assert last.extra is not None
    assert (last.extra["tokens_cache_read"], last.extra["tokens_cache_write"], last.cost_usd) == (500, 60, 0.002)
    assert last.reward == {"helpful": 0.5}


def test_what_a_tool_says_is_not_trusted_and_its_failure_is_told() -> None:
    trace = sample("team.json")
    results = [e for e in trace.events if e.type == "tool_result"]
    assert {(e.trusted, e.source) for e in results} == {(False, "tool")}
    assert [(e.ok, e.error) for e in results] == [(True, None), (False, "there is no page 99"), (True, None)]
    guard = next(e for e in trace.events if e.type == "safety_event")
    assert guard.extra is not None
    assert guard.extra["verdict"] == "triggered"
    assert any(e.type == "safety_flow" and e.src == "c1000000000000a1:result" for e in trace.edges)


def test_handoff_in_otlp_lines_with_a_broken_one() -> None:
    (session,) = logs.sessions("openinference", logs.files_of(FOLDER / "handoff.jsonl"))
    (trace,) = logs.importer("openinference").read_session(session)
    assert (session.report.broken_count, session.report.broken[0]["line"]) == (1, 6)
    assert [(e.type, e.role, e.to) for e in trace.events] == [
        ("human_intervention", "user", "d2000000000000b2"),
        ("orchestrator_decision", "desk", None),
        ("message", "desk", "e1000000000000b2"),
        ("message", "tailor", None),
    ]
    assert logs.tokens(trace) == {"d2000000000000b2": (80, 11), "e1000000000000b2": (95, 14)}
    assert trace.meta["import"]["links"] == {"exact": {"a handoff span": 1}}
    handoff = trace.events[2]
    assert handoff.ok is None
    assert handoff.extra == {"is_handoff": True, "status": "error"}


def test_spans_that_lost_their_kind_are_told_by_their_bodies() -> None:
    trace = sample("bodies.json")
    assert [(e.id, e.type, e.agent) for e in trace.events] == [
        ("graph-1:input", "human_intervention", "user"),
        ("model-1", "orchestrator_decision", "graph-1"),
        ("tool-1", "tool_call", "graph-1"),
        ("tool-1:result", "tool_result", "graph-1"),
        ("model-2", "orchestrator_decision", "graph-1"),
    ]
    assert trace.text(trace.events[3]) == "calm"


def test_an_agents_sum_counts_where_no_model_call_has_any() -> None:
    found = [s for s in spans() if s["attributes"]["openinference.span.kind"] != "LLM"]
    (trace,) = read(found)
    assert logs.tokens(trace) == {"a0000000000000a1": (1500, 49)}


def test_a_tool_that_names_an_agent_which_left_no_span_is_a_loose_spawn() -> None:
    found = [s for s in spans() if not s["span_id"].startswith(("c", "b1"))]
    (trace,) = read(found)
    (spawn,) = [e for e in trace.events if e.type == "spawn"]
    assert (spawn.to, spawn.role) == (None, "reader")
    assert trace.meta["import"]["links"]["unlinked"] == 1


@pytest.mark.parametrize("wrap", [lambda s: {"spans": s, "session_id": "x"}, lambda s: {"data": s}, lambda s: list(reversed(s))])
def test_envelopes_and_order_change_nothing(wrap: Any) -> None:
    (trace,) = read(wrap(spans()))
    plain = sample("team.json")
    assert [(e.id, e.type, e.t) for e in trace.events] == [(e.id, e.type, e.t) for e in plain.events]
    assert set(trace.edges) == set(plain.edges)


def test_nested_attributes_are_what_flat_ones_are() -> None:
    nested = {"llm": {"token_count": {"prompt": 3}, "output_messages": [{"message": {"role": "assistant"}}]}, "a": [1]}
    assert flat(nested) == {"llm.token_count.prompt": 3, "llm.output_messages.0.message.role": "assistant", "a": [1]}


def test_a_phoenix_export_with_nested_attributes_and_annotations() -> None:
    base = {"context": {"trace_id": "p" * 8}, "start_time": "2026-02-02T00:00:00+00:00", "end_time": "2026-02-02T00:00:02+00:00"}
    agent = {**base, "name": "run", "parent_id": None, "status_code": "OK", "context": {"trace_id": "p" * 8, "span_id": "one"}}
    agent["attributes"] = {
        "openinference": {"span": {"kind": "AGENT"}},
        "agent": {"name": "clerk"},
        "input": {"value": "File it."},
    }
    call = {
        **agent,
        "name": "model",
        "parent_id": "one",
        "context": {"trace_id": "p" * 8, "span_id": "two"},
        "status_code": "ERROR",
    }
    call["attributes"] = {
        "openinference": {"span": {"kind": "LLM"}},
        "llm": {
            "token_count": {"prompt": 4, "completion": 2},
            "output_messages": [{"message": {"role": "assistant", "content": "Filed."}}],
        },
    }
    call["annotations"] = [{"name": "tidy", "result": {"score": 0.25, "label": "no"}}]
    found = json.dumps([agent, call]).replace('"openinference": {"span": {"kind": "LLM"}}', '"openinference.span.kind": "LLM"')
    (trace,) = logs.imported("openinference", {"x.json": found.encode()})
    told, step = trace.events
    assert (told.type, told.to, trace.text(told)) == ("human_intervention", "one", "File it.")
    assert (step.role, step.tokens_in, step.tokens_out, step.ok, trace.text(step)) == ("clerk", 4, 2, False, "Filed.")
    assert step.reward == {"tidy": 0.25}


def test_protobuf_holds_the_same_as_json() -> None:
    json_format = pytest.importorskip("google.protobuf.json_format")
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    whole: dict[str, Any] = {"resourceSpans": []}
    for line in (FOLDER / "handoff.jsonl").read_text().splitlines():
        try:
            whole["resourceSpans"] += json.loads(line)["resourceSpans"]
        except ValueError:
            continue
    hexed = json.dumps(whole)
    for name in {s["spanId"] for r in whole["resourceSpans"] for s in r["scopeSpans"][0]["spans"]} | {"b2" * 16}:
        hexed = hexed.replace(f'"{name}"', f'"{base64.b64encode(bytes.fromhex(name)).decode()}"')
    body = json_format.Parse(hexed, service.ExportTraceServiceRequest()).SerializeToString()
    (trace,) = logs.imported("openinference", {"x.pb": body})
    assert [(e.id, e.type, e.t) for e in trace.events] == [(e.id, e.type, e.t) for e in sample("handoff.jsonl").events]


def test_a_session_that_grows_keeps_its_ids() -> None:
    whole = {e.id for e in sample("team.json").events}
    ended = sorted(spans(), key=lambda s: s["end_time"])  # as exporters write them
    for n in range(1, len(ended) + 1):
        steps = {e.id for trace in read(ended[:n]) for e in trace.events if ":" not in e.id}
        # Until its agent is told, the tool that made it stands for the spawn.
        assert steps
        assert steps - {"b0000000000000a1"} <= whole


def test_it_knows_its_own_files_only() -> None:
    sniff = logs.importer("openinference").sniff
    for file in logs.files_of(FOLDER):
        assert sniff(file.head())
    for name in ("langfuse", "langsmith", "trail", "openai_agents"):
        assert not any(sniff(file.head()) for file in logs.files_of(logs.SAMPLES / name)), name
    kind_only = b'{"spans": [{"attributes": {"openinference.span.kind": "LLM", "gen_ai.operation.name": "chat"}}]}'
    assert not sniff(kind_only)


@pytest.mark.parametrize(
    "data", [b'[{"attributes": {"openinference.span.kind": "LLM", "llm.x": 1}}]', b'{"spans": "openinference"}', b"["]
)
def test_bad_input_is_an_input_error(data: bytes) -> None:
    read_ = logs.importer("openinference").read
    assert read_ is not None
    with pytest.raises(InputError):
        list(read_(data))


@pytest.mark.shared
def test_real_dumps_against_a_count_of_their_own() -> None:
    paths = sorted(logs.real("openinference").rglob("*.json"))
    paths += [p for p in sorted(logs.real("openai_agents").glob("*.json")) if "openinference" in p.name]
    seen = Counter[str]()
    for path in paths:
        traces = logs.imported("openinference", logs.files_of(path))
        raw = json.loads(path.read_text())
        raw = raw["spans"] if isinstance(raw, dict) else raw
        assert {t.trace_id for t in traces} == {s["trace_id"] for s in raw}
        kinds = Counter(s["attributes"].get("openinference.span.kind") for s in raw)
        by_id = {s["span_id"]: s for s in raw}
        inside = [s for s in raw if _kind(s) == "AGENT" and (p := by_id.get(s["parent_span_id"])) and _kind(p) == "TOOL"]
        got: Counter[str] = sum((logs.kinds(t) for t in traces), Counter())
        if kinds["LLM"]:
            want = [_sum(raw, "LLM", side) for side in ("prompt", "completion")]
            found = [sum(n for t in traces for pair in logs.tokens(t).values() for n in [pair[k]]) for k in (0, 1)]
            assert found == want, path.name
        handoffs = sum(s["name"].startswith("handoff to ") for s in raw)
        calls = {p["span_id"] for s in raw if _kind(s) == "AGENT" for p in [_tool_above(s, by_id)] if p}
        if kinds["TOOL"]:
            assert got["tool_call"] == got["tool_result"] == kinds["TOOL"] - handoffs - len(calls), path.name
            assert got["spawn"] == got["return"] == len(calls) >= len(inside), path.name
        seen["spawns"] += got["spawn"]
        seen["handoffs"] += handoffs
        seen["traces"] += len(traces)
    assert seen == {"spawns": 6, "handoffs": 1, "traces": 7}


def _kind(span: dict[str, Any]) -> Any:
    return span["attributes"].get("openinference.span.kind")


def _tool_above(span: dict[str, Any], by_id: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    at = by_id.get(span["parent_span_id"])
    while at is not None and _kind(at) not in ("TOOL", "AGENT"):
        at = by_id.get(at["parent_span_id"])
    return at if at is not None and _kind(at) == "TOOL" else None


def _sum(raw: list[dict[str, Any]], kind: str, side: str) -> int:
    return sum(int(s["attributes"].get(f"llm.token_count.{side}", 0)) for s in raw if _kind(s) == kind)


@pytest.mark.shared
def test_claudes_sum_holds_what_it_read_from_the_cache() -> None:
    (trace,) = logs.imported(
        "openinference", logs.files_of(logs.real("openinference", "strands-evals_live_spans", "claude_adot_spans.json"))
    )
    raw = json.loads(logs.real("openinference", "strands-evals_live_spans", "claude_adot_spans.json").read_text())["spans"]
    (query,) = [s["attributes"] for s in raw if "llm.token_count.prompt" in s["attributes"]]
    parts = [query[f"llm.token_count.prompt{part}"] for part in ("", "_details.cache_read", "_details.cache_write")]
    assert list(logs.tokens(trace).values()) == [(sum(parts), query["llm.token_count.completion"])]
    roles = {e.role for e in trace.events if e.type == "spawn"}
    assert roles == {"math-agent", "conversion-agent"}


@pytest.mark.shared
def test_each_real_file_has_one_owner_among_the_dialects_of_spans() -> None:
    dialects = ["openinference", "openai_agents", "langsmith", "langfuse", "trail"]
    owners: Counter[tuple[str, ...]] = Counter()
    for folder in ("openinference", "openai_agents", "langgraph_langsmith", "langfuse_framework_traces", "trail", "otel_genai"):
        for file in logs.files_of(logs.real(folder)):
            owners[folder, *(name for name in dialects if logs.importer(name).sniff(file.head()))] += 1
    assert owners == {
        ("openinference", "openinference"): 5,
        ("openai_agents", "openinference"): 1,
        ("openai_agents",): 1,
        ("langgraph_langsmith", "langfuse"): 1,
        ("langgraph_langsmith", "langsmith"): 3,
        ("langfuse_framework_traces", "langfuse"): 11,
        ("trail", "trail"): 24,
        ("otel_genai",): 11,
    }


def phoenix() -> list[dict[str, Any]]:
    return json.loads((FOLDER / "phoenix.json").read_text())["data"]


def columns(row: dict[str, Any]) -> dict[str, Any]:
    """A row of Phoenix's table of spans."""
    rest = {k: v for k, v in row.items() if k not in ("id", "context", "attributes")}
    kinds = {f"attributes.{k}": v for k, v in row["attributes"].items()}
    return {**rest, **{f"context.{k}": v for k, v in row["context"].items()}, **kinds, "attributes.llm.cost.total": None}


def text_attributes(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "attributes": json.dumps(row["attributes"])}


@pytest.mark.parametrize("shape", [dict, columns, text_attributes])
@pytest.mark.parametrize("lines", [False, True])
def test_a_phoenix_export_says_the_kind_beside_the_attributes(shape: Any, lines: bool) -> None:
    rows = [shape(row) for row in phoenix()]
    data = "".join(json.dumps(row) + "\n" for row in rows) if lines else json.dumps(rows)
    (trace,) = logs.imported("openinference", {"x.json": data.encode()})
    kinds = Counter(row["span_kind"] for row in phoenix())
    assert logs.kinds(trace)["tool_call"] == logs.kinds(trace)["tool_result"] == kinds["TOOL"] + kinds["RETRIEVER"] == 3
    counts = [row["attributes"].get(f"llm.token_count.{side}", 0) for row in phoenix() for side in ("prompt", "completion")]
    assert trace.costs["tokens"] == sum(counts) == 593
    assert [e.tool for e in trace.events if e.type == "tool_call"] == ["measure", "weather", "almanac"]
    assert [e.error for e in trace.events if e.ok is False] == ["no such station"]
    assert {e.role for e in trace.events if e.type != "human_intervention"} == {"gardener"}


def test_a_kind_beside_the_attributes_is_of_openinferences_or_says_nothing() -> None:
    other = [{**row, "span_kind": row["span_kind"].lower()} for row in phoenix()]
    assert not logs.sessions("openinference", {"x.json": json.dumps(other).encode().replace(b"llm.", b"m.")})
    internal = [{**row, "span_kind": "INTERNAL"} for row in phoenix()]
    assert not logs.sessions("openinference", {"x.json": json.dumps(internal).encode()})


def test_genai_attributes_under_a_stated_kind_are_read_as_that_kind() -> None:
    base = {"context": {"trace_id": "a" * 32, "span_id": "b" * 16}, "parent_id": None, "start_time": "2026-01-01T00:00:00Z"}
    row = {**base, "name": "run", "span_kind": "TOOL", "status_code": "OK", "attributes": {"gen_ai.tool.name": "bell"}}
    (trace,) = read([row])
    assert [(e.type, e.tool) for e in trace.events] == [("tool_call", "bell")]
