"""One trace over several processes: the real package of MCP over stdio and HTTP, A2A's messages over HTTP, and their stores."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import TraceState

import counterpoint
from app.test_serve import serving
from counterpoint import InputError, Store, problems, record
from counterpoint.app.cli.export import export
from counterpoint.app.cli.import_ import import_
from counterpoint.app.push import Push
from counterpoint.recorder.adapters import a2a
from counterpoint.recorder.adapters import mcp as adapter
from counterpoint.recorder.hops import caller_meta
from counterpoint.recorder.recording import Recording
from counterpoint.trace import Trace
from counterpoint.trace.hops import hop_of, run_key, span_key

pytest.importorskip("mcp", reason="the package of MCP is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

MCP = """
import sys
import counterpoint
from mcp.server.mcpserver import MCPServer
from counterpoint.recorder.adapters.mcp import server

rec = counterpoint.record(task="inner")

@rec.model(name="m")
async def think(question):
    return {"text": question.upper(), "usage": {"prompt_tokens": 7, "completion_tokens": 3}}

app = MCPServer("oracle", log_level="CRITICAL")

@app.tool()
async def ask(question: str) -> str:
    if question == "bad":
        raise ValueError("nobody knows")
    return (await think(question))["text"]

server(app, store=sys.argv[1])
if sys.argv[2] == "stdio":
    app.run("stdio")
else:
    app.run("streamable-http", port=int(sys.argv[2]))
"""
A2A = """
import sys
import counterpoint, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from counterpoint.recorder.adapters.a2a import server

rec = counterpoint.record(task="inner")

@rec.tool
async def look(text):
    return text[::-1]

async def rpc(request):
    asked = await request.json()
    part = asked["params"]["message"]["parts"][0]["text"]
    answer = {"role": "agent", "messageId": "m2", "parts": [{"kind": "text", "text": await look(part)}]}
    return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": answer}, 500 if part == "bad" else 200)

async def card(request):
    return JSONResponse({"name": "mirror"})

app = Starlette(routes=[Route("/", rpc, methods=["POST"]), Route("/.well-known/agent-card.json", card)])
uvicorn.run(server(app, agent="mirror", store=sys.argv[1]), port=int(sys.argv[2]), log_level="critical")
"""
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@contextmanager
def process(folder: Path, code: str) -> Iterator[int]:
    """A server in a process of its own that records into `folder`; gives its port."""
    port = free_port()
    running = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(port)], env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(1200):
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert running.poll() is None, "the server has ended"
            time.sleep(0.05)
        yield port
        for _ in range(1200):  # a recording is sealed after its answer is out
            if not list((folder / "journal").glob("*")):
                break
            time.sleep(0.05)
    finally:
        running.terminate()
        running.wait(60)


def asked(store: Path, target: Any) -> Recording:
    """A lead that asks the oracle twice at once, the second time in vain."""
    from mcp import Client

    rec = record(store, task="bridge", agent="lead")

    async def main() -> None:
        async with Client(target) as session:
            adapter.client(rec, session)
            async with rec:
                good, bad = await asyncio.gather(*(session.call_tool("ask", {"question": q}) for q in ("why", "bad")))
                rec.stop("done")
        assert (good.content[0].text, good.is_error, bad.is_error) == ("WHY", False, True)  # type: ignore[union-attr]

    asyncio.run(main())
    assert rec.trace is not None
    assert rec.problems == []
    return rec


def stdio(folder: Path) -> Any:
    from mcp import StdioServerParameters

    return StdioServerParameters(command=sys.executable, args=["-c", MCP, str(folder), "stdio"], env=ENV)


def edges_of(trace: Trace, kind: str) -> set[tuple[str, str]]:
    return {(e.src, e.dst) for e in trace.edges if e.type == kind}


def assert_whole(trace: Trace) -> None:
    """Two calls, each with the oracle's recording between the call and its result."""
    assert [str(p) for p in problems(trace)] == []
    by = {e.id: e for e in trace.events}
    assert trace.agents[0] == "lead"
    assert set(trace.agents) == {"lead", "oracle", "oracle-2"}
    calls = [e for e in trace.events if e.type == "tool_call"]
    assert [trace.text(e) for e in calls] == ['{"question":"why"}', '{"question":"bad"}']
    for call in calls:
        (spawn,) = (by[dst] for src, dst in edges_of(trace, "causal") if src == call.id and by[dst].type == "spawn")
        (first,) = (by[dst] for src, dst in edges_of(trace, "spawn") if src == spawn.id)
        assert (spawn.agent, first.agent) == ("lead", spawn.to)
        (result,) = (by[dst] for src, dst in edges_of(trace, "tool_dependency") if src == call.id)
        (back,) = (by[src] for src, dst in edges_of(trace, "return") if dst == result.id)
        assert (back.agent, back.to) == (spawn.to, "lead")
        assert call.t <= spawn.t <= first.t <= back.t <= result.t
        is_good = "why" in (trace.text(call) or "")
        assert (result.ok, trace.text(result) == "WHY") == (is_good, is_good)
        assert [e.tokens_in for e in trace.events if e.agent == spawn.to and e.model == "m"] == ([7] if is_good else [])
    assert trace.tokens == 10


