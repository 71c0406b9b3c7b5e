"""Agents of editors and their command lines: Cline, Goose, Continue and Cursor, each against counts of its raw records."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import logs
from counterpoint.app.discover import find, importers
from counterpoint.app.editor_homes import editor_homes
from counterpoint.errors import InputError
from counterpoint.formats.importing.files import File
from counterpoint.trace import Trace

NAMES = ("cline", "continue_dev", "cursor", "goose")


def sample(name: str) -> dict[str, Trace]:
    return {t.trace_id: t for t in logs.imported(name, logs.files_of(logs.SAMPLES / name))}


def read(name: str, *records: Any, file: str = "log.jsonl") -> list[Trace]:
    data = b"".join(json.dumps(r).encode() + b"\n" for r in records)
    return logs.imported(name, {file: data})


def failures(trace: Trace) -> list[tuple[str | None, str | None]]:
    return [(e.tool, e.error) for e in trace.events if e.ok is False]


def said(trace: Trace, by: str = "user") -> list[str]:
    return [trace.text(e) for e in trace.events if e.from_ == by]


def calls(trace: Trace) -> list[str | None]:
    return [e.tool for e in trace.events if e.type in ("tool_call", "spawn")]


def is_close(amount: float | None, wanted: float) -> bool:
    return amount is not None and abs(amount - wanted) < 1e-9


# -- every one of them -------------------------------------------------------------------------------------------------------


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


def attempt(name: str, files: Iterable[File]) -> None:
    """Read files, whatever is in them: sound traces, or a refusal."""
    for session in logs.importer(name).group(list(files)):
        try:
            traces = list(logs.importer(name).read_session(session))
        except InputError:
            continue
        for trace in traces:
            logs.assert_sound(trace)


@pytest.mark.parametrize("name", NAMES)
def test_odd_values_anywhere_are_read_or_refused(name: str) -> None:
    rng = random.Random(11)
    files = logs.files_of(logs.SAMPLES / name)
    for file in files:
        text = file.data().decode()
        others = [other for other in files if other.name.rpartition("/")[0] == file.name.rpartition("/")[0] and other is not file]
        for _ in range(40):
            if file.name.endswith((".md", ".txt")):
                at = rng.randrange(len(text))
                data = (text[:at] + rng.choice(("", "\x00", "---", "**User**", "[Tool")) + text[at + rng.randrange(9) :]).encode()
            else:
                lines = file.name.endswith(".jsonl")
                values = [json.loads(line) for line in text.splitlines()] if lines else [json.loads(text)]
                k = rng.randrange(len(values))
                odd = [*values[:k], changed(values[k], rng), *values[k + 1 :]]
                data = b"".join(json.dumps(v).encode() + b"\n" for v in odd)
            attempt(name, [File.of(data, file.name), *others])


REAL = [
    ("cline", "traceforge/dfinson_traceforge/tests/fixtures/raw_traces/cline/demo_issue_tracker_get_endpoint_shape.jsonl", 120, 45, 1),
    ("cline", "ctxray-fixture/ctxray_ctxray/tests/fixtures/cline_task/api_conversation_history.json", 0, 0, 2),
    ("goose", "traceforge/dfinson_traceforge/tests/fixtures/raw_traces/goose/demo_issue_tracker_get_endpoint.jsonl", 0, 0, 9),
    ("continue_dev", "traceforge/dfinson_traceforge/tests/fixtures/raw_traces/continue_dev/demo_issue_tracker_get_endpoint_shape.jsonl", 0, 0, 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "path", "into", "out", "made"), REAL)
def test_a_reference_log_has_what_its_records_have(name: str, path: str, into: int, out: int, made: int, tmp_path: Path) -> None:
    source = logs.real("more", *path.split("/"))
    (tmp_path / source.name).write_bytes(source.read_bytes())
    ((owner, session),) = find([tmp_path]).sessions
    (trace,) = logs.importer(name).read_session(session)
    logs.assert_sound(trace)
    assert (owner, sum(e.tokens_in or 0 for e in trace.events), sum(e.tokens_out or 0 for e in trace.events)) == (name, into, out)
    assert len(calls(trace)) == made


NOT_THEIRS = {
    "package.json": {"name": "x", "version": "1.0.0", "type": "module", "history": [], "scripts": {"say": "echo"}},
    "history.json": [{"id": 1, "title": "a", "history": [1, 2]}],
    "chat.json": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
    "messages.json": {"version": 1, "messages": [{"role": "user", "content": []}]},
    "result.json": {
        "type": "result",
        "subtype": "success",
        "result": "x",
        "session_id": "s",
        "duration_api_ms": 1,
        "total_cost_usd": 1,
    },
    "init.json": {"type": "system", "subtype": "init", "session_id": "s", "model": "m", "tools": [], "uuid": "u"},
    "session.json": {"working_dir": "/x", "sessionId": "s", "title": "t"},
}


@pytest.mark.parametrize("file", NOT_THEIRS)
def test_what_only_looks_like_theirs_is_not_taken(file: str) -> None:
    head = json.dumps(NOT_THEIRS[file]).encode()
    assert [name for name in NAMES if importers()[name].sniff(head)] == []


@pytest.mark.parametrize(
    "text", ["# A page\n\n**User**\n\nhello\n", "**User:**\n\nhello\n", "user: hello\n", "SQLite format 3\0" + "\0" * 200]
)
def test_a_page_with_such_words_is_not_taken(text: str) -> None:
    assert [name for name in NAMES if importers()[name].sniff(text.encode())] == []


# -- Cline, Roo Code, Kilo Code ----------------------------------------------------------------------------------------------


def test_a_task_of_cline_has_its_requests_on_its_answers() -> None:
    trace = sample("cline")["1770000000000"]
    assert logs.tokens(trace) == {"main": (40 + 900 + 50 + 60 + 900 + 60 + 960, 30 + 25 + 15)}
    assert is_close(trace.costs["cost_usd"], 0.004 + 0.002 + 0.001)
    assert calls(trace) == ["read_file", "execute_command", "attempt_completion"]
    assert failures(trace) == [("read_file", "File not found: orchard/trees.csv"), (None, "Overloaded")]
    assert said(trace) == ["Count the apple trees in trees.csv.", "It is in this folder."]
    assert trace.meta["models"] == ["claude-sonnet-4-5"]
    assert trace.text(next(e for e in trace.events if e.id == "m5")) == "Twelve apple trees."
    assert trace.meta["import"]["unknown"] == {"message that says hologram": 1}


def test_a_task_of_roo_code_and_the_one_it_delegated_are_one_trace_with_the_totals_of_their_histories() -> None:
    trace = sample("cline")["roo-parent"]
    assert logs.tokens(trace) == {"main": (2500, 60), "roo-child": (460, 20)}
    assert is_close(trace.costs["cost_usd"], 0.007 + 0.0006)
    assert [(e.to, e.role, trace.text(e)) for e in trace.events if e.type == "spawn"] == [
        ("roo-child", "ask", "How many pears need pruning?")
    ]
    assert [(e.from_, trace.text(e)) for e in trace.events if e.type == "return"] == [("roo-child", "Three pears.")]
    assert trace.meta["import"]["links"] == {"exact": {"the task that the answer of the call states": 1}}
    assert failures(trace) == [("write_to_file", "The user denied this operation.")]
    assert trace.meta["models"] == ["gpt-5", "gpt-5-mini"]


def test_sub_agents_of_clines_sdk_count_once_with_or_without_messages() -> None:
    trace = sample("cline")["1770000300000_plum"]
    assert logs.tokens(trace) == {"main": (1100, 55), "agent_blue": (120, 9), "s2": (110, 11)}
    assert trace.meta["import"]["links"] == {
        "exact": {"what the result states": 1},
        "inferred": {"the words of its task": 1},
    }
    assert [(e.from_, trace.text(e)) for e in trace.events if e.type == "return"] == [
        ("agent_blue", "The blue ones are ripe."),
        ("s2", "The yellow ones are green."),
    ]
    assert trace.text(trace.events[-1]) == "The blue plums are ripe."


def test_a_task_that_was_saved_as_markdown() -> None:
    trace = sample("cline")["cline_task_feb-2-2026_4-00-00-am"]
    assert (said(trace), calls(trace)) == (["Water the nursery."], ["execute_command"])
    assert failures(trace) == [("execute_command", "tap: not found")]


def ui(k: int, say: str, text: Any = "", **fields: Any) -> dict[str, Any]:
    text = text if isinstance(text, str) else json.dumps(text)
    return {"ts": 1770000000000 + k * 1000, "type": "say", "say": say, "text": text, **fields}


def ask(k: int, what: str, text: str) -> dict[str, Any]:
    return {"ts": 1770000000000 + k * 1000, "type": "ask", "ask": what, "text": text}


def test_the_screen_alone_is_a_task_too() -> None:
    shown = json.dumps({"tool": "readFile", "path": "a.py"})
    records = [
        ui(0, "text", "Mend it."),
        ui(1, "api_req_started", {"tokensIn": 10, "tokensOut": 5, "cacheReads": 3, "cacheWrites": 2, "cost": 0.5}),
        ui(2, "reasoning", "Where?"),
        ask(3, "tool", shown),
        ui(4, "tool", shown),
        ask(5, "command", "make"),
        ui(6, "command_output", "cc a.c"),
        ui(7, "command_output", "Exit code: 2"),
        ui(8, "user_feedback", "Go on."),
        ui(9, "api_req_started", {"tokensIn": 7, "tokensOut": 1, "cancelReason": "user_cancelled"}),
        ui(10, "subagent_usage", {"source": "subagents"}),
        ui(11, "completion_result", "Mended."),
    ]
    (trace,) = read("cline", records, file="ui_messages.json")
    assert logs.tokens(trace) == {"main": (10 + 3 + 2 + 7, 5 + 1)}
    assert calls(trace) == ["readFile", "execute_command"]
    assert failures(trace) == [("execute_command", "exit code 2"), (None, "user_cancelled")]
    assert (said(trace), trace.meta["left_out"]) == (["Mend it.", "Go on."], {"subagent_usage": 1})
    assert trace.text(trace.events[-1]) == "Mended."


def test_sub_agents_that_a_screen_shows_have_the_tokens_it_states() -> None:
    items = [
        {"index": 0, "prompt": "Look left.", "status": "completed", "toolCalls": 2, "inputTokens": 30, "outputTokens": 4,
         "totalCost": 0.1, "result": "Left is free."},
        {"index": 1, "prompt": "Look right.", "status": "failed", "toolCalls": 1, "inputTokens": 20, "outputTokens": 3,
         "totalCost": 0.2, "error": "blind"},
    ]  # fmt: skip
    api = [
        {"role": "user", "content": [{"type": "text", "text": "<task>\nCross.\n</task>"}]},
        {
            "role": "assistant",
            "content": [
                {
                    "type": "tool_use",
                    "id": "u1",
                    "name": "use_subagents",
                    "input": {"prompt_1": "Look left.", "prompt_2": "Look right."},
                }
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u1", "content": "Left is free. blind"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I cross."}]},
    ]
    screen = [
        ui(0, "task", "Cross."),
        ui(1, "api_req_started", {"tokensIn": 5, "tokensOut": 5}),
        ui(2, "subagent", {"status": "running", "items": [{**items[0], "status": "running", "inputTokens": 1}, items[1]]}),
        ui(3, "subagent", {"status": "completed", "items": items}),
        ui(
            4,
            "subagent_usage",
            {"source": "subagents", "tokensIn": 50, "tokensOut": 7, "cacheReads": 8, "cacheWrites": 1, "cost": 0.3},
        ),
        ui(5, "api_req_started", {"tokensIn": 6, "tokensOut": 6}),
    ]
    files = {
        "tasks/7/api_conversation_history.json": json.dumps(api).encode(),
        "tasks/7/ui_messages.json": json.dumps(screen).encode(),
    }
    (trace,) = logs.imported("cline", files)
    assert logs.tokens(trace) == {"main": (11, 11), "7:u1": (39, 4), "7:u1.1": (20, 3)}
    assert [(e.from_, trace.text(e), e.ok) for e in trace.events if e.type == "return"] == [
        ("7:u1", "Left is free.", None),
        ("7:u1.1", "blind", False),
    ]


def test_anthropics_protocol_has_the_cache_inside_only_where_every_request_allows_it() -> None:
    def task(*rows: tuple[int, int]) -> dict[str, tuple[int, int]]:
        made = [{"apiProtocol": "anthropic", "tokensIn": i, "tokensOut": 1, "cacheReads": r, "cacheWrites": 0} for i, r in rows]
        records = [ui(0, "text", "a"), *(ui(k, "api_req_started", row) for k, row in enumerate(made, 1))]
        return logs.tokens(read("cline", records, file="ui_messages.json")[0])

    assert task((100, 90), (50, 0)) == {"main": (150, 2)}
    assert task((100, 90), (5, 60)) == {"main": (100 + 90 + 5 + 60, 2)}


def test_a_child_of_an_older_roo_code_returns_by_the_note_of_the_client() -> None:
    def history(name: str, **fields: Any) -> bytes:
        return json.dumps(
            {"id": name, "number": 1, "ts": 1, "task": "Write it.", "tokensIn": 9, "tokensOut": 2, **fields}
        ).encode()

    def talk(*texts: tuple[str, str]) -> bytes:
        return json.dumps([{"role": role, "content": [{"type": "text", "text": text}]} for role, text in texts]).encode()

    parent = talk(
        ("user", "<task>\nPlan.\n</task>"),
        ("assistant", "<new_task>\n<mode>code</mode>\n<message>Write it.</message>\n</new_task>"),
        (
            "user",
            "[new_task in code mode: 'Write it.'] Result:\nSuccessfully created new task in Code mode with message: Write it.",
        ),
        ("user", "[new_task completed] Result: It is written."),
        ("assistant", "<attempt_completion>\n<result>Done.</result>\n</attempt_completion>"),
    )
    child = talk(("user", "<task>\nWrite it.\n</task>"), ("assistant", "I wrote it."))
    files = {
        "tasks/a/api_conversation_history.json": parent,
        "tasks/a/history_item.json": history("a"),
        "tasks/b/api_conversation_history.json": child,
        "tasks/b/history_item.json": history("b", parentTaskId="a", rootTaskId="a"),
    }
    (trace,) = logs.imported("cline", files)
    assert [(e.from_, trace.text(e)) for e in trace.events if e.type == "return"] == [("b", "I wrote it.")]
    assert trace.meta["import"]["links"] == {"inferred": {"the words of its task": 1}}
    assert logs.tokens(trace) == {"main": (9, 2), "b": (9, 2)}  # no request states any: those of the history, on the last step


# -- Goose -------------------------------------------------------------------------------------------------------------------


def test_the_goose_samples_have_the_totals_that_they_state() -> None:
    found = sample("goose")
    pond, old = found["20260225_1"], found["20250303_111111"]
    assert logs.tokens(pond) == {"main": (1600, 60), "20260225_2": (400, 20)}
    assert is_close(pond.costs["cost_usd"], 0.006 + 0.001)
    assert calls(pond) == ["delegate", "developer__shell", "developer__shell"]
    assert failures(pond) == [("developer__shell", "cat: pond.txt: No such file or directory")]
    assert [(e.from_, pond.text(e)) for e in pond.events if e.type == "return"] == [("20260225_2", "Seven ducks.")]
    assert pond.meta["import"]["links"] == {"exact": {"the session that the answer of the call states": 1}}
    assert (said(pond), said(pond, "client")) == (["Who is on the pond?"], [])
    assert (logs.tokens(old), old.meta["title"]) == ({"main": (520, 40)}, "Feed the geese")
    assert [old.text(e) for e in old.events if e.type == "tool_result"] == [
        "corn\n"
    ]  # what was for the person alone is not there


def goose_text(role: str, text: str) -> str:
    return json.dumps([{"type": "text", "text": text}])


def goose_database(path: Path, ledger: list[tuple[int, int, int]]) -> bytes:
    base = sqlite3.connect(path)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT, session_type TEXT, working_dir TEXT, "
        "accumulated_input_tokens INTEGER, accumulated_output_tokens INTEGER, model_config_json TEXT)"
    )
    base.execute(
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, message_id TEXT, session_id TEXT, role TEXT, content_json TEXT, "
        "created_timestamp INTEGER, metadata_json TEXT)"
    )
    base.execute(
        "CREATE TABLE usage_ledger (id INTEGER PRIMARY KEY, session_id TEXT, created_timestamp INTEGER, model TEXT, "
        "input_tokens INTEGER, output_tokens INTEGER, cache_read_tokens INTEGER, cost REAL, is_compaction INTEGER)"
    )
    base.execute(
        "INSERT INTO sessions VALUES ('s1', 'Two nests', 'user', '/home/ada/pond', 300, 30, '{\"model_name\": \"gpt-5\"}')"
    )
    base.execute("INSERT INTO sessions VALUES ('s2', 'CLI Session', 'user', '/home/ada/pond', NULL, NULL, NULL)")
    for k, (session, role, text) in enumerate(
        [("s1", "user", "Nests?"), ("s1", "assistant", "I look."), ("s1", "assistant", "Two."), ("s2", "user", "Hello.")]
    ):
        row = (k + 1, f"m{k}", session, role, goose_text(role, text), 1772000000 + k, None)
        base.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    for k, (into, out, compaction) in enumerate(ledger):
        row = (k + 1, "s1", 1772000001 + k, "gpt-5-mini", into, out, 10, 0.25, compaction)
        base.execute("INSERT INTO usage_ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    base.commit()
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    base.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("ledger", "tokens"),
    [
        ([], [300]),
        ([(100, 10, 0), (200, 20, 0)], [100, 200]),
        ([(100, 10, 0), (200, 20, 0), (40, 4, 1)], [100, 200, 40]),
        ([(100, 10, 0), (200, 20, 0), (50, 5, 0)], [350]),
    ],
)
def test_a_database_of_goose_has_each_session_and_counts_each_call_once(
    ledger: list[tuple[int, int, int]], tokens: list[int], tmp_path: Path
) -> None:
    data = goose_database(tmp_path / "sessions.db", ledger)
    found = {t.trace_id: t for t in logs.imported("goose", {"sessions.db": data})}
    trace = found["s1"]
    assert [e.tokens_in for e in trace.events if e.tokens_in is not None] == tokens
    assert (trace.meta["title"], trace.meta["project"], said(trace)) == ("Two nests", "pond", ["Nests?"])
    assert trace.meta["models"] == (["gpt-5-mini"] if ledger else ["gpt-5"])
    assert found["s2"].meta["title"] == "Hello."


def test_a_database_that_is_cut_off_is_refused_with_its_name(tmp_path: Path) -> None:
    data = goose_database(tmp_path / "sessions.db", [])[:9000]
    with pytest.raises(InputError, match=r"sessions\.db"):
        logs.imported("goose", {"sessions.db": data})


def test_what_goose_prints_has_its_total_and_pieces_of_one_message_are_one() -> None:
    def message(name: str, role: str, text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        return {"type": "message", "message": {"id": name, "role": role, "created": 1772000000, "content": content,
                                               "metadata": {"userVisible": True}}}  # fmt: skip

    (trace,) = read(
        "goose", message("a", "user", "Hi."), message("b", "assistant", "One"), message("b", "assistant", "two"),
        {"type": "error", "error": "no credit"}, {"type": "complete", "total_tokens": 77},
    )  # fmt: skip
    assert [trace.text(e) for e in trace.events] == ["Hi.", "One\ntwo"]
    assert (failures(trace), trace.costs["tokens"]) == ([(None, "no credit")], 77)


# -- Continue ----------------------------------------------------------------------------------------------------------------


def test_the_continue_samples_have_the_totals_that_they_state() -> None:
    found = sample("continue_dev")
    beds = found["beds"]
    assert logs.tokens(beds) == {"main": (95 + 440 + 85, 36)}
    assert (calls(beds), failures(beds)) == (["read_file", "run_terminal_command"], [("run_terminal_command", "sow: no seeds")])
    assert sum(e.type == "tool_result" for e in beds.events) == 2
    assert (beds.costs["cost_usd"], beds.meta["began"], beds.meta["left_out"]) == (
        0.004,
        1773000000,
        {"context items": 1, "images": 1},
    )
    assert said(beds, "client") == ["Bed 1 is free; there are no seeds."]
    assert found["old"].meta["began"] == 1710000000
    assert [found["herbs"].text(e) for e in found["herbs"].events] == ["Name a herb.", "Thyme.", "Another.", "Sage."]


def continue_session(*items: Any, **fields: Any) -> dict[str, Any]:
    return {"sessionId": "s", "title": "New Session", "workspaceDirectory": "", "history": list(items), **fields}


def test_answers_of_a_call_stand_once_and_say_how_it_ended() -> None:
    call = {"id": "t", "type": "function", "function": {"name": "grep", "arguments": '{"q": "a"}'}}
    state = {"toolCallId": "t", "toolCall": call, "status": "canceled", "output": []}
    open_ = {**state, "toolCallId": "u", "toolCall": {**call, "id": "u"}, "status": "generated"}
    asked = {"message": {"role": "user", "content": "Find a."}, "contextItems": []}
    answer = {
        "message": {"role": "assistant", "content": "", "toolCalls": [call, open_["toolCall"]]},
        "toolCallStates": [state, open_],
    }
    usage = {"totalCost": 0.5, "promptTokens": 10, "completionTokens": 2}
    (trace,) = read("continue_dev", continue_session(asked, answer, usage=usage), file="s.json")
    assert (calls(trace), failures(trace)) == (["grep", "grep"], [("grep", "canceled")])
    assert (logs.tokens(trace), trace.costs["cost_usd"], trace.meta["title"]) == ({"main": (10, 2)}, 0.5, "Find a.")


@pytest.mark.parametrize(
    ("details", "into"), [({}, 100), ({"cachedTokens": 80}, 100), ({"cachedTokens": 80, "cacheWriteTokens": 5}, 185)]
)
def test_the_prompt_has_the_cache_inside_unless_it_was_written_to(details: dict[str, int], into: int) -> None:
    usage = {"promptTokens": 100, "completionTokens": 1, "promptTokensDetails": details}
    item = {"message": {"role": "assistant", "content": "a", "usage": usage}}
    (trace,) = read("continue_dev", continue_session(item), file="s.json")
    assert logs.tokens(trace) == {"main": (into, 1)}


# -- Cursor ------------------------------------------------------------------------------------------------------------------


def test_the_cursor_samples() -> None:
    found = sample("cursor")
    hive = found["5b1d0c9e-0001-4a00-8000-000000000001"]
    assert (said(hive), hive.meta["began"]) == (["How is the hive?", "Is it strong?"], 1772438400)
    assert calls(hive) == ["Read", "Task", "Grep", "Shell"]
    assert failures(hive) == [(None, "User aborted/interrupted manually.")]
    assert [(e.from_, hive.text(e)) for e in hive.events if e.type == "return"] == [("9c2e", "400 cells.")]
    assert hive.meta["import"]["links"] == {"inferred": {"the words of its prompt": 1}}
    run = found["0f0e0d0c-0000-4000-8000-00000000000a"]
    assert logs.tokens(run) == {"main": (700 + 300, 50)}
    assert (calls(run), failures(run)) == (["shell", "read"], [("shell", "scale: not found")])
    assert [run.text(e) for e in run.events if e.type == "orchestrator_decision"] == ["I weigh it.", "Nine jars, not weighed."]
    smoker = found["cursor_the_smoker"]
    assert (smoker.meta["title"], said(smoker)) == ("The smoker", ["How do I light the smoker?", "Thanks."])
    assert [found["8d00"].text(e) for e in found["8d00"].events if e.type == "orchestrator_decision"] == [
        "I read the notes.",
        "She is Ada the Second.",
    ]


def test_the_last_line_alone_is_a_run_with_an_answer() -> None:
    value = {"type": "result", "subtype": "success", "is_error": False, "duration_ms": 5, "duration_api_ms": 5, "result": "Done.",
             "session_id": "s", "request_id": "r", "usage": {"inputTokens": 9, "outputTokens": 2}}  # fmt: skip
    (trace,) = read("cursor", value, file="out.json")
    assert ([trace.text(e) for e in trace.events], logs.tokens(trace)) == (["Done."], {"main": (9, 2)})


def test_a_call_that_was_refused_and_an_agent_that_is_printed() -> None:
    def line(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "session_id": "s", **fields}

    task = {"taskToolCall": {"args": {"description": "Look", "prompt": "Look around.", "subagentType": "explore"}}}
    done = {"taskToolCall": {**task["taskToolCall"], "result": {"success": {"text": "All is well."}}}}
    (trace,) = read(
        "cursor",
        line("system", subtype="init", model="Auto", cwd="/x", apiKeySource="login"),
        line(
            "tool_call", subtype="completed", call_id="a", tool_call={"shellToolCall": {"result": {"rejected": {"reason": "no"}}}}
        ),
        line("tool_call", subtype="started", call_id="b", tool_call=task),
        line("tool_call", subtype="completed", call_id="b", tool_call=done),
        line("assistant", message={"role": "assistant", "content": [{"type": "text", "text": "Fine."}]}),
    )
    assert failures(trace) == [("shell", "no")]
    assert [(e.to, e.role) for e in trace.events if e.type == "spawn"] == [("b", "explore")]
    assert [trace.text(e) for e in trace.events if e.type == "return"] == ["All is well."]


def test_the_editors_database_gives_each_composer_in_the_order_of_its_list(tmp_path: Path) -> None:
    def bubble(name: str, kind: int, **fields: Any) -> tuple[str, str]:
        return f"bubbleId:c1:{name}", json.dumps({"bubbleId": name, "type": kind, **fields})

    tool = {
        "name": "read_file_v2",
        "toolCallId": "t",
        "rawArgs": '{"path": "a"}',
        "status": "error",
        "error": '{"clientVisibleErrorMessage": "gone"}',
    }
    heads = [{"bubbleId": name, "type": kind} for name, kind in (("z", 1), ("y", 2), ("gone", 2), ("x", 2))]
    composer = {"name": "A file", "modelConfig": {"modelName": "gpt-5"}, "fullConversationHeadersOnly": heads}
    rows = [
        ("composerData:c1", json.dumps(composer)),
        ("composerData:empty", json.dumps({"name": "", "fullConversationHeadersOnly": []})),
        bubble("x", 2, text="It is gone.", createdAt="2026-03-02T09:00:02Z", tokenCount={"inputTokens": 50, "outputTokens": 5}),
        bubble("y", 2, text="", toolFormerData=tool, createdAt="2026-03-02T09:00:01Z"),
        bubble("z", 1, text="Read a.", createdAt="2026-03-02T09:00:00Z"),
        ("bubbleId:c1:gone", None),
    ]
    base = sqlite3.connect(tmp_path / "state.vscdb")
    base.execute("CREATE TABLE cursorDiskKV (key TEXT UNIQUE, value BLOB)")
    base.executemany("INSERT INTO cursorDiskKV VALUES (?, ?)", rows)
    base.commit()
    base.close()
    (trace,) = logs.imported("cursor", {"state.vscdb": (tmp_path / "state.vscdb").read_bytes()})
    assert (trace.trace_id, trace.meta["title"], logs.tokens(trace)) == ("c1", "A file", {"main": (50, 5)})
    assert (said(trace), calls(trace), failures(trace)) == (["Read a."], ["read_file_v2"], [("read_file_v2", "gone")])
    assert trace.meta["import"]["lacks"]["messages that the editor has removed"] == 1
    assert trace.meta["models"] == ["gpt-5"]


# -- where they are ----------------------------------------------------------------------------------------------------------


def test_their_sessions_are_found_where_they_keep_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLINE_DIR", "CLINE_DATA_DIR", "CLINE_SESSION_DATA_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "GOOSE_PATH_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CONTINUE_GLOBAL_DIR", str(tmp_path / "other"))
    there = [
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks",
        "Library/Application Support/Cursor/User/globalStorage/rooveterinaryinc.roo-cline/tasks",
        ".cline/data/sessions",
        ".local/share/goose/sessions",
        "other/sessions",
        ".cursor/projects/home-ada-bees/agent-transcripts",
    ]
    for folder in [*there, ".continue/sessions", ".cursor/projects/home-ada-bees/terminals"]:
        (tmp_path / folder).mkdir(parents=True)
    found = {path.relative_to(tmp_path).as_posix(): name for name, path in editor_homes(tmp_path)}
    assert found == dict(zip(there, ["Cline", "Roo Code", "Cline", "Goose", "Continue", "Cursor"], strict=True))
