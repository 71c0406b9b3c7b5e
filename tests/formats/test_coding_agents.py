"""Coding agents that log lists of messages: each source against counts of its raw records, which share no code with the readers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import logs
from counterpoint.app.discover import find, importers
from counterpoint.errors import InputError
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


OUTSIDE = ("system", "client", "user")


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


SOURCES: dict[str, Callable[[Path], Counts]] = {"qwen_code": qwen, "gemini_cli": gemini}
# Where the reference logs of a source lie, each folder or file a session of its own.
REAL = [
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
    models = {"gemini-2.5-pro": {"api": {"totalRequests": 2, "totalApiErrors": 0}, "tokens": tokens}}
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
