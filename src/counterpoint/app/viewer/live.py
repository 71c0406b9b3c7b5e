"""What is running, as a stream: batches of new events and a line for every trace that grows.

Always true: a batch has a number larger than every one before it, also of an earlier server; who comes back with the last number
seen gets every batch since, or, when these are forgotten, is told so (`event: reset`) and gets the whole picture; a slow reader
holds up nobody. Nothing is followed while nobody listens. An event is told once when it begins and once when it ends.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from counterpoint.app.viewer.following import Follower, News
from counterpoint.app.viewer.run_shapes import LiveBatch

GAP_S = 0.04
"""No two batches are closer. The recorder writes every 50 ms, so an event is on the page within 100 ms of being made."""
LOOK_S = 0.015
"""While something runs and nothing has come, the next look is so soon; a look at what has not grown costs next to nothing."""
REFRESH_S = 5.0
"""How long a trace was silent is told again so often."""
_BEAT_S = 15.0
_LINGER_S = 60.0
"""After the last reader left, for so long the stream can still be resumed."""


class Ring:
    """The last batches, bounded in number and in bytes."""

    def __init__(self, count: int = 2_400, size: int = 32 << 20) -> None:
        self._count, self._size, self._held = count, size, 0
        self._batches: deque[tuple[int, bytes]] = deque()
        # Hundredths of a second since the epoch are ahead of all numbers that an earlier server gave away.
        self.seq = int(time.time() * 100)
        self._forgotten = self.seq
        """No batch up to this one is here."""

    def add(self, seq: int, data: bytes) -> None:
        """One more."""
        self.seq = seq
        self._batches.append((seq, data))
        self._held += len(data)
        while len(self._batches) > self._count or (self._held > self._size and len(self._batches) > 1):
            self._forgotten, old = self._batches.popleft()
            self._held -= len(old)

    def after(self, seq: int) -> list[tuple[int, bytes]] | None:
        """The batches after this number; None when some of them are not here."""
        if not self._forgotten <= seq <= self.seq:
            return None
        return [pair for pair in self._batches if pair[0] > seq]


def _message(seq: int, data: bytes) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (seq, data)


class Live:
    """One follower for any number of readers."""

    def __init__(self, store: Path | None) -> None:
        """`store` need not be there yet."""
        self.ring = Ring()
        self._follower = Follower(store)
        self._news = News([], {})
        self._told = 0.0
        self._readers = 0
        self._left = 0.0
        self._task: asyncio.Task[None] | None = None
        self._fresh = asyncio.Event()
        self._is_over = False

    def end(self) -> None:
        """Every stream ends; the server goes down."""
        self._is_over = True
        self._fresh.set()
        if self._task is not None:
            self._task.cancel()

    async def stream(self, after: int | None) -> AsyncIterator[bytes]:
        """Messages from a number on; None begins with the picture of now."""
        self._readers += 1
        try:
            if self._task is None or self._task.done():
                await self._look()
                self._task = asyncio.create_task(self._follow())
            yield b"retry: 1000\n\n"
            found = None if after is None else self.ring.after(after)
            if found is None:
                if after is not None:
                    yield b'event: reset\nid: %d\ndata: {"seq":%d}\n\n' % (self.ring.seq, self.ring.seq)
                after = self.ring.seq
                yield _message(after, self._batch(after, News(self._news.traces, {})))
            assert after is not None
            async for part in self._since(after):
                yield part
        finally:
            self._readers -= 1
            self._left = time.monotonic()

    async def _since(self, after: int) -> AsyncIterator[bytes]:
        while not self._is_over:
            found = self.ring.after(after)
            if found is None:  # too slow: begin again from the picture of now
                after = self.ring.seq
                yield b'event: reset\nid: %d\ndata: {"seq":%d}\n\n' % (after, after)
                yield _message(after, self._batch(after, News(self._news.traces, {})))
            elif found:
                after = found[-1][0]
                yield b"".join(_message(*pair) for pair in found)
            else:
                fresh = self._fresh
                try:
                    await asyncio.wait_for(fresh.wait(), _BEAT_S)
                except TimeoutError:
                    yield b": still here\n\n"

    async def _follow(self) -> None:
        """Look again and again, as long as somebody listens or may come back."""
        while self._readers or time.monotonic() - self._left < _LINGER_S:
            try:
                has_news = await self._look()
            except Exception:  # a store that cannot be read now may be read in a moment; the stream stays
                await asyncio.sleep(1.0)
                continue
            await asyncio.sleep(LOOK_S if self._news.traces and not has_news else GAP_S)

    async def _look(self) -> bool:
        """Make a batch of what has come; whether anything has."""
        news = await asyncio.get_running_loop().run_in_executor(None, self._follower.look)
        now = time.monotonic()
        has_changed = bool(news.events) or news.shape != self._news.shape
        self._news = news
        if not has_changed and (not news.traces or now - self._told < REFRESH_S):
            return False
        self._told = now
        seq = self.ring.seq + 1
        self.ring.add(seq, self._batch(seq, news))
        fresh, self._fresh = self._fresh, asyncio.Event()
        fresh.set()
        return True

    @staticmethod
    def _batch(seq: int, news: News) -> bytes:
        return msgspec.json.encode(LiveBatch(seq=seq, at=time.time(), traces=news.traces, events=news.events))
