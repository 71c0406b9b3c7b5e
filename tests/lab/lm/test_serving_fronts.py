"""An endpoint in several processes: it answers and records what one process does, and outlives its front ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

if not all(map(find_spec, ("torch", "transformers", "openai", "starlette", "uvicorn"))):
    pytest.skip("needs the llm, live and view extras", allow_module_level=True)

import openai

import counterpoint
from counterpoint import Store
from counterpoint.errors import CounterpointError
from counterpoint.lab.app import model_fronts
from counterpoint.lab.app.model_ledger import LedgerProcess
from counterpoint.lab.lm.serving import messages as m
from counterpoint.lab.lm.serving.backend import SpokenAnswer
from counterpoint.lab.lm.serving.callers import Caller
from counterpoint.lab.lm.serving.link import Link
from counterpoint.lab.lm.serving.tool_calls import ToolCall
from serving_help import Endpoint, served
from tiny_help import make_tiny

ASKED: list[Any] = [{"role": "system", "content": "You act."}, {"role": "user", "content": "who?"}]
PAINT: dict[str, Any] = {
    "type": "function",
    "function": {"name": "paint", "parameters": {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("weights") / "tiny", context=2048)


@pytest.fixture(scope="module")
def end(tiny: Path) -> Iterator[Endpoint]:
    with served(tiny, batch=16, front_ends=2) as made:
        yield made


def ask(end: Endpoint, **fields: Any) -> Any:
    with openai.OpenAI(base_url=end.url, api_key="none", max_retries=0) as client:
        made = client.chat.completions.create(**{"model": "tiny", "messages": ASKED, "max_tokens": 12, "seed": 7, **fields})
        return list(made) if fields.get("stream") else made


def facts(reply: Any) -> Any:
    """An answer without what differs from one request to the next."""
    rows = [one.model_dump() for one in (reply if isinstance(reply, list) else [reply])]
    for row in rows:
        for name in ("id", "created", "usage"):
            row.pop(name)
        for choice in row["choices"]:
            for call in (choice.get("message") or choice.get("delta") or {}).get("tool_calls") or ():
                call.pop("id")
    return rows


def until(is_so: Any, wait_s: float = 60.0) -> None:
    end = time.monotonic() + wait_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_front_ends_answer_what_one_process_answers(end: Endpoint, tiny: Path) -> None:
    paint: Any = {"tools": [PAINT], "tool_choice": "required"}
    extra: Any = {"extra_body": {"return_token_ids": True}}
    with served(tiny, batch=16) as one:
        for fields in ({**extra, "n": 3}, {**extra, "logprobs": True, "top_logprobs": 3}, {"temperature": 0}, {"top_p": 0.3}, paint):
            assert facts(ask(end, **fields)) == facts(ask(one, **fields))
        text = ask(one, max_tokens=40).choices[0].message.content
        stopped = {**extra, "stop": [text[5:8]], "max_tokens": 40}
        assert facts(ask(end, **stopped)) == facts(ask(one, **stopped))
        for fields in ({"n": 2, "max_tokens": 30}, stopped):
            here, there = (ask(which, stream=True, **fields) for which in (end, one))
            assert len({piece.id for piece in here}) == 1
            for k in range(fields.get("n", 1)):
                said = ["".join(c.delta.content or "" for p in pieces for c in p.choices if c.index == k) for pieces in (here, there)]
                assert said[0] == said[1]
    with openai.OpenAI(base_url=end.url, api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["tiny"]
        assert client.completions.create(model="tiny", prompt=["SPAWN", [5, 6]], max_tokens=4, seed=1).choices[1].text is not None
    for fields, param in (({"temperature": 3}, "temperature"), ({"messages": [{"role": "user", "content": "x " * 4000}]}, "messages")):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(end, **fields)
        assert caught.value.param == param


def test_connections_are_shared_out_evenly(end: Endpoint) -> None:
    until(lambda: sum(front.connections for front in end.server._fronts) == 0)
    host, port = end.root.removeprefix("http://").split(":")
    held = [socket.create_connection((host, int(port))) for _ in range(6)]
    until(lambda: [front.connections for front in end.server._fronts] == [3, 3])
    for sock in held:
        sock.close()
    until(lambda: [front.connections for front in end.server._fronts] == [0, 0])


def test_callers_of_all_front_ends_are_answered_together(tiny: Path) -> None:
    async def run(end: Endpoint) -> list[Any]:
        async with openai.AsyncOpenAI(base_url=end.url, api_key="none", max_retries=0) as client:
            asked = [client.chat.completions.create(model="tiny", max_tokens=30, seed=k, messages=ASKED) for k in range(24)]
            return await asyncio.gather(*asked)

    with served(tiny, batch=32, front_ends=2) as end:
        said = asyncio.run(run(end))
        stats = end.backend.thread.stats
        tokens = sum(one.usage.completion_tokens for one in said)
        assert stats.written == tokens
        assert stats.passes < tokens / 2, "a pass writes a token of many"
        assert said[7].choices[0].message.content == ask(end, seed=7, max_tokens=30).choices[0].message.content


def test_calls_of_one_trace_are_recorded_together_wherever_they_come_in(tiny: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store, served(tiny, store=store, front_ends=2) as end:
        trace = Endpoint(f"{end.root}/trace/t/v1", end.backend, end.server, end.thread)
        talk, texts = list(ASKED), []
        for k in range(4):  # each on a connection of its own, so by turns on another front end
            said = ask(trace, messages=talk, seed=k, stream=bool(k % 2))
            text = "".join(c.delta.content or "" for p in said for c in p.choices) if k % 2 else said.choices[0].message.content
            texts.append(text)
            talk = [*talk, {"role": "assistant", "content": text}, {"role": "user", "content": f"and then, {k}?"}]
        assert _post(end, "/trace/t/end", json.dumps({"rewards": {"team": 1}})) == (200, {"trace_id": "t", "calls": 4})
        assert _post(end, "/trace/t/end", "{}")[0] == 404
        found = store.get("t")
        assert counterpoint.problems(found) == []
        assert {event.agent for event in found.events} == {"role-1.1"}
        assert [found.contents[event.extra["call"]["completion"]] for event in found.events if event.extra] == texts
        assert found.rewards == {"team": 1}

        rec = counterpoint.record(store, task="demo", agent="lead")
        with rec, openai.OpenAI(base_url=end.url, api_key="none", max_retries=0) as client:
            said = client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=6, extra_headers=rec.headers())
        assert rec.trace is not None
        (call,) = [event.extra["call"] for event in rec.trace.events if event.extra and "call" in event.extra]
        assert call["response"] == said.id


def test_an_answer_is_recorded_before_it_is_known_to_be_whole(tiny: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store, served(tiny, store=store, front_ends=1) as end:
        ledger, seen = end.server.ledgers.ledger, list[int]()
        add = ledger.add

        def slowly(caller: Caller, spoken: SpokenAnswer, seconds: float) -> None:
            time.sleep(0.2)
            add(caller, spoken, seconds)
            seen.append(1)

        ledger.add = slowly
        ask(end)
        assert seen == [1]
        assert ask(end, stream=True)[-1].choices[0].finish_reason in ("stop", "length")
        assert seen == [1, 1]

        def broken(caller: Caller, spoken: SpokenAnswer, seconds: float) -> None:
            raise RuntimeError("a bug")

        ledger.add = broken
        with pytest.raises(openai.InternalServerError, match="a bug"):
            ask(end)


def test_a_front_end_that_dies_is_replaced_and_its_calls_are_let_go(tiny: Path) -> None:
    slow = make_tiny(tiny.with_name("endless"), context=1024, width=64, layers=6)
    with served(slow, batch=4, front_ends=1) as end:
        first = end.server._fronts[0].process.pid
        failed: list[Exception] = []

        def asks() -> None:
            try:
                ask(end, max_tokens=900)
            except openai.APIConnectionError as error:
                failed.append(error)

        asking = threading.Thread(target=asks)
        asking.start()
        until(lambda: end.backend.thread.stats.written > 3)

        def kill() -> None:
            os.kill(first, signal.SIGKILL)
            until(lambda: end.server._fronts and end.server._fronts[0].process.pid != first and end.server._fronts[0].is_ready)

        with pytest.warns(RuntimeWarning, match=f"front end {first} was replaced: it died .SIGKILL"):
            kill()
        asking.join(60)
        assert len(failed) == 1
        until(lambda: not end.backend.thread.engines.is_busy)
        assert end.backend.thread.stats.written < 900
        assert ask(end).choices
        assert end.server._fronts[0].process.pid != first


def test_who_hangs_up_is_computed_for_no_longer(tiny: Path) -> None:
    slow = make_tiny(tiny.with_name("long"), context=1024, width=64, layers=6)
    with served(slow, batch=4, front_ends=1) as end:
        body = json.dumps({"model": "tiny", "messages": ASKED, "max_tokens": 900, "seed": 1}).encode()
        host, port = end.root.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as sock:
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            until(lambda: end.backend.thread.stats.written > 3)
        until(lambda: not end.backend.thread.engines.is_busy)
        assert end.backend.thread.stats.written < 900


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_end_loses_no_request_that_has_begun(tiny: Path, is_streamed: bool) -> None:
    with served(tiny, batch=8, front_ends=2) as end:
        got: list[Any] = []
        asking = [threading.Thread(target=lambda: got.append(ask(end, max_tokens=200, stream=is_streamed))) for _ in range(6)]
        for one in asking:
            one.start()
        until(lambda: end.backend.thread.stats.asked >= 6)
        pids = [front.process.pid for front in end.server._fronts]
        end.stop()
        for one in asking:
            one.join(60)
        end.thread.join(60)
        assert not end.thread.is_alive()
        assert len(got) == 6
        finished = [[c.finish_reason for c in (one[-1] if is_streamed else one).choices] for one in got]
        assert all(reasons[0] in ("stop", "length") for reasons in finished)
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_new_weights_come_between_two_calls_and_each_call_says_which_spoke(tiny: Path, tmp_path: Path) -> None:
    from counterpoint.lab.lm.tensor_files import read_folder

    _, _, weights = read_folder(make_tiny(tmp_path / "other", seed=5), "other")
    with Store(tmp_path / "store") as store, served(tiny, store=store, front_ends=1) as end:
        trace = Endpoint(f"{end.root}/trace/t/v1", end.backend, end.server, end.thread)
        first = ask(trace, max_tokens=40).choices[0].message.content
        end.backend.load({"": weights}, "second").result(60)
        assert ask(trace, max_tokens=40).choices[0].message.content != first
        assert ask(trace, stop=["never said"]).choices
        _post(end, "/trace/t/end", "{}")
        versions = [event.extra["call"]["version"] for event in store.get("t").events if event.extra]
        assert versions == [versions[0], "second", "second"]
        assert versions[0] != "second"


def test_front_ends_that_cannot_start_are_one_error(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpoint.app import http_server
    from counterpoint.lab.lm.models.local import local
    from counterpoint.lab.lm.serving.backend import EngineBackend

    monkeypatch.setattr(model_fronts.pickle, "dumps", lambda value: b"no pickle")  # type: ignore[attr-defined]
    model = local(str(tiny))
    try:
        with http_server.listening_socket("127.0.0.1", 0) as sock:
            server = model_fronts.server(EngineBackend(model.thread, "tiny"), front_ends=1)
            with pytest.warns(RuntimeWarning), pytest.raises(CounterpointError, match=r"front ends fail to start: exit code 1"):
                server.run(sockets=[sock])
    finally:
        asyncio.run(model.close())


def test_there_are_none_on_a_cpu_or_a_small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    count = model_fronts.usual_front_ends
    for cores, wanted in ((1, 0), (4, 0), (7, 0), (8, 4), (16, 12), (64, 12)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: set(range(cores)), raising=False)
        assert count("cuda:0") == wanted
        assert count("cpu") == 0


COMMAND = """
import sys
from counterpoint.lab.app import model_fronts
model_fronts.usual_front_ends = lambda device: 2
from counterpoint.app.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_ends_in_order_with_all_of_it_recorded(tiny: Path, tmp_path: Path, number: signal.Signals) -> None:
    args = [sys.executable, "-c", COMMAND, "models", "serve", str(tiny), "--port", "0", "--store", str(tmp_path / "store"), "--json"]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        end = Endpoint(told["url"], None, None, threading.current_thread())
        for name in ("one", "two"):
            for k in range(2):
                ask(Endpoint(f"{end.root}/trace/{name}/v1", None, None, end.thread), seed=k, stream=bool(k))
        asked: Any = []

        def asks() -> None:
            with suppress(openai.APIConnectionError):  # it may come too late
                asked.append(ask(end, max_tokens=900))

        asking = threading.Thread(target=asks)
        asking.start()
        time.sleep(0.05)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal sends it
        else:
            process.send_signal(number)
        assert process.wait(60) == 0, process.stderr and process.stderr.read()
        asking.join(60)
    finally:
        process.kill()
        process.communicate()
    with Store(tmp_path / "store") as store:
        assert [len(store.get(name).events) for name in ("one", "two")] == [2, 2]
        assert len(store.ids()) == 2 + len(asked), "what was answered is recorded"


