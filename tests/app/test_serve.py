"""`counterpoint serve`: real exporters over a socket, bad input of every kind, and what was acknowledged is kept."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from counterpoint import Store
from counterpoint.app.discover import read_logs
from counterpoint.app.http_server import is_loopback, listening_socket
from counterpoint.app.receiver import intake as intake_module
from counterpoint.app.receiver import server as receiver
from counterpoint.app.receiver.collector import Collector
from counterpoint.app.receiver.intake import Intake
from counterpoint.errors import install
from counterpoint.store import disk
from counterpoint.trace.check import problems

SPAN = "b7ad6b7169203331"


class Live(NamedTuple):
    """A receiver in a thread."""

    url: str
    store: Store
    intake: Intake
    notes: list[str]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


@contextmanager
def serving(
    folder: Path, *, idle_s: float = 300.0, keep_s: float = 3600.0, token: str = "", is_collecting: bool = True, **limits: Any
) -> Iterator[Live]:
    notes: list[str] = []
    with Store(folder) as store:
        sock = listening_socket("127.0.0.1", 0)
        intake = Intake(store, idle_s=idle_s, keep_s=keep_s, note=notes.append)
        collector = Collector(store, intake.counts) if is_collecting else None
        server = receiver.server(intake, receiver.ReceiverLimits(**limits), collector=collector, token=token)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            yield Live(f"http://127.0.0.1:{sock.getsockname()[1]}", store, intake, notes)
        finally:
            server.should_exit = True
            thread.join()
            if collector is not None:
                collector.close()
            intake.close()


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A growing trace is read more often than once a second, so that tests need not wait for it."""
    monkeypatch.setattr("counterpoint.app.receiver.intake._EVERY_S", 0.1)
    monkeypatch.setattr("counterpoint.app.receiver.intake._TICK_S", 0.02)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with serving(tmp_path / "store") as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """For tests whose requests are refused: small limits, nothing stored."""
    with serving(tmp_path_factory.mktemp("shared") / "store", body=1 << 20, seconds=0.4, held=2 << 20) as found:
        yield found
        assert found.store.ids() == []


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def post(
    url: str, body: bytes, path: str = "/v1/traces", *, type: str = "application/json", method: str = "POST", **headers: str
) -> Answer:
    sent = {"content-type": type, **{k.replace("_", "-"): v for k, v in headers.items()}}
    request = urllib.request.Request(url + path, body if method == "POST" else None, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read())


def attribute(key: str, value: str | int) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}


def span(trace: str, id: str, parent: str = "", at: int = 0, length: int = 1, **attributes: str | int) -> dict[str, Any]:
    begin = 1_760_000_000 + at
    named = [attribute(k.replace("__", "."), v) for k, v in attributes.items()]
    times = {"startTimeUnixNano": f"{begin}000000000", "endTimeUnixNano": f"{begin + length}000000000"}
    return {"traceId": trace, "spanId": id, "parentSpanId": parent, "name": "step", "attributes": named, **times}


def agent(trace: str, id: str, parent: str = "", at: int = 0, **more: str | int) -> dict[str, Any]:
    return span(trace, id, parent, at, 9, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="lead", **more)


def chat(trace: str, id: str, parent: str, at: int = 1) -> dict[str, Any]:
    tokens = {"gen_ai__usage__input_tokens": 10, "gen_ai__usage__output_tokens": 3}
    return span(trace, id, parent, at, gen_ai__operation__name="chat", gen_ai__request__model="m", **tokens)


def traces(*spans: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}).encode()


def trace_id(k: int) -> str:
    return f"{k:032x}"


