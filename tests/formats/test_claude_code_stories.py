"""Claude Code, branch by branch: short sessions written by hand, and everything that must come of them.

What a session tells stands in `told/claude_code/`; `python tests/formats/test_claude_code_stories.py NAME` prints it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterpoint.trace import Trace
from listing import listing
from logs import imported

Record = dict[str, Any]


def at(second: float) -> str:
    return f"2026-01-01T00:{int(second) // 60:02}:{second % 60:06.3f}Z"


def user(uuid: str, second: float, content: Any, **more: Any) -> Record:
    return {"type": "user", "uuid": uuid, "timestamp": at(second), "message": {"role": "user", "content": content}, **more}


def said(uuid: str, second: float, *blocks: Any, id: str | None = None, usage: Any = (10, 5), **more: Any) -> Record:
    inner: Record = {"id": id or f"m{uuid}", "model": "claude-sonnet-4-5", "content": [_block(b) for b in blocks]}
    if usage is not None:
        inner["usage"] = {"input_tokens": usage[0], "output_tokens": usage[1]}
    return {"type": "assistant", "uuid": uuid, "timestamp": at(second), "message": inner, **more}


def _block(block: Any) -> Any:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def use(call: str, tool: str, **given: Any) -> Record:
    return {"type": "tool_use", "id": call, "name": tool, "input": given}


def answer(uuid: str, second: float, call: str, text: Any, made: Any = None, *, error: bool | None = None, **more: Any) -> Record:
    block: Record = {"type": "tool_result", "tool_use_id": call, "content": text}
    if error is not None:
        block["is_error"] = error
    return user(uuid, second, [block], **({} if made is None else {"toolUseResult": made}), **more)


def attached(uuid: str, second: float, **inside: Any) -> Record:
    return {"type": "attachment", "uuid": uuid, "timestamp": at(second), "attachment": inside}


def system(uuid: str, second: float, kind: str, **more: Any) -> Record:
    return {"type": "system", "uuid": uuid, "timestamp": at(second), "subtype": kind, **more}


def notice(task: str, status: str, result: str, call: str | None = None) -> str:
    named = f"<tool-use-id>{call}</tool-use-id>" if call else ""
    state = f"<status>{status}</status>" if status else ""
    return f"<task-notification><task-id>{task}</task-id>{named}{state}<result>{result}</result></task-notification>"


def read(main: list[Record], **agents: list[Record]) -> Trace:
    """The one trace of a session: the main conversation, and sub-agents in files of their own."""
    files = {"p/s.jsonl": main} | {f"p/s/subagents/agent-{name}.jsonl": records for name, records in agents.items()}
    data = {
        name: "".join(json.dumps({"sessionId": "s", **r}) + "\n" for r in records).encode() for name, records in files.items()
    }
    (trace,) = imported("claude_code", data)
    return trace


def story(trace: Trace) -> str:
    """What the trace tells, without the clock's own readings and the sums."""
    lines = [re.sub(r" at=[0-9.]+", "", line) for line in listing(trace)[1:] if not line.startswith("  costs")]
    return "\n".join(line[2:] for line in lines)


