"""What the main transcript says a run cost, and what it cost with its sub-agents: traps in which copies and repeats stand.

Every number is counted by hand; a call reads so many tokens as no other does and writes one, so that a sum shows which were counted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import counterpoint as cpt
from counterpoint.app.discover import find
from counterpoint.app.import_logs import import_sessions
from counterpoint.app.side_words import sides_of_trace, sides_words
from counterpoint.store import Store
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace
from counterpoint.trace.quantities import counted_tokens, uncounted
from counterpoint.trace.sides import Side, Sides, sides_of
from logs import SAMPLES

Record = dict[str, Any]
Ends = Callable[..., tuple[int, str, str]]
ID = "00112233-4455-4677-8899-aabbccddee0"


def at(second: float) -> str:
    return f"2026-01-01T00:{int(second) // 60:02}:{second % 60:06.3f}Z"


def told(uuid: str, second: float, content: Any, **more: Any) -> Record:
    return {"type": "user", "uuid": uuid, "timestamp": at(second), "message": {"role": "user", "content": content}, **more}


def said(uuid: str, second: float, *blocks: Any, tokens: int = 10, id: str | None = None, **more: Any) -> Record:
    """A record of an answer that read `tokens` and wrote one."""
    inner = {
        "id": id or f"m{uuid}", "model": "claude-sonnet-4-5", "usage": {"input_tokens": tokens, "output_tokens": 1},
        "content": [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks],
    }  # fmt: skip
    return {"type": "assistant", "uuid": uuid, "timestamp": at(second), "message": inner, **more}


def use(call: str, tool: str, **given: Any) -> Record:
    return {"type": "tool_use", "id": call, "name": tool, "input": given}


def result(uuid: str, second: float, call: str, text: str, made: Record | None = None, **more: Any) -> Record:
    block = {"type": "tool_result", "tool_use_id": call, "content": text, **more}
    return told(uuid, second, [block], **({} if made is None else {"toolUseResult": made}))


def write(folder: Path, files: dict[str, list[Record]], session: str = "s") -> Path:
    for name, records in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"sessionId": session, **record}) + "\n" for record in records))
    return folder


def one(folder: Path, main: list[Record], **agents: list[Record]) -> Trace:
    """The trace of a session of Claude Code, with sub-agents in files of their own."""
    beside = {f"s/subagents/agent-{name}.jsonl": records for name, records in agents.items()}
    (trace,) = cpt.read_logs(write(folder, {"s.jsonl": main, **beside}))
    return trace


def tokens(trace: Trace) -> tuple[int | None, int | None, int | None]:
    """Of the main transcript, of sub-agents, and in all."""
    sides = sides_of(trace)
    return sides.main.tokens, sides.subs.tokens, trace.tokens  # type: ignore[return-value]


MAIN = [told("u1", 0, "Go."), said("a1", 2, use("c1", "Agent", prompt="Look."), tokens=100)]
DONE = {"status": "completed", "agentId": "x1", "totalTokens": 77, "usage": {"input_tokens": 70, "output_tokens": 7}}
BACK = [result("u2", 20, "c1", "Seen.", DONE), said("a2", 22, "Done.", tokens=200)]
SUB = [told("x11", 3, "Look."), said("x12", 5, "I look.", tokens=1000), said("x13", 9, "Seen.", tokens=2000)]


def test_a_sub_agent_is_not_in_the_main_transcript(tmp_path: Path) -> None:
    trace = one(tmp_path, [*MAIN, *BACK], x1=SUB)
    assert tokens(trace) == (101 + 201, 1001 + 2001, 3304)
    # 300 in and 2 out of the main agent at $3 and $15 a million, 3,000 and 2 of the sub-agent
    assert sides_of(trace).main.cost_usd == pytest.approx((300 * 3 + 2 * 15) / 1e6)
    assert sides_of(trace).subs.cost_usd == pytest.approx((3000 * 3 + 2 * 15) / 1e6)
    words = "by the main transcript 302 tokens, $0.00093; in truth 3.3 k tokens, $0.01, of which 1 sub-agent 3 k tokens, $0.009"
    assert sides_of_trace(trace) == words


def test_what_a_parent_states_counts_only_where_there_is_no_transcript(tmp_path: Path) -> None:
    assert tokens(one(tmp_path, [*MAIN, *BACK])) == (302, 77, 379)


def test_parts_of_one_message_count_once_in_one_file_and_across_files(tmp_path: Path) -> None:
    parts = [said("a5", 30, "I", tokens=400, id="m5"), said("a6", 31, use("c9", "Bash"), tokens=400, id="m5")]
    assert tokens(one(tmp_path / "a", [*MAIN, *BACK, *parts], x1=SUB)) == (302 + 401, 3002, 3705)
    # a client that writes a sub-agent's answer into its parent's file too
    beside = [said("x12b", 5, "I look.", tokens=1000, id="mx12", isSidechain=True, agentId="x1")]
    assert tokens(one(tmp_path / "b", [*MAIN, *beside, *BACK], x1=SUB)) == (302, 3002, 3304)


def test_a_retry_is_a_call_of_its_own_and_an_error_of_the_client_is_none(tmp_path: Path) -> None:
    failed = said("e1", 24, "API Error", tokens=0, isApiErrorMessage=True)
    failed["message"]["model"] = "<synthetic>"
    again = said("a7", 30, "Again.", tokens=200, id="other")
    assert tokens(one(tmp_path, [*MAIN, *BACK, failed, again], x1=SUB)) == (302 + 201, 3002, 3505)


def test_a_compaction_s_own_call_counts_and_its_summary_does_not(tmp_path: Path) -> None:
    compact = [said("a8", 40, "A summary.", tokens=5000), told("u8", 41, "A summary.", isCompactSummary=True)]
    assert tokens(one(tmp_path, [*MAIN, *BACK, *compact], x1=SUB)) == (302 + 5001, 3002, 8305)


def test_sub_agents_of_sub_agents_are_sub_agents(tmp_path: Path) -> None:
    inner = [told("y1", 6, "Deep."), said("y2", 7, "Deeper.", tokens=30_000)]
    mid = [told("x11", 3, "Look."), said("x12", 5, use("d1", "Agent", prompt="Deep."), tokens=1000)]
    mid += [result("x14", 8, "d1", "Deeper.", {"status": "completed", "agentId": "y9"}), said("x13", 9, "Seen.", tokens=2000)]
    trace = one(tmp_path, [*MAIN, *BACK], x1=mid, y9=inner)
    assert tokens(trace) == (302, 3002 + 30_001, 33_305)
    assert sides_of(trace).sub_agents == 2


def test_a_workflow_s_agents_count_once_and_its_journal_and_snapshot_not_at_all(tmp_path: Path) -> None:
    main = [told("u1", 0, "Go."), said("a1", 2, use("w1", "Workflow", script="x"), tokens=100)]
    main += [result("u2", 3, "w1", "Task ID: t1", {"runId": "r1"}), said("a2", 30, "Done.", tokens=200)]
    journal = [
        {"type": "started", "key": "k", "agentId": "x1"},
        {"type": "result", "key": "k", "agentId": "x1", "result": "Seen."},
    ]
    runs = "s/subagents/workflows/r1"
    write(tmp_path, {"s.jsonl": main, f"{runs}/agent-x1.jsonl": SUB, f"{runs}/journal.jsonl": journal})
    snapshot = tmp_path / "s" / "workflows" / "r1.json"
    snapshot.parent.mkdir(parents=True)
    counts = [{"agentId": "x1", "label": "eye", "tokens": 9999}]
    snapshot.write_text(json.dumps({"runId": "r1", "totalTokens": 9999, "workflowProgress": counts}))
    (trace,) = cpt.read_logs(tmp_path)
    assert tokens(trace) == (302, 3002, 3304)


def test_a_workflow_s_agent_without_a_transcript_has_what_the_snapshot_states(tmp_path: Path) -> None:
    main = [told("u1", 0, "Go."), said("a1", 2, use("w1", "Workflow", script="x"), tokens=100)]
    main += [result("u2", 3, "w1", "Task ID: t1", {"runId": "r1"})]
    journal = [{"type": kind, "key": name, "agentId": name, "result": "Seen."} for name in ("x1", "x2") for kind in ("started", "result")]
    runs = "s/subagents/workflows/r1"
    write(tmp_path, {"s.jsonl": main, f"{runs}/agent-x1.jsonl": SUB, f"{runs}/journal.jsonl": journal})
    (tmp_path / "s" / "workflows").mkdir()
    counts = [{"agentId": "x1", "tokens": 9999}, {"agentId": "x2", "tokens": 555}]
    (tmp_path / "s" / "workflows" / "r1.json").write_text(json.dumps({"runId": "r1", "workflowProgress": counts}))
    (trace,) = cpt.read_logs(tmp_path)
    assert tokens(trace) == (101, 3002 + 555, 101 + 3002 + 555)
    assert uncounted(trace.meta) == 1
    assert [e.to for e in trace.events if e.type == "spawn"] == ["x1", "x2"]


def test_a_transcript_that_no_spawn_names_is_a_sub_agent_s(tmp_path: Path) -> None:
    alone = [told("z1", 50, "Nobody asked."), said("z2", 51, "I know.", tokens=7000)]
    trace = one(tmp_path, [*MAIN, *BACK], x1=SUB, z9=alone)
    assert tokens(trace) == (302, 3002 + 7001, 10_305)
    assert trace.meta["sub_agents"] == ["z9"]


def test_agents_that_begin_with_a_copy_of_the_main_transcript_do_not_take_it(tmp_path: Path) -> None:
    """A fork, and the client's own agent that sums up: their files come before the session's by name."""
    main = [*MAIN, *BACK, said("a3", 30, use("c2", "Agent", prompt="Or so?"), tokens=400)]
    again = [record | {"uuid": f"f{k}", "isSidechain": True} for k, record in enumerate(main)]
    fork = [*again, told("f8", 31, "Or so?"), said("f9", 32, "So.", tokens=5000)]
    sums_up = [*main[:2], *SUB, told("k1", 40, "Sum up."), said("k2", 41, "All of it.", tokens=9000)]
    main += [result("u9", 33, "c2", "So.", {"status": "completed", "agentId": "afork1"})]
    trace = one(tmp_path, main, **{"afork1": fork, "acompact-0123": sums_up, "x1": SUB})
    assert tokens(trace) == (302 + 401, 3002 + 5001 + 9001, 302 + 401 + 3002 + 5001 + 9001)
    by_agent = {agent: sum((e.tokens_in or 0) for e in trace.events if e.agent == agent) for agent in ("main", "x1")}
    assert by_agent == {"main": 700, "x1": 3000}
    assert "acompact-0123" in trace.meta["sub_agents"]
    assert {e.role for e in trace.events if e.agent == "acompact-0123"} == {"compact"}
    assert trace.meta["import"]["links"].get("unlinked", 0) == 0


def test_peers_are_no_sub_agents() -> None:
    from counterpoint.trace import Event

    talk = [Event(id=f"e{k}", t=k, type="message", agent=who, tokens_in=10) for k, who in enumerate(["ada", "bob", "ada"])]
    trace = Trace(trace_id="t", task_id="t", events=talk)
    assert sides_of(trace) == Sides(0, Side(30, None, 30), Side())
    assert sides_of_trace(trace) is None


def test_a_plus_stands_behind_what_is_not_all(tmp_path: Path) -> None:
    sides = Sides(2, Side(1000, 0.5), Side(400, 0.1, unpriced=300))
    words = sides_words(sides, 1400, 0.6, unpriced={"m": 300})
    assert (
        words
        == "by the main transcript 1 k tokens, $0.50; in truth 1.4 k tokens, $0.60+, of which 2 sub-agents 400 tokens, $0.10+"
    )
    assert "1.4 k+ tokens" in str(sides_words(sides, 1400, 0.6, unpriced={"m": 300}, unknown=1))


# -- Codex ---------------------------------------------------------------------------------------------------------------


def thread(name: str, calls: list[int], *, begin: float, **head: Any) -> list[Record]:
    """A rollout whose calls read so many tokens and write one; the totals are sums, and each is written twice."""
    meta = {"id": name, "timestamp": at(begin), "cwd": "/home/ada/shop", **head}
    out: list[Record] = [{"timestamp": at(begin), "type": "session_meta", "payload": meta}]
    out.append({"timestamp": at(begin), "type": "turn_context", "payload": {"model": "gpt-5"}})
    total = 0
    for k, count in enumerate(calls):
        total += count
        item = {
            "type": "message",
            "role": "assistant",
            "id": f"{name}-{k}",
            "content": [{"type": "output_text", "text": f"{name} {k}"}],
        }
        info = {"total_token_usage": {"input_tokens": total, "output_tokens": k + 1}}
        out.append({"timestamp": at(begin + k + 1), "type": "response_item", "payload": item})
        counts = {"timestamp": at(begin + k + 1), "type": "event_msg", "payload": {"type": "token_count", "info": info}}
        out += [counts, counts]
    return out


def rollouts(folder: Path, *threads: list[Record]) -> list[Trace]:
    folder.mkdir(parents=True, exist_ok=True)
    for records in threads:
        name = records[0]["payload"]["id"]
        (folder / f"rollout-2026-01-01T00-00-00-{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return list(cpt.read_logs(folder))


A7, B7, C7 = (f"0195000{k}-0000-7000-8000-00000000000{k}" for k in (1, 2, 3))


def test_codex_guardians_are_sub_agents_and_repeated_totals_count_once(tmp_path: Path) -> None:
    guardian = thread(B7, [5000], begin=30, source={"subagent": {"other": "guardian"}}, parent_thread_id=A7)
    (trace,) = rollouts(tmp_path, thread(A7, [100, 200], begin=0), guardian)
    assert tokens(trace) == (302, 5001, 5303)


def test_a_codex_fork_is_no_sub_agent_and_its_copied_history_counts_once(tmp_path: Path) -> None:
    first = thread(A7, [100, 200], begin=0)
    copied = [record | {"timestamp": at(60)} for record in first]
    fork = thread(B7, [], begin=60, forked_from_id=A7)[:1] + copied
    turn = {"type": "task_started", "turn_id": C7}
    info = {"total_token_usage": {"input_tokens": 300 + 4000, "output_tokens": 3}}
    item = {"type": "message", "role": "assistant", "id": "own", "content": [{"type": "output_text", "text": "Mine."}]}
    fork += [
        {"timestamp": at(70), "type": "event_msg", "payload": turn}, {"timestamp": at(71), "type": "response_item", "payload": item},
        {"timestamp": at(71), "type": "event_msg", "payload": {"type": "token_count", "info": info}},
    ]  # fmt: skip
    (trace,) = rollouts(tmp_path / "both", first, fork)
    assert tokens(trace) == (302 + 4001, None, 4303)
    (alone,) = rollouts(tmp_path / "alone", fork)
    assert alone.tokens == 4001, "the copied history is the first thread's, also where that is not here"


@pytest.mark.parametrize(
    ("source", "trace_id", "main", "subs"),
    [("opencode", "ses_garden", 3890, 192), ("kimi", "session_swarm", 5092, 1082), ("gemini_cli", "3d0b7f52", 2450, 484)],
)
def test_other_agents_have_both_sides_too(source: str, trace_id: str, main: int, subs: int) -> None:
    (trace,) = (t for t in cpt.read_logs(SAMPLES / source) if t.trace_id.startswith(trace_id))
    assert tokens(trace) == (main, subs, main + subs)


@pytest.mark.parametrize("source", sorted(path.name for path in SAMPLES.iterdir()))
def test_the_two_sides_are_all_that_events_carry_and_quarters_have_the_same(source: str) -> None:
    for trace in cpt.read_logs(SAMPLES / source):
        sides = sides_of(trace)
        assert (sides.main.tokens or 0) + (sides.subs.tokens or 0) == counted_tokens(trace.events)
        line = Summary.of_trace(trace)
        if line.quarters and line.sides is not None:
            cut = line.of_quarters(line.quarters).sides
            assert cut is not None
            assert [(side.tokens or 0, side.unpriced) for side in (cut.main, cut.subs)] == [
                (side.tokens or 0, side.unpriced) for side in (sides.main, sides.subs)
            ]


# -- across the store ----------------------------------------------------------------------------------------------------

FIRST = [told("u1", 0, "Go."), said("a1", 2, "One.", tokens=100), said("a2", 3, "Two.", tokens=200)]
RESUMED = [*FIRST, told("u2", 10, "More."), said("a3", 12, "Three.", tokens=400)]
FORKED = [*FIRST, told("u9", 10, "Else."), said("a9", 12, "Four.", tokens=800)]
SESSIONS = {f"{ID}1": FIRST, f"{ID}2": RESUMED, f"{ID}3": FORKED}


def imported(folder: Path, *steps: list[str], sessions: dict[str, list[Record]] = SESSIONS) -> dict[str, int]:
    """Tokens of each trace of a store after some imports, each of some sessions in a folder of their own."""
    with Store(folder / "store") as store:
        for k, names in enumerate(steps):
            for name in names:
                write(folder / f"import{k}" / "project", {f"{name}.jsonl": sessions[name]}, name)
            list(import_sessions(find([folder / f"import{k}"]).sessions, store))
        return {row.id[-1]: int(row.tokens or 0) for row in store.rows()}


ORDERS = [[[name] for name in order] for order in itertools.permutations(SESSIONS)] + [[list(SESSIONS)]]


@pytest.mark.parametrize("steps", ORDERS, ids=lambda steps: "-".join("".join(n[-1] for n in names) for names in steps))
def test_copied_sessions_count_once_in_any_order(tmp_path: Path, steps: list[list[str]]) -> None:
    assert imported(tmp_path, *steps) == {"1": 302, "2": 401, "3": 801}


def test_copied_sessions_count_once_after_they_are_read_again(tmp_path: Path) -> None:
    first, resumed, _ = SESSIONS
    assert imported(tmp_path / "a", [first, resumed], [resumed], [first]) == {"1": 302, "2": 401}
    assert imported(tmp_path / "b", [resumed], [first], [resumed], [first, resumed]) == {"1": 302, "2": 401}


def test_two_copies_whose_first_is_not_here_share_what_it_said(tmp_path: Path) -> None:
    _, resumed, forked = SESSIONS
    assert sum(imported(tmp_path, [resumed], [forked]).values()) == 302 + 401 + 801


def test_a_copy_does_not_count_its_sub_agents_again(tmp_path: Path) -> None:
    first = [*MAIN, *BACK]
    sessions = {f"{ID}1": first, f"{ID}2": [*first, told("u3", 60, "More."), said("a3", 61, "Three.", tokens=400)]}
    one, two = sessions
    for steps in ([[one], [two]], [[two], [one]], [[one, two]]):
        folder = tmp_path / "-".join("".join(n[-1] for n in names) for names in steps)
        assert imported(folder, *steps, sessions=sessions) == {"1": 302 + 77, "2": 401}, steps


def test_a_fork_with_uuids_of_its_own_counts_what_it_added(tmp_path: Path) -> None:
    """The SDK's forks say which records they copied; the original went on, and is the longer file."""
    copied = [r | {"uuid": f"n{k}", "forkedFrom": {"sessionId": f"{ID}1", "messageUuid": r["uuid"]}} for k, r in enumerate(FIRST)]
    sessions = {f"{ID}1": [*RESUMED, said("a4", 14, "Five.", tokens=1600)], f"{ID}2": [*copied, said("a9", 15, "Four.", tokens=800)]}
    assert imported(tmp_path, list(sessions), sessions=sessions) == {"1": 302 + 401 + 1601, "2": 801}


