"""LangGraph and the OpenAI Agents SDK, recorded live: their agents, steps, tools and handoffs, told as the importers tell them."""

from __future__ import annotations

import asyncio
import operator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from counterpoint import Store, Trace, problems, record

# Looked for, not loaded: that takes seconds, in every process that collects the tests.
pytestmark = pytest.mark.skipif(not (find_spec("langgraph") and find_spec("agents")), reason="needs langgraph and openai-agents")


def _clean(rec: Any) -> Trace:
    assert rec.problems == []
    assert [str(p) for p in problems(rec.trace)] == []
    return rec.trace


def _story(trace: Trace) -> list[str]:
    return [f"{e.type} {e.agent}" + (f" -> {e.to}" if e.to else "") + (f" {e.tool}" if e.tool else "") for e in trace.events]


# -- LangGraph -----------------------------------------------------------------------------------------------------------


class State(TypedDict, total=False):
    q: str
    notes: Annotated[list[str], operator.add]


def _graph(**nodes: Any) -> Any:
    from langgraph.graph import START, StateGraph

    graph = StateGraph(State)
    for name, node in nodes.items():
        graph.add_node(name, node)
    graph.add_edge(START, next(iter(nodes)))
    return graph


def test_nodes_are_agents_and_each_send_is_one(tmp_path: Path) -> None:
    from langgraph.types import Send

    from counterpoint.recorder.adapters.langgraph import handler

    rec = record(tmp_path, task="lg", topology="centralized")

    @rec.tool
    async def look(words: str) -> str:
        await asyncio.sleep(0)
        return f"page {words}"

    async def plan(state: State) -> State:
        return {"notes": ["planned"]}

    async def reader(state: State) -> State:
        return {"notes": [await look(state["q"])]}  # our own decorator, inside a node: the node's

    graph = _graph(plan=plan, reader=reader)
    graph.add_conditional_edges("plan", lambda state: [Send("reader", {"q": q}) for q in ("a", "b")], ["reader"])
    with rec:
        end = asyncio.run(graph.compile().ainvoke({"q": "?", "notes": []}, config={"callbacks": [handler(rec)]}))
    assert sorted(end["notes"]) == ["page a", "page b", "planned"]
    trace = _clean(rec)
    assert trace.agents == ["user", "main", "plan", "reader", "reader-2"]
    assert {e.to: e.agent for e in trace.events if e.type == "spawn"} == {"plan": "main", "reader": "main", "reader-2": "main"}
    assert {e.agent for e in trace.events if e.type == "tool_call"} == {"reader", "reader-2"}
    router = next(e for e in trace.events if e.decision == "spawn")
    assert (router.agent, trace.text(router)) == ("plan", "reader, reader")


def test_a_command_passes_control_and_the_end_is_a_decision(tmp_path: Path) -> None:
    from langgraph.types import Command

    from counterpoint.recorder.adapters.langgraph import handler

    def first(state: State) -> Command[Any]:
        return Command(goto="second", update={"notes": ["x"]})

    def second(state: State) -> Command[Any]:
        return Command(goto="__end__", update={"notes": ["y"]})

    graph = _graph(first=first, second=second)
    with record(tmp_path, task="lg") as rec:
        graph.compile(name="pipeline").invoke({"q": "?"}, config={"callbacks": [handler(rec)]})
    trace = _clean(rec)
    assert _story(trace) == [
        "human_intervention user -> pipeline",
        "spawn pipeline -> first",
        "message first -> second",
        "return first -> pipeline",
        "orchestrator_decision second",
        "return second -> pipeline",
    ]
    stop = trace.events[4]
    assert stop.decision == "stop"
    assert {(e.src, e.type) for e in trace.edges if e.dst == stop.id} == {("e3", "message"), ("e4", "return")}


def test_models_and_tools_inside_nodes(tmp_path: Path) -> None:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from counterpoint.recorder.adapters.langgraph import handler

    @tool
    def broken(words: str) -> str:
        """Fail."""
        raise OSError("down")

    said = AIMessage("done", usage_metadata={"input_tokens": 9, "output_tokens": 2, "total_tokens": 11})
    model = GenericFakeChatModel(messages=iter([said]))

    def worker(state: State) -> State:
        with pytest.raises(OSError, match="down"):
            broken.invoke("w")
        return {"notes": [str(model.invoke("go").content)]}

    with record(tmp_path, task="lg") as rec:
        _graph(worker=worker).compile().invoke({"q": "?"}, config={"callbacks": [handler(rec)]})
    trace = _clean(rec)
    result = next(e for e in trace.events if e.type == "tool_result")
    assert (result.agent, result.tool, result.ok, result.error, result.trusted) == (
        "worker",
        "broken",
        False,
        "OSError: down",
        False,
    )
    step = next(e for e in trace.events if e.model)
    assert (step.agent, step.tokens_in, step.tokens_out, trace.text(step)) == ("worker", 9, 2, "done")
    assert {e.type for e in trace.edges if (e.src, e.dst) == (result.id, step.id)} == {"causal", "safety_flow"}


