"""AutoGen in its four forms: our samples event by event, and what must not be taken for AutoGen's."""

from __future__ import annotations

import json
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.trace import Event, Trace

SAMPLES = logs.SAMPLES / "autogen"
KEY = "11111111-2222-4333-8444-555555555555"
WRITER, CHECKER, MANAGER = (f"{name}_{KEY}/{KEY}" for name in ("writer", "checker", "RoundRobinGroupChatManager"))


def one(path: str) -> Trace:
    (trace,) = logs.imported("autogen", logs.files_of(SAMPLES / path))
    return trace


def read(data: bytes, name: str = "x.log") -> Trace:
    (trace,) = logs.imported("autogen", {name: data})
    return trace


def by(trace: Trace, id: str) -> Event:
    return next(e for e in trace.events if e.id == id)


def edges(trace: Trace, kind: str) -> set[tuple[str, str]]:
    return {(e.src, e.dst) for e in trace.edges if e.type == kind}


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


# -- event logs ---------------------------------------------------------------------------------------------------------------


def test_the_event_log() -> None:
    trace = one("events/team.log")
    assert trace.trace_id == f"autogen-{trace.meta['import']['run']}"
    assert [(e.id, e.type, e.agent) for e in trace.events] == [
        ("line2", "human_intervention", "user"),
        ("line6", "message", MANAGER),
        ("line9", "tool_call", WRITER),
        ("line9:result", "tool_result", WRITER),
        ("line10", "message", WRITER),
        ("line15", "message", MANAGER),
        ("line17", "return", CHECKER),
        ("line20", "message", WRITER),
        ("line21", "spawn", "runtime"),
        ("line22", "message", CHECKER),
    ]
    # 90 + 120 of the writer's calls; what its message repeats is not added.
    assert logs.tokens(trace) == {WRITER: (210, 21), CHECKER: (200, 5)}
    assert by(trace, "line10").role == "writer"
    assert by(trace, "line10").model == "gpt-4o-mini"


def test_messages_are_put_down_once_and_reach_who_read_them() -> None:
    trace = one("events/team.log")
    assert edges(trace, "message") == {
        ("line2", "line9"),
        ("line6", "line9"),
        ("line2", "line17"),
        ("line10", "line17"),
        ("line15", "line17"),
    }
    assert by(trace, "line17").to == MANAGER
    assert (by(trace, "line9:result").trusted, by(trace, "line9:result").source) == (False, "tool")
    assert ("line9:result", "line10") in edges(trace, "safety_flow")


def test_the_times_of_the_formatter_and_of_a_stream() -> None:
    trace = one("events/team.log")
    assert by(trace, "line9").t == 4.0
    stream = by(trace, "line17")
    assert (stream.t, stream.dur) == (8.0, 2.0)


def test_what_went_wrong_in_the_log() -> None:
    trace = one("events/team.log")
    failed = {e.id: (e.ok, e.error) for e in trace.events if e.ok is False}
    assert failed == {
        "line20": (False, "ValueError: no more lines"),
        "line21": (False, "no model client"),
        "line22": (False, "dropped"),
    }
    assert [b["line"] for b in trace.meta["import"]["session"]["broken_first"]] == [14]


def test_a_bare_log_has_no_times_and_a_wrapped_one_has() -> None:
    event = {"type": "LLMCall", "messages": [], "response": "hi", "prompt_tokens": 3, "completion_tokens": 1, "agent_id": "a/1"}
    bare = read(lines(event, event))
    assert [e.t for e in bare.events] == [0.0, 1.0]
    assert bare.meta["import"]["lacks"] == {"timestamps: t counts events": 1}
    wrapped = read(
        lines(
            {"timestamp": "2026-01-01T00:00:00Z", "message": json.dumps(event)},
            {"timestamp": "2026-01-01T00:00:05Z", "message": json.dumps(event)},
        )
    )
    assert wrapped.events[1].at == wrapped.events[0].at or wrapped.events[1].dur == 5.0
    assert logs.tokens(wrapped) == {"a/1": (6, 2)}


