"""Callers of an endpoint who cost little: several processes, each with many connections, one call after the other on each.

Always true: what a caller asks depends on its number and on how often it has asked, so whoever is asked is asked the same. A
conversation has three turns, each with all that was said before, and all have one beginning.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import selectors
import socket
from collections.abc import Iterator
from ctypes import c_longlong
from pathlib import Path
from typing import Any

from counterpoint.lab.train.child_process import without_script

TURNS, NEW = 3, 32
_HEAD, _TOLD, _SAID = 800, 1300, 120
"""Characters that the system says, a user at each turn, and an assistant."""


def corpus() -> str:
    """Words to take from: our own pages."""
    docs = Path(__file__).parents[2] / "docs"
    return " ".join(" ".join(page.read_text().split()) for page in sorted(docs.rglob("*.md")))


def conversations(text: str, caller: int) -> Iterator[dict[str, Any]]:
    """The requests of a caller, for ever."""
    draw, count = random.Random(caller), 0

    def words(size: int) -> str:
        at = draw.randrange(len(text) - size)
        return text[at : at + size]

    while True:
        messages = [{"role": "system", "content": text[:_HEAD]}]
        for _ in range(TURNS):
            messages = [*messages, {"role": "user", "content": words(_TOLD)}]
            yield {"model": "m", "messages": messages, "max_tokens": NEW, "seed": caller * 1_000_000 + count}
            messages = [*messages, {"role": "assistant", "content": words(_SAID)}]
            count += 1


class _Caller:
    """One connection."""

    def __init__(self, port: int, bodies: Iterator[dict[str, Any]]) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._bodies, self._got = bodies, b""

    def ask(self) -> None:
        body = json.dumps(next(self._bodies)).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self.sock.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)

    def read(self) -> int | None:
        """Tokens of the answer once it is whole."""
        got = self._got = self._got + self.sock.recv(1 << 16)
        end = got.find(b"\r\n\r\n")
        if not got or not got.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"an endpoint said {got[:300]!r}")
        if end < 0:
            return None
        at = got.index(b"content-length: ") + 16
        if len(got) < end + 4 + int(got[at : got.index(b"\r", at)]):
            return None
        self._got = b""
        at = got.index(b'"completion_tokens":') + 20
        return int(got[at : got.index(b",", at)])


def _call(port: int, callers: range, counts: Any, place: int) -> None:
    """A process of callers, until it is ended."""
    text, selector = corpus(), selectors.DefaultSelector()
    ours = [_Caller(port, conversations(text, caller)) for caller in callers]
    for one in ours:
        selector.register(one.sock, selectors.EVENT_READ, one)
    for one in ours:
        one.ask()
    while True:
        for key, _ in selector.select():
            tokens = key.data.read()
            if tokens is not None:
                counts[2 * place] += 1
                counts[2 * place + 1] += tokens
                key.data.ask()


class Callers:
    """So many callers in a few processes, from when it is entered until it is left."""

    def __init__(self, port: int, count: int, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._counts = context.Array(c_longlong, 2 * processes, lock=False)
        places = [range(k, count, processes) for k in range(processes)]
        self._processes = [
            context.Process(target=_call, args=(port, callers, self._counts, k), daemon=True) for k, callers in enumerate(places)
        ]

    def __enter__(self) -> Callers:
        with without_script():
            for process in self._processes:
                process.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def done(self) -> tuple[int, int]:
        """Calls and tokens so far."""
        ended = next((p.exitcode for p in self._processes if p.exitcode is not None), None)
        if ended is not None:
            raise RuntimeError(f"callers ended with exit code {ended}")
        return sum(self._counts[::2]), sum(self._counts[1::2])

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [int(p.pid or 0) for p in self._processes]