def test_over_stdio_in_one_store(tmp_path: Path) -> None:
    rec = asked(tmp_path, stdio(tmp_path))
    with Store(tmp_path) as store:
        assert store.ids() == [rec.trace_id]
        assert_whole(store.get(str(rec.trace_id)))


def test_over_http_and_pushed_together_in_either_order(tmp_path: Path) -> None:
    with process(tmp_path / "theirs", MCP) as port:
        rec = asked(tmp_path / "ours", f"http://127.0.0.1:{port}/mcp")
    for k, order in enumerate([("ours", "theirs"), ("theirs", "ours")]):
        with serving(tmp_path / f"hub{k}") as hub:
            for _ in range(2):  # what comes again changes nothing
                for name in order:
                    with Store(tmp_path / name) as store:
                        for path in (tmp_path / name / "push").glob("*.acknowledged"):
                            path.unlink()
                        push = Push(store, hub.url)
                        push.send(patience_s=60)
                        push.close()
            assert hub.store.ids() == [rec.trace_id]
            assert_whole(hub.store.get(str(rec.trace_id)))


def test_exported_and_imported_together(tmp_path: Path) -> None:
    rec = asked(tmp_path / "ours", stdio(tmp_path / "theirs"))
    with Store(tmp_path / "theirs") as store:
        assert len(store) == 2  # each by itself, where the caller is not there
        assert all(store.get(name).meta["caller"]["run"] == run_key(str(rec.trace_id)) for name in store.ids())
    for name in ("ours", "theirs"):
        with Store(tmp_path / name) as store:
            how = ["--to", "jsonl", "-o", str(tmp_path / "out" / name) + "/", "--store", str(tmp_path / name)]
            assert CliRunner().invoke(export, [*store.ids(), *how]).exit_code == 0
    done = CliRunner().invoke(import_, [str(tmp_path / "out"), "--store", str(tmp_path / "both")])
    assert done.exit_code == 0, done.output
    with Store(tmp_path / "both") as store:
        assert store.ids() == [rec.trace_id]
        assert_whole(store.get(str(rec.trace_id)))
    again = CliRunner().invoke(import_, [str(tmp_path / "out"), "--store", str(tmp_path / "both")])
    assert again.exit_code == 0, again.output
    with Store(tmp_path / "both") as store:
        assert_whole(store.get(str(rec.trace_id)))


