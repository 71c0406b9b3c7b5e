"""What a credit mechanism is: traces (and what was paid) in, credit out, with its unit, estimand, assumptions and cost stated.

Always true: a mechanism that cannot answer raises `NotIdentified` with what would fix it, or names the units it refuses; it never
guesses. Rows of an additive mechanism are checked to sum to what they declare. Unknown options, and values that are not of the
kind that the option is annotated with, are one clear error; rewards that are not numbers are refused before any arithmetic.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.credits.default import Default
from counterpoint.errors import InputError, NotIdentified, did_you_mean
from counterpoint.options import check_options
from counterpoint.trace import Trace
from counterpoint.trace.batch import TraceBatch
from counterpoint.trace.example import Example
from counterpoint.trace.rows import Credit

FEEDBACK = {
    "episode": "what the whole episode was worth",
    "round": "what each round added",
    "item": "what each call, return or agent was worth by itself",
    "draft": "what the verifier says of every item's draft at every moment",
}
"""What a method may be told of the result, the coarsest first: each one implies those before it."""


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """One credit mechanism: `mechanism(traces, **options) -> Credit`."""

    unit: str
    """The finest unit that gets a row."""
    estimand: str
    """What a row estimates."""
    assumptions: str
    """What must hold for that."""
    cost: str
    """What it costs beyond the traces: nothing, forks per message, a critic, ..."""
    additive: bool
    """Rows of a trace sum to its team reward, or to what the credit declares."""
    source: str
    """Paper, with arXiv id, and departures."""
    run: Callable[..., Credit]
    """(traces, **options) -> credit."""
    needs: tuple[str, ...] = ()
    """What it asks for: group (several traces of a task), logp, replay, critic, tokens, ..."""
    relative: bool = False
    """Amounts have a baseline of their own, or none by intent: they are advantages already, as are those that need a group."""
    sees: str = "episode"
    """The finest feedback that it reads: one of `FEEDBACK`."""
    from_rows: bool = False
    """A learner that keeps rollout rows computes these numbers from them, without a trace."""
    live: Mapping[str, Any] = field(default_factory=dict)
    """Options where teams of language models are trained. "task:..." stands for what the team's task can answer without a model
    call: task:without_returns, task:worth, task:value, task:value_before, task:reward."""
    default: Default | None = None
    """How it is asked where nobody names a mechanism; None: it has to be asked for by name."""
    fallback: Mapping[str, Any] = field(default_factory=dict)
    """Options where somebody asks for it by name alone, without which it has no answer."""
    example: Callable[[], Example] | None = None
    """Small traces and options that it answers; `counterpoint.testing.check_mechanism` runs on them, and needs them."""

    @property
    def outside_needs(self) -> list[str]:
        """What it needs that no trace holds."""
        return [need for need in self.needs if need in ("critic", "weights", "credit")]

    @property
    def options(self) -> list[str]:
        """The names of the options."""
        return [n for n in inspect.signature(self.run).parameters if n != "traces"]

    def __post_init__(self) -> None:
        if self.sees not in FEEDBACK:
            raise InputError(f"no feedback {self.sees!r}", fix=did_you_mean(self.sees, FEEDBACK))

    def __call__(self, traces: Trace | Sequence[Trace] | TraceBatch, **options: Any) -> Credit:
        """The credit of one or many traces."""
        for name in options:
            if name not in self.options:
                raise InputError(f"no option {name!r}", fix=did_you_mean(name, self.options))
        check_options(self.run, options)
        many = [traces] if isinstance(traces, Trace) else traces.traces() if isinstance(traces, TraceBatch) else list(traces)
        if not many:
            raise InputError("no traces", fix="give at least one")
        for trace in many:
            for channel, value in trace.rewards.items():
                if not math.isfinite(value):
                    raise InputError(f"reward {channel!r} is {value}", where=trace.trace_id, fix="leave out what was not scored")
        return self.run(many, **options)


def identified(mechanism: Mechanism, traces: Sequence[Trace], options: Mapping[str, Any]) -> tuple[Credit, list[int]]:
    """The credit of the traces that the mechanism can judge, and their places; a trace that it refuses by name is left out."""
    places = list(range(len(traces)))
    while True:
        try:
            return mechanism([traces[i] for i in places], **options), places
        except NotIdentified as error:
            rest = [i for i in places if traces[i].trace_id != error.where]
            if not rest or len(rest) == len(places):
                raise
            places = rest


def team_reward(trace: Trace, channel: str = "team") -> float:
    """The trace's reward in a channel; one clear error when it has none."""
    if channel not in trace.rewards:
        known = list(trace.rewards)
        fix = did_you_mean(channel, known) if known else f"score it: counterpoint notes score TRACE {channel}=1"
        raise InputError(f"the trace has no reward {channel!r}", where=trace.trace_id, fix=fix)
    return float(trace.rewards[channel])
