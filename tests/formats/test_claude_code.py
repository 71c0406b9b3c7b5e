"""Claude Code: every layout, on samples written by hand and on real transcripts counted independently."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from counterpoint.formats.importing.files import File
from counterpoint.trace import Trace
from logs import SAMPLES, assert_sound, files_of, imported, importer, kinds, real, sessions, tokens

SHOP = "0a000000-0000-4000-8000-00000000000a"


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    return {t.trace_id: t for t in imported("claude_code", files_of(SAMPLES / "claude_code"))}


def links(trace: Trace) -> dict[str, Any]:
    return trace.meta["import"].get("links", {})


def edges(trace: Trace, kind: str) -> set[tuple[str, str]]:
    return {(e.src, e.dst) for e in trace.edges if e.type == kind}


def test_sub_agents_in_files_hang_on_their_spawns(traces: dict[str, Trace]) -> None:
    trace = traces[SHOP]
    assert links(trace) == {"exact": {"sidecar": 1, "structured result": 1}}
    spawns = {e.id: (e.to, e.role, e.ok) for e in trace.events if e.type == "spawn"}
    assert spawns == {
        "toolu_a1": ("a111111111111111a", "Explore", None),
        "toolu_a2": ("a222222222222222b", "general-purpose", True),
        "toolu_a3": (None, "wizard", False),
    }
    assert edges(trace, "spawn") == {("toolu_a1", "toolu_b1"), ("toolu_a2", "msg_c1")}
    assert edges(trace, "aggregate") == {("msg_b2", "msg_a2"), ("msg_c2", "msg_a2")}
    assert kinds(trace) == {
        "human_intervention": 4, "orchestrator_decision": 3, "spawn": 3, "message": 3, "tool_call": 5,
        "tool_result": 4, "return": 2, "aggregate": 1, "safety_event": 2,
    }  # fmt: skip


def test_a_split_message_counts_once_and_children_at_their_own_price(traces: dict[str, Trace]) -> None:
    trace = traces[SHOP]
    assert tokens(trace) == {
        "main": (1212 + 1568 + 1609 + 1707, 90 + 60 + 30 + 25),
        "a111111111111111a": (2010 + 2160, 20 + 50),
        "a222222222222222b": (920 + 995, 30 + 15),
    }
    by = {e.id: e for e in trace.events}
    assert by["msg_a1"].cost_usd == pytest.approx((12 * 3 + 1000 * 0.3 + 200 * 3.75 + 90 * 15) / 1e6)
    assert by["toolu_b1"].cost_usd == pytest.approx((10 * 1 + 1900 * 0.1 + 100 * 1.25 + 20 * 5) / 1e6)
    assert by["msg_c1"].cost_usd is None  # a model that the table does not name
    assert by["msg_b2"].extra is not None
    assert by["msg_b2"].extra["totalTokens"] == 2210  # the last request only: a remark, not a count


def test_trust_and_what_flowed_from_outside(traces: dict[str, Trace]) -> None:
    trace = traces[SHOP]
    by = {e.id: e for e in trace.events}
    assert (by["toolu_a4:result"].trusted, by["toolu_a4:result"].source) == (False, "tool")
    assert (by["a-019"].trusted, by["a-019"].source) == (False, "memory")
    assert (by["a-001"].trusted, by["a-001"].source) == (True, "user")
    assert (by["msg_b2"].trusted, by["msg_b2"].source) == (True, "peer")
    assert {("toolu_a4:result", "msg_a3"), ("a-019", "msg_a4"), ("toolu_b1:result", "msg_b2")} <= edges(trace, "safety_flow")


def test_a_human_says_no(traces: dict[str, Trace]) -> None:
    by = {e.id: e for e in traces[SHOP].events}
    assert by["toolu_a5:denied"].type == "human_intervention"
    assert by["toolu_a5:safety"].type == "safety_event"
    assert by["toolu_a5"].ok is False
    assert by["a-016"].extra == {"interrupted": True}
    assert by["a-018"].type == "safety_event"
    assert by["msg_a5"].agent == "system"  # an error that the client made is no call of the model
    assert by["msg_a5"].tokens_in is None


def test_broken_and_unknown_records_are_counted_with_their_place(traces: dict[str, Trace]) -> None:
    about = traces[SHOP].meta["import"]["session"]
    assert about["unknown"] == {"hologram": 1}
    assert [(b["file"].rsplit("/", 1)[-1], b["line"]) for b in about["broken_first"]] == [(f"{SHOP}.jsonl", 7), (f"{SHOP}.jsonl", 27)]
    assert "torn" in about["broken_first"][1]["what"]


@pytest.mark.parametrize(
    ("session", "rule", "child"),
    [
        ("0b000000-0000-4000-8000-00000000000b", {"inferred": {"same prompt": 1}}, "sidechain-e-001"),
        ("0c000000-0000-4000-8000-00000000000c", {"exact": {"structured result": 1}}, "c0ffee01"),
        ("0d000000-0000-4000-8000-00000000000d", {"exact": {"structured result": 1}}, "ad00d"),
        ("0e000000-0000-4000-8000-00000000000e", {"exact": {"structured result": 1}}, "ada@docs"),
    ],
    ids=["inline", "beside", "mirrored", "team"],
)
def test_every_layout(traces: dict[str, Trace], session: str, rule: dict[str, Any], child: str) -> None:
    trace = traces[session]
    assert links(trace) == rule
    assert [e.to for e in trace.events if e.type == "spawn"] == [child]
    assert child in trace.agents


def test_a_team_talks(traces: dict[str, Trace]) -> None:
    trace = traces["0e000000-0000-4000-8000-00000000000e"]
    said = [(e.agent, e.to, trace.text(e)) for e in trace.events if e.type == "message" and e.to]
    assert said == [("main", "ada@docs", "Keep it short."), ("ada@docs", "main", "The page is written.")]
    assert [(e.agent, e.to) for e in trace.events if e.type == "despawn"] == [("main", "ada@docs")]
    assert edges(trace, "message") == {("k-001", "msg_k1"), ("toolu_k2", "msg_l1"), ("toolu_l2", "msg_k3")}


def test_a_resumed_session_holds_only_what_it_added(traces: dict[str, Trace]) -> None:
    first, second = (traces[f"0d000000-0000-4000-8000-0000000000{end}"] for end in ("0d", "d2"))
    assert second.meta["resumed_from"] == first.trace_id
    assert [e.id for e in second.events] == ["j-001", "msg_j1"]
    assert second.meta["import"]["mended"] == {"copied records": 7}
    assert not {e.id for e in first.events} & {e.id for e in second.events}


def test_a_workflow_is_its_folder(traces: dict[str, Trace]) -> None:
    trace = traces["0f000000-0000-4000-8000-00000000000f"]
    assert links(trace) == {"exact": {"workflow run": 2}}
    assert [(e.to, e.role) for e in trace.events if e.type == "spawn"] == [("ag01", "review:look"), ("ag02", "merge")]
    assert {e.agent: trace.text(e) for e in trace.events if e.type == "return"} == {
        "ag01": "Two places look wrong.",
        "ag02": "Fix the loader first.",
    }


def test_a_session_that_grows_keeps_its_ids() -> None:
    path = SAMPLES / "claude_code" / "projects" / "-repo-shop" / f"{SHOP}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    before: set[str] = set()
    for n in range(1, len(lines) + 1):
        found = imported("claude_code", {f"p/{SHOP}.jsonl": b"".join(lines[:n])})
        now = {e.id for t in found for e in t.events}
        assert {e for e in before if ":result" not in e} <= now
        before = now


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"user","sessionId":"s","uuid":"u"}\n',
        b'{"type":"user","sessionId":"s","uuid":"u","message":{"content":[3,null,{"type":"tool_result"}]}}\n',
        b'{"type":"assistant","sessionId":"s","uuid":"u","message":{"content":[{"type":"tool_use"}]}}\n',
        b'{"type":"assistant","sessionId":"s","uuid":"u","message":"text","timestamp":5}\n',
        b'{"type":"assistant","sessionId":"s","uuid":"u","message":{"id":7,"usage":[],"content":{"a":1}}}\n',
        b'{"type":"progress","sessionId":"s","uuid":"u","data":{"type":"agent_progress","agentId":"a","message":{"type":"assistant"}}}\n',
        b'{"type":"system","sessionId":"s","uuid":"u","subtype":7}\n{"type":"attachment","sessionId":"s","uuid":"v","attachment":3}\n',
        b'{"type":"user","sessionId":"s","uuid":"u","message":{"content":"<task-notification><task-id>x"}}\n\x00\x00\xff\n',
    ],
)
def test_odd_records_neither_crash_nor_make_unsound_traces(data: bytes) -> None:
    imported("claude_code", {"p/s.jsonl": data})


def test_two_agents_that_name_each_other_as_their_own(tmp_path: Path) -> None:
    """A cycle of spawns: each is told to have made the other."""

    def record(agent: str, call: str, child: str) -> list[dict[str, Any]]:
        base = {"sessionId": "s", "agentId": agent, "isSidechain": True}
        use = {"type": "tool_use", "id": call, "name": "Agent", "input": {"prompt": child}}
        return [
            {**base, "type": "assistant", "uuid": agent + "1", "timestamp": "2026-01-01T00:00:02Z", "message": {"id": agent, "content": [use]}},
            {
                **base, "type": "user", "uuid": agent + "2", "timestamp": "2026-01-01T00:00:01Z", "toolUseResult": {"status": "completed", "agentId": child},
                "message": {"content": [{"type": "tool_result", "tool_use_id": call, "content": "ok"}]},
            },
        ]  # fmt: skip

    files = {
        f"p/s/subagents/agent-{a}.jsonl": "".join(json.dumps(r) + "\n" for r in record(a, f"call{a}", b)).encode()
        for a, b in (("x", "y"), ("y", "x"))
    }
    (trace,) = imported("claude_code", files)
    assert kinds(trace)["spawn"] == 2


def test_sniff_knows_its_files_and_no_others() -> None:
    sniff = importer("claude_code").sniff
    assert sniff(b'{"parentUuid":null,"isSidechain":false,"sessionId":"s","type":"user","message":{"content":"' + b"x" * 70000)
    assert not sniff(b'{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{}}\n')
    assert not sniff(b'{"type":"metadata","protocol_version":"1.5"}\n')


def test_prompts_that_are_alike_claim_one_agent_each() -> None:
    def line(**record: Any) -> str:
        return json.dumps({"sessionId": "s", **record}) + "\n"

    use = [{"type": "tool_use", "id": f"c{k}", "name": "Task", "input": {"prompt": "Look."}} for k in range(3)]
    data = line(type="assistant", uuid="a", message={"id": "m", "content": use})
    for k in range(2):
        data += line(type="user", uuid=f"s{k}", parentUuid=None, isSidechain=True, message={"content": "Look."})
    (trace,) = imported("claude_code", {"p/s.jsonl": data.encode()})
    assert [e.to for e in trace.events if e.type == "spawn"] == ["sidechain-s0", "sidechain-s1", None]
    assert links(trace) == {"inferred": {"same prompt": 2}}


# -- real transcripts, counted from the raw records --------------------------------------------------------------------


def raw(file: File) -> list[dict[str, Any]]:
    with file.open() as stream:
        return [json.loads(line) for line in stream if line.strip()]


def count(records: list[dict[str, Any]], seen: set[str]) -> tuple[dict[str, tuple[int, int]], Counter[str]]:
    """Tokens per API message and calls by tool, from the records alone. `seen` holds the uuids counted before."""
    usage: dict[str, tuple[int, int]] = {}
    calls: dict[str, str] = {}
    for r in records:
        if r.get("type") == "progress" and r["data"].get("type") == "agent_progress":
            r = r["data"]["message"]  # a sub-agent's record, mirrored
        if r.get("type") != "assistant" or r.get("uuid") in seen:
            continue
        seen.add(r["uuid"])
        message = r["message"]
        for block in message["content"]:
            if block["type"] == "tool_use":
                calls[block["id"]] = block["name"]
        if "usage" in message and message["model"] != "<synthetic>":
            u = message["usage"]
            now = u["input_tokens"] + u.get("cache_creation_input_tokens", 0) + u.get("cache_read_input_tokens", 0), u["output_tokens"]
            usage[message["id"]] = max(usage.get(message["id"], (0, 0)), now, key=lambda pair: pair[1])
    return usage, Counter(calls.values())


@pytest.mark.shared
@pytest.mark.parametrize("folder", ["claude-code-log_real_projects", "claude-code-log_sliced_fixtures", "claude-code-viewer_inline_sidechains_v1.0", "entireio_cli", "oh-my-posh"])
def test_real_sessions_add_up(folder: str) -> None:
    files = files_of(real("claude_code", folder))
    found = 0
    for session in sessions("claude_code", files):
        traces = list(importer("claude_code").read_session(session))
        transcripts = [f for f in session.files if f.name.endswith(".jsonl") and not f.name.endswith("journal.jsonl")]
        # A sub-agent's own file before the mirror of it, the original before the copy: as in the records' uuids.
        ordered = sorted(transcripts, key=lambda f: ("/subagents/" not in f.name and "agent-" not in f.name, f.size))
        seen: set[str] = set()
        counted = [count(raw(f), seen) for f in ordered]
        for trace in traces:
            assert_sound(trace)
            found += 1
        wanted = [sum(u[k] for usage, _ in counted for u in usage.values()) for k in (0, 1)]
        got = [sum(pair[k] for t in traces for pair in tokens(t).values()) for k in (0, 1)]
        assert got == wanted, session.key
        calls = sum((tools for _, tools in counted), Counter())
        assert sum(kinds(t)["spawn"] for t in traces) == calls["Task"] + calls["Agent"] + 3 * calls["Workflow"], session.key
        assert sum(kinds(t)["tool_call"] for t in traces) == calls.total() - calls["Task"] - calls["Agent"] - calls["SendMessage"]
        children = {e.to for t in traces for e in t.events if e.type == "spawn" and e.to}
        stated = {r["toolUseResult"]["agentId"] for f in ordered for r in raw(f) if isinstance(r.get("toolUseResult"), dict) and "agentId" in r["toolUseResult"]}
        assert stated <= children, session.key
        assert sum(links(t).get("unlinked", 0) for t in traces) == 0
    assert found


@pytest.mark.shared
def test_nothing_of_a_real_tree_is_claimed_by_chance() -> None:
    root = real()
    sniff = importer("claude_code").sniff
    wrong = [f.name for f in files_of(root) if not f.name.startswith("claude_code/") and sniff(f.head())]
    assert wrong == []


def line(kind: str, uuid: str, at: int, **more: Any) -> dict[str, Any]:
    """A record of a session in /r/shop, `at` seconds after ten o'clock."""
    about = {"type": kind, "uuid": uuid, "timestamp": f"2026-03-01T10:{at // 60:02}:{at % 60:02}.000Z", "sessionId": SHOP}
    return {**about, "version": "2.1.300", "cwd": "/r/shop", **more}


