"""What forks would cost before any is made, and a limit on what they may cost while they are made.

Always true: `CountingReplay` runs nothing: each fork is taken for the recorded trace, and counted with the tokens of all that may
happen again, which are the recorded events that depend on the changed one. A recording answers what did not change, so this is
the most that a fork of the recorded length can ask of a model. `BudgetedReplay` stops before a batch of forks once the model's
tokens that were really spent reach the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from counterpoint.credits.mechanism import team_reward
from counterpoint.errors import CounterpointError, Refused
from counterpoint.trace import Trace
from counterpoint.trace.replay import Do, Fork

_AT_ONCE = 8
_ASKED = ("re-run", "simulated")
"""Badges of events for which a model may have been asked anew."""


class ForkPrice(NamedTuple):
    """Forks, and the most that they ask of a model: tokens, in how many calls, and their recorded price."""

    forks: int
    tokens: int
    calls: int = 0
    usd: float = 0.0

    @property
    def words(self) -> str:
        """All of it, to be said before any is made."""
        calls = f" in {self.calls:,} calls" if self.calls else ""
        price = f", ${self.usd:.4g} at what they cost when recorded" if self.usd else ""
        return f"{self.forks:,} forks, which may ask a model for up to {self.tokens:,} tokens{calls}{price}"


class CountingReplay:
    """A replay that makes no fork and counts what was asked for; `asks_model` may tell traces apart."""

    def __init__(self, *, asks_model: bool | Callable[[Trace], bool]) -> None:
        self._asks_model = asks_model
        self.forks_made = 0
        self.tokens = self.calls = 0
        self.usd = 0.0
        self._known: dict[tuple[str, str], tuple[int, int, float]] = {}

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """The trace as it is; counted."""
        self.forks_made += 1
        asks = self._asks_model
        if asks if isinstance(asks, bool) else asks(trace):
            tokens, calls, usd = self._after(trace, at)
            self.tokens, self.calls, self.usd = self.tokens + tokens, self.calls + calls, self.usd + usd
        return trace

    def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
        """The recorded reward for each."""
        return np.array([float(self.fork(trace, f.at).rewards.get("team", 0.0)) for f in forks], np.float64)

    def _after(self, trace: Trace, at: str) -> tuple[int, int, float]:
        key = (trace.trace_id, at)
        if key not in self._known:
            cone = trace.graph.descendants(trace.index[at]) if at in trace.index else ()
            picked = [trace.events[i] for i in np.flatnonzero(cone).tolist()]
            tokens = sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in picked)
            self._known[key] = (tokens, sum(e.model is not None for e in picked), sum(e.cost_usd or 0.0 for e in picked))
        return self._known[key]


def price_of(
    mechanism: Any, traces: Sequence[Trace], options: dict[str, Any], *, asks_model: bool | Callable[[Trace], bool]
) -> ForkPrice:
    """What a mechanism would fork for these traces. One that looks at its answers before it goes on may need more or fewer."""
    counting = CountingReplay(asks_model=asks_model)
    try:
        mechanism(list(traces), **{**options, "replay": counting})
    except CounterpointError:
        if not counting.forks_made:
            raise
    return ForkPrice(counting.forks_made, counting.tokens, counting.calls, counting.usd)


class BudgetedReplay:
    """A replay that refuses further forks once they have asked a model for `budget` tokens; forks of traces for which
    `asks_model` is false are free."""

    def __init__(self, replay: Any, budget: int, asks_model: Callable[[Trace], bool] | None = None) -> None:
        self._replay, self.budget, self.spent = replay, budget, 0
        self._asks_model = asks_model

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """One fork, if there is budget left."""
        return self._forks(trace, [Fork(at, do, seed)])[0]

    def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
        """The team reward of each fork, a few at a time."""
        forked = [t for k in range(0, len(forks), _AT_ONCE) for t in self._forks(trace, forks[k : k + _AT_ONCE])]
        return np.array([team_reward(t) for t in forked], np.float64)

    def _forks(self, trace: Trace, forks: Sequence[Fork]) -> list[Trace]:
        is_free = self._asks_model is not None and not self._asks_model(trace)
        if self.spent >= self.budget and not is_free:
            fix = "a larger --cap tokens=N, fewer units, or a mechanism that needs no fork"
            raise Refused(f"forks have spent {self.spent:,} tokens of a budget of {self.budget:,}", where=trace.trace_id, fix=fix)
        many = getattr(self._replay, "forks", None)
        forked = many(trace, forks) if many else [self._replay.fork(trace, f.at, f.do, f.seed) for f in forks]
        self.spent += 0 if is_free else sum(_asked(t) for t in forked)
        return list(forked)


def _asked(fork: Trace) -> int:
    again = (e for e in fork.events if e.extra and e.extra.get("badge") in _ASKED)
    return sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in again)
