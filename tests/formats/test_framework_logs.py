"""Frameworks and harnesses that log runs their own way: each against counts of its raw records, which share no code with it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import logs
from counterpoint.app.discover import find
from counterpoint.errors import InputError
from counterpoint.trace import Trace

MORE = "more"


def read(name: str, path: Path) -> list[Trace]:
    return logs.imported(name, logs.files_of(path))


def owners(path: Path) -> set[str]:
    found = find([path])
    assert found.skipped == []
    return {name for name, _ in found.sessions}


# -- tau-bench -------------------------------------------------------------------------------------------------------------


def tau_counts(path: Path) -> list[tuple[float, int, int, int]]:
    """Reward, calls, results and answers of each run; the sample's second run writes its calls as text."""
    out = []
    for run in json.loads(path.read_text(encoding="utf-8")):
        said = [m for m in run["traj"] if m["role"] == "assistant"]
        printed = sum(m["role"] == "user" and m["content"].startswith("API output: ") for m in run["traj"])
        calls = sum(len(m.get("tool_calls") or []) for m in said) + printed
        results = sum(m["role"] == "tool" for m in run["traj"]) + printed
        out.append((float(run["reward"]), calls, results, len(said)))
    return out


def tau_paths() -> list[Path]:
    real = logs.REAL / MORE / "tau-bench-agentrx"
    return [logs.SAMPLES / "tau_bench" / "results.json", *(sorted(real.rglob("*.json")) if real.exists() else [])]


@pytest.mark.parametrize("path", tau_paths(), ids=lambda path: path.name)
def test_tau_bench_counts_are_those_of_the_records(path: Path) -> None:
    traces = read("tau_bench", path)
    kinds = [logs.kinds(trace) for trace in traces]
    found = [
        (trace.rewards["team"], kind["tool_call"], kind["tool_result"], kind["orchestrator_decision"])
        for trace, kind in zip(traces, kinds, strict=True)
    ]
    assert found == tau_counts(path)
    assert owners(path) == {"tau_bench"}
    assert {trace.costs["tokens"] for trace in traces} == {0}
    assert all("tokens" in trace.meta["import"]["lacks"] for trace in traces)


def test_tau_bench_says_which_call_failed_and_links_text_by_inference() -> None:
    asked, told = read("tau_bench", logs.SAMPLES / "tau_bench")
    assert [(e.tool, e.error) for e in asked.events if e.ok is False] == [("get_order", "Error: order not found")]
    assert asked.text(asked.events[-2]) == "It is cancelled."
    assert told.meta["import"]["links"] == {"inferred": {"the oldest call without an answer": 1}}


def tau_run(messages: list[dict[str, Any]]) -> bytes:
    return json.dumps([{"task_id": 1, "reward": 0, "info": {}, "traj": messages, "trial": 0}]).encode()


def test_tau_bench_reads_function_calls_of_the_old_form() -> None:
    called = {"role": "assistant", "content": None, "function_call": {"name": "sum", "arguments": "{}"}}
    answered = {"role": "function", "name": "sum", "content": "3"}
    (trace,) = logs.imported("tau_bench", {"x.json": tau_run([{"role": "user", "content": "Sum."}, called, answered])})
    assert Counter(e.type for e in trace.events) == {
        "human_intervention": 1, "orchestrator_decision": 1, "tool_call": 1, "tool_result": 1,
    }  # fmt: skip


def test_a_tau_bench_run_of_strange_messages_is_refused() -> None:
    strange = [{"role": "referee", "content": "x"}] * 3
    with pytest.raises(InputError, match="less than half"):
        logs.imported("tau_bench", {"x.json": tau_run([*strange, {"role": "user", "content": "Hello."}])})


# -- smolagents ------------------------------------------------------------------------------------------------------------


def smol_paths() -> list[Path]:
    real = logs.REAL / MORE / "traceforge"
    return [logs.SAMPLES / "smolagents" / "memory.jsonl", *(sorted(real.rglob("smolagents/*.jsonl")) if real.exists() else [])]


