"""Codex, branch by branch: threads written by hand, and everything that must come of them (`told/codex/`).

`python tests/formats/test_codex_stories.py NAME` prints what a story tells.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterpoint.formats.codex.thread_head import head_of, head_of_meta
from counterpoint.formats.codex.threads import action_of, is_refused, verdict_of
from counterpoint.trace import Trace
from listing import listing
from logs import imported

Record = dict[str, Any]


def line(second: float, kind: str, **payload: Any) -> Record:
    return {"timestamp": f"2026-01-01T00:00:{second:06.3f}Z", "type": kind, "payload": payload}


def meta(second: float, id: str, **more: Any) -> Record:
    return line(second, "session_meta", id=id, timestamp=f"2026-01-01T00:00:{second:06.3f}Z", cli_version="1", **more)


def child(second: float, id: str, parent: str = "root", **more: Any) -> Record:
    return meta(second, id, source={"subagent": {"thread_spawn": {"parent_thread_id": parent, "agent_role": "helper"}}}, **more)


def item(second: float, kind: str, **payload: Any) -> Record:
    return line(second, "response_item", type=kind, **payload)


def event(second: float, kind: str, **payload: Any) -> Record:
    return line(second, "event_msg", type=kind, **payload)


def human(second: float, text: str) -> Record:
    return event(second, "user_message", message=text)


def says(second: float, text: str, id: str) -> Record:
    return item(second, "message", role="assistant", id=id, content=[{"type": "output_text", "text": text}])


def call(second: float, name: str, call_id: str, /, **arguments: Any) -> Record:
    return item(second, "function_call", name=name, call_id=call_id, arguments=json.dumps(arguments))


def result(second: float, id: str, output: Any) -> Record:
    return item(second, "function_call_output", call_id=id, output=output if isinstance(output, str) else json.dumps(output))


def used(second: float, total: int, out: int, cached: int = 0) -> Record:
    usage = {"input_tokens": total, "cached_input_tokens": cached, "output_tokens": out, "reasoning_output_tokens": 1}
    return event(second, "token_count", info={"total_token_usage": usage})


def read(**threads: list[Record]) -> Trace:
    files = {f"sessions/{name}.jsonl": "".join(json.dumps(r) + "\n" for r in records).encode() for name, records in threads.items()}
    (trace,) = imported("codex", files)
    return trace


def talk() -> Trace:
    """One thread: tools of every kind, tokens early, late and begun anew, what is unknown, aborted, rolled back and failed."""
    return read(
        root=[
            meta(0, "root"),
            line(0.1, "turn_context", model="gpt-5"),
            item(0.2, "message", role="user", content="# AGENTS.md instructions for /r"),
            item(0.3, "message", role="user", content="<user_shell_command>ls</user_shell_command>"),
            human(1, "Go."),
            item(2, "reasoning", id="rs1", summary=[{"type": "summary_text", "text": "Hm."}]),
            call(2, "exec_command", "c1", cmd="make"),
            used(2.1, 100, 10, 40),
            used(2.2, 100, 10, 40),
            event(3, "exec_command_end", call_id="c1", exit_code=2),
            result(3.1, "c1", "Process exited with code 2"),
            item(4, "custom_tool_call", name="apply_patch", call_id="c2", input="*** patch", id="ct2"),
            used(4.1, 210, 25, 90),
            event(4.5, "patch_apply_end", call_id="c2", success=True),
            item(4.6, "custom_tool_call_output", call_id="c2", output={"output": "Done", "metadata": {"exit_code": 0}}),
            item(5, "web_search_call", id="ws1", status="failed", query="cats"),
            item(5.1, "local_shell_call", call_id="c3", action={"command": ["ls"]}),
            used(5.2, 300, 30),
            item(5.3, "local_shell_call_output", call_id="c3", output="rejected: blocked by policy, it said"),
            call(6, "mcp_tool", "c4", x=1),
            event(6.5, "mcp_tool_call_end", call_id="c4", result={"Ok": {"is_error": True}}),
            event(6.6, "mcp_tool_call_end", call_id="exec-9", result={"Err": "no"}, invocation={"tool": "t"}),
            event(6.7, "patch_apply_end", call_id="exec-8", success=True, changes={"b": 1, "a": 2}),
            event(6.8, "web_search_end", call_id="exec-7", query="dogs"),
            item(7, "hologram"),
            event(7.1, "hologram"),
            event(7.1, "exec_command_begin"),
            event(7.2, "item_completed", item={"type": "Hologram"}),
            line(7.3, "hologram"),
            {"note": "no type"},
            line(7.4, "security_risk_score", type="score", level="high"),
            says(8, "Here it is.", "m1"),
            event(8.5, "error", message="stream lost " + "x" * 600),
            used(8.6, 20, 5),
            event(9, "turn_aborted", reason="interrupted"),
            event(9.1, "turn_aborted", reason="budget"),
            event(10, "thread_rolled_back", num_turns=2),
            line(11, "compacted", message="So far so good."),
            human(12, "On."),
            says(13, "First.", "m2"),
            says(13.1, "Second.", "m3"),
            event(14, "task_complete", turn_id="t", last_agent_message="Second."),
            used(15, 50, 9),
        ],
    )


def team() -> Trace:
    """Spawns that work, fail and are found by their task; mail, waits, returns by status, errors, closings, and who is lost."""
    mail = "Message Type: {}\nSender: x\nPayload:\n{}"
    return read(
        root=[
            meta(0, "root"),
            human(1, "Go."),
            call(2, "spawn_agent", "s1", message="Dig.", agent_type="digger"),
            call(2, "spawn_agent", "s2", items=[{"type": "text", "text": "Fill."}], fork_context=True),
            call(2, "spawn_agent", "s3", message="Fail."),
            call(2, "spawn_agent", "s4", message="Vanish.", task_name="gone"),
            result(3, "s1", {"agent_id": "kid1", "nickname": "Di"}),
            result(3, "s3", "limit reached"),
            event(3.1, "collab_agent_spawn_end", call_id="s4", new_thread_id="kid4", new_agent_role="ghost", new_agent_nickname="Gus", prompt="ignored"),
            event(3.2, "collab_agent_spawn_end", call_id="none", new_thread_id="kid5", prompt="From code.", status={"errored": "unused"}),
            call(4, "send_input", "m1", id="kid1", message="Deeper.", interrupt=True),
            result(4.1, "m1", {"submission_id": "x"}),
            call(4.2, "send_input", "m2", target="nobody", message="Hello?"),
            call(4.3, "send_message", "m3", agent_id="later", message="Later."),
            event(4.4, "collab_agent_interaction_end", call_id="m3", receiver_thread_id="kid2"),
            call(5, "wait_agent", "w1", ids=["kid1"]),
            result(9, "w1", {"status": {"kid1": {"completed": "Dug."}, "kid4": {"errored": "It broke."}}, "timed_out": False}),
            item(9.5, "message", role="user", content='<subagent_notification>{"agent_id": "kid5", "status": {"completed": "Coded."}}</subagent_notification>'),
            item(9.6, "message", role="user", content="<subagent_notification>{broken</subagent_notification>"),
            event(9.7, "collab_waiting_end", agent_statuses=[{"thread_id": "kid2", "status": {"completed": "Filled."}}]),
            item(9.8, "agent_message", author="kid1", recipient="root", content=[{"type": "text", "text": mail.format("MESSAGE", "By the way.")}]),
            item(9.85, "agent_message", author="stranger", recipient="root", content=[{"type": "text", "text": "Psst."}]),
            item(9.9, "agent_message", author="kid1", recipient="root", content=[{"type": "encrypted_content"}]),
            says(10, "Both.", "d1"),
            call(11, "close_agent", "e1", id="kid1"),
            result(11.5, "e1", {"previous_status": {"completed": "Dug."}}),
            call(11.6, "close_agent", "e2", id="unknown"),
            result(11.7, "e2", "no such agent"),
            event(12, "task_complete", turn_id="t"),
        ],
        kid1=[
            child(2.5, "kid1"),
            human(2.6, "Dig."),
            says(3.5, "I dig.", "k1"),
            human(5, "Deeper."),
            human(5.5, "From somewhere."),
            says(8, "Dug.", "k2"),
            event(8.1, "task_complete", turn_id="kt", last_agent_message="Dug."),
        ],
        kid2=[
            child(2.5, "kid2"),
            human(2.6, "Fill."),
            item(6, "agent_message", author="root", recipient="kid2", content=[{"type": "text", "text": mail.format("MESSAGE", "Later.")}]),
            says(7, "Filled.", "k3"),
            event(7.5, "turn_aborted", reason="interrupted"),
            event(7.6, "task_complete", turn_id="kt2", last_agent_message="Filled."),
        ],
        kid7=[child(6, "kid7"), human(6.1, "Unasked."), says(7, "I am here.", "k7")],
    )


def guarded() -> Trace:
    """Reviewers: verdicts on one call of two, on the only one, on none; a review; a fork that copies its history."""
    deny = json.dumps({"outcome": "deny", "rationale": "too much", "risk_level": "high"})
    plan = 'Planned action JSON:\n{{\n "command": ["sh", "-c", "{}"]\n}}'
    return read(
        root=[
            meta(0, "root"),
            human(1, "Go."),
            call(2, "exec_command", "c1", cmd="rm x"),
            call(2, "exec_command", "c2", cmd="ls"),
            result(4, "c1", "This action was rejected"),
            result(5, "c2", "fine"),
            call(6, "exec_command", "c3", cmd="other"),
            result(8, "c3", "ok"),
            event(9, "exited_review_mode"),
            says(10, "Done.", "d1"),
        ],
        guard=[
            meta(2.1, "guard", source={"subagent": {"other": "guardian"}}, parent_thread_id="root"),
            human(2.2, plan.format("rm x")),
            says(3, deny, "g1"),
            human(6.2, "Look at it."),
            says(7, json.dumps({"outcome": "allow"}), "g2"),
            human(8.5, "And this."),
            says(8.6, json.dumps({"outcome": "allow"}), "g3"),
            says(8.7, "{broken", "g4"),
        ],
        review=[
            meta(5.1, "review", source={"subagent": "review"}, parent_thread_id="root"),
            human(5.2, "Review it."),
            says(8.8, "Looks good.", "r1"),
            event(8.9, "task_complete", turn_id="rt", last_agent_message="Looks good."),
        ],
        fork=[
            meta(20, "fork", forked_from_id="root"),
            meta(20, "root"),
            human(20, "Go."),
            says(20, "Copied.", "x1"),
            used(20, 500, 50),
            event(21, "task_started", turn_id="t2", started_at="2026-01-01T00:00:21Z"),
            human(21.5, "Now this."),
            says(22, "Mine.", "f1"),
            used(22.1, 600, 60),
        ],
    )


def exec_stream() -> Trace:
    """What `codex exec` prints: items that end well, badly and not at all, a team, tokens of two turns, errors of every form."""

    def done(id: str, kind: str, **more: Any) -> Record:
        return {"type": "item.completed", "item": {"id": id, "type": kind, **more}}

    states = {"kid1": {"status": "completed", "message": "Dug."}, "kid2": {"status": "errored", "message": "Broke."}, "kid3": {"status": "running"}}
    records: list[Record] = [
        {"type": "thread.started", "thread_id": "run"},
        {"type": "turn.started"},
        {"type": "item.started", "item": {"id": "i0", "type": "command_execution", "command": "never ends", "status": "in_progress"}},
        {"type": "item.started", "item": {"id": "i1", "type": "command_execution", "command": "ls"}},
        done("i1", "command_execution", command="ls", aggregated_output="a b", status="completed"),
        done("i2", "reasoning", text="Hm."),
        done("i17", "error", message="in an item"),
        done("i3", "file_change", changes=[{"path": "a"}], status="failed", error="no space"),
        done("i4", "command_execution", command="rm x", status="declined"),
        done("i5", "mcp_tool_call", server="s", tool="t", arguments={"x": 1}, result={"content": [{"type": "text", "text": "done"}]}, status="completed"),
        done("i6", "web_search", query="cats"),
        done("i7", "web_search", query="dogs", status="failed"),
        {"type": "item.completed", "item": {"id": "i8", "item_type": "assistant_message", "text": "First."}},
        {"type": "turn.completed", "usage": {"input_tokens": 100, "cached_input_tokens": 20, "output_tokens": 10}},
        done("i9", "collab_tool_call", tool="spawn_agent", receiver_thread_ids=["kid1"], prompt="Dig."),
        done("i10", "collab_tool_call", tool="spawn_agent", receiver_thread_ids=[], prompt="Fail."),
        done("i11", "collab_tool_call", tool="send_input", receiver_thread_ids=["kid1"], prompt="Deeper."),
        done("i12", "collab_tool_call", tool="wait", receiver_thread_ids=["kid1"], agents_states=states, status="completed"),
        done("i13", "collab_tool_call", tool="wait", receiver_thread_ids=["kid1"], agents_states={}, status="failed"),
        done("i14", "collab_tool_call", tool="close_agent", receiver_thread_ids=["kid1"], agents_states={"kid1": {"status": "completed", "message": "Dug."}}),
        done("i15", "agent_message", text="Second."),
        {"type": "turn.failed", "error": {"message": "the turn failed"}},
        {"type": "turn.completed", "usage": {"input_tokens": 250, "cached_input_tokens": 20, "output_tokens": 30}},
        {"type": "turn.completed", "usage": {"input_tokens": 7, "output_tokens": 3}},
        done("i16", "agent_message", text="Third."),
        *(done(f"q{k}", kind) for k, kind in enumerate(("todo_list", "plan", "hologram"))),
        *({"type": kind} for kind in ("item.plan.delta", "request_user_input", "item.updated", "hologram", "")),
        {"type": "error", "message": "the stream failed"},
    ]  # fmt: skip
    (trace,) = imported("codex", {"run.jsonl": "".join(json.dumps(r) + "\n" for r in records).encode()})
    return trace


def bundle() -> Trace:
    """A rollout-trace bundle: prompts whole and by what is new, answers whole, partial and failed, calls by cells and by nobody seen, a team."""
    records: list[Record] = []
    payloads: dict[str, Any] = {}

    def keep(value: Any) -> Record:
        number = len(payloads) + 1
        payloads[f"b/payloads/{number}.json"] = value
        return {"path": f"payloads/{number}.json"} if number % 2 else {"raw_payload_id": f"raw_payload:{number}"}

    def add(kind: str, thread: str | None = None, turn: str | None = None, /, **payload: Any) -> None:
        about = {"rollout_id": "r", "seq": len(records), "wall_time_unix_ms": 1_767_225_600_000 + 1000 * len(records)}
        records.append({**about, **({"thread_id": thread} if thread else {}), **({"codex_turn_id": turn} if turn else {}), "payload": {"type": kind, **payload}})

    def user(text: str) -> Record:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    def wrote(id: str, *items: Record, **more: Any) -> None:
        usage = {"input_tokens": 100, "output_tokens": 10, "cached_input_tokens": 40, "cache_write_input_tokens": 5, "reasoning_output_tokens": 3}
        add("inference_completed", inference_call_id=id, response_payload=keep({"output_items": items, "token_usage": usage}), **more)

    def says(text: str) -> Record:
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}

    add("rollout_started", root_thread_id="top")
    add("thread_started", thread_id="top", agent_path="/root", metadata_payload=keep({"nickname": "Boss"}))
    add("codex_turn_started", "top", "turn1", codex_turn_id="turn1")
    add("inference_started", "top", "turn1", inference_call_id="a1", model="gpt-5", request_payload=keep({"input": [user("Go."), {"role": "developer", "content": "x"}]}))
    wrote("a1", {"type": "reasoning", "summary": [{"text": "Hm."}]}, {"type": "function_call", "name": "exec_command", "call_id": "c1", "arguments": "{}"})
    add("tool_call_started", "top", tool_call_id="t1", model_visible_call_id="c1", kind={"type": "exec_command"})
    add("tool_call_started", "top", tool_call_id="t2", kind={"type": "tool"}, requester={"type": "code_cell"}, invocation_payload=keep({"tool_name": "grep", "payload": {"arguments": "{x}"}}))
    add("tool_call_ended", tool_call_id="t2", status="completed", result_payload=keep("hidden"))
    add("tool_call_ended", tool_call_id="t1", status="failed", result_payload=keep({"response_item": {"output": "nothing"}}))
    add("tool_call_started", "top", tool_call_id="t3", kind="web", invocation_payload=keep({"payload": {"input": "cats"}}))
    add("tool_call_ended", tool_call_id="t3", status="cancelled", result_payload=keep({"value": "late"}))
    add("tool_call_ended", tool_call_id="never", status="completed")
    add("inference_started", codex_turn_id="turn1", inference_call_id="a2", model="gpt-6", request_payload=keep({"input": [user("Go."), user("More.")]}))
    call = {"type": "function_call", "name": "spawn_agent", "call_id": "s1", "arguments": json.dumps({"message": "Dig."})}
    wrote("a2", says("I spawn."), call, {**call, "call_id": "s2"}, {**call, "call_id": "s3"})
    add("tool_call_started", "top", tool_call_id="u1", model_visible_call_id="s1", kind="spawn_agent")
    add("tool_call_runtime_ended", tool_call_id="u1", runtime_payload=keep({"new_thread_id": "kid", "new_agent_role": "digger", "new_agent_nickname": "Di"}))
    add("tool_call_started", "top", tool_call_id="u2", model_visible_call_id="s2", kind="spawn_agent")
    add("tool_call_runtime_ended", tool_call_id="u2", runtime_payload=keep({"agent_thread_id": "kid2", "kind": "started", "agent_path": "/root/two"}))
    add("tool_call_started", "top", tool_call_id="u3", model_visible_call_id="s3", kind={"type": "spawn_agent"})
    add("tool_call_started", "top", tool_call_id="u4", kind={"type": "send_message"}, invocation_payload=keep({"payload": {"arguments": {"message": "Deeper."}}}))
    add("tool_call_runtime_ended", tool_call_id="u4", runtime_payload=keep({"receiver_thread_id": "kid"}))
    add("tool_call_started", "top", tool_call_id="u5", kind={"type": "send_message"}, invocation_payload=keep({"payload": {"arguments": {"message": "To you."}}}))
    add("thread_started", thread_id="kid", agent_path="/root/kid", metadata_payload=keep({"session_source": {"subagent": {"thread_spawn": {"agent_role": "digger"}}}}))
    add("inference_started", "kid", "turn2", inference_call_id="k1", model="gpt-5", request_payload=keep({"input": [user("Dig.")]}))
    add("inference_failed", inference_call_id="k1", error="cut off", partial_response_payload=keep({"output": [says("I di")], "usage": {"input_tokens": 5, "output_tokens": 1}}))
    more = {"type": "agent_message", "author": "/root", "recipient": "/root/kid", "content": [{"type": "text", "text": "Message Type: MESSAGE\nPayload:\nDeeper."}]}
    add("inference_started", "kid", inference_call_id="k2", request_input_mode={"type": "incremental"}, request_payload=keep({"input": [more]}))
    wrote("k2", says("Dug."))
    add("codex_turn_ended", "kid", codex_turn_id="turn2", status="completed")
    add("agent_result_observed", parent_thread_id="top", child_thread_id="kid", message="Dug.")
    add("agent_result_observed", child_thread_id="kid2", message="Two.")
    add("compaction_request_completed", "top", compaction_request_id="z1", response_payload=keep({"output": [says("In short.")]}))
    add("codex_turn_ended", "top", codex_turn_id="turn1", status="failed")
    add("codex_turn_ended", "top", codex_turn_id="turn1", status="aborted")
    add("inference_completed", "top", inference_call_id="a3", response_payload={"path": "payloads/999.json"})
    quiet = """rollout_ended thread_ended tool_call_runtime_started mcp_tool_call_correlation_assigned code_cell_started code_cell_initial_response
        code_cell_ended compaction_request_started compaction_request_failed compaction_installed protocol_event_observed inference_cancelled
        other hologram"""
    for kind in quiet.split():
        add(kind)
    edges = {
        "e1": {"source": {"type": "tool_call", "tool_call_id": "u3"}, "target": {"thread_id": "kid3"}},
        "e2": {"source": {"type": "tool_call", "tool_call_id": "u5"}, "target": {"item_id": "i1"}},
        "e3": {"source": {"type": "item", "tool_call_id": "u4"}, "target": {"thread_id": "nobody"}},
    }
    about = {"rollout_id": "r", "root_thread_id": "top", "raw_event_log": "trace.jsonl"}
    state = {**about, "interaction_edges": edges, "conversation_items": {"i1": {"thread_id": "kid"}}}
    files = {"b/trace.jsonl": "".join(json.dumps(r) + "\n" for r in reversed(records)), "b/manifest.json": json.dumps(about), "b/state.json": json.dumps(state)}
    files |= {name: json.dumps(value) for name, value in payloads.items()}
    (trace,) = imported("codex", {name: text.encode() for name, text in files.items()})
    return trace


def asked() -> Trace:
    """Words in the user's name: a human's, the harness's, a parent's, and which of them no event claims."""
    return read(
        root=[
            meta(0, "root"),
            item(1, "message", role="user", content="<environment_context>left out</environment_context>"),
            item(1.1, "message", role="user", content="Go."),
            human(1.2, "Go."),
            item(1.3, "message", role="user", content="Go."),
            item(1.4, "message", role="user", content="Injected."),
            says(2, "Yes.", "m1"),
            event(2.5, "task_started", turn_id="t2"),
            item(3, "message", role="user", content=[{"type": "input_image"}]),
            event(3.1, "user_message", message=""),
            event(3.2, "item_completed", item={"type": "UserMessage", "content": [{"type": "text", "text": "By item."}]}),
            event(3.3, "item_completed", item={"type": "CollabAgentToolCall", "id": "s9", "tool": "spawnAgent", "receiver_thread_ids": ["kid9"], "prompt": "Late."}),
            event(3.4, "item_completed", item={"type": "SubAgentActivity", "event_id": "s10", "agent_thread_id": "kid10", "kind": "started", "agent_path": "/root/ten"}),
            event(3.5, "user_message", message="# AGENTS.md instructions again"),
            says(4, "Still yes.", "m2"),
            call(5, "wait_agent", "w1", ids=["kid9"]),
            result(6, "w1", "timed out"),
            item(6.1, "message", role="user", content='<subagent_notification>{"agent_path": "/root/ten", "status": {"completed": "Ten."}}</subagent_notification>'),
            item(6.2, "message", role="user", content='<subagent_notification>{"agent_id": "kid11", "status": {"errored": "Lost."}}</subagent_notification>'),
            item(6.3, "function_call", name="search", namespace="mcp__web", call_id="n1", arguments="{}"),
            call(6.4, "send_input", "n2", id="unknown", message="To nine."),
            event(6.5, "item_completed", item={"type": "CollabAgentToolCall", "id": "n2", "tool": "sendInput", "receiver_thread_ids": ["kid9"]}),
            says(7, "Heard.", "m3"),
            event(8, "turn_aborted"),
        ],
        orphan=[child(0, "orphan", "root"), item(1, "message", role="user", content="No event says who."), says(2, "I see.", "o1"), item(3, "message", role="user", content="Again.")],
    )


QUIET = {
    "event_msg": """agent_message agent_reasoning agent_reasoning_raw_content agent_reasoning_section_break context_compacted thread_settings_applied
        thread_goal_updated entered_review_mode thread_name_updated background_event plan_update turn_diff session_configured raw_response_item
        undo_completed image_generation_end view_image_tool_call dynamic_tool_call_request dynamic_tool_call_response warning stream_error
        anything_begin anything_delta""",
    "response_item": "compaction context_compaction compaction_summary compaction_trigger ghost_snapshot other",
}


def test_kinds_that_say_nothing_about_the_team_are_known() -> None:
    done = """AgentMessage CommandExecution McpToolCall FileChange Plan Reasoning WebSearch ImageGeneration ImageView ContextCompaction HookPrompt
        EnteredReviewMode ExitedReviewMode"""
    lines = [line(k, outer, type=kind) for outer, kinds in QUIET.items() for k, kind in enumerate(kinds.split())]
    lines += [event(30, "item_completed", item={"type": kind}) for kind in done.split()]
    lines += [line(40, kind, x=1) for kind in ("world_state", "inter_agent_communication", "inter_agent_communication_metadata")]
    trace = read(root=[meta(0, "root"), human(1, "Go."), *lines, says(50, "Done.", "m")])
    assert "unknown" not in trace.meta["import"]
    assert [e.id for e in trace.events] == ["root:2", "m"]


@pytest.mark.parametrize(
    ("record", "shape"),
    [
        *(({"type": kind, "payload": {}}, "rollout") for kind in (
            "response_item", "event_msg", "turn_context", "compacted", "world_state", "inter_agent_communication", "inter_agent_communication_metadata",
            "security_risk_score",
        )),
        ({"type": "hologram", "payload": {}}, None),
        ({"type": "response_item"}, None),
        ({"type": "thread.started", "thread_id": "t"}, "exec"),
        ({"type": "thread.started"}, None),
        ({"rollout_id": "r", "seq": 1, "wall_time_unix_ms": 2, "payload": {"type": "x"}}, "bundle"),
        ({"rollout_id": "r", "seq": 1, "wall_time_unix_ms": 2, "payload": {}}, None),
        *(({k: v for k, v in {"rollout_id": "r", "seq": 1, "wall_time_unix_ms": 2, "payload": {"type": "x"}}.items() if k != left}, None)
          for left in ("rollout_id", "seq", "wall_time_unix_ms")),
        ({"id": "i", "instructions": None, "timestamp": 5}, "plain"),
        ({"id": "i", "instructions": None, "type": "x"}, None),
        ({"id": "i"}, None),
    ],
)  # fmt: skip
def test_how_logs_begin(record: Record, shape: str | None) -> None:
    head = head_of(record)
    assert (head.shape if head else None) == shape


STORIES: dict[str, Callable[[], Trace]] = {f.__name__: f for f in (talk, team, guarded, exec_stream, bundle, asked)}


def story(name: str) -> list[str]:
    return [re.sub(r" at=[0-9.]+", "", row)[2:] for row in listing(STORIES[name]())[1:]]


@pytest.mark.parametrize("name", STORIES)
def test_threads_tell(name: str) -> None:
    wanted = (Path(__file__).parent / "listings" / "codex" / f"{name}.txt").read_text(encoding="utf-8")
    assert story(name) == wanted.splitlines()


def test_of_one_moment_the_deeper_thread_comes_first() -> None:
    trace = read(
        a=[meta(0, "a"), human(1, "Go.")],
        b=[child(1, "b", "a"), human(2, "Dig."), human(5, "More.")],
        c=[child(2, "c", "b"), human(5, "Deeper.")],
    )
    assert [e.id for e in trace.events] == ["a:2", "b:2", "c:2", "b:3"]


def test_a_copy_that_cannot_be_unpacked_to_its_end_loses() -> None:
    noise = [says(2, random.Random(k).randbytes(500).hex(), f"m{k}") for k in range(600)]
    whole = "".join(json.dumps(r) + "\n" for r in [meta(0, "root"), human(1, "Go."), says(3, "Done.", "d"), *noise]).encode()
    short = "".join(json.dumps(r) + "\n" for r in [meta(0, "root"), human(1, "Go."), says(3, "Done.", "d")]).encode()
    (trace,) = imported("codex", {"a/rollout.jsonl": short, "b/rollout.jsonl": gzip.compress(whole, 1)[:-9000]})
    assert [e.id for e in trace.events] == ["root:2", "d"]
    assert sum(trace.meta["import"]["mended"].values()) == 1


# -- pieces


def test_verdicts() -> None:
    assert verdict_of("fine by me") is None
    assert verdict_of("{broken") is None
    assert verdict_of('{"outcome": 3}') is None
    allowed = verdict_of(' {"outcome": "allow", "rationale": "fine"}')
    assert allowed == {
        "ok": True, "source": "system",
        "extra": {"outcome": "allow", "risk_level": None, "user_authorization": None, "rationale": "fine"},
    }  # fmt: skip
    denied = verdict_of('{"outcome": "deny", "rationale": "no", "risk_level": "high", "user_authorization": "none"}')
    assert denied is not None
    assert (denied["ok"], denied["extra"]["rationale"], denied["extra"]["risk_level"], denied["extra"]["user_authorization"]) == (True, "no", "high", "none")
    odd = verdict_of('{"outcome": "maybe", "rationale": "no"}')
    assert odd is not None
    assert odd["ok"] is None


def test_actions_and_refusals() -> None:
    assert action_of('Planned action JSON:\n{\n "command": ["sh", "rm x"]\n}\nmore') == "rm x"
    assert action_of('{"cmd": "ls"}') == "ls"
    assert action_of('{"patch": "p"}') == "p"
    assert action_of('{"command": "a", "cmd": "b"}') == "a"
    assert action_of('{"command": [], "x": 1}') == '{"command": [], "x": 1}'
    assert action_of('Planned action JSON:\n{\n "x": 1\n}') == '{"x":1}'
    assert action_of("plain") == "plain"
    assert action_of("{broken") == "{broken"
    said = {
        "rejected by user": "user", "exec command rejected by user, later": "user", "patch rejected by user": "user", "command rejected by user": "user",
        "This action was rejected": "system", "rejected: blocked by policy": "system", "it was rejected by user": None, "": None,
    }  # fmt: skip
    assert {text: is_refused(text) for text in said} == said


def test_heads() -> None:
    full = head_of_meta(
        {
            "id": "k", "timestamp": "1970-01-01T00:00:05Z", "session_id": "s", "subagent_history_start_ordinal": 7, "originator": "o", "odd": 1,
            "source": {"subagent": {"thread_spawn": {"parent_thread_id": "p", "agent_path": "/root/dig", "agent_nickname": "Di", "agent_type": "t"}}},
        }
    )  # fmt: skip
    assert (full.id, full.kind, full.parent, full.session, full.role, full.nickname, full.path) == ("k", "thread_spawn", "p", "s", "t", "Di", "/root/dig")
    assert (full.created, full.start_ordinal, full.about, full.shape) == (5.0, 7, {"originator": "o"}, "rollout")
    named = head_of_meta({"source": {"subagent": {"thread_spawn": {"parent_thread_id": "p", "agent_path": "/root/dig"}}}})
    assert (named.id, named.role) == ("", "dig")
    assert head_of_meta({"agent_role": "r", "agent_type": "t", "agent_nickname": "N", "agent_path": "/a"}).role == "r"
    assert head_of_meta({"parent_thread_id": "p", "thread_source": "subagent"}).kind == "thread_spawn"
    assert head_of_meta({"parent_thread_id": "p", "thread_source": "subagent"}).role == "agent"
    assert head_of_meta({"parent_thread_id": "p"}).kind == "root"
    assert [head_of_meta({"source": {"subagent": s}}).kind for s in ("review", {"other": "guardian"}, {"compact": {}}, {}, "")] == [
        "review", "guardian", "compact", "subagent", "root",
    ]  # fmt: skip
    root, fork = head_of_meta({"id": "r"}), head_of_meta({"id": "f", "forked_from_id": "r"})
    assert (root.path, root.role, root.kind) == ("/root", "root", "root")
    assert (fork.kind, fork.parent, fork.forked_from, fork.path) == ("fork", "r", "r", None)
    assert head_of_meta({"forked_from_id": "r", "parent_thread_id": "q"}).parent == "q"


if __name__ == "__main__":
    print("\n".join(story(sys.argv[1])))
