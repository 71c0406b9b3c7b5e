"""OpenAI Agents SDK: batches of traces and spans, agents as tools, handoffs, guardrails."""

from __future__ import annotations

import json

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.trace import Trace

FILE = logs.SAMPLES / "openai_agents" / "lunch.jsonl"


def sample() -> list[Trace]:
    return logs.imported("openai_agents", logs.files_of(FILE))


def test_the_team() -> None:
    lunch, tea = sample()
    assert [(e.id.removeprefix("span_"), e.type, e.agent.removeprefix("span_"), e.role) for e in lunch.events] == [
        ("g1", "message", "guardrail", "system"),
        ("r1", "orchestrator_decision", "host", "host"),
        ("cook", "spawn", "host", "cook"),
        ("r2", "message", "cook", "cook"),
        ("p1", "tool_call", "cook", "cook"),
        ("p1:result", "tool_result", "cook", "cook"),
        ("p2", "tool_call", "cook", "cook"),
        ("p2:result", "tool_result", "cook", "cook"),
        ("r3", "return", "cook", "cook"),
        ("r4", "orchestrator_decision", "host", "host"),
        ("h1", "message", "host", "host"),
        ("g2", "safety_event", "waiter", "waiter"),
        ("r5", "message", "waiter", "waiter"),
        ("h2", "message", "waiter", "waiter"),
    ]
    assert (lunch.events[2].to, lunch.events[8].to, lunch.events[10].to) == ("span_cook", "span_host", "span_waiter")
    assert [e.type for e in tea.events] == ["orchestrator_decision"]


def test_tokens_stand_once_though_turns_sum_them_and_an_item_came_twice() -> None:
    lunch, tea = sample()
    assert logs.tokens(lunch) == {"span_host": (220, 24), "span_cook": (145, 17), "span_waiter": (70, 12)}
    assert logs.tokens(tea) == {"span_tea": (5, 2)}
    (call,) = [e for e in lunch.events if e.id == "span_r2"]
    assert call.extra is not None
    assert call.extra["tokens_cache_read"] == 20
    assert call.model == "gpt-4.1"


def test_links_guardrails_trust_and_failures() -> None:
    lunch, _ = sample()
    links = lunch.meta["import"]["links"]
    assert links == {"exact": {"an agent span inside its caller's": 1, "a handoff span": 1}, "unlinked": 1}
    verdicts = [e.extra["verdict"] for e in lunch.events if e.type == "safety_event" and e.extra]
    assert verdicts == ["triggered"]
    good, bad = [e for e in lunch.events if e.type == "tool_result"]
    assert (good.ok, good.trusted, lunch.text(good)) == (True, False, "leeks, potatoes")
    assert (bad.ok, bad.error) == (False, "no such shelf")


def test_what_was_broken_unknown_and_lacking() -> None:
    (session,) = logs.sessions("openai_agents", logs.files_of(FILE))
    list(logs.importer("openai_agents").read_session(session))
    assert (session.report.broken_count, session.report.broken[0]["line"]) == (1, 2)
    assert session.report.unknown == {"telepathy": 1}
    assert session.report.lacks["what response spans said: they hold only an id"] == 5  # four, and one told twice


def test_one_document_a_list_and_lines_are_the_same() -> None:
    items = []
    for line in FILE.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        items += record.get("data", [record])
    shapes = [{"data": items}, items, [{"data": items[:4]}, {"data": items[4:]}]]
    want = [(e.id, e.type, e.t) for trace in sample() for e in trace.events]
    for shape in shapes:
        for indent in (None, 1):
            found = logs.imported("openai_agents", {"x.json": json.dumps(shape, indent=indent).encode()})
            assert [(e.id, e.type, e.t) for trace in found for e in trace.events] == want


def test_a_session_that_grows_keeps_its_ids() -> None:
    whole = {e.id for trace in sample() for e in trace.events}
    lines = FILE.read_bytes().splitlines(keepends=True)
    for n in range(1, len(lines)):
        part = {e.id for trace in logs.imported("openai_agents", {"x.jsonl": b"".join(lines[:n])}) for e in trace.events}
        assert part
        assert part - whole <= {"span_turn1:output"}, "the end of a turn stands for the call that reads, until that is told"


def test_spans_without_their_trace_are_read() -> None:
    found = [json.loads(line) for line in FILE.read_text().splitlines()[-2:]]
    (trace,) = logs.imported("openai_agents", {"x.json": json.dumps({"data": found}).encode()})
    assert logs.tokens(trace) == {"span_tea": (5, 2)}
    assert "lacks" not in trace.meta["import"]


@pytest.mark.parametrize(
    "data", [b'{"data": []}', b'{"object": "trace", "workflow_name": 3}', b'{"object": "trace.span", "span_data": {}}']
)
def test_bad_input_is_an_input_error(data: bytes) -> None:
    read = logs.importer("openai_agents").read
    assert read is not None
    with pytest.raises(InputError):
        list(read(data))


def test_it_knows_its_own_files_only() -> None:
    sniff = logs.importer("openai_agents").sniff
    assert sniff(FILE.read_bytes())
    for name in ("langfuse", "langsmith", "trail", "openinference"):
        assert not any(sniff(file.head()) for file in logs.files_of(logs.SAMPLES / name)), name


@pytest.mark.shared
def test_spans_of_other_instrumentations_are_left_to_theirs() -> None:
    owners = {"openai_agents_genai_live_spans.json": False, "openai_agents_openinference_adot_spans.json": True}
    for file in logs.files_of(logs.real("openai_agents")):
        assert not logs.importer("openai_agents").sniff(file.head())
        assert logs.importer("openinference").sniff(file.head()) is owners[file.name]
