"""Whether a run is mended by going back to the named step, held against three controls at equal calls.

Four arms do the same run again and judge it by its own reward: from the named step, from one drawn at random, from the last one,
and plainly from the start. From a step the team goes on with the advice: words to the agent whose step it is, just before
it acts. The retry hears none, as the team did.

Always true: the retry plays first, as often as was asked; the calls that it took are the budget of each other arm. An arm tries
again until its budget is spent or it has tried `_MOST` times, and a try that ends past the budget does not count: so no arm has
had more calls than the retry. What was done to the run on purpose at a step or later is taken back with it. The n-th try of
every arm has the same noise. The advice is what the ranking says, never what is known of the mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import cycle
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from counterpoint.audits.blame.judge import CIRCUMSTANCES, Blame
from counterpoint.audits.blame.search import able_steps, until
from counterpoint.audits.blame.steps import Steps
from counterpoint.display import working
from counterpoint.errors import CounterpointError, NotIdentified, Refused
from counterpoint.trace import Trace
from counterpoint.trace.keys import REPLAY
from counterpoint.trace.replay import Replay
from counterpoint.trace.statistics import wilson_ends

ARMS = ("named step", "random step", "last step", "retry")
_MOST = 12
_REASONS = 3


class Try(Struct, frozen=True, kw_only=True):
    """One time that the run was done again."""

    event: str
    """From where."""
    step: int
    agent: str
    reward: float
    calls: int
    is_success: bool
    is_told: bool
    """Whether the agent heard the advice: worlds take no words, and nor does who has not acted or been told anything before."""


class Arm(Struct, frozen=True, kw_only=True):
    """All tries of one way to mend the run."""

    name: str
    tries: list[Try]
    calls: int
    """Of the tries that count; at most the budget."""
    cut: int
    """Calls within the budget of a try that ended past it."""

    @property
    def successes(self) -> int:
        """Tries that mended the run."""
        return sum(one.is_success for one in self.tries)

    @property
    def is_mended(self) -> bool:
        """Whether any did."""
        return self.successes > 0

    @property
    def ends(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share of tries that do."""
        return wilson_ends(self.successes, len(self.tries))

    def as_dict(self) -> dict[str, Any]:
        """The arm with its sums."""
        low, high = self.ends
        share = self.successes / len(self.tries) if self.tries else None
        return {
            "arm": self.name, "tries": len(self.tries), "successes": self.successes, "share": share, "low": low, "high": high,
            "calls": self.calls, "cut": self.cut, "each": msgspec.to_builtins(self.tries),
        }  # fmt: skip


class Repair(Struct, frozen=True, kw_only=True):
    """The four arms of one run."""

    arms: list[Arm]
    budget: int
    """Calls that each arm may take."""
    unit: str
    """What is counted: `calls` of a model, or `events` that a world's team does again without one."""
    advice: str
    bar: float
    """The team reward from which a run is a success."""

    def arm(self, name: str) -> Arm:
        """One of `ARMS`, or of those that were asked for beside them."""
        return next(arm for arm in self.arms if arm.name == name)

    def as_dict(self) -> dict[str, Any]:
        """The arms as `counterpoint blame --repair --json` prints them."""
        about = {"budget": self.budget, "unit": self.unit, "advice": self.advice, "success": self.bar}
        return {**about, "arms": [arm.as_dict() for arm in self.arms]}

    @property
    def words(self) -> str:
        """Which arms mended the run, as a clause."""
        mended = [arm.name for arm in self.arms if arm.is_mended]
        n = len(self.arm("retry").tries)
        of = f"{n} plain {'retry' if n == 1 else 'retries'}"
        equal = f"each arm has the {self.budget:,} {self.unit} of {of}, and at most {_MOST} tries"
        return f"{'mended from: ' + ', '.join(mended) if mended else 'no arm mended the run'}; {equal}"


class AgainFrom(Struct, frozen=True):
    """How tries are made: the run, who does it again, and what is counted."""

    trace: Trace
    steps: Steps
    replay: Replay
    teller: Any
    advice: str
    bar: float

    def again(self, i: int, seed: int, *, is_told: bool) -> Try:
        """The run done again from the event with place i on."""
        kept, event = until(self.trace, i), self.trace.events[i]
        told = self.teller(kept, event.id, self.advice) if is_told and self.teller is not None else None
        try:
            made = self.replay.fork(told or kept, event.id, None, seed)
        except Refused:  # the budget of tokens, or an endpoint that nobody named
            raise
        except CounterpointError as error:
            what, fix = f"the run cannot be done again from {event.id}: {error.what}", error.fix or "another trace"
            raise NotIdentified(what, fix, where=self.trace.trace_id) from error
        reward, k = float(made.rewards["team"]), self.steps.at.get(i)
        return Try(
            event=event.id, step=self.steps.numbers[k] if k is not None else i, agent=event.agent, reward=reward,
            calls=call_count(made, i), is_success=reward >= self.bar - 1e-9, is_told=told is not None,
        )  # fmt: skip


