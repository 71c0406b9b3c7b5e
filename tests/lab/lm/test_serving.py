"""The endpoint as clients see it: OpenAI's own Python client, our own, and plain HTTP, against a tiny model."""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not all(map(find_spec, ("torch", "transformers", "openai", "starlette", "uvicorn"))):
    pytest.skip("needs the llm, live and view extras", allow_module_level=True)

import openai

from counterpoint.lab.lm.endpoint import EndpointModel
from counterpoint.lab.lm.engine import Ask
from counterpoint.lab.lm.model import Call, Message
from counterpoint.lab.lm.models.local import local
from counterpoint.lab.lm.serving.tool_calls import in_words
from serving_help import Endpoint, served
from tiny_help import make_tiny

ASKED: list[Any] = [{"role": "system", "content": "You act."}, {"role": "user", "content": "who?"}]
SEARCH: dict[str, Any] = {
    "type": "function",
    "function": {"name": "search", "description": "Look it up.", "parameters": {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]}},
}
PAINT: dict[str, Any] = {
    "type": "function",
    "function": {"name": "paint", "parameters": {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}, "fast": {"type": "boolean"}}, "required": ["colour"]}},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("weights") / "tiny", context=2048)


@pytest.fixture(scope="module")
def end(tiny: Path) -> Iterator[Endpoint]:
    with served(tiny, batch=16) as made:
        yield made


@pytest.fixture(scope="module")
def client(end: Endpoint) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=end.url, api_key="none", max_retries=0) as made:
        yield made


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": "tiny", "messages": ASKED, "max_tokens": 12, "seed": 7, **fields})


# -- what is answered ------------------------------------------------------------------------------------------------------


def test_the_answer_is_the_models_own(client: openai.OpenAI, tiny: Path) -> None:
    model = local(str(tiny))
    call = Call(messages=(Message("system", "You act."), Message("user", "who?")), max_tokens=12, stop=(), seed=7)
    own = asyncio.run(model.complete(call))
    asyncio.run(model.close())
    said = ask(client, logprobs=True, extra_body={"return_token_ids": True})
    assert (said.choices[0].message.content, said.choices[0].message.role) == (own.text, "assistant")
    assert said.prompt_token_ids == list(own.prompt_ids or ())
    assert said.choices[0].token_ids == list(own.token_ids or ())
    assert [t.logprob for t in said.choices[0].logprobs.content] == pytest.approx(own.logps, abs=1e-4)
    assert said.choices[0].finish_reason == own.finish
    assert (said.usage.prompt_tokens, said.usage.completion_tokens) == (own.tokens_in, own.tokens_out)
    assert said.usage.total_tokens == own.tokens_in + own.tokens_out
    assert said.id.startswith("chatcmpl-")


def test_a_stream_is_the_whole_in_pieces(client: openai.OpenAI) -> None:
    extra = {"return_token_ids": True}
    whole = ask(client, max_tokens=40, logprobs=True, top_logprobs=2, n=3, extra_body=extra)
    pieces = list(ask(client, max_tokens=40, logprobs=True, top_logprobs=2, n=3, stream=True, stream_options={"include_usage": True}, extra_body=extra))
    assert len(pieces) > 8, "they come as they are written"
    assert len({piece.id for piece in pieces}) == 1
    assert pieces[-1].choices == []
    assert (pieces[-1].usage.completion_tokens, pieces[-1].usage.prompt_tokens) == (whole.usage.completion_tokens, whole.usage.prompt_tokens)
    assert pieces[0].prompt_token_ids == whole.prompt_token_ids
    for k, choice in enumerate(whole.choices):
        mine = [c for piece in pieces for c in piece.choices if c.index == k]
        assert "".join(c.delta.content or "" for c in mine) == choice.message.content
        assert [t for c in mine for t in getattr(c, "token_ids", None) or []] == choice.token_ids
        assert [t.token for c in mine if c.logprobs for t in c.logprobs.content] == [t.token for t in choice.logprobs.content]
        assert [c.finish_reason for c in mine if c.finish_reason] == [choice.finish_reason]
        assert mine[0].delta.role == "assistant"


