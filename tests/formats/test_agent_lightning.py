"""Agent Lightning: spans of 0.3 and events of 1.0, our samples event by event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.trace import Event, Trace

SAMPLES = logs.SAMPLES / "agent_lightning"
PLANNER, READER = "a000000000000002", "a000000000000005"


def one(folder: str) -> Trace:
    (trace,) = logs.imported("agent_lightning", logs.files_of(SAMPLES / folder))
    return trace


def by(trace: Trace, id: str) -> Event:
    return next(e for e in trace.events if e.id == id)


def edges(trace: Trace, kind: str) -> set[tuple[str, str]]:
    return {(e.src, e.dst) for e in trace.edges if e.type == kind}


def records(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


# -- spans --------------------------------------------------------------------------------------------------------------------


def test_the_spans_of_an_attempt() -> None:
    trace = one("spans")
    assert (trace.trace_id, trace.system, trace.topology) == ("ro-1/at-1", "agent-lightning", "centralized")
    assert [(e.id, e.type, e.agent) for e in trace.events] == [
        ("a000000000000003:input", "human_intervention", "user"),
        ("a000000000000003", "orchestrator_decision", PLANNER),
        (READER, "spawn", PLANNER),
        ("a000000000000006", "message", READER),
        ("a000000000000007", "tool_call", READER),
        ("a000000000000007:result", "tool_result", READER),
        (f"{READER}:return", "return", READER),
        ("a000000000000008", "orchestrator_decision", PLANNER),
    ]
    # 50 + 70 of the planner: the proxy's span has no usage, but 70 and 5 token ids.
    assert logs.tokens(trace) == {PLANNER: (120, 13), READER: (40, 3)}
    assert by(trace, READER).role == "reader"
    assert trace.meta["import"]["links"]["exact"] == {"an agent span inside its caller's": 1}


def test_rewards_are_the_runs_or_stand_where_their_link_says() -> None:
    trace = one("spans")
    assert trace.rewards == {"accuracy": 0.75, "brevity": 0.5}
    assert {e.id: e.reward for e in trace.events if e.reward} == {"a000000000000006": {"step": 0.2}}


def test_nanoseconds_are_seconds_and_notes_are_kept() -> None:
    trace = one("spans")
    assert by(trace, "a000000000000008").t == pytest.approx(5.2)
    assert [note["kind"] for note in trace.meta["notes"]] == ["message", "exception"]
    assert trace.meta["notes"][0]["message.body"] == "finished early"
    assert trace.meta["rollout"]["metadata"] == {"batch": 1}
    assert "config" not in trace.meta["rollout"]
    assert trace.meta["import"]["session"]["broken"] == 1


def test_the_tools_of_an_operation() -> None:
    trace = one("spans")
    assert (by(trace, "a000000000000007").tool, by(trace, "a000000000000007:result").trusted) == ("lookup", False)
    assert ("a000000000000007:result", f"{READER}:return") in edges(trace, "safety_flow")


def test_two_attempts_at_one_input_are_two_traces_of_one_task() -> None:
    spans, rollouts = records(SAMPLES / "spans/spans.jsonl"), records(SAMPLES / "spans/rollouts.jsonl")
    again = [{**span, "attempt_id": "at-2"} for span in spans]
    files = {
        "s/spans.json": json.dumps([*spans, *again]).encode(),
        "s/rollouts.jsonl": b"\n".join(json.dumps(r).encode() for r in rollouts),
    }
    traces = logs.imported("agent_lightning", files)
    assert [t.trace_id for t in traces] == ["ro-1/at-1", "ro-1/at-2"]
    assert len({t.task_id for t in traces}) == 1
    assert traces[0].task_id != "ro-1"


def test_spans_that_come_by_otlp() -> None:
    def value(text: str) -> dict[str, str]:
        return {"stringValue": text}

    spans = [
        {
            "traceId": "0" * 31 + "2",
            "spanId": "b000000000000001",
            "name": "chat",
            "startTimeUnixNano": "1765000000000000000",
            "endTimeUnixNano": "1765000001000000000",
            "attributes": [
                {"key": "gen_ai.operation.name", "value": value("chat")},
                {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}},
                {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "3"}},
            ],
        },
        {
            "traceId": "0" * 31 + "3",
            "spanId": "b000000000000002",
            "name": "agentlightning.annotation",
            "startTimeUnixNano": "1765000002000000000",
            "endTimeUnixNano": "1765000002000000000",
            "attributes": [
                {"key": "agentlightning.reward.0.name", "value": value("primary")},
                {"key": "agentlightning.reward.0.value", "value": {"doubleValue": 1.0}},
            ],
        },
    ]
    about = [{"key": f"agentlightning.{name}", "value": value(name)} for name in ("rollout_id", "attempt_id")]
    body = {"resourceSpans": [{"resource": {"attributes": about}, "scopeSpans": [{"scope": {}, "spans": spans}]}]}
    (trace,) = logs.imported("agent_lightning", {"x.json": json.dumps(body).encode()})
    assert trace.trace_id == "rollout_id/attempt_id"
    assert trace.rewards == {"primary": 1.0}
    assert logs.tokens(trace) == {"main": (12, 3)}


# -- events -------------------------------------------------------------------------------------------------------------------


def test_the_events_of_an_archive() -> None:
    trace = one("events")
    assert [(e.id, e.type, e.agent, e.to) for e in trace.events] == [
        ("event0.0", "human_intervention", "user", "agent1"),
        ("event0", "orchestrator_decision", "agent1", None),
        ("call_1", "spawn", "agent1", "agent2"),
        ("event2.0", "message", "system", "agent2"),
        ("event2", "return", "agent2", "agent1"),
        ("call_2", "tool_call", "agent1", None),
        ("call_2:result", "tool_result", "agent1", None),
        ("event4", "orchestrator_decision", "agent1", None),
        ("event5", "message", "agent3", None),
    ]
    # 20 + 40 + 55; the failed call has none; the checker's 30 and 2 are counted ids.
    assert logs.tokens(trace) == {"agent1": (115, 28), "agent2": (15, 6), "agent3": (30, 2)}


def test_what_is_concluded_is_said_to_be() -> None:
    about = one("events").meta["import"]
    assert about["links"] == {
        "inferred": {
            "agents told apart by their system prompts": 3,
            "an agent's answer that came back as the result of a tool call": 1,
        }
    }
    assert about["unknown"] == {"agent_output": 1}


def test_rewards_of_events_are_rewards() -> None:
    trace = one("events")
    assert trace.rewards == {"grader": 1.0, "style": 0.5}
    assert trace.meta["rewards"][0]["reason"] == "10 == 10"
    assert trace.metrics == {"is_train": 1.0}
    assert trace.meta["user_events"][0]["data"] == {"answer": "10"}
    assert trace.meta["rollout"]["status"] == {"state": "succeeded"}


def test_a_failed_call_says_why_and_an_answer_reaches_who_read_it() -> None:
    trace = one("events")
    failed = by(trace, "event0")
    assert (failed.ok, failed.error) == (False, "overloaded")
    assert ("event4", "event5") in edges(trace, "message")
    assert edges(trace, "return") == {("event2", "call_2")}
    assert ("call_2:result", "event4") in edges(trace, "safety_flow")
    assert by(trace, "event4").dur == pytest.approx(0.9)


def test_a_result_that_is_nobodys_answer_is_a_tools() -> None:
    data = (SAMPLES / "events/archive.jsonl").read_bytes().replace(b'"content": "The sum is 5."}]', b'"content": "It is 5."}]')
    data = data.replace(b'"tool_call_id": "call_1", "content": "The sum is 5."', b'"tool_call_id": "call_1", "content": "5"')
    (trace,) = logs.imported("agent_lightning", {"x/archive.jsonl": data})
    assert logs.kinds(trace)["spawn"] == 0
    assert by(trace, "call_1").type == "tool_call"


def test_attempts_are_traces_of_one_task_and_other_files_say_which() -> None:
    traces = logs.imported("agent_lightning", logs.files_of(SAMPLES))
    assert [t.trace_id for t in traces] == ["r-1/p-1", "ro-1/at-1", "r-2/p-2", "r-2/p-3"]
    assert traces[0].task_id == traces[2].task_id == traces[3].task_id
    assert [t.rewards for t in traces[2:]] == [{"reward": 0.0}, {}]


def test_events_that_name_their_agent_are_believed() -> None:
    event = {"event_type": "model_request", "rollout_id": "r", "attempt_id": "a", "timestamp": 1.7e9}
    request = {"messages": [{"role": "user", "content": "hi"}]}
    data = [{**event, "data": {"agent_id": name, "request": request, "usage": {"prompt_tokens": 1}}} for name in ("x", "y")]
    (trace,) = logs.imported("agent_lightning", {"e.jsonl": b"\n".join(json.dumps(e).encode() for e in data)})
    assert {e.agent for e in trace.events} == {"user", "system", "x", "y"}
    assert "links" not in trace.meta["import"]


# -- both ---------------------------------------------------------------------------------------------------------------------


def test_an_attempt_that_grows_keeps_its_ids() -> None:
    archive = records(SAMPLES / "events/archive.jsonl")[0]
    whole = {e.id for e in one("events").events}
    grown: set[str] = set()
    for k in range(1, len(archive["events"]) + 1):
        data = json.dumps({**archive, "events": archive["events"][:k]}).encode()
        (trace,) = logs.imported("agent_lightning", {"events/archive.jsonl": data})
        ids = {e.id for e in trace.events}
        assert grown <= ids <= whole
        grown = ids
    assert grown == whole


def test_spans_that_come_later_take_no_model_or_tool_call_away() -> None:
    """Exporters write a span when it ends, so the spans around it come after it."""
    spans = records(SAMPLES / "spans/spans.jsonl")
    whole = one("spans")
    acts = {s["span_id"] for s in spans if s["span_id"] in {e.id for e in whole.events}} - {READER}
    for k in range(1, len(spans) + 1):
        data = b"\n".join(json.dumps(s).encode() for s in spans[:k])
        for trace in logs.imported("agent_lightning", {"spans/spans.jsonl": data}):
            assert trace.trace_id == whole.trace_id
            assert {s["span_id"] for s in spans[:k]} & acts <= {e.id for e in trace.events}


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{",
        b"[]",
        b'{"rollout_id":"x"}',
        b'{"span_id":"x","trace_id":"y","attributes":{},"start_time":1}',
        b'{"resourceSpans":[]}',
        b'{"event_type":"model_request","session_id":"s"}',
        b'{"rollout":{"id":1},"events":[]}',
        b"\xff\xfe",
        b"words",
    ],
)
def test_other_files_are_not_taken(head: bytes) -> None:
    assert logs.importer("agent_lightning").sniff(head) is False


def test_its_own_files_are_known_and_go_before_the_general_form() -> None:
    sniff = logs.importer("agent_lightning").sniff
    for file in logs.files_of(SAMPLES):
        assert sniff(file.head()) is True, file.name
    long = json.dumps({"rollout": {"rollout_id": "r", "input": "x" * 70_000, "status": "s"}, "events": []}).encode()
    assert sniff(long[: 1 << 16]) is True
    assert logs.importer("agent_lightning").rank > logs.importer("openinference").rank > logs.importer("otel").rank


def test_bytes_that_hold_no_attempt() -> None:
    read = logs.importer("agent_lightning").read
    assert read is not None
    for data in (b"{}", b'{"rollout_id":"r","input":1,"status":"queuing"}', b"[" * 3000, b"words"):
        with pytest.raises(InputError):
            list(read(data))


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [1, None], {"type": 3}, ["a", {"b": 1}]])
def test_strange_values_anywhere_are_survived(value: Any) -> None:
    keys = ("rollout_id", "attempt_id", "attributes", "status", "events", "links", "resource", "start_time", "parent_id", "name")
    keys += (
        "data",
        "request",
        "response",
        "messages",
        "choices",
        "usage",
        "tool_calls",
        "content",
        "function",
        "value",
        "rollout",
    )
    keys += ("sequence_id", "timestamp", "latency_ms", "http_status", "input", "tool_call_id", "prompt_token_ids", "source")
    for file in logs.files_of(SAMPLES):
        for key in keys:
            lines = [json.dumps(_spoilt(r, key, value)).encode() for r in records(SAMPLES / file.name)]
            logs.imported("agent_lightning", {file.name: b"\n".join(lines)})


def _spoilt(record: Any, key: str, value: Any) -> Any:
    if isinstance(record, dict):
        return {k: value if k == key else _spoilt(v, key, value) for k, v in record.items()}
    if isinstance(record, list):
        return [_spoilt(v, key, value) for v in record]
    return record


@pytest.mark.shared
def test_no_file_of_another_source_is_taken() -> None:
    sniff = logs.importer("agent_lightning").sniff
    assert [f.name for f in logs.files_of(logs.real()) if sniff(f.head())] == []
