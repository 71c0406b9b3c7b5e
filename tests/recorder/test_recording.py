"""Recording somebody else's team: who did what, what was read, what went wrong; and that the team never notices."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from counterpoint import Event, InputError, Store, Trace, problems, record
from counterpoint.trace.naming import title_of


def _reads(trace: Trace, event: Event) -> set[tuple[str, str]]:
    by_id = {e.id: e for e in trace.events}
    return {(f"{by_id[e.src].type} {by_id[e.src].agent}", e.type) for e in trace.edges if e.dst == event.id}


def _one(trace: Trace, type: str, agent: str | None = None) -> Event:
    found = [e for e in trace.events if e.type == type and agent in (None, e.agent)]
    assert len(found) == 1, found
    return found[0]


def _clean(rec: Any) -> Trace:
    assert rec.problems == []
    assert problems(rec.trace) == []
    return rec.trace


def test_agents_called_inside_agents_are_spawned_and_return(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo", agent="lead", topology="centralized")

    @rec.tool
    async def search(words: str) -> str:
        await asyncio.sleep(0)
        return f"page of {words}"

    @rec.agent(role="reader")
    async def worker(words: str) -> str:
        return await search(words)

    @rec.agent
    async def lead() -> list[str]:
        rec.decision("spawn", options=["spawn", "noop"], logp=-0.5)
        found = await asyncio.gather(worker("a"), worker("b"))
        rec.aggregate(" ".join(found))
        rec.stop("done", options=["stop", "spawn"])
        return found

    with rec:
        assert asyncio.run(lead()) == ["page of a", "page of b"]
        rec.reward(team=1.0)
    trace = _clean(rec)
    assert trace.rewards == {"team": 1.0}
    assert trace.agents == ["lead", "worker", "worker-2"]
    assert {e.to: e.role for e in trace.events if e.type == "spawn"} == {"worker": "reader", "worker-2": "reader"}
    call, result = _one(trace, "tool_call", "worker-2"), _one(trace, "tool_result", "worker-2")
    assert trace.text(call) == "b"
    assert (trace.text(result), result.trusted, result.source) == ("page of b", False, "tool")
    assert _reads(trace, call) == {("spawn lead", "spawn")}
    assert _reads(trace, result) == {("tool_call worker-2", "tool_dependency")}
    back = _one(trace, "return", "worker-2")
    assert (back.from_, back.to, trace.text(back)) == ("worker-2", "lead", "page of b")
    learnt = {("tool_result worker-2", "causal"), ("tool_result worker-2", "safety_flow")}
    assert _reads(trace, back) == {("spawn lead", "causal"), *learnt}
    assert _reads(trace, _one(trace, "aggregate")) == {("return worker", "aggregate"), ("return worker-2", "aggregate")}
    assert [e.decision for e in trace.events if e.decision] == ["spawn", "stop"]
    assert Store(tmp_path).get(trace.trace_id) == trace


def test_the_code_around_the_team_is_an_agent_of_its_own(tmp_path: Path) -> None:
    with record(tmp_path, task="demo") as rec:

        @rec.agent
        def planner(task: str) -> str:
            return f"plan for {task}"

        @rec.agent
        def doer(plan: str) -> str:
            return f"did {plan}"

        assert doer(planner("x")) == "did plan for x"
    trace = _clean(rec)
    assert trace.agents == ["main", "planner", "doer"]
    spawn = next(e for e in trace.events if e.to == "doer")
    assert _reads(trace, spawn) == {("return planner", "return")}


def test_an_agent_that_is_called_again_is_told_to(tmp_path: Path) -> None:
    with record(tmp_path, task="demo") as rec:

        @rec.agent(name="critic")
        def critic(text: str) -> str:
            return f"no: {text}"

        critic("one")
        critic("two")
    trace = _clean(rec)
    kinds = [(e.type, e.agent, e.to) for e in trace.events]
    assert kinds == [
        ("spawn", "main", "critic"),
        ("return", "critic", "main"),
        ("message", "main", "critic"),
        ("return", "critic", "main"),
    ]
    assert title_of(trace) == "demo"  # what was asked, and not the first brief


def test_recursion_makes_new_instances(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="split") as rec:

        @rec.agent
        def split(depth: int) -> int:
            return 1 if depth == 0 else split(depth - 1) + split(depth - 1)

        assert split(2) == 4
    trace = _clean(rec)
    spawned = {e.to: e.agent for e in trace.events if e.type == "spawn"}
    assert spawned["split-2"] == "split"
    assert spawned["split-3"] == "split-2"


def test_task_groups_threads_and_copied_contexts_know_who_acts(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo", agent="lead")

    @rec.tool
    def look(name: str) -> str:
        return name

    @rec.agent(name=lambda kind: f"{kind}-worker")
    async def worker(kind: str) -> None:
        if kind == "thread":
            await asyncio.to_thread(look, kind)
        elif kind == "pool":
            with ThreadPoolExecutor(1) as pool:
                pool.submit(contextvars.copy_context().run, look, kind).result()
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(look, kind))

    @rec.agent
    async def lead() -> None:
        await asyncio.gather(*(worker(kind) for kind in ("thread", "pool", "group")))
        bare = threading.Thread(target=look, args=("bare",))  # it knows of nobody: the root's
        bare.start()
        bare.join()

    with rec:
        asyncio.run(lead())
    trace = _clean(rec)
    who = {trace.text(e): e.agent for e in trace.events if e.type == "tool_call"}
    assert who == {"thread": "thread-worker", "pool": "pool-worker", "group": "group-worker", "bare": "lead"}


def test_messages_are_read_by_who_receives_them(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        rec.spawn("ada", role="worker", text="look left")
        rec.spawn("ben", role="worker", text="look right")
        with rec.acting("ada") as ada:
            said = rec.message(None, "ben", "it is not here")
            ada.result("nothing")
        with rec.acting("ben") as ben, rec.tool_call("look", {"where": "right"}) as call:
            call.result("found")
            ben.result("here")
    trace = _clean(rec)
    call_event = _one(trace, "tool_call", "ben")
    assert trace.text(call_event) == '{"where":"right"}'
    assert ("message ada", "message") in _reads(trace, call_event)
    assert ("spawn lead", "spawn") in _reads(trace, call_event)
    message = trace.events[trace.index[said]]
    assert (message.from_, message.to, message.source, message.trusted) == ("ada", "ben", "peer", True)


def test_reads_can_be_said_exactly(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        one, two = rec.decision("delegate", "a"), rec.decision("delegate", "b")
        three = rec.aggregate("c", reads=[one, (two, "temporal")])
        nothing = rec.stop("d", reads=[])
        rec.stop("e", reads=["e99"])
    trace = rec.trace
    assert [(e.src, e.type) for e in trace.edges if e.dst == three] == [(one, "causal"), (two, "temporal")]
    assert [e for e in trace.edges if e.dst == nothing] == []
    assert rec.problems == ["no event 'e99' to read: its edge was left out"]


def test_a_model_call_is_a_step_with_its_tokens_and_cost(tmp_path: Path) -> None:
    class Answer:
        content = "forty-two"
        usage = {"prompt_tokens": 7, "completion_tokens": 2}

    with record(tmp_path, task="demo") as rec:

        @rec.model(name="m-1")
        async def ask(prompt: str) -> Answer:
            rec.tell(cost_usd=0.25, temperature=0.5)
            return Answer()

        @rec.agent
        async def worker() -> None:
            await ask("what?")
            with rec.model_call("m-2") as step:
                step.result("and?", tokens_in=1, tokens_out=1, cost_usd=0.5, logp=-1.5)

        asyncio.run(worker())
    trace = _clean(rec)
    first, second = (e for e in trace.events if e.model)
    assert (first.type, first.model, first.tokens_in, first.tokens_out, first.cost_usd) == ("message", "m-1", 7, 2, 0.25)
    assert {k: v for k, v in first.extra.items() if k != "replay"} == {"aloud": True, "temperature": 0.5}
    assert trace.text(first) == "forty-two"
    assert (second.logp, second.turn, second.ok) == (-1.5, 1, True)
    assert trace.costs["tokens"] == 11
    assert trace.costs["cost_usd"] == 0.75


def test_who_has_two_returns_to_read_aggregates(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        think = rec.model(lambda prompt: "so")
        work = rec.agent(name="w")(lambda: "x")
        work()
        think("one is no aggregate")
        rec.spawn("a")
        rec.spawn("b")
        for name in ("a", "b"):
            with rec.acting(name):
                pass
        think("both")
    trace = _clean(rec)
    assert [e.type for e in trace.events if e.model] == ["orchestrator_decision", "aggregate"]


def test_errors_are_recorded_and_raised_again(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:

        @rec.tool
        def broken() -> None:
            raise KeyError("some words")

        @rec.agent
        def worker() -> None:
            broken()

        with pytest.raises(KeyError, match="some words"):
            worker()
    trace = _clean(rec)
    call, result, back = _one(trace, "tool_call"), _one(trace, "tool_result"), _one(trace, "return")
    assert [(e.ok, e.error) for e in (call, result, back)] == [(False, "KeyError: 'some words'")] * 3
    assert trace.meta.get("failed") is None


def test_an_exception_seals_the_trace_and_is_named(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo", trace_id="t1", agent="lead")
    with pytest.raises(ZeroDivisionError), rec:  # noqa: PT012
        rec.noop(options=["spawn", "noop"])
        raise ZeroDivisionError("by nothing")
    assert _clean(rec).meta["failed"] == "ZeroDivisionError: by nothing"
    assert Store(tmp_path).ids() == ["t1"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, SystemExit(3)])
def test_what_breaks_a_program_off_leaves_the_trace_unfinished(tmp_path: Path, error: Any) -> None:
    rec = record(tmp_path, task="demo", trace_id="t1", agent="lead")
    with pytest.raises(BaseException) as caught, rec:  # noqa: PT012
        rec.noop()
        raise error
    assert isinstance(caught.value, error if isinstance(error, type) else SystemExit)
    store = Store(tmp_path)
    assert (store.ids(), store.open_ids()) == ([], ["t1"])
    with store.resume("t1") as run:
        assert len(run.finish().events) == 1


def test_what_is_broken_off_can_be_resumed_at_once_in_a_store_that_stays_open(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        rec = record(store, task="demo", trace_id="t1", agent="lead")
        with pytest.raises(KeyboardInterrupt), rec:  # noqa: PT012
            rec.noop()
            raise KeyboardInterrupt
        with store.resume("t1") as run:
            assert [e.decision for e in run.finish().events] == ["noop"]


def test_a_plain_exit_seals_it(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo", agent="lead")
    with pytest.raises(SystemExit), rec:  # noqa: PT012
        rec.noop()
        raise SystemExit
    assert _clean(rec).events[0].decision == "noop"


def test_generators_are_recorded_and_stay_generators(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo", agent="lead")

    @rec.model
    def stream(prompt: str) -> Iterator[str]:
        sent = yield "a"
        try:
            yield f"b{sent}"
        except ValueError:
            yield "c"
        return "end"

    @rec.model
    async def flow(prompt: str) -> Any:
        for part in ("x", "y", "z"):
            await asyncio.sleep(0)
            yield part

    @rec.agent
    async def worker() -> str:
        return "".join([part async for part in flow("p")])

    assert inspect.isgeneratorfunction(stream)
    assert inspect.isasyncgenfunction(flow)
    assert inspect.iscoroutinefunction(worker)

    async def cut() -> None:
        parts = flow("p")
        async for _ in parts:
            break
        await parts.aclose()

    with rec:
        inner = stream("p")
        assert next(inner) == "a"
        rec.noop()  # between two parts it is the lead who acts
        assert inner.send("!") == "b!"
        assert inner.throw(ValueError()) == "c"
        with pytest.raises(StopIteration) as done:
            next(inner)
        assert done.value.value == "end"
        assert asyncio.run(worker()) == "xyz"
        asyncio.run(cut())
    trace = _clean(rec)
    assert [trace.text(e) for e in trace.events if e.model] == ["end", "xyz", "x"]
    assert all(e.ok for e in trace.events if e.model)


def test_a_function_that_gives_a_future_is_watched(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo", agent="lead")

    @rec.tool
    def later(value: str) -> asyncio.Future[str]:
        future = asyncio.get_running_loop().create_future()
        future.get_loop().call_soon(future.set_result, value)
        return future

    @rec.tool
    def coroutine(value: str) -> Any:
        return asyncio.sleep(0, value)

    async def team() -> None:
        future = later("f")
        assert isinstance(future, asyncio.Future)
        assert await future == "f"
        assert await coroutine("c") == "c"
        await asyncio.sleep(0)

    with rec:
        asyncio.run(team())
    assert [_clean(rec).text(e) for e in rec.trace.events if e.type == "tool_result"] == ["f", "c"]


def test_without_a_recording_nothing_happens(tmp_path: Path) -> None:
    rec = record(tmp_path / "never", task="demo")

    @rec.agent
    async def worker(x: int) -> int:
        rec.decision("spawn")
        with rec.tool_call("t") as call:
            call.result("r")
        return x + 1

    assert asyncio.run(worker(1)) == 2
    assert not (tmp_path / "never").exists()
    assert (rec.trace, rec.sync(), rec.problems) == (None, False, [])


def test_decorated_functions_record_into_the_recording_around_them(tmp_path: Path) -> None:
    templates = record(task="none")

    @templates.agent
    def worker(x: str) -> str:
        return x

    for name in ("one", "two"):
        with record(tmp_path, task="demo", trace_id=name):
            worker(name)
    store = Store(tmp_path)
    assert [store.get(name).agents for name in ("one", "two")] == [["main", "worker"]] * 2


def test_one_recording_can_be_made_again_but_not_twice_at_once(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo")
    ids = []
    for _ in range(2):
        with rec:
            rec.stop("x")
            with pytest.raises(InputError, match="has begun already"):
                rec.__enter__()
        ids.append(rec.trace_id)
    assert Store(tmp_path).ids() == ids


def test_a_store_of_the_callers_stays_open(tmp_path: Path) -> None:
    async def team() -> None:
        with Store(tmp_path) as store:
            async with record(store, task="demo", trace_id="t1", meta={"seed": 3}) as rec:
                rec.stop("x")
                assert await rec.sync_async()
                assert store.get("t1").meta["unfinished"] is True
            assert store.get("t1").meta["seed"] == 3

    asyncio.run(team())


def test_wrong_arguments_are_named_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'centralized'"):
        record(tmp_path, task="demo", topology="centralised")
    with pytest.raises(InputError, match="is not a name"):
        record(tmp_path, task="")
    with record(tmp_path, task="demo", trace_id="t1") as rec:
        rec.stop("x")
    with pytest.raises(InputError, match="stored already"), record(tmp_path, task="demo", trace_id="t1"):
        pass


TEXT = st.text(st.characters(blacklist_categories=()), max_size=5)
VALUES = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=2))


@settings(max_examples=25, deadline=None)
@example({"options": ["\ud800"]}, "\ud800")
@given(st.dictionaries(st.sampled_from(["tokens_in", "cost_usd", "logp", "ok", "model", "options", "from_", "id", "odd"]), VALUES), TEXT)
def test_no_value_stops_the_team(tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any], text: str) -> None:
    with record(tmp_path_factory.mktemp("r"), task="demo", agent="lead") as rec:
        rec.tool(lambda x: object())(text)
        rec.event("message", text, **fields)
        rec.decision(text, options=[text])
        with rec.model_call("m") as step:
            step.result(fields, **fields)
        rec.reward(team=float("nan"))
        rec.stop("end")
    assert rec.trace is not None, rec.problems
    assert rec.trace.events[-1].decision == "stop"
    assert all(p.severity != "error" for p in problems(rec.trace) if p.code != "negative"), problems(rec.trace)


@settings(max_examples=20, deadline=None)
@given(st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=3), max_leaves=8), st.booleans())
def test_every_tree_of_agents_is_a_sound_trace(tmp_path_factory: pytest.TempPathFactory, tree: Any, at_once: bool) -> None:
    rec = record(tmp_path_factory.mktemp("r"), task="demo", agent="node")

    @rec.agent
    async def node(children: Any) -> int:
        with rec.tool_call("look") as call:
            call.result("untrusted")
        if at_once:
            sizes = await asyncio.gather(*(node(child) for child in children))
        else:
            sizes = [await node(child) for child in children]
        return 1 + sum(sizes)

    with rec:
        size = asyncio.run(node(tree))
    trace = _clean(rec)
    assert len(trace.agents) == size
    assert sum(e.type == "spawn" for e in trace.events) == size - 1
    # Whatever any agent learnt from outside reaches the end: no edge is missing on the way.
    reached = {trace.events[-1].id}
    for edge in sorted(trace.edges, key=lambda e: -trace.index[e.dst]):
        if edge.dst in reached:
            reached.add(edge.src)
    assert {e.id for e in trace.events if e.type == "tool_result"} <= reached


def test_many_returns_are_put_together_before_many_spawns(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        work = rec.agent(name="w")(lambda i: str(i))

        async def one(i: int) -> str:
            await asyncio.sleep(0)
            return work(i)

        async def team() -> None:
            for _ in range(3):
                await asyncio.gather(*(one(i) for i in range(100)))

        asyncio.run(team())
    trace = _clean(rec)
    assert len(trace.edges) < 3 * len(trace.events)


def test_what_was_thought_is_a_cause_of_what_is_done_next(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        with rec.model_call("m") as step:
            step.result("look it up")
        with rec.tool_call("look") as call:
            call.result("a page")
        rec.stop("done")
    trace = _clean(rec)
    thought = trace.events[0].id
    edges = {(e.src, e.dst): e.type for e in trace.edges}
    call_, result = (e.id for e in trace.events[1:3])
    assert edges[thought, call_] == "causal"
    assert edges[call_, result] == "tool_dependency"
    assert "temporal" not in edges.values()


def test_a_coroutine_that_a_plain_function_gives_may_fail(tmp_path: Path) -> None:
    async def inner() -> str:
        await asyncio.sleep(0)
        raise LookupError("late")

    with record(tmp_path, task="demo", agent="lead") as rec:
        call = rec.tool(name="look")(lambda: inner())
        with pytest.raises(LookupError):
            asyncio.run(_awaits(call()))
    trace = _clean(rec)
    assert [(e.type, e.ok, e.error) for e in trace.events] == [
        ("tool_call", False, "LookupError: late"),
        ("tool_result", False, "LookupError: late"),
    ]


async def _awaits(one: Any) -> Any:
    return await one


def test_more_about_an_event_may_come_as_a_table_or_by_name(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        rec.event("message", "x", extra={"a": 1}, b=2)
        with rec.tool_call("look") as call:
            call.tell(extra={"a": 3})
            call.tell(b=4)
    assert [e.extra for e in _clean(rec).events[:2]] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
