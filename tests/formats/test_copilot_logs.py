"""Coding agents of editors and shops, each against counts of its raw records, which share no code with the readers."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logs
from counterpoint.app.discover import find, importers
from counterpoint.errors import InputError
from counterpoint.formats.importing.files import File
from counterpoint.trace import Trace

NAMES = ("aider", "amazon_q", "amp", "claude_print", "copilot_cli", "vscode_chat")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def totals(traces: list[Trace]) -> tuple[int, int]:
    """Tokens of all steps, and calls of tools (those that make an agent too)."""
    calls = sum(e.type in ("tool_call", "spawn") for t in traces for e in t.events)
    return sum(int(t.costs.get("tokens", 0)) for t in traces), calls


def copilot(folder: Path) -> tuple[int, int]:
    tokens, calls = 0, set()
    for path in sorted(folder.rglob("*.jsonl")):
        for record in rows(path):
            data = record["data"]
            calls |= (
                {c["toolCallId"] for c in data.get("toolRequests", [])} | {data["toolCallId"]}
                if "toolCallId" in data
                else {c["toolCallId"] for c in data.get("toolRequests", [])}
            )
            used = [m["usage"] for m in data.get("modelMetrics", {}).values()] if record["type"] == "session.shutdown" else []
            tokens += sum(u["inputTokens"] + u["outputTokens"] for u in used)  # of two resumptions: neither holds the other
    for path in sorted(folder.rglob("*.json")):
        calls |= {c["id"] for m in json.loads(path.read_text())["chatMessages"] for c in m.get("tool_calls", [])}
    return tokens, len(calls)


def vscode(folder: Path) -> tuple[int, int]:
    text = {path: path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}
    tokens = 0
    for path, content in text.items():
        if path.suffix == ".jsonl":
            sets = [r for r in map(json.loads, content.splitlines()) if r["kind"] == 1 and r["k"][-1].endswith("Tokens")]
            tokens += sum(r["v"] for r in sets if r["k"][-1] == "promptTokens")
            tokens += max(r["v"] for r in sets if r["k"][-1] == "completionTokens")
        else:
            about = [r.get("result", {}).get("metadata", {}) for r in json.loads(content)["requests"]]
            tokens += sum(a.get("promptTokens", 0) + a.get("outputTokens", 0) for a in about)
    return tokens, len({m for content in text.values() for m in re.findall(r'"toolCallId": "(\w+)"', content)})


def aider(folder: Path) -> tuple[int, int]:
    scale = {"k": 1000}
    tokens = calls = 0
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        text = path.read_text()
        if path.suffix == ".jsonl":
            sent = [r["properties"] for r in rows(path) if r["event"] == "message_send"]
            tokens += sum(p["total_tokens"] for p in sent)
        for line in re.findall(r"^> (Tokens: .*?)\.(?: |$)", text, re.M):
            for number, unit in re.findall(r"([\d.]+)(k?) (?:sent|received)", line):
                tokens += round(float(number) * scale.get(unit, 1))
        calls += len(re.findall(r"^> (?:Applied edit|Commit [0-9a-f]{7}|The LLM did not|Run shell command\? .*: n)", text, re.M))
    return tokens, calls


def amp(folder: Path) -> tuple[int, int]:
    tokens = calls = 0
    for path in sorted(folder.rglob("*.json")):
        thread = json.loads(path.read_text())
        used = [m["usage"] for m in thread["messages"] if "usage" in m]
        tokens += sum(u["totalInputTokens"] + u["outputTokens"] for u in used)
        had = {m["messageId"] for m in thread["messages"] if "usage" in m}
        events = thread.get("usageLedger", {}).get("events", [])
        tokens += sum(e["tokens"]["input"] + e["tokens"]["output"] for e in events if e.get("toMessageId") not in had)
        calls += sum(b["type"] == "tool_use" for m in thread["messages"] for b in m["content"])
    return tokens, calls


def claude(folder: Path) -> tuple[int, int]:
    tokens, calls = 0, 0
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        records = rows(path)
        counted = [n for m in records[-1].get("modelUsage", {}).values() for key, n in m.items() if key.endswith("Tokens")]
        plain = [u for r in records if not records[-1].get("modelUsage") for u in [r.get("message", {}).get("usage", {})]]
        tokens += sum(counted) + sum(n for u in plain for n in u.values())
        calls += sum(b["type"] == "tool_use" for r in records if r["type"] == "assistant" for b in r["message"]["content"])
    return tokens, calls


def amazon(folder: Path) -> tuple[int, int]:
    text = "".join(path.read_text() for path in sorted(folder.rglob("*")) if path.is_file())
    stated = re.findall(r'"(?:input|output|cache_read_input|cache_write_input)_token_count": (\d+)', text)
    return sum(map(int, stated)), len(re.findall(r'"(?:orig_name|kind)": "(?:toolUse|fs_read|execute_bash)"', text))


COUNTS: dict[str, Callable[[Path], tuple[int, int]]] = {
    "aider": aider,
    "amazon_q": amazon,
    "amp": amp,
    "claude_print": claude,
    "copilot_cli": copilot,
    "vscode_chat": vscode,
}
FIXTURES = ("more", "traceforge", "dfinson_traceforge", "tests", "fixtures", "raw_traces")


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_has_what_its_records_have(name: str) -> None:
    folder = logs.SAMPLES / name
    assert totals(logs.imported(name, logs.files_of(folder))) == COUNTS[name](folder)


@pytest.mark.parametrize(
    ("name", "folder", "wanted"),
    [
        ("aider", "aider", (3683 + 4325, 0)),
        ("amazon_q", "amazonq", (0, 1)),
        ("copilot_cli", "copilot", (0, 0)),
        # five prompts of nine rounds that the log shows, and what all of them wrote
        ("vscode_chat", "copilot_vscode", (29172 + 35360 + 37249 + 38604 + 39123 + 3615, 14)),
    ],
)
def test_a_reference_log(name: str, folder: str, wanted: tuple[int, int], tmp_path: Path) -> None:
    source = next(p for p in logs.real(*FIXTURES, folder).iterdir() if p.is_file())
    (tmp_path / source.name).write_bytes(source.read_bytes())
    ((owner, session),) = find([tmp_path]).sessions
    assert owner == name
    traces = list(logs.importer(name).read_session(session))
    for trace in traces:
        logs.assert_sound(trace)
    assert totals(traces) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_no_file_of_theirs_is_taken_by_two(name: str) -> None:
    for file in logs.files_of(logs.SAMPLES / name):
        takers = [other for other, one in importers().items() if one.sniff(file.head())]
        assert takers in ([name], []), (file.name, takers)


ODD: list[Any] = [None, [], {}, [{}], "", "odd", -1, 1e400, True, ["a"], {"type": []}]


def changed(value: Any, rng: random.Random) -> Any:
    """A value in which one place, wherever it is, holds something odd."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        return {**value, key: changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        k = rng.randrange(len(value))
        return [*value[:k], changed(value[k], rng), *value[k + 1 :]]
    return rng.choice(ODD)


