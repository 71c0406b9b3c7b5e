"""The decisive step by forks: the last step from which the team, going on as it would, can still succeed.

Always true: a fork at step k keeps everything before k and does k and all that follows anew; what was done to the run on purpose
at k or later is taken back with it. The step found has two witnesses, both runs: a fork there succeeds, and no fork at the next
step did in as many draws. It is exact where a success from k means a success from every earlier step (nobody unlearns).

Trying every step needs n forks and more; halving what is left, weighted by how likely each step is, about log2(n).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from counterpoint.audits.blame.steps import Floats, Steps
from counterpoint.display import counted, working
from counterpoint.errors import CounterpointError, NotIdentified, Refused
from counterpoint.trace import Trace
from counterpoint.trace.keys import REPLAY
from counterpoint.trace.replay import Fork, Replay

_EVEN = 0.1
"""How much of the weight is spread evenly, so that a ranker that is wrong costs a few forks and not many."""


class Probe(Struct, frozen=True, kw_only=True):
    """One step that was tried."""

    event: str
    step: int
    rewards: list[float]
    """Of each fork made there, until one succeeded."""
    is_saved: bool


class Decisive(Struct, frozen=True, kw_only=True):
    """What the search found."""

    event: str | None
    """None where the team does not succeed from its first step either."""
    step: int | None
    agent: str | None
    forks: int
    steps: int
    """Candidates; trying all takes at least as many forks."""
    probes: list[Probe]
    words: str
    is_complete: bool = True
    """False where the budget ended the search."""


class Redo:
    """Does a run again from one of its steps, as the team would; counts the forks."""

    def __init__(self, trace: Trace, replay: Replay, *, bar: float, draws: int = 2, seed: int = 0) -> None:
        self.trace, self._replay, self.bar, self.forks = trace, replay, bar, 0
        is_live = "team" in trace.meta or REPLAY in trace.meta
        text = f"{seed}|{trace.trace_id}|redo|"
        drawn = [int.from_bytes(blake2b(f"{text}{i}".encode(), digest_size=8).digest(), "big") >> 2 for i in range(draws)]
        self.seeds: list[int | None] = list(drawn) if is_live else [None]
        """Fresh draws of a live team; a simulated one goes on by its policy with the noise that was."""
        self._known: dict[int, list[float]] = {}

    def saves(self, i: int) -> tuple[bool, list[float]]:
        """Whether a fork at the event with place i succeeds, and the rewards of the forks made."""
        if i not in self._known:
            rewards: list[float] = []
            prefix = until(self.trace, i)
            for seed in self.seeds:
                rewards.append(self._reward(prefix, Fork(self.trace.events[i].id, None, seed)))
                if rewards[-1] >= self.bar - 1e-9:
                    break
            self._known[i] = rewards
        rewards = self._known[i]
        return rewards[-1] >= self.bar - 1e-9, rewards

    def _reward(self, trace: Trace, fork: Fork) -> float:
        self.forks += 1
        return float(self._replay.fork(trace, fork.at, fork.do, fork.seed).rewards["team"])


def until(trace: Trace, i: int) -> Trace:
    """The trace without what was done to it on purpose at event i or later."""
    notes = trace.meta.get("edits") or []
    places = {e.key: k for k, e in enumerate(trace.events)} if notes else {}
    edits = [note for note in notes if _is_before(trace, places, note, i)]
    return trace if len(edits) == len(notes) else replace(trace, meta={**trace.meta, "edits": edits})


def _is_before(trace: Trace, places: dict[str | None, int], note: dict[str, object], i: int) -> bool:
    if "count" in note:  # of a live team: its event by the key; where that never happened, how many events came before it
        at = places.get(str(note["key"]))
        return int(str(note["count"])) <= i if at is None else at < i
    at = trace.index.get(str(note.get("at")))
    return at is not None and at < i


def find_decisive(trace: Trace, redo: Redo, weights: Floats, *, steps: Steps | None = None, most: int | None = None) -> Decisive:
    """Halve the run, weighted by `weights` (one per candidate, as `blame` ranks them), until one step is left.

    `most` limits the forks; what is known by then is reported as incomplete.
    """
    steps = steps or Steps(trace)
    able = able_steps(steps)
    if not able:
        raise NotIdentified(
            "no step of this trace can be done again", "a trace of `counterpoint play` or a world", where=trace.trace_id
        )
    p = np.asarray(weights, np.float64)[able]
    p = (1 - _EVEN) * p / max(float(p.sum()), 1e-12) + _EVEN / len(able)
    low, high, probes, is_complete = -1, len(able), [], True
    with working("forks") as work:
        while high - low > 1:
            work.at(redo.forks, about=f"{counted(min(high - low, len(able)), 'step')} left of {len(able):,}")
            if most is not None and redo.forks >= most:
                is_complete = False
                break
            m = _middle(p, low, high)
            try:
                saved, rewards = redo.saves(steps.places[able[m]])
            except Refused:  # the budget, or an endpoint that nobody named
                raise
            except CounterpointError as error:
                raise NotIdentified(
                    f"the run cannot be done again from there: {error.what}", error.fix or "another trace", where=trace.trace_id
                ) from error
            event = trace.events[steps.places[able[m]]]
            probes.append(Probe(event=event.id, step=steps.numbers[able[m]], rewards=rewards, is_saved=saved))
            low, high = (m, high) if saved else (low, m)
    return _decisive(trace, steps, able, low, high, probes, redo, is_complete)


def able_steps(steps: Steps) -> list[int]:
    """The candidates that can be done again, in the order of the recording: what a fork keeps is what was recorded before."""
    is_own = REPLAY in steps.trace.meta  # a team's own code comes by its events without keys
    able = [k for k, i in enumerate(steps.places) if is_own or steps.trace.events[i].key is not None]
    return sorted(able, key=lambda k: steps.places[k])


def _middle(p: Floats, low: int, high: int) -> int:
    """Where to look next: the step that splits the likelihood of what is left most evenly. The answer is one of low..high-1."""
    first = max(low, 0)
    mass = p[first:high].cumsum()
    before = np.concatenate([[0.0], mass])[:-1]  # likelihood of the steps before each
    able = np.arange(low + 1, high)
    return int(able[np.argmin(np.abs(before[able - first] - mass[-1] / 2))])


def _decisive(
    trace: Trace, steps: Steps, able: Sequence[int], low: int, high: int, probes: list[Probe], redo: Redo, is_complete: bool
) -> Decisive:
    if low < 0:
        words = (
            "not found within the budget" if not is_complete
            else f"the team does not succeed from its first step either, in {len(redo.seeds)} draws: no single step decided this"
        )  # fmt: skip
        return Decisive(
            event=None,
            step=None,
            agent=None,
            forks=redo.forks,
            steps=len(able),
            probes=probes,
            words=words,
            is_complete=is_complete,
        )
    i = steps.places[able[low]]
    event = trace.events[i]
    words = f"done again from {event.id} on, the run succeeds; from the next step on it does not"
    if not is_complete:
        words = f"the run can still be saved at {event.id}; the decisive step is one of the {high - low} from there on"
    return Decisive(
        event=event.id, step=steps.numbers[able[low]], agent=event.agent, forks=redo.forks, steps=len(able), probes=probes,
        words=words, is_complete=is_complete,
    )  # fmt: skip


def try_all(trace: Trace, redo: Redo, *, steps: Steps | None = None) -> tuple[str | None, int]:
    """The decisive step by trying every one, and how many forks that took: what the search is held against."""
    steps = steps or Steps(trace)
    able = [steps.places[k] for k in able_steps(steps)]
    saved = [i for i in able if redo.saves(i)[0]]
    return (trace.events[saved[-1]].id if saved else None), redo.forks