def test_several_answers_differ_and_the_first_is_that_of_one(client: openai.OpenAI) -> None:
    one, many = ask(client), ask(client, n=4)
    texts = [choice.message.content for choice in many.choices]
    assert texts[0] == one.choices[0].message.content
    assert len(set(texts)) == 4
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    assert many.usage.prompt_tokens == one.usage.prompt_tokens
    assert [choice.message.content for choice in ask(client, n=4).choices] == texts, "the same seed, the same answers"
    assert ask(client, seed=None).choices[0].message.content != ask(client, seed=None).choices[0].message.content


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_stop_string_ends_an_answer_before_it(client: openai.OpenAI, is_streamed: bool) -> None:
    text = ask(client, max_tokens=60).choices[0].message.content
    stop = re.findall(r"[A-Za-z :]{2,3}", text)[1]
    extra: Any = {"return_token_ids": True}
    if is_streamed:
        pieces = [c for p in ask(client, max_tokens=60, stop=[stop, "never said"], stream=True, extra_body=extra) for c in p.choices]
        said, finish = "".join(c.delta.content or "" for c in pieces), pieces[-1].finish_reason
        ids = [t for c in pieces for t in getattr(c, "token_ids", None) or []]
    else:
        choice = ask(client, max_tokens=60, stop=[stop, "never said"], extra_body=extra).choices[0]
        said, finish, ids = choice.message.content, choice.finish_reason, choice.token_ids
    assert (said, finish) == (text[: text.find(stop)], "stop")
    whole = ask(client, max_tokens=60, extra_body=extra).choices[0].token_ids
    assert ids == whole[: len(ids)]
    assert len(ids) < len(whole)


def test_log_probabilities_name_the_likeliest_tokens(client: openai.OpenAI) -> None:
    content = ask(client, logprobs=True, top_logprobs=4, temperature=0).choices[0].logprobs.content
    for row in content:
        assert len(row.top_logprobs) == 4
        assert row.top_logprobs[0].token == row.token, "the likeliest is taken"
        assert [t.logprob for t in row.top_logprobs] == sorted((t.logprob for t in row.top_logprobs), reverse=True)
        assert sum(math.exp(t.logprob) for t in row.top_logprobs) <= 1.0001
    assert b"".join(bytes(row.bytes) for row in content).decode(errors="replace").startswith(ask(client, temperature=0).choices[0].message.content[:5])
    assert ask(client).choices[0].logprobs is None


def test_a_small_nucleus_is_greedy(client: openai.OpenAI) -> None:
    greedy = ask(client, temperature=0).choices[0].message.content
    assert ask(client, temperature=1.5, top_p=1e-6, seed=11).choices[0].message.content == greedy
    assert ask(client, temperature=1.5, seed=11).choices[0].message.content != greedy


def test_plain_completions(client: openai.OpenAI, tiny: Path) -> None:
    extra = {"return_token_ids": True}
    said = client.completions.create(model="tiny", prompt=["SPAWN worker", "TOOL"], max_tokens=9, n=2, seed=3, logprobs=2, extra_body=extra)
    assert [choice.index for choice in said.choices] == [0, 1, 2, 3]
    for choice in said.choices:
        assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) == len(choice.token_ids) == len(choice.logprobs.text_offset)
        assert all(len(row) <= 2 for row in choice.logprobs.top_logprobs)
    as_ids: Any = said.choices[2].prompt_token_ids
    again = client.completions.create(model="tiny", prompt=as_ids, max_tokens=9, n=2, seed=3, echo=True)
    assert again.choices[0].text.startswith("TOOL")
    pieces = list(client.completions.create(model="tiny", prompt="SPAWN worker", max_tokens=9, seed=3, stream=True))
    assert "".join(choice.text for piece in pieces for choice in piece.choices) == said.choices[0].text
    assert client.completions.create(model="tiny", prompt="SPAWN", seed=1).usage.completion_tokens <= 16  # type: ignore[union-attr]