@pytest.mark.parametrize("name", NAMES)
def test_odd_values_anywhere_are_read_or_refused(name: str) -> None:
    rng = random.Random(7)
    for file in logs.files_of(logs.SAMPLES / name):
        text = file.data().decode()
        if not text.lstrip().startswith("{"):
            continue
        values = [json.loads(line) for line in text.splitlines()] if file.name.endswith(".jsonl") else [json.loads(text)]
        for _ in range(60):
            k = rng.randrange(len(values))
            odd = [*values[:k], changed(values[k], rng), *values[k + 1 :]]
            data = b"".join(json.dumps(v).encode() + b"\n" for v in odd)
            for session in logs.importer(name).group([File.of(data, file.name)]):
                try:
                    traces = list(logs.importer(name).read_session(session))
                except InputError:
                    continue
                for trace in traces:
                    logs.assert_sound(trace)


def read(name: str, *records: Any, file: str = "log.jsonl") -> list[Trace]:
    return logs.imported(name, {file: b"".join(json.dumps(r).encode() + b"\n" for r in records)})


# -- GitHub Copilot CLI ------------------------------------------------------------------------------------------------------


def event(kind: str, k: int, agent: str | None = None, **data: Any) -> dict[str, Any]:
    more = {"agentId": agent} if agent else {}
    return {"type": kind, "id": f"e{k}", "parentId": None, "timestamp": f"2026-01-01T00:00:{k:02}Z", "data": data, **more}


def used(into: int, out: int, **more: int) -> dict[str, Any]:
    return {"usage": {"inputTokens": into, "outputTokens": out, "cacheReadTokens": 0, "cacheWriteTokens": 0, **more}}


START = event("session.start", 0, sessionId="s", copilotVersion="1.0.1", selectedModel="gpt-5")


