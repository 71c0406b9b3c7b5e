"""A lead and a teammate of Claude Code, each with a transcript of its own: who read which message, and when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from counterpoint.trace import Trace
from logs import imported


def line(kind: str, uuid: str, at: float, content: Any, **more: Any) -> dict[str, Any]:
    """A record, `at` seconds after midnight."""
    message = content if kind == "assistant" else {"role": "user", "content": content}
    when = f"2026-01-01T00:{int(at) // 60:02}:{at % 60:06.3f}Z"
    return {"type": kind, "uuid": uuid, "timestamp": when, "version": "2.1.300", "cwd": "/r", "message": message, **more}


def said(uuid: str, at: float, *blocks: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    return line("assistant", uuid, at, {"id": f"m{uuid}", "role": "assistant", "model": "m", "content": list(blocks), "usage": usage})


def answer(uuid: str, at: float, call: str, **made: Any) -> dict[str, Any]:
    return line("user", uuid, at, [{"type": "tool_result", "tool_use_id": call, "content": "ok"}], toolUseResult=made)


def use(call: str, tool: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": tool, "input": given}


def letter(who: str, text: str) -> str:
    return f'<teammate-message teammate_id="{who}" color="red">\n{text}\n</teammate-message>'


def team(mate: list[dict[str, Any]], sends: list[tuple[float, str]], heard: list[tuple[float, str]]) -> Trace:
    """A lead that spawns ada at 2 s, writes to her at some moments and hears from her at others; and her own transcript."""
    made = {"status": "teammate_spawned", "agent_id": "ada@team", "teammate_id": "ada@team", "name": "ada"}
    lead = [line("user", "u0", 1, "Go."), said("a0", 2, use("c0", "Agent", prompt="Write.", name="ada", team_name="team"))]
    lead.append(answer("u1", 2.1, "c0", **made))
    for k, (at, text) in enumerate(sends):
        lead += [said(f"b{k}", at, use(f"s{k}", "SendMessage", to="ada", message=text)), answer(f"v{k}", at + 0.1, f"s{k}", success=True)]
    for k, (at, text) in enumerate(heard):
        lead += [line("user", f"w{k}", at, letter("ada", text)), said(f"x{k}", at + 1, {"type": "text", "text": "Thanks."})]
    lead = [{**r, "teamName": "team", "sessionId": "s"} for r in sorted(lead, key=lambda r: r["timestamp"])]
    own = [{**r, "teamName": "team", "agentName": "ada", "sessionId": "t"} for r in mate]
    name = "00000000-0000-4000-8000-00000000000"
    files = {f"p/{name}1.jsonl": lead, f"p/{name}2.jsonl": own}
    (trace,) = imported("claude_code", {f: "".join(json.dumps(r) + "\n" for r in rows).encode() for f, rows in files.items()})
    return trace


def works(*moments: float, letters: dict[float, str] | None = None) -> list[dict[str, Any]]:
    """Ada's transcript: her task at 3 s, a command that is over at each moment, and letters where they stand in it."""
    rows = [line("user", "t0", 3, letter("team-lead", "Write."))]
    for k, at in enumerate(moments):
        rows += [said(f"p{k}", at - 1, use(f"k{k}", "Bash", command=f"run {k}")), answer(f"q{k}", at, f"k{k}")]
    rows += [line("user", f"l{at}", at, letter("team-lead", text)) for at, text in (letters or {}).items()]
    return sorted(rows, key=lambda r: str(r["timestamp"]))


def worked_s(trace: Trace, agent: str) -> float:
    """Seconds from an agent's first call to its last result."""
    mine = [e for e in trace.events if e.agent == agent and e.type in ("tool_call", "tool_result")]
    return max(e.t + (e.dur or 0) for e in mine) - min(e.t for e in mine)


