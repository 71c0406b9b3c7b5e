"""Langfuse: observations of any framework as agents, tools and model steps, with scores."""

from __future__ import annotations

import json
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.trace import Trace

FOLDER = logs.SAMPLES / "langfuse"


def sample(name: str) -> Trace:
    (trace,) = logs.imported("langfuse", logs.files_of(FOLDER / name))
    return trace


def test_an_agent_its_critic_and_their_tools() -> None:
    trace = sample("poem.json")
    assert [(e.id, e.type, e.agent, e.role) for e in trace.events] == [
        ("o1:input", "human_intervention", "user", "user"),
        ("o2", "orchestrator_decision", "poet-7", "poet"),
        ("o4", "tool_call", "poet-7", "poet"),
        ("o4:result", "tool_result", "poet-7", "poet"),
        ("o6", "spawn", "poet-7", "critic"),
        ("o8", "return", "o6", "critic"),
        ("o9", "orchestrator_decision", "poet-7", "poet"),
        ("oa", "safety_event", "poet-7", "poet"),
        ("ob", "tool_call", "poet-7", "poet"),
        ("ob:result", "tool_result", "poet-7", "poet"),
    ]
    assert trace.meta["import"]["links"] == {"exact": {"an agent span inside its caller's": 1}}
    failed = trace.events[-1]
    assert (failed.ok, failed.error, failed.trusted) == (False, "the board is closed", False)


def test_tokens_are_those_of_the_innermost_calls_with_cache_and_reasoning() -> None:
    trace = sample("poem.json")
    # 60 + 20 cached and 5 + 10 of reasoning; neither the agent's sum of 999 nor the wrapper's 1.
    assert logs.tokens(trace) == {"poet-7": (220, 27), "o6": (75, 4)}
    first = trace.events[1]
    assert first.extra is not None
    assert first.cost_usd == 0.00002
    assert (first.extra["tokens_cache_read"], first.extra["tokens_reasoning"]) == (20, 10)


def test_scores_become_rewards_and_none_is_lost() -> None:
    trace = sample("poem.json")
    assert trace.rewards == {"rhyme": 0.5}
    assert trace.events[5].reward == {"critic_fair": 1.0}
    assert [(s["name"], s.get("stringValue")) for s in trace.meta["scores"]] == [
        ("rhyme", None),
        ("critic_fair", None),
        ("mood", "dry"),
    ]


def test_blob_exports_of_langgraph_with_a_broken_line() -> None:
    (session,) = logs.sessions("langfuse", logs.files_of(FOLDER / "observations.jsonl"))
    (trace,) = logs.importer("langfuse").read_session(session)
    assert (session.report.broken_count, session.report.broken[0]["line"]) == (1, 5)
    assert [(e.id, e.type, e.role) for e in trace.events] == [
        ("l1:input", "human_intervention", "user"),
        ("l3", "orchestrator_decision", "LangGraph"),
        ("l5", "tool_call", "LangGraph"),
        ("l5:result", "tool_result", "LangGraph"),
        ("l7", "orchestrator_decision", "LangGraph"),
    ]
    assert logs.tokens(trace) == {"l1": (95, 8)}
    assert trace.text(trace.events[3]) == "nine to five"


@pytest.mark.parametrize(
    "shape", [lambda d: d["trace"], lambda d: {"data": d["observations"]}, lambda d: [d], lambda d: d["observations"][::-1]]
)
def test_other_envelopes_hold_the_same(shape: Any) -> None:
    document = json.loads((FOLDER / "poem.json").read_text())
    (trace,) = logs.imported("langfuse", {"x.json": json.dumps(shape(document)).encode()})
    assert [(e.id, e.type, e.t) for e in trace.events] == [(e.id, e.type, e.t) for e in sample("poem.json").events]


def test_phases_that_a_framework_wrote_as_spans_are_one_step() -> None:
    scope = {"scope": {"name": "openinference.instrumentation.beeai"}, "attributes": {"openinference.span.kind": "TOOL"}}
    row = {"traceId": "t", "type": "SPAN", "parentObservationId": None, "metadata": json.dumps(scope)}
    rows = [
        {
            **row,
            "id": "a",
            "name": "tool.x.start-3",
            "startTime": "2026-02-02T00:00:01Z",
            "endTime": "2026-02-02T00:00:01Z",
            "input": "{}",
        },
        {
            **row,
            "id": "b",
            "name": "tool.x.success-3",
            "startTime": "2026-02-02T00:00:03Z",
            "endTime": "2026-02-02T00:00:03Z",
            "output": "done",
        },
        {
            **row,
            "id": "c",
            "name": "tool.x.start-4",
            "startTime": "2026-02-02T00:00:04Z",
            "endTime": "2026-02-02T00:00:05Z",
            "input": "{}",
        },
    ]
    (trace,) = logs.imported("langfuse", {"x.json": json.dumps(rows).encode()})
    assert [(e.id, e.type, e.tool, e.t) for e in trace.events] == [
        ("a", "tool_call", "tool.x", 0.0),
        ("a:result", "tool_result", "tool.x", 2.0),
        ("c", "tool_call", "tool.x", 3.0),
        ("c:result", "tool_result", "tool.x", 4.0),
    ]
    assert trace.text(trace.events[1]) == "done"