@pytest.mark.parametrize("path", smol_paths(), ids=lambda path: path.name)
def test_smolagents_counts_are_those_of_the_records(path: Path) -> None:
    steps = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    (trace,) = read("smolagents", path)
    used = [s["token_usage"] for s in steps if s.get("token_usage")]
    assert sum(e.tokens_in or 0 for e in trace.events) == sum(u["input_tokens"] for u in used)
    assert sum(e.tokens_out or 0 for e in trace.events) == sum(u["output_tokens"] for u in used)
    calls = sum(len(s.get("tool_calls") or []) for s in steps)
    kinds = logs.kinds(trace)
    assert (kinds["tool_call"], kinds["tool_result"]) == (calls, calls)
    assert kinds["orchestrator_decision"] == len(used)
    assert sum(e.ok is False for e in trace.events) == sum(bool(s.get("error")) for s in steps)
    assert owners(path) == {"smolagents"}


def test_smolagents_answer_is_that_of_the_final_step_in_every_envelope() -> None:
    path = logs.SAMPLES / "smolagents" / "memory.jsonl"
    steps = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    shapes = [json.dumps(steps), json.dumps({"output": "3.5 m", "state": "success", "steps": steps})]
    traces = [*read("smolagents", path), *(t for s in shapes for t in logs.imported("smolagents", {"x.json": s.encode()}))]
    assert [t.meta["answer"] for t in traces] == ["3.5 m"] * 3
    assert len({t.trace_id for t in traces}) == 1
    assert [e.error for e in traces[0].events if e.ok is False] == ["SyntaxError: '(' was never closed"]


def test_smolagents_records_of_which_most_are_strange_are_refused() -> None:
    path = logs.SAMPLES / "smolagents" / "memory.jsonl"
    strange = json.dumps({"weather": "wet"}) + "\n"
    with pytest.raises(InputError, match="less than half"):
        logs.imported("smolagents", {"x.jsonl": path.read_bytes() + (strange * 7).encode()})


# -- Google ADK ------------------------------------------------------------------------------------------------------------


def adk_paths() -> list[Path]:
    real = logs.REAL / MORE / "google-adk"
    found = sorted(real.rglob("*.session.json")) if real.exists() else []
    return [logs.SAMPLES / "google_adk" / "ferry.session.json", *(p for p in found if json.loads(p.read_text())["events"])]


def adk_parts(path: Path, kind: str) -> list[tuple[str, Any]]:
    """Author and content of each part of a kind, without pieces of streams."""
    events = [e for e in json.loads(path.read_text(encoding="utf-8"))["events"] if not e.get("partial")]
    return [(e["author"], p[kind]) for e in events for p in e["content"]["parts"] if kind in p]


@pytest.mark.parametrize("path", adk_paths(), ids=lambda path: path.name)
def test_google_adk_counts_are_those_of_the_records(path: Path) -> None:
    (trace,) = read("google_adk", path)
    kinds = logs.kinds(trace)
    calls = adk_parts(path, "function_call")
    assert kinds["tool_call"] == len(calls)
    assert kinds["tool_result"] == len(adk_parts(path, "function_response"))
    assert Counter(e.tool for e in trace.events if e.type == "tool_call") == Counter(call["name"] for _, call in calls)
    handed = [call["args"]["agent_name"] for _, call in calls if call["name"].startswith("transfer_to_")]
    assert [e.to for e in trace.events if e.type == "message"] == handed
    said = {author for kind in ("text", "function_call") for author, _ in adk_parts(path, kind)}
    assert {e.agent for e in trace.events} == said
    used = [e.get("usage_metadata", {}) for e in json.loads(path.read_text())["events"]]
    assert sum(e.tokens_in or 0 for e in trace.events) == sum(u.get("prompt_token_count", 0) for u in used)
    outs = [u.get("candidates_token_count", 0) + u.get("thoughts_token_count", 0) for u in used]
    assert sum(e.tokens_out or 0 for e in trace.events) == sum(outs)
    assert owners(path) == {"google_adk"}


