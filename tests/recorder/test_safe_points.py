"""Orders to a team of a person's own code, in plain functions, LangGraph and the Agents SDK, and in a replay of the run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import counterpoint as cpt
from counterpoint.recorder.orders import Order, effects, send
from counterpoint.recorder.safe_points import StoppedByOperator, told_arguments
from counterpoint.recorder.team_replay import TeamReplay
from counterpoint.trace import Trace
from counterpoint.trace.steering import is_steered, order_of

Say = Callable[..., Order]


def _sends(folder: Path, rec: Any) -> Say:
    """Send an order to the recording that runs, as another process does."""

    def say(action: str, agent: str = "", **more: Any) -> Order:
        assert rec.sync()
        return send(folder, rec.trace_id, Order(action=action, agent=agent, **more))  # type: ignore[arg-type]

    return say


async def _heard(rec: Any, order: Order) -> None:
    """Wait until the recording has seen an order."""
    points = rec.session.points
    while order.id not in points._ids:
        points._look()
        await asyncio.sleep(0.001)


def _orders(trace: Trace) -> list[tuple[str, str | None]]:
    return [(order["action"], e.to) for e in trace.events if (order := order_of(e)) is not None]


def _plain(folder: Path, plan: Callable[[Any, Say, str], Any]) -> tuple[Any, Callable[[], None], list[str]]:
    """Two readers and a lead; `plan` sends orders before a reader's second question, where nothing is replayed."""
    rec, real = cpt.record(folder, task="own", agent="lead"), []
    said: list[str] = []

    @rec.model(name="m")
    async def ask(prompt: str) -> str:
        real.append(prompt)
        return prompt.upper()

    @rec.agent(name=lambda page: f"reader {page}")
    async def reader(page: str) -> str:
        out = await ask(f"{page} 1")
        if len(said) < 2 and not isinstance(rec.session.run, _replay_run()):
            said.append(page)
            await plan(rec, _sends(folder, rec), page)
        return f"{out} {await ask(f'{page} 2')}"

    @rec.agent
    async def lead() -> str:
        return await ask(" and ".join([await reader("a"), await reader("b")]))

    def team() -> None:
        with rec:
            answer = asyncio.run(lead())
            rec.reward(team=float("B 2" in answer))

    return rec, team, real


def _replay_run() -> type:
    from counterpoint.recorder.team_replay import ForkRun

    return ForkRun


def test_a_message_comes_with_what_the_model_is_asked_next_and_again_in_a_replay(tmp_path: Path) -> None:
    async def plan(rec: Any, say: Say, page: str) -> None:
        if page == "a":
            await _heard(rec, say("message", "reader a", text="only the second page"))

    rec, team, real = _plain(tmp_path, plan)
    team()
    assert real == ["a 1", "a 2\n\nonly the second page", "b 1", "b 2", "A 1 A 2\n\nONLY THE SECOND PAGE and B 1 B 2"]
    trace = rec.trace
    assert rec.problems == []
    assert [str(p) for p in cpt.problems(trace)] == []
    assert _orders(trace) == [("message", "reader a")]
    assert is_steered(trace)
    told = next(e for e in trace.events if order_of(e) is not None)
    step = next(e for e in trace.events if trace.text(e) == "A 2\n\nONLY THE SECOND PAGE")
    assert (told.id, step.id, "message") in {(e.src, e.dst, e.type) for e in trace.edges}
    real.clear()
    again = TeamReplay(team).fork(trace, "e1")
    assert real == []
    assert [again.text(e) for e in again.events] == [trace.text(e) for e in trace.events]
    assert _orders(again) == _orders(trace)
    other = TeamReplay(team).fork(trace, step.id, cpt.Substitute("nothing"))
    assert real == ["A 1 nothing and B 1 B 2"]
    assert _orders(other) == _orders(trace)


def test_an_agent_that_is_stopped_gives_back_an_empty_result_and_a_team_is_scored_with_what_it_has(tmp_path: Path) -> None:
    async def one(rec: Any, say: Say, page: str) -> None:
        if page == "b":
            await _heard(rec, say("stop", "reader b"))

    rec, team, real = _plain(tmp_path / "one", one)
    team()
    assert real == ["a 1", "a 2", "b 1", "A 1 A 2 and "]
    assert rec.trace.rewards == {"team": 0.0}
    assert _orders(rec.trace) == [("stop", "reader b")]
    real.clear()
    assert _orders(TeamReplay(team).fork(rec.trace, "e1")) == _orders(rec.trace)
    assert real == []

    async def all_of_them(rec: Any, say: Say, page: str) -> None:
        await _heard(rec, say("stop", text="enough"))

    rec, team, real = _plain(tmp_path / "all", all_of_them)
    team()
    assert real == ["a 1"]
    assert rec.trace.rewards == {"team": 0.0}
    assert _orders(rec.trace) == [("stop", "reader a"), ("stop", "reader b"), ("stop", "lead")]