def background() -> Trace:
    """Agents and commands in the background: launched, announced twice, polled, stopped, refused."""
    main = [
        user("u1", 0, "Go."),
        said(
            "a1",
            2,
            use("c1", "Agent", prompt="Look.", subagent_type="Explore", run_in_background=True, name="eye"),
            use("c2", "Agent", prompt="Listen.", isolation="worktree"),
            use("c3", "Bash", command="make"),
            use("c4", "Agent", prompt="Fail."),
        ),
        answer("u2", 3, "c1", "launched", {"status": "async_launched", "agentId": "x1"}),
        answer("u3", 3.5, "c2", "launched", {"isAsync": True, "agentId": "x2"}),
        answer("u4", 4, "c3", "in background", error=False),
        answer("u5", 4.5, "c4", "no such agent " + "z" * 600, error=True),
        said("a2", 5, use("c5", "TaskOutput", task_id="x2")),
        answer("u6", 9, "c5", "done", {"task": {"task_id": "x2", "status": "completed", "output": "Heard nothing."}}),
        attached(
            "t1",
            10,
            type="queued_command",
            prompt=notice("x1", "completed", "Saw a cat.", "c1") + notice("b7", "failed", "make: error", "c3"),
        ),
        user("t2", 11, notice("x1", "completed", "Saw a cat.", "c1")),
        user("t3", 12, notice("x2", "completed", "Heard nothing.")),
        attached("t4", 12.5, type="queued_command", prompt="Hurry up."),
        said("a3", 14, "Both are back.", use("c6", "TaskStop", task_id="eye"), use("c7", "TaskStop", task_id="b7")),
        answer("u7", 15, "c7", "stopped"),
        said("a4", 16, use("c8", "Bash", command="rm -r /")),
        answer("u8", 18, "c8", "The user doesn't want to proceed with this.", error=True),
        said("a5", 19, use("c9", "Bash", command="ls")),
        answer("u9", 20, "c9", "Denied by a rule.", error=False, toolDenialKind="rule"),
        answer("u10", 21, "c99", "The user doesn't want to proceed, says a file.", error=False),
        user("u11", 22, [{"type": "image"}, {"type": "text", "text": "See."}, {"type": "image"}]),
        said("a6", 24, "I see.", usage=None),
    ]
    x1 = [
        user("x11", 2.5, "Look."),
        said("x12", 6, "I look.", use("d1", "Read", path="a")),
        answer("x13", 7, "d1", "a cat"),
        said("x14", 8, "Saw a cat."),
    ]
    x2 = [user("x21", 3, "Listen."), said("x22", 8.5, "Heard nothing.")]
    return read(main, x1=x1, x2=x2)


def team() -> Trace:
    """Teammates: letters both ways, a letter nobody sent, a system's notice, words to a sub-agent of every kind."""

    def letter(who, text):
        return f'<teammate-message teammate_id="{who}" color="red">\n{text}\n</teammate-message>'

    main = [
        user("u1", 0, "Build."),
        said(
            "a1",
            2,
            use("c1", "Task", prompt="Write  it.", name="ada"),
            use("c2", "Task", prompt="Test it.", name="bob"),
            use("c3", "Task", prompt="Ghost."),
        ),
        answer("u2", 3, "c1", "agent_id: ada@team\nname: ada"),
        answer("u3", 3, "c2", [{"type": "text", "text": "Fine.\nagentId: b0b (for resuming)"}]),
        answer("u4", 3, "c3", "It ran.\nno id"),
        said(
            "a2",
            5,
            use("c4", "SendMessage", to="ada", message="Keep it short.", summary="tone"),
            use("c5", "SendMessage", recipient="bob", content="Be quick."),
            use("c6", "SendMessage", target_agent_id="nobody", message="Hello?"),
            use("c7", "SendMessage", message="All."),
        ),
        answer("u5", 6, "c4", "sent"),
        answer("u6", 6, "c5", "lost " + "w" * 600, error=True),
        user(
            "u7",
            12,
            letter("ada", "It is  written.")
            + letter("ada", "An extra.")
            + letter("system", "teammate_terminated: ada " + "x" * 300)
            + letter("system", "bob has shut down")
            + letter("system", "The weather is fine."),
        ),
        user("u8", 13, letter("stranger", "Buy this.")),
        said("a3", 15, "Done."),
    ]
    ada = [
        user("x1", 2.5, letter("team-lead", "Write it.")),
        said("x2", 4, "I write."),
        user("x3", 7, letter("team-lead", "Keep it  short.")),
        said("x4", 9, use("d1", "SendMessage", to="team-lead", message="It is written.")),
        answer("x5", 9.5, "d1", "sent"),
        said("x6", 20, "Late thought."),
    ]
    b0b = [
        user("y1", 3, "Test it."),
        said("y2", 4, "I test."),
        user("y3", 7, "Be quick."),
        user("y4", 7.5, "<system-reminder>Mind the time."),
        user("y5", 8, "[Request interrupted by user]"),
        user("y6", 8.5, "Go on then."),
        said("y7", 10, "Tested."),
    ]
    mate = [{**r, "agentName": "ada", "teamName": "team", "sessionId": "t"} for r in ada]
    main = [{**r, "teamName": "team", "sessionId": "s"} for r in main]
    b = [{**r, "sessionId": "s", "isSidechain": True, "agentId": "b0b"} for r in b0b]
    name = "00000000-0000-4000-8000-00000000000"
    data = {f"p/{name}1.jsonl": main, f"p/{name}2.jsonl": mate, f"p/{name}1/subagents/agent-b0b.jsonl": b}
    (trace,) = imported("claude_code", {k: "".join(json.dumps(r) + "\n" for r in v).encode() for k, v in data.items()})
    return trace


