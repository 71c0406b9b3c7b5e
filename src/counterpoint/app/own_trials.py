"""Changes of a recorded team of a person's own, and their trials: forks by its own code.

Always true: a change is at one event of the run, and a trial is a pair of forks there, with and without it, both asking the
models afresh from there on. Once the tokens of the cap are spent, trials end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from counterpoint.credits.advice import Change
from counterpoint.credits.fork_price import BudgetedReplay, CountingReplay
from counterpoint.credits.forks import fork_seeds
from counterpoint.errors import Refused
from counterpoint.recorder.recorded_calls import framework_agents
from counterpoint.trace import Event, Trace
from counterpoint.trace.keys import REPLAY
from counterpoint.trace.replay import Delete, Fork, ManyReplay, Substitute

_EACH = 4
"""How many events of one kind are tried."""


class OwnTrials:
    """Trials on one recording."""

    def __init__(self, trace: Trace, replay: ManyReplay, *, kinds: Collection[str], seed: int, cap: int | None) -> None:
        """`replay` runs the team again; `cap` is how many tokens its models may be asked for."""
        self.trace, self._cap = trace, cap
        self._plain_replay = replay
        self._replay: ManyReplay = replay if cap is None else BudgetedReplay(replay, cap)
        self._seeds = fork_seeds(seed, trace, 1024)
        self._plain: dict[tuple[str, int], float] = {}
        self.changes: Sequence[Change] = [c for c in _changes(trace) if not kinds or c.kind in kinds]

    def gains(self, change: Change, start: int, count: int) -> list[float]:
        """Pairs of forks on the same seeds; fewer where the tokens are spent."""
        trials = [k % len(self._seeds) for k in range(start, start + count)]
        out = []
        for k in trials:
            try:
                if (change.at, k) not in self._plain:
                    self._plain[change.at, k] = self._returns(Fork(change.at, None, self._seeds[k]))
                out.append(self._returns(Fork(change.at, change.do, self._seeds[k])) - self._plain[change.at, k])
            except Refused:
                if self._cap is None:
                    raise
                break
        return out

    def _returns(self, fork: Fork) -> float:
        return float(self._replay.returns(self.trace, [fork])[0])

    def tokens(self, change: Change) -> int:
        """What may have to be asked again."""
        counting = CountingReplay(asks_model=True)
        counting.fork(self.trace, change.at)
        return counting.tokens

    def apply(self, change: Change) -> Trace:
        """The run with the change."""
        return self._plain_replay.fork(self.trace, change.at, change.do)


def _changes(trace: Trace) -> list[Change]:
    out = []
    others = framework_agents(trace)  # nothing can leave these out
    for e in _spread([e for e in trace.events if e.type == "spawn" and e.to not in others]):
        out.append(Change("spawn", f"do not spawn {e.to} ({e.id})", e.id, do=Delete()))
    for e in _spread([e for e in trace.events if e.type == "return" and e.agent not in others]):
        out.append(Change("message", f"drop {e.id} ({e.agent} to {e.to})", e.id, do=Delete()))
    for e in _spread([e for e in trace.events if "asked" in ((e.extra or {}).get(REPLAY) or {})]):
        out.append(Change("message", f"have {e.agent} write {e.id} again", e.id, do=Substitute()))
    return out


def _spread(events: Sequence[Event]) -> list[Event]:
    if len(events) <= _EACH:
        return list(events)
    return [events[round(i * (len(events) - 1) / (_EACH - 1))] for i in range(_EACH)]
