"""How fast an endpoint may be asked: buckets for requests and tokens, and a common pause after a 429.

Always true: in any time of w seconds a bucket lets through at most max(burst, largest single amount) + rate * w; who comes
first goes first; a caller that gives up while it waits loses its place and nobody else's. Time is passed in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

Now = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class Bucket:
    """Lets `per_minute` through, evenly, with a burst of a tenth of it (at least 1) after a rest."""

    def __init__(self, per_minute: float, *, burst: float | None = None, now: Now = time.monotonic) -> None:
        self.rate = per_minute / 60.0
        self.burst = max(1.0, per_minute / 10.0) if burst is None else burst
        self._now = now
        self._level, self._at = self.burst, now()

    def wait(self, amount: float = 1.0) -> float:
        """Take a place in the line; gives the seconds until it may go."""
        now = self._now()
        self._level = min(self.burst, self._level + (now - self._at) * self.rate) - amount
        self._at = now
        return max(0.0, -self._level / self.rate)


class Rates:
    """All that holds a request back, in one place for all tasks."""

    def __init__(
        self, rpm: float | None = None, tpm: float | None = None, *, now: Now = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._now, self._sleep = now, sleep
        self._requests = None if rpm is None else Bucket(rpm, now=now)
        self._tokens = None if tpm is None else Bucket(tpm, now=now)
        self._pause_until = now()

    def pause(self, seconds: float) -> None:
        """The endpoint asked to be left alone for so long: every task waits."""
        self._pause_until = max(self._pause_until, self._now() + seconds)

    async def turn(self, tokens: int) -> None:
        """Wait until a request of so many tokens may go."""
        wait = max(
            0.0 if self._requests is None else self._requests.wait(),
            0.0 if self._tokens is None else self._tokens.wait(tokens),
        )
        if wait > 0:
            await self._sleep(wait)
        while (left := self._pause_until - self._now()) > 0:
            await self._sleep(left)