def test_a_stop_takes_all_below_along_and_who_acts_in_no_agent_ends_with_the_recording(tmp_path: Path) -> None:
    rec = cpt.record(tmp_path, task="own")

    @rec.tool
    def look(page: str) -> str:
        return page

    def sent(agent: str) -> None:
        assert rec.sync()
        order = send(tmp_path, str(rec.trace_id), Order(action="stop", agent=agent))
        while order.id not in rec.session.points._ids:
            rec.session.points._look()

    def team() -> None:
        with rec:
            with rec.acting("boss"), rec.acting("hand"):
                look("a")
                sent("boss")
                with pytest.raises(StoppedByOperator, match="hand was stopped"):
                    look("b")
            look("c")
            sent("")
            look("d")

    with pytest.raises(StoppedByOperator, match="main was stopped"):
        team()
    trace = rec.trace
    assert trace is not None
    assert trace.meta["stopped"] == "main was stopped by an operator"
    assert [trace.text(e) for e in trace.events if e.type == "tool_call"] == ["a", "c"]


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_paused_agent_waits_until_it_is_resumed(tmp_path: Path, kind: str) -> None:
    rec, came = cpt.record(tmp_path, task="own", agent="solo"), []

    @rec.tool
    def look(page: str) -> str:
        came.append(page)
        return page

    @rec.tool
    async def look_later(page: str) -> str:
        came.append(page)
        return page

    def resume() -> None:
        while not effects(tmp_path, str(rec.trace_id), paused.id):
            rec.session.run.sync()
        came.append("resumed")
        send(tmp_path, str(rec.trace_id), Order(action="resume", agent="solo"))

    with rec:
        look("a")
        assert rec.sync()
        paused = send(tmp_path, str(rec.trace_id), Order(action="pause", agent="solo"))
        while paused.id not in rec.session.points._ids:
            rec.session.points._look()
        other = threading.Thread(target=resume)
        other.start()
        look("b") if kind == "plain" else asyncio.run(look_later("b"))
        other.join()
    assert came == ["a", "resumed", "b"]
    assert rec.trace is not None
    assert _orders(rec.trace) == [("pause", "solo"), ("resume", "solo")]


def test_words_come_where_a_model_is_asked_in_words() -> None:
    def chat(model: str, messages: list[Any], temperature: float = 1.0) -> None: ...
    def alone(self: Any, text: str) -> None: ...
    def none(number: int) -> None: ...

    asked = [{"role": "user", "content": "hi"}]
    said = [*asked, {"role": "user", "content": "stop it"}]
    assert told_arguments(chat, ("m", asked), {}, ["stop it"]) == (("m", said), {})
    assert told_arguments(chat, ("m",), {"messages": asked}, ["stop it"]) == (("m",), {"messages": said})
    assert told_arguments(alone, (None, "hi"), {}, ["a", "b"]) == ((None, "hi\n\na\n\nb"), {})
    assert told_arguments(none, (1,), {}, ["a"]) is None


@pytest.mark.skipif(not find_spec("agents"), reason="needs openai-agents")
def test_a_team_of_the_agents_sdk_is_told_and_stopped(tmp_path: Path) -> None:
    from agents import Agent, Runner, function_tool, set_trace_processors

    from counterpoint.recorder.adapters.openai_agents import processor
    from sdk_help import calls, local_model, says, text_of

    real: list[Any] = []
    rec = cpt.record(tmp_path, task="sdk")
    orders = iter(["message", "stop"])

    @function_tool
    async def look(page: str) -> str:
        """Look."""
        if not isinstance(rec.session.run, _replay_run()):
            action = next(orders)
            await _heard(rec, _sends(tmp_path, rec)(action, "A", text="be brief"))
        return page

    def answer(instructions: str, items: list[Any]) -> list[Any]:
        return says("done") if len(items) > 9 else calls(("look", {"page": text_of(items[-1])}), at=str(len(items)))

    agent = Agent(name="A", model=local_model(answer, real), tools=[look])

    def team() -> None:
        with rec:
            set_trace_processors([processor(rec)])
            rec.reward(team=float(Runner.run_sync(agent, "go").final_output == ""))

    team()
    set_trace_processors([])
    assert rec.problems == []
    assert [text_of(item) for item in real] == ["go", "be brief"]
    assert rec.trace.rewards == {"team": 1.0}
    assert _orders(rec.trace) == [("message", "A"), ("stop", "A")]
    real.clear()
    again = TeamReplay(team).fork(rec.trace, "e1")
    set_trace_processors([])
    assert real == []
    assert (_orders(again), again.rewards) == (_orders(rec.trace), {"team": 1.0})


@pytest.mark.skipif(not find_spec("langgraph"), reason="needs langgraph")
def test_a_graph_is_paused_and_stopped_and_says_that_it_takes_no_message(tmp_path: Path) -> None:
    from langchain_core.tools import tool
    from langgraph.graph import END, START, StateGraph

    from counterpoint.recorder.adapters.langgraph import handler

    rec, came = cpt.record(tmp_path, task="lg"), []

    @tool
    def look(page: str) -> str:
        """Look."""
        came.append(page)
        return page

    def node(state: dict[str, Any]) -> dict[str, Any]:
        look.invoke({"page": "a"})
        for order in (say("message", "reader", text="be brief"), say("stop", text="enough")):
            while order.id not in rec.session.points._ids:
                rec.session.points._look()
        look.invoke({"page": "b"})
        return {}

    say = _sends(tmp_path, rec)
    graph = StateGraph(dict)
    graph.add_node("reader", node)
    graph.add_edge(START, "reader")
    graph.add_edge("reader", END)
    with pytest.raises(StoppedByOperator), rec:
        graph.compile().invoke({"q": 1}, config={"callbacks": [handler(rec)]})
    assert came == ["a"]
    assert _orders(rec.trace) == [("message", "reader"), ("stop", "reader")]
    assert ["told to no model" in problem for problem in rec.problems] == [True]
    assert rec.trace.meta["stopped"] == "reader was stopped by an operator"