def test_our_own_client_gets_ids_and_log_probabilities(end: Endpoint) -> None:
    async def run() -> list[Any]:
        out = []
        for options in ({"token_ids": True}, {"stream": True}):
            model = EndpointModel("tiny", base_url=end.url, key_env="", retries=0, **options)  # type: ignore[arg-type]
            out.append(await model.complete(Call(messages=(Message("user", "who?"),), max_tokens=20, stop=("\n",), seed=5)))
            await model.close()
        return out

    told, streamed = asyncio.run(run())
    assert len(told.token_ids) == len(told.logps) == told.tokens_out
    assert told.prompt_ids
    assert "left_out" not in told.extra
    assert streamed.text == told.text
    assert streamed.logps == pytest.approx(told.logps, abs=1e-4)


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-x")


# -- tools -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """A tiny model that has learned to call two tools at once, and to speak once it has their answers."""
    import numpy as np

    from counterpoint.lab.lm.conversion import write_folder
    from counterpoint.lab.lm.network import Network
    from counterpoint.lab.lm.tensor_files import read_folder
    from counterpoint.lab.train.lm.learner import CallTokens, LanguageLearner, Options

    folder = make_tiny(tmp_path_factory.mktemp("taught") / "tiny", context=2048, width=64, texts=(CALLS, json.dumps(SEARCH)), words=420)
    chat, shape, weights = read_folder(folder, "tiny")
    import msgspec

    from counterpoint.lab.lm.serving.requests import ChatRequest, as_dicts

    def prompt(messages: list[Any], tools: list[Any]) -> list[int]:
        read = msgspec.convert({"model": "tiny", "messages": messages, "tools": tools}, ChatRequest)
        return chat.prompt([Message(m["role"], m["content"]) for m in in_words(as_dicts(read.messages), read.offered)])  # type: ignore[arg-type]

    taught = [(prompt(TALK[:1], [SEARCH]), CALLS), (prompt(TALK, [SEARCH]), "Both are found.")]
    said = [CallTokens(str(k), np.array(ids, np.int32), np.array(chat.answer(text), np.int32)) for k, (ids, text) in enumerate(taught)]
    learner = LanguageLearner(Network(shape), weights, Options(tokens=8192))
    learner.set_rate(1e-2)
    for _ in range(200):
        if learner.imitate(said)["loss"] < 0.01:
            break
    write_folder(folder, shape, {n: w.detach() for n, w in learner.weights.items()}, folder.with_name("taught"))
    with served(folder.with_name("taught")) as made, openai.OpenAI(base_url=made.url, api_key="none", max_retries=0) as client:
        yield client


CALLS = (
    'I look.\n<tool_call>\n{"name": "search", "arguments": {"words": "red"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "search", "arguments": {"words": "blue"}}\n</tool_call>'
)
TALK: list[Any] = [
    {"role": "user", "content": "Find red and blue."},
    {"role": "assistant", "content": "I look.", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "search", "arguments": '{"words": "red"}'}},
        {"id": "b", "type": "function", "function": {"name": "search", "arguments": '{"words":"blue"}'}},
    ]},
    {"role": "tool", "tool_call_id": "a", "content": "red is 1"},
    {"role": "tool", "tool_call_id": "b", "content": "blue is 2"},
]  # fmt: skip


