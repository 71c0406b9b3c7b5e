"""Coding agents that log lists of messages: each source against counts of its raw records, which share no code with the readers."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import logs
from counterpoint.app.discover import find, importers
from counterpoint.errors import InputError
from counterpoint.formats.importing.files import File
from counterpoint.trace import Trace


class Counts(NamedTuple):
    """What a session holds."""

    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    """Calls of tools, those that make an agent too."""
    agents: int = 1


def counts_of(traces: list[Trace]) -> Counts:
    events = [e for trace in traces for e in trace.events]
    acting = {
        (t.trace_id, e.agent) for t in traces for e in t.events if e.type not in ("human_intervention",) and e.role not in OUTSIDE
    }
    return Counts(
        sum(e.tokens_in or 0 for e in events),
        sum(e.tokens_out or 0 for e in events),
        sum(e.type in ("tool_call", "spawn") for e in events),
        len(acting),
    )


OUTSIDE = ("system", "client", "user", "harness", "demonstration")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def qwen(folder: Path) -> Counts:
    out = Counts(agents=0)
    for path in sorted(folder.rglob("*.jsonl")):
        records = rows(path)
        parts = [p for r in records if r["type"] != "system" for p in r["message"]["parts"]]
        used = [r["usageMetadata"] for r in records if "usageMetadata" in r]
        stated = [
            r["toolCallResult"]["resultDisplay"]["executionSummary"] for r in records if "executionSummary" in json.dumps(r)
        ]
        thoughts = [
            u.get("thoughtsTokenCount", 0)
            for u in used
            if u["totalTokenCount"] > u["promptTokenCount"] + u["candidatesTokenCount"]
        ]
        out = Counts(
            out.tokens_in + sum(u["promptTokenCount"] for u in used) + sum(s["inputTokens"] for s in stated),
            out.tokens_out
            + sum(u["candidatesTokenCount"] for u in used)
            + sum(thoughts)
            + sum(s["outputTokens"] for s in stated),
            out.calls + sum("functionCall" in p for p in parts),
            out.agents + 1 + len(stated),
        )
    return out


def gemini(folder: Path) -> Counts:
    total = Counts(agents=0)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.suffix == ".json":
            messages = {m["id"]: m for m in json.loads(path.read_text())["messages"]}
        else:
            records = rows(path)
            if records[0].get("type") == "init":
                stats = records[-1]["stats"]
                used = Counts(stats["input_tokens"], stats["total_tokens"] - stats["input_tokens"])
                total = add(total, used._replace(calls=sum(r["type"] == "tool_use" for r in records)))
                continue
            messages = {r["id"]: r for r in records if "id" in r}
        tokens = [m["tokens"] for m in messages.values() if m.get("tokens")]
        into = sum(t["input"] + t.get("tool", 0) for t in tokens)
        out = sum(t["output"] + t.get("thoughts", 0) for t in tokens)
        total = add(total, Counts(into, out, sum(len(m.get("toolCalls", [])) for m in messages.values())))
    return total


def add(a: Counts, b: Counts) -> Counts:
    return Counts(*(x + y for x, y in zip(a, b, strict=True)))


def swe(folder: Path) -> Counts:
    total = Counts(agents=0)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        run = rows(path) if path.suffix == ".jsonl" else json.loads(path.read_text())
        run = {"messages": run} if isinstance(run, list) else run
        messages = run.get("history") or run.get("messages") or []
        answers = [m for m in messages if m["role"] == "assistant"]
        calls = sum(
            bool(m.get("action") or m.get("tool_calls") or m["content"].count("```mswea_bash_command") == 1) for m in answers
        )
        if "trajectory" in run:
            calls = sum(bool((step["action"] or "").strip()) for step in run["trajectory"])
        used = [m["extra"]["response"]["usage"] for m in answers if "response" in m.get("extra", {})]
        stats = run.get("info", {}).get("model_stats", {})
        into = sum(u["prompt_tokens"] for u in used) or stats.get("tokens_sent", 0)
        out = sum(u["completion_tokens"] for u in used) or stats.get("tokens_received", 0)
        total = add(total, Counts(into, out, calls))
    return total


def opencode(folder: Path) -> Counts:
    parts: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        for value in rows(path) if path.suffix == ".jsonl" else [json.loads(path.read_text())]:
            data = value.get("data", value)
            exported = data.get("messages", [])
            found = [p for m in exported for p in m["parts"]] + [p for p in (data, data.get("part")) if p and "messageID" in p]
            parts.update({p["id"]: p for p in found if "type" in p})
            infos = [m["info"] for m in exported] + [i for i in (data, data.get("info")) if i and "role" in i]
            messages.update({i["id"]: i for i in infos})
    steps = [p for p in parts.values() if p["type"] == "step-finish"]
    ended = {p["messageID"] for p in steps}
    used = [p["tokens"] for p in steps] + [m["tokens"] for k, m in messages.items() if "tokens" in m and k not in ended]
    return Counts(
        sum(u["input"] + u["cache"]["read"] + u["cache"]["write"] for u in used),
        sum(u["output"] + u["reasoning"] for u in used),
        sum(p["type"] == "tool" for p in parts.values()),
        len({m["sessionID"] for m in messages.values()}),
    )


def pi(folder: Path) -> Counts:
    messages = [r["message"] for path in sorted(folder.rglob("*.jsonl")) for r in rows(path) if r["type"] == "message"]
    used = [m["usage"] for m in messages if "usage" in m]
    return Counts(
        sum(u["input"] + u.get("cacheRead", 0) + u.get("cacheWrite", 0) for u in used),
        sum(u["output"] for u in used),
        sum(p["type"] == "toolCall" for m in messages if m["role"] == "assistant" for p in m["content"]),
    )


def openhands(folder: Path) -> Counts:
    total = Counts(agents=0)
    for path in sorted(folder.rglob("*.jsonl")):
        records = rows(path)
        for run in [r for r in records if "history" in r]:  # an evaluation
            used = run["metrics"]["accumulated_token_usage"]
            flat = [e for row in run["history"] for e in (row if isinstance(row, list) else [row])]
            actions = Counter(e.get("action") for e in flat if e.get("source") == "agent")
            calls = actions["run"] + actions["edit"] + actions["delegate"] + actions["browse_interactive"]
            total = add(total, Counts(used["prompt_tokens"], used["completion_tokens"], calls, 1 + actions["delegate"]))
        records = [r for r in records if "history" not in r]
        if not records:
            continue
        stats = [r["value"]["usage_to_metrics"] for r in records if r.get("key") == "stats"]
        used = [m["accumulated_token_usage"] for m in stats[-1].values()] if stats else []
        into, out = (sum(u[f"{name}_tokens"] for u in used) for name in ("prompt", "completion"))
        total = add(total, Counts(into, out, sum(r["kind"] == "ActionEvent" for r in records)))
    return total


SOURCES: dict[str, Callable[[Path], Counts]] = {
    "qwen_code": qwen,
    "gemini_cli": gemini,
    "swe_agent": swe,
    "opencode": opencode,
    "pi": pi,
    "openhands": openhands,
}
# Where the reference logs of a source lie, each folder or file a session of its own.
REAL = [
    ("openhands", "openhands-sdk/OpenHands_software-agent-sdk/tests/sdk/conversation/goal/fixtures/events.jsonl"),
    ("openhands", "traceforge/dfinson_traceforge/tests/fixtures/raw_traces/openhands/demo_issue_tracker_get_endpoint.jsonl"),
    ("pi", "pi/badlogic_pi-mono/packages/coding-agent/test/fixtures/large-session.jsonl"),
    ("pi", "watchmen-fixture/toininoi_watchmen/tests/fixtures/pi_session_compacted.jsonl"),
    ("pi", "cass-fixture/Dicklesworthstone_coding_agent_session_search/tests/fixtures/pi_agent/sessions/--test-project--/2024-01-15T10-30-00-000Z_abc12345-1234-5678-9abc-def012345678.jsonl"),
    ("opencode", "traceforge/dfinson_traceforge/tests/fixtures/raw_traces/opencode/demo_issue_tracker_get_endpoint.jsonl"),
    ("swe_agent", "swe-agent/SWE-agent_SWE-agent/trajectories/demonstrations/ctf/crypto/BabyEncryption.traj"),
    ("swe_agent", "swe-agent/SWE-agent_SWE-agent/trajectories/demonstrations/ctf/crypto/eps.traj"),
    ("swe_agent", "swe-agent/SWE-agent_SWE-agent/trajectories/demonstrations/ctf/forensics/flash.traj"),
    ("swe_agent", "swe-agent/SWE-agent_SWE-agent/trajectories/demonstrations/ctf/pwn/warmup.traj"),
    ("swe_agent", "swe-agent/SWE-agent_SWE-agent/trajectories/demonstrations/ctf/rev/rock.traj"),
    ("swe_agent", "swe-agent/SWE-agent_SWE-agent/trajectories/demonstrations/ctf/web/i_got_id_demo.traj"),
    ("swe_agent", "swe-agent/SWE-agent_SWE-agent/trajectories/demonstrations/function_calling_simple.traj"),
    ("swe_agent", "swe-agent/SWE-agent_SWE-agent/trajectories/demonstrations/human_thought__swe-bench-HumanEvalFix-python__lcb__t-0.00__p-0.95__c-4.00__install-0/humanevalfix-python-0.traj"),
    ("swe_agent", "swe-agent/SWE-agent_SWE-agent/trajectories/demonstrations/replay__marshmallow-code__marshmallow-1867__default__t-0.20__p-0.95__c-2.00__install-1___install_from_source/marshmallow-code__marshmallow-1867.traj"),
    ("swe_agent", "mini-swe-agent/SWE-agent_mini-swe-agent/tests/test_data/github_issue.traj.json"),
    ("swe_agent", "traceforge/dfinson_traceforge/tests/fixtures/raw_traces/sweagent/demo_issue_tracker_get_endpoint.jsonl"),
    ("gemini_cli", "gemini-fixture/wesm_agentsview/internal/parser/testdata/gemini/thinking_only.json"),
    ("gemini_cli", "gemini-fixture/wesm_agentsview/internal/parser/testdata/gemini/tool_calls.json"),
    ("qwen_code", "qwen-code/QwenLM_qwen-code/integration-tests/fixtures/chat-transcript-contract/v1/cases/representative/chat-records.jsonl"),
    ("qwen_code", "mlflow-fixture/mlflow_mlflow/libs/typescript/integrations/qwen-code/tests/fixtures/basic.jsonl"),
]  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_a_sample_has_what_its_records_have(name: str) -> None:
    folder = logs.SAMPLES / name
    assert counts_of(logs.imported(name, logs.files_of(folder))) == SOURCES[name](folder)


@pytest.mark.parametrize(("name", "path"), REAL)
def test_a_reference_log_has_what_its_records_have(name: str, path: str, tmp_path: Path) -> None:
    source = logs.real("more", *path.split("/"))
    (tmp_path / source.name).write_bytes(source.read_bytes())
    ((owner, session),) = find([tmp_path]).sessions
    assert owner == name
    traces = list(logs.importer(name).read_session(session))
    for trace in traces:
        logs.assert_sound(trace)
    assert counts_of(traces) == SOURCES[name](tmp_path)


@pytest.mark.parametrize("name", SOURCES)
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


@pytest.mark.parametrize("name", SOURCES)
def test_odd_values_anywhere_are_read_or_refused(name: str) -> None:
    rng = random.Random(7)
    for file in logs.files_of(logs.SAMPLES / name):
        text = file.data().decode()
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


# -- Qwen Code ---------------------------------------------------------------------------------------------------------------


def qwen_record(kind: str, k: int, *parts: Any, **fields: Any) -> dict[str, Any]:
    message = {"role": "model" if kind == "assistant" else "user", "parts": list(parts)}
    base = {"uuid": f"u{k}", "parentUuid": None, "sessionId": "s", "timestamp": f"2026-01-01T00:00:{k:02}Z", "type": kind}
    return {**base, "message": message, **fields}


def read(name: str, *records: Any, file: str = "log.jsonl") -> list[Trace]:
    return logs.imported(name, {file: b"".join(json.dumps(r).encode() + b"\n" for r in records)})


def test_qwen_code_is_not_taken_for_claude_code() -> None:
    data = json.dumps(qwen_record("user", 1, {"text": "hello"})).encode()
    assert [name for name, one in importers().items() if one.sniff(data)] == ["qwen_code"]
    long = json.dumps(qwen_record("user", 1, {"text": "x" * 70_000})).encode()[:65_536]
    assert [name for name, one in importers().items() if one.sniff(long)] == ["qwen_code"]


@pytest.mark.parametrize(("total", "out"), [(150, 50), (180, 80), (None, 80)])
def test_thoughts_are_inside_the_candidates_where_the_total_says_so(total: int | None, out: int) -> None:
    used = {"promptTokenCount": 100, "candidatesTokenCount": 50, "thoughtsTokenCount": 30, "totalTokenCount": total}
    (trace,) = read(
        "qwen_code", qwen_record("user", 1, {"text": "a"}), qwen_record("assistant", 2, {"text": "b"}, usageMetadata=used)
    )
    assert logs.tokens(trace) == {"main": (100, out)}


def test_what_a_branch_copied_counts_where_it_came_from() -> None:
    used = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    copy = {"forkedFrom": {"sessionId": "before", "messageUuid": "u2"}}
    (trace,) = read(
        "qwen_code",
        qwen_record("user", 1, {"text": "a"}, **copy),
        qwen_record("assistant", 2, {"text": "b"}, usageMetadata=used, **copy),
        qwen_record("user", 3, {"text": "c"}),
        qwen_record("assistant", 4, {"text": "d"}, usageMetadata=used),
        qwen_record("assistant", 4, {"text": "d"}, usageMetadata=used),
    )
    assert (logs.tokens(trace), trace.meta["forked_from"]) == ({"main": (10, 5)}, "before")
    assert trace.meta["import"]["mended"]["copied records"] == 1


def test_the_sub_agents_of_the_qwen_sample_are_linked() -> None:
    (trace,) = logs.imported("qwen_code", logs.files_of(logs.SAMPLES / "qwen_code"))
    spawns = {e.to: e.tool for e in trace.events if e.type == "spawn"}
    assert spawns == {"explorer-7f3c": "agent", "c4": "task"}
    assert Counter(e.from_ for e in trace.events if e.type == "return") == {"explorer-7f3c": 1, "c4": 1}
    assert logs.tokens(trace)["explorer-7f3c"] == (660, 45)
    (denied,) = [e for e in trace.events if e.ok is False]
    assert (denied.tool, denied.error) == ("edit", "The user did not allow it.")
    assert trace.text(trace.events[-1]) == "The timer subtracts one; the test shows it. Allow the edit, and I mend it."


def test_a_file_of_which_little_is_understood_is_refused() -> None:
    strange = [{**qwen_record("user", k, {"text": "a"}), "type": "hologram"} for k in range(2, 9)]
    with pytest.raises(InputError, match=r"less than half .* hologram"):
        read("qwen_code", qwen_record("user", 1, {"text": "a"}), *strange)


# -- Gemini CLI --------------------------------------------------------------------------------------------------------------


def test_the_gemini_sample_keeps_what_was_rewound_and_links_its_sub_agent() -> None:
    found = {t.trace_id: t for t in logs.imported("gemini_cli", logs.files_of(logs.SAMPLES / "gemini_cli"))}
    main = found["3d0b7f52-1c2e-4a5d-8e9f-aa11bb22cc33"]
    assert logs.tokens(main) == {"main": (900 + 1100 + 300 + 5, 40 + 25 + 60 + 12 + 8), "investigator-9c1d": (460, 24)}
    assert [(e.tool, e.error) for e in main.events if e.ok is False] == [
        ("run_shell_command", "sort: cannot read: shelf.csv"),
        ("write_file", "The user cancelled it."),
    ]
    assert [(e.from_, main.text(e)) for e in main.events if e.type == "return"] == [("investigator-9c1d", "One: Tides.")]
    assert main.meta["import"]["mended"] == {"messages that a rewind took back: kept": 2}
    assert main.text(main.events[-1]) == "The author of Tides is missing."
    assert [e.from_ for e in main.events if e.id in ("m0", "m5")] == ["user", "client"]
    stream = found["stream-1"]
    assert [stream.text(e) for e in stream.events if e.type == "orchestrator_decision"] == [
        "I count the lines.",
        "One book and a head.",
    ]


def test_a_printed_run_of_gemini_has_the_tokens_of_each_model() -> None:
    tokens = {"prompt": 100, "candidates": 20, "total": 130, "cached": 40, "thoughts": 10, "tool": 0}
    models = {"gemini-2.5-pro": {"api": {"totalRequests": 2, "totalErrors": 0, "totalLatencyMs": 9}, "tokens": tokens}}
    value = {"session_id": "s", "response": "Done.", "stats": {"models": models, "tools": {"totalCalls": 3}}}
    (trace,) = read("gemini_cli", value, file="out.json")
    assert (logs.tokens(trace), trace.text(trace.events[-1])) == ({"main": (100, 30)}, "Done.")
    assert trace.meta["import"]["lacks"]["the tool calls: only their number is printed"] == 3


def test_an_error_of_the_client_is_one_of_the_step_before() -> None:
    head = {"type": "init", "timestamp": "2026-01-01T00:00:00Z", "session_id": "s", "model": "gemini-2.5-pro"}
    words = {"type": "message", "timestamp": "2026-01-01T00:00:01Z", "role": "assistant", "content": "I try."}
    end = {
        "type": "result",
        "timestamp": "2026-01-01T00:00:02Z",
        "status": "error",
        "error": {"type": "quota", "message": "No quota."},
    }
    (trace,) = read("gemini_cli", head, words, end)
    assert [(e.ok, e.error) for e in trace.events] == [(False, "No quota.")]


# -- SWE-agent and mini-swe-agent --------------------------------------------------------------------------------------------


def test_the_swe_agent_samples() -> None:
    found = {t.trace_id: t for t in logs.imported("swe_agent", logs.files_of(logs.SAMPLES / "swe_agent"))}
    mini = found["lamp-1"]
    assert (mini.system, mini.meta["exit_status"], round(mini.costs["cost_usd"], 9)) == ("mini-swe-agent", "Submitted", 0.0005)
    assert [(e.tool, e.ok, mini.text(e)) for e in mini.events if e.type == "tool_result"][-1] == ("bash", None, "on")
    assert [e.ok for e in mini.events if e.type == "tool_result"] == [False, None]
    assert sum(e.from_ == "harness" for e in mini.events) == 1
    (run,) = [t for t in found.values() if t.meta.get("exit_status") == "submitted"]
    assert [e.tool for e in run.events if e.type == "tool_call"] == ["open", "edit", "bash", "submit"]
    assert (logs.tokens(run), run.costs["cost_usd"]) == ({"main": (5200, 310)}, 0.031)
    assert run.meta["title"] == "The tide is upside down."
    (calls,) = [t for t in found.values() if t is not run and t is not mini]
    assert [(e.id, e.tool) for e in calls.events if e.type == "tool_call"] == [("call_1", "find_file"), ("call_2", "submit")]


# -- OpenCode ----------------------------------------------------------------------------------------------------------------


def test_the_opencode_sample_counts_each_step_and_links_the_child_session() -> None:
    found = {t.trace_id: t for t in logs.imported("opencode", logs.files_of(logs.SAMPLES / "opencode"))}
    main = found["ses_garden"]
    assert logs.tokens(main) == {"main": (1100 + 1200 + 1500, 30 + 40 + 20), "ses_weeds": (150, 42)}
    stated = sum(e.cost_usd or 0 for e in main.events if e.id in ("msg_2", "msg_2.1", "msg_5"))
    assert round(stated, 6) == 0.015  # the message's own tokens are its last step's alone, its cost is of both
    assert [(e.to, e.role, main.text(e)) for e in main.events if e.type == "spawn"] == [
        ("ses_weeds", "explore", "How many weeds?")
    ]
    assert [(e.from_, main.text(e)) for e in main.events if e.type == "return"] == [("ses_weeds", "Seven.")]
    assert [(e.id, e.error) for e in main.events if e.ok is False] == [
        ("call_b:result", "beds.md is not there"),
        ("msg_3", "The user stopped it."),
    ]
    assert logs.tokens(found["ses_hedge"]) == {"main": (80, 25)}


# -- pi ----------------------------------------------------------------------------------------------------------------------


def test_the_pi_sample() -> None:
    (trace,) = logs.imported("pi", logs.files_of(logs.SAMPLES / "pi"))
    assert (logs.tokens(trace), round(trace.costs["cost_usd"], 6)) == ({"main": (510, 28)}, 0.001)
    assert [(e.id, e.error) for e in trace.events if e.ok is False] == [
        ("call_2:result", "hands: not there"),
        ("a6", "Request was aborted"),
    ]
    assert [trace.text(e) for e in trace.events if e.from_ == "client"] == ["The clock says eight."]


def test_what_a_branch_of_pi_copied_counts_where_it_came_from() -> None:
    def answer(k: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": [{"type": "text", "text": "a"}], "usage": {"input": 10, "output": k}}
        return {"type": "message", "id": f"m{k}", "timestamp": f"2026-01-01T00:00:0{k}Z", "message": message}

    head = {"type": "session", "id": "s", "cwd": "/", "timestamp": "2026-01-01T00:00:05Z", "branchedFrom": "/x/before.jsonl"}
    (trace,) = read("pi", head, answer(1), answer(7))
    assert (logs.tokens(trace), trace.meta["forked_from"]) == ({"main": (10, 7)}, "before.jsonl")


# -- OpenHands ---------------------------------------------------------------------------------------------------------------


def test_the_openhands_sample() -> None:
    (trace,) = logs.imported("openhands", logs.files_of(logs.SAMPLES / "openhands" / "events.jsonl"))
    assert (logs.tokens(trace), round(trace.costs["cost_usd"], 6)) == ({"main": (950, 60)}, 0.005)
    assert [e.id for e in trace.events if e.type == "orchestrator_decision"] == ["e2", "e7", "e10"]
    assert [(e.id, e.ok) for e in trace.events if e.type == "tool_result"] == [
        ("call_1:result", True),
        ("call_2:result", False),
        ("call_3:result", False),
    ]
    assert trace.text(trace.events[-1]) == "There are two hives."
