"""Antigravity, ACP, AgentV and the smaller layouts of older readers: what their samples and small traps hold, counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import logs
from counterpoint.app.discover import find
from counterpoint.app.editor_homes import editor_homes
from counterpoint.errors import InputError
from counterpoint.trace import Trace

NAMES = ("acp", "agentv", "antigravity")


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def sample(name: str) -> dict[str, Trace]:
    return {trace.trace_id: trace for trace in logs.imported(name, logs.files_of(logs.SAMPLES / name))}


def calls(trace: Trace) -> list[tuple[str, str | None]]:
    return [(e.id, e.tool) for e in trace.events if e.type == "tool_call"]


def failures(trace: Trace) -> list[tuple[str, str | None]]:
    return [(e.id, e.error) for e in trace.events if e.ok is False]


def said(trace: Trace) -> list[str]:
    """What people said."""
    return [trace.text(e) or "" for e in trace.events if e.type == "human_intervention"]


def steps(trace: Trace) -> list[str]:
    """What the main agent said."""
    return [text for e in trace.events if e.type == "orchestrator_decision" and (text := trace.text(e))]


# -- Agent Client Protocol ---------------------------------------------------------------------------------------------------


def test_the_acp_sample_joins_pieces_and_hangs_the_sub_agent_on_its_call() -> None:
    trace = sample("acp")["sess_garden"]
    assert logs.tokens(trace) == {"main": (1200, 90)}
    assert steps(trace) == ["I read the list.", "The roses need water; the pump has no power."]
    assert calls(trace) == [("call_read", "read"), ("call_pump", "execute"), ("call_soil", "soil")]
    assert failures(trace) == [("call_pump:result", "pump: no power")]
    assert said(trace) == ["Which beds need water?", "Allow once"]
    assert [(e.to, e.role, trace.text(e)) for e in trace.events if e.type == "spawn"] == [
        ("call_task", "probe", "How dry are the roses?")
    ]
    assert [trace.text(e) for e in trace.events if e.type == "return"] == ["The roses have 12 % of water."]
    assert (trace.meta["agent"], trace.meta["client"], trace.meta["title"]) == (
        "spade",
        "garden-editor",
        "Which beds need water?",
    )
    assert sum(trace.meta["import"]["session"]["unknown"].values()) == 1


def test_the_daemon_of_qwen_states_each_call_and_a_refusal_is_an_error() -> None:
    trace = sample("acp")["sess_shed"]
    assert logs.tokens(trace) == {"main": (300 + 330, 12 + 5)}
    assert failures(trace) == [("call_1:result", "refused")]
    assert said(trace) == ["Is the shed locked?", "No"]


def rpc(**message: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", **message}


def update(kind: str, /, **fields: Any) -> dict[str, Any]:
    return rpc(method="session/update", params={"sessionId": "s", "update": {"sessionUpdate": kind, **fields}})


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def prompt(number: int, text: str) -> dict[str, Any]:
    return rpc(id=number, method="session/prompt", params={"sessionId": "s", "prompt": [words(text)]})


def test_what_a_loaded_session_tells_again_counts_once() -> None:
    told = [
        prompt(1, "Hi"),
        update("user_message_chunk", content=words("Hi")),  # the agent tells the prompt again
        update("agent_message_chunk", content=words("Hello.")),
        rpc(id=1, result={"stopReason": "end_turn", "usage": {"inputTokens": 5, "outputTokens": 2, "cachedReadTokens": 20}}),
    ]
    load = rpc(id=2, method="session/load", params={"sessionId": "s", "cwd": "/"})
    again = [update("user_message_chunk", content=words("Hi")), update("agent_message_chunk", content=words("Hello."))]
    end = [rpc(id=2, result={}), prompt(3, "Bye"), rpc(id=3, error={"code": -32603, "message": "no quota"})]
    (trace,) = logs.imported("acp", {"x.jsonl": lines(*told, load, *again, *end)})
    assert (said(trace), steps(trace)) == (["Hi", "Bye"], ["Hello."])
    assert logs.tokens(trace) == {"main": (25, 2)}  # more was read from the cache than went in: the input leaves it out
    assert trace.meta["import"]["mended"]["what a loaded session told again"] == 2


def test_calls_end_once_and_open_ones_are_said() -> None:
    call = {"toolCallId": "a", "kind": "other", "title": "Look", "rawInput": {"x": 1}}
    (trace,) = logs.imported("acp", {"x.jsonl": lines(
        prompt(1, "Go"),
        update("tool_call", **call, status="in_progress"),
        update("tool_call", toolCallId="b", title="Wait", kind="execute", status="pending"),
        update("tool_call_update", toolCallId="a", status="completed", content=[{"type": "content", "content": words("one")}]),
        update("tool_call_update", toolCallId="a", status="completed", content=[{"type": "content", "content": words("two")}]),
        rpc(method="session/cancel", params={"sessionId": "s"}),
        rpc(id=1, result={"stopReason": "cancelled"}),
    )})  # fmt: skip
    assert calls(trace) == [("a", "Look"), ("b", "execute")]
    assert [(e.id, trace.text(e)) for e in trace.events if e.type == "tool_result"] == [("a:result", "two")]
    assert trace.meta["import"]["lacks"]["how a tool call ended"] == 1
    assert said(trace) == ["Go", "cancelled"]


def test_two_sessions_of_one_connection_and_the_shapes_of_a_line() -> None:
    def chunk(session: str, text: str) -> dict[str, Any]:
        return {"sessionId": session, "update": {"sessionUpdate": "agent_message_chunk", "content": words(text)}}

    data = lines(
        {"ts": 1772442000, "payload": rpc(method="session/update", params=chunk("a", "wrapped"))},
        {"time": 1772442001, "raw": json.dumps(rpc(method="session/update", params=chunk("b", "as a text")))},
        chunk("a", " and bare"),
    )
    found = {trace.trace_id: steps(trace) for trace in logs.imported("acp", {"x.jsonl": data + b'{"jsonrpc":'})}
    assert found == {"a": ["wrapped and bare"], "b": ["as a text"]}


def test_what_a_session_cost_is_its_last_statement() -> None:
    used = [update("usage_update", used=k, size=9, cost={"amount": k / 10, "currency": "USD"}) for k in (1, 3)]
    (trace,) = logs.imported("acp", {"x.jsonl": lines(prompt(1, "Hi"), *used)})
    assert trace.costs["cost_usd"] == 0.3


# -- Antigravity -------------------------------------------------------------------------------------------------------------


def test_the_antigravity_sample_reads_the_full_transcript_once() -> None:
    found = sample("antigravity")
    assert set(found) == {"11112222-3333-4444-5555-666677778888", "sdk_steps"}
    trace = found["11112222-3333-4444-5555-666677778888"]
    assert trace.meta["title"] == "Count the hives and mend the lid."
    assert trace.meta["models"] == ["Gemini 3.1 Pro (High)"]
    assert [tool for _, tool in calls(trace)] == ["run_command", "view_file", "write_to_file", "list_dir"]
    assert failures(trace) == [
        ("s2.0:result", "ls: lids: not there\nThe command exited with code 2."),
        ("s8.0:result", "the folder is busy"),
    ]
    child = "99990000-aaaa-4bbb-8ccc-ddddeeeeffff"
    assert [(e.to, trace.text(e)) for e in trace.events if e.type == "spawn"] == [(child, "Mend the lid")]
    assert [(e.from_, trace.text(e)) for e in trace.events if e.type == "return"] == [(child, "The lid is mended.")]
    assert trace.meta["import"]["links"] == {"exact": {"the conversation that the call's answer names": 1}}
    assert sum(trace.meta["import"]["session"]["unknown"].values()) == 1


def test_steps_of_antigravity_s_sdk_state_their_tokens() -> None:
    trace = sample("antigravity")["sdk_steps"]
    # 400 + 20 + 10 thoughts beside the candidates; then 450 + 8
    assert logs.tokens(trace) == {"main": (850, 38)}
    assert trace.text(trace.events[-1]) == '{"frames":10}'
    assert trace.meta["import"]["lacks"]["what a tool gave back"] == 1


def test_an_error_without_a_call_is_of_the_step_before() -> None:
    def step(k: int, kind: str, source: str = "MODEL", **fields: Any) -> dict[str, Any]:
        return {"step_index": k, "source": source, "type": kind, "status": "DONE", **fields}

    (trace,) = logs.imported("antigravity", {"x.jsonl": lines(
        step(0, "USER_INPUT", "USER_EXPLICIT", content="go"),
        step(1, "PLANNER_RESPONSE", content="Working."),
        step(2, "ERROR_MESSAGE", "SYSTEM", content="quota exceeded"),
        step(3, "USER_INPUT", "USER_IMPLICIT", content="the window was opened"),
    )})  # fmt: skip
    assert failures(trace) == [("s1", "quota exceeded")]
    assert said(trace) == ["go"]
    assert [trace.text(e) for e in trace.events if e.from_ == "client"] == ["the window was opened"]


def test_its_conversations_are_found_in_each_of_its_homes(tmp_path: Path) -> None:
    for name in ("antigravity", "antigravity-ide", "antigravity-cli"):
        (tmp_path / ".gemini" / name / "brain").mkdir(parents=True)
    assert [name for name, _ in editor_homes(tmp_path)] == ["Antigravity"] * 3


# -- AgentV ------------------------------------------------------------------------------------------------------------------


def test_the_agentv_sample_counts_the_run_once() -> None:
    found = sample("agentv")
    trace = found["count-the-apples-sess-apples"]
    assert (logs.tokens(trace), trace.costs["cost_usd"]) == ({"main": (500, 70)}, 0.004)
    assert calls(trace) == [("c1", "Read"), ("c2", "Bash"), ("m2.0", "Read")]
    assert failures(trace) == [("c2:result", "weigh: not found")]
    assert trace.text(trace.events[-1]) == "Nine apples."
    assert steps(found["greet-sess-apples"]) == ["Hello."]


# -- smaller layouts of older readers ----------------------------------------------------------------------------------------


def message(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": role, "message": {"role": role, "content": content}, "timestamp": "2026-01-01T00:00:00Z", **fields}


def test_claude_code_without_ids_is_read_by_its_lines() -> None:
    use = {"type": "tool_use", "id": "t", "name": "Task", "input": {"prompt": "look", "subagent_type": "Explore"}}
    seen = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "seen"}]}}
    data = lines(
        message("user", "Hi", sessionId="one"),
        message("assistant", [use]),
        {"type": "progress", "parentToolUseID": "t", "data": {"type": "agent_progress", "agentId": "kid", "message": seen}},
        message("user", [{"type": "tool_result", "tool_use_id": "t", "content": "seen"}]),
        message("assistant", [{"type": "text", "text": "Done."}]),
        message("user", "Again", sessionId="two"),
        message("assistant", [{"type": "text", "text": "Yes."}]),
    )
    found = {t.trace_id: t for t in logs.imported("claude_code", {"x.jsonl": data})}
    assert {name: said(trace) for name, trace in found.items()} == {"one": ["Hi"], "two": ["Again"]}
    assert [e.to for e in found["one"].events if e.type == "spawn"] == ["kid"]
    assert (steps(found["one"])[-1], steps(found["two"])) == ("Done.", ["Yes."])


def test_a_sub_agent_s_file_without_ids_is_the_sub_agent_s() -> None:
    data = lines(message("user", "look", agentId="kid"), message("assistant", [{"type": "text", "text": "seen"}]))
    (trace,) = logs.imported("claude_code", {"subagent-kid.jsonl": data})
    assert {e.agent for e in trace.events if e.type != "human_intervention" and e.role != "unknown"} == {"kid"}


def test_an_amp_thread_of_texts_and_times() -> None:
    thread = {"id": "thread-7", "title": "Peas", "messages": [
        {"role": "user", "text": "Are there peas?", "createdAt": 1700000000000},
        {"role": "assistant", "text": "Nine.", "createdAt": 1700000005000},
    ]}  # fmt: skip
    (trace,) = logs.imported("amp", {"thread-7.json": json.dumps(thread).encode()})
    assert (trace.trace_id, said(trace), steps(trace)) == ("thread-7", ["Are there peas?"], ["Nine."])
    assert trace.costs["wall_clock_s"] == 5


def test_hooks_of_copilot_pair_what_began_with_what_ended() -> None:
    def event(kind: str, at: int, **fields: Any) -> dict[str, Any]:
        return {"session_id": "s", "cwd": "/home/ada/bees", "type": kind, "timestamp": 1700000000000 + at, **fields}

    good, bad = {"resultType": "success", "textResultForLlm": "2"}, {"resultType": "denied", "textResultForLlm": "not now"}
    data = lines(
        event("userPromptSubmitted", 0, prompt="Count"),
        event("preToolUse", 1000, toolName="view", toolArgs='{"path":"a"}'),
        event("preToolUse", 1500, toolName="bash", toolArgs='{"command":"rm a"}'),
        event("postToolUse", 2000, toolName="bash", toolResult=bad),
        event("postToolUse", 3000, toolName="view", toolResult=good),
    ) + b'{"session_id":"s","type":"assistantresponse","result":"cut"\n' + lines(event("assistantresponse", 4000, result="Two."))
    (trace,) = logs.imported("copilot_cli", {"x.jsonl": data})
    assert (trace.trace_id, trace.meta["project"], said(trace), steps(trace)) == ("s", "bees", ["Count"], ["Two."])
    assert [(e.tool, trace.text(e), e.ok) for e in trace.events if e.type == "tool_result"] == [
        ("bash", "not now", False),
        ("view", "2", True),
    ]
    assert trace.meta["import"]["session"]["broken"] == 1


def test_the_oldest_history_of_copilot() -> None:
    turns = [{"role": "human", "content": "Hi", "time": 1700000000000}, {"role": "assistant", "result": "Yes?"}]
    data = json.dumps({"history": turns, "workspacePath": "/home/ada/bees"}).encode()
    (trace,) = logs.imported("copilot_cli", {"x.json": data})
    assert (said(trace), steps(trace), trace.meta["project"]) == (["Hi"], ["Yes?"], "bees")


def test_lines_that_state_a_session_are_apart() -> None:
    def line(session: str, role: str, text: str) -> dict[str, str]:
        return {"role": role, "content": text, "session_id": session, "timestamp": "2026-01-15T10:30:00Z"}

    data = lines(line("a", "user", "one"), line("b", "user", "two"), line("a", "assistant", "three"))
    found = {t.trace_id: (said(t), steps(t)) for t in logs.imported("chat_messages", {"x.jsonl": data})}
    assert found == {"a": (["one"], ["three"]), "b": (["two"], [])}


# -- nobody else's -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        lines(rpc(id=1, method="tools/list"), rpc(id=1, result={"tools": []})),  # MCP speaks JSON-RPC, too
        lines({"type": "user", "message": {"role": "user", "content": "a chat"}, "timestamp": "2026-01-01T00:00:00Z"}),
        lines({"role": "user", "content": "hi", "timestamp": "2026-01-01T00:00:00Z"}),
        json.dumps({"id": "1", "title": "x", "messages": [{"role": "user", "text": "hi"}]}).encode(),
        json.dumps({"history": [], "workspacePath": "/"}).encode(),
        lines({"step_index": 1, "source": "sensor", "type": "reading"}),
        lines({"type": "notification", "session_id": "s", "message": "x"}),
        json.dumps({"name": "acp", "version": "1", "description": "session/update sessionUpdate"}).encode(),
        b"# ACP\n\n```json\n" + lines(update("plan")) + b"```\n",
    ],
)
def test_what_only_looks_like_theirs_is_nobody_s(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(data)
    assert find([tmp_path]).sessions == []


def test_a_blank_line_before_json_is_no_protobuf() -> None:
    """The fuzz found it: a file of TRAIL's with a blank line before it went to OpenInference."""
    files = logs.files_of(logs.SAMPLES / "trail")
    heads = [data for file in files if b'"span_name"' in (data := file.head())]
    assert heads
    assert all([n for n in ("openinference", "trail") if logs.importer(n).sniff(b"\n\n" + d)] == ["trail"] for d in heads)