def test_the_copy_that_has_the_sub_agents_keeps_them(tmp_path: Path) -> None:
    """Resumed in another folder, where the sub-agents' files are not: shorter, and it knows less."""
    first, again = [*MAIN, *BACK], [*MAIN, *BACK, told("u3", 60, "More."), said("a3", 61, "Three.", tokens=400)]
    looks = [said(f"x2{k}", 6 + k / 4, "I look on.", tokens=10) for k in range(6)]
    for k, order in enumerate([["one"], ["two"]], 1):
        folder, steps = tmp_path / str(k), [*order, *({"one", "two"} - set(order))]
        for steps_at_once in ([steps], [[step] for step in steps]):
            with Store(folder / f"store{len(steps_at_once)}") as store:
                for names in steps_at_once:
                    if "one" in names:
                        beside = {f"one/{ID}1/subagents/agent-x1.jsonl": [*SUB[:2], *looks, SUB[2]]}
                        write(folder, {f"one/{ID}1.jsonl": first, **beside}, f"{ID}1")
                    if "two" in names:
                        write(folder, {f"two/{ID}2.jsonl": again}, f"{ID}2")
                    list(import_sessions(find([folder / name for name in names]).sessions, store))
                assert {row.id[-1]: row.tokens for row in store.rows()} == {"1": 302 + 3002 + 66, "2": 401}, steps_at_once


