"""Who&When: who says what to whom, terminals, and labels that are kept even where they contradict the history."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.formats.who_and_when import who_and_when
from counterpoint.trace import Event, Trace


@pytest.fixture(scope="module")
def samples() -> dict[str, Trace]:
    return {t.task_id: t for t in logs.imported("who_and_when", logs.files_of(logs.SAMPLES / "who_and_when"))}


def read(**run: Any) -> Trace:
    base = {"question": "q", "ground_truth": "a", "history": [{"content": "x", "role": "user", "name": "A"}]}
    (trace,) = logs.imported("who_and_when", {"1.json": json.dumps({**base, **run}).encode()})
    return trace


def mistakes(trace: Trace) -> list[Event]:
    return [e for e in trace.events if (e.extra or {}).get("is_mistake")]


def test_a_generated_run_is_turns_calls_and_results(samples: dict[str, Trace]) -> None:
    trace = samples["q-hall"]
    assert trace.trace_id == "algorithm-generated/q-hall"
    assert [(e.id, e.type, e.agent) for e in trace.events] == [
        ("system:Plan_Expert", "message", "system"),
        ("system:Counting_Expert", "message", "system"),
        ("task", "human_intervention", "user"),
        ("s0", "message", "Plan_Expert"),
        ("s1", "message", "Counting_Expert"),
        ("s2:call", "tool_call", "Counting_Expert"),
        ("s2", "tool_result", "Counting_Expert"),
        ("s3", "message", "Plan_Expert"),
        ("s4:call", "tool_call", "Plan_Expert"),
        ("s4", "tool_result", "Plan_Expert"),
        ("s5", "message", "Counting_Expert"),
    ]
    by = {e.id: e for e in trace.events}
    assert [(by[i].ok, by[i].trusted, by[i].tool) for i in ("s2", "s4")] == [
        (True, False, "Computer_terminal"),
        (False, False, "Computer_terminal"),
    ]
    assert trace.meta["import"]["links"] == {"inferred": {"the terminal answers whoever spoke before it": 2}}
    assert (trace.rewards, trace.metrics) == ({"team": 0.0}, {"mistake_step": 1.0})


def test_a_turn_reads_what_was_said_since_its_speakers_last(samples: dict[str, Trace]) -> None:
    edges = {(e.src, e.dst, e.type) for e in samples["q-hall"].edges}
    assert {(s, k) for s, d, k in edges if d == "s5"} == {
        ("s2", "causal"), ("s2", "safety_flow"), ("s3", "message"), ("s4", "message"), ("s4", "safety_flow"),
    }  # fmt: skip
    assert {(s, k) for s, d, k in edges if d == "s0"} == {("task", "message"), ("system:Plan_Expert", "message")}
    assert ("s1", "s2:call", "causal") in edges
    assert ("s2:call", "s2", "tool_dependency") in edges


def test_an_orchestrated_run_decides_delegates_and_stops(samples: dict[str, Trace]) -> None:
    trace = samples["q-ferry"]
    assert (trace.trace_id, trace.topology) == ("hand-crafted/q-ferry", "centralized")
    assert [(e.id, e.type, e.agent, e.decision, e.to) for e in trace.events] == [
        ("s0", "human_intervention", "human", None, None),
        ("s1", "orchestrator_decision", "Orchestrator", None, None),
        ("s2", "orchestrator_decision", "Orchestrator", "delegate", "WebSurfer"),
        ("s3", "message", "WebSurfer", None, None),
        ("s4", "orchestrator_decision", "Orchestrator", "delegate", "ComputerTerminal"),
        ("s5:call", "tool_call", "Orchestrator", None, None),
        ("s5", "tool_result", "Orchestrator", None, None),
        ("s6", "orchestrator_decision", "Orchestrator", "stop", None),
    ]
    by = {e.id: e for e in trace.events}
    edges = {(e.src, e.dst, e.type) for e in trace.edges}
    assert (by["s3"].trusted, by["s3"].source) == (False, "tool")
    assert ("s3", "s4", "safety_flow") in edges
    assert ("s2", "s3", "message") in edges
    assert not [e for e in edges if e[0] == "s1" and e[1] == "s3"], "nobody hears a thought"
    assert trace.rewards == {}
    assert trace.metrics == {"mistake_step": 3.0, "is_corrected": 0.0}


def test_labels_stand_on_the_step_they_name(samples: dict[str, Trace]) -> None:
    (mistake,) = mistakes(samples["q-hall"])
    assert mistake.id == "s1"
    assert (mistake.extra or {})["mistake_reason"] == "Took five windows a floor without looking."
    assert samples["q-hall"].meta["labels"]["mistake_step"] == "1"
    assert samples["q-hall"].meta["labels"]["agrees"] is True


def test_a_label_that_names_another_agent_is_kept_and_told(samples: dict[str, Trace]) -> None:
    trace = samples["q-tower"]
    (mistake,) = mistakes(trace)
    assert (mistake.id, mistake.agent, (mistake.extra or {})["mistake_agent"]) == ("s2", "Map_Expert", "Survey_Expert")
    assert trace.meta["labels"]["agrees"] is False
    assert trace.meta["labels"]["labels"] == "Reading_Error"
    assert trace.meta["import"]["lacks"]["a labelled agent that speaks at the labelled step"] == 1


@pytest.mark.parametrize("step", ["9", "-1", "first", "0.5", 9, {}])
def test_a_label_that_points_nowhere_marks_nothing(step: Any) -> None:
    trace = read(mistake_agent="A", mistake_step=step)
    assert mistakes(trace) == []
    assert trace.meta["import"]["lacks"]["a labelled step that is in the history"] == 1
    assert trace.meta["labels"]["mistake_step"] == step


def test_a_number_is_taken_for_a_step_too() -> None:
    assert [e.id for e in mistakes(read(mistake_agent="A", mistake_step=0))] == ["s0"]


def test_a_terminal_that_nobody_asked_is_told() -> None:
    trace = read(history=[{"content": "exitcode: 0", "name": "Computer_terminal"}, {"content": "hm", "name": "A"}, None])
    assert [(e.id, e.type, e.agent) for e in trace.events] == [
        ("task", "human_intervention", "user"),
        ("s0", "tool_result", "Computer_terminal"),
        ("s1", "message", "A"),
        ("s2", "message", "unnamed"),
    ]
    assert trace.meta["import"]["links"] == {"unlinked": 1}


def test_a_longer_history_keeps_the_ids() -> None:
    for path in (logs.SAMPLES / "who_and_when").rglob("*.json"):
        whole = json.loads(path.read_bytes())
        full = {e.id for e in read(**whole).events}
        for n in range(1, len(whole["history"])):
            part = read(**{**whole, "history": whole["history"][:n]})
            assert {e.id for e in part.events if e.id.startswith("s")} <= full


@pytest.mark.parametrize(
    "head", [b"", b"{", b'{"a":1}', b'{"history": []}', b'{"x": {"history": [], "mistake_agent": 1}}', b"\x00", b'{"history": 3, "role": 1}']
)
def test_other_files_are_not_taken(head: bytes) -> None:
    assert who_and_when.sniff(head) is False


def test_a_file_that_is_nothing_is_refused() -> None:
    assert who_and_when.read is not None
    for data in (b"{", b'{"history": 3, "mistake_step": "1"}', b"[1, 2]", b"[" * 5000):
        with pytest.raises(InputError):
            list(who_and_when.read(data))


def test_a_long_file_is_known_by_its_history() -> None:
    turns = [{"content": "x" * 9000, "role": role} for role in ("human", "Orchestrator (thought)") * 5]
    data = json.dumps({"history": turns, "question": "q", "ground_truth": "a", "mistake_step": "3"}).encode()
    assert who_and_when.sniff(data[: 1 << 16]) is True
    assert who_and_when.sniff(data[: 1 << 16].replace(b"Orchestrator (", b"Someone (")) is False


@pytest.mark.shared
def test_real_runs_agree_with_a_count_of_their_own() -> None:
    folder = logs.real("who_and_when", "Algorithm-Generated")
    traces = {t.task_id: t for t in logs.imported("who_and_when", logs.files_of(folder))}
    runs = [json.loads(p.read_bytes()) for p in sorted(folder.rglob("*.json"))]
    assert len(traces) == len(runs)
    mislabelled = []
    for run in runs:
        trace = traces[run["question_ID"]]
        speakers = [h.get("name") or h["role"].split(" (")[0] for h in run["history"]]
        terminal = sum("terminal" in s.lower() for s in speakers)
        found = logs.kinds(trace)
        assert found["tool_call"] == found["tool_result"] == terminal
        prompted = sum(name in speakers for name in run.get("system_prompt", {}))
        assert found["message"] == len(speakers) - terminal + prompted
        spoken = Counter(e.agent for e in trace.events if e.type == "message" and e.agent != "system")
        assert spoken == Counter(s for s in speakers if "terminal" not in s.lower())
        (mistake,) = mistakes(trace)
        assert mistake.id == f"s{int(run['mistake_step'])}"
        if speakers[int(run["mistake_step"])] != run["mistake_agent"]:
            mislabelled.append(run["question_ID"])
    assert mislabelled
    assert sorted(mislabelled) == sorted(task for task, t in traces.items() if not t.meta["labels"]["agrees"])
