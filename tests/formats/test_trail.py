"""TRAIL: nested spans with ISO durations, and the labels of its annotators on the right events."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.formats.trail import category
from counterpoint.trace import Trace

FOLDER = logs.SAMPLES / "trail"
TOWER, LATCH = "5a" * 16, "6b" * 16


def sample() -> list[Trace]:
    return logs.imported("trail", logs.files_of(FOLDER))


def labels(trace: Trace) -> list[tuple[str, str]]:
    return [(e.id, label["category"]) for e in trace.events for label in (e.extra or {}).get("trail_errors", [])]


def test_a_manager_and_the_agent_that_it_names() -> None:
    trace, _ = sample()
    assert [(e.id[:2], e.type, e.agent[:2], e.role) for e in trace.events] == [
        ("10", "human_intervention", "us", "user"),
        ("11", "orchestrator_decision", "10", "CodeAgent"),
        ("13", "orchestrator_decision", "10", "CodeAgent"),
        ("20", "spawn", "10", "search_agent"),
        ("22", "message", "20", "search_agent"),
        ("23", "tool_call", "20", "search_agent"),
        ("23", "tool_result", "20", "search_agent"),
        ("25", "tool_call", "20", "search_agent"),
        ("25", "tool_result", "20", "search_agent"),
        ("26", "return", "20", "search_agent"),
        ("14", "tool_call", "10", "CodeAgent"),
        ("14", "tool_result", "10", "CodeAgent"),
        ("10", "orchestrator_decision", "10", "CodeAgent"),
    ]
    assert logs.tokens(trace) == {"10000000000000c1": (450, 60), "20000000000000c1": (700, 40)}
    assert trace.meta["import"]["links"] == {"exact": {"an agent span inside its caller's": 1}}
    failed = trace.events[8]
    assert (failed.ok, failed.error, failed.trusted) == (False, "unexpected argument ''", False)
    assert trace.text(trace.events[5]) == '{"query":"tower height"}'
    assert (trace.events[1].t, trace.events[1].dur) == (0.1, 1.0)


def test_errors_are_labels_and_scores_are_metrics() -> None:
    trace, _ = sample()
    assert labels(trace) == [
        ("11000000000000c1", "formatting error"),
        ("25000000000000c1", "tool selection error"),
        ("25000000000000c1", "context handling failure"),  # located at a step, which is no event: the first inside it
    ]
    assert trace.metrics == {
        "reliability_score": 3.0,
        "security_score": 4.0,
        "instruction_adherence_score": 2.5,
        "plan_opt_score": 5.0,
        "overall": 3.63,
        "errors": 4.0,
    }
    assert [e["category"] for e in trace.meta["trail"]["unplaced"]] == ["goal deviation"]
    assert trace.meta["trail"]["reasons"]["plan_opt_reasoning"] == "Short."


def test_a_malformed_annotation_is_counted_and_its_trace_is_read() -> None:
    tower, latch = logs.sessions("trail", logs.files_of(FOLDER))
    assert (tower.key, latch.key, len(latch.files)) == (TOWER, LATCH, 2)
    (trace,) = logs.importer("trail").read_session(latch)
    assert latch.report.broken_count == 1
    assert latch.report.broken[0]["file"] == f"annotations/{LATCH}.json"
    assert logs.tokens(trace) == {"31000000000000c2": (90, 6)}
    assert labels(trace) == []
    assert trace.metrics is None


def test_an_annotation_alone_is_counted() -> None:
    files = [f for f in logs.files_of(FOLDER) if f.name == f"annotations/{TOWER}.json"]
    (session,) = logs.sessions("trail", files)
    assert list(logs.importer("trail").read_session(session)) == []
    assert session.report.broken[0]["what"] == "an annotation whose trace is not here"


@pytest.mark.parametrize(
    ("written", "one"),
    [
        ("Formatting Errors", "formatting error"),
        ("  formatting  error ", "formatting error"),
        ("Instruction Non-Compliance", "instruction non-compliance"),
        ("Resource Abuse", "resource abuse"),
        ("Language-only", "language-only"),
        (None, ""),
    ],
)
def test_categories_are_written_one_way(written: Any, one: str) -> None:
    assert category(written) == one


def test_a_trace_that_grows_keeps_its_ids() -> None:
    document = json.loads((FOLDER / "data" / "GAIA" / f"{TOWER}.json").read_text())
    whole = {e.id for e in sample()[0].events}
    step = document["spans"][0]["child_spans"][0]["child_spans"][1]
    for n in range(len(step["child_spans"])):
        part = json.loads(json.dumps(document))
        part["spans"][0]["child_spans"][0]["child_spans"][1]["child_spans"] = step["child_spans"][:n]
        (trace,) = logs.imported("trail", {f"{TOWER}.json": json.dumps(part).encode()})
        assert {e.id for e in trace.events} <= whole


@pytest.mark.parametrize(
    "data",
    [
        b'{"trace_id": "x", "spans": [{"span_name": 1, "span_attributes": 2}]}',
        b'{"spans": 3, "span_name": "", "span_attributes": {}}',
        b'{"errors": [], "reliability_score": 1}',
    ],
)
def test_bad_input_is_an_input_error(data: bytes) -> None:
    read = logs.importer("trail").read
    assert read is not None
    with pytest.raises(InputError):
        list(read(data))


def test_it_knows_its_own_files_only() -> None:
    sniff = logs.importer("trail").sniff
    assert all(sniff(file.head()) for file in logs.files_of(FOLDER))
    for name in ("langsmith", "openai_agents", "langfuse", "openinference"):
        assert not any(sniff(file.head()) for file in logs.files_of(logs.SAMPLES / name)), name


def spans_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    found = list(document["spans"])
    for span in found:
        found.extend(span["child_spans"])
    return found


@pytest.mark.shared
def test_real_traces_against_a_count_of_their_own() -> None:
    root = logs.real("trail")
    traces = {t.trace_id: t for t in logs.imported("trail", logs.files_of(root))}
    paths = sorted((root / "data").rglob("*.json"))
    assert len(paths) == len(traces) == 12
    all_labels = 0
    for path in paths:
        trace = traces[path.stem]
        spans = spans_in(json.loads(path.read_text()))
        kinds = Counter(s["span_attributes"].get("openinference.span.kind") for s in spans)
        got = logs.kinds(trace)
        assert got["tool_call"] == got["tool_result"] == kinds["TOOL"]
        steps = [e for e in trace.events if e.tokens_in is not None]
        assert len(steps) == kinds["LLM"]
        calls = [s["span_attributes"] for s in spans if s["span_attributes"].get("openinference.span.kind") == "LLM"]
        want = [sum(int(a.get(f"llm.token_count.{side}", 0)) for a in calls) for side in ("prompt", "completion")]
        assert [sum(e.tokens_in or 0 for e in steps), sum(e.tokens_out or 0 for e in steps)] == want
        failed = sum(s["status_code"] == "Error" and s["span_attributes"].get("openinference.span.kind") == "TOOL" for s in spans)
        assert sum(e.ok is False for e in trace.events if e.type == "tool_result") == failed
        agents = {s["span_id"] for s in spans if s["span_attributes"].get("openinference.span.kind") == "AGENT"}
        assert agents == {e.agent for e in trace.events} - {"user", "main"}
        (note,) = [json.loads(p.read_text()) for p in root.glob(f"processed_annotations_*/{path.name}")]
        located = Counter((e["location"], category(e["category"])) for e in note["errors"])
        assert Counter((name.split(":")[0], kind) for name, kind in labels(trace)) == located
        assert trace.metrics is not None
        assert trace.metrics["overall"] == note["scores"][0]["overall"]
        all_labels += len(note["errors"])
    assert all_labels == 63
