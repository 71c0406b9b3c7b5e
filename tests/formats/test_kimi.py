"""Kimi CLI and Kimi Code: our samples event by event, and the vendor's fixtures against counts of their raw records."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.formats.importing.files import File
from counterpoint.formats.kimi.story import header, members
from counterpoint.trace import Event, Trace
from counterpoint.trace.quantities import is_stopped

CLI = logs.SAMPLES / "kimi" / "cli"
CODE = logs.SAMPLES / "kimi" / "code"


def one(folder: Path) -> Trace:
    (trace,) = logs.imported("kimi", logs.files_of(folder))
    return trace


def edges(trace: Trace, kind: str) -> set[tuple[str, str]]:
    return {(e.src, e.dst) for e in trace.edges if e.type == kind}


def by(trace: Trace, id: str) -> Event:
    return next(e for e in trace.events if e.id == id)


def text(trace: Trace, id: str) -> str:
    ref = by(trace, id).content_ref
    assert ref is not None
    return trace.contents[ref]


# -- Kimi CLI ----------------------------------------------------------------------------------------------------------------


def test_the_cli_sample() -> None:
    trace = one(CLI)
    assert trace.trace_id == "0b7c9f2e-1111-4222-8333-444455556666"
    assert trace.system == "kimi-cli"
    assert trace.meta["title"] == "Summarise notes"
    assert logs.kinds(trace) == {
        "human_intervention": 3,
        "orchestrator_decision": 4,
        "spawn": 3,
        "message": 1,
        "tool_call": 3,
        "tool_result": 4,
        "return": 3,
        "aggregate": 1,
        "safety_event": 1,
    }
    # AnswerDraft by hand: 1200+1380+1460+1550+1670 for main, once though its first message is told twice.
    assert logs.tokens(trace) == {"main": (7260, 135), "a1b2c3d4e": (1310, 33), "b5c6d7e8f": (874, 29)}


def test_sub_agents_of_the_cli_hang_on_their_calls() -> None:
    trace = one(CLI)
    assert [(e.id, e.to, e.ok) for e in trace.events if e.type == "spawn"] == [
        ("tool_a1", "a1b2c3d4e", None),
        ("tool_a2", "b5c6d7e8f", None),
        ("tool_a3", None, False),
    ]
    assert edges(trace, "spawn") == {("tool_a1", "a1b2c3d4e:Shell:0"), ("tool_a2", "b5c6d7e8f:ReadFile:0")}
    assert edges(trace, "aggregate") == {("a1b2c3d4e:turn1.step2", "turn1.step2"), ("b5c6d7e8f:turn1.step2", "turn1.step2")}
    assert edges(trace, "return") == {("a1b2c3d4e:turn2.step1", "turn1.step5")}
    assert trace.meta["import"]["links"]["exact"] == {
        "parent_tool_call_id of a SubagentEvent": 1,
        "agent_id in the answer of the Agent tool": 1,
    }


def test_a_call_in_pieces_is_joined_and_a_resumed_agent_is_written_to() -> None:
    trace = one(CLI)
    assert text(trace, "tool_a2") == "List the names in notes.txt."
    assert ("tool_a4", "a1b2c3d4e:turn2.step1") in edges(trace, "message")
    assert by(trace, "tool_a4").to == "a1b2c3d4e"


def test_people_hooks_and_tools_keep_their_trust() -> None:
    trace = one(CLI)
    approval = by(trace, "a1b2c3d4e:approval:req-1")
    assert (approval.type, approval.source, approval.trusted, approval.ok) == ("human_intervention", "user", True, True)
    assert ("a1b2c3d4e:Shell:0", approval.id) in edges(trace, "causal")
    (hook,) = [e for e in trace.events if e.type == "safety_event"]
    assert (hook.agent, hook.ok, is_stopped(hook)) == ("hook", True, True)
    assert ("tool_s1", hook.id) in edges(trace, "causal")
    result = by(trace, "a1b2c3d4e:Shell:0:result")
    assert (result.trusted, result.source) == (False, "tool")
    assert (result.id, "a1b2c3d4e:turn1.step2") in edges(trace, "safety_flow")


def test_what_could_not_be_read_is_said() -> None:
    about = one(CLI).meta["import"]
    assert about["unknown"] == {"NewThing": 1}
    assert [(b["line"], "torn" in b["what"]) for b in about["session"]["broken_first"]] == [(24, False), (50, True)]


def test_without_the_context_the_second_agent_is_found_by_its_prompt() -> None:
    files = [f for f in logs.files_of(CLI) if not f.name.endswith("context.jsonl")]
    (trace,) = logs.imported("kimi", files)
    assert by(trace, "tool_a2").to == "b5c6d7e8f"
    assert trace.meta["import"]["links"]["inferred"] == {"prompt equality": 1}


def test_an_agent_with_another_prompt_is_left_unlinked() -> None:
    files = {}
    for file in logs.files_of(CLI):
        data = file.data().replace(b"List the names", b"Do anything") if "subagents" in file.name else file.data()
        if not file.name.endswith("context.jsonl"):
            files[file.name] = data
    (trace,) = logs.imported("kimi", files)
    assert by(trace, "tool_a2").to is None
    assert trace.meta["import"]["links"]["unlinked"] == 2
    assert trace.meta["import"]["unlinked_first"] == [
        "call tool_a2: its agent is not known",
        "agent b5c6d7e8f: its spawn is not known",
    ]


def test_a_sub_agent_that_is_told_of_twice_counts_once() -> None:
    """The wire of the parent and the sub-agent's own hold the same records."""
    before = one(CLI)
    files = {f.name: f.data() for f in logs.files_of(CLI)}
    wire = next(name for name in files if name.count("/") == 1 and name.endswith("wire.jsonl"))
    own = [{"type": "metadata", "protocol_version": "1.6"}]
    for line in files[wire].splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        message = record.get("message", {})
        if message.get("type") == "SubagentEvent":
            own.append({"timestamp": record["timestamp"], "message": message["payload"]["event"]})
    files[wire.replace("wire.jsonl", "subagents/a1b2c3d4e/wire.jsonl")] = "\n".join(map(json.dumps, own)).encode()
    (trace,) = logs.imported("kimi", files)
    assert logs.tokens(trace) == logs.tokens(before)
    assert logs.kinds(trace)["spawn"] == 3