@pytest.mark.parametrize("is_shown", [True, False], ids=["in her transcript", "not in her transcript"])
def test_a_message_is_read_by_the_first_step_after_it(is_shown: bool) -> None:
    mate = works(8, 16, 24, 32, 36, 44, letters={36.5: "Stop  soon."} if is_shown else None)
    trace = team(mate, [(35, "Stop soon.")], [(30, "Half done."), (46, "Done.")])
    (read,) = [e for e in trace.edges if e.type == "message" and e.src == "s0"]
    assert read.dst == "k5", "a model call that began after 35 s made it; the four before had begun"
    assert "mended" not in trace.meta["import"], "one machine has one clock: nothing is moved"
    assert worked_s(trace, "ada@team") == pytest.approx(37), "from her first command at 7 s to the last result at 44 s"
    assert [e.at for e in trace.events] == sorted(e.at or 0 for e in trace.events)


def test_a_message_while_the_model_answers_is_not_read_by_that_answer() -> None:
    trace = team(works(8, 20, 44), [(35, "Stop soon.")], [(30, "Half done."), (46, "Done.")])
    assert not [e for e in trace.edges if e.src == "s0"], "her last model call began at 20 s"
    assert worked_s(trace, "ada@team") == pytest.approx(37)


def test_a_message_after_the_last_step_is_read_by_nobody() -> None:
    trace = team(works(8, 16), [(50, "Still there?")], [(20, "Done.")])
    assert not [e for e in trace.edges if e.src == "s0"]
    assert worked_s(trace, "ada@team") == pytest.approx(9)


def test_a_message_to_everybody_is_read_by_each_who_has_it() -> None:
    def two(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        return [{**r, "uuid": f"{name}{r['uuid']}", "teamName": "team", "agentName": name, "sessionId": name} for r in rows]

    lead = [line("user", "u0", 1, "Go.")]
    for k, name in enumerate(("ada", "bob")):
        made = {"status": "teammate_spawned", "agent_id": f"{name}@team", "name": name}
        lead += [said(f"a{k}", 2 + k / 10, use(f"c{k}", "Agent", prompt="Write.", name=name, team_name="team"))]
        lead += [answer(f"r{k}", 2.05 + k / 10, f"c{k}", **made)]
    lead += [said("b", 10, use("all", "SendMessage", to="*", message="Wrap up."))]
    files = {"1": [{**r, "teamName": "team", "sessionId": "s"} for r in lead]}
    for k, name in enumerate(("ada", "bob")):
        rows = [line("user", "t", 3, letter("team-lead", "Write.")), line("user", "l", 11, letter("team-lead", "Wrap up."))]
        files[str(k + 2)] = two([*rows, said(f"{name}-end", 14, {"type": "text", "text": "Done."})], name)
    data = {f"p/00000000-0000-4000-8000-00000000000{k}.jsonl": rows for k, rows in files.items()}
    (trace,) = imported("claude_code", {f: "".join(json.dumps(r) + "\n" for r in rows).encode() for f, rows in data.items()})
    assert {e.dst for e in trace.edges if e.src == "all"} == {"mada-end", "mbob-end"}


def test_the_wall_clock_is_of_the_work() -> None:
    """A hook five days before anybody asked, and a notice long after the answer, are in the trace and not in its time."""
    day = 86_400
    hook = {"type": "hook_additional_context", "content": ["Loaded."]}
    early = {**line("attachment", "h0", 0, ""), "attachment": hook, "timestamp": "2025-12-27T00:00:00.000Z"}
    late = {**line("user", "h1", 0, "<system-reminder>Idle.", isMeta=True), "timestamp": "2026-01-03T00:00:00.000Z"}
    rows = [early, line("user", "u0", 10, "Go."), said("a0", 25, {"type": "text", "text": "Done."}), late]
    name = "11112222-3333-4444-8555-666677778888"
    data = "".join(json.dumps({**row, "sessionId": name}) + "\n" for row in rows).encode()
    (trace,) = imported("claude_code", {f"p/{name}.jsonl": data})
    assert len(trace.events) == 4
    assert trace.costs["wall_clock_s"] == pytest.approx(15)
    assert trace.duration_s == pytest.approx(15)
    assert trace.meta["began"] == 1_767_225_610, "when it was asked"
    assert max(e.t for e in trace.events) > 6 * day, "when each event was is as it was"