def eventually(is_so: Callable[[], Any], seconds: float = 300.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def spooled(store: Store) -> bytes:
    return b"".join(p.read_bytes() for p in sorted((store.path / "otlp" / "spool").glob("*.jsonl")))


def sound(store: Store, name: str) -> Any:
    trace = store.get(name)
    assert [str(p) for p in problems(trace) if p.severity == "error"] == []
    return trace


# -- what works ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_the_sdks_own_exporter_streams_a_team_into_the_store(live: Live, compression: Compression) -> None:
    provider = TracerProvider(resource=Resource({"service.name": "crew"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(live.url + "/v1/traces", compression=compression)))
    tracer = provider.get_tracer("crew")
    called: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10}
    asked = {"gen_ai.operation.name": "invoke_agent"}
    with tracer.start_as_current_span("invoke_agent lead", attributes={**asked, "gen_ai.agent.name": "lead"}) as root:
        with tracer.start_as_current_span("chat m", attributes={**called, "gen_ai.usage.output_tokens": 5}):
            pass
        with tracer.start_as_current_span("execute_tool delegate") as tool:
            tool.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "delegate"})
            with (
                tracer.start_as_current_span("invoke_agent coder", attributes={**asked, "gen_ai.agent.name": "coder"}),
                tracer.start_as_current_span("chat m", attributes={**called, "gen_ai.usage.output_tokens": 7}),
            ):
                pass
        name = f"{root.get_span_context().trace_id:032x}"
        # Its parts are there while it runs, though the root span comes last.
        eventually(lambda: name in live.store and len(live.store.get(name).events) >= 2)
    provider.shutdown()
    eventually(lambda: {e.role for e in live.store.get(name).events} >= {"lead", "coder"})
    trace = sound(live.store, name)
    assert sum(e.tokens_out or 0 for e in trace.events) == 12
    assert [e.type for e in trace.events].count("spawn") == 1
    assert live.intake.status()["spans"] == 5
    assert trace.meta["import"]["format"] == "otel"


def test_the_sdks_log_exporter_is_heard(live: Live) -> None:
    provider = LoggerProvider(resource=Resource({"service.name": "claude-code"}))
    provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(live.url + "/v1/logs")))
    logger = provider.get_logger("com.anthropic.claude_code.events")
    common = {"session.id": "s-1", "prompt.id": "p-1"}
    usage = {
        "model": "claude",
        "input_tokens": 100,
        "output_tokens": 20,
        "request_id": "r-1",
        "cost_usd": 0.01,
        "duration_ms": 900,
    }
    for sequence, (name, attributes) in enumerate(
        [
            ("user_prompt", {"prompt": "fix it"}),
            ("api_request", usage),
            ("tool_result", {"tool_name": "Bash", "tool_use_id": "t-1", "success": "true", "duration_ms": 40}),
        ]
    ):
        named = {**common, **attributes, "event.name": name, "event.sequence": sequence}
        logger.emit(body=f"claude_code.{name}", attributes=named, timestamp=1_760_000_000_000_000_000 + sequence * 10**9)
    provider.shutdown()
    eventually(lambda: "s-1" in live.store and len(live.store.get("s-1").events) >= 4)
    trace = sound(live.store, "s-1")
    kinds = [e.type for e in trace.events]
    assert "human_intervention" in kinds
    assert [e.tool for e in trace.events if e.type == "tool_call"] == ["Bash"]
    assert sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in trace.events) == 120