def test_the_legacy_events_of_a_task_without_an_agent_id() -> None:
    def line(kind: str, **payload: Any) -> bytes:
        return json.dumps({"timestamp": 1.7e9, "message": {"type": kind, "payload": payload}}).encode()

    def child(kind: str, **payload: Any) -> bytes:
        return line("SubagentEvent", task_tool_call_id="t1", event={"type": kind, "payload": payload})

    call = {"id": "t1", "function": {"name": "Task", "arguments": '{"prompt": "look", "subagent_name": "scout"}'}}
    data = [
        line("TurnBegin", user_input="go"),
        line("StepBegin", n=1),
        line("ToolCall", **call),
        child("StepBegin", n=1),
        child("ContentPart", type="text", text="seen"),
        line("ToolResult", tool_call_id="t1", return_value={"is_error": False, "output": "seen"}),
    ]
    (trace,) = logs.imported("kimi", {"s/wire.jsonl": b"\n".join(data)})
    assert [(e.type, e.agent, e.to) for e in trace.events][2:] == [("spawn", "main", "task:t1"), ("return", "task:t1", "main")]
    assert by(trace, "t1").role == "scout"


def test_a_session_with_a_context_alone() -> None:
    files = {f.name: f.data() for f in logs.files_of(CLI) if f.name.endswith("context.jsonl")}
    (trace,) = logs.imported("kimi", files)
    assert logs.kinds(trace) == {"human_intervention": 1, "message": 1, "orchestrator_decision": 1, "spawn": 2, "return": 2}
    assert "timestamps: t counts events" in trace.meta["import"]["lacks"]


# -- Kimi Code ---------------------------------------------------------------------------------------------------------------


def test_the_swarm_sample() -> None:
    trace = one(CODE)
    assert (trace.trace_id, trace.system, trace.topology) == ("session_swarm", "kimi-code", "centralized")
    assert logs.kinds(trace) == {
        "human_intervention": 2,
        "message": 2,
        "orchestrator_decision": 4,
        "spawn": 5,
        "return": 4,
        "aggregate": 1,
        "tool_call": 2,
        "tool_result": 3,
        "safety_event": 1,
    }
    # Every step once, whether or not a usage.record repeats it, and 500 + 20 of a compaction.
    assert logs.tokens(trace) == {"main": (4940, 152), "agent-0": (430, 18), "agent-1": (210, 9), "agent-3": (400, 15)}


