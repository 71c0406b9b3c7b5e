"""Teams that run in this process under a guard: recorded ones, and our own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint.errors import InputError
from counterpoint.guard.limits import MARK, limits_of
from counterpoint.lab.team.session import Spec, record_team
from counterpoint.recorder.live_guard import LimitReached
from counterpoint.store import Store


def recording(tmp_path: Path, **session: float) -> Any:
    return counterpoint.record(tmp_path / "traces", task="t", agent="lead", limits={"session": session})


def test_a_recorded_team_may_not_spawn_past_its_limits(tmp_path: Path) -> None:
    rec, begun, refused = recording(tmp_path, agents=3, depth=2), [], []

    @rec.agent
    async def worker(n: int) -> str:
        begun.append(n)
        try:
            return await worker(n + 10) if n < 30 else "end"
        except LimitReached as no:
            refused.append(no.limit)
            return "did it myself"

    @rec.agent
    async def lead() -> None:
        await worker(1)
        for n in (40, 50):
            try:
                await worker(n)
            except LimitReached as no:
                refused.append(no.limit)

    with rec:
        asyncio.run(lead())
    assert begun == [1, 11, 40]  # worker 1 and its own, and one more: each call is an agent
    assert refused == ["depth", "agents"]
    assert [e.error for e in rec.trace.events if e.type == "safety_event"] == ["limit"] * 2
    assert counterpoint.problems(rec.trace) == []
    assert rec.problems == []


def test_parallel_spawns_tokens_and_failures(tmp_path: Path) -> None:
    rec = recording(tmp_path, agents=2, tokens=100, repeats=2)

    @rec.tool
    def search(words: str) -> str:
        raise OSError(words)

    @rec.model(name="m")
    def ask(prompt: str) -> dict[str, Any]:
        return {"text": "x", "usage": {"prompt_tokens": 60, "completion_tokens": 40}}

    @rec.agent
    async def worker(n: int) -> int:
        await asyncio.sleep(0)
        return n

    async def team() -> list[Any]:
        return await asyncio.gather(*(worker(n) for n in range(4)), return_exceptions=True)

    with rec:
        done = asyncio.run(team())
        assert [type(one) for one in done] == [int, int, LimitReached, LimitReached]
        for wanted in (OSError, OSError, LimitReached):
            with pytest.raises(wanted):
                search("the same")
        with pytest.raises(OSError, match="another"):
            search("another")
        ask("first")
        with pytest.raises(LimitReached, match="100 tokens have been used in this session") as no:
            ask("second")
        assert no.value.limit == "tokens"
    assert sum(e.type == "safety_event" for e in rec.trace.events) == 4


def test_without_limits_nothing_is_refused_and_wrong_ones_are_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'agents'"):
        recording(tmp_path, agnets=3)
    with pytest.raises(InputError, match="limits=3"):
        counterpoint.record(tmp_path, task="t", limits=3)  # type: ignore[arg-type]
    with pytest.raises(LookupError, match="no such file"):
        counterpoint.record(tmp_path, task="t", limits=tmp_path / "none.toml")


def test_a_team_of_our_own_is_told_and_then_stopped(tmp_path: Path) -> None:
    spec = Spec(task="ledger_hunt", config={"documents": 20, "rows": 3, "parts": 2}, topology="centralized")
    with Store(tmp_path / "traces") as store:
        free = asyncio.run(record_team(spec, store, trace_id="free"))
        held = asyncio.run(record_team(spec, store, trace_id="held", limits=limits_of({"session": {"calls": 2}})))
        roomy = asyncio.run(record_team(spec, store, trace_id="roomy", limits=limits_of({"session": {"calls": 1e6}})))
    orders = [e for e in held.events if e.type == "human_intervention" and (e.extra or {}).get("order")]
    assert {e.extra["order"]["by"] for e in orders} == {"guard"}  # type: ignore[index]
    told = [e.extra["order"]["action"] for e in orders]  # type: ignore[index]
    assert told.count("message") >= 1
    assert held.contents[orders[0].content_ref].startswith(MARK)  # type: ignore[index]
    assert sum(e.type == "tool_call" for e in held.events) < sum(e.type == "tool_call" for e in free.events)
    assert [e.key for e in roomy.events] == [e.key for e in free.events]


def test_failures_in_a_row_are_those_of_one_agent(tmp_path: Path) -> None:
    rec, refused = recording(tmp_path, failures=2, repeats=99), []

    @rec.tool
    def search(words: str) -> str:
        raise LookupError(words)

    def fails(words: str) -> None:
        try:
            search(words)
        except LimitReached as no:
            refused.append((words, no.limit))
        except LookupError:
            pass

    @rec.agent
    def worker(name: str) -> None:
        for k in range(3):
            fails(f"{name}{k}")

    with rec:
        fails("root0")
        worker("a")
        fails("root1")
        fails("root2")
    assert refused == [("a2", "failures"), ("root2", "failures")]
