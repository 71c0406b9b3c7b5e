"""Codex: samples of every shape, exact to the event; the real trees against counts made from their raw records."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

import logs
from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.formats.codex.rollout import result_of
from counterpoint.formats.importer import Importer
from counterpoint.trace import Trace

SAMPLES = logs.SAMPLES / "codex"
ROOT, ADA, BEE, CY = (
    "01960000-0000-7000-8000-000000000000",
    "01960000-1111-7000-8000-00000000000a",
    "01960000-2222-7000-8000-00000000000b",
    "01960000-3333-7000-8000-00000000000c",
)
ROOT2, FERN, GUARD = (
    "01970000-0000-7000-8000-000000000000",
    "01970000-2000-7000-8000-00000000000f",
    "01970000-1000-7000-8000-000000000009",
)


def sample(part: str) -> Trace:
    (trace,) = logs.imported("codex", logs.files_of(SAMPLES / part))
    return trace


def about(trace: Trace) -> dict[str, Any]:
    found: dict[str, Any] = trace.meta["import"]
    return found


def edges(trace: Trace, kind: str) -> set[tuple[str, str]]:
    return {(e.src, e.dst) for e in trace.edges if e.type == kind}


def by_id(trace: Trace) -> dict[str, Any]:
    return {e.id: e for e in trace.events}


# -- the first kind of team ----------------------------------------------------------------------------------------------


def test_a_tree_of_the_first_kind() -> None:
    trace = sample("v1")
    assert (trace.trace_id, trace.topology, trace.system) == (ROOT, "centralized", "codex")
    assert logs.kinds(trace) == {
        "human_intervention": 3,
        "orchestrator_decision": 10,
        "aggregate": 1,
        "tool_call": 7,
        "tool_result": 7,
        "spawn": 5,
        "message": 2,
        "return": 4,
        "despawn": 1,
        "safety_event": 1,
    }
    assert {e.agent for e in trace.events} == {ROOT, ADA, BEE, CY, "user", "memory"}
    assert logs.tokens(trace) == {ROOT: (16500, 360), ADA: (1800, 45), BEE: (900, 30)}
    assert about(trace)["links"] == {"exact": {"the spawn's answer names the thread": 3}, "unlinked": 1}
    assert about(trace)["unknown"] == {"event_msg/mystery_event": 1, "mystery": 1}
    assert [(b["line"], b["what"][:11]) for b in about(trace)["session"]["broken_first"]] == [(24, "is not JSON")]


def test_a_spawn_counts_as_made_only_where_a_thread_was() -> None:
    spawns = {e.id: (e.to, e.role, e.ok) for e in sample("v1").events if e.type == "spawn"}
    assert spawns == {
        "call_s0": (None, "worker", False),
        "call_sa": (ADA, "worker", None),
        "call_sb": (BEE, "explorer", None),
        "call_sc": (CY, "explorer", None),
        "call_sd": (None, "worker", False),
    }
    assert by_id(sample("v1"))["call_sd"].error == "collab spawn failed: agent thread limit reached (max 6)"


def test_a_return_that_is_told_three_times_is_heard_once() -> None:
    trace = sample("v1")
    events = by_id(trace)
    returns = [(e.agent, trace.contents[e.content_ref or ""]) for e in trace.events if e.type == "return"]
    assert returns == [(ADA, "Renamed."), (BEE, "The guide holds."), (ADA, "Import fixed."), (CY, "No other readers.")]
    heard = [(events[s].agent, events[d].agent) for s, d in edges(trace, "aggregate") | edges(trace, "return")]
    assert Counter(heard) == {(ADA, ROOT): 2, (BEE, ROOT): 1, (CY, ROOT): 1}
    assert {events[d].type for _, d in edges(trace, "aggregate")} == {"aggregate"}


def test_a_message_is_heard_when_it_comes_in_and_a_task_is_no_human() -> None:
    trace = sample("v1")
    events = by_id(trace)
    assert [(e.from_, e.to) for e in trace.events if e.id == "call_m1"] == [(ROOT, ADA)]
    (reader,) = [d for s, d in edges(trace, "message") if s == "call_m1"]
    assert (events[reader].type, trace.contents[events[reader].content_ref]) == ("return", "Import fixed.")
    said = [trace.contents[e.content_ref or ""] for e in trace.events if e.type == "human_intervention"]
    assert said == ["Rename the parser and check the guide.", "turn aborted: interrupted", "Just finish."]
    assert all(e.to == ROOT for e in trace.events if e.type == "human_intervention")


def test_trust_and_refusal() -> None:
    trace = sample("v1")
    trust = {(e.type, e.source): e.trusted for e in trace.events if e.source}
    assert trust[("tool_result", "tool")] is False
    assert trust[("tool_result", "peer")] is True
    assert trust[("message", "memory")] is False
    assert trust[("human_intervention", "user")] is True
    (refusal,) = [e for e in trace.events if e.type == "safety_event"]
    assert (refusal.agent, refusal.source, refusal.ok) == (BEE, "user", True)
    assert ("call_rm:result", "call_rm:refused") in edges(trace, "causal")
    hidden = [e for e in trace.events if e.tool == "web_search" and e.type == "tool_result"]
    assert [(e.trusted, e.content_ref) for e in hidden] == [(False, None)]
    assert {s for s, _ in edges(trace, "safety_flow")} >= {hidden[0].id, "call_ls:result"}


def test_whether_a_call_worked() -> None:
    calls = {e.id: e.ok for e in sample("v1").events if e.type == "tool_call" and e.id.startswith("call_")}
    assert calls == {"call_ls": True, "call_w1": None, "call_mv": True, "call_rm": None, "call_w2": None, "call_p1": True}


def ran(code: int, output: str = "") -> dict[str, Any]:
    """What the tool returns for a command that a cell ran."""
    return {"chunk_id": "98808a", "wall_time_seconds": 0, "exit_code": code, "original_token_count": 3, "output": output}


@pytest.mark.parametrize(
    ("shown", "ok"),
    [
        (json.dumps(ran(0)), True),
        (json.dumps(ran(128, "fatal: Unable to create '.git/index.lock'")), False),
        (json.dumps([ran(0), ran(2)]), False),
        # What a command prints is not how it ended.
        (json.dumps(ran(0, json.dumps(ran(1)))), True),
        ("exit code: 1 is what the manual says", True),
        ('the log has {"chunk_id":"1","wall_time_seconds":0,"exit_code":1}', True),
        ('{"chunk_id": "torn', True),
        ('{"exit_code": 1}', True),
    ],
)
def test_a_cell_worked_only_where_its_commands_did(shown: str, ok: bool) -> None:
    shown = shown.replace('"chunk_id": ', '"chunk_id":')
    parts = [{"type": "input_text", "text": text} for text in ("Script completed\nWall time 0.1 seconds\nOutput:\n", shown)]
    assert result_of(parts)[1] is ok
    failed = [{**parts[0], "text": "Script failed\nWall time 0.1 seconds\nOutput:\n"}, parts[1]]
    assert result_of(failed)[1] is False
    assert result_of("apply_patch verification failed: Failed to find expected lines in a.py")[1] is False
    assert result_of("notes: apply_patch verification failed")[1] is None  # a file may hold the same words


def test_a_growing_log_keeps_its_ids() -> None:
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "v1")}
    whole = {e.id: e.agent for e in sample("v1").events}
    for second in range(2, 66, 2):
        until = f"2026-04-01T10:{second // 60:02d}:{second % 60:02d}".encode()
        grown = {n: b"".join(x for x in d.splitlines(True) if x.split(b'"')[3] < until) for n, d in files.items()}
        (trace,) = logs.imported("codex", grown)
        assert {e.id: e.agent for e in trace.events}.items() <= whole.items(), second


def test_the_form_without_team_events_gives_the_same_links() -> None:
    """Later versions write the calls and nothing else."""
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "v1")}
    plain = {name: b"".join(x for x in data.splitlines(True) if b'"collab_' not in x) for name, data in files.items()}
    (trace,) = logs.imported("codex", plain)
    known = sample("v1")
    assert [(e.type, e.agent, e.to) for e in trace.events] == [(e.type, e.agent, e.to) for e in known.events]
    assert about(trace)["links"] == about(known)["links"]


def test_a_spawn_that_names_nobody_is_found_by_its_task() -> None:
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "v1")}
    gone = re.compile(rb'"collab_agent_spawn_end"|"call_id": "call_sa", "output"')
    bare = {name: b"".join(x for x in data.splitlines(True) if not gone.search(x)) for name, data in files.items()}
    (trace,) = logs.imported("codex", bare)
    assert about(trace)["links"]["inferred"] == {"same task": 1}
    assert by_id(trace)["call_sa"].to == ADA


def test_a_child_without_its_parent_is_a_loose_trace_of_its_own() -> None:
    files = [f for f in logs.files_of(SAMPLES / "v1") if ROOT not in f.name]
    found = {t.trace_id: t for t in logs.imported("codex", files)}
    assert set(found) == {ADA, BEE}
    trace = found[ADA]
    assert about(trace)["unlinked_first"] == [f"agent {ADA} (thread_spawn): the log of its parent {ROOT} is not here"]
    assert logs.kinds(trace) == {"message": 2, "tool_call": 1, "tool_result": 1, "return": 2}
    assert {(e.agent, e.source) for e in trace.events if e.type == "message"} == {(ROOT, "peer")}


def test_packed_and_older_copies_of_a_thread() -> None:
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "v1")}
    root = next(name for name in files if ROOT in name)
    packed = zstandard.ZstdCompressor().compress(files[root])
    early = b"".join(files[root].splitlines(keepends=True)[:20])
    others = {name: data for name, data in files.items() if name != root}
    (trace,) = logs.imported("codex", {**others, root + ".zst": packed, "snapshot.jsonl": early})
    assert [e.id for e in trace.events] == [e.id for e in sample("v1").events]
    assert about(trace)["mended"] == {"older copies of a thread: left out": 1}
    other = b"".join(x for x in early.splitlines(keepends=True) if b'"spawn_agent"' not in x)
    (trace,) = logs.imported("codex", {**files, "reverted.jsonl": other})
    assert about(trace)["mended"] == {"other versions of a thread, which went another way: left out": 1}


# -- the second kind of team ---------------------------------------------------------------------------------------------


def test_a_tree_of_the_second_kind() -> None:
    trace = sample("v2")
    assert logs.kinds(trace) == {
        "human_intervention": 3,
        "orchestrator_decision": 8,
        "tool_call": 6,
        "tool_result": 5,
        "spawn": 1,
        "message": 4,
        "return": 1,
        "safety_event": 2,
    }
    # The fork's totals go on from 6500 in and 100 out of its parent; the root's begin anew after its compaction.
    assert logs.tokens(trace) == {ROOT2: (17500, 245), FERN: (2100, 70), GUARD: (650, 30)}
    assert {e.agent: e.role for e in trace.events if e.agent in (ROOT2, FERN, GUARD)} == {
        ROOT2: "root",
        FERN: "log_review",
        GUARD: "guardian",
    }
    assert about(trace)["lacks"] == {"the text of messages between agents: it is encrypted": 2}
    assert about(trace)["mended"] == {"token totals that restart": 1}


def test_encrypted_mail_links() -> None:
    trace = sample("v2")
    (spawn,) = [e for e in trace.events if e.type == "spawn"]
    assert (spawn.to, spawn.role, (spawn.extra or {})["path"]) == (FERN, "log_review", "/root/log_review")
    assert ("call_s1", "call_f1") in edges(trace, "spawn")
    assert ("call_f2", "msg_1") in edges(trace, "message")
    assert ("msg_f1", "msg_1") in edges(trace, "return")
    assert by_id(trace)["call_f2"].to == ROOT2


def test_a_fork_does_not_repeat_what_it_copied() -> None:
    trace = sample("v2")
    texts = Counter(trace.contents[e.content_ref] for e in trace.events if e.content_ref and e.type == "human_intervention")
    assert texts["Is the changelog complete?"] == 1
    assert all((e.at or 0) >= 1782896420 for e in trace.events if e.agent == FERN)


def test_refusals_are_safety_events_on_the_call_they_are_about_and_approvals_are_not() -> None:
    trace = sample("v2")
    verdicts = [e for e in trace.events if e.agent == GUARD]
    assert [(e.type, e.to, e.ok, (e.extra or {}).get("risk_level")) for e in verdicts] == [
        ("message", ROOT2, True, None),
        ("safety_event", ROOT2, True, "high"),
    ]
    assert (verdicts[1].extra or {})["outcome"] == "deny"
    causal = edges(trace, "causal")
    assert {("call_g1", "msg_g1"), ("msg_g1", "call_g1:result"), ("call_g2", "msg_g2"), ("msg_g2", "call_g2:result")} <= causal
    assert about(trace)["links"]["inferred"] == {"the reviewed action is the call's": 2}
    asked = [e for e in trace.events if e.agent == "codex"]
    assert [(e.source, e.trusted) for e in asked] == [("system", False)] * 2


def test_a_guardian_alone_still_gives_its_verdicts() -> None:
    files = [f for f in logs.files_of(SAMPLES / "v2") if GUARD in f.name]
    (trace,) = logs.imported("codex", files)
    assert logs.kinds(trace) == {"message": 3, "safety_event": 1}
    assert about(trace)["links"] == {"unlinked": 1}
    (root,) = [t for t in logs.imported("codex", logs.files_of(SAMPLES / "v2")) if GUARD in t.agents]
    assert trace.meta["parent_session"] == root.trace_id, "the session that it was made for"
    assert "parent_session" not in root.meta


def test_code_cells_compaction_and_rollback() -> None:
    trace = sample("v2")
    nested = by_id(trace)["exec-0001"]
    assert (nested.tool, nested.extra) == ("web_search", {"is_nested": True})
    (compacted,) = [e for e in trace.events if (e.extra or {}).get("is_compaction")]
    assert (compacted.tokens_in, compacted.dur) == (2700, None)
    assert [(e.extra or {}).get("turns_rolled_back") for e in trace.events if e.type == "human_intervention"] == [None, 1, None]


def fork(**changes: Any) -> list[dict[str, Any]]:
    """The records of the forked thread, its head changed."""
    (file,) = [f for f in logs.files_of(SAMPLES / "v2") if FERN in f.name]
    records = [json.loads(line) for line in file.data().splitlines()]
    records[0]["payload"].update(changes)
    return records


def with_fork(records: list[dict[str, Any]]) -> Trace:
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "v2") if FERN not in f.name}
    (trace,) = logs.imported("codex", {**files, "fork.jsonl": b"\n".join(json.dumps(r).encode() for r in records)})
    return trace


def test_numbered_lines_say_where_a_copy_ends() -> None:
    records = fork(subagent_history_start_ordinal=11, history_mode="paginated")
    for k, record in enumerate(records):
        record["ordinal"] = k
        if record["payload"].get("turn_id") == "01970000-2001-7000-8000-00000000000a":
            record["payload"]["turn_id"] = "not-a-uuid"
    assert logs.tokens(with_fork(records))[FERN] == (2100, 70)


def test_where_nothing_says_so_the_time_of_the_lines_does() -> None:
    records = [r for r in fork() if r["payload"].get("type") != "task_started"]
    trace = with_fork(records)
    assert logs.tokens(trace)[FERN] == (2100, 70)
    assert about(trace)["lacks"]["where a copied history ends: taken from the time of its lines"] == 1


def test_a_thread_that_a_human_forked_is_in_the_tree_and_leads() -> None:
    records = fork(source="cli", parent_thread_id=None, thread_source="user", agent_path=None, agent_nickname=None)
    trace = with_fork(records)
    assert about(trace)["links"]["exact"]["the fork thread names its parent"] == 1
    assert [e.type for e in trace.events if e.id == "msg_f1"] == ["orchestrator_decision"]


def test_a_review_returns_when_the_thread_that_asked_for_it_says_so() -> None:
    records = fork(source={"subagent": "review"}, forked_from_id=None, agent_path=None, agent_nickname=None)
    records = records[:1] + [r for r in records[11:] if r["payload"].get("type") != "agent_message"]
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "v2") if FERN not in f.name}
    root = next(name for name in files if ROOT2 in name)
    lines = [x for x in files[root].splitlines(True) if b'"agent_message"' not in x and b"call_s1" not in x]
    where = next(k for k, x in enumerate(lines) if b'"msg_1"' in x)
    lines.insert(where, b'{"timestamp":"2026-07-01T09:00:41Z","type":"event_msg","payload":{"type":"exited_review_mode"}}\n')
    files[root], files["review.jsonl"] = b"".join(lines), b"\n".join(json.dumps(r).encode() for r in records)
    (trace,) = logs.imported("codex", files)
    assert edges(trace, "return") == {("msg_f1", "msg_1")}
    assert by_id(trace)["msg_f1"].role == "review"
    assert about(trace)["links"]["exact"] == {"the guardian thread names its parent": 1, "the review thread names its parent": 1}


def test_paginated_items_name_the_agent_and_the_human() -> None:
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "v2")}
    root = next(name for name in files if ROOT2 in name)
    records = [json.loads(x) for x in files[root].splitlines()]
    for record in records:
        told = record["payload"]
        if told.get("type") == "user_message":
            item = {"type": "UserMessage", "id": "u", "content": [{"type": "text", "text": told["message"]}]}
            record["payload"] = {"type": "item_completed", "item": item}
        elif told.get("type") == "sub_agent_activity":
            item = {**told, "type": "SubAgentActivity", "id": told["event_id"]}
            record["payload"] = {"type": "item_completed", "item": item}
    (trace,) = logs.imported("codex", {**files, root: b"\n".join(json.dumps(r).encode() for r in records)})
    assert [(e.id, e.type, e.to) for e in trace.events] == [(e.id, e.type, e.to) for e in sample("v2").events]


# -- other shapes --------------------------------------------------------------------------------------------------------


def test_logs_from_before_the_envelope() -> None:
    found = {t.trace_id[-1]: t for t in logs.imported("codex", logs.files_of(SAMPLES / "older"))}
    assert [e.type for e in found["2"].events] == ["human_intervention", "orchestrator_decision"]
    plain = found["1"]
    assert [e.type for e in plain.events][:4] == ["human_intervention", "orchestrator_decision", "tool_call", "tool_result"]
    assert {e.id: e.ok for e in plain.events if e.type == "tool_call"} == {"call_q1": True, "call_q2": None}
    assert about(plain)["lacks"] == {"timestamps: t counts events": 1}


def test_what_exec_prints() -> None:
    trace = sample("exec")
    assert logs.kinds(trace) == {
        "orchestrator_decision": 2,
        "tool_call": 3,
        "tool_result": 3,
        "safety_event": 1,
        "spawn": 1,
        "return": 1,
        "despawn": 1,
    }
    assert list(logs.tokens(trace).values()) == [(5000, 120)]
    assert about(trace)["links"]["unlinked"] == 1


def test_a_bundle() -> None:
    trace = sample("bundle")
    root, child = "01990000-0000-7000-8000-000000000000", "01990000-1000-7000-8000-000000000001"
    assert [e.type for e in trace.events] == [
        "human_intervention",
        "orchestrator_decision",
        "spawn",
        "tool_call",
        "tool_call",
        "tool_result",
        "return",
        "orchestrator_decision",
    ]
    assert logs.tokens(trace) == {root: (1600, 40), child: (460, 25)}
    spawn = by_id(trace)["call-1"]
    assert (spawn.to, spawn.role) == (child, "worker")
    assert edges(trace, "spawn") == {("call-1", "call-2"), ("call-1", "tool-2")}
    assert edges(trace, "return") == {("inf-3", "inf-4")}
    assert about(trace) == {"links": {"exact": {"the spawn's answer names the thread": 1}}}


def test_the_edges_of_a_reduced_bundle_name_who_was_spawned() -> None:
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "bundle")}
    lines = [
        x for x in files["trace.jsonl"].splitlines(True) if b"tool_call_runtime_ended" not in x and b'"tool-1", "status"' not in x
    ]
    without = {**files, "trace.jsonl": b"".join(lines)}
    (trace,) = logs.imported("codex", without)
    assert by_id(trace)["call-1"].to == "01990000-1000-7000-8000-000000000001"
    del without["state.json"]
    (trace,) = logs.imported("codex", without)
    assert by_id(trace)["call-1"].to is None


def test_payloads_that_are_missing_cost_their_text_only() -> None:
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "bundle") if not f.name.startswith("payloads/1")}
    (trace,) = logs.imported("codex", files)
    assert about(trace)["lacks"]["payloads that the bundle names and does not hold"] == sum(
        f.name.startswith("payloads/1") for f in logs.files_of(SAMPLES / "bundle")
    )


def test_it_knows_its_own_files_and_no_others() -> None:
    codex = logs.importer("codex")
    mine = list(logs.files_of(SAMPLES))
    assert all(codex.sidecar(f.name) or codex.sniff(f.head()) for f in mine)
    for name in registry.ids("format"):
        other = registry.get("format", name)
        if isinstance(other, Importer) and name != "codex":
            taken = [f.name for f in mine if other.sniff(f.head()) and other.rank >= codex.rank and not codex.sidecar(f.name)]
            assert taken == [], name
    others = [f for f in logs.files_of(logs.SAMPLES) if not f.name.startswith("codex/")]
    assert [f.name for f in others if codex.sidecar(f.name) or codex.sniff(f.head())] == []


def test_a_first_line_longer_than_what_is_sniffed() -> None:
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "v1")}
    root = next(name for name in files if ROOT in name)
    longer = files[root].replace(b"You are a coding agent.", b"x" * 200_000, 1)
    (trace,) = logs.imported("codex", {**files, root: longer})
    assert trace.trace_id == ROOT


@pytest.mark.parametrize(
    "line",
    [
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": 3}},
        {"type": "response_item", "payload": {"type": "function_call", "name": 4, "arguments": {"a": 1}, "call_id": None}},
        {"type": "response_item", "payload": {"type": "function_call", "name": "spawn_agent", "arguments": "[", "call_id": "s"}},
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": ["x"], "output": None}},
        {"type": "response_item", "payload": {"type": "agent_message", "author": 1, "recipient": {}, "content": "hello"}},
        {"type": "event_msg", "payload": {"type": "token_count", "info": {"total_token_usage": {"input_tokens": -3}}}},
        {"type": "event_msg", "payload": {"type": "token_count", "info": {"total_token_usage": [1]}}},
        {
            "type": "event_msg",
            "payload": {"type": "collab_waiting_end", "agent_statuses": [3], "statuses": {"a": {"completed": 1}}},
        },
        {"type": "event_msg", "payload": {"type": "collab_agent_spawn_end", "call_id": None, "new_thread_id": "n"}},
        {"type": "event_msg", "payload": {"type": "sub_agent_activity", "kind": "started"}},
        {"type": "event_msg", "payload": {"type": "item_completed", "item": 3}},
        {"type": "event_msg", "payload": {"type": "user_message", "message": None}},
        {"type": "event_msg", "payload": {"type": "mcp_tool_call_end", "call_id": "q", "result": {"Err": "no"}}},
        {"type": "compacted", "payload": {"message": None}},
        {"type": "security_risk_score", "payload": {"score": 0.5, "nested": {"a": [1]}}},
        {"type": "session_meta", "payload": {"id": None, "source": {"subagent": 3}}},
        {"type": 5, "payload": []},
        {"payload": {"type": "x"}},
    ],
)
def test_strange_records_break_nothing(line: dict[str, Any]) -> None:
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "v2")}
    root = next(name for name in files if ROOT2 in name)
    lines = files[root].splitlines(keepends=True)
    lines.insert(8, json.dumps({"timestamp": "2026-07-01T09:00:02.000Z", **line}).encode() + b"\n")
    (trace,) = logs.imported("codex", {**files, root: b"".join(lines)})
    assert len([e for e in trace.events if e.agent == FERN]) == 4


def test_a_torn_last_line_and_nothing_at_all() -> None:
    files = {f.name: f.data() for f in logs.files_of(SAMPLES / "exec")}
    torn = {name: data[:-30] for name, data in files.items()}
    (trace,) = logs.imported("codex", torn)
    assert "torn last line" in about(trace)["session"]["broken_first"][0]["what"]
    codex = logs.importer("codex")
    assert codex.read is not None
    with pytest.raises(InputError, match="holds no session of codex"):
        list(codex.read(b'{"type":"thread.started"}\n'))
    only_meta = {"type": "session_meta", "timestamp": "2026-07-01T09:00:00Z", "payload": {"id": "a"}}
    assert logs.imported("codex", {"a.jsonl": json.dumps(only_meta).encode()}) == []


# -- the developers' real logs -------------------------------------------------------------------------------------------


def raw(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in path.read_bytes().splitlines():
        record = json.loads(line)
        yield record["type"], record["payload"]


def own(path: Path, copied_turns: set[str]) -> list[tuple[str, dict[str, Any]]]:
    """A thread's own records: those after the last turn that its parent had begun."""
    records = list(raw(path))
    starts = [k for k, (_, p) in enumerate(records) if p.get("type") == "task_started" and p["turn_id"] not in copied_turns]
    return records[starts[0] :] if copied_turns else records