def test_a_swarm_is_spawns_returns_and_one_aggregate() -> None:
    trace = one(CODE)
    swarm = [e for e in trace.events if e.type == "spawn" and e.id.startswith("call_sw:")]
    assert [(e.to, e.ok) for e in swarm] == [("agent-0", None), ("agent-1", None), ("agent-2", None), (None, False)]
    assert text(trace, "call_sw:agent-1") == "Say what beta & more.md is about."
    assert edges(trace, "aggregate") == {
        ("agent-0:a0s2", "call_sw:aggregate"),
        ("agent-1:a1s1", "call_sw:aggregate"),
        ("call_sw:agent-2:return", "call_sw:aggregate"),
    }
    assert by(trace, "call_sw:agent-2:return").ok is False
    assert ("call_sw:aggregate", "s3") in edges(trace, "causal")


def test_an_agent_in_the_background_returns_with_its_notification() -> None:
    trace = one(CODE)
    assert by(trace, "call_bg").to == "agent-3"
    assert ("agent-3:a3s1", "s3") in edges(trace, "return")
    assert by(trace, "call_bg:return").type == "tool_result"


def test_prompts_are_heard_once_and_only_people_are_people() -> None:
    trace = one(CODE)
    heard = [(e.agent, e.source) for e in trace.events if e.type == "human_intervention"]
    assert heard == [("user", "user"), ("user", "user")]
    assert (by(trace, "heard1").type, by(trace, "heard1").source) == ("message", "system")
    denied = by(trace, "approval:call_sh:denied")
    assert denied.type == "safety_event"
    assert (by(trace, "approval:call_sh").extra or {})["approval"] == "rejected"


def test_a_swarm_that_still_runs_is_linked_by_its_items() -> None:
    files = {f.name: f.data() for f in logs.files_of(CODE)}
    wire = next(name for name in files if "/main/" in name)
    lines = files[wire].splitlines(keepends=True)
    end = next(k for k, line in enumerate(lines) if b"agent_swarm_result" in line)
    files[wire] = b"".join(lines[:end])
    (trace,) = logs.imported("kimi", files)
    assert trace.meta["import"]["links"]["inferred"] == {"swarmItem of state.json among the items of the call": 3}
    assert {e.to for e in trace.events if e.type == "spawn"} == {"agent-0", "agent-1", "agent-2", "agent-3", None}
    whole = {e.id for e in one(CODE).events}
    assert {e.id for e in trace.events} <= whole


def test_a_fork_does_not_count_what_it_copied() -> None:
    files = {f.name: f.data() for f in logs.files_of(CODE)}
    wire = next(name for name in files if "/main/" in name)
    child = next(name for name in files if "/agent-1/" in name)
    copied = [line for line in files[wire].splitlines()[1:12] if b"call_sw" not in line]
    files[child] = b"\n".join([*files[child].splitlines()[:1], *copied, *files[child].splitlines()[1:]])
    state = next(name for name in files if name.endswith("state.json"))
    files[state] = files[state].replace(b'"swarmItem": "beta', b'"forkedFrom": "main", "swarmItem": "beta')
    (trace,) = logs.imported("kimi", files)
    assert logs.tokens(trace) == logs.tokens(one(CODE))
    assert logs.kinds(trace) == logs.kinds(one(CODE))


def test_a_sub_agent_that_only_the_state_names_is_spawned_by_its_parent() -> None:
    state = {"agents": {"main": {"type": "main", "parentAgentId": None}, "agent-0": {"type": "sub", "parentAgentId": "main"}}}
    made = {"type": "metadata", "protocol_version": "1.5", "created_at": 1780000001000}
    prompt = {"type": "turn.prompt", "input": "hi", "origin": {"kind": "user"}, "time": 1780000000000}
    files = {
        "s/state.json": json.dumps(state).encode(),
        "s/agents/main/wire.jsonl": json.dumps(prompt).encode(),
        "s/agents/agent-0/wire.jsonl": json.dumps(made).encode(),
    }
    (trace,) = logs.imported("kimi", files)
    assert [(e.type, e.to, e.t) for e in trace.events] == [("human_intervention", "main", 0.0), ("spawn", "agent-0", 1.0)]
    assert trace.meta["import"]["links"]["exact"] == {"parentAgentId of state.json": 1}


# -- both --------------------------------------------------------------------------------------------------------------------


