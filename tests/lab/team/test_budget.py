"""The meter and the rate limits: their laws over random histories, and what they do to a model's calls."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.errors import InputError
from counterpoint.formats.importing.usage import Price
from counterpoint.lab.lm.budget import Budget, Meter, Metered, Reservation, Spending, prompt_tokens_of, tokens_of
from counterpoint.lab.lm.endpoint import Bucket, Rates
from counterpoint.lab.lm.model import BudgetExhausted, Call, Completion, Message, Model, ModelFailed

CALL = Call(messages=(Message("user", "x" * 30),), max_tokens=10)  # 10 + 2 * 8 + 10 = 36 tokens are reserved


class Scripted:
    """A model that takes as many tokens as it is told, or fails as it is told."""

    name, version = "scripted", "1"

    def __init__(self, took: Callable[[Call], Awaitable[Completion]], price: Price | None = None) -> None:
        self._took, self.price = took, price
        self.begun = 0
        self.is_closed = False

    async def complete(self, call: Call) -> Completion:
        self.begun += 1
        return await self._took(call)

    async def close(self) -> None:
        self.is_closed = True


def taking(tokens_in: int | None, tokens_out: int | None, **rest: Any) -> Callable[[Call], Awaitable[Completion]]:
    async def took(call: Call) -> Completion:
        await asyncio.sleep(0)
        return Completion(text="NOOP", tokens_in=tokens_in, tokens_out=tokens_out, **rest)

    return took


def failing(kind: Any, lost: int | None = None) -> Callable[[Call], Awaitable[Completion]]:
    async def took(call: Call) -> Completion:
        error = ModelFailed(kind, "it failed")
        if lost is not None:
            error.lost = lost  # type: ignore[attr-defined]
        raise error

    return took


def spend(model: Metered, calls: int) -> list[Any]:
    async def run() -> list[Any]:
        return await asyncio.gather(*(model.complete(CALL) for _ in range(calls)), return_exceptions=True)

    return asyncio.run(run())


# ---- the meter's laws

HISTORY = st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1), st.integers(0, 3)), max_size=40)
"""Calls: tokens reserved, the share of it that is taken, and how many turns it lasts."""


@given(HISTORY, st.integers(0, 200))
def test_calls_within_their_reservations_never_spend_more_than_the_budget(history: list[tuple[int, float, int]], limit: int) -> None:
    meter = Meter(Budget(tokens=limit))
    granted: list[int] = []

    async def call(k: int, reservation: Reservation, share: float, turns: int) -> int:
        await meter.reserve(reservation)
        granted.append(k)
        assert meter.spending.tokens + meter.reservation.tokens <= limit
        for _ in range(turns):
            await asyncio.sleep(0)
        took = int(reservation.tokens * share)
        meter.settle(reservation, took)
        return took

    async def run() -> list[Any]:
        tasks = (call(k, Reservation(need), share, turns) for k, (need, share, turns) in enumerate(history))
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 300)

    found = asyncio.run(run())
    took = [f for f in found if not isinstance(f, BaseException)]
    assert all(isinstance(f, int | BudgetExhausted) for f in found)
    assert meter.spending.tokens == sum(took) <= limit
    assert (meter.spending.calls, meter.reservation.tokens) == (len(took), 0)
    assert granted == sorted(granted), "who comes first goes first"
    refused = [need for (need, _, _), f in zip(history, found, strict=True) if isinstance(f, BudgetExhausted)]
    assert all(meter.spending.tokens + need > limit for need in refused), "a call that could be paid for was refused"


@given(HISTORY, st.integers(0, 200), st.integers(0, 25))
def test_the_excess_is_at_most_what_calls_took_beyond_their_reservations(history: list[tuple[int, float, int]], limit: int, more: int) -> None:
    meter = Meter(Budget(tokens=limit))
    excess = 0

    async def call(reservation: Reservation, turns: int) -> None:
        nonlocal excess
        await meter.reserve(reservation)
        await asyncio.sleep(turns * 0)
        excess += more
        meter.settle(reservation, reservation.tokens + more)

    async def run() -> None:
        await asyncio.gather(*(call(Reservation(need), turns) for need, _, turns in history), return_exceptions=True)

    asyncio.run(run())
    assert meter.spending.tokens <= limit + excess


@given(HISTORY, st.integers(1, 200), st.sets(st.integers(0, 39)))
def test_calls_that_are_cancelled_leave_nothing_behind(history: list[tuple[int, float, int]], limit: int, stopped: set[int]) -> None:
    meter = Meter(Budget(tokens=limit))

    async def call(reservation: Reservation, turns: int) -> None:
        await meter.reserve(reservation)
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
        finally:
            meter.settle(reservation, 0)

    async def run() -> list[Any]:
        tasks = [asyncio.ensure_future(call(Reservation(need), turns)) for need, _, turns in history]
        await asyncio.sleep(0)
        for k, task in enumerate(tasks):
            if k in stopped:
                task.cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 300)

    found = asyncio.run(run())
    assert meter.reservation == Reservation(0, 0.0)
    assert not meter._waiting
    kept = [(need, f) for k, ((need, _, _), f) in enumerate(zip(history, found, strict=True)) if k not in stopped]
    assert all(f is None for need, f in kept if need <= limit), "a call was not served though nothing was spent"


def test_a_call_cancelled_as_its_turn_came_gives_back_what_was_reserved() -> None:
    async def run() -> Reservation:
        meter = Meter(Budget(tokens=10))
        await meter.reserve(Reservation(10))
        second = asyncio.ensure_future(meter.reserve(Reservation(8)))
        await asyncio.sleep(0)
        meter.settle(Reservation(10), 0)
        assert meter.reservation == Reservation(8)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        return meter.reservation

    assert asyncio.run(run()) == Reservation(0)


def test_a_call_that_gives_up_makes_way_for_those_behind() -> None:
    async def run() -> None:
        meter = Meter(Budget(tokens=10))
        await meter.reserve(Reservation(5))
        large = asyncio.ensure_future(meter.reserve(Reservation(8)))
        small = asyncio.ensure_future(meter.reserve(Reservation(5)))
        await asyncio.sleep(0)
        assert not small.done()
        large.cancel()
        await asyncio.wait_for(small, 300)

    asyncio.run(run())


# ---- a model on a meter


def test_a_thousand_calls_at_once_end_with_the_budget() -> None:
    model = Scripted(taking(20, 5))
    found = spend(Metered(model, meter := Meter(Budget(tokens=10_000))), 1000)
    served = [f for f in found if isinstance(f, Completion)]
    # Each takes 25 where 36 were reserved: the last is served when 36 are left, not only 25.
    assert len(served) == (10_000 - 36) // 25 + 1 == model.begun
    assert meter.spending.tokens == 25 * len(served)
    errors = [f for f in found if not isinstance(f, Completion)]
    assert all(isinstance(e, BudgetExhausted) and e.kind == "budget" for e in errors)
    assert "9,975 of 10,000 used, next call up to 36" in str(errors[-1])


def test_what_is_not_known_counts_as_reserved() -> None:
    spend(Metered(Scripted(taking(None, 5)), meter := Meter(Budget(tokens=1000))), 3)
    assert (meter.spending.tokens, meter.spending.unknown) == (3 * tokens_of(CALL), 3)


@pytest.mark.parametrize(("kind", "tokens"), [("down", 0), ("rate", 0), ("too long", 0), ("cut", 36), ("slow", 36), ("empty", 36)])
def test_a_failed_call_counts_where_the_model_may_have_worked(kind: str, tokens: int) -> None:
    (found,) = spend(Metered(Scripted(failing(kind)), meter := Meter(Budget(tokens=1000))), 1)
    assert isinstance(found, ModelFailed)
    assert (meter.spending.tokens, meter.reservation.tokens) == (tokens, 0)


def test_attempts_that_broke_off_count_each() -> None:
    spend(Metered(Scripted(failing("rate", lost=2)), meter := Meter(Budget(tokens=1000))), 1)
    assert meter.spending.tokens == 2 * 36
    spend(Metered(Scripted(taking(20, 5, extra={"lost": 3})), meter := Meter(Budget(tokens=1000))), 1)
    assert meter.spending.tokens == 3 * 36 + 25


def test_dollars_are_reserved_at_the_price_and_settled_at_the_cost() -> None:
    price = Price(1e6, 1e6, 0, 0)  # a dollar for each token
    found = spend(Metered(Scripted(taking(20, 5, cost_usd=25.0), price), meter := Meter(Budget(usd=100.0))), 10)
    assert sum(isinstance(f, Completion) for f in found) == 3
    assert meter.spending.usd == 75.0
    assert "$75.0000 of $100.0000 used, next call up to $36.0000" in str(found[-1])


def test_dollars_need_a_price() -> None:
    with pytest.raises(InputError, match="needs the price of scripted"):
        Metered(Scripted(taking(1, 1)), Meter(Budget(usd=1.0)))


def test_time_ends_calls_that_wait_and_those_under_way() -> None:
    async def forever(call: Call) -> Completion:
        await asyncio.sleep(60)
        raise AssertionError

    meter = Meter(Budget(seconds=0.05, tokens=40))
    found = spend(Metered(Scripted(forever), meter), 3)
    assert all(isinstance(f, BudgetExhausted) and "0.05 seconds" in str(f) for f in found)
    assert meter.reservation.tokens == 0
    assert meter.spending.unknown == 1
    (late,) = spend(Metered(Scripted(taking(1, 1)), meter), 1)
    assert isinstance(late, BudgetExhausted)


def test_a_run_that_is_resumed_goes_on_with_what_it_had_spent() -> None:
    meter = Meter(Budget(tokens=100, seconds=10), before=Spending(tokens=60, seconds=4.0), now=lambda: 1000.0)
    assert meter.remaining_seconds() == 6.0
    assert [type(f) for f in spend(Metered(Scripted(taking(20, 5)), meter), 2)] == [Completion, BudgetExhausted]
    assert (meter.spending.tokens, meter.spending.seconds) == (85, 4.0)


def test_a_metered_model_is_a_model() -> None:
    model = Scripted(taking(1, 1))
    metered = Metered(model, Meter(Budget()))
    assert isinstance(metered, Model)
    assert (metered.name, metered.version, metered.inner) == ("scripted", "1", model)
    asyncio.run(metered.close())
    assert model.is_closed


@pytest.mark.parametrize("wrong", [{"tokens": -1}, {"usd": float("nan")}, {"seconds": float("inf")}])
def test_a_budget_is_a_number(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="not negative"):
        Budget(**wrong)


def test_the_estimate_of_a_prompt_is_rather_too_high() -> None:
    english = "The firm signed the contract on the third of May, and the second version supersedes it. " * 20
    assert prompt_tokens_of(Call(messages=(Message("user", english),))) > len(english) / 4
    assert prompt_tokens_of(Call(messages=(Message("user", "\ud800"),))) > 0


# ---- the bucket's laws

ARRIVALS = st.lists(st.tuples(st.floats(0, 20), st.floats(0, 8)), max_size=40)


@given(ARRIVALS, st.floats(0.5, 600), st.floats(1, 20))
def test_no_window_lets_more_through_than_burst_and_rate(arrivals: list[tuple[float, float]], per_minute: float, burst: float) -> None:
    t = 0.0
    bucket = Bucket(per_minute, burst=burst, now=lambda: t)
    granted: list[tuple[float, float]] = []
    for gap, amount in arrivals:
        t += gap
        granted.append((t + bucket.wait(amount), amount))
    times = [when for when, _ in granted]
    assert all(b >= a - 1e-6 for a, b in itertools.pairwise(times)), "who comes first goes first"
    largest = max([burst, *(amount for _, amount in granted)])
    for k in range(len(granted)):
        total = 0.0
        for when, amount in granted[k:]:
            total += amount
            assert total <= largest + bucket.rate * (when - times[k]) + 1e-6 * (1 + total)


@given(ARRIVALS, st.floats(0.5, 600))
def test_nobody_waits_longer_than_those_before_need(arrivals: list[tuple[float, float]], per_minute: float) -> None:
    t, total = 0.0, 0.0
    bucket = Bucket(per_minute, now=lambda: t)
    for gap, amount in arrivals:
        t += gap
        total += amount
        assert bucket.wait(amount) <= total / bucket.rate + 1e-6


def test_a_burst_and_then_an_even_rate() -> None:
    bucket = Bucket(60, now=lambda: 0.0)
    assert [bucket.wait() for _ in range(9)] == [0, 0, 0, 0, 0, 0, 1, 2, 3]


def test_a_thousand_tasks_go_in_order_and_in_time() -> None:
    done: list[int] = []
    waiting: list[float] = []

    async def sleep(seconds: float) -> None:
        waiting.append(seconds)
        await asyncio.sleep(0)

    async def one(rates: Rates, k: int) -> None:
        await rates.turn(200)
        done.append(k)

    async def run() -> None:
        rates = Rates(rpm=600, tpm=60_000, now=lambda: 0.0, sleep=sleep)
        await asyncio.gather(*(one(rates, k) for k in range(1000)))

    asyncio.run(run())
    assert done == list(range(1000))
    # 6,000 tokens at once, then 1,000 a second: 30 calls go at once, the last after (200,000 - 6,000) / 1,000 s.
    assert len(waiting) == 970
    assert waiting[-1] == pytest.approx(194.0)


def test_a_pause_holds_everybody_and_the_longest_counts() -> None:
    t = 0.0
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal t
        slept.append(seconds)
        t += seconds

    async def run() -> None:
        rates = Rates(now=lambda: t, sleep=sleep)
        await rates.turn(1)
        rates.pause(5.0)
        rates.pause(2.0)
        await rates.turn(1)
        await rates.turn(1)

    asyncio.run(run())
    assert slept == [5.0]