def advice_of(blame: Blame) -> str:
    """What is said to the agent: the ranking's reasons that speak of an act, and to check the step.

    Nothing that was said in the run is quoted: it may be wrong, or an order that somebody planted.
    """
    reasons = blame.suspects[0].reasons if blame.suspects else []
    why = [r.words for r in reasons if r.is_cause and r.family not in CIRCUMSTANCES][:_REASONS]
    because = f" because of this: {'; '.join(why)}" if why else ""
    return f"This team failed before, and this step is suspected{because}. Check it against the question and your sources."


def call_count(made: Trace, i: int) -> int:
    """Calls of a model that a fork made; of a world's team, which asks none, the events from the fork on."""
    about = made.meta.get("fork")
    calls = about.get("calls") if isinstance(about, dict) else None
    if isinstance(calls, dict):
        return max(1, int(calls.get("re-run", 0)))
    badges = [(e.extra or {}).get("badge") for e in made.events]
    if any(badges):
        return max(1, sum(b in ("re-run", "simulated") and e.model is not None for b, e in zip(badges, made.events, strict=True)))
    return max(1, len(made.events) - i)


def repair_arms(
    trace: Trace,
    replay: Replay,
    named: Sequence[str],
    advice: str,
    *,
    teller: Any = None,
    bar: float = 1.0,
    samples: int = 2,
    seed: int = 0,
    is_first_enough: bool = False,
    also: Mapping[str, tuple[Sequence[str], bool]] | None = None,
) -> Repair:
    """The four arms; `named` are events by rank, of which the first that can be done again is the named step.

    `teller(trace, event, text)` gives the trace in which the agent of this event is told something before it, or None.
    `is_first_enough` ends an arm at its first success; `also` names further arms, each with the events that it goes back
    to, in turn, and whether the agents hear the advice.
    """
    steps = Steps(trace)
    able = [steps.places[k] for k in able_steps(steps)]
    first = next((i for e in named if (i := trace.index.get(e)) in able), None)
    if not able or first is None:
        what, fix = "no suspected step of this trace can be done again", "a trace of `counterpoint play` or a world"
        raise NotIdentified(what, fix, where=trace.trace_id)
    redo = AgainFrom(trace, steps, replay, teller, advice, bar)
    start = next((i for i, e in enumerate(trace.events) if e.key is not None), able[0])
    noise = [_drawn(seed, trace.trace_id, f"try {n}") for n in range(max(samples, _MOST))]
    anywhere = np.random.default_rng(_drawn(seed, trace.trace_id, "place"))
    wheres: dict[str, tuple[list[int], bool]] = {
        "named step": ([first], True), "random step": ([able[int(anywhere.integers(len(able)))]], True),
        "last step": ([able[-1]], True),
    }  # fmt: skip
    wheres |= {name: ([trace.index[event] for event in events], is_told) for name, (events, is_told) in (also or {}).items()}
    with working("tries") as work:
        retries = []
        for drawn in noise[:samples]:
            retries.append(redo.again(start, drawn, is_told=False))
            work.step()
        budget = sum(one.calls for one in retries)
        arms = []
        for name, (where, is_told) in wheres.items():
            tries = (redo.again(i, drawn, is_told=is_told) for i, drawn in zip(cycle(where), noise[:_MOST], strict=False))
            arms.append(_arm(name, tries, budget, is_first_enough, work))
    arms.append(Arm(name="retry", tries=retries, calls=budget, cut=0))
    is_asked = isinstance(trace.meta.get("team"), dict) or REPLAY in trace.meta
    return Repair(arms=arms, budget=budget, unit="calls" if is_asked else "events", advice=advice, bar=bar)


def _arm(name: str, tries: Iterable[Try], budget: int, is_first_enough: bool, work: Any) -> Arm:
    """Tries as long as the budget lasts; the one that ends past it does not count."""
    done: list[Try] = []
    calls = cut = 0
    for one in tries:
        work.step()
        if calls + one.calls > budget:
            cut = budget - calls
            break
        done.append(one)
        calls += one.calls
        if calls == budget or (is_first_enough and one.is_success):
            break
    return Arm(name=name, tries=done, calls=calls, cut=cut)


def _drawn(seed: int, trace_id: str, what: str) -> int:
    """A number of 62 bits for this try of this run."""
    return int.from_bytes(blake2b(f"{seed}|{trace_id}|repair|{what}".encode(), digest_size=8).digest(), "big") >> 2
