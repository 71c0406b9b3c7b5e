"""Sets with a labelled mistake: where each framework's step lands, what is accepted beside it, and labels that are nowhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

import logs
from counterpoint.audits.blame.judge import blame, succeeded
from counterpoint.audits.blame.ranker import shape_of
from counterpoint.audits.blame.steps import Steps
from counterpoint.trace import Trace


def sample(name: str) -> dict[str, Trace]:
    return {trace.task_id: trace for trace in logs.imported(name, logs.files_of(logs.SAMPLES / name))}


def marked(trace: Trace) -> list[tuple[str, str]]:
    return [(e.id, e.agent) for e in trace.events if (e.extra or {}).get("is_mistake")]


def text(trace: Trace, name: str) -> str | None:
    return trace.text(next(e for e in trace.events if e.id == name))


def pro(framework: str, trajectory: list[dict[str, Any]], truth: dict[str, Any]) -> Trace:
    row = {"id": "r", "framework": framework, "benchmark": "b", "task": {"query": "Q"}, "trajectory": trajectory}
    (trace,) = logs.imported("who_and_when_pro", {"x.jsonl": json.dumps(row | {"ground_truth": truth}).encode()})
    return trace


def elephant(about: dict[str, Any], records: list[dict[str, Any]]) -> list[Trace]:
    files = {"a/trace_metadata.json": about, "a/step_records.json": records}
    return logs.imported("trace_elephant", {name: json.dumps(value).encode() for name, value in files.items()})


def record(step: Any, agent: str, content: str) -> dict[str, Any]:
    answer = {"choices": [{"message": {"role": "assistant", "content": content}}]}
    return {"step_id": step, "agent_name": agent, "input": {"messages": []}, "output": answer}


def test_each_framework_names_its_step_its_own_way() -> None:
    found = {name: marked(trace) for name, trace in sample("who_and_when_pro").items()}
    assert found == {
        "ww-magentic-1": [("s3", "orchestrator")],  # 1.0
        "ww-debate-1": [("s3", "debater_0"), ("s4", "debater_1")],  # round 1, both agents
        "ww-smol-1": [("s2", "agent"), ("s4", "agent")],  # the plan is step 0; step 2 is accepted too
        "ww-mathchat-1": [("s2", "assistant")],  # 0.1
        "ww-metagpt-1": [("s2", "engineer")],  # stage 1
    }


def test_chats_layers_and_games_count_their_own_way() -> None:
    chat = [{"kind": kind, "content": kind} for kind in ("system", "user", "assistant", "tool", "assistant", "tool")]
    assert marked(pro("dvd", chat, {"agent": "orchestrator", "step": 4})) == [("s3", "orchestrator")]
    assert marked(pro("eva", chat, {"step": 4, "accepted_predictions": [{"step_coord": "0"}]})) == [
        ("s1", "agent"),
        ("s3", "agent"),
    ]
    looks = {"kind": "tool", "tool_name": "frame_inspect_tool", "content": "a cat"}
    assert marked(pro("dvd", [*chat[:3], looks], {"step": 3})) == [("s2", "frame_inspect_agent")]
    net = [{"agent_id": f"node_{k}", "role": role, "output": role} for k, role in ((0, "author"), (1, "critic"), (1, "rewriter"))]
    assert marked(pro("macnet", net, {"agent": "node_1", "round": 1, "position": 0})) == [("s1", "node_1")]
    game = [{"kind": "action", "step_number": k, "action": f"go {k}", "observation": "a shelf"} for k in (1, 2, 3)]
    trace = pro("alfagent", game, {"agent": None, "step": 3})
    assert marked(trace) == [("s4", "agent")]
    assert [e.type for e in trace.events][-2:] == ["tool_call", "tool_result"]


def test_a_label_that_is_nowhere_is_counted_and_the_run_is_read() -> None:
    trace = pro(
        "debate", [{"kind": "round", "round": 0, "turns": [{"agent_id": "a", "output": "x"}]}], {"agent": "a", "round": 7}
    )
    assert marked(trace) == []
    assert trace.meta["import"]["lacks"]["a labelled step that is in the run"] == 1
    assert succeeded(trace) is False, "the agent of the mistake is known"
    (other,) = elephant({"run_id": "r", "system_name": "s", "mistake_step": "9", "mistake_agent": "a"}, [record("0", "a", "x")])
    assert (marked(other), other.meta["import"]["lacks"]["a labelled step that is in the run"]) == ([], 1)


def test_a_ledger_is_what_the_orchestrator_says_whoever_its_record_names() -> None:
    found = sample("trace_elephant")
    ferry, harbour = found["gaia-ferry"], found["gaia-harbour"]
    assert (marked(ferry), marked(harbour)) == ([("s3", "WebSurfer")], [("s1", "Geographer")])
    assert [(e.id, e.agent, e.decision) for e in ferry.events if e.id in ("s2", "s4")] == [
        ("s2", "Orchestrator", "delegate"), ("s4", "Orchestrator", "delegate"),
    ]  # fmt: skip
    assert (shape_of(Steps(ferry)), shape_of(Steps(harbour))) == ("ledger", "panel")
    assert [e.tool for e in ferry.events if e.type == "tool_result"] == ["visit_url"]
    assert sum(e.tokens_in or 0 for e in ferry.events) == 600
    assert [s.step for s in blame(ferry).suspects if s.event == "s3"] == [3], "steps are counted as the set counts them"


def test_what_was_put_in_is_in_no_text() -> None:
    for trace in (*sample("who_and_when_pro").values(), *sample("trace_elephant").values()):
        said = " ".join(trace.contents.values())
        assert not any(word in said for word in ("injected", "mistake", "PL.2", "summer column"))


@pytest.mark.parametrize("trajectory", [None, "{", 3, {}])
def test_rows_without_a_trajectory_are_counted(trajectory: Any) -> None:
    row = {"id": "r", "framework": "debate", "benchmark": "b", "trajectory": trajectory, "task": "no json"}
    (session,) = logs.sessions("who_and_when_pro", {"x.jsonl": json.dumps(row).encode()})
    assert list(logs.importer("who_and_when_pro").read_session(session)) == []
    assert session.report.broken_count == 1


def test_labels_without_their_run_are_counted() -> None:
    (session,) = logs.sessions(
        "trace_elephant", {"a/trace_metadata.json": b'{"run_id": "a", "system_name": "s", "mistake_step": 1}'}
    )
    assert list(logs.importer("trace_elephant").read_session(session)) == []
    assert session.report.lacks["labels without their run"] == 1