def test_the_copilot_sample() -> None:
    found = {t.trace_id[:4]: t for t in logs.imported("copilot_cli", logs.files_of(logs.SAMPLES / "copilot_cli"))}
    main = found["5a0c"]
    assert logs.tokens(main) == {"main": (2400 + 1500, 90 + 25), "t2": (1600, 35)}
    assert [(e.to, e.role, main.text(e)) for e in main.events if e.type == "spawn"] == [
        ("t2", "explore", "How often did the lamp blink?")
    ]
    assert [(e.id, e.error) for e in main.events if e.ok is False] == [
        ("t3:result", "lamp.log: no such file"),
        ("t4:result", "The user rejected this tool call."),
    ]
    assert (main.meta["title"], main.meta["nano_ai_units"], main.meta["project"]) == ("One blink too many", 3.1e9, "lighthouse")
    assert found["77aa"].text(next(e for e in found["77aa"].events if e.type == "return")) == "Three masts."
    assert [e.error for e in found["9b1f"].events if e.ok is False] == ["Path does not exist"]


def test_a_later_shutdown_that_holds_an_earlier_one_replaces_it() -> None:
    words = [event("assistant.message", k, content="a", outputTokens=10) for k in (1, 3)]
    first = event("session.shutdown", 2, modelMetrics={"gpt-5": used(100, 10)})
    second = event("session.shutdown", 4, modelMetrics={"gpt-5": used(250, 20)})
    (trace,) = read("copilot_cli", START, words[0], first, words[1], second)
    assert logs.tokens(trace) == {"main": (250, 20)}
    apart = event("session.shutdown", 4, modelMetrics={"gpt-5": used(250, 10)})  # less than all messages wrote: of one part
    (trace,) = read("copilot_cli", START, words[0], first, words[1], apart)
    assert logs.tokens(trace) == {"main": (350, 20)}


def test_a_session_without_an_end_states_only_what_was_written() -> None:
    (trace,) = read("copilot_cli", START, event("assistant.message", 1, content="a", outputTokens=10))
    (step,) = trace.events
    assert (step.tokens_in, step.tokens_out, step.cost_usd, trace.costs["tokens"]) == (None, 10, None, 10)
    assert list(trace.meta["import"]["lacks"].values()) == [1]


def test_usage_of_a_call_is_exact_and_counts_once() -> None:
    usage = event("assistant.usage", 2, model="gpt-5", inputTokens=30, outputTokens=5, cacheReadTokens=20, cost=1)
    words = event("assistant.message", 1, content="a", outputTokens=5)
    end = event("session.shutdown", 3, modelMetrics={"gpt-5": used(30, 5, cacheReadTokens=20)})
    (trace,) = read("copilot_cli", START, words, words, usage, end)
    (step,) = trace.events
    assert (step.tokens_in, step.tokens_out, (step.extra or {})["tokens_cache_read"]) == (30, 5, 20)


def test_the_totals_of_each_agent_go_to_that_agent() -> None:
    ask = event("assistant.message", 1, content="", toolRequests=[{"toolCallId": "c", "name": "task", "arguments": {}}])
    made = event("subagent.started", 2, agent="x-1", toolCallId="c", agentName="explore")
    word = event("assistant.message", 3, agent="x-1", content="b", model="gpt-5")
    end = event("tool.execution_complete", 4, toolCallId="c", success=True, result={"content": "b"})
    both = {"main": {"modelMetrics": {"gpt-5": used(70, 7)}}, "x-1": {"modelMetrics": {"gpt-5": used(30, 3)}}}
    close = event("session.shutdown", 5, modelMetrics={"gpt-5": used(100, 10)}, agentMetrics=both)
    (trace,) = read("copilot_cli", START, ask, made, word, end, close)
    assert logs.tokens(trace) == {"main": (70, 7), "c": (30, 3)}
    wrong = event("session.shutdown", 5, modelMetrics={"gpt-5": used(100, 11)}, agentMetrics=both)
    (trace,) = read("copilot_cli", START, ask, made, word, end, wrong)
    assert sum(a + b for a, b in logs.tokens(trace).values()) == 111