def test_tools_are_called_at_once_and_answered(caller: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": TALK[:1], "tools": [SEARCH], "temperature": 0, "max_tokens": 200}
    choice = caller.chat.completions.create(**asked).choices[0]
    calls = choice.message.tool_calls
    assert [(c.function.name, json.loads(c.function.arguments)) for c in calls] == [("search", {"words": "red"}), ("search", {"words": "blue"})]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look.")
    assert len({c.id for c in calls}) == 2
    messages = [TALK[0], choice.message, *({"role": "tool", "tool_call_id": c.id, "content": text} for c, text in zip(calls, ("red is 1", "blue is 2"), strict=True))]
    after = caller.chat.completions.create(**{**asked, "messages": messages}).choices[0]
    assert (after.finish_reason, after.message.content, after.message.tool_calls) == ("stop", "Both are found.", None)
    one = caller.chat.completions.create(**asked, parallel_tool_calls=False).choices[0]
    assert [json.loads(c.function.arguments) for c in one.message.tool_calls] == [{"words": "red"}]
    none = caller.chat.completions.create(**{**asked, "tool_choice": "none"}).choices[0]
    assert none.message.tool_calls is None


def test_calls_stream_whole_and_their_marks_never(caller: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": TALK[:1], "tools": [SEARCH], "temperature": 0, "max_tokens": 200}
    pieces = [c for p in caller.chat.completions.create(**asked, stream=True) for c in p.choices]
    calls = [call for c in pieces for call in c.delta.tool_calls or []]
    assert [(c.index, c.function.name, json.loads(c.function.arguments)) for c in calls] == [(0, "search", {"words": "red"}), (1, "search", {"words": "blue"})]
    assert "".join(c.delta.content or "" for c in pieces).strip() == "I look."
    assert pieces[-1].finish_reason == "tool_calls"


def test_a_forced_call_is_made_by_a_model_that_knows_none(client: openai.OpenAI) -> None:
    for k in range(6):
        choice = ask(client, tools=[SEARCH, PAINT], tool_choice={"type": "function", "function": {"name": "paint"}}, seed=k, max_tokens=3).choices[0]
        (call,) = choice.message.tool_calls
        assert call.function.name == "paint"
        given = json.loads(call.function.arguments)
        assert given["colour"] in ("red", "blue")
        assert given.keys() <= {"colour", "fast"}
        assert choice.finish_reason == "tool_calls"
    many = ask(client, tools=[SEARCH, PAINT], tool_choice="required", temperature=2, n=40).choices
    named = {choice.message.tool_calls[0].function.name for choice in many}
    assert named == {"search", "paint"}


ROUTE: dict[str, Any] = {
    "$defs": {"Next": {"enum": ["search", "write", "END"], "type": "string"}},
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/Next"}, "is_sure": {"type": "boolean"}, "why": {"anyOf": [{"const": "plan"}, {"type": "null"}]}},
    "required": ["next", "is_sure", "why"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_answer_follows_a_schema_whose_values_are_each_one_of_a_few(client: openai.OpenAI, is_streamed: bool) -> None:
    said = ask(client, n=24, temperature=2, stream=is_streamed, max_tokens=2, response_format={"type": "json_schema", "json_schema": {"name": "route", "strict": True, "schema": ROUTE}})
    if is_streamed:
        pieces = [c for piece in said for c in piece.choices]
        texts = ["".join(c.delta.content or "" for c in pieces if c.index == k) for k in range(24)]
        assert {c.finish_reason for c in pieces if c.finish_reason} == {"stop"}
    else:
        texts = [choice.message.content for choice in said.choices]
    rows = [json.loads(text) for text in texts]
    allowed = [{"next": a, "is_sure": b, "why": c} for a in ("search", "write", "END") for b in (True, False) for c in ("plan", None)]
    assert all(row in allowed for row in rows)
    assert len(set(texts)) > 2, "the model chooses among them"


# -- what is refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"n": 0}, "n", ">= 1"), ({"temperature": 3}, "temperature", "<= 2"), ({"top_p": 0}, "top_p", "> 0"), ({"max_tokens": 0}, "max_tokens", ">= 1"),
        ({"stop": ["a"] * 17}, "stop", "16"), ({"stop": [""]}, "stop", "empty"), ({"top_logprobs": 2}, "top_logprobs", "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "<= 20"), ({"messages": []}, "messages", "length >= 1"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "robot"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages", "text only"),
        ({"tool_choice": "required"}, "tool_choice", "tools"), ({"frequency_penalty": 0.5}, "frequency_penalty", "left out"),
        ({"response_format": {"type": "json_object"}}, "response_format", "left out"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"x": {"type": "string"}}}}}}, "response_format", "one of a few"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": ROUTE}}, "tools": [SEARCH]}, "response_format", "without tools"), ({"extra_body": {"tempreature": 1}}, "tempreature", "temperature"),
        ({"tools": [SEARCH], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice", "'x'"),
        ({"messages": [{"role": "user", "content": "x " * 4000}]}, "messages", "maximum context length is 2048"),
    ],
)  # fmt: skip
def test_bad_requests_get_openais_errors(client: openai.OpenAI, fields: dict[str, Any], param: str, says: str) -> None:
    for is_streamed in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, stream=is_streamed, **fields)
        error: Any = caught.value.body
        assert (error["param"], error["type"]) == (param, "invalid_request_error")
        assert says in error["message"]


