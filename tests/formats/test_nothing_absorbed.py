"""What a log says and no trace can hold is counted and said: numbers, bytes and ids that cannot be what they claim to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import logs
from counterpoint.app.discover import find
from counterpoint.app.import_account import Account
from counterpoint.app.import_logs import import_sessions
from counterpoint.formats.importing.report import ODD_COUNTS
from counterpoint.formats.importing.values import is_utf8
from counterpoint.trace import Trace

ODD = [-5, 1e30, 10**40, 2.5, "many", True]
SHARED = "records that share the uuid of another and differ: kept under another"
BYTES = "records with bytes that are not UTF-8: read as U+FFFD"


def record(uuid: str, text: str, *, session: str = "s", kind: str = "assistant", usage: Any = None, **fields: Any) -> dict[str, Any]:
    """A record of Claude Code's, of a message of its own."""
    message = {"role": kind, "content": text, **({"id": f"m-{text}", "model": "m", "usage": usage} if kind == "assistant" else {})}
    at = f"2026-01-01T00:00:{len(text):02}Z"
    return {"type": kind, "sessionId": session, "uuid": uuid, "parentUuid": None, "timestamp": at, "message": message, **fields}


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in records)


def account(data: bytes, tmp_path: Path) -> Account:
    (tmp_path / "log.jsonl").write_bytes(data)
    total = Account()
    for outcome in import_sessions(find([tmp_path]).sessions, None):
        total.add(outcome)
    return total


def texts(trace: Trace) -> list[str | None]:
    return [trace.text(e) for e in trace.events]


@pytest.mark.parametrize("odd", ODD)
def test_a_count_of_tokens_that_is_none_is_said(odd: Any, tmp_path: Path) -> None:
    usage = {"input_tokens": 10, "output_tokens": odd, "cache_read_input_tokens": 5}
    found = account(lines(record("u1", "hello", usage=usage)), tmp_path)
    assert (found.tokens, found.odd_counts, found.without_usage) == (15, 1, 0)
    assert found.as_dict()["tokens"]["counts_left_out"] == 1


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_total_of_codex_is_said_and_counts_nothing_twice(odd: Any) -> None:
    def total(tokens: Any) -> dict[str, Any]:
        info = {"total_token_usage": {"input_tokens": tokens, "output_tokens": 5}}
        return {"type": "event_msg", "payload": {"type": "token_count", "info": info}}

    def answer(text: str) -> dict[str, Any]:
        item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        return {"type": "response_item", "payload": item}

    head = {"type": "session_meta", "payload": {"id": "t", "timestamp": "2026-01-01T00:00:00Z"}}
    rows = [head, answer("a"), total(100), answer("b"), total(odd), answer("c"), total(300)]
    data = lines(*({"timestamp": f"2026-01-01T00:00:0{k}Z", **row} for k, row in enumerate(rows)))
    (trace,) = logs.imported("codex", {"rollout-t.jsonl": data})
    assert logs.tokens(trace) == {"t": (300, 5)}
    assert trace.meta["import"]["lacks"][ODD_COUNTS] == 1
    assert "mended" not in trace.meta["import"]


@pytest.mark.parametrize("name", ["gen_ai.usage.output_tokens", "llm.token_count.completion"])
def test_an_odd_count_on_a_span_is_said(name: str) -> None:
    other = name.replace("output", "input").replace("completion", "prompt")
    value = {other: {"intValue": "7"}, name: {"doubleValue": -5.0}, "openinference.span.kind": {"stringValue": "LLM"}}
    span = {"traceId": "1" * 32, "spanId": "a" * 16, "name": "x", "attributes": [{"key": k, "value": v} for k, v in value.items()]}
    data = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    (session,) = logs.sessions("otel", {"x.json": data})
    (trace,) = logs.importer("otel").read_session(session)
    assert (logs.tokens(trace), session.report.lacks[ODD_COUNTS]) == ({"main": (7, 0)}, 1)


def test_bytes_that_are_no_text_are_counted(tmp_path: Path) -> None:
    data = lines(record("u1", "hello", kind="user"), record("u2", "there", kind="user")).replace(b"hello", b"h\xe9llo")
    found = account(data, tmp_path)
    assert (found.report.mended, found.report.records) == ({BYTES: 1}, 2)
    (session,) = logs.sessions("who_and_when", {"x.json": b'{"history": [], "question": "\xe9", "ground_truth": "", "mistake_step": 0}'})
    list(logs.importer("who_and_when").read_session(session))
    assert session.report.mended[BYTES] == 1


def test_text_is_utf8_wherever_it_is_cut() -> None:
    assert is_utf8(b"a" + "é".encode() * (1 << 20))
    assert not is_utf8("é".encode() * (1 << 20) + b"\xc3")
    assert not is_utf8(b"\xe9")


def test_records_of_one_uuid_that_differ_are_kept_and_copies_are_not() -> None:
    first, second, third = (record("u", text, kind="user") for text in ("a", "bb", "ccc"))
    copy = {**second, "sessionId": "s", "timestamp": "2026-01-01T00:01:00Z", "cwd": "/elsewhere"}
    (session,) = logs.sessions("claude_code", {"x.jsonl": lines(first, second, third, copy, dict(reversed(first.items())))})
    (trace,) = logs.importer("claude_code").read_session(session)
    logs.assert_sound(trace)
    assert texts(trace) == ["a", "bb", "ccc"]
    assert (session.report.mended[SHARED], trace.meta["import"]["mended"]["copied records"]) == (2, 2)


def test_a_resumed_session_still_counts_what_it_copied_once() -> None:
    before = [record("u1", "a", kind="user"), record("u2", "bb", usage={"input_tokens": 3, "output_tokens": 4})]
    after = [{**one, "sessionId": "t", "version": "2"} for one in before] + [record("u3", "ccc", kind="user", session="t")]
    first, second = logs.imported("claude_code", {"s.jsonl": lines(*before), "t.jsonl": lines(*after)})
    assert (texts(first), texts(second), second.meta["resumed_from"]) == (["a", "bb"], ["ccc"], "s")
