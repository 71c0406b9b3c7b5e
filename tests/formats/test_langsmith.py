"""LangSmith: batches merged by id, LangGraph's graphs as agents, handoffs and interrupts."""

from __future__ import annotations

import json
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.trace import Trace

FOLDER = logs.SAMPLES / "langsmith"


def sample(name: str) -> Trace:
    (trace,) = logs.imported("langsmith", logs.files_of(FOLDER / name))
    return trace


def short(name: str | None) -> str | None:
    """`00000011-0000-...:input` as `11:input`."""
    return name and name.replace("-0000-4000-8000-000000000000", "").lstrip("0")


def test_a_supervisor_and_its_agent() -> None:
    trace = sample("supervisor.jsonl")
    assert [(short(e.id), e.type, e.role, short(e.to)) for e in trace.events] == [
        ("2:input", "human_intervention", "user", "2"),
        ("4", "orchestrator_decision", "supervisor", None),
        ("6", "message", "supervisor", "7"),
        ("9", "message", "gardener", None),
        ("b", "tool_call", "gardener", None),
        ("c", "tool_call", "gardener", None),
        ("c:result", "tool_result", "gardener", None),
        ("b:result", "tool_result", "gardener", None),
        ("e", "message", "gardener", None),
        ("f", "message", "gardener", "2"),
        ("11", "orchestrator_decision", "supervisor", None),
    ]
    assert {short(a): n for a, n in logs.tokens(trace).items()} == {"2": (280, 22), "7": (280, 25)}
    links = trace.meta["import"]["links"]
    assert links == {"exact": {"a handoff span": 1}, "inferred": {"agent spans one after the other under one workflow": 1}}
    assert trace.rewards == {"helpful": 0.75}


def test_details_of_models_and_tools() -> None:
    trace = sample("supervisor.jsonl")
    by_id = {short(e.id): e for e in trace.events}
    assert by_id["9"].extra is not None
    assert by_id["9"].extra["tokens_cache_read"] == 64
    assert by_id["e"].extra is not None
    assert by_id["e"].extra["tokens_reasoning"] == 4
    assert by_id["4"].model == "gpt-4o-mini"
    assert trace.text(by_id["b:result"]) == "wet"
    assert (by_id["c:result"].ok, by_id["c:result"].error) == (False, "ValueError: pot 5 has no probe")
    assert {e.trusted for e in trace.events if e.type == "tool_result"} == {False}


def test_a_tree_of_runs_with_a_sub_agent_in_a_tool_and_a_question_to_a_human() -> None:
    trace = sample("tree.json")
    assert [(short(e.id), e.type, e.role, short(e.to)) for e in trace.events] == [
        ("65:input", "human_intervention", "user", "65"),
        ("67", "orchestrator_decision", "LangGraph", None),
        ("6a", "spawn", "scout", "6a"),
        ("6c", "return", "scout", "65"),
        ("65:interrupt", "human_intervention", "user", "65"),
    ]
    assert trace.text(trace.events[-1]) == "Pay 20 for the boat?"
    assert {short(a): n for a, n in logs.tokens(trace).items()} == {"65": (30, 6), "6a": (22, 4)}
    assert trace.meta["import"]["links"] == {"exact": {"an agent span inside its caller's": 1}}


def test_a_broken_line_is_counted_and_a_patch_without_an_id_finds_its_run() -> None:
    (session,) = logs.sessions("langsmith", logs.files_of(FOLDER / "supervisor.jsonl"))
    (trace,) = logs.importer("langsmith").read_session(session)
    assert (session.report.broken_count, session.report.broken[0]["line"]) == (1, 2)
    patches = [
        json.loads(line)
        for line in (FOLDER / "supervisor.jsonl").read_text().splitlines()
        if line.startswith('{"post": [{"id": "00000001')
    ]
    assert "id" not in patches[0]["patch"][3]
    assert trace.events[1].tokens_in == 110
    assert not session.report.lacks


def runs() -> list[dict[str, Any]]:
    merged: dict[str, dict[str, Any]] = {}
    for line in (FOLDER / "supervisor.jsonl").read_text().splitlines():
        try:
            batch = json.loads(line)
        except ValueError:
            continue
        for run in batch["post"] + batch["patch"]:
            merged.setdefault(run["dotted_order"][-36:], {}).update({k: v for k, v in run.items() if v not in (None, {}, [])})
    return list(merged.values())


@pytest.mark.parametrize("shape", [lambda r: r, lambda r: {"runs": r}, lambda r: r[::-1]])
def test_lists_of_runs_are_the_same(shape: Any) -> None:
    (trace,) = logs.imported("langsmith", {"x.json": json.dumps(shape(runs()), indent=1).encode()})
    assert [(e.id, e.type, e.t) for e in trace.events] == [(e.id, e.type, e.t) for e in sample("supervisor.jsonl").events]


def test_parents_and_times_come_from_the_dotted_order_too() -> None:
    bare = [{k: v for k, v in run.items() if k not in ("parent_run_id", "trace_id", "start_time")} for run in runs()]
    (trace,) = logs.imported("langsmith", {"x.json": json.dumps(bare).encode()})
    assert [(e.id, e.type, e.t) for e in trace.events] == [(e.id, e.type, e.t) for e in sample("supervisor.jsonl").events]


def test_a_session_that_grows_keeps_its_ids() -> None:
    whole = {e.id for e in sample("supervisor.jsonl").events}
    for n in range(4, len(runs())):
        (trace,) = logs.imported("langsmith", {"x.json": json.dumps(runs()[:n]).encode()})
        steps = {e.id for e in trace.events if ":" not in e.id}
        assert steps
        assert steps <= whole


@pytest.mark.parametrize(
    "data", [b'{"post": [], "patch": []}', b'[{"run_type": "llm", "child_runs": 3}]', b'{"post": 4, "run_type": []}']
)
def test_bad_input_is_an_input_error_or_nothing(data: bytes) -> None:
    read = logs.importer("langsmith").read
    assert read is not None
    with pytest.raises(InputError):
        list(read(data))


def test_it_knows_its_own_files_only() -> None:
    sniff = logs.importer("langsmith").sniff
    assert all(sniff(file.head()) for file in logs.files_of(FOLDER))
    for name in ("langfuse", "openai_agents", "trail", "openinference"):
        assert not any(sniff(file.head()) for file in logs.files_of(logs.SAMPLES / name)), name


@pytest.mark.shared
def test_real_batches_against_a_count_of_their_own() -> None:
    files = [f for f in logs.files_of(logs.real("langgraph_langsmith")) if f.name.startswith("langsmith")]
    assert len(files) == 3
    for file in files:
        (trace,) = logs.imported("langsmith", [file])
        raw = json.loads(file.data())
        usage = [run["outputs"]["usage_metadata"] for run in raw["patch"]]
        assert logs.tokens(trace) == {"main": (sum(u["input_tokens"] for u in usage), sum(u["output_tokens"] for u in usage))}
        assert logs.kinds(trace) == {"human_intervention": 1, "orchestrator_decision": len(raw["post"])}
        assert trace.text(trace.events[-1]) == raw["patch"][0]["outputs"]["choices"][0]["message"]["content"]
        assert trace.text(trace.events[0]) == raw["post"][0]["inputs"]["messages"][-1]["content"]