def test_a_session_that_grows_keeps_its_ids() -> None:
    whole = {e.id for e in sample("poem.json").events}
    rows = sorted(json.loads((FOLDER / "poem.json").read_text())["observations"], key=lambda r: r["startTime"])
    for n in range(2, len(rows)):
        (trace,) = logs.imported("langfuse", {"x.json": json.dumps(rows[:n]).encode()})
        # Until a tool's agent or a call's inside is told, the tool and the call stand for themselves, and until the call that
        # reads what came back is told, the end of its agent does.
        assert {e.id for e in trace.events} - whole <= {"o1:output", "o5", "o5:result", "o6:return", "o7"}


@pytest.mark.parametrize(
    "data", [b'{"trace": {"projectId": 1}}', b'[{"parentObservationId": null}]', b'{"parent_observation_id": []}']
)
def test_bad_input_is_an_input_error(data: bytes) -> None:
    read = logs.importer("langfuse").read
    assert read is not None
    with pytest.raises(InputError):
        list(read(data))


def test_it_knows_its_own_files_only() -> None:
    sniff = logs.importer("langfuse").sniff
    assert all(sniff(file.head()) for file in logs.files_of(FOLDER))
    for name in ("langsmith", "openai_agents", "trail", "openinference"):
        assert not any(sniff(file.head()) for file in logs.files_of(logs.SAMPLES / name)), name


@pytest.mark.shared
def test_real_exports_against_a_count_of_their_own() -> None:
    files = logs.files_of(logs.real("langfuse_framework_traces"))
    files += [f for f in logs.files_of(logs.real("langgraph_langsmith")) if f.name.startswith("langfuse")]
    assert len(files) == 12
    for file in files:
        (trace,) = logs.imported("langfuse", [file])
        raw = json.loads(file.data())
        rows = raw["observations"]
        wrappers = {r["parentObservationId"] for r in rows if r["type"] == "GENERATION"}
        calls = [r for r in rows if r["type"] == "GENERATION" and r["id"] not in wrappers]
        want = sum(r["inputUsage"] for r in calls), sum(r["outputUsage"] for r in calls)
        assert tuple(map(sum, zip(*logs.tokens(trace).values(), strict=True))) == want, file.name
        steps = [e for e in trace.events if e.tokens_in is not None]
        assert len(steps) == sum(bool(r["usageDetails"]) for r in calls), file.name
        named = {r["name"].removeprefix("running tool: ") for r in rows if r["type"] == "TOOL"}
        assert named <= {e.tool for e in trace.events if e.type == "tool_call"}, file.name
        assert {s["name"] for s in raw["trace"]["scores"] if s["dataType"] == "NUMERIC"} == set(trace.rewards), file.name


@pytest.mark.shared
def test_real_agents_and_tools() -> None:
    want = {
        "beeai": ({"main"}, 1),
        "koog": ({"f9f77d1a-437f-4ba6-890e-b592a50cbd21"}, 2),
        "langgraph-python": ({"LangGraph"}, 1),
        "microsoft-agent": ({"171105b7-59dd-49c0-9677-0b95395aa46a"}, 1),
        "openai-agents": ({"Hello world"}, 1),
        "pydantic-ai-tools-2025-12": ({"joke_agent", "evaluator_agent"}, 3),
        "vercel": ({"main"}, 1),
    }
    for file in logs.files_of(logs.real("langfuse_framework_traces")):
        key = next((k for k in want if file.name.startswith(k)), None)
        if key is None:
            continue
        (trace,) = logs.imported("langfuse", [file])
        agents, tools = want[key]
        found = {e.agent for e in trace.events} | {e.role for e in trace.events}
        assert agents <= found, file.name
        assert len({e.agent for e in trace.events} - {"user"}) == len(agents), file.name
        assert logs.kinds(trace)["tool_call"] == tools, file.name
