"""Orders to a team that is still running, tried before anybody sends one: its recording played on to the end, with and without.

Always true: nothing is sent and nothing is written; the journal so far answers what it can, and what comes after it is drawn
afresh, the same with and without the order. An order reaches each agent at its first safe point after the recording ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from counterpoint.credits.advice import Change
from counterpoint.credits.forks import fork_seeds
from counterpoint.errors import NotIdentified
from counterpoint.lab.lm.model import Model
from counterpoint.lab.team.edits import Edits
from counterpoint.lab.team.memory import Memory
from counterpoint.lab.team.session import Spec, assemble, check_same, drawing_seed, make_model, play_to_trace
from counterpoint.recorder.control import RecordedControl
from counterpoint.recorder.orders import Order
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder
from counterpoint.trace import Trace
from counterpoint.trace.keys import REPLAY
from counterpoint.trace.line_records import OPEN_EVENTS, UNFINISHED


class OrderedControl(RecordedControl):
    """The orders of a recording at their places, and one more where it ends."""

    def __init__(self, so_far: Trace, order: Order | None) -> None:
        super().__init__(so_far)
        self._past = frozenset(event.key for event in so_far.events)
        self._order, self._told = order, set[str]()

    async def safe_point(self, agent: str, key: str) -> list[Order]:
        """What was recorded; after the recording the order, once for each agent that it concerns."""
        again = await super().safe_point(agent, key)
        if again or self._order is None or key in self._past or agent in self._told or not self._order.concerns(agent):
            return again
        self._told.add(agent)
        return [self._order]


class OrderTrials:
    """Trials of orders on one running team."""

    def __init__(
        self, trace: Trace, *, make: Callable[[], Model] | None = None, say: Sequence[str] = (), agent: str = "", seed: int = 0
    ) -> None:
        """`say` are messages to try, to `agent` or to everybody."""
        if not isinstance(trace.meta.get("team"), dict):
            fix = "advise a team of `counterpoint play`, which its recording can continue"
            if REPLAY in trace.meta:
                fix = f"when it has ended, counterpoint advise {trace.trace_id} --team my.py:team tries changes of your own team"
            raise NotIdentified("nothing says how this team would continue", fix, where=trace.trace_id)
        if not trace.meta.get(UNFINISHED):
            fix = f"counterpoint advise {trace.trace_id}"
            raise NotIdentified("this run is over: no agent takes orders", fix, where=trace.trace_id)
        self.trace, self.spec, self._make = trace, Spec.of(trace.meta["team"]), make
        self.spec.check_consent((), where=trace.trace_id, with_model=False, is_fork=True)
        self.orders = _orders(trace, say, agent)
        self.changes: Sequence[Change] = [Change(o.action, _words(o), do=None) for o in self.orders]
        self._seeds, self._plain = fork_seeds(seed, trace, 512), dict[int, float]()

    def order_of(self, change: Change) -> Order:
        """The order that a change stands for."""
        return self.orders[list(self.changes).index(change)]

    def gains(self, change: Change, start: int, count: int) -> list[float]:
        """Pairs of endings on the same fresh draws."""
        return asyncio.run(self._gains(self.order_of(change), [k % len(self._seeds) for k in range(start, start + count)]))

    def tokens(self, change: Change) -> int:
        """What the run has spent so far: nothing says how much is still to come."""
        return sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in self.trace.events)

    def apply(self, change: Change) -> Trace:
        """How the run would end on its own draws, the order given."""
        return asyncio.run(self._played(self.order_of(change), None))

    async def _gains(self, order: Order, trials: Sequence[int]) -> list[float]:
        out = []
        for k in trials:
            if k not in self._plain:
                self._plain[k] = float((await self._played(None, self._seeds[k])).rewards["team"])
            out.append(float((await self._played(order, self._seeds[k])).rewards["team"]) - self._plain[k])
        return out

    async def _played(self, order: Order | None, seed: int | None) -> Trace:
        task, sink = self.spec.make_task(), MemorySink()
        model: Any = self._make() if self._make is not None else make_model(self.spec.model, task, **self.spec.options)
        edits = Edits(drawing_seed(self.trace.meta, self.spec))
        if seed is not None:
            edits.fresh.append((frozenset(e.key for e in self.trace.events if e.key is not None), seed))
        team = assemble(
            self.spec,
            task,
            task.instance(self.spec.seed),
            model,
            Recorder(sink, LogicalClock()),
            control=OrderedControl(self.trace, order),
            edits=edits,
            memory=Memory.of(self.trace, frozenset(self.trace.meta.get(OPEN_EVENTS, ()))),
            consent=frozenset(),
        )
        check_same(self.trace, task, model, team.harness)
        try:
            return await play_to_trace(team, self.spec, sink, trace_id=f"{self.trace.trace_id}~ordered")
        finally:
            await model.close()


def _orders(trace: Trace, say: Sequence[str], agent: str) -> list[Order]:
    """Stop everybody; stop each agent that has not returned; say what somebody wants to try."""
    name: dict[str, Any] = {"id": "advice", "by": "advice"}
    born = [e.to for e in trace.events if e.type == "spawn" and e.to]
    out = [Order(action="stop", **name), *(Order(action="stop", agent=one, **name) for one in born)]
    return out + [Order(action="message", agent=agent, text=text, **name) for text in say]


def _words(order: Order) -> str:
    return f"{order.action} {order.whom}" + (f": {order.text}" if order.text else "")