def test_fields_that_change_nothing_are_taken(client: openai.OpenAI) -> None:
    plain = ask(client).choices[0].message.content
    more = ask(client, user="me", metadata={"a": "b"}, presence_penalty=0, response_format={"type": "text"}, extra_body={"top_k": -1, "min_p": 0})
    assert more.choices[0].message.content == plain


def test_other_errors_have_the_form_too(client: openai.OpenAI, end: Endpoint) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        ask(client, model="gpt-x")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with openai.OpenAI(base_url=f"{end.root}/v2", api_key="none", max_retries=0) as lost, pytest.raises(openai.NotFoundError) as nowhere:
        ask(lost)
    assert nowhere.value.code == "unknown_url"
    assert _post(end, b"{not json")[:2] == (400, "invalid_request_error")
    assert _post(end, b"[]")[:2] == (400, "invalid_request_error")
    status, kind, text = _post(end, b"{}", origin="http://elsewhere.example")
    assert (status, kind) == (403, "invalid_request_error")
    assert "web page" in text


def test_a_key_is_asked_for_where_there_is_one(tiny: Path) -> None:
    with served(tiny, token="secret") as end:
        with openai.OpenAI(base_url=end.url, api_key="wrong", max_retries=0) as client, pytest.raises(openai.AuthenticationError) as caught:
            ask(client)
        assert caught.value.code == "invalid_api_key"
        with openai.OpenAI(base_url=end.url, api_key="secret", max_retries=0) as client:
            assert ask(client).choices


def _post(end: Endpoint, body: bytes, **headers: str) -> tuple[int, str, str]:
    import http.client

    connection = http.client.HTTPConnection(end.url.removeprefix("http://").removesuffix("/v1"), timeout=30)
    connection.request("POST", "/v1/chat/completions", body, headers)
    response = connection.getresponse()
    error = json.loads(response.read())["error"]
    connection.close()
    return response.status, error["type"], error["message"]


# -- many callers ----------------------------------------------------------------------------------------------------------


def _together(end: Endpoint, count: int, **fields: Any) -> list[Any]:
    async def run() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=end.url, api_key="none", max_retries=0) as client:
            asked = {"model": "tiny", "max_tokens": 30, **fields}
            return await asyncio.gather(
                *(client.chat.completions.create(**asked, seed=k, messages=[{"role": "user", "content": f"word {k}"}]) for k in range(count))
            )

    return asyncio.run(run())


def test_callers_are_answered_together_and_as_alone(tiny: Path) -> None:
    with served(tiny, batch=32) as end:
        alone = [_together(end, 1)[0].choices[0].message.content]
        before = end.backend.thread.stats
        said = _together(end, 32)
        now = end.backend.thread.stats
        tokens = sum(one.usage.completion_tokens for one in said)
        assert now.written - before.written == tokens
        assert now.widest >= 16, "most of them were written in one pass"
        assert now.passes - before.passes < tokens / 4, "a pass writes a token of many"
        assert said[0].choices[0].message.content == alone[0]