def until(data: bytes, moment: float) -> bytes:
    """The records of a wire that were written by a moment."""
    kept = []
    for line in data.splitlines(keepends=True):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if (record.get("timestamp") or record.get("time") or record.get("created_at") or 0) <= moment:
            kept.append(line)
    return b"".join(kept)


@pytest.mark.parametrize(("folder", "begin", "unit"), [(CLI, 1774000000.0, 1), (CODE, 1780000000000, 1000)], ids=["cli", "code"])
def test_a_session_that_grows_keeps_its_ids(folder: Path, begin: float, unit: int) -> None:
    files = {f.name: f.data() for f in logs.files_of(folder) if not f.name.endswith("context.jsonl")}
    (whole,) = logs.imported("kimi", files)
    ids = {e.id for e in whole.events}
    seen = set()
    for tick in range(1, 250):
        moment = begin + tick / 5 * unit
        cut = {name: until(data, moment) if name.endswith(".jsonl") else data for name, data in files.items()}
        for trace in logs.imported("kimi", cut):
            assert trace.trace_id == whole.trace_id
            new = {e.id for e in trace.events} - ids
            # A sub-agent that the state names before its call is written has a spawn of its own until then.
            assert not {id for id in new if not id.startswith("spawn:")}
            seen |= {e.id for e in trace.events}
    assert ids <= seen


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{",
        b"[]",
        b'{"type":"user","message":{"role":"user"},"timestamp":"2026-01-01T00:00:00Z","uuid":"x"}',
        b'{"type":"session_meta","timestamp":"2026-01-01","payload":{}}',
        b'{"role":"user","content":"hi"}',
        b'{"agents":{"a":{"name":"x"}}}',
        b'{"version":1,"approval":"yes"}',
        b"\xff\xfe\x00",
        b'{"type":"metadata"}',
    ],
)
def test_other_files_are_not_taken(head: bytes) -> None:
    assert logs.importer("kimi").sniff(head) is False


def test_its_own_files_are_known_by_content_or_place() -> None:
    found = logs.importer("kimi")
    for file in logs.files_of(logs.SAMPLES / "kimi"):
        assert found.sidecar(file.name) or found.sniff(file.head()) is True, file.name
    assert found.sniff(b'{"role": "_system_prompt", "content": "' + b"x" * 70_000) is True
    assert found.sniff(b'{"timestamp": 1.0, "message": {"type": "TurnBegin", "payload": {"user_input": "' + b"x" * 70_000) is True
    assert not found.sidecar("subagents/x.jsonl")


def test_a_stray_file_in_a_session_is_named_and_left_out() -> None:
    files = logs.files_of(CODE)
    stray = File.of(b"# words", "session_swarm/notes.md")
    (session,) = logs.importer("kimi").group([*files, stray])
    (trace,) = logs.importer("kimi").read_session(session)
    assert logs.kinds(trace) == logs.kinds(one(CODE))
    assert session.report.broken[0]["file"] == "session_swarm/notes.md"


def test_bytes_that_hold_no_session() -> None:
    read = logs.importer("kimi").read
    assert read is not None
    for data in (b"{}", b'{"type":"metadata","protocol_version":"1.6"}', b'{"version":1,"approval":{"yolo":false}}'):
        with pytest.raises(InputError):
            list(read(data))


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [1, None], {"type": 3}])
def test_strange_values_anywhere_are_survived(value: Any) -> None:
    for folder in (CLI, CODE):
        files = {f.name: f.data() for f in logs.files_of(folder)}
        for key in (
            "payload",
            "message",
            "event",
            "input",
            "usage",
            "function",
            "return_value",
            "args",
            "result",
            "agents",
            *MORE,
        ):
            spoilt = {}
            for file, data in files.items():
                lines = []
                for line in data.splitlines():
                    try:
                        lines.append(json.dumps(_spoilt(json.loads(line), key, value)).encode())
                    except ValueError:
                        lines.append(line)
                spoilt[file] = b"\n".join(lines)
            logs.imported("kimi", spoilt)


MORE = ("id", "part", "tool_calls", "content", "arguments", "origin", "uuid", "toolCallId", "agent_id", "items", "time")


def _spoilt(record: Any, key: str, value: Any) -> Any:
    if isinstance(record, dict):
        return {k: value if k == key else _spoilt(v, key, value) for k, v in record.items()}
    if isinstance(record, list):
        return [_spoilt(v, key, value) for v in record]
    return record