def test_runs_of_one_task_are_no_copies(tmp_path: Path) -> None:
    later = [record | {"timestamp": record["timestamp"].replace("2026-01-01", "2026-01-02")} for record in FIRST]
    assert imported(tmp_path, [f"{ID}1"], [f"{ID}2"], sessions={f"{ID}1": FIRST, f"{ID}2": later}) == {"1": 302, "2": 302}


def test_top_says_both_sides_of_one_trace_of_many_and_of_a_period(run: Ends, tmp_path: Path) -> None:
    write(tmp_path / "logs", {"s.jsonl": [*MAIN, *BACK], "s/subagents/agent-x1.jsonl": SUB})
    store = tmp_path / "store"
    assert run("import", tmp_path / "logs", "--store", store)[0] == 0
    said_so = "by the main transcript 302 tokens, $0.00093; in truth 3.3 k tokens, $0.01, of which 1 sub-agent 3 k tokens, $0.009"
    for words in (["s"], [], ["--group", "model"], ["--group", "day"], ["since:2025-12-31"]):
        code, out, _ = run("top", *words, "--store", store)
        assert (code, f"sides     {said_so}" in out) == (0, True), (words, out)
    for command in (["report"], ["show", "s"]):
        assert said_so in " ".join(run(*command, "--store", store)[1].split()), command
    told = json.loads(run("top", "s", "--json", "--store", store)[1])
    assert told["sides"]["subs"] == {"tokens": 3002, "cost_usd": pytest.approx(0.00903), "unpriced": 0}
    whole = json.loads(run("top", "--group", "project", "--json", "--store", store)[1])["total"]
    assert (whole["sides"]["sub_agents"], whole["sides"]["main"]["tokens"], whole["tokens"]) == (1, 302, 3304)
