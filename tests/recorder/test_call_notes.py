"""What a recorded team's model calls keep: the place and form of live teams, each text once, and what frameworks tell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint import Trace, record
from counterpoint.formats.masking import masked_all
from counterpoint.trace.model_calls import chat_of, messages_of, model_call, prompt_ids_of, prompt_of


def response(text: str, ids: list[int], prompt: list[int]) -> dict[str, Any]:
    logprobs = {"content": [{"token": "x", "logprob": -0.5} for _ in ids]}
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop", "logprobs": logprobs, "token_ids": ids}
    return {"choices": [choice], "prompt_token_ids": prompt, "model": "m", "usage": {"prompt_tokens": len(prompt)}}


def clean(rec: Any) -> Trace:
    assert rec.problems == []
    assert [str(p) for p in counterpoint.problems(rec.trace)] == []
    return rec.trace


def calls(trace: Trace) -> list[Any]:
    return [event for event in trace.events if model_call(event) is not None]


def test_a_growing_conversation_is_kept_once(tmp_path: Path) -> None:
    rec, chat = record(tmp_path, task="demo"), [{"role": "system", "content": "Be brief."}]

    @rec.model(name="m")
    def ask(messages: list[Any], temperature: float = 1.0) -> Any:
        prompt = list(range(10 * len(messages)))
        return response(f"answer {len(messages)}", [500, 501], prompt)

    with rec:
        for turn in range(20):
            chat.append({"role": "user", "content": f"question {turn}"})
            said = ask(chat, temperature=0.5)["choices"][0]["message"]
            chat.append(said)
    trace = clean(rec)
    asked = calls(trace)
    for turn, event in enumerate(asked):
        assert messages_of(trace, event) == chat[: 2 + 2 * turn]
        assert prompt_of(trace, event) == [m["content"] for m in chat[: 2 + 2 * turn]]
    note = model_call(asked[-1]) or {}
    assert note["prompt"]["of"] == asked[-2].id
    assert len(note["prompt"]["more"]) == 2  # its own last answer, and the new question
    assert (note["token_ids"], note["logps"], note["finish"], note["parameters"]) == (
        [500, 501],
        [-0.5, -0.5],
        "stop",
        {"temperature": 0.5},
    )
    assert trace.text(asked[-1]) == "answer 40"
    assert {k: v.tolist() for k, v in prompt_ids_of(trace).items()} == {
        e.id: list(range(20 + 20 * i)) for i, e in enumerate(asked)
    }
    assert sum(isinstance(part, int) for event in asked for part in (model_call(event) or {})["prompt_ids"]) == 400
    found = chat_of(trace, asked[1])
    assert found is not None
    assert [role for role, _ in found.prompt] == ["system", "user", "assistant", "user"]


def test_a_trace_that_is_read_again_says_the_same(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo", trace_id="one")
    with rec, rec.model_call("m", messages=[{"role": "user", "content": "hi"}], tools=[{"name": "f"}]) as step:
        step.result(response("so", [1], [2] * 9))
    with counterpoint.Store(tmp_path) as store:
        trace = store.get("one")
    (event,) = calls(trace)
    assert messages_of(trace, event) == [{"role": "user", "content": "hi"}]
    note = model_call(event) or {}
    assert trace.contents[note["tools"]] == '[{"name":"f"}]'
    assert trace.contents[note["completion"]] == "so" == trace.text(event)
    assert (event.tokens_in, event.model) == (9, "m")


def test_what_the_function_hides_is_told_inside_it(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo")

    @rec.model(name="m")
    def ask(style: str, question: str) -> str:
        messages = [{"role": "system", "content": style}, {"role": "user", "content": question}]
        rec.tell(messages=messages, response=response("said", [5, 6], [1] * 8), seen_by="rec")
        return "said, and more"

    @rec.model(name="own")
    def own(prompt: str) -> str:
        rec.tell(prompt_ids=(1, 2), token_ids=[3], logps=[-0.25])
        return "own"

    with rec:
        ask("dry", "why?")
        own("hi")
    trace = clean(rec)
    first, second = calls(trace)
    assert [m["role"] for m in messages_of(trace, first)] == ["system", "user"]
    assert (model_call(first) or {})["token_ids"] == [5, 6]
    assert (first.extra["seen_by"], first.tokens_in) == ("rec", 8)
    assert trace.text(first) == "said, and more"
    assert trace.contents[(model_call(first) or {})["completion"]] == "said"
    note = model_call(second) or {}
    assert (note["prompt_ids"], note["token_ids"], note["logps"]) == ([1, 2], [3], [-0.25])


def test_a_failure_keeps_what_was_asked_and_is_no_answer(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo")

    @rec.model
    def ask(messages: Any) -> Any:
        if len(messages) == 1:
            raise TimeoutError("slow")
        return response("so", [1], [2] * 9)

    chat = [{"role": "user", "content": "hi"}]
    with rec:
        with pytest.raises(TimeoutError):
            ask(chat)
        ask([*chat, {"role": "user", "content": "again"}])
    trace = clean(rec)
    failed, answered = (e for e in trace.events if "call" in (e.extra or {}))
    assert model_call(failed) is None
    assert failed.extra["call"]["failed"] == "TimeoutError"
    assert prompt_of(trace, failed) == ["hi"]
    assert prompt_of(trace, answered) == ["hi", "again"]


def test_a_stream_is_the_answer_that_it_was(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo")

    @rec.model
    async def ask(prompt: str) -> AsyncIterator[dict[str, Any]]:
        for part in ("to", "gether"):
            yield {"choices": [{"delta": {"content": part}, "finish_reason": None}]}
        yield {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}

    async def main() -> list[Any]:
        return [piece async for piece in ask("hi")]

    with rec:
        assert len(asyncio.run(main())) == 3
    trace = clean(rec)
    (event,) = calls(trace)
    assert (trace.text(event), event.tokens_in, event.tokens_out) == ("together", 3, 2)


def test_calls_at_once_each_keep_their_own(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo")

    @rec.model
    async def ask(messages: Any) -> Any:
        await asyncio.sleep(0.001 * (5 - len(messages)))
        return response(f"answer {len(messages)}", [1], [2] * 9)

    chats = [[{"role": "user", "content": f"{i} of {n}"} for i in range(n)] for n in (1, 2, 3, 4)]

    async def main() -> None:
        await asyncio.gather(*(ask(chat) for chat in chats))

    with rec:
        asyncio.run(main())
    trace = clean(rec)
    for event, chat in zip(calls(trace), chats, strict=True):
        assert messages_of(trace, event) == chat


def test_a_secret_in_any_part_of_a_call_takes_its_token_ids_along(tmp_path: Path) -> None:
    key = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3
    rec = record(tmp_path, task="demo")
    arguments = json.dumps({"api_key": key})
    called = {"choices": [{"message": {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "function": {"name": "f", "arguments": arguments}}]}, "token_ids": [1], "finish_reason": "stop"}],
        "prompt_token_ids": [2] * 9}  # fmt: skip
    harmless = [{"role": "user", "content": "hi"}]
    asked = [{"role": "assistant", "content": "", "tool_calls": called["choices"][0]["message"]["tool_calls"]}]
    with rec:
        for messages, tools, said in ((harmless, None, called), (asked, None, response("so", [1], [2] * 9)),
                                      (harmless, [{"name": key}], response("so", [1], [2] * 9)),
                                      (harmless, None, response("so", [1], [2] * 9))):  # fmt: skip
            with rec.model_call("m", messages=messages, tools=tools) as step:
                step.result(said)
    trace = clean(rec)
    (masked,) = masked_all([trace]).traces
    assert ["token_ids" in (model_call(e) or {}) for e in calls(trace)] == [True] * 4
    assert ["token_ids" in (model_call(e) or {}) for e in calls(masked)] == [False, False, False, True]
    assert key not in json.dumps([e.extra for e in masked.events]) + json.dumps(masked.contents)


@pytest.mark.skipif(not (find_spec("langgraph") and find_spec("agents")), reason="needs langgraph and openai-agents")
class TestFrameworks:
    """What the adapters see of a call."""

    def test_langgraph(self, tmp_path: Path) -> None:
        from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
        from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

        from counterpoint.recorder.adapters.langgraph import handler

        logprobs = {"content": [{"token": "so", "logprob": -0.5, "bytes": [115, 111]}]}
        model = GenericFakeChatModel(messages=iter([AIMessage("so", response_metadata={"logprobs": logprobs})]))
        rec = record(tmp_path, task="lg")
        with rec:
            model.invoke([SystemMessage("S"), HumanMessage("U")], config={"callbacks": [handler(rec)]})
        trace = clean(rec)
        (event,) = calls(trace)
        assert messages_of(trace, event) == [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
        note = model_call(event) or {}
        assert (note["logps"], note["token_bytes"], trace.contents[note["completion"]]) == ([-0.5], [2], "so")

    def test_the_agents_sdk(self, tmp_path: Path) -> None:
        from agents import generation_span, set_trace_processors, trace
        from agents.tracing import agent_span

        from counterpoint.recorder.adapters.openai_agents import processor

        rec = record(tmp_path, task="sdk")
        asked = [{"role": "user", "content": "hi"}]
        with rec:
            set_trace_processors([processor(rec)])
            with trace("flow"), agent_span("solo"):
                said = [response("so", [7], [1] * 8)]
                with generation_span(input=asked, output=said, model="m", model_config={"temperature": 0.5}):
                    pass
                with generation_span(input=asked, output=[{"role": "assistant", "content": "plain"}], model="m"):
                    pass
        set_trace_processors([])
        found = clean(rec)
        first, second = calls(found)
        assert messages_of(found, first) == asked == messages_of(found, second)
        note = model_call(first) or {}
        assert (note["token_ids"], note["parameters"]) == ([7], {"temperature": 0.5})
        assert found.contents[(model_call(second) or {})["completion"]] == "plain"