def test_claude_codes_spans_and_logs_of_a_session_are_one_trace(live: Live) -> None:
    session = attribute("session.id", "s-2")
    asked = span(trace_id(1), "a" * 16, at=0, length=9)
    asked |= {"name": "claude_code.interaction", "attributes": [session, attribute("prompt.id", "p")]}
    request = span(trace_id(1), "b" * 16, "a" * 16, at=1)
    usage = [attribute("input_tokens", 5), attribute("output_tokens", 2), attribute("request_id", "r1")]
    request |= {"name": "claude_code.llm_request", "attributes": [session, *usage]}
    second = {**request, "traceId": trace_id(2), "spanId": "c" * 16, "parentSpanId": ""}
    record = {"timeUnixNano": "1760000002000000000", "body": {"stringValue": "claude_code.user_prompt"}}
    record["attributes"] = [
        session,
        attribute("event.name", "user_prompt"),
        attribute("prompt", "hello"),
        attribute("prompt.id", "p"),
    ]
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    assert post(live.url, traces(asked, request)).status == 200
    assert post(live.url, json.dumps(logs).encode(), "/v1/logs").status == 200
    eventually(lambda: "s-2" in live.store)
    assert post(live.url, traces(second)).status == 200
    eventually(lambda: sum(e.tokens_out or 0 for e in live.store.get("s-2").events) == 4)
    assert live.store.ids() == ["s-2"]
    assert "hello" in sound(live.store, "s-2").contents.values()


def test_json_by_hand_is_answered_in_kind_and_what_cannot_be_placed_is_named(live: Live) -> None:
    assert post(live.url, b"{}").json == {}
    body = traces(agent(trace_id(7), SPAN), chat(trace_id(7), "a" * 16, SPAN), span("nonsense", SPAN))
    for packed, headers in ((body, {}), (gzip.compress(body), {"content_encoding": "gzip"})):
        answer = post(live.url, packed, type="application/json; charset=utf-8", **headers)
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["partialSuccess"]["rejectedSpans"] == "1"
        assert "traceId" in answer.json["partialSuccess"]["errorMessage"]
    members = gzip.compress(body[:40]) + gzip.compress(body[40:])
    assert post(live.url, members, content_encoding="gzip").status == 200
    eventually(lambda: trace_id(7) in live.store)
    trace = sound(live.store, trace_id(7))
    assert sum(e.tokens_in or 0 for e in trace.events) == 10  # sent three times, counted once
    about = post(live.url, b"", "/", method="GET").json
    assert "/v1/traces" in about["post"]
    assert about["counts"]["spans"] == 6