def test_a_ledger_that_dies_ends_the_endpoint_with_one_error(tiny: Path, tmp_path: Path) -> None:
    from counterpoint.app import http_server
    from counterpoint.lab.lm.models.local import local
    from counterpoint.lab.lm.serving.backend import EngineBackend

    model, ledger, is_ready, raised = local(str(tiny)), LedgerProcess(tmp_path / "store", task="t"), threading.Event(), list[Exception]()
    with http_server.listening_socket("127.0.0.1", 0) as sock:
        end = Endpoint(f"http://127.0.0.1:{sock.getsockname()[1]}/v1", None, None, threading.current_thread())
        server = model_fronts.server(EngineBackend(model.thread, "tiny"), ledger, front_ends=1, on_ready=is_ready.set)

        def run() -> None:
            try:
                server.run(sockets=[sock])
            except CounterpointError as error:
                raised.append(error)

        serving = threading.Thread(target=run)
        serving.start()
        assert is_ready.wait(60)
        assert ask(end).choices
        ledger.process.kill()
        serving.join(60)
    ledger.close()
    asyncio.run(model.close())
    assert [str(error).partition(";")[0] for error in raised] == ["models serve: the process that records has ended (SIGKILL)"]


# -- what they tell each other -----------------------------------------------------------------------------------------------

