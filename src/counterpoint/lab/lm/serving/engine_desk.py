"""The engine's side of front ends: their calls go to the engine's thread, and what it tells goes back to who asked.

Always true: what a pass brings goes out when the pass ends, to each front end at once; the calls of a front end that is gone are
computed for no longer. What is to be recorded is, in its order, before it is said to be.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from counterpoint.errors import CounterpointError
from counterpoint.lab.lm.engine import Ask
from counterpoint.lab.lm.engine_thread import EngineThread
from counterpoint.lab.lm.model import ModelFailed
from counterpoint.lab.lm.sampling import Start
from counterpoint.lab.lm.serving.jobs import News, ToldCall
from counterpoint.lab.lm.serving.link import Link
from counterpoint.lab.lm.serving.messages import (
    Asked,
    Dropped,
    Ended,
    Failed,
    Recorded,
    Settled,
    Spoken,
    Written,
    floats,
    ints,
)

if TYPE_CHECKING:
    from counterpoint.lab.lm.serving.ledger import Ledger


class _FrontCall(ToldCall):
    """A call of a front end."""

    def __init__(self, desk: EngineDesk, asked: Asked) -> None:
        ask = Ask(
            prompt=np.frombuffer(asked.prompt, np.int32), most=asked.most, temperature=asked.temperature, seed=asked.seed,  # type: ignore[arg-type]
            starts=tuple(Start(tuple(ids), then) for ids, then in asked.starts), policy=asked.policy, top_p=asked.top_p,
            alternatives=asked.alternatives,
        )  # fmt: skip
        super().__init__(ask, desk.version, is_watched=asked.is_watched)
        self._desk, self._number = desk, asked.call

    def tell(self, item: News | ModelFailed) -> None:
        """To the front end, when the pass ends."""
        self._desk.tell(self._number, item)


class EngineDesk:
    """The calls of one front end."""

    def __init__(self, thread: EngineThread, version: Callable[[], str]) -> None:
        self.version = version
        self.link: Link | None = None
        self._thread = thread
        self._calls: dict[int, _FrontCall] = {}

    def take(self, asked: Asked | Dropped) -> None:
        """What the front end has said."""
        if isinstance(asked, Dropped):
            dropped = self._calls.pop(asked.call, None)
            if dropped is not None:
                dropped.is_cancelled = True
            return
        call = self._calls[asked.call] = _FrontCall(self, asked)
        try:
            self._thread.submit(call)
        except ModelFailed as error:
            del self._calls[asked.call]
            assert self.link is not None
            self.link.put(Failed.of(asked.call, error))

    def tell(self, number: int, item: News | ModelFailed) -> None:
        """In the engine's thread: kept until the pass ends."""
        assert self.link is not None
        if isinstance(item, ModelFailed):
            self.link.keep(Failed.of(number, item))
        else:
            ids, logps, named = item.tokens.ids, item.tokens.logps, item.tokens.alternatives
            what = number, ints(ids), floats(logps), named, item.reused, item.version
            self.link.keep(Written(*what) if item.finish is None else Settled(*what, item.finish))
        if isinstance(item, ModelFailed) or item.finish is not None:
            self._calls.pop(number, None)

    def close(self) -> None:
        """The front end is gone."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.is_cancelled = True


class LedgerDesk:
    """Records what front ends have answered, in a thread of its own."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._thread = ledger, ThreadPoolExecutor(1, "ledger")

    def take(self, link: Link, asked: Spoken | Ended) -> None:
        """Record it, and say so."""
        self._thread.submit(self._do, link, asked)

    def _do(self, link: Link, asked: Spoken | Ended) -> None:
        try:
            link.keep(self._spoken(asked) if isinstance(asked, Spoken) else self._ended(asked))
        except Exception as error:  # a bug of ours: said to who asked, and nobody else is harmed
            link.keep(Recorded(asked.number, error=f"{type(error).__name__}: {error}"))
        link.flush()

    def _spoken(self, asked: Spoken) -> Recorded:
        for one in asked.answers:
            self._ledger.add(asked.caller, one, asked.seconds)
        return Recorded(asked.number)

    def _ended(self, asked: Ended) -> Recorded:
        try:
            trace = self._ledger.finish(asked.trace, asked.rewards)
        except CounterpointError as error:
            return Recorded(asked.number, error=error.one_line())
        return Recorded(asked.number) if trace is None else Recorded(asked.number, trace.trace_id, len(trace.events))

    def close(self) -> None:
        """Once nobody asks any more."""
        self._thread.shutdown()