def spent(records: list[tuple[str, dict[str, Any]]]) -> tuple[int, int]:
    """What the calls cost, each for itself, by `last_token_usage`; a repeat of the same totals is no call."""
    total: Any = None
    used = [0, 0]
    for _, p in records:
        if p.get("type") == "token_count" and p["info"] and p["info"]["total_token_usage"] != total:
            total, last = p["info"]["total_token_usage"], p["info"]["last_token_usage"]
            used[0] += last["input_tokens"]
            used[1] += last["output_tokens"]
    return used[0], used[1]


def calls(records: list[tuple[str, dict[str, Any]]]) -> Counter[str]:
    kinds = ("function_call", "custom_tool_call", "web_search_call")
    return Counter(p.get("name", "web_search") for t, p in records if t == "response_item" and p["type"] in kinds)


def outcomes(paths: dict[str, list[tuple[str, dict[str, Any]]]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for records in paths.values():
        found["returns"] += sum(p.get("type") == "task_complete" for _, p in records)
        found["results"] += sum(str(p.get("type")).endswith("call_output") for _, p in records)
        found["humans"] += sum(p.get("type") == "user_message" for _, p in records)
    return found


TEAM_CALLS = ("spawn_agent", "send_input", "send_message", "close_agent")


@pytest.mark.shared
def test_the_real_tree_of_the_first_kind() -> None:
    folder = logs.real("codex", "tree_v1_0.125.0_entireio-skills")
    (trace,) = logs.imported("codex", logs.files_of(folder))
    paths = [p for p in sorted(folder.glob("*.jsonl")) if p.name != "0.jsonl"]  # an early copy of the root
    threads = {next(raw(p))[1]["id"]: list(raw(p)) for p in paths}
    root = next(t for t, r in threads.items() if r[0][1]["source"] == "cli")
    assert logs.tokens(trace) == {t: spent(r) for t, r in threads.items()}
    made = sum((calls(r) for r in threads.values()), Counter[str]())
    kinds = logs.kinds(trace)
    assert kinds["spawn"] == made["spawn_agent"]
    assert {e.to for e in trace.events if e.type == "spawn" and e.to} == set(threads) - {root}
    assert [e.ok for e in trace.events if e.type == "spawn" and not e.to] == [False, False]
    assert kinds["despawn"] == made["close_agent"]
    assert sum(e.type == "message" and (e.extra or {}).get("via") == "send_input" for e in trace.events) == made["send_input"]
    assert kinds["tool_call"] == sum(n for name, n in made.items() if name not in TEAM_CALLS)
    found = outcomes({t: r for t, r in threads.items() if t != root})
    assert kinds["return"] == found["returns"]
    heard = {e.src for e in trace.edges if e.type in ("return", "aggregate")}
    assert heard == {e.id for e in trace.events if e.type == "return"}
    aborted = sum(p.get("type") == "turn_aborted" for _, p in threads[root])
    assert kinds["human_intervention"] == outcomes({root: threads[root]})["humans"] + aborted
    assert about(trace)["links"] == {"exact": {"the spawn's answer names the thread": len(threads) - 1}}


@pytest.mark.shared
def test_the_real_tree_of_the_second_kind() -> None:
    folder = logs.real("codex", "tree_v2_0.144.0-alpha.4_B")
    (trace,) = logs.imported("codex", logs.files_of(folder))
    (top,) = folder.glob("root_*.jsonl")
    turns = {p["turn_id"] for _, p in raw(top) if p.get("type") == "task_started"}
    threads = {next(raw(p))[1]["id"]: own(p, set() if p == top else turns) for p in sorted(folder.glob("*.jsonl"))}
    root = next(raw(top))[1]["id"]
    assert logs.tokens(trace) == {t: spent(r) for t, r in threads.items()}
    made = sum((calls(r) for r in threads.values()), Counter[str]())
    nested = sum(str(p.get("call_id")).startswith("exec-") for r in threads.values() for _, p in r)
    kinds = logs.kinds(trace)
    assert kinds["spawn"] == made["spawn_agent"] == len(threads) - 1
    assert {e.to for e in trace.events if e.type == "spawn"} == set(threads) - {root}
    assert kinds["tool_call"] == nested + sum(n for name, n in made.items() if name not in TEAM_CALLS)
    assert kinds["tool_result"] == sum(n for name, n in made.items() if name not in TEAM_CALLS)
    assert kinds["return"] == outcomes({t: r for t, r in threads.items() if t != root})["returns"]
    finals = sum("Message Type: FINAL_ANSWER" in json.dumps(p) for _, p in threads[root] if p.get("type") == "agent_message")
    assert len({e.src for e in trace.edges if e.type in ("return", "aggregate")}) == finals == len(threads) - 1
    assert kinds["human_intervention"] == outcomes({root: threads[root]})["humans"]
    assert about(trace)["links"] == {"exact": {"the spawn's answer names the thread": len(threads) - 1}}


@pytest.mark.shared
def test_the_real_guardians() -> None:
    folder = logs.real("codex", "guardian_cyspbot")
    found = {t.trace_id: t for t in logs.imported("codex", logs.files_of(folder))}
    paths = {next(raw(p))[1]["id"]: list(raw(p)) for p in sorted(folder.glob("*.jsonl"))}
    assert set(found) == set(paths)
    for thread, records in paths.items():
        trace = found[thread]
        said = [json.loads(p["last_agent_message"]) for _, p in records if p.get("type") == "task_complete"]
        verdicts = [e for e in trace.events if "outcome" in (e.extra or {})]
        assert [e.type for e in verdicts] == ["message" if v["outcome"] == "allow" else "safety_event" for v in said]
        assert trace.members == {thread} or not any(v["outcome"] == "allow" for v in said)
        assert [(e.extra or {})["outcome"] for e in verdicts] == [v["outcome"] for v in said]
        assert [(e.extra or {}).get("risk_level") for e in verdicts] == [v.get("risk_level") for v in said]
        assert logs.tokens(trace) == {thread: spent(records)}
        assert about(trace)["links"] == {"unlinked": 1}


@pytest.mark.shared
def test_an_early_copy_of_a_real_log_has_the_same_ids() -> None:
    folder = logs.real("codex", "tree_v1_0.125.0_entireio-skills")
    traces = []
    for root in ("0.jsonl", "parent_later_snapshot.jsonl"):
        files = [f for f in logs.files_of(folder) if f.name == root or re.fullmatch(r"[1-8]\.jsonl", f.name)]
        traces += logs.imported("codex", files)
    early, late = traces
    assert {e.id for e in early.events} < {e.id for e in late.events}