def message(text: str, **metadata: Any) -> dict[str, Any]:
    said = {"role": "user", "messageId": "m1", "parts": [{"kind": "text", "text": text}], "metadata": metadata}
    return {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": said}}


def test_a_message_of_a2a(tmp_path: Path) -> None:
    rec = record(tmp_path, task="letters", agent="lead")
    with process(tmp_path, A2A) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
        a2a.client(rec, http)

        @rec.tool
        def send(text: str) -> str:
            assert http.get("/.well-known/agent-card.json").json() == {"name": "mirror"}  # no message: not recorded
            answer = http.post("/", json=message(text))
            return str(answer.json()["result"]["parts"][0]["text"])

        with rec:
            assert send("abc") == "cba"
        assert rec.trace is not None
        http.event_hooks = {"request": [], "response": []}
        with rec, rec.tool_call("send", "bad") as call:  # by metadata alone, as over a transport without headers
            call.result(http.post("/", json=message("bad", **{"https://example.org/ext": rec.trace_context()})).text)
        assert rec.trace is not None
    with Store(tmp_path) as store:
        traces = [store.get(name) for name in store.ids()]
    assert len(traces) == 2
    for trace, answer in zip(traces, ("cba", "dab"), strict=True):
        assert [str(p) for p in problems(trace) if p.severity == "error"] == []
        assert set(trace.agents) == {"lead", "mirror"}
        (spawn,) = (e for e in trace.events if e.type == "spawn")
        assert (spawn.agent, spawn.to) == ("lead", "mirror")
        stop = next(e for e in trace.events if e.agent == "mirror" and e.decision == "stop")
        assert (trace.text(stop), stop.ok) == ((answer, None) if answer == "cba" else (answer, False))
        (back,) = (e.src for e in trace.edges if e.type == "return")
        assert back.endswith("/return")


def test_the_programs_own_tracer_keeps_its_parent(tmp_path: Path) -> None:
    tracer = TracerProvider().get_tracer("app")
    rec = record(tmp_path, task="t", agent="lead")
    with rec, tracer.start_as_current_span("request") as span, rec.tool_call("ask") as call:
        carrier = rec.trace_context()
        call.result("x")
    context = span.get_span_context()
    assert carrier["traceparent"] == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert hop_of(carrier) == (run_key(str(rec.trace_id)), span_key(str(rec.trace_id), "e1"))
    assert TraceState.from_header([carrier["tracestate"]]).get("counterpoint") is not None


def test_where_nothing_is_recorded_nothing_is_sent(tmp_path: Path) -> None:
    rec = record(tmp_path, task="t")
    assert rec.trace_context() == {}
    with rec:
        assert rec.trace_context() == {}  # nobody has done anything yet
        rec.stop("x")
        assert set(rec.trace_context()) == {"traceparent", "tracestate"}
    assert rec.trace is not None
    assert caller_meta({"traceparent": "nonsense"}) == caller_meta(None) == {}


def test_a_call_goes_on_through_the_called(tmp_path: Path) -> None:
    """Three recordings, each called by the one before; the middle one is stored last."""
    a, b, c = (record(tmp_path / name, task=name, agent=name) for name in "abc")
    with a, a.tool_call("ask") as call:
        b = record(tmp_path / "b", task="b", agent="b", meta=caller_meta(a.trace_context()))
        call.result("x")
    with b, b.tool_call("ask") as call:
        c = record(tmp_path / "c", task="c", agent="c", meta=caller_meta(b.trace_context()))
        call.result("y")
    with c:
        c.stop("z")
    with Store(tmp_path / "all") as store:
        for rec in (a, c, b):
            assert rec.trace is not None
            store.add(rec.trace)
        assert store.ids() == [a.trace_id]
        whole = store.get(str(a.trace_id))
        assert {e.to: e.agent for e in whole.events if e.type == "spawn"} == {"b": "a", "c": "b"}
        assert [str(p) for p in problems(whole) if p.severity == "error"] == []
        counterpoint.save(whole, tmp_path / "whole.jsonl")
        assert json.loads((tmp_path / "whole.jsonl").read_text().splitlines()[0])
        store.add(a.trace)  # the caller alone, again: what was joined stays
        assert set(store.get(str(a.trace_id)).agents) == {"a", "b", "c"}


def test_what_cannot_be_recorded_is_refused() -> None:
    rec = record(task="t")
    for make in (lambda: adapter.client(rec, object()), lambda: adapter.server(object()), lambda: a2a.client(rec, object())):
        with pytest.raises(InputError):
            make()