def test_a_sub_agent_without_a_transcript_and_an_error_before_any_answer() -> None:
    ask = event("assistant.message", 1, content="", toolRequests=[{"toolCallId": "c", "name": "task", "arguments": {}}])
    made = event("subagent.started", 2, toolCallId="c", agentName="explore")
    failed = event("subagent.failed", 3, toolCallId="c", agentName="explore", error="no model", totalTokens=12)
    said = event("session.error", 5, errorType="quota", message="No quota.")
    (trace,) = read("copilot_cli", START, ask, made, failed, event("user.message", 4, content="And now?"), said)
    back = next(e for e in trace.events if e.type == "return")
    assert (back.agent, back.ok, back.error, (back.extra or {})["tokens_stated"]) == ("c", False, "no model", 12)
    assert [e.error for e in trace.events if e.ok is False and e.agent == "main"] == ["No quota."]


def test_two_sessions_of_copilot_in_one_file_and_a_torn_line() -> None:
    other = event("session.start", 2, sessionId="t")
    records = [START, event("user.message", 1, content="a"), other, event("user.message", 3, content="b")]
    data = b"".join(json.dumps(r).encode() + b"\n" for r in records) + b'{"type":"user.mess'
    (session,) = logs.sessions("copilot_cli", {"x.jsonl": data})
    traces = list(logs.importer("copilot_cli").read_session(session))
    assert [(t.trace_id, t.meta["title"]) for t in traces] == [("s", "a"), ("t", "b")]
    assert session.report.broken_count == 1


# -- VS Code -----------------------------------------------------------------------------------------------------------------


def test_the_vscode_sample() -> None:
    found = {t.trace_id: t for t in logs.imported("vscode_chat", logs.files_of(logs.SAMPLES / "vscode_chat"))}
    jam = found["0a11-vs"]
    steps = [(e.tokens_in, e.tokens_out) for e in jam.events if e.type == "orchestrator_decision"]
    assert steps == [(1000, 40), (1300, 25), (1450, 25)]  # the log shows each round: the completion sums up
    assert [(e.to, e.role) for e in jam.events if e.type == "spawn"] == [("k2", "Explore")]
    assert [(e.agent, e.tool, jam.text(e)) for e in jam.events if e.type == "tool_call"][1] == (
        "k2",
        "copilot_findTextInFiles",
        "jar",
    )
    assert [(e.id, e.error) for e in jam.events if e.ok is False] == [("k4:result", "no sugar")]
    old = found["0b22-vs"]
    assert (old.meta["title"], [e.error for e in old.events if e.ok is False]) == (
        "the bees",
        ["rejected", "Rate limit reached."],
    )
    assert [(e.extra or {}).get("interrupted") for e in old.events if e.id == "request_b2:cancelled"] == [True]


def test_a_file_without_a_log_states_the_last_prompt_alone() -> None:
    rounds = [{"response": str(k), "toolCalls": []} for k in range(3)]
    request = {"requestId": "r", "message": {"text": "a"}, "response": [], "promptTokens": 50, "completionTokens": 30}
    state = {"responderUsername": "GitHub Copilot", "sessionId": "s", "creationDate": 1, "requests": [request]}
    request["result"] = {"metadata": {"toolCallRounds": rounds}}
    (trace,) = read("vscode_chat", state, file="s.json")
    assert logs.tokens(trace) == {"main": (50, 30)}
    assert trace.meta["import"]["lacks"]["what went into some rounds of a request: the file states 1 of them"] == 2


def test_changes_of_a_chat_are_applied_in_order() -> None:
    first = {"kind": 0, "v": {"sessionId": "s", "creationDate": 1, "responderUsername": "x", "requests": []}}
    words = {"requestId": "r", "message": {"text": "a"}, "response": [{"value": "one"}, {"value": "two"}]}
    push = {"kind": 2, "k": ["requests"], "v": [words]}
    cut = {"kind": 2, "k": ["requests", 0, "response"], "i": 1, "v": [{"value": " and three"}]}
    gone = {"kind": 3, "k": ["requests", 0, "message", "text"]}
    nowhere = {"kind": 1, "k": ["requests", 7, "modelId"], "v": "x"}
    (session,) = logs.sessions(
        "vscode_chat", {"s.jsonl": b"".join(json.dumps(r).encode() + b"\n" for r in (first, push, cut, gone, nowhere))}
    )
    (trace,) = logs.importer("vscode_chat").read_session(session)
    assert [trace.text(e) for e in trace.events] == [None, "one and three"]
    assert session.report.broken[0]["what"] == "a change of something that is not there"


# -- Aider -------------------------------------------------------------------------------------------------------------------


