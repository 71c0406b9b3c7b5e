"""The endpoint that a person's own team speaks to while its model learns: one address for each worker, one model for all names.

Always true: what is answered at a worker's address belongs to the rollout that this worker plays; while nothing is played there,
nothing is answered. Whatever the code asks for, an answer in training is drawn at the run's temperature with nothing cut off, so
that its log-probabilities are the policy's; its seed is of the rollout, of what was read, and of how often that was asked.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

import counterpoint.registry as registry
from counterpoint.errors import InputError, install
from counterpoint.lab.lm.engine_thread import EngineThread, Load
from counterpoint.lab.lm.serving.backend import EngineBackend, Served, SpokenAnswer
from counterpoint.lab.lm.serving.callers import Caller, asking
from counterpoint.lab.lm.serving.requests import ApiError, json_object
from counterpoint.lab.train.lm.own_calls import AnsweredCall
from counterpoint.lab.train.lm.own_rollout import OwnRollout

_NAME = "policy"
"""What the model is called here, whatever the code calls it."""
_DROPPED = ("top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "response_format")
"""What our engine does not do: the model learns the form that the code can read, and what else these would give it."""


@dataclass
class _Slot:
    """One worker's address."""

    number: int
    rollout: OwnRollout
    under_way: int = 0
    calls: list[AnsweredCall] = field(default_factory=list)
    seen: Counter[bytes] = field(default_factory=Counter)


class OwnEndpoint:
    """An endpoint of this process; a backend and a ledger of `model_server`."""

    def __init__(self, load: Load, *, slots: int, most: int, host: str = "127.0.0.1") -> None:
        """`load` gives the tokeniser and the engines; `most` is the most tokens that an answer may have."""
        self.thread = EngineThread(load, slots=slots)
        self.key = secrets.token_urlsafe(24)
        self._most, self._host, self._lock = most, host, threading.Lock()
        self._slots: dict[str, _Slot] = {}
        self._inner = EngineBackend(self.thread, _NAME)
        self._server: Any = None

    def start(self) -> None:
        """Load the model and answer from now on."""
        try:
            serve = registry.hook("model_endpoint", "a model is served")
        except ImportError as error:
            raise InputError(f"an endpoint needs starlette and uvicorn: {error}", fix=install("view")) from error
        self._server = serve(self, self, host=self._host, token=self.key)

    def close(self) -> None:
        """Answer no longer."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.thread.close()

    def url(self, slot: str) -> str:
        """The address that a worker is given."""
        return f"{self._server.url}/trace/{slot}/v1"

    def at_rest(self, work: Any) -> None:
        """Have the engines worked on between two calls: new weights, for instance."""
        self.thread.between(work).result()

    # -- which rollout is where

    def begin(self, slot: str, number: int, rollout: OwnRollout) -> None:
        """A worker plays this from now on."""
        with self._lock:
            self._slots[slot] = _Slot(number, rollout)

    def end(self, slot: str) -> tuple[list[AnsweredCall], int]:
        """It plays no longer: what was answered, and how many calls it has left under way."""
        with self._lock:
            found = self._slots.pop(slot, None)
        return ([], 0) if found is None else (found.calls, found.under_way)

    # -- what the server asks of a backend

    @property
    def models(self) -> list[str]:
        """What `/v1/models` lists."""
        return [_NAME]

    async def open(self) -> None:
        """Load the model."""
        await self._inner.open()

    async def answer(self, kind: str, body: bytes, *, is_recorded: bool = False) -> Served:
        """The answer to a request."""
        asked, name = json_object(body), asking.get().trace or ""
        with self._lock:
            slot = self._slots.get(name)
            if slot is None:
                raise ApiError("no team is played at this address: it has ended", status=409, code="ended")
            self._decide(asked, slot)
            slot.under_way += 1
        is_stream = False
        try:
            served = await self._inner.answer(kind, msgspec.json.encode(asked), is_recorded=True)
            is_stream = served.pieces is not None
        finally:
            if not is_stream:
                self._less(slot)
        return Served(served.body, served.spoken, self._counted(served.pieces, slot)) if served.pieces is not None else served

    async def _counted(
        self, pieces: AsyncIterator[tuple[bytes, Sequence[SpokenAnswer]]], slot: _Slot
    ) -> AsyncIterator[tuple[bytes, Sequence[SpokenAnswer]]]:
        try:
            async for piece in pieces:
                yield piece
        finally:
            self._less(slot)

    def _less(self, slot: _Slot) -> None:
        with self._lock:
            slot.under_way -= 1

    def _decide(self, asked: dict[str, Any], slot: _Slot) -> None:
        """How it is drawn, and how much may be written."""
        rollout, read = slot.rollout, asked.get("messages") or asked.get("prompt")
        heat = asked.get("temperature")
        digest = hashlib.blake2b(msgspec.json.encode([read, asked.get("tools"), asked.get("seed")]), digest_size=16).digest()
        slot.seen[digest] += 1
        key = b"%d|%s|%d" % (rollout.seed, digest.hex().encode(), slot.seen[digest])
        asked["seed"] = int.from_bytes(hashlib.blake2b(key, digest_size=7).digest())
        asked["model"] = _NAME
        for name in _DROPPED:
            asked.pop(name, None)
        most = asked.pop("max_completion_tokens", None) or asked.get("max_tokens")
        asked["max_tokens"] = min(most, self._most) if isinstance(most, int) else self._most
        if rollout.temperature is not None:
            asked["temperature"] = rollout.temperature
            asked.pop("top_p", None)  # a cut distribution is not the policy's
        elif heat is None:
            asked["temperature"] = 1.0

    # -- what the server asks of a ledger

    def add(self, caller: Caller, spoken: SpokenAnswer, seconds: float) -> None:
        """A call was answered."""
        rollout, _, number = (caller.event or "").partition(".")
        with self._lock:
            slot = self._slots.get(caller.trace or "")
            if slot is None or (rollout.isdigit() and int(rollout) != slot.number):
                return  # of a rollout that has ended
            known = int(number) if number.isdigit() else None
            spoken = replace(spoken, version=slot.rollout.version)
            slot.calls.append(AnsweredCall(known, caller, spoken, seconds, time.monotonic()))

    def finish(self, trace_id: str, rewards: Any = None, meta: Any = None) -> None:
        """A team's end is told by its worker."""

    def sweep(self) -> list[str]:
        """Nothing idles here."""
        return []
