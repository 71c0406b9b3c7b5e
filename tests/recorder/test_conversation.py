"""What a model was asked and answered, in the shapes of providers: real objects of their clients, and tables of the same names."""

from __future__ import annotations

import math
from typing import Any

import pytest

from counterpoint.recorder.conversation import answer_of, joined, messages_of, question_of

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"page": 3}'}}
CALLED = {"name": "look", "arguments": '{"page": 3}', "id": "c1"}


def logprob(token: str, logp: float) -> dict[str, Any]:
    return {"token": token, "logprob": logp, "bytes": list(token.encode()), "top_logprobs": []}


def completion(**choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hé you"}
    whole = {"index": 0, "finish_reason": "stop", "message": message, **choice}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [whole]}


def test_a_completion_of_the_openai_client_is_read_whole() -> None:
    pytest.importorskip("openai")
    from openai.types.chat import ChatCompletion

    logprobs = {"content": [logprob("Hé", -0.5), logprob(" you", -0.25)], "refusal": None}
    value = completion(logprobs=logprobs, message={"role": "assistant", "content": "Hé you", "tool_calls": [CALL]})
    found = answer_of(ChatCompletion.model_validate(value))
    assert found is not None
    assert (found.text, found.finish, found.tool_calls) == ("Hé you", "stop", [CALLED])
    assert (found.logps, found.lengths, found.token_ids, found.prompt_ids) == ([-0.5, -0.25], [3, 4], None, None)


def test_servers_that_tell_token_ids_tell_them_in_their_own_places() -> None:
    pytest.importorskip("openai")
    from openai.types.chat import ChatCompletion

    ids = ([1, 2, 3], [7, 8], [-0.5, -0.25])
    logprobs = {"content": [logprob("a", -0.5), logprob("b", -0.25)]}
    vllm = completion(logprobs=logprobs, token_ids=[7, 8]) | {"prompt_token_ids": [1, 2, 3]}
    as_words = completion(
        logprobs={"content": [logprob("token_id:7", -0.5), logprob("token_id:8", -0.25)]}, prompt_token_ids=[1, 2, 3]
    )
    meta = {"output_token_logprobs": [[-0.5, 7, "a"], [-0.25, 8, "b"]]}
    sglang = completion(meta_info=meta) | {"sglext": {"input_ids": [1, 2, 3], "output_ids": [[7, 8]]}}
    bare = {"text": "Hé you", "prompt_ids": (1, 2, 3), "token_ids": [7, 8], "logps": [-0.5, -0.25]}
    for value in (vllm, as_words, sglang):
        for given in (value, ChatCompletion.model_validate(value)):
            found = answer_of(given)
            assert found is not None
            assert (found.prompt_ids, found.token_ids, found.logps) == ids
            assert found.lengths is None
    own = answer_of(bare)
    assert own is not None
    assert (own.prompt_ids, own.token_ids, own.logps) == ids


def test_a_log_probability_that_is_not_of_a_token_is_left_out() -> None:
    three = {"content": [logprob(t, -0.5) for t in "abc"]}
    found = answer_of(completion(logprobs=three, token_ids=[7, 8]))
    assert found is not None
    assert (found.token_ids, found.logps) == ([7, 8], None)
    for odd in (math.nan, "-1", None, True):
        found = answer_of(completion(logprobs={"content": [logprob("a", -1.0), {**logprob("b", 0.0), "logprob": odd}]}))
        assert found is not None
        assert (found.logps, found.lengths) == (None, None)
    for ids in ([7, "8"], [7, -1], [True], "78", []):
        found = answer_of(completion(token_ids=ids))
        assert found is not None
        assert found.token_ids is None


def test_completions_responses_and_other_makers() -> None:
    legacy = answer_of({"choices": [{"text": " so", "logprobs": {"tokens": [" s", "o"], "token_logprobs": [-1, -2.0]}}]})
    assert legacy is not None
    assert (legacy.text, legacy.logps, legacy.lengths) == (" so", [-1.0, -2.0], [2, 1])
    part = {"type": "output_text", "text": "Hi", "logprobs": [logprob("Hi", -0.5)]}
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"page": 3}'}
    items = [{"type": "reasoning"}, {"type": "message", "content": [part]}, call]
    response = answer_of({"output": items, "status": "completed"})
    assert response is not None
    assert (response.text, response.tool_calls, response.finish, response.logps) == ("Hi", [CALLED], "completed", [-0.5])
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {"page": 3}}
    other = answer_of({"role": "assistant", "content": [{"type": "text", "text": "Hm"}, use], "stop_reason": "tool_use"})
    assert other is not None
    assert (other.text, other.finish) == ("Hm", "tool_use")
    assert [c["name"] for c in other.tool_calls] == ["look"]


