"""What a team may spend: tokens, dollars and seconds, reserved before each model call and settled after it.

Always true: settled + reserved never exceeds the budget at the moment of a reservation, so calls that take no more than was
reserved for them never spend more than the budget, however many run at once. A call takes more than its reservation only where
its prompt has more tokens than `tokens_of` estimates, or where attempts broke off and were made again. What is not known is
counted as reserved, never as zero. Waiting calls are served in the order in which they came.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterpoint.errors import InputError
from counterpoint.lab.lm.model import BudgetExhausted, Call, Completion, Model, ModelFailed

if TYPE_CHECKING:
    from counterpoint.formats.importing.usage import Price

_BYTES_PER_TOKEN = 3
"""English has more than 4 in common vocabularies, source code and most other languages more than 3."""
_TOKENS_PER_MESSAGE = 8
"""What a chat template writes around a message."""
_FREE = frozenset({"down", "rate", "refused", "too long", "budget"})
"""Failures in which the model did no work."""


def prompt_tokens_of(call: Call) -> int:
    """An estimate of the tokens of a prompt, rather too high than too low."""
    size = sum(len(m.text.encode("utf-8", "replace")) + sum(len(str(c)) for c in m.calls) for m in call.messages)
    size += sum(len(str(t)) for t in call.tools)
    return math.ceil(size / _BYTES_PER_TOKEN) + _TOKENS_PER_MESSAGE * (len(call.messages) + 1)


def tokens_of(call: Call) -> int:
    """The tokens that a call is reserved: the prompt as estimated, and all that may be answered."""
    return prompt_tokens_of(call) + call.max_tokens


@dataclass(frozen=True)
class Budget:
    """What may be spent; None means without limit."""

    tokens: int | None = None
    """Input and output together."""
    usd: float | None = None
    seconds: float | None = None
    """Wall-clock time from the meter's start."""

    def __post_init__(self) -> None:
        for name, value in (("tokens", self.tokens), ("usd", self.usd), ("seconds", self.seconds)):
            if value is not None and not 0 <= value < math.inf:
                raise InputError(f"a budget of {value} {name}", fix="give a number that is not negative, or leave it out")


@dataclass(frozen=True)
class Spending:
    """Tokens, dollars, time and calls."""

    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    calls: int = 0
    unknown: int = 0
    """Calls of which the model did not say what they took, counted as what was reserved for them."""


@dataclass(frozen=True)
class Reservation:
    """What is reserved for one call."""

    tokens: int
    usd: float = 0.0


