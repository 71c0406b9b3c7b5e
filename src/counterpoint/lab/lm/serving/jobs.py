"""Requests under way: each is some answers, which come a few tokens at a time and at last whole.

Always true: what an engine tells of a call is heard in the event loop of whoever asked, in its order, until the call is let go.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.engine import Answer, AnswerDraft, Ask
from counterpoint.lab.lm.model import ModelFailed
from counterpoint.lab.lm.serving.choices import Choice, Tokens
from counterpoint.lab.lm.serving.replies import ReplyForm
from counterpoint.lab.lm.serving.requests import ApiError


class News(NamedTuple):
    """What is new of an answer: all that was not told before."""

    tokens: Tokens
    reused: int
    version: str
    """Which weights speak."""
    finish: Literal["stop", "length"] | None = None
    """Why it is whole, once it is."""


class ToldCall:
    """A call in the engine's thread that tells what is new of its answer; an `EngineCall`."""

    is_cancelled = False

    def __init__(self, ask: Ask, version: Callable[[], str], *, is_watched: bool) -> None:
        self.is_watched = is_watched
        self._ask, self._version, self._seen = ask, version, 0

    def ask(self, chat: Chat) -> Ask:
        """What the engine is asked."""
        return self._ask

    def watch(self, chat: Chat, written: AnswerDraft) -> bool:
        """Tell what is new."""
        count = len(written.token_ids)
        if count > self._seen:
            at = slice(self._seen, count)
            new = Tokens(list(written.token_ids[at]), list(written.logps[at]), list(written.alternatives[at]))
            self._seen = count
            self.tell(News(new, written.reused, self._version()))
        return False

    def settle(self, chat: Chat, result: Answer | ModelFailed) -> None:
        """Tell the end."""
        if isinstance(result, ModelFailed):
            self.tell(result)
        else:
            self.tell(News(Tokens.of(result).since(self._seen), result.reused, self._version(), result.finish))

    def tell(self, item: News | ModelFailed) -> None:
        """To whoever asked."""
        raise NotImplementedError


class AskedCall:
    """One answer, for whoever asked for it; in the event loop."""

    is_cancelled = False

    def __init__(self, job: Job, index: int, ask: Ask, let_go: Callable[[AskedCall], None], *, is_watched: bool) -> None:
        """`let_go` is told when nobody waits for it any more."""
        self.ask, self.is_watched, self.number = ask, is_watched, -1
        self._job, self._index, self._let_go = job, index, let_go

    def take(self, item: News | ModelFailed) -> None:
        """What the engine has told."""
        if not self.is_cancelled:
            self._job.take(self, self._index, item)

    def cancel(self) -> None:
        """Nobody waits any more."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self._let_go(self)


class Outbox:
    """What the engine's thread tells the event loop: one wake-up for all that a pass brought."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._lock = loop, threading.Lock()
        self._items: deque[tuple[AskedCall, Any]] = deque()
        self._is_called = False

    def put(self, call: AskedCall, item: Any) -> None:
        """In the engine's thread."""
        with self._lock:
            self._items.append((call, item))
            if self._is_called or self._loop.is_closed():
                return
            self._is_called = True
        self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            items, self._items, self._is_called = self._items, deque(), False
        for call, item in items:
            call.take(item)


@dataclass
class Job:
    """One request under way."""

    form: ReplyForm
    choices: list[Choice]
    calls: list[AskedCall] = field(default_factory=list)
    reused: dict[int, int] = field(default_factory=dict)
    versions: dict[int, str] = field(default_factory=dict)
    fresh: dict[int, None] = field(default_factory=dict)
    """Answers of which something is new."""
    failure: ModelFailed | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, call: AskedCall, index: int, item: News | ModelFailed) -> None:
        """Tokens, or the end, of one answer."""
        choice = self.choices[index]
        if isinstance(item, ModelFailed):
            self.failure = item
        else:
            choice.add(item.tokens)
            if item.finish is not None:
                choice.end(item.finish)
            self.reused[index], self.versions[index] = item.reused, item.version
            if choice.is_over:
                call.cancel()
        self.fresh[index] = None
        self.news.set()

    @property
    def is_over(self) -> bool:
        """Whether all answers are whole."""
        return all(choice.is_over for choice in self.choices)

    @property
    def cached(self) -> int:
        """Tokens of prompts that were not read again; of several answers the first one's count."""
        return sum(self.reused.get(k, 0) for k in range(0, len(self.choices), self.form.request.count))

    async def wait(self) -> list[int]:
        """Answers of which something is new."""
        await self.news.wait()
        self.news.clear()
        if self.failure is not None:
            raise api_error(self.failure)
        fresh, self.fresh = list(self.fresh), {}
        return fresh

    def cancel(self) -> None:
        """Nobody waits any more."""
        for call in self.calls:
            call.cancel()


def api_error(error: ModelFailed) -> ApiError:
    """A failure of the engine as it is answered."""
    if error.kind == "too long":
        return ApiError(error.one_line(), param="messages", code="context_length_exceeded")
    if error.kind == "down":
        return ApiError(error.one_line(), status=503, code="unavailable", after_s=1)
    return ApiError(error.one_line(), status=500)