def test_a_node_that_fails_and_one_that_asks_a_human(tmp_path: Path) -> None:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command, interrupt

    from counterpoint.recorder.adapters.langgraph import handler

    def asking(state: State) -> State:
        if interrupt("may I?") != "yes":
            raise PermissionError("no")
        return {}

    app = _graph(asking=asking).compile(checkpointer=InMemorySaver())
    with record(tmp_path, task="lg") as rec:
        config = {"callbacks": [handler(rec)], "configurable": {"thread_id": "1"}}
        app.invoke({"q": "?"}, config=config)
        with pytest.raises(PermissionError):
            app.invoke(Command(resume="never"), config=config)
    trace = _clean(rec)
    question = [e for e in trace.events if e.type == "human_intervention" and (e.extra or {}).get("is_question")]
    assert [trace.text(e) for e in question] == ["may I?"]
    assert [(e.ok, e.error) for e in trace.events if e.type == "return"] == [(None, None), (False, "PermissionError: no")]


def test_parts_of_an_agent_are_no_agents(tmp_path: Path) -> None:
    from counterpoint.recorder.adapters.langgraph import handler

    inner = _graph(agent=lambda state: {"notes": ["i"]}).compile()
    with record(tmp_path, task="lg") as rec:
        _graph(expert=inner).compile().invoke({"q": "?"}, config={"callbacks": [handler(rec)]})
    assert _clean(rec).agents == ["user", "main", "expert"]


# -- the OpenAI Agents SDK -----------------------------------------------------------------------------------------------


