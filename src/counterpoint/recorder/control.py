"""Steering a running team: at a safe point an agent gets the orders for it, and waits while it is paused.

Always true: every order reaches each agent that it concerns exactly once, in the order of sending; an agent acts on nothing
between an order and the safe point at which it gets it. With nothing ordered a safe point costs less than two microseconds: one
task looks at the size of the file for all agents. A recorded run gives its orders again at the keys at which it got them, and a
run that goes on after a crash gets new ones only where its recording ends.

At each safe point, before every model call and tool call, the runtime does

    n = 0
    while orders := await control.safe_point(agent, key):
        for order in orders:
            recorder.event(**order.event(agent, key, n))    # and an edge of type "message" to the agent's next event
            n += 1

and acts on messages and stops. A pause comes back at once, so that it is recorded when it takes effect; the next call waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, runtime_checkable

from counterpoint.errors import CounterpointError
from counterpoint.recorder.orders import OPERATOR, Order, control_path, read, recorded
from counterpoint.store import disk
from counterpoint.store.journal import path_of
from counterpoint.trace import Trace

POLL_S = 0.1


@runtime_checkable
class Control(Protocol):
    """Where a team's orders come from."""

    async def safe_point(self, agent: str, key: str) -> list[Order]:
        """The orders for this agent, before what has this key; waits while it is paused. Call again until there are none."""

    async def close(self) -> None:
        """Take no more orders; agents that are paused go on."""


class NoControl:
    """Nobody steers."""

    async def safe_point(self, agent: str, key: str) -> list[Order]:
        """Nothing."""
        return []

    async def close(self) -> None:
        """Nothing to let go of."""


class RecordedControl:
    """The orders of a recorded trace, again at the same keys; a pause takes no time."""

    def __init__(self, trace: Trace) -> None:
        self._left = orders_by_key(trace)

    async def safe_point(self, agent: str, key: str) -> list[Order]:
        """What this agent was told before this key."""
        return self._left.pop((agent, key), []) if self._left else []

    async def close(self) -> None:
        """Nothing to let go of."""


def orders_by_key(trace: Trace) -> dict[tuple[str, str], list[Order]]:
    """Agent and key to the orders that it got there, as they were numbered."""
    by_key: dict[tuple[str, str], list[tuple[int, Order]]] = {}
    for event, order in recorded(trace):
        key, _, rest = (event.key or "").rpartition(f"|{OPERATOR}|")
        if rest.isascii() and rest.isdigit() and event.to is not None:
            by_key.setdefault((event.to, key), []).append((int(rest), order))
    return {at: [order for _, order in sorted(pairs, key=lambda pair: pair[0])] for at, pairs in by_key.items()}


def _never() -> bool:
    return False


class FileControl:
    """Orders from the control file of a trace that is being recorded."""

    def __init__(
        self,
        store: str | os.PathLike[str],
        trace_id: str,
        *,
        so_far: Trace | None = None,
        is_over: Callable[[], bool] = _never,
        poll_s: float = POLL_S,
    ) -> None:
        """From here on the trace takes orders. `so_far` is what a run that is resumed has recorded; `is_over` ends every wait."""
        self._path, self._journal = control_path(store, trace_id), path_of(Path(store) / "journal", trace_id)
        self._is_over, self._poll_s = is_over, poll_s
        self._orders: list[Order] = []
        self._ids: set[str] = set()
        self._at = 0
        self._next: dict[str, int] = {}
        """Agent to the place of the first order that it has not been asked about."""
        self._paused: set[str] = set()
        self._stopped: set[str] = set()
        self._again = {} if so_far is None else orders_by_key(so_far)
        self._past = frozenset() if so_far is None else frozenset(event.key for event in so_far.events)
        self._replayed = frozenset((order.id, agent) for (agent, _), orders in self._again.items() for order in orders)
        self._is_quiet = self._is_closed = False
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        with disk.translate_errors(self._path):
            disk.make_folder(self._path.parent)
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))

    async def safe_point(self, agent: str, key: str) -> list[Order]:
        """The orders for this agent; waits while it is paused."""
        if self._is_quiet or (self._next.get(agent) == len(self._orders) and not (self._again or agent in self._paused)):
            return []
        if self._task is None and not self._is_closed:
            self._look()
            self._task = asyncio.get_running_loop().create_task(self._watch())
        if self._again and (again := self._again.pop((agent, key), None)) is not None:
            self._mark(agent, again)
            return again
        if key in self._past:  # what comes next has happened already: an order now would change the past
            return []
        while True:
            due = self._due(agent)
            if due or agent not in self._paused or self._is_closed or self._is_over():
                return due
            await self._news.wait()

    async def close(self) -> None:
        """Take no more orders: agents that are paused go on, and a file that nobody needs any more is removed."""
        self._is_closed = True
        self._is_quiet = False
        self._news.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            if not self._path.stat().st_size or not self._journal.exists():
                disk.remove(self._path)
        except OSError:  # gone already, or not ours to remove: an old file harms nobody
            return

    def _due(self, agent: str) -> list[Order]:
        """The next orders for an agent, up to a pause or a stop; for one that is paused nothing before something releases it."""
        first = self._next.get(agent, 0)
        places = [
            place
            for place, order in enumerate(self._orders[first:], first)
            if order.concerns(agent) and (order.id, agent) not in self._replayed
        ]
        if agent in self._paused and not any(self._orders[place].action in ("resume", "stop") for place in places):
            return []
        due, upto = [], len(self._orders)
        for place in places:
            due.append(self._orders[place])
            if self._orders[place].action in ("pause", "stop"):  # what comes after is for the next call, if there is one
                upto = place + 1
                break
        self._mark(agent, due)
        self._next[agent] = upto
        return due

    def _mark(self, agent: str, orders: Iterable[Order]) -> None:
        """Whether an agent waits after these."""
        for order in orders:
            if order.action == "stop":
                self._stopped.add(agent)
            if order.action == "pause" and agent not in self._stopped:
                self._paused.add(agent)
            elif order.action in ("resume", "stop"):
                self._paused.discard(agent)

    async def _watch(self) -> None:
        """One task for all agents: what was sent, and whether the time is over."""
        while True:
            await asyncio.sleep(self._poll_s)
            if self._look() or (self._paused and self._is_over()):
                news, self._news = self._news, asyncio.Event()
                news.set()

    def _look(self) -> bool:
        """Read what was added to the file; whether there was anything."""
        count = len(self._orders)
        try:
            size = self._path.stat().st_size
            if size < self._at:
                self._at = 0
            if size > self._at:
                orders, self._at = read(self._path, self._at)
                fresh = {order.id: order for order in orders if order.id and order.id not in self._ids}
                self._ids |= fresh.keys()
                self._orders += fresh.values()
        except (OSError, CounterpointError):  # gone or not readable now: the next look may find it
            pass
        self._is_quiet = not (self._orders or self._again or self._paused or self._is_closed)
        return len(self._orders) > count
