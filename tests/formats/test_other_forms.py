"""Forms of known systems that other people's files have: what the clients print, older layouts, what their SDKs give.

Each file here was written by us in the form that a real client wrote or a public fixture has; the counts are by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from counterpoint.app.discover import find, importer, read_logs
from counterpoint.errors import InputError
from counterpoint.trace import Trace
from logs import assert_sound


class Held(NamedTuple):
    """What a file holds."""

    source: str
    tokens_in: int
    tokens_out: int
    calls: int
    failures: int = 0
    agents: int = 1


def lines(*records: Any) -> str:
    return "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)


def read(folder: Path, files: Mapping[str, Any]) -> list[tuple[str, Trace]]:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    found = find([folder])
    assert found.skipped == []
    traces = [(name, trace) for name, session in found.sessions for trace in importer(name).read_session(session)]
    for _, trace in traces:
        assert_sound(trace)
    return traces


def held(folder: Path, files: Mapping[str, Any]) -> Held:
    traces = read(folder, files)
    events = [e for _, trace in traces for e in trace.events]
    (source,) = {name for name, _ in traces}
    return Held(
        source,
        sum(e.tokens_in or 0 for e in events),
        sum(e.tokens_out or 0 for e in events),
        sum(e.type in ("tool_call", "spawn") for e in events),
        sum(e.ok is False for e in events),
        len({e.agent for e in events if e.type != "human_intervention" and e.role not in ("system", "client")}),
    )


# -- Qwen Code, printed ------------------------------------------------------------------------------------------------------

Q_INIT = {"type": "system", "subtype": "init", "uuid": "q", "session_id": "q", "cwd": "/w/pond", "tools": ["agent", "run_shell_command"],
          "mcp_servers": [], "model": "qwen3-coder", "qwen_code_version": "0.15.10"}  # fmt: skip


def q_said(name: str, *content: Any, parent: str | None = None, into: int = 0, out: int = 0, cached: int = 0) -> dict[str, Any]:
    usage: dict[str, Any] = {"input_tokens": into, "output_tokens": out}
    if into:
        usage |= {"cache_read_input_tokens": cached, "total_tokens": into + out}
    message = {"id": name, "type": "message", "role": "assistant", "model": "qwen3-coder", "content": list(content), "usage": usage}
    return {"type": "assistant", "uuid": name, "session_id": "q", "parent_tool_use_id": parent, "message": message}


def q_told(call: str, text: str, parent: str | None = None) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "is_error": False, "content": text}
    message = {"role": "user", "content": [block]}
    return {"type": "user", "uuid": f"u{call}", "session_id": "q", "parent_tool_use_id": parent, "message": message}


def q_use(call: str, tool: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": tool, "input": given}


def q_end(into: int, out: int) -> dict[str, Any]:
    usage = {"input_tokens": into, "output_tokens": out, "cache_read_input_tokens": 5, "total_tokens": into + out}
    return {"type": "result", "subtype": "success", "uuid": "r", "session_id": "q", "is_error": False, "result": "Deep.", "usage": usage}


QWEN = [
    Q_INIT,
    q_said("a", {"type": "text", "text": "I look."}),
    q_said("b", q_use("c1", "run_shell_command", command="ls"), into=100, out=10, cached=60),
    q_told("c1", "pond.txt"),
    q_said("c", {"type": "text", "text": "Deep."}, into=110, out=4, cached=90),
    q_end(210, 14),
]


def test_what_qwen_code_prints_has_the_cache_inside_and_words_before_a_call_are_of_that_call(tmp_path: Path) -> None:
    assert held(tmp_path, {"q.jsonl": lines(*QWEN)}) == Held("claude_print", 210, 14, 1)
    ((_, trace),) = read(tmp_path, {})
    assert trace.system == "qwen-code"
    assert [trace.text(e) for e in trace.events if e.type == "orchestrator_decision"] == ["I look.", "Deep."]
    first = next(e for e in trace.events if e.type == "orchestrator_decision")
    assert (first.extra or {})["tokens_cache_read"] == 60


def test_what_a_sub_agent_of_qwen_code_spent_is_what_the_run_has_beyond_its_messages(tmp_path: Path) -> None:
    inner = [q_said("s", {"type": "text", "text": "Two metres."}, parent="t1")]
    run = [Q_INIT, q_said("b", q_use("t1", "agent", prompt="How deep?"), into=100, out=10), *inner, q_told("t1", "Two metres."),
           q_said("c", {"type": "text", "text": "Deep."}, into=110, out=4), q_end(290, 30)]  # fmt: skip
    assert held(tmp_path, {"q.json": run}) == Held("claude_print", 290, 30, 1, 0, 2)
    ((_, trace),) = read(tmp_path, {})
    assert sum(e.tokens_in or 0 for e in trace.events if e.agent == "t1") == 80


# -- pi ----------------------------------------------------------------------------------------------------------------------

PI = {"type": "session", "version": 3, "id": "pi-pond", "timestamp": "2026-05-01T00:00:00.000Z", "cwd": "/w/pond"}


def spent(into: int, out: int, read: int = 0) -> dict[str, Any]:
    return {"input": into, "output": out, "cacheRead": read, "cacheWrite": 0, "totalTokens": into + out + read}


def pi_said(**fields: Any) -> dict[str, Any]:
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}}
    return {"role": "assistant", "model": "gpt-4.1", "content": [call], "usage": spent(40, 5, 20), "timestamp": 1777593602000} | fields


PI_TOLD = {"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "content": [{"type": "text", "text": "no"}], "isError": True}


def test_what_pi_prints_is_its_finished_messages(tmp_path: Path) -> None:
    asked = {"role": "user", "content": [{"type": "text", "text": "How deep?"}], "timestamp": 1777593601000}
    events = [{"type": "agent_start"}, {"type": "turn_start"}]
    for message in (asked, pi_said(), PI_TOLD, pi_said(content=[{"type": "text", "text": "Deep."}])):
        events += [{"type": "message_start", "message": message}, {"type": "message_end", "message": message}]
    events += [{"type": "turn_end", "message": pi_said(), "toolResults": [PI_TOLD]}, {"type": "agent_end", "messages": []}]
    assert held(tmp_path / "a", {"s.jsonl": lines(PI, *events)}) == Held("pi", 120, 10, 1, 1)
    assert held(tmp_path / "b", {"s.jsonl": lines(*events)}) == Held("pi", 120, 10, 1, 1)


def test_what_tools_and_summaries_of_pi_spent_counts(tmp_path: Path) -> None:
    def kept(second: int, **record: Any) -> dict[str, Any]:
        return {"id": f"e{second}", "timestamp": f"2026-05-01T00:00:0{second}.000Z", **record}

    records = [
        kept(1, type="message", message=pi_said()),
        kept(2, type="message", message=PI_TOLD | {"usage": spent(4, 1)}),
        kept(3, type="compaction", summary="so far", usage=spent(200, 20)),
        kept(4, type="branch_summary", summary="another way", usage=spent(30, 3)),
        kept(5, type="message", message={"role": "system", "content": "a tool is gone"}),
    ]
    assert held(tmp_path, {"s.jsonl": lines(PI, *records)}) == Held("pi", 60 + 4 + 200 + 30, 5 + 1 + 20 + 3, 1, 1)


# -- Gemini CLI --------------------------------------------------------------------------------------------------------------


def test_a_chat_that_gemini_cli_saved(tmp_path: Path) -> None:
    call, answer = {"id": "f", "name": "read_file", "args": {}}, {"id": "f", "name": "read_file", "response": {"error": "no such file"}}
    chat = [
        {"role": "user", "parts": [{"text": "How deep?"}]},
        {"role": "model", "parts": [{"text": "I look."}, {"functionCall": call}]},
        {"role": "user", "parts": [{"functionResponse": answer}]},
        {"role": "model", "parts": [{"text": "Nobody knows."}]},
    ]
    assert held(tmp_path / "a", {"checkpoint-pond.json": chat}) == Held("gemini_cli", 0, 0, 1, 1)
    assert held(tmp_path / "b", {"c.json": {"history": chat, "authType": "gemini-api-key"}}) == Held("gemini_cli", 0, 0, 1, 1)


# -- OpenCode ----------------------------------------------------------------------------------------------------------------

SPENT = {"input": 10, "output": 4, "reasoning": 1, "cache": {"read": 7, "write": 2}}


def oc_tool(**fields: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": "read", "callID": "c1", "state": {"status": "completed", "input": {}, "output": "x"}, **fields}


def test_opencode_s_stream_without_ids_is_one_message(tmp_path: Path) -> None:
    parts = [("step_start", {"type": "step-start"}), ("tool_use", oc_tool()), ("step_finish", {"type": "step-finish", "tokens": SPENT}),
             ("text", {"type": "text", "text": "Deep."}), ("step_finish", {"type": "step-finish", "tokens": SPENT})]  # fmt: skip
    printed = lines(*({"type": kind, "timestamp": k, "sessionID": "ses_1", "part": part} for k, (kind, part) in enumerate(parts)))
    assert held(tmp_path, {"out.log": printed}) == Held("opencode", 38, 10, 1)


def test_opencode_s_server_events_and_messages(tmp_path: Path) -> None:
    info = {"id": "m", "role": "assistant", "sessionID": "s", "modelID": "x", "time": {"created": 1}, "tokens": SPENT}
    names = {"messageID": "m", "sessionID": "s"}
    running = {"id": "prt_1", **names, "type": "tool", "tool": "read", "callID": "c1", "state": {"status": "running", "input": {}}}
    done = oc_tool(id="prt_1", **names)
    events = [{"type": "message.updated", "properties": {"info": info}}]
    events += [{"type": "message.part.updated", "properties": {"part": part}} for part in (running, done)]
    events += [{"type": "session.idle", "properties": {"sessionID": "s"}}]
    assert held(tmp_path / "a", {"e.jsonl": lines(*events)}) == Held("opencode", 19, 5, 1)
    assert held(tmp_path / "b", {"m.json": [{"info": info, "parts": [done]}]}) == Held("opencode", 19, 5, 1)


def test_opencode_s_first_storage_has_names_of_records_in_their_place_alone(tmp_path: Path) -> None:
    root = "storage/session"
    times = {"created": 1700000005000, "completed": 1700000010000}
    files = {
        f"{root}/info/ses_t.json": {"id": "ses_t", "title": "The pond", "time": {"created": 1700000000000, "updated": 1700000010000}},
        f"{root}/message/ses_t/msg_1.json": {"id": "msg_1", "role": "user", "sessionID": "ses_t", "time": {"created": 1700000000000}},
        f"{root}/message/ses_t/msg_2.json": {"id": "msg_2", "role": "assistant", "sessionID": "ses_t", "time": times, "tokens": SPENT},
        f"{root}/part/ses_t/msg_1/prt_1.json": {"type": "text", "text": "How deep?"},
        f"{root}/part/ses_t/msg_2/prt_1.json": {"type": "text", "text": "I look."},
        f"{root}/part/ses_t/msg_2/prt_2.json": oc_tool(),
    }
    assert held(tmp_path, files) == Held("opencode", 19, 5, 1)
    ((_, trace),) = read(tmp_path, {})
    assert [trace.text(e) for e in trace.events if e.type == "human_intervention"] == ["How deep?"]


# -- Copilot CLI, Goose, Cline -----------------------------------------------------------------------------------------------


def co(kind: str, name: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "id": name, "timestamp": "2026-04-08T15:04:05Z", "parentId": None, "data": data}


def test_a_result_of_copilot_without_its_call_is_a_call(tmp_path: Path) -> None:
    events = [co("session.start", "1", sessionId="s"), co("user.message", "2", content="How deep?"), co("assistant.message", "3", content="I look."),
              co("tool.execution_complete", "4", toolCallId="t", success=True), co("assistant.message", "5", content="Deep.")]  # fmt: skip
    assert held(tmp_path / "a", {"events.jsonl": lines(*events)}) == Held("copilot_cli", 0, 0, 1)
    assert held(tmp_path / "b", {"events.json": {"events": events[1:]}}) == Held("copilot_cli", 0, 0, 1)


def test_goose_s_stream_without_times(tmp_path: Path) -> None:
    call = {"type": "toolRequest", "id": "c1", "toolCall": {"status": "success", "value": {"name": "shell"}}}
    messages = [{"type": "message", "message": {"role": "assistant", "content": [part]}} for part in (call, {"type": "text", "text": "Deep."})]
    end = {"type": "complete", "total_tokens": 15, "input_tokens": 10, "output_tokens": 5}
    assert held(tmp_path, {"g.jsonl": lines(*messages, end)}) == Held("goose", 10, 5, 1)


def test_the_screen_that_cline_2_prints(tmp_path: Path) -> None:
    def say(what: str, text: str, **more: Any) -> dict[str, Any]:
        return {"ts": 1789000000000, "type": "say", "say": what, "text": text, **more}

    began = json.dumps({"request": "x", "tokensIn": 11, "tokensOut": 3, "cacheReads": 0, "cacheWrites": 0})
    printed = [{"type": "task_started", "taskId": "17"}, say("task", "How deep?"), say("api_req_started", began), say("text", "I look.", partial=True),
               say("text", "I look."), {"ts": 1789000000001, "type": "ask", "ask": "command", "text": "ls"}, say("command_output", "pond.txt"),
               say("completion_result", "Deep.")]  # fmt: skip
    assert held(tmp_path, {"c.jsonl": lines(*printed)}) == Held("cline", 11, 3, 1)


def cline_event(**event: Any) -> dict[str, Any]:
    return {"ts": "2026-11-19T20:46:31.794Z", "type": "agent_event", "event": event}


def test_what_cline_3_prints_has_a_step_for_each_iteration_and_says_how_each_command_went(tmp_path: Path) -> None:
    def tool(call: str, *, success: bool) -> list[dict[str, Any]]:
        named = {"contentType": "tool", "toolName": "run_commands", "toolCallId": call}
        output = [{"query": "ls", "result": "pond.txt", "success": success}]
        return [cline_event(type="content_start", **named, input={"commands": ["ls"]}), cline_event(type="content_end", **named, output=output)]

    def used(into: int, out: int, read: int = 50) -> dict[str, Any]:
        return {"inputTokens": into, "outputTokens": out, "cacheReadTokens": read, "totalCost": 0}

    hook = {"ts": "2026-11-19T20:46:31.714Z", "type": "hook_event", "hookEventName": "agent_start", "agentId": "a", "taskId": "conv", "parentAgentId": None}
    run = [hook, cline_event(type="iteration_start", iteration=1), cline_event(type="usage", **used(100, 5)), *tool("c1", success=True), *tool("c2", success=False),
           cline_event(type="iteration_end", iteration=1), cline_event(type="iteration_start", iteration=2), cline_event(type="usage", **used(110, 6)),
           cline_event(type="content_end", contentType="text", text="Deep."), cline_event(type="done", usage=used(210, 11, 100))]  # fmt: skip
    end = {"ts": "2026-11-19T20:46:37.086Z", "type": "run_result", "usage": used(210, 11, 100), "durationMs": 5057, "model": {"id": "gpt-4.1"}}
    assert held(tmp_path / "a", {"c.jsonl": lines(*run, end)}) == Held("cline", 210, 11, 2, 1)
    more = end | {"aggregateUsage": used(310, 21, 150)}  # its sub-agents spent the rest
    assert held(tmp_path / "b", {"c.jsonl": lines(*run, more)}) == Held("cline", 310, 21, 2, 1)


def test_a_session_of_cline_s_cli_says_which_command_failed(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "run_commands", "input": {"commands": ["ls"]}}
    told = {"type": "tool_result", "tool_use_id": "c1", "content": [{"query": "ls", "result": "no", "error": "exited with 1", "success": False}]}
    messages = [{"role": "user", "content": [{"type": "text", "text": "How deep?"}]}, {"role": "assistant", "content": [use]}, {"role": "user", "content": [told]}]
    document = {"version": 1, "updated_at": "2026-11-19T20:46:37Z", "agent": "lead", "sessionId": "s", "messages": messages}
    assert held(tmp_path, {"s.messages.json": document}) == Held("cline", 0, 0, 1, 1)


# -- Pydantic AI -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outcome", "failures"), [("success", 0), ("retried", 1), ("failed", 1), ("denied", 1)])
def test_pydantic_ai_s_outcome_says_whether_a_call_failed(outcome: str, failures: int, tmp_path: Path) -> None:
    call = {"part_kind": "tool-call", "tool_name": "depth", "args": "{}", "tool_call_id": "c1"}
    told = {"part_kind": "tool-return", "tool_name": "depth", "content": "no such pond", "tool_call_id": "c1", "outcome": outcome}
    usage = {"input_tokens": 9, "output_tokens": 2, "cache_read_tokens": 3}
    messages = [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "How deep?"}]},
        {"kind": "response", "parts": [call], "usage": usage, "model_name": "gpt-4.1"},
        {"kind": "request", "parts": [told]},
    ]
    assert held(tmp_path, {"m.json": messages}) == Held("pydantic_ai", 9, 2, 1, failures)


# -- Claude Code's records as a document, and another's among them ----------------------------------------------------------


def cc(uuid: str, kind: str, **message: Any) -> dict[str, Any]:
    envelope = {"parentUuid": None, "sessionId": "cc", "cwd": "/w", "version": "2.1.0", "timestamp": "2026-01-01T00:00:00Z"}
    return {**envelope, "uuid": uuid, "type": kind, "message": {"role": kind, **message}}


CLAUDE = [
    cc("1", "user", content="How deep?"),
    cc("2", "assistant", id="m", model="claude-opus-4-6", content=[{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}],
       usage={"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 6}),
    cc("3", "user", content=[{"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": "no"}]),
]  # fmt: skip


@pytest.mark.parametrize("indent", [None, 2])
def test_records_of_claude_code_in_a_list_or_under_entries(indent: int | None, tmp_path: Path) -> None:
    for name, value in (("list", CLAUDE), ("entries", {"session_id": "cc", "storage_path": "/x", "entries": CLAUDE})):
        document = json.dumps(value, indent=indent)
        assert held(tmp_path / name, {"export.json": document}) == Held("claude_code", 14, 4, 1, 1)


def test_records_of_qwen_code_behind_one_of_claude_code_are_refused(tmp_path: Path) -> None:
    other = [cc(f"q{k}", "assistant", parts=[{"text": "Deep."}]) for k in range(6)]
    (tmp_path / "c.jsonl").write_text(lines(CLAUDE[0], *other))
    with pytest.raises(InputError, match=r"6 of 7 are not: assistant with parts"):
        list(read_logs(tmp_path))
    (tmp_path / "c.jsonl").write_text(lines(*CLAUDE, other[0]))
    (trace,) = read_logs(tmp_path)
    assert trace.meta["import"]["session"]["unknown"] == {"assistant with parts": 1}


# -- OpenHands, mini-SWE-agent -----------------------------------------------------------------------------------------------


def test_the_state_beside_the_events_of_openhands_has_the_tokens(tmp_path: Path) -> None:
    spent = {"prompt_tokens": 10, "completion_tokens": 4, "cache_read_tokens": 3}
    metrics = {"model_name": "openai/gpt-4o", "accumulated_cost": 0.25, "accumulated_token_usage": spent}
    base = {"id": "e", "timestamp": "2026-04-02T15:25:41.0", "source": "agent"}
    call = {"tool_name": "terminal", "tool_call_id": "t", "tool_call": {"id": "t", "name": "terminal", "arguments": "{}"}}
    files = {
        "pond/base_state.json": {"id": "pond", "agent": {"kind": "Agent"}, "stats": {"usage_to_metrics": {"agent": metrics}}},
        "pond/events/event-00000-a.json": {**base, "source": "user", "kind": "MessageEvent", "llm_message": {"role": "user", "content": "How deep?"}},
        "pond/events/event-00001-b.json": {**base, **call, "id": "f", "kind": "ActionEvent", "llm_response_id": "r", "action": {"kind": "X"}},
    }
    assert held(tmp_path, files) == Held("openhands", 10, 4, 1)
    ((_, trace),) = read(tmp_path, {})
    assert trace.costs["cost_usd"] == 0.25


@pytest.mark.parametrize("indent", [None, 2])
def test_events_between_the_marks_that_openhands_prints(indent: int | None, tmp_path: Path) -> None:
    base = {"id": "e", "timestamp": "2026-04-02T15:25:41.0", "source": "agent"}
    call = {"tool_name": "terminal", "tool_call_id": "t", "tool_call": {"id": "t", "name": "terminal", "arguments": "{}"}}
    told = {"source": "environment", "tool_name": "terminal", "tool_call_id": "t", "observation": {"content": "no", "is_error": True}}
    events = [{**base, **call, "kind": "ActionEvent"}, {**base, **told, "id": "f", "kind": "ObservationEvent"}]
    printed = "Agent is working\n" + "".join(f"--JSON Event--\n{json.dumps(event, indent=indent)}\n" for event in events)
    assert held(tmp_path, {"out.log": printed + "Conversation ID: pond\n"}) == Held("openhands", 0, 0, 1, 1)


def test_the_first_files_of_mini_swe_agent_name_no_version(tmp_path: Path) -> None:
    said = [("system", "Be short."), ("user", "How deep?"), ("assistant", "I look.\n\n```bash\nls\n```"), ("user", "<returncode>0</returncode>")]
    info = {"exit_status": "Submitted", "submission": "", "model_stats": {"instance_cost": 0.05, "api_calls": 1}}
    run = {"info": info, "messages": [{"role": role, "content": text} for role, text in said]}
    assert held(tmp_path, {"pond.traj.json": run}) == Held("swe_agent", 0, 0, 1)


# -- tau2-bench, ADK's server ------------------------------------------------------------------------------------------------


def test_tau2_bench_states_tokens_times_and_errors_and_says_what_its_user_spent(tmp_path: Path) -> None:
    def said(second: int, role: str, content: str | None, **more: Any) -> dict[str, Any]:
        return {"role": role, "content": content, "timestamp": f"2025-06-01T00:00:0{second}", "turn_idx": second} | more

    call = {"id": "c", "name": "depth_of", "arguments": {"pond": 1}, "requestor": "assistant"}
    messages = [
        said(0, "assistant", "Hi!"),
        said(1, "user", "How deep?", usage={"completion_tokens": 5, "prompt_tokens": 100}),
        said(2, "assistant", None, tool_calls=[call], usage={"completion_tokens": 7, "prompt_tokens": 200}, cost=0.5),
        said(3, "tool", "no such pond", id="c", requestor="assistant", error=True),
        said(4, "tool", "on", id="u", requestor="user", error=False),
        said(5, "assistant", "Nobody knows.", usage={"completion_tokens": 9, "prompt_tokens": 300}),
    ]
    run = {"id": "s", "task_id": "7", "trial": 0, "termination_reason": "user_stop", "reward_info": {"reward": 0.0}, "messages": messages}
    info = {"num_trials": 1, "agent_info": {"llm": "gpt-4.1"}, "environment_info": {"domain_name": "ponds"}}
    results = {"timestamp": "2025-06-01T00:00:00", "info": info, "tasks": [{"id": "7"}], "simulations": [run]}
    assert held(tmp_path, {"r.json": results}) == Held("tau_bench", 500, 16, 1, 1)
    ((_, trace),) = read(tmp_path, {})
    assert (trace.rewards, trace.meta["models"]) == ({"team": 0.0}, ["gpt-4.1"])
    assert trace.meta["import"]["lacks"]["the tokens and calls of the simulated user"] == 1


def test_what_adk_s_server_streams_is_read_without_its_pieces(tmp_path: Path) -> None:
    piece = {"author": "guide", "content": {"parts": [{"text": "De"}]}, "partial": True}
    usage = {"prompt_token_count": 9, "candidates_token_count": 3, "total_token_count": 12}
    whole = {"author": "guide", "content": {"parts": [{"text": "Deep."}]}, "partial": False, "turn_complete": True, "usage_metadata": usage}
    assert held(tmp_path, {"a.jsonl": lines(piece, whole)}) == Held("google_adk", 9, 3, 0)


# -- VS Code, CrewAI ---------------------------------------------------------------------------------------------------------


def test_a_call_that_vs_code_wrote_again_is_one(tmp_path: Path) -> None:
    def call(text: str) -> dict[str, Any]:
        done = {"commandLine": {"original": "ls"}, "terminalCommandOutput": {"text": text}, "kind": "terminal"}
        return {"kind": "toolInvocationSerialized", "toolCallId": "c", "toolId": "run_in_terminal", "toolSpecificData": done}

    asked = {"requestId": "r", "timestamp": 1790000001000, "message": {"text": "How deep?"}, "response": []}
    session = {"version": 3, "sessionId": "s", "creationDate": 1790000000000, "requests": [asked]}
    changes = [{"kind": 2, "k": ["requests", 0, "response"], "v": v} for v in ([call("")], [call("pond.txt"), {"value": "Deep."}])]
    assert held(tmp_path, {"s.jsonl": lines({"kind": 0, "v": session}, *changes)}) == Held("vscode_chat", 0, 0, 1)


def crew(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": f"2026-06-01T10:00:0{name[-1]}Z", "event_id": name, "agent_role": "Diver", **more}


def test_crewai_s_events_without_fingerprints_and_two_calls_of_one_tool_at_once(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": 5}
    events = [
        crew("crew_kickoff_started", "e0", crew_name="Pond"),
        crew("llm_call_completed", "e1", model="gpt-4.1", response="I look.", usage=usage),
        crew("tool_usage_started", "e2", tool_name="depth", tool_args={"at": "north"}),
        crew("tool_usage_started", "e3", tool_name="depth", tool_args={"at": "south"}),
        crew("tool_usage_finished", "e4", tool_name="depth", started_event_id="e3", output="3 m"),
        crew("tool_usage_finished", "e5", tool_name="depth", started_event_id="e2", output="2 m"),
    ]
    for name, content in (("lines", lines(*events)), ("list", json.dumps(events)), ("events", json.dumps({"events": events}))):
        assert held(tmp_path / name, {"c.jsonl" if name == "lines" else "c.json": content}) == Held("crewai", 20, 5, 2)
    traces = [trace for _, trace in read(tmp_path / "list", {})]
    told = {e.id: traces[0].text(e) for e in traces[0].events if e.type in ("tool_call", "tool_result")}
    assert {told[f"{name}:result"]: told[name] for name in told if f"{name}:result" in told} == {
        "2 m": '{"at":"north"}',
        "3 m": '{"at":"south"}',
    }


# -- What only looks like one of these ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        lines(*[{"type": "message.updated", "properties": {"k": 1}}] * 4),
        lines(*[{"type": "agent_start", "name": "nagios"}] * 4),
        lines(*[{"type": "hook_event", "ts": "2026-01-01", "hookEventName": "x", "agentId": "deploy"}] * 4),
        json.dumps([{"role": "lead", "parts": ["a", "b"]}, {"role": "user", "parts": []}]),
        json.dumps({"events": [{"type": "click", "data": {"x": 1}}]}),
        json.dumps({"storage": "session", "info": {"exit_status": 0}, "messages": []}),
        json.dumps([{"uuid": "u", "name": "T", "chat_messages": [{"uuid": "m", "text": "hi", "sender": "human"}]}]),
    ],
)
def test_what_only_looks_alike_gives_no_trace(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(InputError):
        list(read_logs(tmp_path))


# -- Odd values --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [[], {"a": 1}, None, -1, True])
def test_odd_values_where_ids_and_kinds_stand_are_refused_or_read(odd: Any, tmp_path: Path) -> None:
    old = {"id": odd, "cause": odd, "timestamp": "2025-01-01T00:00:00", "source": "agent"}
    acted = old | {"action": "run", "args": {"command": "ls"}, "tool_call_metadata": {"function_name": "x", "tool_call_id": "c"}}
    seen = old | {"observation": "run", "content": "a", "extras": {}}
    files = {
        "openhands.json": json.dumps([acted, seen]),
        "cline.jsonl": lines(cline_event(type="iteration_start"), cline_event(type=odd), cline_event(type="usage")),
        "vscode.jsonl": lines({"kind": 0, "v": {"version": 3, "sessionId": "s", "creationDate": 1, "requests": []}}, {"kind": 2, "k": ["requests", odd], "v": [1]}),
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        for trace in _gently(tmp_path / name):
            assert_sound(trace)


def _gently(path: Path) -> list[Trace]:
    try:
        return list(read_logs(path))
    except InputError:
        return []