def _team() -> Any:
    import importlib.util

    path = Path(__file__).parents[2] / "examples" / "record_openai_agents.py"
    spec = importlib.util.spec_from_file_location("record_openai_agents", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_handoffs_functions_and_agents_as_tools(tmp_path: Path) -> None:
    from agents import Runner, set_trace_processors

    from counterpoint.recorder.adapters.openai_agents import processor

    example = _team()
    with record(tmp_path, task="oa") as rec:
        set_trace_processors([processor(rec)])
        result = asyncio.run(Runner.run(example.team(), "My lamp came broken."))
    assert result.final_output == "Order 7 is refunded."
    trace = _clean(rec)
    assert trace.agents == ["user", "Triage", "Refunds", "Expert"]
    assert trace.costs["tokens"] == 4 * 36
    assert [(e.agent, e.to) for e in trace.events if e.type == "message" and e.to] == [("Triage", "Refunds")]
    assert [(e.agent, e.to) for e in trace.events if e.type == "spawn"] == [("Refunds", "Expert")]
    assert [(e.agent, e.to) for e in trace.events if e.type == "return"] == [("Expert", "Refunds"), ("Refunds", "Triage")]
    sources = {e.tool: (e.source, e.trusted) for e in trace.events if e.type == "tool_result"}
    assert sources == {"look_up": ("tool", False), "ask_expert": ("peer", True)}
    calls = {e.tool: trace.text(e) for e in trace.events if e.type == "tool_call"}
    assert calls["look_up"] == '{"order": "7"}'


def test_an_agent_that_is_a_tool_is_a_new_one_in_every_call(tmp_path: Path) -> None:
    from agents import Agent, Runner, set_trace_processors

    from counterpoint.recorder.adapters.openai_agents import processor

    example = _team()
    expert = Agent(name="Expert", model=example.Script(example.says("one"), example.says("two")))
    asks = [example.calls(("ask_expert", f'{{"input": "{part}"}}')) for part in "ab"]
    asks[1][0].call_id = "again"
    tool = expert.as_tool(tool_name="ask_expert", tool_description="Ask.")
    with record(tmp_path, task="oa") as rec:
        set_trace_processors([processor(rec)])
        asyncio.run(Runner.run(Agent(name="Lead", model=example.Script(*asks, example.says("done")), tools=[tool]), "go"))
    trace = _clean(rec)
    assert [(e.agent, e.to) for e in trace.events if e.type == "spawn"] == [("Lead", "Expert"), ("Lead", "Expert-2")]
    assert [(e.agent, trace.text(e)) for e in trace.events if e.type == "return"] == [("Expert", "one"), ("Expert-2", "two")]


def test_what_the_sdk_says_of_an_error_is_kept(tmp_path: Path) -> None:
    from agents import function_span, set_trace_processors, trace
    from agents.tracing import SpanError

    from counterpoint.recorder.adapters.openai_agents import processor

    with record(tmp_path, task="oa") as rec:
        set_trace_processors([processor(rec)])
        with trace("work"), function_span("look_up", "7") as span:
            span.set_error(SpanError(message="Error running tool", data={"tool_name": "look_up", "error": "no order 7"}))
    result = next(e for e in _clean(rec).events if e.type == "tool_result")
    assert (result.ok, result.error) == (False, "Error running tool: no order 7")


def test_what_the_importer_reads_from_an_export_is_what_is_recorded_live(tmp_path: Path) -> None:
    import json

    from agents import Runner, set_trace_processors
    from agents.tracing import TracingProcessor

    import counterpoint
    from counterpoint.recorder.adapters.openai_agents import processor

    items: list[Any] = []

    class Keep(TracingProcessor):
        def on_trace_start(self, trace: Any) -> None: ...
        def on_span_start(self, span: Any) -> None: ...
        def shutdown(self) -> None: ...
        def force_flush(self) -> None: ...

        def on_trace_end(self, trace: Any) -> None:
            items.append(trace.export())

        def on_span_end(self, span: Any) -> None:
            items.append(span.export())

    with record(tmp_path / "store", task="oa") as rec:
        set_trace_processors([Keep(), processor(rec)])
        asyncio.run(Runner.run(_team().team(), "My lamp came broken."))
    (tmp_path / "spans.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    (imported,) = counterpoint.read_logs(tmp_path / "spans.jsonl")
    live = _clean(rec)
    for told in (live, imported):
        assert sum(e.type == "spawn" for e in told.events) == 1
        assert sum(e.type == "return" and e.to is not None for e in told.events) >= 1
    assert live.costs["tokens"] == imported.costs["tokens"]
    roles = {e.role for e in imported.events if e.role}
    assert {"Triage", "Refunds"} <= roles
    assert {"Triage", "Refunds"} <= set(live.agents)


def test_a_guardrail_that_trips_is_a_safety_event(tmp_path: Path) -> None:
    from agents import (
        Agent,
        GuardrailFunctionOutput,
        InputGuardrail,
        InputGuardrailTripwireTriggered,
        Runner,
        set_trace_processors,
    )

    from counterpoint.recorder.adapters.openai_agents import processor

    example = _team()

    def trip(context: Any, agent: Any, given: Any) -> Any:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    agent = Agent(
        name="Guarded", model=example.Script(example.says("hello")), input_guardrails=[InputGuardrail(trip, name="no lamps")]
    )
    with record(tmp_path, task="oa") as rec:
        set_trace_processors([processor(rec)])
        with pytest.raises(InputGuardrailTripwireTriggered):
            asyncio.run(Runner.run(agent, "lamp"))
    trace = _clean(rec)
    found = [e for e in trace.events if e.type == "safety_event"]
    assert [e.extra for e in found] == [{"verdict": "triggered", "guardrail": "no lamps"}]


def test_after_the_recording_the_framework_goes_on_unrecorded(tmp_path: Path) -> None:
    from agents import Runner, set_trace_processors

    from counterpoint.recorder.adapters.openai_agents import processor

    example = _team()
    with record(tmp_path, task="oa") as rec:
        set_trace_processors([processor(rec)])
    assert asyncio.run(Runner.run(example.team(), "again")).final_output == "Order 7 is refunded."
    assert rec.trace is None
    assert rec.problems == ["nothing was recorded: no decorated function was called, and nothing was said"]
    assert Store(tmp_path).open_ids() == []


def test_what_nothing_can_stand_in_for_is_refused_before_it_is_begun(tmp_path: Path) -> None:
    """A span of a model that no `Model` opened, and one of a function that is no tool."""
    from agents import function_span, generation_span, set_trace_processors, trace

    from counterpoint.errors import NotIdentified
    from counterpoint.recorder.adapters.openai_agents import processor
    from counterpoint.recorder.team_replay import TeamReplay

    begun: list[str] = []
    spans = {"asked": lambda: generation_span(model="m"), "really be run": lambda: function_span("computer")}
    for why, span in spans.items():
        rec = record(tmp_path, task="sdk")

        def team(rec: Any = rec, span: Any = span) -> None:
            with rec:
                set_trace_processors([processor(rec)])
                with trace("work"), span():
                    begun.append("begun")

        team()
        assert rec.trace is not None
        with pytest.raises(NotIdentified, match=why):
            TeamReplay(team).fork(rec.trace, "e1")
    set_trace_processors([])
    assert len(begun) == 2