def client() -> Trace:
    """What the client itself says: memory, hooks, refusals, compaction, errors; and answers of thoughts and empty texts."""
    return read(
        [
            user("u1", 0, "Go.", version="2.1", cwd="/r", gitBranch="b", entrypoint="cli", slug="s"),
            {"type": "summary", "summary": "A title"},
            {"type": "ai-title", "title": "A title"},
            {"type": "custom-title", "customTitle": "Mine"},
            {"type": "mode", "title": "not a title"},
            attached("t1", 1, type="nested_memory", content={"file": {"content": "Be kind."}}, displayPath="CLAUDE.md"),
            attached("t2", 1.5, type="edited_text_file", snippet="1: x"),
            attached("t3", 2, type="hook_additional_context", content=["From a hook."]),
            attached("t4", 2.5, type="hook_blocking_error", blockingError={"text": "Blocked."}),
            attached("t5", 3, type="hook_stopped_continuation", message="Stopped."),
            attached("t6", 3, type="todo_reminder"),
            attached("t7", 3, type="todo_reminder"),
            attached("t8", 3, type="queued_command", prompt=""),
            attached("t9", 3.2, type="file", content={"text": "whole"}),
            system("s1", 4, "api_error", error={"status": 529}, retryAttempt=2, retryInMs=500),
            system("s2", 4.5, "api_error", content="Overloaded.", error="x" * 600),
            system(
                "s3",
                5,
                "compact_boundary",
                content="Compacted.",
                compactMetadata={"trigger": "auto", "preTokens": 1000, "durationMs": 1500},
            ),
            system("s4", 6, "microcompact_boundary", content="A little.", compactMetadata={"durationMs": 0}),
            system("s5", 6.5, "stop_hook_summary", preventedContinuation=True, stopReason="Tests fail."),
            system("s6", 7, "stop_hook_summary", preventedContinuation=False),
            system(
                "s7",
                7.5,
                "model_refusal_fallback",
                content="Refused.",
                originalModel="a",
                fallbackModel="b",
                apiRefusalCategory="cyber",
            ),
            user("u2", 8, "The story so far.", isCompactSummary=True),
            user("u3", 8.2, "<command-name>/clear</command-name>"),
            user("u4", 8.4, "Meta.", isMeta=True),
            user("u5", 8.6, "Seen only.", isVisibleInTranscriptOnly=True),
            user("u6", 8.8, "  <bash-input>ls"),
            user("u7", 8.9, "[Request interrupted by user for tool use]"),
            user("u8", 8.95, "   "),
            said(
                "a1", 10, "First.", {"type": "thinking", "thinking": "Hm."}, "Second.", "", {"type": "thinking", "thinking": ""}
            ),
            said("a2", 11, {"type": "thinking", "thinking": "Only thought."}),
            said("a3", 12, use("c1", "Read", path="a"), use("c2", "Read", path="b")),
            said(
                "a4",
                13,
                {"type": "server_tool_use", "id": "c3", "name": "web_search", "input": {"query": "q"}},
                {"type": "tool_use", "input": 3},
            ),
            {**said("e1", 14, "API Error: 500 " + "y" * 300, isApiErrorMessage=True, apiErrorStatus=500)},
            {**said("e2", 15, "No response.")} | {"message": {"id": "me2", "model": "<synthetic>", "content": "No response."}},
        ]
    )