def test_the_aider_sample() -> None:
    found = logs.imported("aider", logs.files_of(logs.SAMPLES / "aider"))
    (chat,) = [t for t in found if t.trace_id.startswith("aider-2026-05-02T09")]
    models = [e.model for e in chat.events if e.type == "orchestrator_decision"]
    architect, editor = "anthropic/claude-sonnet-4-5", "openai/gpt-5-mini"
    assert models == [architect, editor, editor, architect, architect]
    assert [(e.tool, e.ok) for e in chat.events if e.type == "tool_result"] == [
        ("edit", False),
        ("edit", True),
        ("commit", True),
        ("shell", False),
    ]
    assert round(sum(e.cost_usd or 0 for e in chat.events), 6) == 0.01 + 0.0005 + 0.0006 + 0.004
    words = [chat.text(e) for e in chat.events if e.type == "human_intervention"]
    assert words == ["/add oven.py", "The bread burns.\n\nWhy is that?", "What about rolls?", "^C"]
    answer = next(chat.text(e) for e in chat.events if e.type == "orchestrator_decision")
    assert answer.endswith("> a quotation, which is no note\n\n#### And a heading, which nobody said")
    assert "wall_clock_s" not in chat.costs


def test_a_chat_of_aider_that_lost_its_spaces_and_one_that_grew() -> None:
    text = "# aider chat started at 2026-01-01 00:00:00\n\n> Model: gpt-4o with diff edit format\n\n#### Hi.\n\nHello.\n\n> Tokens: 10 sent, 2 received.\n"
    (trace,) = logs.imported("aider", {".aider.chat.history.md": text.encode()})
    assert (logs.tokens(trace), [trace.text(e) for e in trace.events]) == ({"main": (10, 2)}, ["Hi.", "Hello."])
    (grown,) = logs.imported("aider", {".aider.chat.history.md": (text + "\n#### More?\n\nNo.\n").encode()})
    assert grown.trace_id == trace.trace_id
    assert [e.id for e in grown.events][: len(trace.events)] == [e.id for e in trace.events]


def test_a_history_of_model_calls_beside_a_chat_is_not_read_twice() -> None:
    files = {f.last: f.data() for f in logs.files_of(logs.SAMPLES / "aider") if f.last.startswith(".aider")}
    (session,) = logs.sessions("aider", files)
    assert session.report.mended == {"a history of model calls beside the chat history: not read": 1}


def test_a_page_about_aider_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("# How Aider logs\n\n```\n# aider chat started at 2026-01-01 00:00:00\n\n#### Hi.  \n```\n")
    assert find([tmp_path]).sessions == []


# -- Amp ---------------------------------------------------------------------------------------------------------------------


def test_the_amp_sample() -> None:
    found = {t.trace_id[:6]: t for t in logs.imported("amp", logs.files_of(logs.SAMPLES / "amp"))}
    owls, old = found["T-0190"], found["T-b2b2"]
    child = "T-0190aaaa-0000-7000-8000-0000000000a2"
    assert logs.tokens(owls) == {"main": (710 + 754 + 800, 80 + 40 + 12), child: (90, 9)}
    assert owls.costs["tokens"] == 2396 + 99 + 66  # and the title, which is no step
    assert (owls.meta["amp_credits"], owls.meta["title"], owls.meta["project"]) == (2.26, "Owls in the barn", "barn")
    assert [(e.id, e.error) for e in owls.events if e.ok is False] == [("toolu_a3:result", "roof.md: no such file")]
    assert [e.to for e in owls.events if e.type == "spawn"] == [child]
    assert [(e.ok, e.error) for e in old.events if e.type == "tool_result"] == [(False, "stopped")]


def test_a_thread_of_a_sub_agent_that_nobody_names_is_found_by_its_prompt() -> None:
    ask = {"type": "tool_use", "id": "t", "name": "Task", "input": {"prompt": "Look."}}
    main = {"id": "T-aaaaaaaa-1", "created": 1, "messages": [{"role": "assistant", "messageId": 0, "content": [ask]}]}
    child = {
        "id": "T-bbbbbbbb-2",
        "created": 2,
        "mainThreadID": "T-aaaaaaaa-1",
        "messages": [{"role": "user", "content": "Look."}],
    }
    files = {f"{t['id']}.json": json.dumps(t).encode() for t in (main, child)}
    (trace,) = logs.imported("amp", files)
    assert trace.meta["import"]["links"]["inferred"] == {"the same prompt": 1}
    (alone,) = logs.imported("amp", {"x.json": json.dumps(child).encode()})
    assert alone.trace_id == "T-bbbbbbbb-2"


# -- what Claude Code prints -------------------------------------------------------------------------------------------------