def camel(value: Any) -> Any:
    """ADK's other spelling of names."""
    if isinstance(value, list):
        return [camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    words = {key: key.split("_") for key in value}
    return {w[0] + "".join(part.title() for part in w[1:]): camel(value[key]) for key, w in words.items()}


def test_google_adk_is_read_in_both_spellings_and_as_a_list_of_events() -> None:
    path = logs.SAMPLES / "google_adk" / "ferry.session.json"
    whole = json.loads(path.read_text(encoding="utf-8"))
    (first,) = read("google_adk", path)
    (other,) = logs.imported("google_adk", {"x.json": json.dumps(camel(whole)).encode()})
    assert [(e.id, e.type, e.tokens_in, e.tokens_out) for e in other.events if e.tool != "transfer_to_agent"] == [
        (e.id, e.type, e.tokens_in, e.tokens_out) for e in first.events if e.tool != "transfer_to_agent"
    ]
    (loose,) = logs.imported("google_adk", {"x.json": json.dumps(whole["events"]).encode()})
    assert [(e.id, e.type) for e in loose.events] == [(e.id, e.type) for e in first.events]


def test_google_adk_agents_hear_what_was_said_and_errors_stand_on_results() -> None:
    (trace,) = read("google_adk", logs.SAMPLES / "google_adk" / "ferry.session.json")
    assert {(e.src, e.dst) for e in trace.edges if e.type == "message"} == {
        ("v1", "v2"), ("v1", "v4"), ("adk-1:transfer", "v4"),
    }  # fmt: skip
    assert [(e.id, e.error) for e in trace.events if e.ok is False] == [("adk-3:result", "no such line")]
    assert trace.text(trace.events[-1]) == "At 22:40."
    assert trace.meta["left_out"] == {"pieces of streamed answers": 1}


def test_google_adk_events_of_no_author_are_refused_and_none_at_all_are_told() -> None:
    strange = {"id": "s", "app_name": "a", "user_id": "u", "events": [{"x": 1}, {"y": 2}, {"author": "user", "content": {}}]}
    with pytest.raises(InputError, match="less than half"):
        logs.imported("google_adk", {"x.json": json.dumps(strange).encode()})
    (session,) = logs.sessions("google_adk", {"x.json": json.dumps({**strange, "events": []}).encode()})
    assert list(logs.importer("google_adk").read_session(session)) == []
    assert session.report.broken[0]["what"] == "a session without events"


# -- Pydantic AI -----------------------------------------------------------------------------------------------------------


def pydantic_messages(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    records = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    return [r for r in records if r.get("kind") in ("request", "response")]


def pydantic_paths() -> list[Path]:
    real = logs.REAL / MORE / "traceforge"
    return [logs.SAMPLES / "pydantic_ai" / "messages.json", *(sorted(real.rglob("pydantic_ai/*.jsonl")) if real.exists() else [])]


@pytest.mark.parametrize("path", pydantic_paths(), ids=lambda path: path.name)
def test_pydantic_ai_counts_are_those_of_the_records(path: Path) -> None:
    (trace,) = read("pydantic_ai", path)
    messages = pydantic_messages(path)
    parts = Counter(part["part_kind"] for m in messages for part in m["parts"])
    used = [m["usage"] for m in messages if m["kind"] == "response"]
    retried = sum(p["part_kind"] == "retry-prompt" and p["tool_name"] is not None for m in messages for p in m["parts"])
    kinds = logs.kinds(trace)
    assert kinds["tool_call"] == parts["tool-call"] > 0
    assert kinds["tool_result"] == parts["tool-return"] + retried
    assert kinds["orchestrator_decision"] == len(used)
    assert kinds["human_intervention"] == parts["user-prompt"]
    assert sum(e.tokens_in or 0 for e in trace.events) == sum(u["input_tokens"] for u in used)
    assert sum(e.tokens_out or 0 for e in trace.events) == sum(u["output_tokens"] for u in used)
    assert "links" not in trace.meta["import"]
    assert owners(path) == {"pydantic_ai"}


def test_pydantic_ai_retry_is_the_failure_of_the_call_that_it_names() -> None:
    (trace,) = read("pydantic_ai", logs.SAMPLES / "pydantic_ai" / "messages.json")
    (failed,) = [e for e in trace.events if e.ok is False]
    assert (failed.id, failed.type, "Field required" in (failed.error or "")) == ("call_2:result", "tool_result", True)
    (asked,) = [e for e in trace.events if e.role == "system" and trace.text(e) == "Answer in grams."]
    assert asked.type == "message"
    assert trace.text(trace.events[-1]) == "800 g of rye."
    first = next(e for e in trace.events if e.type == "orchestrator_decision")
    assert (first.extra or {})["tokens_cache_read"] == 64


def test_pydantic_ai_events_of_a_stream_change_nothing() -> None:
    messages = json.loads((logs.SAMPLES / "pydantic_ai" / "messages.json").read_text(encoding="utf-8"))
    delta = {"event_kind": "part_delta", "index": 0, "delta": {"content_delta": "8", "part_delta_kind": "text"}}
    lines = "".join(json.dumps(r) + "\n" for r in [delta, *messages, delta])
    (plain,) = read("pydantic_ai", logs.SAMPLES / "pydantic_ai" / "messages.json")
    (told,) = logs.imported("pydantic_ai", {"x.jsonl": lines.encode()})
    assert [(e.id, e.type, e.tokens_in) for e in told.events] == [(e.id, e.type, e.tokens_in) for e in plain.events]
    assert told.meta["left_out"] == {"events of a stream": 2}


def test_pydantic_ai_parts_of_which_most_are_strange_are_refused() -> None:
    parts = [{"part_kind": "text", "content": "x"}, *[{"part_kind": "smell"}] * 9]
    with pytest.raises(InputError, match="less than half"):
        logs.imported("pydantic_ai", {"x.json": json.dumps([{"kind": "response", "parts": parts}]).encode()})


def test_pydantic_ai_events_alone_are_refused_with_what_to_export() -> None:
    part = {"part_kind": "text", "content": "8", "id": None}
    lines = json.dumps({"event_kind": "part_start", "index": 0, "part": part}) + "\n"
    with pytest.raises(InputError, match="no message"):
        logs.imported("pydantic_ai", {"x.jsonl": (lines * 2).encode()})


@pytest.mark.parametrize(
    ("name", "path", "key"),
    [
        ("agentdojo", "runs/gpt-4o/office/user_task_2/none/none.json", "role"),
        ("pydantic_ai", "messages.json", "part_kind"),
        ("tau_bench", "results.json", "role"),
        ("google_adk", "ferry.session.json", "id"),
    ],
)
def test_one_value_of_a_strange_kind_loses_no_more_than_its_record(name: str, path: str, key: str) -> None:
    text = (logs.SAMPLES / name / path).read_text(encoding="utf-8")
    whole = logs.imported(name, {path: text.encode()})
    at = text.rindex(f'"{key}": "') + len(key) + 4
    odd = text[:at] + "[{}]" + text[text.index('"', at + 1) + 1 :]
    traces = logs.imported(name, {path: odd.encode()})
    assert len(traces) == len(whole)
    assert sum(len(t.events) for t in traces) >= sum(len(t.events) for t in whole) - 2


# -- CrewAI ----------------------------------------------------------------------------------------------------------------


def crew_paths() -> list[Path]:
    real = logs.REAL / MORE / "traceforge"
    return [logs.SAMPLES / "crewai" / "events.jsonl", *(sorted(real.rglob("crewai/*.jsonl")) if real.exists() else [])]


@pytest.mark.parametrize("path", crew_paths(), ids=lambda path: path.name)
def test_crewai_counts_are_those_of_the_records(path: Path) -> None:
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    types = Counter(r["type"] for r in records)
    (trace,) = read("crewai", path)
    kinds = logs.kinds(trace)
    assert kinds["human_intervention"] == types["task_started"]
    assert kinds["orchestrator_decision"] == types["llm_call_completed"]
    assert kinds["tool_call"] == types["tool_usage_started"]
    assert kinds["tool_result"] == types["tool_usage_finished"] + types["tool_usage_error"]
    assert trace.costs["tokens"] == records[-1]["total_tokens"]
    assert trace.meta["answer"] == records[-1]["output"]["raw"]
    assert {e.agent for e in trace.events} - {"user"} == {r["agent_role"] for r in records if r["type"].startswith("llm_call")}
    asked = [e for e in trace.events if e.type == "human_intervention"]
    assert [trace.text(e) for e in asked] == [r["task"]["description"] for r in records if r["type"] == "task_started"]
    assert "links" not in trace.meta["import"]
    assert owners(path) == {"crewai"}


def test_crewai_agents_hear_their_task_and_who_worked_before() -> None:
    (trace,) = read("crewai", logs.SAMPLES / "crewai" / "events.jsonl")
    role = {e.id: e.role for e in trace.events}
    heard = [(role[e.src], role[e.dst]) for e in trace.edges if e.type == "message"]
    assert Counter(heard) == {("user", "finder"): 1, ("user", "writer"): 1, ("finder", "writer"): 1}
    assert [(e.tool, e.error) for e in trace.events if e.ok is False] == [("open", "no page 9")]


def test_crewai_lines_of_which_most_are_strange_are_refused() -> None:
    own = (logs.SAMPLES / "crewai" / "events.jsonl").read_bytes()
    with pytest.raises(InputError, match="less than half"):
        logs.imported("crewai", {"x.jsonl": own + b'{"type": "weather"}\n' * 40})
