"""A team of the OpenAI Agents SDK, run again over its recording, without a line more than recording takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import counterpoint as cpt
from counterpoint.audits.diff import fingerprint
from counterpoint.errors import InputError, NotIdentified
from counterpoint.recorder.team_replay import TeamReplay
from counterpoint.trace import Event, Trace
from sdk_help import calls, local_model, says, text_of

pytestmark = pytest.mark.skipif(not find_spec("agents"), reason="needs openai-agents")

Team = tuple[Trace, Callable[[], Any], list[Any]]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """No processor of one test sees the spans of the next."""
    yield
    from agents import set_trace_processors

    set_trace_processors([])


def _same(a: Trace, b: Trace) -> None:
    """Every event and edge is as it was, but for badges."""
    assert [e.id for e in b.events] == [e.id for e in a.events]
    for one, two in zip(a.events, b.events, strict=True):
        assert fingerprint(one) == fingerprint(two)
        for field in one.__struct_fields__:
            if field != "extra":
                assert getattr(one, field) == getattr(two, field), (field, one, two)
        first, second = ({k: v for k, v in (e.extra or {}).items() if k != "badge"} for e in (one, two))
        assert first == second
    assert {(e.src, e.dst, e.type) for e in a.edges} == {(e.src, e.dst, e.type) for e in b.edges}
    assert a.rewards == b.rewards
    assert a.contents == b.contents


def _told(a: Trace, b: Trace) -> None:
    """Every event that was told is as it was; where runs overlap, which of them a leader knew of goes by rounds of the loop."""
    one, two = ({e.id: e for e in t.events if not (e.extra or {}).get("is_implicit")} for t in (a, b))
    assert set(one) == set(two)
    for name, event in one.items():
        assert fingerprint(two[name]) == fingerprint(event)
        for field in ("model", "tokens_in", "tokens_out", "ok", "error", "turn", "role", "decision", "content_ref", "from_", "to"):
            assert getattr(two[name], field) == getattr(event, field)
    members = {e.id for e in a.events if e.agent != "lead"}
    first, second = ({(e.src, e.dst, e.type) for e in t.edges if e.dst in members and e.src in members} for t in (a, b))
    assert first == second
    assert len(first) >= len(members) / 2
    assert a.rewards == b.rewards


def _of(trace: Trace, type: str, agent: str | None = None, n: int = 0) -> Event:
    return [e for e in trace.events if e.type == type and agent in (None, e.agent)][n]


def _steps(trace: Trace) -> list[Event]:
    return [e for e in trace.events if e.model]


def _desk(instructions: str, items: list[Any]) -> list[Any]:
    """Triage hands over to refunds, who look the order up and ask an expert."""
    last = items[-1]
    if instructions == "triage":
        return calls(("transfer_to_refunds", {}))
    if instructions == "expert":
        return says(f"Of {text_of(last)}: refund it.")
    if last.get("type") == "function_call_output" and last["call_id"].startswith("ask"):
        told = [text_of(item) for item in items if item.get("type") == "function_call_output"]
        return says("Done: " + " / ".join(told[1:]))
    return calls(("look_up", {"order": "7"}), ("ask_expert", {"input": "a broken lamp"}))


def _record(folder: Path, *, streamed: bool = False, effects: tuple[str, ...] = (), **about: Any) -> Team:
    from agents import Agent, Runner, function_tool, set_trace_processors

    from counterpoint.recorder.adapters.openai_agents import processor

    real: list[Any] = []

    @function_tool
    def look_up(order: str) -> str:
        """Look an order up."""
        real.append(f"order {order}")
        return f"order {order}: a lamp"

    model = local_model(_desk, real, **about)
    expert = Agent(name="Expert", instructions="expert", model=model)
    tools = [look_up, expert.as_tool("ask_expert", "Ask.")]
    refunds = Agent(name="Refunds", instructions="refunds", model=model, tools=tools)
    triage = Agent(name="Triage", instructions="triage", model=model, handoffs=[refunds])
    rec = cpt.record(folder, task="sdk")

    async def stream() -> str:
        run = Runner.run_streamed(triage, "My lamp came broken.")
        parts = [e.data.delta async for e in run.stream_events() if getattr(getattr(e, "data", None), "delta", None)]
        rec.message(None, None, "".join(parts))
        return str(run.final_output)

    def team() -> None:
        with rec:
            set_trace_processors([processor(rec, effects=effects)])
            said = asyncio.run(stream()) if streamed else Runner.run_sync(triage, "My lamp came broken.").final_output
            rec.reward(team=float("lamp" in said and "refund" in said))

    team()
    assert rec.problems == []
    assert rec.trace is not None
    trace = rec.trace
    assert [str(p) for p in cpt.problems(trace)] == []
    real.clear()
    return trace, team, real


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("traces", [False, True])
def test_handoffs_tools_and_agents_as_tools_are_the_same_again(tmp_path: Path, streamed: bool, traces: bool) -> None:
    trace, team, real = _record(tmp_path, streamed=streamed, traces=traces)
    assert [(e.agent, e.model, e.tokens_out) for e in _steps(trace)] == [
        ("Triage", "local-1", 2), ("Refunds", "local-1", 2), ("Expert", "local-1", 2), ("Refunds", "local-1", 2),
    ]  # fmt: skip
    assert trace.text(_steps(trace)[-1]) == "Done: order 7: a lamp / Of a broken lamp: refund it."
    again = TeamReplay(team).fork(trace, "e1")
    _same(trace, again)
    assert real == []
    assert again.meta["fork"]["calls"] == {"recorded": 5, "re-run": 0, "tools": 0}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tools_answer_and_a_models_step_are_changed(tmp_path: Path, streamed: bool) -> None:
    trace, team, real = _record(tmp_path, streamed=streamed)
    found = _of(trace, "tool_result", "Refunds")
    assert trace.text(found) == "order 7: a lamp"
    forked = TeamReplay(team).fork(trace, found.id, cpt.Substitute("order 7: a chair"))
    assert forked.text(_steps(forked)[-1]) == "Done: order 7: a chair / Of a broken lamp: refund it."
    assert forked.meta["fork"]["calls"] == {"recorded": 3, "re-run": 1, "tools": 0}
    assert [item["output"] for item in real] == ["Of a broken lamp: refund it."]
    real.clear()
    expert = next(e for e in _steps(trace) if e.agent == "Expert")
    other = TeamReplay(team).fork(trace, expert.id, cpt.Substitute("never"))
    assert other.text(_steps(other)[-1]) == "Done: order 7: a lamp / never"
    assert other.rewards == {"team": 0.0}
    if streamed:
        assert "Done: order 7: a lamp / never" in str([other.text(e) for e in other.events if e.type == "message"])
    gone = TeamReplay(team).fork(trace, expert.id, cpt.Delete())
    assert gone.text(_steps(gone)[-1]) == "Done: order 7: a lamp / "
    last = TeamReplay(team).fork(trace, _steps(trace)[-1].id, cpt.Substitute("short"))
    assert (last.text(_steps(last)[-1]), last.rewards) == ("short", {"team": 0.0})


def test_a_step_that_calls_tools_calls_others_or_says_something_instead(tmp_path: Path) -> None:
    trace, team, real = _record(tmp_path)
    asks = _steps(trace)[1]
    value = [{"name": "ask_expert", "arguments": {"input": "a chair"}, "id": "ask-0"}]
    other = TeamReplay(team).fork(trace, asks.id, cpt.Substitute(value))
    assert [e.tool for e in other.events if e.type == "tool_call"] == ["ask_expert"]
    assert "Of a chair: refund it." in [other.text(e) for e in other.events]
    assert real
    real.clear()
    said = TeamReplay(team).fork(trace, asks.id, cpt.Substitute("No."))
    assert real == []
    assert [e.agent for e in _steps(said)] == ["Triage", "Refunds"]
    with pytest.raises(InputError, match="no answer of a model"):
        TeamReplay(team).fork(trace, asks.id, cpt.Substitute({"order": "8"}))
    arguments = _of(trace, "tool_call", "Refunds")
    changed = TeamReplay(team).fork(trace, arguments.id, cpt.Substitute({"order": "8"}))
    assert "order 8: a lamp" in [changed.text(e) for e in changed.events]
    assert "order 8" in real


def test_the_answer_of_an_agent_that_is_a_tool_is_changed_and_stays_so_in_later_forks(tmp_path: Path) -> None:
    trace, team, real = _record(tmp_path)
    found = next(e for e in trace.events if e.type == "tool_result" and e.tool == "ask_expert")
    other = TeamReplay(team).fork(trace, found.id, cpt.Substitute("never"))
    assert other.text(_steps(other)[-1]) == "Done: order 7: a lamp / never"
    assert [e.agent for e in _steps(other)] == ["Triage", "Refunds", "Expert", "Refunds"]
    real.clear()
    _same(other, TeamReplay(team).fork(other, "e1"))
    look = next(e for e in other.events if e.type == "tool_result" and e.tool == "look_up")
    both = TeamReplay(team).fork(other, look.id, cpt.Substitute("a chair"))
    assert both.text(_steps(both)[-1]) == "Done: a chair / never"
    spawn, back = (_of(trace, kind) for kind in ("spawn", "return"))
    for event in (spawn, back):
        with pytest.raises(NotIdentified, match=r"framework's own.*--at e\d+, the last that Expert's"):
            TeamReplay(team).fork(trace, event.id, cpt.Delete())
    advice = cpt.advise(trace, team=team, budget=16, budget_tokens=10_000)
    assert {row.change.at for row in advice.rows} == {e.id for e in _steps(trace)}
    assert advice.trials == 16


def test_an_answer_is_drawn_anew_by_the_model_or_by_another(tmp_path: Path) -> None:
    trace, team, real = _record(tmp_path)
    expert = next(e for e in _steps(trace) if e.agent == "Expert")
    drawn = TeamReplay(team).fork(trace, expert.id, cpt.Substitute(None))
    assert next(e.id for e in drawn.events if (e.extra or {}).get("badge") == "re-run") == expert.id
    assert len(real) == 1
    loud = local_model(lambda instructions, items: says("LOUD"), real)
    other = TeamReplay(team, model=loud).fork(trace, expert.id, cpt.Substitute(None))
    assert [other.text(e) for e in _steps(other)][-2:] == ["LOUD", "LOUD"]


def test_a_tool_with_effects_is_held_back_unless_it_is_allowed(tmp_path: Path) -> None:
    trace, team, real = _record(tmp_path, effects=("look_up",))
    _same(trace, TeamReplay(team).fork(trace, "e1"))
    assert real == []
    asks = _steps(trace)[1]
    value = [{"name": "look_up", "arguments": {"order": "8"}}, {"name": "ask_expert", "arguments": {"input": "x"}}]
    held = TeamReplay(team).fork(trace, asks.id, cpt.Substitute(value))
    assert held.meta["fork"]["held"] == ["look_up"]
    assert "order 8" not in real
    told = next(e for e in held.events if e.type == "tool_result" and e.tool == "look_up")
    assert (told.ok, "has effects" in (held.text(told) or "")) == (False, True)
    assert sorted(str(e.tool) for e in held.events if e.type == "tool_call") == ["ask_expert", "look_up"]
    TeamReplay(team, allow=["look_up"]).fork(trace, asks.id, cpt.Substitute(value))
    assert "order 8" in real


@pytest.mark.parametrize("streamed", [False, True])
def test_two_hundred_requests_fifty_at_once_are_exact(tmp_path: Path, streamed: bool) -> None:
    from agents import Agent, Runner, set_trace_processors
    from agents import trace as workflow

    from counterpoint.recorder.adapters.openai_agents import processor

    real: list[Any] = []
    model = local_model(lambda instructions, items: says(f"{text_of(items[-1])} {len(real)}"), real, pace=0.01)
    worker = Agent(name="Worker", instructions="work", model=model)
    rec = cpt.record(tmp_path, task="many", agent="lead")

    async def ask(part: str, gate: asyncio.Semaphore) -> str:
        async with gate:
            if not streamed:
                return str((await Runner.run(worker, part)).final_output)
            run = Runner.run_streamed(worker, part)
            async for _ in run.stream_events():
                pass
            return str(run.final_output)

    async def main() -> str:
        gate, came = asyncio.Semaphore(50), []
        with workflow("many"):
            tasks = [asyncio.create_task(ask(f"part {i}", gate)) for i in range(199)]
            for one in asyncio.as_completed(tasks):  # in the order in which they come
                came.append(await one)
            return await ask(" ".join(came), gate)

    def team() -> None:
        with rec:
            set_trace_processors([processor(rec)])
            with rec.acting("lead"):
                asyncio.run(main())
            rec.reward(team=1)

    team()
    assert rec.trace is not None
    assert rec.problems == []
    trace = rec.trace
    assert (len(real), len(_steps(trace))) == (200, 200)
    again = TeamReplay(team).fork(trace, "e1")
    assert len(real) == 200
    assert again.meta["fork"]["calls"]["recorded"] == 200
    _told(trace, again)


def test_errors_retries_guardrails_and_timeouts_come_again(tmp_path: Path) -> None:
    from agents import (
        Agent,
        GuardrailFunctionOutput,
        InputGuardrail,
        ModelRetrySettings,
        ModelSettings,
        Runner,
        UserError,
        function_tool,
        retry_policies,
        set_trace_processors,
    )  # fmt: skip

    from counterpoint.recorder.adapters.openai_agents import processor

    real: list[Any] = []

    @function_tool
    def gentle(page: str) -> str:
        """Fail, and the model is told."""
        real.append("gentle")
        raise OSError(f"no page {page}")

    @function_tool(failure_error_function=None)
    def hard(page: str) -> str:
        """Fail, and the run ends."""
        real.append("hard")
        raise LookupError(f"no page {page}")

    @function_tool(timeout=0.02)
    async def slow(page: str) -> str:
        """Never answer."""
        real.append("slow")
        await asyncio.sleep(30)
        return "never"

    def answer(instructions: str, items: list[Any]) -> list[Any]:
        if len(real) == 1:
            raise ConnectionError("busy")
        names = ["gentle", "slow", "hard"]
        done = sum(item.get("type") == "function_call_output" for item in items)
        return calls((names[done], {"page": "p"}), at=str(done))

    async def check(context: Any, agent: Any, given: Any) -> Any:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    again = ModelRetrySettings(max_retries=2, backoff={"initial_delay": 0.001}, policy=retry_policies.any(lambda context: True))
    agent = Agent(
        name="A", model=local_model(answer, real), tools=[gentle, hard, slow], model_settings=ModelSettings(retry=again),
        input_guardrails=[InputGuardrail(check, name="polite")],
    )  # fmt: skip
    rec, told = cpt.record(tmp_path, task="errors"), []

    def team() -> None:
        with rec:
            set_trace_processors([processor(rec)])
            try:
                Runner.run_sync(agent, "go")
            except UserError as error:
                told.append((str(error), type(error.__cause__)))
            rec.reward(team=1)

    team()
    trace = rec.trace
    assert trace is not None
    assert (_steps(trace)[0].ok, (_steps(trace)[0].error or "")[:15]) == (False, "ConnectionError")
    assert [e.ok for e in trace.events if e.type == "tool_result"] == [False, True, False]  # a timeout is an answer to the SDK
    count = len(real)
    _same(trace, TeamReplay(team).fork(trace, "e1"))
    assert real[count:] == []
    assert told == [("Error running tool hard: no page p", LookupError)] * 2


def test_what_is_cancelled_is_cancelled_again_and_classes_are_as_they_were(tmp_path: Path) -> None:
    from agents import Agent, AgentBase, Runner, set_trace_processors

    from counterpoint.recorder.adapters.openai_agents import processor

    real: list[Any] = []
    model = local_model(lambda instructions, items: says("soon"), real)
    asleep = local_model(lambda instructions, items: says("never"), real, pace=1e6)
    before = (type(model).get_response, type(model).stream_response, AgentBase.get_all_tools)
    rec = cpt.record(tmp_path, task="late")

    async def main() -> None:
        tasks = [asyncio.create_task(Runner.run(Agent(name=n, model=m), n)) for n, m in (("slow", asleep), ("quick", model))]
        done, late = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        rec.message(None, None, [task.result().final_output for task in done])

    def team() -> None:
        with rec:
            set_trace_processors([processor(rec)])
            asyncio.run(main())
            rec.reward(team=1)

    team()
    trace = rec.trace
    assert trace is not None
    assert '["soon"]' in [trace.text(e) for e in trace.events]
    assert len(real) == 2
    _same(trace, TeamReplay(team).fork(trace, "e1"))
    assert len(real) == 2
    assert (type(model).get_response, type(model).stream_response, AgentBase.get_all_tools) == before


def test_what_the_team_keeps_out_of_its_traces_is_in_no_recording(tmp_path: Path) -> None:
    from agents import Agent, RunConfig, Runner, set_trace_processors

    from counterpoint.recorder.adapters.openai_agents import processor

    real: list[Any] = []
    model = local_model(lambda instructions, items: says("secret answer"), real)
    rec = cpt.record(tmp_path, task="quiet")

    def team() -> None:
        with rec:
            set_trace_processors([processor(rec)])
            Runner.run_sync(Agent(name="A", model=model), "secret question", run_config=RunConfig(trace_include_sensitive_data=False))
            rec.reward(team=1)

    team()
    trace = rec.trace
    assert trace is not None
    assert "secret" not in json.dumps(trace.contents)
    again = TeamReplay(team).fork(trace, "e1")
    assert [e.id for e in again.events] == [e.id for e in trace.events]
    assert len(real) == 2


def test_a_team_that_has_changed_is_not_identified(tmp_path: Path) -> None:
    trace, _, _ = _record(tmp_path)
    from agents import Agent, Runner, set_trace_processors

    from counterpoint.recorder.adapters.openai_agents import processor

    real: list[Any] = []
    rec = cpt.record(tmp_path, task="sdk")
    triage = Agent(name="Triage", instructions="other", model=local_model(_desk, real))

    def team() -> None:
        with rec:
            set_trace_processors([processor(rec)])
            Runner.run_sync(triage, "My lamp came broken.")

    with pytest.raises(NotIdentified, match="something else than it did"):
        TeamReplay(team).fork(trace, "e1")
    assert real == []


def test_of_a_stream_that_is_too_long_to_keep_the_whole_answer_is_given_again(tmp_path: Path) -> None:
    from agents import Agent, Runner, set_trace_processors

    from counterpoint.recorder.adapters.openai_agents import processor

    real: list[Any] = []
    told: list[tuple[int, str]] = []
    model = local_model(lambda instructions, items: says(" ".join(["word"] * 4000)), real)
    rec = cpt.record(tmp_path, task="long")

    async def main() -> None:
        run = Runner.run_streamed(Agent(name="A", model=model), "go")
        parts = [e.data.delta async for e in run.stream_events() if getattr(getattr(e, "data", None), "delta", None)]
        told.append((len(parts), "".join(parts).strip()))

    def team() -> None:
        with rec:
            set_trace_processors([processor(rec)])
            asyncio.run(main())
            rec.reward(team=1)

    team()
    trace = rec.trace
    assert trace is not None
    _told(trace, TeamReplay(team).fork(trace, "e1"))
    assert len(real) == 1
    assert [count for count, _ in told] == [4000, 1]
    assert told[0][1] == told[1][1]
