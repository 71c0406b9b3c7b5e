"""The endpoint from outside of Python, as a command, and in front of another endpoint."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not all(map(find_spec, ("torch", "transformers", "openai", "starlette", "uvicorn"))):
    pytest.skip("needs the llm, live and view extras", allow_module_level=True)

import openai

from counterpoint import Store
from endpoint_help import FaultServer
from serving_help import Endpoint, served
from tiny_help import make_tiny
from web_help import CPT, ROOT

WEB = ROOT / "web"
ASKED: list[Any] = [{"role": "user", "content": "who?"}]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("weights") / "tiny", context=2048)


@pytest.fixture(scope="module")
def end(tiny: Path) -> Iterator[Endpoint]:
    with served(tiny) as made:
        yield made


def ask(url: str, **fields: Any) -> Any:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        made = client.chat.completions.create(**{"model": "tiny", "messages": ASKED, "max_tokens": 20, "seed": 7, **fields})
        return list(made) if fields.get("stream") else made


@pytest.mark.skipif(
    shutil.which("node") is None or not (WEB / "node_modules" / "openai").is_dir(),
    reason="Node, or its package openai, is not on this machine: run `make test` where npm is",
)
def test_a_javascript_client(end: Endpoint) -> None:
    done = subprocess.run(["node", "tests/openai_client.mjs", end.url], cwd=WEB, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    here = ask(end.url, n=2)
    assert got["texts"] == got["streamed"] == [choice.message.content for choice in here.choices]
    assert set(got["alternatives"]) == {2}
    assert got["usage"]["total_tokens"] == got["streamedUsage"]["total_tokens"] == here.usage.total_tokens
    text, finish, stop = got["stopped"]
    assert (text, finish) == (got["texts"][0].split(stop)[0], "stop")
    assert got["painted"] in ("red", "blue")
    assert got["models"] == ["tiny"]
    assert isinstance(got["completion"], str)
    assert got["error"] == [400, "temperature", True]


def test_the_command_serves_records_and_ends_in_order(tiny: Path, tmp_path: Path) -> None:
    args = [*CPT, "models", "serve", str(tiny), "--port", "0", "--store", str(tmp_path / "store"), "--json"]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told["model"] == "tiny"
        root = told["url"].removesuffix("/v1")
        assert len(ask(told["url"], stream=True)) > 3
        ask(f"{root}/trace/one/v1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, process.stderr and process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    with Store(tmp_path / "store") as store:
        assert len(store.ids()) == 2
        assert [len(store.get(name).events) for name in store.ids()] == [1, 1]
        assert "one" in store.ids()


def test_the_command_says_what_is_wrong(tiny: Path) -> None:
    def run(*args: str) -> tuple[int, str]:
        done = subprocess.run([*CPT, "models", "serve", *args], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr

    assert run("no-such-model", "--port", "0")[0] == 3
    code, text = run(str(tiny), "--host", "0.0.0.0")
    assert (code, "--allow-remote" in text) == (5, True)
    code, text = run(str(tiny), "--host", "0.0.0.0", "--allow-remote")
    assert (code, "--token-file" in text) == (2, True)
    code, text = run(str(tiny), "--base-url", "http://127.0.0.1:1/v1")
    assert (code, "openai:" in text) == (2, True)
    code, text = run("openai:x", "--base-url", "http://127.0.0.1:1/v1", "--model-set", "device=cuda")
    assert (code, "no setting named 'device'" in text) == (2, True)


# -- in front of another endpoint ------------------------------------------------------------------------------------------


def test_requests_are_passed_on_and_recorded(end: Endpoint, tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        with served("tiny", base_url=end.url, store=store) as front:
            plain, through = ask(end.url), ask(f"{front.root}/trace/t/v1")
            assert through.choices[0].message.content == plain.choices[0].message.content
            pieces = ask(f"{front.root}/trace/t/v1", stream=True, stream_options={"include_usage": True})
            assert "".join(c.delta.content or "" for p in pieces for c in p.choices) == plain.choices[0].message.content
            assert pieces[-1].usage.total_tokens == plain.usage.total_tokens
            with openai.OpenAI(base_url=front.url, api_key="none", max_retries=0) as client:
                one = client.completions.create(model="tiny", prompt="SPAWN", max_tokens=4, seed=1)
                assert one.choices[0].text == openai.OpenAI(base_url=end.url, api_key="none").completions.create(model="tiny", prompt="SPAWN", max_tokens=4, seed=1).choices[0].text
        notes = [event.extra["call"] for event in store.get("t").events if event.extra]
        assert len(notes) == 2
        assert notes[0]["token_ids"] == notes[1]["token_ids"]
        assert len(notes[0]["logps"]) == len(notes[0]["token_ids"]) == plain.usage.completion_tokens


def test_an_endpoint_without_token_ids_is_recorded_without_them(tmp_path: Path) -> None:
    with FaultServer(lambda messages: "x y z", faults=["refuse return_token_ids"]) as plain, Store(tmp_path / "store") as store:
        with served("tiny", base_url=plain.url, store=store) as front:
            assert ask(f"{front.root}/trace/t/v1").choices[0].message.content == "x y z"
        (event,) = store.get("t").events
        assert "token_ids" not in (event.extra or {})["call"]


def test_errors_are_passed_on_with_their_status(end: Endpoint) -> None:
    with served("tiny", base_url=end.url) as front:
        with pytest.raises(openai.BadRequestError) as caught:
            ask(front.url, temperature=9)
        assert caught.value.param == "temperature"
        with pytest.raises(openai.NotFoundError):
            ask(front.url, model="other")
    with FaultServer(lambda messages: "x", faults=["429", "cut"]) as broken, served("tiny", base_url=broken.url) as front:
        with pytest.raises(openai.RateLimitError):
            ask(front.url)
        with pytest.raises(openai.APIError):
            ask(front.url, stream=True)
        assert ask(front.url).choices[0].message.content == "x"
    with served("tiny", base_url="http://127.0.0.1:9/v1") as front, pytest.raises(openai.InternalServerError) as nobody:
        ask(front.url)
    assert nobody.value.status_code == 502