class Meter:
    """Reserves and settles for all calls of a team."""

    def __init__(self, budget: Budget, *, before: Spending | None = None, now: Callable[[], float] = time.monotonic) -> None:
        """`before`: what a resumed run has spent already."""
        self.budget = budget
        self._spending, self._now = before or Spending(), now
        self._begin = now() - self._spending.seconds
        self._held_tokens, self._held_usd, self._under_way = 0, 0.0, 0
        self._waiting: deque[tuple[Reservation, asyncio.Future[None]]] = deque()

    @property
    def spending(self) -> Spending:
        """What is settled, and the time that has passed."""
        s = self._spending
        return Spending(s.tokens, s.usd, max(0.0, self._now() - self._begin), s.calls, s.unknown)

    @property
    def reservation(self) -> Reservation:
        """What is reserved for the calls under way."""
        return Reservation(self._held_tokens, self._held_usd)

    def remaining_seconds(self) -> float | None:
        """The time until the budget ends; None without a limit."""
        limit = self.budget.seconds
        return None if limit is None else max(0.0, limit - (self._now() - self._begin))

    async def reserve(self, reservation: Reservation) -> None:
        """Wait until the call can be paid for; raises `BudgetExhausted` when it never can."""
        error = self._never(reservation)
        if error is not None:
            raise error
        if not self._waiting and self._fits(reservation):
            self._take(reservation)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (reservation, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release(reservation)  # its turn came as it was cancelled
            elif entry in self._waiting:
                self._waiting.remove(entry)
                self._wake()
            raise

    def settle(self, reservation: Reservation, tokens: int | None = None, usd: float | None = None, *, lost: int = 0) -> None:
        """A call has ended and took this much; `lost` attempts before it broke off and count as reserved, each."""
        is_unknown = lost > 0 or tokens is None or (usd is None and self.budget.usd is not None)
        s = self._spending
        self._spending = Spending(
            s.tokens + (reservation.tokens if tokens is None else tokens) + lost * reservation.tokens,
            s.usd + (reservation.usd if usd is None else usd) + lost * reservation.usd,
            calls=s.calls + 1,
            unknown=s.unknown + is_unknown,
        )
        self.release(reservation)

    def release(self, reservation: Reservation) -> None:
        """A call has ended, or never began, and took nothing."""
        self._under_way -= 1
        self._held_tokens -= reservation.tokens
        # A sum of floats that has been taken away again need not be zero.
        self._held_usd = self._held_usd - reservation.usd if self._under_way else 0.0
        self._wake()

    def _take(self, reservation: Reservation) -> None:
        self._under_way += 1
        self._held_tokens += reservation.tokens
        self._held_usd += reservation.usd

    def _wake(self) -> None:
        while self._waiting:
            reservation, turn = self._waiting[0]
            error = None if turn.done() else self._never(reservation)
            if turn.done():
                pass
            elif error is not None:
                turn.set_exception(error)
            elif self._fits(reservation):
                self._take(reservation)
                turn.set_result(None)
            else:
                return
            self._waiting.popleft()

    def _fits(self, reservation: Reservation) -> bool:
        b, s = self.budget, self._spending
        fits_tokens = b.tokens is None or s.tokens + self._held_tokens + reservation.tokens <= b.tokens
        return fits_tokens and (b.usd is None or s.usd + self._held_usd + reservation.usd <= b.usd)

    def _never(self, reservation: Reservation) -> BudgetExhausted | None:
        """Why a call can't be paid for even when all others took nothing more."""
        b, s = self.budget, self._spending
        if b.tokens is not None and s.tokens + reservation.tokens > b.tokens:
            what = f"the token budget is exhausted: {s.tokens:,} of {b.tokens:,} used, next call up to {reservation.tokens:,}"
            return BudgetExhausted(what, fix="raise the budget of tokens")
        if b.usd is not None and s.usd + reservation.usd > b.usd:
            what = f"the dollar budget is exhausted: ${s.usd:.4f} of ${b.usd:.4f} used, next call up to ${reservation.usd:.4f}"
            return BudgetExhausted(what, fix="raise the budget of dollars")
        if self.remaining_seconds() == 0.0:
            return _out_of_time(b)
        return None


class Metered:
    """A model whose calls are paid from a meter; itself a `Model`."""

    def __init__(self, model: Model, meter: Meter) -> None:
        self._model, self.meter = model, meter
        self._price: Price | None = getattr(model, "price", None)
        if meter.budget.usd is not None and self._price is None:
            fix = "give its price (dollars per million tokens), or a budget of tokens"
            raise InputError(f"a budget in dollars needs the price of {model.name}", fix=fix)

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def version(self) -> str:
        """The model's version."""
        return self._model.version

    @property
    def price(self) -> Price | None:
        """The model's price, where it has one."""
        return self._price

    @property
    def inner(self) -> Model:
        """The model itself."""
        return self._model

    async def complete(self, call: Call) -> Completion:
        """Answer, if it can be paid for; raises `BudgetExhausted` when it cannot, or when the time ends in the middle."""
        try:
            async with asyncio.timeout(self.meter.remaining_seconds()) as limit:
                return await self._complete_and_pay(call)
        except TimeoutError:
            if not limit.expired():
                raise
        raise _out_of_time(self.meter.budget)

    async def _complete_and_pay(self, call: Call) -> Completion:
        reservation = self._reservation(call)
        await self.meter.reserve(reservation)
        try:
            answer = await self._model.complete(call)
        except ModelFailed as failed:
            lost = getattr(failed, "lost", 0 if failed.kind in _FREE else 1)
            self.meter.settle(reservation, 0, 0.0, lost=lost)
            raise
        except BaseException:
            self.meter.settle(reservation)  # stopped in the middle: nobody knows how far it came
            raise
        known = None if answer.tokens_in is None or answer.tokens_out is None else answer.tokens_in + answer.tokens_out
        lost = answer.extra.get("lost", 0)
        self.meter.settle(reservation, known, answer.cost_usd, lost=lost if isinstance(lost, int) else 0)
        return answer

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()

    def _reservation(self, call: Call) -> Reservation:
        prompt, price = prompt_tokens_of(call), self._price
        usd = 0.0 if price is None else (prompt * price.input + call.max_tokens * price.output) / 1e6
        return Reservation(prompt + call.max_tokens, usd)


def _out_of_time(budget: Budget) -> BudgetExhausted:
    return BudgetExhausted(f"the time budget is exhausted: {budget.seconds:g} seconds", fix="raise the budget of seconds")
