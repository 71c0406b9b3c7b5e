"""A front end's side: requests of its callers as calls of the engine in another process, and what is recorded there.

Always true: a call is asked once and answered once, however it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from counterpoint.lab.lm.serving.backend import ModelFacts, RequestDesk, SpokenAnswer
from counterpoint.lab.lm.serving.callers import Caller
from counterpoint.lab.lm.serving.choices import Tokens
from counterpoint.lab.lm.serving.jobs import AskedCall, News
from counterpoint.lab.lm.serving.link import Link
from counterpoint.lab.lm.serving.messages import (
    AnswerNote,
    CallDrop,
    CallFailure,
    CallRequest,
    LastPiece,
    LedgerNote,
    Piece,
    Receipt,
    TraceEnd,
    ints,
    numbers,
    packed_note,
)
from counterpoint.lab.lm.serving.requests import ApiError


class FrontBackend(RequestDesk):
    """Answers requests with the engine of another process."""

    def __init__(self, facts: ModelFacts) -> None:
        super().__init__()
        self.chat, self._context, self._policies = facts.chat, facts.context, dict(facts.policies)
        self.link: Link | None = None
        self._calls: dict[int, AskedCall] = {}
        self._next = 0

    async def open(self) -> None:
        """Nothing is loaded here."""

    def submit(self, call: AskedCall) -> None:
        """Ask the engine."""
        assert self.link is not None
        call.number, self._next = self._next, self._next + 1
        self._calls[call.number] = call
        ask = call.ask
        self.link.put(
            CallRequest(
                call.number, ints(ask.prompt), ask.most, ask.temperature, ask.seed, ask.policy, ask.top_p, ask.alternatives,
                [(start.ids, start.then) for start in ask.starts], call.is_watched,
            )
        )  # fmt: skip

    def let_go(self, call: AskedCall) -> None:
        """Nobody waits for a call any more, or it is whole."""
        if self._calls.pop(call.number, None) is not None and self.link is not None:
            self.link.put(CallDrop(call.number))

    def take(self, reply: Piece | LastPiece | CallFailure) -> None:
        """What the engine has told."""
        call = self._calls.get(reply.call)
        if not isinstance(reply, Piece):
            self._calls.pop(reply.call, None)
        if call is None:
            return
        if isinstance(reply, CallFailure):
            call.take(reply.error)
            return
        tokens = Tokens(numbers(reply.token_ids, "i"), numbers(reply.logps, "d"), list(reply.alternatives))
        call.take(News(tokens, reply.reused, reply.version, reply.finish if isinstance(reply, LastPiece) else None))


class FrontLedger:
    """Has answers recorded by the process of the ledger."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self._waiting: dict[int, asyncio.Future[Receipt]] = {}
        self._next = 0

    async def add(self, caller: Caller, spoken: Sequence[SpokenAnswer], seconds: float) -> None:
        """Returns when they are recorded."""
        told = await self._told(AnswerNote(caller, list(spoken), seconds))
        if told.error is not None:
            raise ApiError(told.error, status=500)

    async def finish(self, trace_id: str, rewards: Mapping[str, float] | None) -> tuple[str, int] | None:
        """The end of a trace: its name and how many calls it has; None where nothing was said in it."""
        told = await self._told(TraceEnd(trace_id, None if rewards is None else dict(rewards)))
        if told.error is not None:
            raise ApiError(told.error)
        return None if told.trace is None else (told.trace, told.calls)

    async def _told(self, note: LedgerNote) -> Receipt:
        assert self.link is not None
        self._next += 1
        future = self._waiting[self._next] = asyncio.get_running_loop().create_future()
        self.link.put(packed_note(self._next, note))
        return await future

    def take(self, reply: Receipt) -> None:
        """It is recorded."""
        future = self._waiting.pop(reply.number, None)
        if future is not None and not future.done():
            future.set_result(reply)