def test_the_answers_of_the_agent_tools() -> None:
    assert header("agent_id: agent-0\nstatus: completed\n\n[summary]\nnot: this") == {
        "agent_id": "agent-0",
        "status": "completed",
    }
    assert header("plain words") == {}
    assert members("<agent_swarm_result><subagent outcome=") == []
    assert members("</subagent></subagent>") == []
    (member,) = members('<subagent mode="resume" agent_id="a" item="&lt;b&gt;" outcome="failed">no</subagent>')
    assert (member.agent, member.item, member.outcome, member.text, member.is_resumed) == ("a", "<b>", "failed", "no", True)


# -- the vendor's fixtures ---------------------------------------------------------------------------------------------------


def _records(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


@pytest.mark.shared
def test_the_cli_fixtures_against_their_raw_records() -> None:
    root = logs.real("kimi", "kimi-code_fixtures", "legacy_kimi-cli")
    traces = {t.trace_id: t for t in logs.imported("kimi", logs.files_of(root))}
    assert set(traces) == {p.name for p in root.iterdir()}
    for name, trace in traces.items():
        wire = [r["message"] for r in _records(root / name / "wire.jsonl") if "message" in r]
        context = _records(root / name / "context.jsonl")
        spent = [m["payload"]["token_usage"] for m in wire if m["type"] == "StatusUpdate" and m["payload"].get("token_usage")]
        wanted = (
            sum(u["input_other"] + u["input_cache_read"] + u["input_cache_creation"] for u in spent),
            sum(u["output"] for u in spent),
        )
        assert logs.tokens(trace).get("main", (0, 0)) == wanted, name
        calls = {m["payload"]["id"]: m["payload"]["function"]["name"] for m in wire if m["type"] == "ToolCall"}
        for message in context:
            calls.update({c["id"]: c["function"]["name"] for c in message.get("tool_calls") or []})
        kinds = logs.kinds(trace)
        by_name = Counter(calls.values())
        assert kinds["spawn"] == by_name["Agent"], name
        assert kinds["tool_call"] == sum(by_name.values()) - by_name["Agent"], name
        answered = {m["payload"]["tool_call_id"] for m in wire if m["type"] == "ToolResult"}
        answered |= {m["tool_call_id"] for m in context if m.get("role") == "tool"}
        assert kinds["tool_result"] + kinds["return"] == len(answered), name
        turns = sum(m["type"] == "TurnBegin" for m in wire)
        approvals = sum(m["type"] == "ApprovalResponse" for m in wire)
        assert kinds["human_intervention"] >= turns + approvals, name
        blocked = sum(m["type"] == "HookResolved" and m["payload"]["action"] == "block" for m in wire)
        assert kinds["safety_event"] == blocked, name


@pytest.mark.shared
def test_the_three_sub_agents_of_the_collapsed_fixture() -> None:
    root = logs.real("kimi", "kimi-code_fixtures", "legacy_kimi-cli", "with-subagent-collapsed")
    trace = one(root)
    named = {
        m["content"].split("\n")[0].removeprefix("agent_id: ") for m in _records(root / "context.jsonl") if m["role"] == "tool"
    }
    assert {e.to for e in trace.events if e.type == "spawn"} == named
    assert {e.agent for e in trace.events if e.type == "return"} == named
    links = trace.meta["import"]["links"]
    assert (sum(links["exact"].values()), links.get("inferred"), links.get("unlinked")) == (3, None, None)


@pytest.mark.shared
def test_the_code_fixtures_against_their_raw_records() -> None:
    root = logs.real("kimi", "kimi-code_fixtures", "vis")
    traces = {t.trace_id: t for t in logs.imported("kimi", logs.files_of(root))}
    assert set(traces) == {p.name for p in root.iterdir()}
    for name, trace in traces.items():
        agents = json.loads((root / name / "state.json").read_text())["agents"]
        assert {e.to for e in trace.events if e.type == "spawn"} == {a for a, about in agents.items() if about["parentAgentId"]}
        ends = [
            r["event"] for r in _records(root / name / "agents/main/wire.jsonl") if r.get("event", {}).get("type") == "step.end"
        ]
        wanted = sum(e["usage"]["inputOther"] + e["usage"]["inputCacheRead"] + e["usage"]["inputCacheCreation"] for e in ends)
        assert logs.tokens(trace).get("main", (0, 0))[0] == wanted
