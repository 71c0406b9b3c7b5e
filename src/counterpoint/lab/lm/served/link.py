"""Requests to one server, many under way at once, out of a thread of their own.

Always true: whoever sends never waits; a descriptor is readable when something has arrived. What fails because nobody answered,
or because the server was busy, is sent again a few times; what fails for good is one error that names the server and its answer.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from counterpoint.errors import CounterpointError, InputError, install
from counterpoint.lab.lm.endpoint.address import Address, address_of, key_of

KEY_ENV = "COUNTERPOINT_ENGINE_KEY"
"""The variable of the server's key, where it wants one."""
_WAITS_S = (0.5, 1.0, 2.0, 4.0)
"""Before each further attempt."""
_CONNECT_S, _TIMEOUT_S = 10.0, 600.0
_SHOWN = 300
_POOL = 16
"""Connections of one client: what a request costs httpx grows with the connections of its pool."""


class ServerFailed(CounterpointError):
    """A server that does not answer, or not with what was asked for."""


class ServerLink:
    """A server at an address."""

    def __init__(self, url: str, *, at_once: int, needs: Mapping[str, str], waits: Sequence[float] | None = None) -> None:
        """`at_once`: requests under way, the others wait here; `needs`: what a server must be started with to have a path;
        `waits`: seconds before each further attempt."""
        self._address, self._needs, self._waits = _address(url), needs, _WAITS_S if waits is None else waits
        self.url = self._address.public_url
        self._client = _client(self._address)
        self._clients = [self._client]
        self._free = [self._client] * _POOL
        """A client for each request that may begin, those that were used last at the end; more are made when there is none."""
        self._inside, self._outside = socket.socketpair()
        self._inside.setblocking(False)
        self._outside.setblocking(False)
        self._arrived: deque[tuple[int, Any]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Semaphore(at_once)
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine-server", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Readable when something has arrived."""
        return self._outside.fileno()

    def send(self, ticket: int, path: str, body: Mapping[str, Any]) -> None:
        """Ask; what comes of it arrives with the ticket."""
        self._loop.call_soon_threadsafe(self._begin, ticket, path, msgspec.json.encode(body))

    def arrivals(self) -> list[tuple[int, Any]]:
        """What has arrived since this was last asked: tickets, each with a reply or with the `ServerFailed`."""
        with suppress(BlockingIOError):
            while self._outside.recv(4096):
                pass
        out = []
        while self._arrived:
            out.append(self._arrived.popleft())
        return out

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask and wait: a GET without a body. What is no JSON is text."""
        content = None if body is None else msgspec.json.encode(body)
        return asyncio.run_coroutine_threadsafe(self._asked(path, content), self._loop).result()

    def drop(self) -> None:
        """Nobody waits for what is under way any more."""

        async def cancel() -> None:
            for task in (tasks := list(self._under_way)):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(cancel(), self._loop).result()
        self.arrivals()

    def close(self) -> None:
        """End the thread; a second call does nothing."""
        if self._loop.is_closed():
            return
        self.drop()
        for client in self._clients:
            asyncio.run_coroutine_threadsafe(client.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._inside.close()
        self._outside.close()

    # -- in the thread

    def _begin(self, ticket: int, path: str, content: bytes) -> None:
        task = self._loop.create_task(self._serve(ticket, path, content))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _serve(self, ticket: int, path: str, content: bytes) -> None:
        try:
            async with self._room:
                reply = await self._asked(path, content, self._free_client())
        except ServerFailed as failed:
            reply = failed
        self._arrived.append((ticket, reply))
        with suppress(BlockingIOError):  # it is readable already
            self._inside.send(b"\0")

    async def _asked(self, path: str, content: bytes | None, client: Any = None) -> Any:
        """The reply; `client` is free again afterwards."""
        import httpx

        failed = ServerFailed("no answer", where=self.url)
        try:
            for wait in (*self._waits, None):
                chosen = client or self._client
                try:
                    response = await (chosen.get(path) if content is None else chosen.post(path, content=content))
                except httpx.HTTPError as error:
                    why = str(error) or type(error).__name__
                    failed = ServerFailed(f"no answer from {path}", where=self.url, why=why, fix="is it up? see its log")
                else:
                    if response.status_code < 400:
                        return _decoded(response.content)
                    failed = self._refusal(path, response.status_code, response.content)
                    if response.status_code != 429 and response.status_code < 500:
                        break
                if wait is not None:
                    await asyncio.sleep(wait)
        finally:
            if client is not None:
                self._free.append(client)
        raise failed

    def _free_client(self) -> Any:
        """A client with a connection to spare."""
        if not self._free:
            self._clients.append(_client(self._address))
            self._free += [self._clients[-1]] * _POOL
        return self._free.pop()

    def _refusal(self, path: str, status: int, content: bytes) -> ServerFailed:
        """What the server said, in one error."""
        said = _decoded(content)
        if isinstance(said, dict):
            inner = said.get("error")
            said = inner.get("message") if isinstance(inner, dict) else inner or said.get("message") or said.get("detail") or said
        fix = self._needs.get(path) if status in (400, 404, 405) else None
        if status in (401, 403):
            fix = f"export {KEY_ENV}=..., the key that the server was started with"
        return ServerFailed(f"{path} answers {status}: {str(said)[:_SHOWN]}", where=self.url, fix=fix or "see its log")


def _address(url: str) -> Address:
    return address_of(url.rstrip("/").removesuffix("/v1"))


def _decoded(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content) if content else None
    except msgspec.DecodeError:
        return content.decode("utf-8", "replace").strip()


def _client(address: Address) -> Any:
    try:
        import httpx
    except ImportError as error:
        raise InputError("an engine behind an address needs httpx", fix=install("llm")) from error
    key = key_of(address, KEY_ENV) if os.environ.get(KEY_ENV) else None
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    return httpx.AsyncClient(
        base_url=address.url,
        params=dict(address.query) or None,
        headers=headers,
        timeout=httpx.Timeout(_TIMEOUT_S, connect=_CONNECT_S, pool=None),
        limits=httpx.Limits(max_connections=_POOL + 1, max_keepalive_connections=_POOL),
        trust_env=not address.is_local,
        verify=not address.is_plain,
    )