def test_a_direct_message_and_its_response() -> None:
    def message(kind: str, stage: str, sender: str | None, receiver: str, text: str) -> dict[str, Any]:
        payload = json.dumps({"content": text, "source": sender})
        return {
            "type": "Message",
            "payload": payload,
            "sender": sender,
            "receiver": receiver,
            "kind": kind,
            "delivery_stage": stage,
        }

    trace = read(
        lines(
            message("Direct", "Send", "boss/1", "worker/1", "do it"),
            message("Direct", "Deliver", "boss/1", "worker/1", "do it"),
            message("Respond", "Deliver", "worker/1", "boss/1", "done"),
            {"type": "LLMCall", "messages": [], "response": {"content": "good"}, "agent_id": "boss/1"},
        )
    )
    assert [(e.id, e.type, e.agent, e.to) for e in trace.events] == [
        ("line1", "message", "boss/1", "worker/1"),
        ("line3", "return", "worker/1", "boss/1"),
        ("line4", "message", "boss/1", None),
    ]
    assert edges(trace, "message") == {("line1", "line3")}
    assert edges(trace, "return") == {("line3", "line4")}
    assert trace.meta["import"]["lacks"]["the tokens of a model call"] == 1


def test_a_model_call_of_nobody_is_said() -> None:
    trace = read(lines({"type": "LLMCall", "messages": [], "response": "x", "agent_id": None, "prompt_tokens": 1}))
    assert trace.events[0].agent == "unknown"
    assert trace.meta["import"]["lacks"]["the agent of a model call"] == 1


def test_the_first_magentic_one() -> None:
    trace = read(
        lines(
            {"timestamp": "2024-11-01T10:00:00", "type": "OrchestrationEvent", "source": "UserProxy", "message": "How many?"},
            {
                "timestamp": "2024-11-01T10:00:02",
                "type": "OrchestrationEvent",
                "source": "Orchestrator (thought)",
                "message": "hm",
            },
            {
                "timestamp": "2024-11-01T10:00:03",
                "type": "OrchestrationEvent",
                "source": "Orchestrator (-> Coder)",
                "message": "go",
            },
            {"timestamp": "2024-11-01T10:00:09", "type": "OrchestrationEvent", "source": "Coder", "message": "two"},
            {"timestamp": "2024-11-01T10:00:09", "type": "LLMCall", "messages": [], "response": {}, "prompt_tokens": 7},
        )
    )
    assert [(e.type, e.agent, e.to, e.decision) for e in trace.events][:4] == [
        ("human_intervention", "user", None, None),
        ("orchestrator_decision", "Orchestrator", None, None),
        ("orchestrator_decision", "Orchestrator", "Coder", "delegate"),
        ("return", "Coder", "Orchestrator", None),
    ]
    assert edges(trace, "message") == {("b0", "b1"), ("b0", "b3"), ("b2", "b3")}
    assert logs.tokens(trace) == {"unknown": (7, 0)}


# -- AgentChat ----------------------------------------------------------------------------------------------------------------


def test_a_task_result() -> None:
    trace = one("chat/task_result.json")
    assert [(e.id, e.type, e.agent) for e in trace.events] == [
        ("id-1", "human_intervention", "user"),
        ("id-2", "orchestrator_decision", "manager"),
        ("id-3", "tool_result", "planner"),
        ("id-5", "message", "planner"),
        ("call_a", "tool_call", "planner"),
        ("call_a:result", "tool_result", "planner"),
        ("id-7", "message", "planner"),
        ("id-8", "message", "planner"),
        ("id-10", "human_intervention", "desk"),
        ("id-11", "message", "coder"),
        ("id-11.code0", "tool_call", "coder"),
        ("id-12", "tool_result", "coder"),
        ("id-14", "message", "coder"),
        ("id-15", "message", "planner"),
    ]
    assert logs.tokens(trace) == {"planner": (250, 30), "coder": (175, 41)}
    assert trace.meta["stop_reason"] == "Text 'TERMINATE' mentioned"
    assert trace.meta["import"]["unknown"] == {"BrandNewEvent": 1}


def test_who_hears_what_in_the_room() -> None:
    trace = one("chat/task_result.json")
    assert edges(trace, "message") == {
        ("id-1", "id-2"),
        ("id-1", "id-5"),
        ("id-2", "id-5"),
        ("id-1", "id-11"),
        ("id-7", "id-11"),
        ("id-8", "id-11"),
        ("id-10", "id-11"),
        ("id-10", "id-15"),
        ("id-14", "id-15"),
    }
    assert edges(trace, "tool_dependency") == {("call_a", "call_a:result"), ("id-11.code0", "id-12")}


def test_memory_and_tools_are_not_trusted_and_people_are() -> None:
    trace = one("chat/task_result.json")
    assert (by(trace, "id-3").source, by(trace, "id-3").trusted) == ("memory", False)
    assert (by(trace, "call_a:result").source, by(trace, "call_a:result").trusted) == ("tool", False)
    assert (by(trace, "id-10").source, by(trace, "id-10").trusted) == ("user", True)
    assert edges(trace, "safety_flow") == {("id-3", "id-5"), ("call_a:result", "id-7"), ("id-12", "id-14")}