def records() -> Trace:
    """Split, repeated and copied records; sidechains without ids; a clock that goes back; usage that grows and shrinks."""
    side = {"isSidechain": True}
    return read(
        [
            user("u1", 0, "Go."),
            said("a1", 2, "One.", id="m1", usage=(10, 1)),
            said("a2", 4, "Two.", id="m1", usage=(10, 9)),
            said("a3", 3, use("c1", "Task", prompt="Dig."), id="m1", usage=(99, 4)),
            said("a1", 2, "One.", id="m1", usage=(10, 1)),
            user("u1", 0, "Go."),
            user("r1", 5, "Dig.", parentUuid=None, **side),
            said("r2", 6, "Digging.", parentUuid="r1", **side),
            user("r3", 6.2, "More.", parentUuid="r2", **side),
            user("q1", 5.5, "Alone.", parentUuid="nowhere", **side),
            said("q2", 5.8, "I am lost.", parentUuid="q1", **side),
            said("k1", 5.9, "Known.", agentId="k", **side),
            said("k2", 5.95, "Twice.", id="m1", agentId="k", **side),
            answer(
                "u2",
                8,
                "c1",
                "Dug.",
                {"status": "completed", "content": [{"type": "text", "text": "Dug.\nagentId: zzz"}], "totalTokens": 7},
            ),
            answer("u3", 8.1, "c1", "Dug again."),
            {**said("n1", 9, "No id.")} | {"message": {"model": "own", "content": "No id.", "usage": {"output_tokens": 3}}},
            {
                "type": "assistant",
                "timestamp": at(9.5),
                "message": {"content": ["loose", {"type": "text", "text": 7}, {"type": "text", "text": "Nothing at all."}]},
            },
            {"type": "hologram", "uuid": "h1"},
            {"type": "hologram", "uuid": "h1"},
            {"type": "hologram", "uuid": "h2"},
            {
                "type": "user",
                "uuid": "w1",
                "message": {"content": ["Plain ", {"type": "text", "text": "parts."}, {"type": "tool_result"}]},
            },
            said("a9", 12, "Done.", id="m9"),
            user("u9", 11, "Late clock."),
            said("a10", 11.5, "Later.", id="m10"),
            {
                "type": "progress",
                "parentToolUseID": "c1",
                "data": {"type": "agent_progress", "agentId": "p", "message": said("p1", 10, "Mirrored.")},
            },
            {
                "type": "progress",
                "parentToolUseID": "c2",
                "data": {"type": "agent_progress", "agentId": "p", "message": said("p2", 10.5, "Mirrored on.")},
            },
            {"type": "progress", "data": {"type": "hook_progress", "agentId": "p", "message": said("p3", 10, "No.")}},
            {"type": "progress", "data": {"type": "agent_progress", "agentId": "f", "message": said("f9", 10, "Not this.")}},
        ],
        f=[user("f1", 1, "File."), said("f2", 2, "From a file.")],
    )


def links() -> Trace:
    """One spawn for each rule, the stronger rule first; an agent is claimed once; a sub-agent that spawns another."""
    calls = [use(f"c{k}", "Agent", prompt=f"Task {k}.") for k in range(8)] + [
        use("c8", "Agent", prompt="Task 7."),
        use("c9", "Agent"), use("c10", "Agent"),
    ]
    main = [
        user("u1", 0, "Go."),
        said("a1", 2, *calls),
        {"type": "progress", "parentToolUseID": "c0", "data": {"type": "agent_progress", "agentId": "wrong0"}},
        {"type": "progress", "parentToolUseID": "c1", "data": {"type": "agent_progress", "agentId": "wrong1"}},
        {"type": "progress", "parentToolUseID": "c2", "data": {"type": "agent_progress", "agentId": "two"}},
        answer("u2", 3, "c0", "agentId: wrong0", {"agentId": "wrong0"}),
        answer("u3", 3.1, "c1", "agentId: wrong1", {"agent_id": "one"}),
        answer("u4", 3.2, "c2", "agentId: wrong2"),
        answer("u5", 3.3, "c3", "agentId: wrong3"),
        user(
            "u6",
            3.4,
            notice("three", "completed", "Third.", "c3")
            + notice("unasked", "", "Hm.")
            + "<task-notification><status>completed</status></task-notification>",
        ),
        answer("u7", 3.5, "c4", "Fourth.\nagentId:  four"),
        answer("u8", 3.6, "c5", "agentId: five", error=True),
        answer("u9", 3.7, "c6", "Sixth.", {"teammate_id": "four"}),
        answer("u10", 3.8, "c8", "Eighth."),
        attached("t1", 3.9, type="queued_command", prompt=notice("ten", "completed", "Tenth.", "c10")),
        said("a2", 5, "All."),
    ]
    said_by = {
        n: [user(f"{n}1", 2.5, t), said(f"{n}2", 3, f"I am {n}.")]
        for n, t in (
            ("zero", "Task 0."),
            ("one", "x"),
            ("two", "y"),
            ("three", "z"),
            ("four", "w"),
            ("seven", "Task  7."),
            ("loner", "Nobody asked."),
        )
    }
    said_by["one"] += [
        said("one3", 3.05, use("d1", "Task", prompt="Deeper.", subagent_type="Plan")),
        answer("one4", 3.08, "d1", "Deep.", {"agentId": "deep", "content": "Deep."}),
    ]
    said_by["deep"] = [user("deep1", 3.05, "Deeper."), said("deep2", 3.07, "Deep.")]
    data = {"p/s.jsonl": main} | {f"p/s/subagents/agent-{n}.jsonl": r for n, r in said_by.items()}
    files = {k: "".join(json.dumps({"sessionId": "s", **r}) + "\n" for r in v).encode() for k, v in data.items()}
    files["p/s/subagents/agent-zero.meta.json"] = b'{"toolUseId": "c0", "agentType": "Explore"}'
    files["p/s/subagents/agent-four.meta.json"] = b'{"agentType": "Wise"}'
    (trace,) = imported("claude_code", files)
    return trace


