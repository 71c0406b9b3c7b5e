"""Rollouts of verifiers: rows with and without a trajectory, graphs with sub-agents, episodes, careless shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest

import logs
from counterpoint.formats.importing.usage import Usage
from counterpoint.trace import Trace

SAMPLE = logs.SAMPLES / "verifiers"
RUN = "evals/ferry--mock-model/1a2b3c4d"


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SAMPLE / RUN / "results.jsonl").read_text().splitlines()[:-1]]


def graph() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLE / "traces.jsonl").read_text())
    return found


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in records)


def read(*records: Any, name: str = "r.jsonl") -> list[Trace]:
    return logs.imported("verifiers", {name: lines(*records)})


def row(**fields: Any) -> dict[str, Any]:
    return {"example_id": 0, "prompt": [{"role": "user", "content": "hi"}], "completion": [], "reward": 0.0, **fields}


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    return {t.trace_id: t for t in logs.imported("verifiers", logs.files_of(SAMPLE))}


def edges(trace: Trace) -> set[tuple[str, str, str]]:
    return {(e.src, e.dst, e.type) for e in trace.edges}


def texts(trace: Trace) -> list[tuple[str, str, str | None]]:
    return [(e.type, e.agent, trace.text(e)) for e in trace.events]


# -- rows ----------------------------------------------------------------------------------------------------------------


def test_every_rollout_is_a_trace_and_a_group_has_one_task(traces: dict[str, Trace]) -> None:
    assert set(traces) == {"ep-1", "9f00aa", "ferry/0/1", "ferry/0/2", "ferry/1/1", "traj-1"}
    assert traces["ferry/0/1"].task_id == traces["ferry/0/2"].task_id == "ferry/0"
    assert traces["ferry/0/1"].meta["run"]["model"] == "mock-model"


def test_a_torn_last_row_is_counted() -> None:
    found = [s for s in logs.sessions("verifiers", logs.files_of(SAMPLE)) if s.key.endswith("results.jsonl")]
    (session,) = found
    assert len(list(logs.importer("verifiers").read_session(session))) == 4
    assert [(b["line"], "torn" in b["what"]) for b in session.report.broken] == [(5, True)]
    assert sorted(f.name.rsplit("/", 1)[-1] for f in session.files) == ["metadata.json", "results.jsonl"]


def test_a_completion_that_repeats_its_prompt_with_calls_as_text(traces: dict[str, Trace]) -> None:
    trace = traces["ferry/0/1"]
    assert texts(trace) == [
        ("message", "system", "Answer with a time."),
        ("human_intervention", "user", "When does the ferry leave?"),
        ("orchestrator_decision", "main", None),
        ("tool_call", "main", '{"line":"F1"}'),
        ("tool_result", "main", "F1 leaves at 8."),
        ("orchestrator_decision", "main", "At 8."),
    ]
    assert ("call_a", "completion/1", "tool_dependency") in edges(trace)
    assert trace.events[4].tool == "timetable"
    lacks = trace.meta["import"]["lacks"]
    assert lacks["which call a tool's message answers: taken in order"] == 1
    assert lacks["tokens per model call: the row has their sum"] == 2
    assert trace.rewards == {"team": 1.0}
    assert trace.metrics == {
        "exact": 1.0, "turns": 2.0, "generation_ms": 1200.0, "scoring_ms": 3.0, "total_ms": 1203.0, "tokens_in": 50, "tokens_out": 9,
    }  # fmt: skip
    assert trace.meta["rollout"]["answer"] == "8"


def test_the_environment_is_no_human(traces: dict[str, Trace]) -> None:
    trace = traces["ferry/0/2"]
    reply = next(e for e in trace.events if e.agent == "environment")
    assert (reply.type, reply.source, reply.trusted) == ("message", "tool", False)
    assert ("completion/1", "completion/2", "safety_flow") in edges(trace)
    assert logs.kinds(trace)["human_intervention"] == 1
    assert trace.meta["rollout"]["stop_condition"] == "max_turns"


def test_texts_instead_of_messages_and_one_answer_has_the_rows_tokens(traces: dict[str, Trace]) -> None:
    trace = traces["ferry/1/1"]
    assert texts(trace) == [("human_intervention", "user", "Name the ferry."), ("orchestrator_decision", "main", "The Gull.")]
    assert logs.tokens(trace) == {"main": (4, 3)}


def test_a_trajectory_has_tokens_per_call_and_sub_agents(traces: dict[str, Trace]) -> None:
    trace = traces["traj-1"]
    assert logs.kinds(trace) == {
        "human_intervention": 1, "orchestrator_decision": 2, "tool_call": 1, "tool_result": 1, "spawn": 2, "return": 2,
    }  # fmt: skip
    assert logs.tokens(trace) == {"main": (60, 11), "b1:r1": (6, 1), "b1:r2": (5, 3)}
    assert {trace.text(e): e.to for e in trace.events if e.type == "spawn"} == {"Read page 1.": "b1:r1", "Read page 2.": "b1:r2"}
    assert trace.meta["import"]["links"] == {"exact": {"extras.parent_turn": 2}}
    found = edges(trace)
    # their answers went to the agent's code, and from there into what the tool said
    assert {("b1:r1/step/0", "step/1/heard0", "return"), ("b1:r2/step/0", "step/1/heard0", "return")} <= found
    assert ("step/0", "b1:r1/spawn", "causal") in found
    by = {e.id: e for e in trace.events}
    assert by["step/0"].logp == pytest.approx(-0.3)
    assert by["step/1"].reward == {"step": 1.0}
    assert trace.metrics is not None
    assert trace.metrics["advantage"] == 0.25


def test_sub_models_without_a_turn_are_linked_by_their_place() -> None:
    found = rows()[3]
    for step in found["trajectory"]:
        step["extras"].pop("parent_turn", None)
    # sub-models' entries may also stand before the agent's own
    found["trajectory"] = [found["trajectory"][k] for k in (1, 2, 0, 3)]
    (trace,) = read(found)
    assert list(trace.meta["import"]["links"]["inferred"].values()) == [2]
    assert {e.agent for e in trace.events if e.type == "return"} == {"b1:r1", "b1:r2"}


def test_wrappers_columns_lists_and_pretty_documents_say_the_same() -> None:
    some = rows()[:3]
    wanted = [texts(t) for t in read(*some)]
    about = {"env_id": "ferry", "model": "m"}
    columns = {k: [r.get(k) for r in some] for k in ("prompt", "completion", "reward", "example_id", "answer")}
    for document in ({"outputs": some, "metadata": about}, {"metadata": about, "rollouts": some}, some, columns):
        data = json.dumps(document, indent=2).encode()
        assert [texts(t) for t in logs.imported("verifiers", {"x.json": data})] == wanted
    assert [t.rewards for t in read(columns)] == [{"team": 1.0}, {"team": 0.0}, {"team": 0.5}]


def test_inputs_of_a_state_are_found_in_its_input() -> None:
    (trace,) = read(
        {"input": {"prompt": "hi", "example_id": 7, "task": "t"}, "prompt": None, "completion": "ho", "reward": 1, "metrics": {}}
    )
    assert (trace.task_id, len(trace.events)) == ("t/7", 2)


def test_a_growing_file_keeps_the_ids_it_had() -> None:
    whole = read(*rows())
    for k in range(1, len(whole)):
        part = read(*rows()[:k])
        assert [(t.trace_id, [e.id for e in t.events]) for t in part] == [
            (t.trace_id, [e.id for e in t.events]) for t in whole[:k]
        ]


# -- graphs --------------------------------------------------------------------------------------------------------------


def test_a_graph_with_a_sub_agent_a_compaction_and_a_stray(traces: dict[str, Trace]) -> None:
    trace = traces["9f00aa"]
    assert logs.kinds(trace) == {
        "message": 5, "human_intervention": 1, "orchestrator_decision": 3, "tool_call": 2, "tool_result": 2, "spawn": 1, "return": 1,
    }  # fmt: skip
    assert logs.tokens(trace) == {"main": (52, 9), "main/sub-5": (28, 7), "main/branch-13": (3, 1)}
    report = trace.meta["import"]
    assert report["links"] == {"exact": {"subagent_call": 1}, "unlinked": 1}
    assert report["unknown"] == {"semantic link whisper": 1}
    assert trace.meta["failed_model_calls"] == 1
    found = edges(trace)
    assert {
        ("n2", "n5/spawn", "causal"),
        ("n7", "n9", "return"),
        ("n6", "n7", "safety_flow"),
        ("n5/spawn", "n5/t1", "spawn"),
    } <= found
    # after the compaction the same agent goes on
    assert {e.id for e in trace.events if e.agent == "main" and e.type == "orchestrator_decision"} == {"n2", "n9", "n11"}
    spawn = next(e for e in trace.events if e.type == "spawn")
    assert (spawn.to, trace.text(spawn), spawn.t) == ("main/sub-5", "Look at the board.", 2.0)


def test_weighted_rewards_and_judges(traces: dict[str, Trace]) -> None:
    trace = traces["9f00aa"]
    assert trace.rewards == {"correct": 1.0, "brief": pytest.approx(0.1), "team": pytest.approx(1.1)}
    assert trace.metrics == {"turns": 5.0, "judge_tokens": 8.0}


def test_a_cancelled_sub_agent_and_a_message_between_agents() -> None:
    record = graph()
    record["nodes"][7]["semantic_parents"] = [{"node": 2, "type": "subagent_cancel"}, {"node": 2, "type": "agent_message"}]
    (trace,) = read(record)
    ended = next(e for e in trace.events if e.type == "despawn")
    assert (ended.agent, ended.to) == ("main", "main/sub-5")
    assert ("n2", "n7", "message") in edges(trace)


def test_an_episode_is_one_trace_of_all_its_agents(traces: dict[str, Trace]) -> None:
    trace = traces["ep-1"]
    assert {e.agent: e.role for e in trace.events if e.type == "orchestrator_decision"} == {
        "tr-a": "solver",
        "tr-b": "solver",
        "tr-c": "judge",
    }
    assert trace.rewards == {"solver#1": 1.0, "solver#2": 0.0, "judge": 0.0}
    assert {e.agent: e.reward for e in trace.events if e.reward} == {
        "tr-a": {"right": 1.0},
        "tr-b": {"right": 0.0},
        "tr-c": {"right": 0.0},
    }
    assert logs.tokens(trace) == dict.fromkeys(("tr-a", "tr-b", "tr-c"), (5, 1))


def test_a_graph_that_grows_keeps_its_ids() -> None:
    whole = read(graph())[0]
    part = graph()
    part["nodes"] = part["nodes"][:8]
    before = read(part)[0]
    assert {e.id for e in before.events} <= {e.id for e in whole.events}
    assert len(before.events) == 9


# -- care ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        row(
            completion=[
                None,
                3,
                {"role": 1},
                {"role": "assistant", "content": None, "tool_calls": ["{", None, {}, {"function": 3}]},
            ]
        ),
        row(
            completion=[
                {"role": "tool", "content": {"a": [1]}},
                {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"image_url": 1}]},
            ]
        ),
        row(trajectory=[{}, {"prompt": 3, "completion": {}, "response": "x", "tokens": []}, 5], completion="x"),
        row(metrics=[1], timing="x", reward="nan", token_usage={"input_tokens": -3}, completion="x"),
        {
            "task": {"data": 3},
            "agent": 1,
            "is_completed": True,
            "nodes": [None, {"sampled": True, "parent": 9, "semantic_parents": [{"node": 99, "type": "x"}]}],
        },
    ],
)
def test_strange_records_do_no_harm(record: dict[str, Any]) -> None:
    found = read(record, row(completion="fine"))
    assert texts(found[-1])[-1] == ("orchestrator_decision", "main", "fine")
    assert len(found) == 2


def test_records_that_are_no_rollout_are_counted() -> None:
    (session,) = logs.sessions("verifiers", {"r.jsonl": lines(row(completion="x"), {"note": 1})})
    assert len(list(logs.importer("verifiers").read_session(session))) == 1
    assert session.report.unknown == {"record without a rollout": 1}


def test_a_long_prompt_is_recognised_by_what_comes_before_it() -> None:
    data = lines(row(prompt=[{"role": "user", "content": "x" * 100_000}], completion="ok"))
    assert logs.importer("verifiers").sniff(data[:65536]) is True
    assert len(logs.imported("verifiers", {"r.jsonl": data})) == 1


@pytest.mark.parametrize(
    "head",
    [
        b'{"prompt": "x", "completion": "y"}',
        b'{"prompt": "x", "completion": "y", "reward": 1}',
        b'{"messages": [{"prompt": 1, "completion": 2, "reward": 1, "task": 1}]}',
        b'{"traces": [], "a": 1}',
        b'{"nodes": [], "edges": []}',
        b'{"outputs": [], "metadata": {}}',
    ],
)
def test_other_files_are_not_taken(head: bytes) -> None:
    assert logs.importer("verifiers").sniff(head) is False


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        ("outputs/evals/gsm--m/abc/metadata.json", True),
        ("evals/gsm--m/abc/metadata.json", True),
        ("metadata.json", False),
        ("evals/gsm/abc/metadata.json", False),
    ],
)
def test_metadata_belongs_to_us_only_in_its_place(name: str, is_ours: bool) -> None:
    assert logs.importer("verifiers").sidecar(name) is is_ours


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, (9, 4, 2)),
        ({"input_tokens": 9.0, "output_tokens": 2.0}, (9, 0, 2)),
        ({"prompt_tokens": None}, None),
        (None, None),
    ],
)
def test_usage(usage: Any, wanted: Any) -> None:
    found = Usage.openai(usage)
    assert (None if found is None else (found.input, found.cache_read, found.output)) == wanted
