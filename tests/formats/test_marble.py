"""MARBLE results: iterations, assignments, sessions of talk, returns, summaries and scores."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.formats.marble import marble
from counterpoint.trace import Trace

PATH = logs.SAMPLES / "marble" / "star_output.jsonl"


@pytest.fixture(scope="module")
def samples() -> list[Trace]:
    return logs.imported("marble", logs.files_of(PATH))


def read(*iterations: Any, **run: Any) -> Trace:
    row = {"task": "t", "coordination_mode": "graph", "iterations": list(iterations), **run}
    (trace,) = logs.imported("marble", {"out.jsonl": json.dumps(row).encode()})
    return trace


def test_a_star_of_two_iterations(samples: list[Trace]) -> None:
    trace = samples[0]
    assert [(e.id, e.type, e.agent, e.to) for e in trace.events] == [
        ("task", "human_intervention", "user", "planner"),
        ("i0", "orchestrator_decision", "planner", None),
        ("i0:task:agent1", "message", "planner", "agent1"),
        ("i0:task:agent2", "message", "planner", "agent2"),
        ("i0:talk0.0", "message", "agent1", "agent2"),
        ("i0:talk0.1", "message", "agent2", "agent1"),
        ("i0:result:agent1", "return", "agent1", "planner"),
        ("i0:result:agent2", "return", "agent2", "planner"),
        ("i0:summary", "aggregate", "planner", None),
        ("i1", "orchestrator_decision", "planner", None),
        ("i1:task:agent2", "message", "planner", "agent2"),
        ("i1:result:agent2", "return", "agent2", "planner"),
        ("i1:summary", "aggregate", "planner", None),
        ("i1:stop", "orchestrator_decision", "planner", None),
    ]
    by = {e.id: e for e in trace.events}
    assert [by[i].decision for i in ("i0", "i1", "i1:stop")] == ["delegate", "delegate", "stop"]
    assert trace.text(by["i0:talk0.1"]) == "Yes, six."
    assert trace.topology == "centralized"


def test_edges_follow_what_was_heard(samples: list[Trace]) -> None:
    edges = {(e.src, e.dst, e.type) for e in samples[0].edges}
    assert {
        ("task", "i0", "message"),
        ("i0", "i0:task:agent1", "causal"),
        ("i0:task:agent1", "i0:talk0.0", "message"),
        ("i0:talk0.0", "i0:talk0.1", "message"),
        ("i0:talk0.1", "i0:result:agent1", "message"),
        ("i0:result:agent1", "i0:summary", "aggregate"),
        ("i0:result:agent2", "i0:summary", "aggregate"),
        ("i0:summary", "i1", "causal"),
    } <= edges


def test_scores_are_rewards_of_the_decision_and_minus_one_is_none(samples: list[Trace]) -> None:
    by = {e.id: e for e in samples[0].events}
    assert by["i0"].reward == {"planning": 4.0, "communication": 5.0}
    assert by["i1"].reward is None
    assert samples[0].rewards == {"team": pytest.approx((3 + 5 + 4) / 3 / 5)}
    assert samples[0].metrics == {
        "token_usage": 1234.0, "total_milestones": 2.0, "kpi: agent1": 1.0, "kpi: agent2": 1.0,
        "task_evaluation: innovation": 3.0, "task_evaluation: safety": 5.0, "task_evaluation: feasibility": 4.0,
    }  # fmt: skip
    assert samples[1].rewards == {"team": 0.1}
    assert samples[0].costs["tokens"] == 1234, "what the run states that it spent"


def test_a_chain_returns_its_one_result(samples: list[Trace]) -> None:
    chain = samples[1]
    assert [(e.type, e.agent) for e in chain.events] == [
        ("human_intervention", "user"),
        ("orchestrator_decision", "planner"),
        ("message", "planner"),
        ("message", "team"),
        ("return", "coder1"),
        ("aggregate", "planner"),
    ]
    assert chain.meta["import"]["lacks"]["who said some of what was communicated"] == 1
    assert [e.type for e in samples[2].events] == ["human_intervention"]


def test_a_broken_line_is_counted() -> None:
    (session,) = logs.sessions("marble", logs.files_of(PATH))
    assert len(list(marble.read_session(session))) == 3
    assert [b["line"] for b in session.report.broken] == [2]


def test_results_of_every_shape() -> None:
    shapes = [
        {"task_results": [{"agent_id": "a", "result": "1"}, {"b": "2"}, 7, {}]},
        {"task_results": {"c": {"text": "3"}}},
        {"root_agent": "d", "result": "4"},
        {"result": "5"},
        {"task_results": []},
        None,
    ]
    trace = read(*shapes)
    assert [(e.agent, trace.text(e)) for e in trace.events if e.type == "return"] == [
        ("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("team", "5"),
    ]  # fmt: skip


def test_only_known_agents_split_a_session() -> None:
    talk = ["In Session 1 \nFrom a to b: look:\nFrom here to there: is a street.\nFrom b to a: yes", ["Hello.\nFrom b to a: again"]]
    trace = read({"task_assignments": {"a": "x", "b": "y"}, "communications": talk})
    spoken = [(e.agent, e.to, trace.text(e)) for e in trace.events if ":talk" in e.id]
    assert spoken == [("a", "b", "look:\nFrom here to there: is a street."), ("b", "a", "yes"), ("b", "a", "again")]
    assert (trace.events[-1].extra or {})["heading"] == "Hello."


def test_a_longer_file_keeps_its_traces() -> None:
    lines = PATH.read_bytes().splitlines(keepends=True)
    full = [t.trace_id for t in logs.imported("marble", {PATH.name: b"".join(lines)})]
    for n in range(1, len(lines)):
        part = [t.trace_id for t in logs.imported("marble", {PATH.name: b"".join(lines[:n])})]
        assert part == full[: len(part)]
    assert len(set(full)) == 3


def test_more_iterations_keep_the_ids() -> None:
    row = json.loads(PATH.read_bytes().splitlines()[0])
    both = {e.id for e in read(*row["iterations"]).events}
    assert {e.id for e in read(row["iterations"][0]).events} < both
    assert Counter(e.type for e in read(row["iterations"][0]).events)["return"] == 2


@pytest.mark.parametrize("head", [b"", b"{", b'{"a":1}', b'{"coordination_mode": 1}', b'{"x": {"task": 1, "coordination_mode": 2}}'])
def test_other_files_are_not_taken(head: bytes) -> None:
    assert marble.sniff(head) is False
    assert marble.read is not None
    with pytest.raises(InputError):
        list(marble.read(head))


@pytest.mark.parametrize(
    ("key", "value", "team", "names"),
    [
        ("code_quality", {"executability": 2, "consistency": 3, "quality": 3, "instruction_following": 4}, 0.6, 4),
        ("task_evaluation", {"innovation": 5, "safety": 4, "feasibility": 3}, 0.8, 3),
        ("task_evaluation", {"buyer": {"progress": 4, "dynamics": 2}, "seller": {"progress": 3, "dynamics": -1}}, 0.6, 3),
        ("task_evaluation", 1.6666666666666665, 1 / 3, 1),
        ("task_evaluation", 0, 0.0, 1),
        ("task_evaluation", {"root_cause": ["LOCK"], "predicted": "It is the lock."}, None, 0),
        ("task_evaluation", {"buyer": {"progress": -1}}, None, 0),
        ("task_evaluation", {"score": 88}, None, 1),
        ("task_evaluation", {}, None, 0),
    ],
)
def test_the_outcome_is_the_mean_rating_of_five(key: str, value: Any, team: float | None, names: int) -> None:
    trace = read(token_usage=4321, **{key: value})
    assert trace.rewards.get("team") == (None if team is None else pytest.approx(team))
    assert sum(name.startswith(key) for name in trace.metrics or {}) == names
    assert (trace.costs["tokens"], sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in trace.events)) == (4321, 0)
    assert ("an outcome: nothing was rated" in trace.meta["import"]["lacks"]) is (team is None and names == 0)
