"""Who a call is: every call of an agent's function is an agent of its own, however quick; a name says otherwise, at any speed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from counterpoint import Trace, problems, record

PAIRS = [("a", "b"), ("a", "a")]


def _clean(rec: Any) -> Trace:
    assert rec.problems == []
    assert problems(rec.trace) == []
    return rec.trace


def _spawned(trace: Trace) -> list[tuple[str | None, str]]:
    """Who was spawned by whom, with the brief."""
    return [(e.to, trace.text(e) or "") for e in trace.events if e.type == "spawn"]


def _plain(rec: Any, name: Any) -> Callable[[str, str], Any]:
    call = rec.agent(name=name)(lambda page: page.upper())
    return lambda one, two: [call(one), call(two)]


def _tasks(waits: bool) -> Callable[[Any, Any], Callable[[str, str], Any]]:
    def make(rec: Any, name: Any) -> Callable[[str, str], Any]:
        @rec.agent(name=name)
        async def call(page: str) -> str:
            if waits:  # the second begins before the first has ended
                await asyncio.sleep(0)
            return page.upper()

        async def both(one: str, two: str) -> list[str]:
            return list(await asyncio.gather(call(one), call(two)))

        return lambda one, two: asyncio.run(both(one, two))

    return make


def _threads(rec: Any, name: Any) -> Callable[[str, str], Any]:
    together, out = threading.Barrier(2), []

    @rec.agent(name=name)
    def call(page: str) -> str:
        together.wait(60)
        out.append(page.upper())
        return page.upper()

    def both(one: str, two: str) -> list[str]:
        begun = [threading.Thread(target=call, args=(page,)) for page in (one, two)]
        for thread in begun:
            thread.start()
        for thread in begun:
            thread.join()
        return sorted(out)

    return both


def _generators(rec: Any, name: Any) -> Callable[[str, str], Any]:
    @rec.agent(name=name)
    def call(page: str) -> Iterator[str]:
        yield page.upper()

    return lambda one, two: ["".join(pair) for pair in ([*call(one)], [*call(two)])]


def _async_generators(rec: Any, name: Any) -> Callable[[str, str], Any]:
    @rec.agent(name=name)
    async def call(page: str) -> AsyncIterator[str]:
        yield page.upper()

    async def both(one: str, two: str) -> list[str]:
        return [part for page in (one, two) async for part in call(page)]

    return lambda one, two: asyncio.run(both(one, two))


def _methods(rec: Any, name: Any) -> Callable[[str, str], Any]:
    class Team:
        @rec.agent(name=None if name is None else (lambda self, page: name(page)) if callable(name) else name)
        def call(self, page: str) -> str:
            return page.upper()

    return lambda one, two: [Team().call(one), Team().call(two)]


MAKERS = {
    "plain": _plain, "quick tasks": _tasks(False), "slow tasks": _tasks(True), "threads": _threads,
    "generators": _generators, "async generators": _async_generators, "methods": _methods,
}  # fmt: skip


@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_each_call_is_an_agent_of_its_own(tmp_path: Path, kind: str, one: str, two: str) -> None:
    with record(tmp_path, task="demo") as rec:
        assert MAKERS[kind](rec, None)(one, two) == [one.upper(), two.upper()]
    trace = _clean(rec)
    (first, _), (second, _) = _spawned(trace)
    assert second == f"{first}-2"
    assert sorted(text for _, text in _spawned(trace)) == [one, two]
    backs = {e.agent: trace.text(e) for e in trace.events if e.type == "return"}
    assert backs == {who: text.upper() for who, text in _spawned(trace)}
    assert not [e for e in trace.events if e.type == "message"]


@pytest.mark.parametrize("kind", list(MAKERS))
def test_a_name_is_one_agent_however_its_calls_overlap(tmp_path: Path, kind: str) -> None:
    with record(tmp_path, task="demo") as rec:
        assert MAKERS[kind](rec, "reader")("a", "b") == ["A", "B"]
    trace = _clean(rec)
    assert trace.agents == ["main", "reader"]
    ((who, first),) = _spawned(trace)
    (again,) = [e for e in trace.events if e.type == "message"]
    assert (who, again.agent, again.to) == ("reader", "main", "reader")
    assert {first, trace.text(again)} == {"a", "b"}
    backs = [e for e in trace.events if e.type == "return"]
    assert sorted(trace.text(e) or "" for e in backs) == ["A", "B"]
    brief = {e.dst: trace.text(trace.events[trace.index[e.src]]) for e in trace.edges if e.dst in {b.id for b in backs}}
    assert all(brief[back.id] == (trace.text(back) or "").lower() for back in backs)  # each branch read its own brief


@pytest.mark.parametrize("kind", list(MAKERS))
def test_a_name_may_be_a_function_of_the_arguments(tmp_path: Path, kind: str) -> None:
    with record(tmp_path, task="demo") as rec:
        both = MAKERS[kind](rec, lambda page: f"reader of {page}")
        both("a", "b")
        if kind != "threads":
            both("a", "b")
    trace = _clean(rec)
    assert sorted(trace.agents) == ["main", "reader of a", "reader of b"]


def test_the_journeys_own_example_has_two_readers(tmp_path: Path) -> None:
    rec = record(tmp_path, task="bridge", agent="lead")

    @rec.tool
    async def read(page: str) -> str:
        return {"s1": "It opened in 1932.", "s2": "It is 503 m long."}[page]

    @rec.agent(role="reader")
    async def reader(page: str) -> str:
        return await read(page)

    @rec.agent
    async def lead(question: str) -> str:
        return " ".join(await asyncio.gather(reader("s1"), reader("s2")))

    with rec:
        asyncio.run(lead("When, and how long?"))
        asyncio.run(lead("And again?"))  # the root is who `agent=` names
    trace = _clean(rec)
    assert trace.agents == ["lead", "reader", "reader-2", "reader-3", "reader-4"]
    assert {e.role for e in trace.events if e.agent.startswith("reader")} == {"reader"}


def test_who_calls_himself_by_name_is_not_set_to_work_by_himself(tmp_path: Path) -> None:
    with record(tmp_path, task="demo") as rec:

        @rec.agent(name="split")
        def split(depth: int) -> int:
            return 1 if depth == 0 else half(depth) + half(depth)

        @rec.agent(name="half")
        def half(depth: int) -> int:
            return split(depth - 1)

        assert split(2) == 4
    trace = _clean(rec)
    bosses = {e.to: e.agent for e in trace.events if e.type == "spawn"}
    assert bosses["split"] == "main"
    assert bosses["half"] == "split"
    assert bosses["split-2"] == "half"
    assert all(e.agent != e.to for e in trace.events)


def test_who_was_spawned_before_is_the_next_call(tmp_path: Path) -> None:
    with record(tmp_path, task="demo") as rec:
        worker = rec.agent(lambda: "done")
        rec.spawn("<lambda>", text="your part")
        worker()
        worker()
    trace = _clean(rec)
    assert _spawned(trace) == [("<lambda>", "your part"), ("<lambda>-2", "")]


def test_a_name_that_cannot_be_made_is_a_problem_and_the_agent_is_recorded(tmp_path: Path) -> None:
    with record(tmp_path, task="demo") as rec:
        worker = rec.agent(name=lambda x: x.missing)(lambda x: x + 1)
        assert [worker(1), worker(2)] == [2, 3]
    assert [p.split(":")[0] for p in rec.problems] == ["AttributeError"] * 2
    assert len(_spawned(rec.trace)) == 2