def test_the_printed_sample() -> None:
    found = {t.trace_id[-2:]: t for t in logs.imported("claude_print", logs.files_of(logs.SAMPLES / "claude_print"))}
    main = found["c1"]
    assert logs.tokens(main) == {"main": (8 + 2400 + 320, 70), "toolu_1": (100, 25)}
    assert (main.costs["cost_usd"], main.costs["wall_clock_s"], main.meta["version"]) == (0.0123, 9.0, "2.1.7")
    assert [(e.agent, e.ok) for e in main.events if e.type == "tool_result"] == [("toolu_1", False)]
    assert [(e.role, main.text(e)) for e in main.events if e.type == "spawn"] == [("Explore", "How many trees?")]
    assert found["c2"].text(found["c2"].events[-1]) == "4"
    assert (found["a9"].system, found["a9"].events[-1].error) == ("amp", "Out of credits.")


def test_a_printed_list_is_read_like_its_lines() -> None:
    records = rows(logs.SAMPLES / "claude_print" / "stream.jsonl")
    (listed,) = logs.imported("claude_print", {"x.json": json.dumps(records).encode()})
    (lines,) = read("claude_print", *records)
    assert logs.tokens(listed) == logs.tokens(lines)


# -- Amazon Q and Kiro -------------------------------------------------------------------------------------------------------


def test_the_amazon_q_sample() -> None:
    found = {t.trace_id[-2:]: t for t in logs.imported("amazon_q", logs.files_of(logs.SAMPLES / "amazon_q"))}
    mill, kiro = found["d1"], found["d3"]
    assert [(e.tool, e.ok) for e in mill.events if e.type == "tool_result"] == [
        ("execute_bash", False),
        ("fs_read", True),
        ("execute_bash", False),
    ]
    assert [mill.text(e) for e in mill.events if e.type == "human_intervention"][1] == "Do not take the wheel away!"
    assert (mill.meta["credits"], mill.meta["project"], mill.meta["import"]["lacks"]["tokens"]) == (0.75, "mill", 4)
    assert (logs.tokens(kiro), kiro.meta["credits"], kiro.meta["title"]) == ({"main": (1200, 40)}, 0.5, "The sluice")
    assert found["d2"].meta["project"] == "mill"
    assert found["d4"].meta["title"] == "Draw the mill."


def test_the_database_of_amazon_q(tmp_path: Path) -> None:
    path = tmp_path / "amazon-q" / "data.sqlite3"
    path.parent.mkdir()
    base = sqlite3.connect(path)
    base.executescript(
        "CREATE TABLE auth_kv (key TEXT PRIMARY KEY, value TEXT); CREATE TABLE conversations (key TEXT PRIMARY KEY, value TEXT);"
        "CREATE TABLE conversations_v2 (key TEXT, conversation_id TEXT, value TEXT, created_at INTEGER, updated_at INTEGER,"
        " PRIMARY KEY (key, conversation_id)) WITHOUT ROWID;"
    )
    text = (logs.SAMPLES / "amazon_q" / "mill.json").read_text()
    base.execute("INSERT INTO conversations VALUES ('/home/ada/mill', ?), ('/home/ada/torn', 'not json')", (text,))
    base.execute(
        "INSERT INTO conversations_v2 VALUES ('/home/ada/mill', 'two', ?, 1, 2)", (text.replace("0000000000d1", "0000000000d9"),)
    )
    base.commit()
    base.close()
    ((owner, session),) = find([tmp_path]).sessions
    traces = list(logs.importer(owner).read_session(session))
    assert (owner, sorted(t.trace_id[-2:] for t in traces)) == ("amazon_q", ["d1", "d9"])
    assert session.report.broken_count == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "x", "version": "1.0.0", "dependencies": {"a": "1"}}',
        '{"id": "T-shirt", "messages": "many"}',
        '{"requests": 3, "sessionId": "s", "creationDate": 1}',
        '{"type": "system", "session_id": "s"}',
        '{"conversation_id": "x", "history": [{"role": "user", "content": "hello"}], "title": "a chat of another"}',
        '{"event": "launched", "properties": {}, "user_id": "x", "time": 1, "library": "y"}',
        '{"openapi": "3.1.0", "paths": {}, "type": "session.start", "data": {}, "timestamp": "x", "id": "1"}',
    ],
)
def test_what_only_looks_alike_is_not_taken(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    assert [name for name, _ in find([tmp_path]).sessions if name in NAMES] == []
