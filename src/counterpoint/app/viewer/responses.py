"""Answers: bytes made once and kept while they are asked for, their tags, and errors as JSON.

Always true: an answer is kept under everything it depends on, so a tag that a browser still has is answered 304 without making
anything; two who ask for the same thing at once wait for one making; what is kept is bounded in bytes. An error is an object
with `error`, never a page.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from counterpoint.app.words import os_error
from counterpoint.errors import CounterpointError

JSON, BYTES = "application/json", "application/octet-stream"
_STATUS = {2: 400, 3: 404, 5: 409, 6: 503}
_PACK_ABOVE = 2048
_KEPT, _THREADS = 128 << 20, 4
"""Bytes of answers that are kept, and threads that make them."""


@dataclass(frozen=True)
class _Payload:
    body: bytes
    packed: bytes | None
    kind: str

    @property
    def size(self) -> int:
        return len(self.body) + len(self.packed or b"")


def _as_bytes(value: Any) -> tuple[bytes, str]:
    """A payload and its media type: bytes as they are, everything else as JSON."""
    if isinstance(value, bytes):
        return value, BYTES
    return msgspec.json.encode(value), JSON


def error_response(error: CounterpointError, status: int | None = None) -> Response:
    """An error as JSON, with the status that its exit code stands for."""
    body = msgspec.json.encode(error.as_dict())
    return Response(body, status or _STATUS.get(error.exit_code, 500), {"cache-control": "no-store"}, JSON)


def in_our_words(error: Exception) -> CounterpointError:
    """Whatever went wrong, as one of our errors."""
    if isinstance(error, CounterpointError):
        return error
    if isinstance(error, OSError):
        return os_error(error)
    fix = "this is a bug in Counterpoint: please report it, and say where the trace came from"
    return CounterpointError(f"{type(error).__name__}: {error}", fix=fix)


class Answers:
    """Makes answers in threads, and keeps the last ones."""

    def __init__(self) -> None:
        self._held = 0
        self._kept: OrderedDict[Hashable, _Payload] = OrderedDict()
        self._making: dict[Hashable, asyncio.Task[_Payload]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="viewer")
        # Tags of another server, perhaps of another version, say nothing about ours.
        self._salt = secrets.token_hex(8)

    def begin(self, make: Callable[[], Any]) -> None:
        """Run something in a thread, for what it leaves behind; whoever asks for it hears what is wrong with it."""
        self._threads.submit(make)

    async def call(self, make: Callable[[], Any]) -> Any:
        """Run something in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, make)

    async def answer(self, request: Request, key: Hashable | None, make: Callable[[], Any]) -> Response:
        """The response for a key; with None as key it is made anew and tagged by its content."""
        if key is None:
            made = await self._make(make)
            tag = hashlib.blake2b(made.body, digest_size=16).hexdigest()
        else:
            tag = hashlib.blake2b(f"{self._salt}\0{key!r}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
            if _has(request, tag):
                return Response(status_code=304, headers=_headers(tag))
            made = await self._kept_or_made(key, make)
        if _has(request, tag):
            return Response(status_code=304, headers=_headers(tag))
        headers = _headers(tag)
        if made.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(made.packed, headers=headers | {"content-encoding": "gzip"}, media_type=made.kind)
        return Response(made.body, headers=headers, media_type=made.kind)

    async def _kept_or_made(self, key: Hashable, make: Callable[[], Any]) -> _Payload:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.create_task(self._make(make))
            task.add_done_callback(lambda done: self._keep(key, done))
        # One who leaves must not take the answer from the others who wait for it.
        return await asyncio.shield(task)

    def _keep(self, key: Hashable, task: asyncio.Task[_Payload]) -> None:
        del self._making[key]
        if task.cancelled() or task.exception() is not None or task.result().size > _KEPT // 2:
            return
        self._kept[key] = task.result()
        self._held += task.result().size
        while self._held > _KEPT:
            self._held -= self._kept.popitem(last=False)[1].size

    async def _make(self, make: Callable[[], Any]) -> _Payload:
        return await self.call(lambda: _payload(make))


def _payload(make: Callable[[], Any]) -> _Payload:
    body, kind = _as_bytes(make())
    packed = gzip.compress(body, 1, mtime=0) if len(body) > _PACK_ABOVE else None
    return _Payload(body, packed if packed and len(packed) < 0.9 * len(body) else None, kind)


def _headers(tag: str) -> dict[str, str]:
    return {"etag": f'"{tag}"', "cache-control": "no-cache, private", "vary": "accept-encoding"}


def _has(request: Request, tag: str) -> bool:
    given = request.headers.get("if-none-match", "")
    return any(one.strip().removeprefix("W/") == f'"{tag}"' for one in given.split(","))
