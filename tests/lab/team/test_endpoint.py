"""The endpoint model against a real server: what it sends, what it gives, how it meets every fault, and what it never says."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterpoint import Store, registry
from counterpoint.credits.call_rows import call_rows
from counterpoint.errors import InputError, install
from counterpoint.lab.lm.endpoint import EndpointModel
from counterpoint.lab.lm.endpoint.address import public_url
from counterpoint.lab.lm.endpoint.answer import EndpointAnswer
from counterpoint.lab.lm.model import Call, Completion, Message, Model, ModelFailed
from counterpoint.lab.team.session import Spec, record_team
from counterpoint.lab.team.state import Limits
from endpoint_help import TOO_LONG, FaultServer, closed_port, ids_of, prompt_ids_of
from plays_help import plays

KEY = "sk-test-0123456789abcdefghijklmnop"
PROMPT = (Message("system", "You count."), Message("user", "How many?"))
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)


class FakeTime:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.t = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.t

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.t += seconds
        await asyncio.sleep(0)


def model_at(url: str, time: FakeTime | None = None, **options: Any) -> EndpointModel:
    time = time or FakeTime()
    given: dict[str, Any] = {"timeout_s": 120.0, "retries": 2, "now": time.now, "sleep": time.sleep, **options}
    return EndpointModel("fake", base_url=url, **given)


def ask(model: Model, *calls: Call) -> list[Completion | ModelFailed]:
    async def run() -> list[Any]:
        try:
            return await asyncio.gather(*(model.complete(c) for c in calls or (Call(messages=PROMPT),)), return_exceptions=True)
        finally:
            await model.close()

    found = asyncio.run(run())
    for one in found:
        if not isinstance(one, Completion | ModelFailed):
            raise one
    return found


def answered(model: Model, call: Call | None = None) -> Completion:
    (found,) = ask(model, call or Call(messages=PROMPT))
    assert isinstance(found, Completion), found
    return found


def failed(model: Model, call: Call | None = None) -> ModelFailed:
    (found,) = ask(model, call or Call(messages=PROMPT))
    assert isinstance(found, ModelFailed), found
    return found


# ---- what is sent and what is given


@BOTH
def test_a_call_is_sent_and_its_answer_read_whole(stream: bool) -> None:
    with FaultServer(lambda m: f"STOP: {len(m)}\nnot this") as server:
        model = model_at(server.url, stream=stream, prices=_prices())
        got = answered(model, Call(messages=PROMPT, seed=2**40 + 7, temperature=0.25, max_tokens=9, stop=("\n", "END")))
    assert (got.text, got.finish, got.attempts) == ("STOP: 2", "stop", 1)
    assert (got.tokens_in, got.tokens_out) == (12, 2)
    assert got.logps == (-0.625, -0.25)
    assert got.cost_usd == pytest.approx((12 * 2 + 2 * 8) / 1e6)
    (sent,) = server.requests
    assert sent["messages"] == [{"role": "system", "content": "You count."}, {"role": "user", "content": "How many?"}]
    expected = {"model": "fake", "seed": 7, "temperature": 0.25, "max_tokens": 9, "stop": ["\n", "END"], "logprobs": True}
    assert {name: sent[name] for name in expected} == expected
    assert sent.get("stream", False) is stream
    assert (model.name, model.version, model.endpoint) == ("openai:fake", server.url, server.url)


def _prices() -> Any:
    from counterpoint.formats.importing.usage import Prices

    return Prices.with_file({"fake": {"input": 2.0, "output": 8.0}}, where="test")


def test_an_answer_that_is_too_long_says_so() -> None:
    with FaultServer("one two three four") as server:
        got = answered(model_at(server.url), Call(messages=PROMPT, max_tokens=2))
    assert (got.text, got.finish) == ("one two", "length")


@BOTH
@pytest.mark.parametrize("fault", ["tools", "tools odd"])
def test_tool_calls_come_back_with_their_arguments_as_json(stream: bool, fault: str) -> None:
    schema = {"name": "search", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}
    with FaultServer(always=fault) as server:
        got = answered(model_at(server.url, stream=stream), Call(messages=PROMPT, tools=(schema,)))
    assert got.finish == "tool"
    assert [c["name"] for c in got.tool_calls] == ["search", "notes"]
    assert [json.loads(c["arguments"]) for c in got.tool_calls] == [{"q": "a b"}, {}]
    assert server.requests[0]["tools"] == [{"type": "function", "function": schema}]


@BOTH
@pytest.mark.parametrize("fault", ["no usage", "wrong usage"])
def test_usage_that_is_not_given_or_cannot_be_true_is_none(stream: bool, fault: str) -> None:
    with FaultServer(always=fault) as server:
        got = answered(model_at(server.url, stream=stream, prices=_prices()))
    assert (got.tokens_in, got.tokens_out, got.cost_usd) == (None, None, None)


@pytest.mark.parametrize("fault", ["no logprobs", "part logprobs"])
def test_logprobs_are_those_of_all_tokens_or_none(fault: str) -> None:
    with FaultServer("STOP: 4 2", always=fault) as server:
        assert answered(model_at(server.url)).logps is None


@pytest.mark.parametrize("fault", ["odd", "whole", "no done"])
def test_streams_of_other_shapes_are_read(fault: str) -> None:
    with FaultServer("STOP: a\u2028b\u2029c \x85 \u00fc\U0001f600", always=fault) as server:
        got = answered(model_at(server.url))
    assert got.text.endswith("STOP: a\u2028b\u2029c \x85 \u00fc\U0001f600")
    assert got.attempts == 1


def test_text_that_is_no_unicode_is_sent_all_the_same() -> None:
    with FaultServer("NOOP") as server:
        assert answered(model_at(server.url), Call(messages=(Message("user", "half \ud83d"),))).text == "NOOP"
    assert server.requests[0]["messages"][0]["content"] == "half ?"


def test_what_a_server_has_and_others_have_not_is_added_to_the_body() -> None:
    with FaultServer() as server:
        model = model_at(server.url, body={"chat_template_kwargs": {"enable_thinking": False}})
        answered(model)
        assert model.version != model_at(server.url).version
    assert server.requests[0]["chat_template_kwargs"] == {"enable_thinking": False}


def test_one_model_serves_several_event_loops() -> None:
    with FaultServer() as server:
        model = model_at(server.url)

        async def once() -> str:
            return (await model.complete(Call(messages=PROMPT))).text

        assert [asyncio.run(once()) for _ in range(3)] == ["STOP: 42"] * 3
        asyncio.run(model.close())


# ---- what an endpoint does not take


@BOTH
@pytest.mark.parametrize("name", ["logprobs", "seed", "stop", "temperature", "max_tokens"])
def test_what_is_refused_is_left_out_and_remembered(stream: bool, name: str) -> None:
    with FaultServer("STOP: 42\nmore", always=f"refuse {name}") as server:
        model = model_at(server.url, stream=stream)
        first, second = ask(model, Call(messages=PROMPT))[0], ask(model, Call(messages=PROMPT))[0]
    assert isinstance(first, Completion)
    assert isinstance(second, Completion)
    assert (first.text, second.text) == ("STOP: 42", "STOP: 42")
    assert (first.attempts, second.attempts) == (2, 1)
    assert second.extra["left_out"] == [name]
    assert [name in sent for sent in server.requests] == [True, False, False]
    if name == "max_tokens":
        assert server.requests[1]["max_completion_tokens"] == 128


def test_several_refusals_are_met_one_after_the_other() -> None:
    names = "logprobs,seed,stop,temperature,stream_options,max_tokens,system"
    with FaultServer("STOP: 42\nmore", always=f"refuse {names}") as server:
        got = answered(model_at(server.url, retries=0))
    assert got.text == "STOP: 42"
    assert got.extra["left_out"] == sorted(names.split(","))
    assert server.requests[-1]["messages"] == [{"role": "user", "content": "You count.\n\nHow many?"}]


def test_a_text_cut_by_us_keeps_the_logprobs_of_what_is_left() -> None:
    with FaultServer("STOP: 42\nmore words", always="refuse stop") as server:
        got = answered(model_at(server.url))
    assert (got.text, got.finish) == ("STOP: 42", "stop")
    assert got.logps == (-0.625, -0.375)


def test_an_answer_that_begins_with_empty_lines_is_asked_for_without_the_stop() -> None:
    with FaultServer("STOP: 42", always="blank") as server:
        got = answered(model_at(server.url), Call(messages=PROMPT, seed=5))
    assert (got.text, got.attempts, got.extra["retried"]) == ("STOP: 42", 2, ["empty"])
    assert [sent["seed"] for sent in server.requests] == [5, 6]


# ---- faults


@BOTH
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("429", "rate"), ("500", "server"), ("502", "server"), ("503", "server"), ("504", "slow"), ("529", "server"), ("408", "slow"),
        ("hang up", "cut"), ("cut body", "cut"), ("wrong json", "malformed"), ("html", "malformed"), ("list", "malformed"),
        ("empty", "empty"), ("only reasoning", "empty"), ("no choices", "malformed"), ("error inside", "server"),
    ],
)  # fmt: skip
def test_what_may_pass_is_tried_again_and_then_said(stream: bool, fault: str, kind: str) -> None:
    with FaultServer(always=fault) as server:
        error = failed(model_at(server.url, stream=stream))
    assert error.kind == kind
    assert len(server.requests) == 3
    assert error.where == f"openai:fake at {server.url}"
    assert "3 times" in error.what
    assert error.fix
    with FaultServer(faults=[fault, fault]) as server:
        got = answered(model_at(server.url, stream=stream))
    assert (got.text, got.attempts, got.extra["retried"]) == ("STOP: 42", 3, [kind, kind])


@pytest.mark.parametrize("fault", ["cut", "cut clean"])
def test_a_stream_that_breaks_off_is_no_answer(fault: str) -> None:
    with FaultServer("STOP: 4 2", faults=[fault] * 3) as server:
        model = model_at(server.url)
        error = failed(model)
        assert (error.kind, error.what) == ("cut", "the answer was interrupted, 3 times")
        assert answered(model).text == "STOP: 4 2"


@BOTH
@pytest.mark.parametrize("status", [307, 400, 401, 402, 403, 404, 422])
def test_what_cannot_pass_is_not_tried_again(stream: bool, status: int) -> None:
    with FaultServer(always=str(status)) as server:
        error = failed(model_at(server.url, stream=stream))
    assert (error.kind, len(server.requests)) == ("refused", 1)
    assert f"HTTP {status}" in str(error)


def test_an_account_without_credit_is_not_asked_again() -> None:
    with FaultServer(always="429 quota") as server:
        assert failed(model_at(server.url)).kind == "refused"
    assert len(server.requests) == 1


def test_an_answer_kept_back_by_a_filter_is_not_asked_again() -> None:
    with FaultServer(always="filter") as server:
        assert failed(model_at(server.url)).kind == "refused"
    assert len(server.requests) == 1


@pytest.mark.parametrize("said", TOO_LONG)
def test_a_prompt_that_is_too_long_is_known_by_what_each_server_says(said: str) -> None:
    with FaultServer(always=f"too long {said}") as server:
        error = failed(model_at(server.url))
    assert (error.kind, len(server.requests)) == ("too long", 1)


def test_a_prompt_found_too_long_after_the_stream_began() -> None:
    with FaultServer(always="error inside maximum context length is 8 tokens") as server:
        assert failed(model_at(server.url)).kind == "too long"
    assert len(server.requests) == 1


def test_an_endpoint_that_is_down() -> None:
    error = failed(model_at(closed_port()))
    assert error.kind == "down"
    assert "cannot be reached, 3 times" in error.what


@pytest.mark.parametrize("fault", ["silent", "stall", "slow 30"])
def test_an_endpoint_that_falls_silent(fault: str) -> None:
    with FaultServer("STOP: 4 2", always=fault) as server:
        error = failed(model_at(server.url, timeout_s=0.15, retries=1))
    assert error.kind == "slow"
    assert "silent for 0.15 s, 2 times" in error.what


def test_an_endpoint_that_only_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.lab.lm.endpoint._TOTAL", 0.05)  # its silence may last twenty times as long: no load makes that
    with FaultServer(always="drip") as server:
        error = failed(model_at(server.url, timeout_s=20, retries=0))
    assert (error.kind, error.what) == ("slow", "no complete answer within 1 s")


def test_an_endpoint_that_does_not_stop_talking() -> None:
    with FaultServer(always="flood") as server:
        assert failed(model_at(server.url, retries=0)).kind == "malformed"


def test_a_stream_that_is_whole_but_stays_open_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.lab.lm.endpoint._DRAIN_S", 0.05)
    with FaultServer(always="after done") as server:
        assert answered(model_at(server.url)).attempts == 1


def test_different_faults_in_a_row_end_with_the_last() -> None:
    with FaultServer(faults=["500", "cut", "empty"]) as server:
        error = failed(model_at(server.url))
    assert (error.kind, error.what) == ("empty", "the answer is empty in attempt 3")


# ---- waiting


def waits(faults: list[str], **options: Any) -> list[float]:
    time = FakeTime()
    with FaultServer(faults=faults) as server:
        answered(model_at(server.url, time, **options))
    return time.slept


def test_waits_grow_and_are_the_same_for_the_same_call() -> None:
    slept = waits(["500"] * 8, retries=8)
    bounds = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert all(bound / 2 <= wait < bound for wait, bound in zip(slept, bounds, strict=True))
    assert slept == waits(["500"] * 8, retries=8)


def test_calls_that_failed_together_come_back_apart() -> None:
    time = FakeTime()
    with FaultServer(always="500") as server:
        ask(model_at(server.url, time, retries=1), *(Call(messages=PROMPT, seed=k) for k in range(20)))
    assert len(set(time.slept)) == 20


@pytest.mark.parametrize(("fault", "seconds"), [("429 after 7", 7.0), ("429 ms 2500", 2.5), ("429 date", 3.0), ("503 after 9", 9.0)])
def test_what_the_endpoint_asks_to_wait_is_waited(fault: str, seconds: float) -> None:
    assert sum(waits([fault])) == seconds


@pytest.mark.parametrize("said", ["soon", "-3", "nan", ""])
def test_a_wait_that_makes_no_sense_is_not_heeded(said: str) -> None:
    assert sum(waits([f"429 after {said}"])) < 0.5


def test_nobody_waits_for_a_day() -> None:
    time = FakeTime()
    with FaultServer(always="429 after 86400") as server:
        error = failed(model_at(server.url, time))
    assert (error.kind, len(server.requests), time.slept) == ("rate", 1, [])
    assert "86,400 s" in str(error)


def test_a_429_holds_back_the_others_too() -> None:
    t = 0.0
    slept: list[float] = []

    async def run(model_of: Callable[..., EndpointModel], requests: list[Any]) -> None:
        nonlocal t
        two_sleep, morning = asyncio.Event(), asyncio.Event()

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 2:
                two_sleep.set()
            await morning.wait()

        model = model_of(now=lambda: t, sleep=sleep)
        calls = asyncio.gather(*(model.complete(Call(messages=PROMPT, seed=k)) for k in range(3)))
        await asyncio.wait_for(two_sleep.wait(), 300)
        assert len(requests) == 1, "the second asked although the first was told to wait"
        t = 60.0
        morning.set()
        await calls
        await model.close()

    with FaultServer(faults=["429 after 60"]) as server:
        asyncio.run(run(functools.partial(model_at, server.url, concurrency=1), server.requests))
    assert slept == [60.0, 60.0]
    assert len(server.requests) == 4


# ---- many at once


def test_200_calls_at_once_stay_within_the_limits() -> None:
    time = FakeTime()
    with FaultServer(lambda m: f"STOP: {m[-1]['content']}", delay_s=0.01, faults=["429", "500", "cut"] * 10) as server:
        model = model_at(server.url, time, concurrency=16, rpm=6000, tpm=10**6, retries=8)
        calls = [Call(messages=(Message("user", str(k)),), seed=k) for k in range(200)]
        got = ask(model, *calls)
    assert [g.text for g in got if isinstance(g, Completion)] == [f"STOP: {k}" for k in range(200)]
    assert 1 < server.most_at_once <= 16
    assert sum(g.attempts for g in got if isinstance(g, Completion)) == len(server.requests) == 230


def test_the_rate_of_requests_is_kept() -> None:
    time = FakeTime()
    with FaultServer() as server:
        ask(model_at(server.url, time, rpm=60, concurrency=1), *(Call(messages=PROMPT, seed=k) for k in range(16)))
    # 6 at once, then one each second.
    assert time.slept == pytest.approx([1.0] * 10)


# ---- secrets


def test_the_key_comes_from_the_environment_and_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", f" {KEY}\n")
    with FaultServer(key=KEY) as server:
        assert answered(model_at(server.url, key_env="LAB_KEY")).text == "STOP: 42"


def test_over_plain_http_only_a_named_key_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-mine")
    with FaultServer() as server:
        answered(model_at(server.url))
        assert not any(secret in str(server.headers) for secret in (KEY, "org-mine", "proj-mine"))
        answered(model_at(server.url, key_env="OPENAI_API_KEY"))
        assert server.headers[-1]["authorization"] == f"Bearer {KEY}"


def test_an_endpoint_elsewhere_needs_a_key_or_the_word_that_it_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="OPENAI_API_KEY is not set"):
        EndpointModel("gpt-x")
    assert EndpointModel("gpt-x", key_env="").endpoint == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\u00fc")
    with pytest.raises(InputError, match="copy it again") as caught:
        EndpointModel("gpt-x")
    assert "\u00fc" not in str(caught.value)


def test_a_proxy_does_not_stand_before_an_endpoint_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, closed_port())
    with FaultServer() as server:
        assert answered(model_at(server.url)).text == "STOP: 42"


def test_user_password_and_query_are_sent_and_not_shown() -> None:
    with FaultServer(always="403 the token hunter22 of visitors is not good") as server:
        model = model_at(server.url.replace("//", "//ann:pass-word@") + "?tag=hunter22")
        error = failed(model)
    assert model.endpoint == model.version == server.url
    assert server.headers[0]["authorization"].startswith("Basic ")
    assert server.paths == ["/v1/chat/completions?tag=hunter22"]
    for text in (str(error), repr(error), repr(vars(error)), repr(model), model.name):
        assert "pass-word" not in text
        assert "hunter22" not in text


def test_a_stored_address_finds_its_password_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url.replace("//", "//ann:pass-word@") + "/?tag=hunter22")
        answered(model_at(public_url(os.environ["OPENAI_BASE_URL"])))
        assert server.headers[-1]["authorization"].startswith("Basic ")
        assert server.paths == ["/v1/chat/completions?tag=hunter22"]
        monkeypatch.setenv("OPENAI_BASE_URL", "http://ann:pass-word@127.0.0.1:1/v1")
        answered(model_at(server.url))
        assert not server.headers[-1]["authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    "fault",
    ["401 yours is abcd****wxyz", "400 bad key " + KEY, "400 Bearer " + KEY, "500 key=" + KEY, "403 sk-proj-****wxyz is not allowed", "cut", "html", "hang up", "silent"],
)
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_no_key_is_in_any_error_or_behind_it(fault: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LAB_KEY", KEY)
    monkeypatch.setenv("OPENAI_LOG", "debug")
    with FaultServer("STOP: 4 2", always=fault) as server:
        error = failed(model_at(server.url, key_env="LAB_KEY", timeout_s=0.5 if fault == "silent" else 120, retries=1))
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert error.__cause__ is None
    assert error.__context__ is None
    captured = capfd.readouterr()
    shown = [str(error), repr(error), json.dumps(error.as_dict()), repr(vars(error)), captured.out, captured.err]
    shown.append("".join(traceback.format_exception(error)))
    for text in shown:
        assert KEY not in text
        assert "wxyz" not in text


def test_a_server_cannot_write_to_the_terminal() -> None:
    with FaultServer(always="400 \x1b]0;owned\x07 \x1b[2J left \u202eright " + "x" * 5000) as server:
        error = failed(model_at(server.url))
    assert str(error).isprintable()
    assert len(str(error)) < 600


def test_a_completion_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", KEY)
    with FaultServer(key=KEY, faults=["500"]) as server:
        assert KEY not in repr(answered(model_at(server.url, key_env="LAB_KEY")))


# ---- the plug-in


def test_the_plug_in_makes_the_model_that_is_named() -> None:
    make: Callable[..., Model] = registry.get("model", "openai")
    with FaultServer() as server:
        table = {"org/model:1": {"input": 1e6, "output": 1e6}}
        model = make("org/model:1", base_url=server.url, rpm=600, tpm=None, retries=0, prices=table)
        assert isinstance(model, Model)
        got = answered(model)
    assert model.name == "openai:org/model:1"
    assert server.requests[0]["model"] == "org/model:1"
    assert got.cost_usd == 12 + 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"base_uri": "http://x"}, "did you mean 'base_url'"),
        ({"base_url": "ftp://x/v1"}, "not an http address"),
        ({"base_url": "127.0.0.1:8000"}, "not an http address"),
        ({"base_url": "http://:80:80/"}, "not an http address"),
        ({"concurrency": 0}, "concurrency = 0"),
        ({"rpm": -1}, "rpm = -1"),
        ({"timeout_s": float("nan")}, "timeout_s = nan"),
        ({"retries": -1}, "retries = -1"),
        ({"prices": {"m": {"input": 1.0}}}, "has no input and output"),
    ],
)
def test_wrong_options_are_one_clear_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        registry.get("model", "openai")("m", **{"base_url": "http://127.0.0.1:1/v1"} | options)
    assert said in str(caught.value)


def test_no_model_named() -> None:
    with pytest.raises(InputError, match="no model is named"):
        registry.get("model", "openai")(" ", base_url="http://127.0.0.1:1/v1")


def test_without_the_extra_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(InputError, match=re.escape(install("live"))):
        registry.get("model", "openai")("m", base_url="http://127.0.0.1:1/v1")


def test_the_model_is_imported_without_its_client() -> None:
    import subprocess

    code = "import sys, counterpoint.lab.lm.endpoint, counterpoint.lab.lm.models.openai_; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- token ids


@pytest.mark.parametrize("server_kind", ["vllm", "sglang", "old sglang", "sglext"])
def test_token_ids_are_those_of_the_prompt_and_of_each_token(server_kind: str) -> None:
    with FaultServer("TOOL search: the ledger", always=server_kind) as server:
        (got,) = ask(model_at(server.url, token_ids=True))
        plain = server.requests[0]
    assert isinstance(got, Completion)
    assert "stream" not in plain
    assert got.prompt_ids == tuple(prompt_ids_of(plain))
    assert got.token_ids == tuple(ids_of(["TOOL", " search:", " the", " ledger"]))
    assert got.logps is not None
    assert len(got.logps) == 4


def test_token_ids_are_not_asked_for_unless_wanted_and_a_server_may_not_know_them() -> None:
    with FaultServer(always="vllm") as server:
        (got,) = ask(model_at(server.url))
        assert isinstance(got, Completion)
        assert (got.token_ids, got.prompt_ids) == (None, None)
        assert not any("token_ids" in name for name in server.requests[0])
    with FaultServer(always="refuse return_token_ids,return_prompt_token_ids,return_meta_info") as server:
        (got,) = ask(model_at(server.url, token_ids=True))
        assert isinstance(got, Completion)
        assert (got.token_ids, got.text) == (None, "STOP: 42")
        assert got.extra["left_out"] == ["return_meta_info", "return_prompt_token_ids", "return_token_ids"]


def test_ids_that_do_not_fit_or_are_none_are_not_kept() -> None:
    with FaultServer("TOOL search: the ledger", always="short ids") as server:
        (got,) = ask(model_at(server.url, token_ids=True))
        assert isinstance(got, Completion)
        assert (len(got.token_ids or ()), got.logps) == (3, None)
        assert got.extra["unmatched"] == "4 log-probabilities of 3 tokens"
    with FaultServer(always="wrong ids") as server:
        (got,) = ask(model_at(server.url, token_ids=True))
        assert isinstance(got, Completion)
        assert (got.token_ids, got.prompt_ids) == (None, None)


def test_an_answer_that_is_cut_at_its_stop_keeps_the_ids_of_what_is_left() -> None:
    with FaultServer("STOP: 42\nand more", always="vllm", faults=["refuse stop"]) as server:
        (got,) = ask(model_at(server.url, token_ids=True), Call(messages=PROMPT, stop=("\n",)))
    assert isinstance(got, Completion)
    assert got.text == "STOP: 42"
    assert got.token_ids == tuple(ids_of(["STOP:", " 42"]))
    assert len(got.logps or ()) == 2


def test_a_streamed_answer_tells_its_ids_piece_by_piece_or_none() -> None:
    answer = EndpointAnswer()
    answer.add({"prompt_token_ids": [1, 2], "choices": [{"index": 0, "delta": {"role": "assistant"}}]})
    answer.add({"choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": [5]}]})
    answer.add({"choices": [{"index": 0, "delta": {"content": "b"}, "token_ids": [6, 7]}]})
    assert (answer.prompt_ids, answer.token_ids) == ((1, 2), (5, 6, 7))
    answer.add({"choices": [{"index": 0, "delta": {"content": "c"}}]})
    assert answer.token_ids is None
    late = EndpointAnswer()
    late.add({"choices": [{"index": 0, "delta": {"content": "a"}}]})
    late.add({"choices": [{"index": 0, "delta": {"content": "b"}, "token_ids": [6]}]})
    assert late.token_ids is None


def test_a_team_at_an_endpoint_is_recorded_with_what_a_trainer_needs(tmp_path: Path) -> None:
    spec = Spec(task="T1", config={"documents": 8, "rows": 2, "parts": 2}, model="openai:fake", limits=Limits(width=2, turns=12))
    with FaultServer(plays, always="vllm") as server, Store(tmp_path) as store:
        options = {"base_url": server.url, "token_ids": True}
        trace = asyncio.run(record_team(replace(spec, options=options), store, trace_id="hunt"))
        asked = {tuple(prompt_ids_of(body)) for body in server.requests}
    rows = call_rows([trace], registry.get("mechanism", "uniform")([trace]))
    prompts = {tuple(rows.prompt_ids(i).tolist()) for i in range(len(rows))}  # type: ignore[union-attr]
    assert prompts == asked
    for row in rows.rows:
        assert row.token_ids is not None
        assert row.logps is not None
        assert len(row.token_ids) == len(row.logps) == len(row.token_advantages)  # type: ignore[arg-type]
