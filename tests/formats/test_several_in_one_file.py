"""Several sessions that somebody put into one file: each is read as if it had a file of its own, and nothing is mixed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest

import logs
from counterpoint.formats.claude_code.several import SeenRecords
from counterpoint.formats.codex import _MIXED
from counterpoint.formats.importing.files import File, lines_of, part_of
from counterpoint.formats.importing.values import apart
from counterpoint.trace import Trace

CLAUDE = logs.SAMPLES / "claude_code" / "projects"
CODEX = logs.SAMPLES / "codex"


def told(traces: list[Trace]) -> list[tuple[Any, ...]]:
    """What must be the same whichever files the sessions stand in."""
    rows = [(t.trace_id, len(t.events), len(t.members), t.costs.get("tokens"), t.meta.get("resumed_from")) for t in traces]
    return sorted(rows, key=str)


def mains() -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(CLAUDE.glob("*/*.jsonl")) if not p.name.startswith("agent-")}


def threads() -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(CODEX.rglob("rollout-*.jsonl"))}


def one_behind_the_other(files: list[bytes]) -> bytes:
    return b"".join(files)


def backwards(files: list[bytes]) -> bytes:
    return b"".join(reversed(files))


def glued(files: list[bytes]) -> bytes:
    return b"".join(data.rstrip(b"\n") for data in files)


def packed(files: list[bytes]) -> bytes:
    return gzip.compress(b"".join(files))


def interleaved(files: list[bytes]) -> bytes:
    rows = zip_longest(*(data.splitlines(keepends=True) for data in files))
    return b"".join(line for line in chain.from_iterable(rows) if line)


@pytest.mark.parametrize("put", [one_behind_the_other, backwards, packed, interleaved])
@pytest.mark.parametrize("name", ["all.jsonl", "0b000000-0000-4000-8000-00000000000b.jsonl"])
def test_sessions_of_claude_code_are_told_apart_by_what_their_records_state(
    put: Callable[[list[bytes]], bytes], name: str
) -> None:
    files = {key: data for key, data in mains().items() if key[:2] in ("0b", "0c", "0d", "0e")}
    whole = logs.imported("claude_code", files)
    assert len(whole) > 3
    assert told(logs.imported("claude_code", {name: put(list(files.values()))})) == told(whole)


def test_threads_of_codex_are_told_apart_by_their_heads() -> None:
    files = threads()
    whole = logs.imported("codex", files)
    for put in (one_behind_the_other, backwards, packed, glued):
        assert told(logs.imported("codex", {"all.jsonl": put(list(files.values()))})) == told(whole)


def test_mixed_lines_of_codex_are_said_because_they_cannot_be_told_apart() -> None:
    first, second = [data for data in threads().values() if b'"subagent"' not in data and b"session_meta" in data][:2]
    found = logs.sessions("codex", {"all.jsonl": interleaved([first, second])})
    assert {row["what"] for session in found for row in session.report.broken} == {_MIXED}


def test_streams_of_codex_in_one_file_stay_apart() -> None:
    run = (CODEX / "exec" / "run.jsonl").read_bytes()
    (one,) = logs.imported("codex", {"run.jsonl": run})
    other = run.replace(one.trace_id.encode(), b"0199-other")
    traces = logs.imported("codex", {"runs.jsonl": run + other})
    assert [(t.trace_id, len(t.events)) for t in traces] == [(one.trace_id, len(one.events)), ("0199-other", len(one.events))]


def test_a_thread_that_stands_in_a_file_twice_counts_once() -> None:
    run = next(data for data in threads().values() if data.count(b"\n") > 5)
    other = next(data for data in threads().values() if data != run)
    data = {"all.jsonl": run[: run.rfind(b"\n", 0, -1) + 1] + other + run}
    assert told(logs.imported("codex", data)) == told(logs.imported("codex", {"a.jsonl": run, "b.jsonl": other}))


def said(session: str, uuid: str, parent: str | None, text: str, **fields: Any) -> bytes:
    """A line of Claude Code's: a human's words."""
    row = {"type": "user", "sessionId": session, "uuid": uuid, "parentUuid": parent, "timestamp": f"2026-01-01T00:00:{uuid[-2:]}Z"}
    return json.dumps({**row, "message": {"role": "user", "content": text}, **fields}).encode() + b"\n"


def test_a_session_that_goes_on_under_another_id_stays_one() -> None:
    lines = [said("old", "u01", None, "one"), said("old", "u02", "u01", "two"), said("new", "u03", "u02", "three")]
    (trace,) = logs.imported("claude_code", {"x.jsonl": b"".join(lines)})
    assert (trace.trace_id, [trace.text(e) for e in trace.events]) == ("old", ["one", "two", "three"])
    # After a compaction the parent is only named as the logical one.
    lines[2] = said("new", "u03", None, "three", logicalParentUuid="u02")
    (trace,) = logs.imported("claude_code", {"x.jsonl": b"".join(lines)})
    assert len(trace.events) == 3


def test_who_only_leaves_notes_in_a_file_is_no_session_of_it() -> None:
    note = b'{"type": "queue-operation", "operation": "enqueue", "sessionId": "b", "timestamp": "2026-01-01T00:00:00Z"}\n'
    (trace,) = logs.imported("claude_code", {"x.jsonl": said("a", "u01", None, "one") + note + said("a", "u02", "u01", "two")})
    assert (len(trace.events), trace.meta["left_out"]) == (2, {"queue-operation": 1})


def test_what_states_no_session_goes_with_the_record_it_names_or_with_the_next() -> None:
    lines = [
        b'{"type": "summary", "summary": "of A", "leafUuid": "elsewhere"}\n',
        said("a", "u01", None, "one"),
        b"torn {\n",
        b'{"type": "file-history-snapshot", "messageId": "u01", "snapshot": {}}\n',
        b'{"type": "summary", "summary": "of B", "leafUuid": "elsewhere"}\n',
        said("b", "u02", None, "two"),
    ]
    a, b = logs.sessions("claude_code", {"x.jsonl": b"".join(lines)})
    (first,), (second,) = (list(logs.importer("claude_code").read_session(s)) for s in (a, b))
    assert (first.meta["titles"], second.meta["titles"]) == (["of A"], ["of B"])
    assert first.meta["left_out"] == {"summary": 1, "file-history-snapshot": 1}
    # Lines keep the numbers that they have in the file.
    assert (a.report.broken_count, [(r["file"], r["line"]) for r in b.report.broken]) == (0, [("x.jsonl", 3)])


def test_the_lines_of_a_part_keep_their_numbers() -> None:
    file = File.of(b'{"a": 1}{"b": 2}\n\n{"b": 3}\n{"a": 4}\n{"a": 5}', "x.jsonl")
    lines = list(lines_of(file))
    for letter, expected in ((b"a", [(1, 1), (4, 4), (5, 5)]), (b"b", [(1, 2), (3, 3)])):
        part = part_of(file, "p", [place for place, data in lines if letter in data])
        assert [(number, next(iter(json.loads(line).values()))) for number, line in part.lines() if line] == expected
        assert part.head(4) == part.data()[:4]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"a":1}{"b":2}\n', [b'{"a":1}', b'{"b":2}\n']),
        (b'{"a":"}{"}{"b":2}{"c":', [b'{"a":"}{"}', b'{"b":2}', b'{"c":']),
        (b'{"a":"}{"}\n', [b'{"a":"}{"}\n']),
        (b"torn }{ words", [b"torn }{ words"]),
    ],
)
def test_records_on_one_line_are_read_apart(line: bytes, found: list[bytes]) -> None:
    assert apart(line) == found


@pytest.mark.shared
def test_real_sessions_in_one_file_are_what_they_are_in_their_own() -> None:
    for name, folder in (("claude_code", logs.real("claude_code", "claude-code-log_real_projects")), ("codex", logs.real("codex"))):
        paths = [p for p in sorted(folder.rglob("*.jsonl")) if "subagents" not in Path(p).parts and "agent-" not in p.name]
        files = {f"{k}-{p.name}": p.read_bytes() for k, p in enumerate(paths)}
        data = b"".join(files.values()) if name == "codex" else b"\n".join(files.values())
        assert told(logs.imported(name, {"all.jsonl": data})) == told(logs.imported(name, files))


@pytest.mark.parametrize("lets_go", [False, True])
def test_a_copy_is_a_record_that_says_the_same_under_the_same_uuid(lets_go: bool) -> None:
    seen = SeenRecords()
    first = {"type": "user", "sessionId": "s1", "message": {"role": "user", "content": "go"}}
    named = [seen.name_of("u1", first)]
    if lets_go:
        seen.let_go(more_come=True)
    copy, other = {**first, "sessionId": "s2"}, {**first, "message": {"role": "user", "content": "stop"}}
    named += [seen.name_of("u1", one) for one in (copy, other, other, first)]
    assert named == ["u1", None, "u1~2", None, None]
    assert seen.name_of("u2", first) == "u2"