def test_a_stream_and_the_result_at_its_end_are_one() -> None:
    trace = one("chat/stream.jsonl")
    assert [e.id for e in trace.events] == ["id-21", "id-22"]
    assert logs.tokens(trace) == {"greeter": (10, 2)}
    assert trace.meta["import"]["session"]["broken"] == 1


def test_old_messages_without_ids_are_told_apart() -> None:
    said = {"type": "TextMessage", "source": "a", "models_usage": {"prompt_tokens": 1, "completion_tokens": 1}, "content": "x"}
    trace = read(json.dumps([said, {**said, "content": "y"}]).encode(), "x.json")
    assert [e.id for e in trace.events] == ["m1", "m2"]


# -- consoles -----------------------------------------------------------------------------------------------------------------


def test_a_console_log_of_magentic_one() -> None:
    trace = one("magentic/console_log.txt")
    assert [(e.id, e.type, e.agent, e.to, e.decision) for e in trace.events] == [
        ("b0", "human_intervention", "user", None, None),
        ("b1", "orchestrator_decision", "MagenticOneOrchestrator", None, None),
        ("b2", "orchestrator_decision", "MagenticOneOrchestrator", "WebSurfer", "delegate"),
        ("b3", "return", "WebSurfer", "MagenticOneOrchestrator", None),
        ("b4", "orchestrator_decision", "MagenticOneOrchestrator", "Coder", "delegate"),
        ("call_9", "tool_call", "Coder", None, None),
        ("call_9:result", "tool_result", "Coder", None, None),
        ("b7", "return", "Coder", "MagenticOneOrchestrator", None),
        ("b8", "orchestrator_decision", "MagenticOneOrchestrator", None, "stop"),
    ]
    # They add up to what the summary at the end says: 2070 and 82.
    spent = logs.tokens(trace)
    assert spent == {"MagenticOneOrchestrator": (1050, 27), "WebSurfer": (900, 40), "Coder": (120, 15)}
    assert trace.metrics is not None
    assert trace.metrics["total_prompt_tokens"] == sum(n for n, _ in spent.values())
    assert trace.metrics["total_completion_tokens"] == sum(n for _, n in spent.values())
    assert trace.metrics["duration"] == 12.5


def test_what_a_page_said_is_not_trusted_and_its_way_is_drawn() -> None:
    trace = one("magentic/console_log.txt")
    assert (by(trace, "b3").source, by(trace, "b3").trusted) == ("tool", False)
    assert ("b3", "b4") in edges(trace, "safety_flow")
    assert edges(trace, "return") == {("b3", "b4"), ("b7", "b8")}
    assert trace.meta["import"]["links"]["inferred"] == {"the member that speaks after the orchestrator was asked by it": 2}


def test_newer_consoles_name_the_kind_of_message() -> None:
    data = (
        b"---------- TextMessage (user) ----------\nhi\n"
        b"---------- TextMessage (helper) ----------\n\x1b[32mhello\x1b[0m\n---------- not a head\n"
    )
    trace = read(data, "console.txt")
    assert [(e.type, e.agent) for e in trace.events] == [("human_intervention", "user"), ("message", "helper")]
    assert list(trace.contents.values())[1] == "hello\n---------- not a head"


def test_a_ledger_names_who_is_asked() -> None:
    data = b"""---------- user ----------
hi
---------- MagenticOneOrchestrator ----------
{"next_speaker": {"reason": "r", "answer": "FileSurfer"}}
"""
    trace = read(data, "console.txt")
    assert by(trace, "b1").to == "FileSurfer"
    assert "links" not in trace.meta["import"]


# -- histories ----------------------------------------------------------------------------------------------------------------


def test_a_chat_history_of_ag2() -> None:
    trace = one("ag2/history.json")
    assert [(e.id, e.type, e.agent) for e in trace.events] == [
        ("m0", "human_intervention", "user_proxy"),
        ("m1", "message", "coder"),
        ("m2:call", "tool_call", "coder"),
        ("m2", "tool_result", "coder"),
        ("call_x", "tool_call", "coder"),
        ("m4", "tool_result", "coder"),
        ("m5", "message", "coder"),
        ("m6", "message", "user_proxy"),
    ]
    assert edges(trace, "tool_dependency") == {("m2:call", "m2"), ("call_x", "m4")}
    assert trace.metrics == {"total_cost_usd": 0.0004}
    assert trace.meta["summary"] == "The sum is 5."
    assert trace.meta["import"]["lacks"]["whether a proxy's words were a person's"] == 1


