"""Whose calls they were: by header, by address, by conversation, and by the recording of this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not all(map(find_spec, ("torch", "transformers", "openai", "starlette", "uvicorn"))):
    pytest.skip("needs the llm, live and view extras", allow_module_level=True)

import openai

import counterpoint
from counterpoint import Store
from counterpoint.credits.call_rows import call_rows
from counterpoint.lab.lm.serving.backend import SpokenAnswer
from counterpoint.lab.lm.serving.callers import Caller
from counterpoint.lab.lm.serving.ledger import Ledger
from counterpoint.trace.model_calls import prompt_ids_of
from serving_help import Endpoint, served
from tiny_help import make_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("weights") / "tiny", context=2048)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as made:
        yield made


def say(system: str, *turns: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": "system", "content": system}, *({"role": roles[k % 2], "content": text} for k, text in enumerate(turns))]


def spoken(messages: list[dict[str, Any]], text: str, **fields: Any) -> SpokenAnswer:
    return SpokenAnswer(id="x", model="tiny", messages=messages, text=text, **fields)


def test_who_goes_on_with_a_conversation_is_the_same_agent(store: Store) -> None:
    ledger = Ledger(store)
    a, b = "You plan the work.", "You find things out."
    for messages, text in (
        (say(a, "Begin."), "First the north wall."),
        (say(b, "Look at the north wall."), "It is brick, and old."),
        (say(b, "Look at the south wall."), "It is wood."),
        (say(a, "Begin.", "First the north wall.", "Told: It is brick, and old."), "Then we are done."),
        (say(b, "Look at the south wall.", "It is wood.", "Sure?"), "Quite sure."),
    ):
        ledger.add(Caller("t"), spoken(messages, text), 0.01)
    trace = ledger.finish("t", {"team": 1.0})
    assert trace is not None
    assert counterpoint.problems(trace) == []
    assert [(e.agent, e.role) for e in trace.events] == [("role-1.1", "role-1"), ("role-2.1", "role-2"), ("role-2.2", "role-2"), ("role-1.1", "role-1"), ("role-2.2", "role-2")]
    edges = {(e.src, e.dst, e.type) for e in trace.edges}
    assert edges == {("e1", "e4", "temporal"), ("e2", "e4", "causal"), ("e3", "e5", "temporal")}, "the fourth read what the second said"
    assert trace.rewards == {"team": 1.0}


@pytest.mark.parametrize("count", [3, 300])
def test_what_a_prompt_holds_of_others_answers_is_an_edge_however_many_there_are(store: Store, count: int) -> None:
    ledger = Ledger(store)
    for k in range(count):
        ledger.add(Caller("t", f"a{k}"), spoken(say("s", "go"), f"Answer {k} of the search."), 0.0)
    texts = ["Answer 1 of the search.", "so: Answer 2 of the search. And more", "Answer 0 of the searches, nearly", "short"]
    ledger.add(Caller("t", "last"), spoken(say("s", *texts), "done"), 0.0)
    trace = ledger.finish("t")
    assert trace is not None
    assert {(e.src, e.type) for e in trace.edges if e.dst == trace.events[-1].id} == {("e2", "causal"), ("e3", "causal")}


def test_headers_name_the_agent_whatever_was_said(store: Store) -> None:
    ledger = Ledger(store)
    for agent, role in (("ada", "orchestrator"), ("ben", None), ("ada", None)):
        ledger.add(Caller("t", agent, role), spoken(say("Same.", "Same."), "ok"), 0.0)
    trace = ledger.finish("t")
    assert trace is not None
    assert [(e.agent, e.type) for e in trace.events] == [("ada", "orchestrator_decision"), ("ben", "message"), ("ada", "orchestrator_decision")]


def test_tool_calls_are_part_of_a_conversation_however_they_are_written(store: Store) -> None:
    from counterpoint.lab.lm.serving.tool_calls import ToolCall

    ledger = Ledger(store)
    ledger.add(Caller("t"), spoken(say("s", "go"), "", calls=[ToolCall("f", '{"b": 1, "a": 2}')]), 0.0)
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 2, "b": 1}}}
    after = [*say("s", "go"), {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "3"}]
    ledger.add(Caller("t"), spoken(after, "three"), 0.0)
    trace = ledger.finish("t")
    assert trace is not None
    assert len({e.agent for e in trace.events}) == 1


def test_a_trace_to_which_nothing_comes_is_sealed_and_the_next_begins(store: Store) -> None:
    now = [1000.0]
    ledger = Ledger(store, idle_s=60, clock=lambda: now[0])
    ledger.add(Caller(), spoken(say("s", "a"), "one"), 0.0)
    now[0] += 30
    ledger.add(Caller(), spoken(say("s", "b"), "two"), 0.0)
    assert ledger.sweep() == []
    now[0] += 61
    (first,) = ledger.sweep()
    ledger.add(Caller(), spoken(say("s", "c"), "three"), 0.0)
    ledger.close()
    assert [len(store.get(name).events) for name in sorted(store.ids())] == [2, 1]
    assert first in store.ids()
    assert ledger.problems == []


def test_an_id_that_is_taken_loses_no_call(store: Store) -> None:
    ledger = Ledger(store)
    with store.record("t", task_id="x"):
        ledger.add(Caller("t"), spoken(say("s", "a"), "one"), 0.0)
        trace = ledger.finish("t")
    assert trace is not None
    assert trace.trace_id.startswith("t-calls-")
    assert ledger.problems == []


def test_calls_over_http_have_what_rows_need(tiny: Path, store: Store) -> None:
    async def team(url: str) -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

            async def ask(system: str, text: str) -> str:
                said = await client.chat.completions.create(model="tiny", messages=say(system, text), max_tokens=9)  # type: ignore[arg-type]
                return said.choices[0].message.content or ""

            parts = await asyncio.gather(*(ask("You read.", f"part {k}") for k in range(3)))
            await ask("You merge.", " ".join(parts))

    with served(tiny, store=store) as end:
        for name in ("one", "two"):
            asyncio.run(team(f"{end.root}/trace/{name}/v1"))
            assert _post(end, f"/trace/{name}/end", json.dumps({"rewards": {"team": int(name == "one")}}))[0] == 200
        assert _post(end, "/trace/one/end", "{}")[0] == 404
        assert _post(end, "/trace/x/end", '{"rewards": {"team": "much"}}')[0] == 400
    traces = [store.get("one"), store.get("two")]
    assert [counterpoint.problems(trace) for trace in traces] == [[], []]
    assert [trace.rewards for trace in traces] == [{"team": 1}, {"team": 0}]
    rows = call_rows(traces, counterpoint.credit(traces, "group_relative"))
    assert len(rows.rows) == 8
    assert {(row.trace, row.advantage is not None and row.advantage > 0) for row in rows.rows} == {(0, True), (1, False)}
    assert {row.role for row in rows.rows} == {"role-1", "role-2"}
    for k, row in enumerate(rows.rows):
        assert row.token_ids is not None
        assert row.logps is not None
        assert len(row.token_ids) == len(row.logps) > 0
        assert rows.prompt_ids(k) is not None
    assert set(prompt_ids_of(traces[0])) == {e.id for e in traces[0].events}


def test_a_recording_of_this_process_gets_its_calls(tiny: Path, store: Store) -> None:
    with served(tiny, store=store) as end, openai.OpenAI(base_url=end.url, api_key="none", max_retries=0) as client:
        rec = counterpoint.record(store, task="demo", agent="lead")

        @rec.model
        def ask(text: str) -> str:
            said = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": text}], max_tokens=6, extra_headers=rec.headers())
            return said.choices[0].message.content or ""

        @rec.agent(role="reader")
        def reader(text: str) -> str:
            return ask(text)

        assert rec.headers() == {}
        with rec:
            reader("north")
            said = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "bare"}], max_tokens=6, extra_headers=rec.headers())
    trace = rec.trace
    assert trace is not None
    assert counterpoint.problems(trace) == rec.problems == []
    calls = {e.agent: e.extra["call"] for e in trace.events if e.extra and "call" in e.extra}
    assert calls.keys() == {"reader", "lead"}
    assert calls["lead"]["response"] == said.id
    assert [len(call["token_ids"]) == len(call["logps"]) > 0 for call in calls.values()] == [True, True]
    assert sum(e.model is not None for e in trace.events) == 2, "no step is recorded twice"
    assert store.ids() == [trace.trace_id]


def _post(end: Endpoint, path: str, body: str) -> tuple[int, str]:
    import http.client

    connection = http.client.HTTPConnection(end.root.removeprefix("http://"), timeout=30)
    connection.request("POST", path, body)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text