def test_many_senders_at_once_lose_nothing(live: Live) -> None:
    def send(k: int) -> None:
        for i in range(5):
            body = traces(chat(trace_id(100 + k), f"{i + 1:016x}", "", at=i), chat(trace_id(9), f"{k * 5 + i + 1:016x}", ""))
            answers.append(post(live.url, body))

    answers: list[Answer] = []
    senders = [threading.Thread(target=send, args=(k,)) for k in range(8)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert [a.status for a in answers] == [200] * 40
    eventually(lambda: trace_id(9) in live.store and sum(e.tokens_out or 0 for e in live.store.get(trace_id(9)).events) == 120)
    assert len(live.store.ids()) == 9


def test_traces_that_a_link_joins_become_one_also_when_the_link_comes_last(live: Live) -> None:
    first, second = chat(trace_id(1), "1" * 16, "", at=0), chat(trace_id(2), "2" * 16, "", at=20)
    assert post(live.url, traces(first, second)).status == 200
    eventually(lambda: sorted(live.store.ids()) == [trace_id(1), trace_id(2)])
    answer = chat(trace_id(2), "3" * 16, "", at=21)
    answer["links"] = [{"traceId": trace_id(1), "spanId": "1" * 16}]
    assert post(live.url, traces(answer)).status == 200
    eventually(lambda: live.store.ids() == [trace_id(1)])
    assert sum(e.tokens_out or 0 for e in sound(live.store, trace_id(1)).events) == 9


def test_what_is_streamed_is_what_is_imported_from_files(live: Live) -> None:
    samples = Path(__file__).parents[2] / "examples" / "logs" / "otel"
    expected = {}
    for name in ("claude_code.jsonl", "handoff.otlp.jsonl", "team.otlp.json"):
        expected |= {trace.trace_id: trace for trace in read_logs(samples / name)}
        text = (samples / name).read_text()
        for body in text.splitlines() if name.endswith(".jsonl") else [text]:
            for key, path in (("resourceSpans", "/v1/traces"), ("resourceLogs", "/v1/logs")):
                if f'"{key}"' in body and body.rstrip().endswith("}"):
                    assert post(live.url, body.encode(), path).status == 200

    def is_so() -> bool:
        stored = {name: live.store.get(name) for name in live.store.ids()}
        same = stored.keys() == expected.keys()
        return same and all(
            (t.events, t.edges, t.costs) == (stored[n].events, stored[n].edges, stored[n].costs) for n, t in expected.items()
        )

    assert len(expected) >= 3
    eventually(is_so)


# -- bad input -------------------------------------------------------------------------------------------------------------

GARBAGE = [b"", b"{", b"\x00\xff" * 500, b'{"resourceSpans": 7}', b"[" * 100_000, b'{"a": 1}', random.Random(1).randbytes(5000)]


@pytest.mark.parametrize("type", ["application/json", "application/x-protobuf"])
def test_garbage_is_answered_400_in_its_own_type_and_nothing_ends(shared: Live, type: str) -> None:
    for body in GARBAGE[type == "application/x-protobuf" :]:
        answer = post(shared.url, body, type=type)
        assert answer.status == 400, body[:20]
        assert answer.headers["content-type"] == type
        if type == "application/json":
            assert answer.json["code"] == 3
            assert answer.json["message"].startswith("the body ")
    assert post(shared.url, b"not gzip", content_encoding="gzip").status == 400
    assert post(shared.url, gzip.compress(b"{}" * 500)[:20], content_encoding="gzip").status == 400
    assert post(shared.url, gzip.compress(b"{}") + b"tail", content_encoding="gzip").status == 400
    assert post(shared.url, b"", "/", method="GET").status == 200


def test_other_types_paths_and_methods(shared: Live) -> None:
    assert post(shared.url, b"{}", type="text/plain").status == 415
    assert post(shared.url, b"{}", content_encoding="br").status == 415
    assert post(shared.url, b"", method="GET").status == 405
    assert post(shared.url, b"{}", "/v1/nothing").status == 404
    metrics = post(shared.url, b"{}", "/v1/metrics")
    assert (metrics.status, "OTEL_METRICS_EXPORTER" in metrics.json["message"]) == (404, True)


def raw(live: Live, head: bytes, *parts: bytes) -> bytes:
    """What comes back for bytes on the socket, until the other side closes."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=300) as sock:
        try:
            sock.sendall(head)
            for part in parts:
                sock.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass
        out = b""
        try:
            while chunk := sock.recv(65536):
                out += chunk
        except ConnectionResetError:
            pass
        return out


HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_body_of_two_gigabytes_is_refused_by_its_length_before_it_is_read(shared: Live) -> None:
    answer = raw(shared, HEAD + b"Content-Length: 2147483648\r\n\r\n", b" " * 1000)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"--set max_body" in answer
    # A sender that asks first is told before it sends anything.
    answer = raw(shared, HEAD + b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: 2147483648\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_body_without_a_length_is_counted_as_it_comes(shared: Live) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=300)
    connection.request("POST", "/v1/traces", iter([b" " * 65536] * 64), {"content-type": "application/json"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_a_gzip_bomb_does_not_go_off(shared: Live) -> None:
    bomb = gzip.compress(b"\0" * (64 << 20), 9)
    assert len(bomb) < 1 << 20
    assert post(shared.url, bomb, content_encoding="gzip").status == 413


def test_who_sends_too_slowly_is_cut_off(shared: Live) -> None:
    assert raw(shared, b"") == b""
    assert raw(shared, b"POST /v1/traces HT") == b""
    assert raw(shared, HEAD + b"Content-Length: 50\r\n\r\n", b"{").startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:4318", "127.0.0.1.evil.example", "localhost@evil.example:1@x", "[::2]:80", ""]
)
def test_a_foreign_name_is_refused(shared: Live, name: str) -> None:
    assert post(shared.url, traces(agent(trace_id(1), SPAN)), host=name).status == 403


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:4318", "127.0.0.1:1", "[::1]:4318", "127.8.8.8", "app.localhost"])
def test_this_machines_names_are_not(shared: Live, name: str) -> None:
    assert post(shared.url, b"{}", host=name).status == 200


def test_a_page_of_another_place_is_refused(shared: Live) -> None:
    assert post(shared.url, b"{}", origin="https://evil.example").status == 403
    assert post(shared.url, b"{}", origin="null").status == 403
    port = shared.port
    for origin in ("http://localhost:3000", f"http://localhost:{port}", f"https://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}", "", "x"):
        assert post(shared.url, b"{}", origin=origin).status == 403, origin
    assert post(shared.url, b"{}", origin=shared.url).status == 200
    for site in ("same-site", "cross-site"):
        assert post(shared.url, b"{}", sec_fetch_site=site).status == 403
    assert post(shared.url, b"{}", sec_fetch_site="none").status == 200
    twice = b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nOrigin: http://evil\r\nContent-Length: 0\r\n\r\n"
    assert raw(shared, twice).startswith(b"HTTP/1.1 403 ")


def test_too_much_at_once_and_a_full_disk_ask_to_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path / "store", held=5000) as live:
        body = traces(chat(trace_id(1), SPAN, ""))
        busy = post(live.url, body + b" " * 6000)
        assert (busy.status, busy.headers["retry-after"], busy.json["code"]) == (503, "1", 14)

        def full(fd: int, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(disk, "write_all", full)
            answer = post(live.url, body)
        assert (answer.status, answer.headers["retry-after"]) == (503, "10")
        assert live.store.ids() == []
        assert post(live.url, body).status == 200
        eventually(lambda: live.store.ids() == [trace_id(1)])


# -- what was acknowledged is kept -----------------------------------------------------------------------------------------


class Process(NamedTuple):
    process: subprocess.Popen[str]
    url: str


def started(store: Path, *options: str) -> Process:
    command = [sys.executable, "-c", "from counterpoint.app.cli import main; main()", "serve", "--port", "0", "--json", *options]
    process = subprocess.Popen([*command, "--store", store], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    assert said["pid"] == process.pid
    return Process(process, said["url"])


def test_kill_9_in_mid_stream_loses_nothing_that_was_acknowledged_and_doubles_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = started(store)
    acknowledged: list[str] = []

    def send(sender: int) -> None:
        for i in range(10_000):
            id = f"{sender * 100_000 + i + 1:016x}"
            try:
                if post(first.url, traces(chat(trace_id(5 + i % 3), id, "", at=i))).status == 200:
                    acknowledged.append(id)
            except (OSError, http.client.HTTPException):
                return

    senders = [threading.Thread(target=send, args=(k,)) for k in range(3)]
    for sender in senders:
        sender.start()
    eventually(lambda: len(acknowledged) >= 150)
    first.process.kill()
    for sender in senders:
        sender.join()
    first.process.wait()
    [segment, *_] = sorted((store / "otlp" / "spool").glob("*.jsonl"))
    segment.write_bytes(
        segment.read_bytes() + b'{"resourceSpans":[{"resource":{},"sco'
    )  # as a kill in the middle of a write leaves it

    second = started(store)
    assert post(second.url, b"", "/", method="GET").json["counts"]["open"] == 3
    second.process.send_signal(signal.SIGTERM)
    out, _ = second.process.communicate(timeout=300)
    assert second.process.returncode == 0
    assert json.loads(out.splitlines()[-1])["counts"]["open"] == 3
    with Store(store) as opened:
        found = [e for name in opened.ids() for e in opened.get(name).events]
        assert sorted(opened.ids()) == [trace_id(k) for k in (5, 6, 7)]
        # The one that was being answered when it died may be there too: kept and not yet acknowledged.
        assert 0 <= sum(e.tokens_out or 0 for e in found) // 3 - len(acknowledged) <= 3
        assert len(acknowledged) >= 150
        before = {name: opened.get(name) for name in opened.ids()}
    with serving(store) as third:
        eventually(lambda: third.intake.counts["unchanged"] == 3)
        assert {name: third.store.get(name) for name in third.store.ids()} == before
        assert any("3 open traces" in note for note in third.notes)


def test_ctrl_c_ends_it_in_order_with_everything_stored(tmp_path: Path) -> None:
    found = started(tmp_path / "store")
    assert post(found.url, traces(chat(trace_id(1), SPAN, ""))).status == 200
    found.process.send_signal(signal.SIGINT)
    out, _ = found.process.communicate(timeout=300)
    assert found.process.returncode == 0
    counts = json.loads(out.splitlines()[-1])["counts"]
    assert (counts["spans"], counts["requests"], counts["added"]) == (1, 1, 1)
    assert Store(tmp_path / "store", read_only=True).ids() == [trace_id(1)]


# -- sealing ---------------------------------------------------------------------------------------------------------------


def test_a_trace_that_rests_leaves_the_spool_and_a_late_span_joins_it(tmp_path: Path) -> None:
    with serving(tmp_path / "store", idle_s=0.2) as live:
        assert post(live.url, traces(chat(trace_id(1), "1" * 16, SPAN))).status == 200
        assert trace_id(1).encode() in spooled(live.store)
        eventually(lambda: live.intake.status().get("sealed") == 1)
        assert spooled(live.store) == b""
        assert sum(e.tokens_out or 0 for e in live.store.get(trace_id(1)).events) == 3
        late = traces(agent(trace_id(1), SPAN), chat(trace_id(1), "2" * 16, SPAN, at=2))
        assert post(live.url, late).json == {}
        eventually(lambda: sum(e.tokens_out or 0 for e in live.store.get(trace_id(1)).events) == 6)
        eventually(lambda: live.intake.status()["open"] == 0)
    with serving(tmp_path / "store") as again:
        assert again.intake.status()["open"] == 0
        assert post(again.url, traces(chat(trace_id(1), "3" * 16, SPAN, at=3))).json == {}
        eventually(lambda: sum(e.tokens_out or 0 for e in again.store.get(trace_id(1)).events) == 9)


def test_joined_traces_are_sealed_and_go_on_together(tmp_path: Path) -> None:
    linked = chat(trace_id(2), "2" * 16, "", at=20) | {"links": [{"traceId": trace_id(1), "spanId": "1" * 16}]}
    with serving(tmp_path / "store", idle_s=0.2) as live:
        assert post(live.url, traces(chat(trace_id(1), "1" * 16, ""), linked)).status == 200
        eventually(lambda: live.intake.status()["open"] == 0)
        assert live.store.ids() == [trace_id(1)]
    with serving(tmp_path / "store", idle_s=0.2) as again:
        # The late one names the second trace, which became part of the first.
        assert post(again.url, traces(chat(trace_id(2), "3" * 16, "", at=21))).status == 200
        eventually(lambda: sum(e.tokens_out or 0 for e in again.store.get(trace_id(1)).events) == 9)
        assert again.store.ids() == [trace_id(1)]


def test_what_shares_a_name_with_a_sealed_trace_or_makes_the_same_one_is_read_with_it(tmp_path: Path) -> None:
    """An Agent Lightning rollout is one trace, however many traces its tracer began."""

    def rollout(k: int) -> bytes:
        body = json.loads(traces(chat(trace_id(k), f"{k:016x}", "", at=k)))
        named = [attribute("agentlightning.rollout_id", "ro-1"), attribute("agentlightning.attempt_id", "at-1")]
        body["resourceSpans"][0]["resource"] = {"attributes": named}
        return json.dumps(body).encode()

    with serving(tmp_path / "store", idle_s=0.2) as live:
        assert post(live.url, rollout(1)).status == 200
        eventually(lambda: live.intake.status()["open"] == 0)
        [name] = live.store.ids()
        assert name == "ro-1/at-1"
        assert post(live.url, rollout(2)).status == 200
        eventually(lambda: sum(e.tokens_out or 0 for e in live.store.get(name).events) == 6)
        eventually(lambda: live.intake.status()["open"] == 0)
    with serving(tmp_path / "store", idle_s=0.2) as again:
        assert post(again.url, rollout(3)).status == 200
        eventually(lambda: sum(e.tokens_out or 0 for e in again.store.get(name).events) == 9)
        assert again.store.ids() == [name]


def test_a_segment_kept_for_a_few_lines_is_freed_and_its_traces_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.app.receiver.spool._SEGMENT", 100)
    with serving(tmp_path / "store") as live:
        for k in (1, 2):
            assert post(live.url, traces(chat(trace_id(k), "1" * 16, ""))).status == 200
        eventually(lambda: len(live.store.ids()) == 2)
        live.intake.tidy()
        assert [trace_id(k).encode() in spooled(live.store) for k in (1, 2)] == [False, True]
        assert post(live.url, traces(chat(trace_id(1), "2" * 16, "", at=2))).json == {}
        eventually(lambda: sum(e.tokens_out or 0 for e in live.store.get(trace_id(1)).events) == 6)


def test_a_damaged_line_in_the_spool_is_put_aside(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as live:
        for k in (1, 2):
            assert post(live.url, traces(chat(trace_id(k), "1" * 16, ""))).status == 200
    [segment] = (tmp_path / "store" / "otlp" / "spool").glob("*.jsonl")
    first, second = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(first[:50] + b"\0\0" + first[52:] + second)
    with serving(tmp_path / "store") as again:
        assert again.intake.status()["open"] == 1
        [aside] = (tmp_path / "store" / "otlp" / "refused").iterdir()
        assert aside.read_bytes() == first[:50] + b"\0\0" + first[52:]
        assert any(aside.name in note for note in again.notes)
    assert len(Store(tmp_path / "store", read_only=True).ids()) == 2


def test_damaged_packed_records_are_not_replaced_by_what_comes_late(tmp_path: Path) -> None:
    with serving(tmp_path / "store", idle_s=0.2) as live:
        assert post(live.url, traces(chat(trace_id(1), "1" * 16, ""))).status == 200
        eventually(lambda: live.intake.status()["open"] == 0)
        [packed] = (live.store.path / "otlp" / "sealed").iterdir()
        packed.write_bytes(b"damaged")
        before = live.store.get(trace_id(1))
        assert post(live.url, traces(chat(trace_id(1), "2" * 16, ""), chat(trace_id(2), "2" * 16, ""))).status == 200
        eventually(lambda: live.intake.status().get("refused") == 1)
        eventually(lambda: trace_id(2) in live.store)
        assert live.store.get(trace_id(1)) == before
        assert len(list((live.store.path / "otlp" / "refused").iterdir())) == 1
        assert packed.read_bytes() == b"damaged"


def test_what_comes_after_the_records_are_gone_is_rejected_not_put_in_their_place(tmp_path: Path) -> None:
    with serving(tmp_path / "store", idle_s=0.1, keep_s=0.0) as live:
        assert post(live.url, traces(chat(trace_id(1), "1" * 16, ""))).status == 200
        eventually(lambda: live.intake.status()["open"] == 0)
        before = live.store.get(trace_id(1))
        late = post(live.url, traces(chat(trace_id(1), "2" * 16, ""), chat(trace_id(2), "2" * 16, ""))).json
        assert late["partialSuccess"] == {"rejectedSpans": "1", "errorMessage": "the trace was sealed too long ago to take more"}
        [packed] = (live.store.path / "otlp" / "sealed").iterdir()
        os.utime(packed, (0, 0))
        live.intake.tidy()
        assert not packed.exists()
    with serving(tmp_path / "store") as again:
        assert "partialSuccess" in post(again.url, traces(chat(trace_id(1), "3" * 16, ""))).json
        assert again.store.get(trace_id(1)) == before


def test_what_no_trace_can_be_made_of_is_put_aside_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def defect(name: str, data: bytes) -> Iterator[Any]:
        if trace_id(1).encode() in data:
            raise KeyError("boom")
        return real(name, data)

    real = intake_module._traces
    with serving(tmp_path / "store", idle_s=0.2) as live:
        with monkeypatch.context() as patch:
            patch.setattr(intake_module, "_traces", defect)
            assert post(live.url, traces(chat(trace_id(1), "1" * 16, ""), chat(trace_id(2), "1" * 16, ""))).status == 200
            eventually(lambda: live.intake.status().get("refused") == 1)
        assert live.store.ids() == [trace_id(2)]
        assert len([note for note in live.notes if "boom" in note]) == 1
        [aside] = (live.store.path / "otlp" / "refused").iterdir()
        # Mended, the next record brings the others back.
        assert post(live.url, traces(chat(trace_id(1), "2" * 16, ""))).status == 200
        eventually(lambda: trace_id(1) in live.store)
        assert sum(e.tokens_out or 0 for e in live.store.get(trace_id(1)).events) == 6
        eventually(lambda: not aside.exists())


def test_an_id_that_another_source_has_is_stored_under_ours(live: Live, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with serving(other) as made:
        post(made.url, traces(chat(trace_id(1), "1" * 16, "")))
        eventually(lambda: made.store.ids())
        imported = made.store.get(trace_id(1))
    live.store.add(imported, "otel:somewhere")
    assert post(live.url, traces(chat(trace_id(1), "9" * 16, "", at=5))).status == 200
    eventually(lambda: sorted(live.store.ids()) == [trace_id(1), f"otlp-{trace_id(1)}"])
    assert live.store.get(trace_id(1)) == imported


# -- the command -----------------------------------------------------------------------------------------------------------


def test_only_this_machine_unless_asked_and_one_receiver_per_port_and_store(run: Any, tmp_path: Path, live: Live) -> None:
    code, _, err = run("serve", "--host", "0.0.0.0", "--store", tmp_path / "s")
    assert (code, "--allow-remote" in err) == (5, True)
    code, _, err = run("serve", "--host", "no.such.host.invalid", "--allow-remote", "--store", tmp_path / "s")
    assert code == 2
    code, _, err = run("serve", "--port", live.port, "--store", tmp_path / "s")
    assert (code, "--port" in err) == (6, True)
    code, _, err = run("serve", "--port", 0, "--store", live.store.path)
    assert (code, "another receiver" in err) == (6, True)
    assert run("serve", "--set", "max_body=12 parsecs")[0] == 2


def test_without_the_extra_it_says_what_to_install(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("counterpoint.app.receiver.server", "starlette", "starlette.applications"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr("counterpoint.app.receiver.server")
    code, _, err = run("serve")
    assert (code, install("view") in err) == (2, True)


@pytest.mark.parametrize(
    ("host", "is_so"), [("127.0.0.1", True), ("::1", True), ("localhost.", True), ("0.0.0.0", False), ("::", False)]
)
def test_what_this_machine_is(host: str, is_so: bool) -> None:
    assert is_loopback(host) is is_so


def test_answers_do_not_wait_for_an_acknowledgement() -> None:
    with listening_socket("127.0.0.1", 0) as sock:
        assert sock.proto == socket.IPPROTO_TCP  # what asyncio looks at before it switches Nagle's algorithm off


def test_the_help_shows_how_to_send(run: Any) -> None:
    code, out, _ = run("serve", "--help")
    assert code == 0
    assert re.search(r"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", out)