def says(uuid: str, at: int, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"id": f"m-{uuid}", "model": "claude-sonnet-4-5", "content": list(blocks), "usage": usage, "stop_reason": "end_turn"}
    return line("assistant", uuid, at, message={**message, **more.pop("message", {})}, **more)


def lines(*records: dict[str, Any]) -> bytes:
    return "".join(json.dumps(r) + "\n" for r in records).encode()


def test_words_for_people_stop_reasons_and_writes_for_an_hour() -> None:
    kept = {"cache_creation_input_tokens": 300, "cache_creation": {"ephemeral_1h_input_tokens": 200, "ephemeral_5m_input_tokens": 100}}
    main = lines(
        line("user", "u1", 0, message={"content": "<note>Please mend\nthe till.</note>"}),
        says("a1", 2, {"type": "text", "text": "So."}, message={"usage": {"input_tokens": 1, "output_tokens": 2, **kept}, "stop_reason": "max_tokens"}),
    )
    (trace,) = imported("claude_code", {f"p/{SHOP}.jsonl": main})
    about = {key: trace.meta[key] for key in ("title", "project", "models", "began")}
    assert about == {"title": "Please mend the till.", "project": "shop", "models": ["claude-sonnet-4-5"], "began": 1772359200.0}
    assert trace.events[1].extra == {"stop_reason": "max_tokens", "tokens_cache_write": 300, "tokens_cache_write_1h": 200}
    (trace,) = imported("claude_code", {f"p/{SHOP}.jsonl": main + lines({"type": "ai-title", "aiTitle": "The till", "sessionId": SHOP})})
    assert trace.meta["title"] == "The till"