def test_a_file_of_which_less_than_half_is_known_is_refused() -> None:
    data = lines(update("agent_message_chunk", content=words("hi")), *({"a": k} for k in range(9)))
    with pytest.raises(InputError, match="less than half"):
        logs.imported("acp", {"x.jsonl": data})


@pytest.mark.parametrize("odd", [{"a": 1}, [1]])
def test_a_kind_that_is_no_text_raises_nothing(odd: object) -> None:
    """The fuzz found these: kinds were looked up before anybody asked what they are."""
    history = json.dumps([{"role": odd, "content": "x", "name": "y"}]).encode()
    assert not logs.importer("autogen").sniff(history)
    (trace,) = logs.imported("claude_code", {"x.jsonl": lines(message("user", "Hi", sessionId="one"), {"type": odd})})
    assert said(trace) == ["Hi"]
    use = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    chat = [{"role": "user", "content": [{"type": odd}]}, {"role": "assistant", "content": [use]}]
    (trace,) = logs.imported("chat_messages", {"x.json": json.dumps(chat).encode()})
    assert calls(trace) == [("t", "look")]


def test_a_name_that_is_no_text_raises_nothing() -> None:
    thread = b'{"id":"T-b2\xdbb2","created":1700000000000,"messages":[{"role":"user","content":"Hi"}]}'
    (trace,) = logs.imported("amp", {"x.json": thread})
    assert said(trace) == ["Hi"]
