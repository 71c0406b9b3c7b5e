"""The engine's side of front ends: their calls go to the engine's thread, and what it tells goes back to who asked.

Always true: what a pass brings goes out when the pass ends, to each front end at once; the calls of a front end that is gone are
computed for no longer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from counterpoint.lab.lm.engine import Ask
from counterpoint.lab.lm.engine_thread import EngineThread
from counterpoint.lab.lm.model import ModelFailed
from counterpoint.lab.lm.sampling import Start
from counterpoint.lab.lm.serving.jobs import News, ToldCall
from counterpoint.lab.lm.serving.link import Link
from counterpoint.lab.lm.serving.messages import (
    CallDrop,
    CallFailure,
    CallRequest,
    LastPiece,
    Piece,
    floats,
    ints,
)


class _FrontCall(ToldCall):
    """A call of a front end."""

    def __init__(self, desk: EngineDesk, asked: CallRequest) -> None:
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

    def take(self, asked: CallRequest | CallDrop) -> None:
        """What the front end has said."""
        if isinstance(asked, CallDrop):
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
            self.link.put(CallFailure.of(asked.call, error))

    def tell(self, number: int, item: News | ModelFailed) -> None:
        """In the engine's thread: kept until the pass ends."""
        assert self.link is not None
        if isinstance(item, ModelFailed):
            self.link.keep(CallFailure.of(number, item))
        else:
            ids, logps, named = item.tokens.ids, item.tokens.logps, item.tokens.alternatives
            what = number, ints(ids), floats(logps), named, item.reused, item.version
            self.link.keep(Piece(*what) if item.finish is None else LastPiece(*what, item.finish))
        if isinstance(item, ModelFailed) or item.finish is not None:
            self._calls.pop(number, None)

    def close(self) -> None:
        """The front end is gone."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.is_cancelled = True