def test_a_bare_list_is_a_history_too() -> None:
    history = json.loads((SAMPLES / "ag2" / "history.json").read_text())["chat_history"]
    trace = read(json.dumps(history).encode(), "x.json")
    assert logs.kinds(trace) == logs.kinds(one("ag2/history.json"))


# -- all ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["events/team.log", "chat/stream.jsonl", "magentic/console_log.txt"])
def test_a_log_that_grows_keeps_its_ids(path: str) -> None:
    whole = {e.id for e in one(path).events}
    data = (SAMPLES / path).read_bytes().splitlines(keepends=True)
    grown: set[str] = set()
    for k in range(1, len(data) + 1):
        for trace in logs.imported("autogen", {"x/" + path: b"".join(data[:k])}):
            ids = {e.id for e in trace.events}
            assert ids <= whole
            assert grown <= ids
            grown = ids
    assert grown == whole


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{",
        b"[]",
        b"[1, 2]",
        b'{"type":"Message"}',
        b'{"type":"user","message":{"role":"user","content":"x"},"uuid":"u"}',
        b'[{"role":"user","content":"x"}]',
        b'{"messages":[{"role":"user","content":"x"}]}',
        b'{"history":[{"content":"x","role":"user","name":"n"}],"mistake_agent":"n"}',
        b"---------- \n",
        b"---------- one ----------\ntext\n---------- two ----------\n",
        b"---------- user ----------\nonly one block\n",
        b'{"type":"ToolCall","id":"x"}',
        b"2026-01-01 INFO something {broken",
        b"\xff\xfe\x00\x01",
    ],
)
def test_other_files_are_not_taken(head: bytes) -> None:
    assert logs.importer("autogen").sniff(head) is False


def test_long_files_are_known_by_their_beginning() -> None:
    sniff = logs.importer("autogen").sniff
    long = "x" * 70_000
    for value in (
        {"messages": [{"source": "user", "models_usage": None, "type": "TextMessage", "content": "hi"}, {"content": long}]},
        [{"content": "a", "role": "user", "name": "ann"}, {"content": long}],
        {"type": "LLMCall", "messages": [{"content": long}], "response": {}},
    ):
        assert sniff(json.dumps(value).encode()[: 1 << 16]) is True
    assert sniff(b"pip noise\n" * 190 + b"---------- user ----------\nx\n---------- helper ----------\n") is True


def test_bytes_that_hold_nothing_of_it() -> None:
    read_ = logs.importer("autogen").read
    assert read_ is not None
    for data in (b"{}", b"words", b'{"messages": []}', b"\x00" * 20, b"[" * 3000):
        with pytest.raises(InputError):
            list(read_(data))


@pytest.mark.parametrize("value", [None, 3, "x", "{", [], {}, [1, None], {"type": 3}, ["a", {"b": 1}]])
def test_strange_values_anywhere_are_survived(value: Any) -> None:
    keys = ("payload", "messages", "response", "arguments", "result", "sender", "receiver", "kind", "content", "models_usage")
    keys += ("source", "created_at", "target", "code_blocks", "tool_calls", "tool_responses", "name", "chat_message", "agent_id")
    for file in logs.files_of(SAMPLES):
        for key in keys:
            spoilt = b"".join(_spoilt(line, key, value) for line in _lines(file.name, file.data()))
            logs.imported("autogen", {file.name: spoilt})


def _lines(name: str, data: bytes) -> list[bytes]:
    return [data] if name.endswith(".json") else data.splitlines(keepends=True)


def _spoilt(line: bytes, key: str, value: Any) -> bytes:
    begin = line.find(b"{")
    try:
        return line[:begin] + json.dumps(_changed(json.loads(line[begin:]), key, value)).encode() + b"\n"
    except ValueError:
        return line


def _changed(record: Any, key: str, value: Any) -> Any:
    if isinstance(record, dict):
        return {k: value if k == key else _changed(v, key, value) for k, v in record.items()}
    if isinstance(record, list):
        return [_changed(v, key, value) for v in record]
    return record


@pytest.mark.shared
def test_no_file_of_another_source_is_taken() -> None:
    found = logs.importer("autogen").sniff
    root = logs.real()
    assert [f.name for f in logs.files_of(root) if found(f.head())] == []