def test_messages_of_every_maker_become_the_same() -> None:
    openai = [
        {"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "U"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "R"},
    ]  # fmt: skip
    anthropic = [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"page": 3}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "R"}]},
    ]
    responses = [
        {"role": "user", "content": "U"}, {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"page": 3}'},
        {"type": "function_call_output", "call_id": "c1", "output": "R"},
    ]  # fmt: skip
    for given, system in ((openai, None), (anthropic, "S"), (responses, "S")):
        found = messages_of(given, system)
        assert found is not None
        assert [m.fields["role"] for m in found] == ["system", "user", "assistant", "tool"]
        assert [m.text for m in found] == ["S", "U", "", "R"]
        assert found[2].fields["tool_calls"][0]["name"] == "look"
        assert found[3].fields["tool_call_id"] == "c1"


def test_langchain_messages_are_read() -> None:
    messages = pytest.importorskip("langchain_core.messages")
    calls = [{"name": "look", "args": {"page": 3}, "id": "c1"}]
    said = messages.AIMessage("so", tool_calls=calls, response_metadata={"finish_reason": "tool_calls",
                              "logprobs": {"content": [logprob("so", -0.5)]}})  # fmt: skip
    given = [messages.SystemMessage("S"), messages.HumanMessage("U"), said, messages.ToolMessage("R", tool_call_id="c1")]
    found = messages_of(given)
    assert found is not None
    assert [m.fields["role"] for m in found] == ["system", "user", "assistant", "tool"]
    answer = answer_of(said)
    assert answer is not None
    assert (answer.text, answer.finish, answer.logps) == ("so", "tool_calls", [-0.5])
    assert answer.tool_calls == [{"name": "look", "arguments": '{"page":3}', "id": "c1"}]


def test_what_is_asked_is_found_among_the_arguments() -> None:
    chat = [{"role": "user", "content": "hi"}]
    asked = question_of(["client", "chat"], (object(), chat), {"temperature": 0.5, "stop": ["\n"], "stream": True})
    assert asked.messages is not None
    assert asked.messages[0].text == "hi"
    assert asked.parameters == {"temperature": 0.5, "stop": ["\n"]}
    assert question_of(["prompt", "style"], ("hi", "dry"), {}).messages == asked.messages
    assert question_of(["question"], ("hi",), {}).messages == asked.messages
    assert question_of(["style", "question"], ("dry", "hi"), {}).messages is None  # which of them it read is not known
    assert question_of([], (), {"messages": chat, "tools": [{"name": "f"}]}).tools == '[{"name":"f"}]'
    picture = [{"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]}]
    shown = messages_of(picture)
    assert shown is not None
    assert shown[0].fields == {"role": "user", "parts": True}


def test_pieces_of_a_stream_are_one_answer() -> None:
    def piece(**delta: Any) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}], "model": "m"}

    first = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"page"'}}
    rest = {"index": 0, "function": {"arguments": ": 3}"}}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 3}}
    whole = joined([piece(content="H"), piece(content="é"), piece(tool_calls=[first]), piece(tool_calls=[rest]), last, usage])
    found = answer_of(whole)
    assert found is not None
    assert (found.text, found.tool_calls, found.finish) == ("Hé", [CALLED], "tool_calls")
    assert whole["usage"] == {"prompt_tokens": 3}
    assert joined([{"choices": [{"text": "x"}]}]) == {"choices": [{"text": "x"}]}


def test_nothing_that_a_value_does_gets_out() -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    class Odd(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            raise RuntimeError("no")

    for value in (
        Broken(),
        {"choices": [Broken()]},
        {"choices": Odd([1])},
        {"output": [Broken(), 3]},
        {"content": Odd([1])},
        3,
        "x",
        None,
        [],
    ):
        answer_of(value)
        question_of(["messages"], (value,), {"tools": value, "stop": value})
