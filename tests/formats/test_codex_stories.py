"""Codex, branch by branch: threads written by hand, and everything that must come of them (`told/codex/`).

`python tests/formats/test_codex_stories.py NAME` prints what a story tells.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterpoint.formats.codex.thread_head import head_of_meta
from counterpoint.formats.codex.threads import action_of, is_refused, verdict_of
from counterpoint.trace import Trace
from logs import imported
from told import told

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


STORIES: dict[str, Callable[[], Trace]] = {f.__name__: f for f in (talk, team, guarded)}


def story(name: str) -> list[str]:
    return [re.sub(r" at=[0-9.]+", "", row)[2:] for row in told(STORIES[name]())[1:]]


@pytest.mark.parametrize("name", STORIES)
def test_threads_tell(name: str) -> None:
    wanted = (Path(__file__).parent / "told" / "codex" / f"{name}.txt").read_text(encoding="utf-8")
    assert story(name) == wanted.splitlines()


# -- pieces


def test_verdicts() -> None:
    assert verdict_of("fine by me") is None
    assert verdict_of("{broken") is None
    assert verdict_of('{"outcome": 3}') is None
    allowed = verdict_of(' {"outcome": "allow", "rationale": "fine"}')
    assert allowed == {
        "ok": True, "error": None, "source": "system",
        "extra": {"outcome": "allow", "risk_level": None, "user_authorization": None, "rationale": "fine"},
    }  # fmt: skip
    denied = verdict_of('{"outcome": "deny", "rationale": "no", "risk_level": "high", "user_authorization": "none"}')
    assert denied is not None
    assert (denied["ok"], denied["error"], denied["extra"]["risk_level"], denied["extra"]["user_authorization"]) == (False, "no", "high", "none")
    odd = verdict_of('{"outcome": "maybe", "rationale": "no"}')
    assert odd is not None
    assert (odd["ok"], odd["error"]) == (None, None)


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