def workflows() -> Trace:
    """A run that its call names, one that only its task names, and one that nothing names."""

    def lines(*records):
        return "".join(json.dumps({"sessionId": "s", **r}) + "\n" for r in records).encode()

    def agent(n, text):
        return lines(user(f"{n}1", 3, "Do."), said(f"{n}2", 4, text))

    main = [
        user("u1", 0, "Go."),
        said(
            "a1",
            2,
            use("c1", "Workflow", script="x"),
            use("c2", "Workflow", script="y"),
            use("c3", "Bash", command="ls"),
            use("c4", "Workflow", script="never answered"),
        ),
        answer("u2", 2.5, "c1", "Launched.", {"runId": "wf_a"}),
        answer("u3", 2.6, "c2", "Launched. Task ID: task_b"),
        answer("u4", 2.7, "c3", "Task ID: task_b"),
        user("u5", 6, notice("ag1", "completed", "From the notice.")),
        said("a2", 8, "Over."),
    ]
    p = "p/s/subagents/workflows"
    files = {
        "p/s.jsonl": lines(*main),
        f"{p}/wf_a/agent-ag1.jsonl": agent("ag1", "First."),
        f"{p}/wf_a/agent-ag2.jsonl": agent("ag2", "Second."),
        f"{p}/wf_a/agent-ag0.jsonl": agent("ag0", "Not in the journal."),
        f"{p}/wf_a/journal.jsonl": lines(
            {"type": "started", "key": "k", "agentId": "ag2"},
            {"type": "started", "key": "k", "agentId": "ag1"},
            {"type": "result", "key": "k", "agentId": "ag2", "result": {"ok": 1}},
            {"type": "started", "key": "k", "agentId": "gone"},
            {"type": "result", "key": "k"},
        ),
        f"{p}/wf_b/agent-bg1.jsonl": agent("bg1", "By task."),
        f"{p}/wf_c/agent-cg1.jsonl": agent("cg1", "Unnamed run."),
        f"{p}/wf_c/journal.jsonl": lines(
            {"type": "started", "key": "k", "agentId": "cg1"},
            {"type": "result", "key": "k", "agentId": "cg1", "result": "Returned."},
        ),
        "p/s/workflows/one.json": json.dumps(
            {"runId": "wf_a", "workflowProgress": [{"agentId": "ag1", "label": "look", "phaseTitle": "P", "state": "done"}, 3]}
        ).encode(),
        "p/s/workflows/wf_b.json": json.dumps({"taskId": "task_b"}).encode(),
    }
    (trace,) = imported("claude_code", files)
    return trace


STORIES: dict[str, Callable[[], Trace]] = {f.__name__: f for f in (background, team, client, records, links, workflows)}


@pytest.mark.parametrize("name", STORIES)
def test_a_session_tells(name: str) -> None:
    wanted = (Path(__file__).parent / "listings" / "claude_code" / f"{name}.txt").read_text(encoding="utf-8")
    assert story(STORIES[name]()).splitlines() == wanted.splitlines()


if __name__ == "__main__":
    print(story(STORIES[sys.argv[1]]()))