def test_who_hangs_up_is_computed_for_no_longer(tiny: Path) -> None:
    with served(make_slow(tiny), batch=4) as end:
        body = json.dumps({"model": "tiny", "messages": ASKED, "max_tokens": 400, "seed": 1, "stop": ["never said"]}).encode()
        host, port = end.url.removeprefix("http://").removesuffix("/v1").split(":")
        with socket.create_connection((host, int(port))) as sock:
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            _until(lambda: end.backend.thread.stats.written > 3)
        _until(lambda: not end.backend.thread.engines.is_busy)
        assert end.backend.thread.stats.written < 400


def make_slow(folder: Path) -> Path:
    """A model whose answers are long: it has no token that ends one."""
    made = folder.with_name("endless")
    if not made.is_dir():
        make_tiny(made, context=1024, width=64, layers=6)
    return made


def _until(is_so: Any, wait_s: float = 30.0) -> None:
    end = time.monotonic() + wait_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_end_loses_no_request_that_has_begun(tiny: Path, is_streamed: bool) -> None:
    with served(tiny, batch=8) as end:
        got: list[Any] = []

        def run() -> None:
            if is_streamed:
                with openai.OpenAI(base_url=end.url, api_key="none", max_retries=0) as client:
                    pieces = list(ask(client, max_tokens=200, stream=True, n=4))
                    got.append([c.finish_reason for p in pieces for c in p.choices if c.finish_reason])
            else:
                got.append([one.choices[0].finish_reason for one in _together(end, 12, max_tokens=200)])

        asking = threading.Thread(target=run)
        asking.start()
        _until(lambda: end.backend.thread.stats.asked >= (4 if is_streamed else 12))
        end.stop()
        asking.join(60)
        end.thread.join(60)
        assert not end.thread.is_alive()
        assert [len(reasons) for reasons in got] == [4 if is_streamed else 12]
        assert set(got[0]) <= {"stop", "length"}


def test_new_weights_come_between_two_calls(tiny: Path, tmp_path: Path) -> None:
    from counterpoint.lab.lm.tensor_files import read_folder

    other = make_tiny(tmp_path / "other", seed=5)
    _, _, weights = read_folder(other, "other")
    with served(other) as end, openai.OpenAI(base_url=end.url, api_key="none", max_retries=0) as client:
        want = ask(client, max_tokens=40).choices[0].message.content
    with served(tiny, batch=8) as end, openai.OpenAI(base_url=end.url, api_key="none", max_retries=0) as client:
        first = ask(client, max_tokens=40).choices[0].message.content
        running: list[Any] = []
        asking = threading.Thread(target=lambda: running.extend(_together(end, 20, max_tokens=60)))
        asking.start()
        _until(lambda: end.backend.thread.stats.asked >= 5)
        end.backend.load({"": weights}, "second").result(60)
        asking.join(60)
        assert len(running) == 20
        assert ask(client, max_tokens=40).choices[0].message.content == want != first
        assert end.backend.version == "second"


def test_an_engine_that_fails_says_so_and_goes_on(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tiny) as end, openai.OpenAI(base_url=end.url, api_key="none", max_retries=0) as client:
        engine = end.backend.thread.engines.engines[""]
        add = engine.add

        def broken(asked: Ask) -> int:
            raise MemoryError

        monkeypatch.setattr(engine, "add", broken)
        with pytest.raises(openai.InternalServerError) as caught:
            ask(client)
        assert "too little memory" in str(caught.value)
        with pytest.raises(openai.APIError, match="too little memory"):
            list(ask(client, stream=True))
        monkeypatch.setattr(engine, "add", add)
        assert ask(client).choices