INTS = st.lists(st.integers(0, 2**31 - 1), max_size=50)
FLOATS = st.lists(st.floats(allow_nan=False), max_size=50)


@given(INTS, FLOATS, st.text(max_size=20), st.integers(0, 2**64 - 1))
def test_what_comes_out_is_what_went_in(ids: list[int], logps: list[float], text: str, seed: int) -> None:
    assert m.numbers(m.ints(ids), "i") == ids
    assert m.numbers(m.floats(logps), "d") == logps
    spoken = SpokenAnswer(id=text, model="m", messages=[{"role": "user", "content": text}], text=text, calls=[ToolCall("f", "{}")], prompt_ids=ids, token_ids=ids, logps=logps)
    questions = [m.CallRequest(1, m.ints(ids), 5, 0.5, seed, text, 1.0, 2, [((1, 2), -3)], True), m.CallDrop(3), m.packed_note(2, m.AnswerNote(Caller(text, None), [spoken], 0.1))]
    replies = [m.Piece(1, m.ints(ids), m.floats(logps), [((1, -0.5),)], 3, text), m.LastPiece(1, b"", b"", [], 0, text, "stop"), m.CallFailure(1, "server", text, None, None, text), m.Receipt(4), m.Stop()]
    assert m.decode_questions(m.framed(questions)[4:]) == questions
    for note in (m.AnswerNote(Caller(text, None), [spoken], 0.1), m.TraceEnd(text, {"team": 1.0})):
        assert m.decode_note(m.packed_note(1, note).what) == note
    assert m.decode_replies(m.framed(replies)[4:]) == replies


def test_more_than_a_socket_holds_arrives_whole_and_in_order() -> None:
    async def run() -> tuple[list[int], list[str]]:
        ours, theirs = socket.socketpair()
        got, gone = list[int](), list[str]()
        here = Link(ours, lambda frame: None, lambda: gone.append("here"))
        there = Link(theirs, lambda frame: got.extend(len(told.data) for told in m.decode_replies(frame)), lambda: gone.append("there"))
        for size in (3, 5_000_000, 0, 2_000_000, 1):
            here.put(m.Facts(b"x" * size))
        here.keep(m.Facts(b"kept"))
        await asyncio.to_thread(here.flush)
        while len(got) < 6:
            await asyncio.sleep(0.01)
        here.close()
        while not gone:
            await asyncio.sleep(0.01)
        there.close()
        return got, gone

    assert asyncio.run(run()) == ([3, 5_000_000, 0, 2_000_000, 1, 4], ["there"])


def _post(end: Endpoint, path: str, body: str) -> tuple[int, Any]:
    import http.client

    connection = http.client.HTTPConnection(end.root.removeprefix("http://"), timeout=30)
    connection.request("POST", path, body)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer
