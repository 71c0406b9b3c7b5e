"""`counterpoint serve` under odd senders: bytes that are no text, gzip of very many members, connections that are opened and left."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import urllib.error
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from app.test_serve import HEAD, SPAN, Live, agent, post, serving, trace_id, traces
from counterpoint.app.receiver import server as receiver
from ends_help import Ends

SPANS = traces(agent(trace_id(1), SPAN))


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with serving(tmp_path / "store") as found:
        yield found


@pytest.mark.parametrize("byte", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_a_byte_that_is_not_utf8_is_400_wherever_it_stands(live: Live, byte: bytes) -> None:
    text = json.dumps(json.loads(SPANS))
    for i in range(0, len(text), 7):
        answer = post(live.url, text[:i].encode() + byte + text[i:].encode())
        assert answer.status == 400, i
    logs = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"' + byte + b'"}}]}]}]}'
    assert post(live.url, logs, "/v1/logs").status == 400
    assert live.store.ids() == []


def test_letters_beyond_ascii_are_fine(live: Live) -> None:
    text = SPANS.decode().replace("\"name\": \"", "\"name\": \"é漢🙂", 1)
    assert post(live.url, text.encode()).status == 200


@pytest.mark.parametrize("headers", [{"Content-Type": "application/json"}, {"Content-Type": "text/plain"}])
def test_a_sender_that_closes_reads_why_its_large_body_was_refused(live: Live, headers: dict[str, str]) -> None:
    """With bytes unread the connection would be reset, and an exporter would send the same again and again."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=300)
    connection.request("POST", "/v1/traces", b" " * (96 << 20), {**headers, "Connection": "close"})
    assert connection.getresponse().status == (413 if "json" in headers["Content-Type"] else 415)
    connection.close()


# -- gzip ------------------------------------------------------------------------------------------------------------------


def test_a_body_of_very_many_members_is_refused_and_of_a_few_is_not(live: Live) -> None:
    half = len(SPANS) // 2
    few = gzip.compress(SPANS[:half]) + gzip.compress(b"") * 20 + gzip.compress(SPANS[half:])
    assert post(live.url, few, content_encoding="gzip").status == 200
    answer = post(live.url, gzip.compress(b"") * 100_000 + few, content_encoding="gzip")
    assert (answer.status, "members" in answer.json["message"]) == (400, True)


def test_unpacking_is_done_in_pieces_and_not_by_the_loop(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the loop does not do cannot hold up another's request."""
    threads: set[str] = set()
    sizes: list[int] = []
    more = receiver._Gunzip.more

    def seen(self: receiver._Gunzip, chunk: bytes = b"") -> bytes:
        threads.add(threading.current_thread().name)
        out = more(self, chunk)
        sizes.append(len(out))
        return out

    monkeypatch.setattr(receiver._Gunzip, "more", seen)
    bomb = gzip.compress(b" " * (8 << 20) + b"{}")
    assert post(live.url, bomb, content_encoding="gzip").status == 200
    assert all(name.startswith("otlp-unpack") for name in threads)
    assert max(sizes) <= 1 << 20 < sum(sizes)


# -- connections -----------------------------------------------------------------------------------------------------------


@contextmanager
def left_open(live: Live, *starts: bytes) -> Iterator[list[socket.socket]]:
    """Connections that send these bytes and then nothing."""
    with ExitStack() as stack:
        found = []
        for start in starts:
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", live.port)))
            sock.sendall(start)
            found.append(sock)
        yield found


SLOW = [b"", b"POST /v1/tra", HEAD + b"Content-Length: 50\r\n\r\n{", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]


@pytest.mark.parametrize("start", SLOW, ids=["nothing", "half a head", "half a body", "no chunk", "an answered request"])
def test_connections_that_are_left_open_lock_nobody_out(start: bytes, tmp_path: Path) -> None:
    """A full house for as long as anybody waits: only making room lets others in.

    While the twenty are still coming in, whoever has said nothing yet may have to make room as well, and comes again.
    """
    with serving(tmp_path / "store", connections=4, seconds=600, requests=2) as live, left_open(live, *[start] * 20):
        for number in range(1, 9):
            assert patient_post(live.url, traces(agent(trace_id(number), SPAN))) == 200


def patient_post(url: str, body: bytes, tries: int = 25) -> int:
    """The answer to a request that is sent again where its connection was closed."""
    for _ in range(tries - 1):
        try:
            return int(post(url, body).status)
        except ConnectionError:
            continue
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionError):
                raise
    return int(post(url, body).status)


def test_half_a_body_takes_no_place_among_the_requests(tmp_path: Path) -> None:
    slow = [SLOW[2]] * 3
    with serving(tmp_path / "store", requests=1, seconds=600) as live, left_open(live, *slow):
        assert post(live.url, SPANS).status == 200


def test_who_drips_a_head_goes_before_who_was_just_answered(tmp_path: Path) -> None:
    with serving(tmp_path / "store", connections=2, seconds=600) as live, left_open(live, b"POST /v") as [dripping]:
        kept = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)
        for second in (False, True):
            kept.request("GET", "/")
            answer = kept.getresponse()
            assert (answer.status, answer.read()[:1]) == (200, b"{")
            kept.auto_open = 0  # a second connection would hide that the first was closed
            if not second:
                dripping.sendall(b"1")
                assert post(live.url, SPANS).status == 200
        kept.close()


def test_a_port_that_is_taken_makes_no_store(live: Live, tmp_path: Path, run: Ends) -> None:
    code, _, err = run("serve", "--port", live.port, "--store", tmp_path / "none")
    assert (code, "cannot listen" in err) == (6, True)
    assert not (tmp_path / "none").exists()
