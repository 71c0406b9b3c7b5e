"""A LangGraph team, run again over its recording, without a line more than recording takes."""

from __future__ import annotations

import asyncio
import operator
import random
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.audits.diff import fingerprint
from counterpoint.errors import NotIdentified
from counterpoint.recorder.team_replay import TeamReplay
from counterpoint.trace import Trace

pytestmark = pytest.mark.skipif(not find_spec("langgraph"), reason="needs langgraph")


class State(TypedDict, total=False):
    q: str
    notes: Annotated[list[str], operator.add]
    answer: str


def _model(real: list[str], sign: str = "") -> Any:
    """A chat model by LangChain's own protocol, which says in capitals what it is told."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

    class Loud(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "loud"

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
            said = str(messages[-1].content)
            real.append(said)
            usage = {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}
            message = AIMessage(said.upper() + sign, usage_metadata=usage, response_metadata={"model": "loud"})
            return ChatResult(generations=[ChatGeneration(message=message)])

        async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
            await asyncio.sleep(random.random() / 50)
            return self._generate(messages)

    class Slow(Loud):
        def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> Iterator[Any]:
            real.append("stream")
            for word in str(messages[-1].content).split():
                yield ChatGenerationChunk(message=AIMessageChunk(f"{word} "))

    return Loud(), Slow()


def _team(folder: Path, real: list[str], **about: Any) -> tuple[Any, Callable[[], Any]]:
    from langchain_core.tools import tool
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    from counterpoint.recorder.adapters.langgraph import handler

    @tool
    def look(page: str) -> str:
        """Look a page up."""
        real.append(f"look {page}")
        if page == "p3":
            raise OSError("no such page")
        return f"page {page}"

    model, _ = _model(real)
    rec = cpt.record(folder, task="lg", **about)

    async def reader(state: State) -> State:
        try:
            text = await look.ainvoke({"page": state["q"]})
        except OSError as error:
            text = str(error)
        return {"notes": [(await model.ainvoke(text)).content]}

    async def write(state: State) -> State:
        return {"answer": (await model.ainvoke("; ".join(state["notes"]))).content}

    graph = StateGraph(State)
    graph.add_node("reader", reader)
    graph.add_node("write", write)
    graph.add_conditional_edges(START, lambda state: [Send("reader", {"q": f"p{i}"}) for i in range(int(state["q"]))], ["reader"])
    graph.add_edge("reader", "write")
    graph.add_edge("write", END)
    compiled = graph.compile()

    def team(pages: int = 4) -> None:
        with rec:
            config = {"callbacks": [handler(rec, effects=["look"])], "max_concurrency": 50}
            end = asyncio.run(compiled.ainvoke({"q": str(pages), "notes": []}, config=config))
            rec.reward(team=float("PAGE P1" in end["answer"]))

    return rec, team


def _told(trace: Trace) -> Trace:
    """Without what the recorder itself puts in."""
    return replace(trace, events=[e for e in trace.events if not (e.extra or {}).get("is_implicit")])


def _same(a: Trace, b: Trace) -> None:
    a, b = (_told(trace) for trace in (a, b))
    by_id = {e.id: e for e in b.events}
    assert set(by_id) == {e.id for e in a.events}
    for event in a.events:
        again = by_id[event.id]
        assert fingerprint(again) == fingerprint(event)
        for field in ("tokens_in", "tokens_out", "model", "ok", "error", "turn", "role", "decision"):
            assert getattr(again, field) == getattr(event, field)
    members = {e.id for e in a.events if e.agent != "main"}  # which returns the graph had when it sent the next goes by its threads
    one, two = ({(e.src, e.dst, e.type) for e in trace.edges if e.dst in members} for trace in (a, b))
    assert one == two
    assert not members or len(one) > len(members) / 2
    assert a.rewards == b.rewards


def test_the_same_again_and_one_tool_result_changed(tmp_path: Path) -> None:
    real: list[str] = []
    rec, team = _team(tmp_path, real)
    team()
    trace = rec.trace
    assert rec.problems == []
    assert trace is not None
    real.clear()
    _same(trace, TeamReplay(team).fork(trace, "e1"))
    assert real == []
    result = next(e for e in trace.events if trace.text(e) == "page p1")
    forked = TeamReplay(team).fork(trace, result.id, cpt.Substitute("page nine"))
    assert real == ["page nine", "PAGE P0; PAGE NINE; PAGE P2; NO SUCH PAGE"]
    assert forked.rewards == {"team": 0.0}
    assert forked.meta["fork"]["calls"] == {"recorded": 6, "re-run": 2, "tools": 0}
    real.clear()
    step = next(e for e in trace.events if trace.text(e) == "PAGE P1")
    TeamReplay(team).fork(trace, step.id, cpt.Substitute("PAGE TEN"))
    assert real == ["PAGE P0; PAGE TEN; PAGE P2; NO SUCH PAGE"]
    other, _ = _model(real, "!")
    changed = TeamReplay(team, model=other).fork(trace, step.id, cpt.Substitute("PAGE TEN"))
    assert changed.text([e for e in changed.events if e.model][-1]) == "PAGE P0; PAGE TEN; PAGE P2; NO SUCH PAGE!"
    found = cpt.credit(trace, "difference", team=team, unit="tool")
    assert {row.value for row in found.rows} == {0.0, 1.0}


def test_two_hundred_requests_fifty_at_once_are_exact(tmp_path: Path) -> None:
    real: list[str] = []
    rec, team = _team(tmp_path, real)

    def many() -> None:
        team(199)

    many()
    trace = rec.trace
    assert trace is not None
    assert sum(1 for e in trace.events if e.model) == 200
    real.clear()
    _same(trace, TeamReplay(many).fork(trace, "e1"))
    assert real == []


def test_streams_and_tools_with_effects(tmp_path: Path) -> None:
    from langchain_core.tools import tool

    from counterpoint.recorder.adapters.langgraph import handler

    real: list[str] = []
    loud, slow = _model(real)
    rec = cpt.record(tmp_path, task="lg")

    @tool
    def send(text: str) -> str:
        """Send it."""
        real.append(f"sent {text}")
        return "sent"

    def team() -> None:
        with rec:
            config: Any = {"callbacks": [handler(rec, effects=["send"])]}
            said = "".join(str(part.content) for part in slow.stream("one two", config=config))
            answer = loud.invoke(said, config=config).content
            try:
                rec.reward(team=float(send.invoke({"text": answer}, config=config) == "sent"))
            except PermissionError:
                rec.reward(team=-1)

    team()
    trace = rec.trace
    assert trace is not None
    assert real == ["stream", "one two ", "sent ONE TWO "]
    real.clear()
    _same(trace, TeamReplay(team).fork(trace, "e1"))
    assert real == []
    step = [e for e in trace.events if e.model][1]
    held = TeamReplay(team).fork(trace, step.id, cpt.Substitute("three"))
    assert real == []
    assert held.meta["fork"]["held"] == ["send"]
    assert held.rewards == {"team": -1.0}
    assert TeamReplay(team, allow=["send"]).fork(trace, step.id, cpt.Substitute("three")).rewards == {"team": 1.0}
    assert real == ["sent three"]


def test_langchain_is_as_it_was_afterwards(tmp_path: Path) -> None:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import StructuredTool

    before = (BaseChatModel._generate_with_cache, StructuredTool._run)
    rec, team = _team(tmp_path, [])
    team()
    assert rec.trace is not None
    TeamReplay(team).fork(rec.trace, "e1")
    assert (BaseChatModel._generate_with_cache, StructuredTool._run) == before


def test_a_step_is_deleted_and_what_is_the_graphs_own_is_refused_with_what_would_do(tmp_path: Path) -> None:
    real: list[str] = []
    rec, team = _team(tmp_path, real)
    team()
    trace = rec.trace
    assert trace is not None
    real.clear()
    step = next(e for e in trace.events if trace.text(e) == "PAGE P1")
    gone = TeamReplay(team).fork(trace, step.id, cpt.Delete())
    assert real == ["PAGE P0; ; PAGE P2; NO SUCH PAGE"]
    assert gone.rewards == {"team": 0.0}
    spawn = next(e for e in trace.events if e.type == "spawn" and e.to == step.agent)
    back = next(e for e in trace.events if e.type == "return" and e.agent == step.agent)
    for event, do in ((spawn, cpt.Delete()), (back, cpt.Substitute("x"))):
        with pytest.raises(NotIdentified, match=f"framework's own.*--at {step.id}"):
            TeamReplay(team).fork(trace, event.id, do)
