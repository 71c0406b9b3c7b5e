"""What a reward plug-in is: a function of a trace and its options, tagged with the survey's family.

Always true: a reward reads a trace and gives rows; what it cannot judge has no row. It reads no file, clock or network, and has
no state. A judge, rubric or process model is a callable among the options, so that an LLM judge plugs in; None from it means
not scored. Unknown options, values of another kind than the option is annotated with, and amounts that are not numbers are one
clear error each.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.errors import InputError, did_you_mean
from counterpoint.options import check_options
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example
from counterpoint.trace.rows import Signal, Signals
from counterpoint.trace.team import team_of
from counterpoint.trace.vocabulary import EVENT_TYPES


@dataclass(frozen=True, kw_only=True)
class Reward:
    """One reward: `reward(trace, **options) -> list[Signal]`."""

    family: str
    """R1 to R8."""
    unit: str
    """The unit that is paid."""
    source: str
    """Paper or definition."""
    score: Callable[..., Iterable[Signal]]
    """(trace, **options) -> signals."""
    example: Callable[[], Example] | None = None
    """Small traces and options that it pays for; `counterpoint.testing.check_reward` runs on them, and needs them."""

    @property
    def options(self) -> list[str]:
        """The names of the options."""
        return [n for n in inspect.signature(self.score).parameters if n != "trace"]

    def __call__(self, trace: Trace, **options: Any) -> list[Signal]:
        """The signals of one trace."""
        for name in options:
            if name not in self.options:
                raise InputError(f"no option {name!r}", fix=did_you_mean(name, self.options))
        check_options(self.score, options)
        signals = list(self.score(trace, **options))
        for s in signals:
            if not math.isfinite(s.value):
                what = f"{s.channel} of {s.unit} {s.unit_id!r} is {s.value}"
                raise InputError(what, where=trace.trace_id, fix="leave out what was not scored")
        return signals

    def many(self, traces: Iterable[Trace], **options: Any) -> Signals:
        """The signals of many traces."""
        rows: dict[str, list[Signal]] = {}
        for trace in traces:
            if trace.trace_id in rows:
                raise InputError(f"two traces are named {trace.trace_id!r}", fix="give each its own trace_id")
            rows[trace.trace_id] = self(trace, **options)
        return Signals.of(rows)


# -- What a trace says about rewards: amounts logged on events, by unit; and the answers to its tool calls ------------
# Always true: an event without the channel, or a unit the trace has none of, gives nothing, which is not 0; events are read in
# the story's order, so the result does not depend on the order of the file.

Judge = Callable[[Trace, Event], float | bool | None]
"""A judge, verifier or process model: the score of one event, None where it has none."""

COMBINE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda xs: float(np.mean(xs)),
    "sum": lambda xs: float(sum(xs)),
    "last": lambda xs: xs[-1],
    "min": lambda xs: min(xs),
    "max": lambda xs: max(xs),
    "all": lambda xs: float(all(x > 0.5 for x in xs)),
    "majority": lambda xs: float(2 * sum(x > 0.5 for x in xs) > len(xs)),
}
"""Ways to make one number of several; `all` and `majority` count scores above 0.5 as yes."""


def combined(how: str, scores: Sequence[float]) -> float:
    """The scores as one number."""
    if how not in COMBINE:
        raise InputError(f"unknown combination {how!r} of scores", fix=did_you_mean(how, COMBINE))
    return COMBINE[how](scores)


def events_of_types(trace: Trace, types: Iterable[str]) -> list[Event]:
    """The events of these types, in the story's order."""
    wanted = tuple(types)
    for name in wanted:
        if name not in EVENT_TYPES:
            raise InputError(f"no event type {name!r}", fix=did_you_mean(name, EVENT_TYPES))
    return [trace.events[i] for i in team_of(trace).events_of(wanted)] if trace.events else []


def amounts(trace: Trace, channels: Sequence[str], types: Iterable[str] = EVENT_TYPES) -> list[tuple[Event, float]]:
    """Events and what they were paid, in the first of these channels that each has."""
    pairs = []
    for event in events_of_types(trace, types):
        paid = next((event.reward[c] for c in channels if event.reward and c in event.reward), None)
        if paid is not None:
            pairs.append((event, float(paid)))
    return pairs


def gathered(pairs: Iterable[tuple[str | None, float]], how: str) -> dict[str, float]:
    """Unit id to its combined amount, in order of first appearance; None as an id has no unit."""
    lists: dict[str, list[float]] = {}
    for unit_id, amount in pairs:
        if unit_id is not None:
            lists.setdefault(unit_id, []).append(amount)
    combined(how, [0.0])  # an unknown way is an error even where there is nothing to combine
    return {unit_id: combined(how, scores) for unit_id, scores in lists.items()}


def turn_of(event: Event) -> str | None:
    """`agent#turn`; None where the trace does not number turns."""
    return None if event.turn is None else f"{event.agent}#{event.turn}"


def members(trace: Trace) -> list[str]:
    """The agents of the team, in order of first appearance; tools and users apart."""
    if not trace.events:
        return []
    team = team_of(trace)
    return [name for name, is_member in zip(team.names, team.is_member_A.tolist(), strict=True) if is_member]


def results_of(trace: Trace) -> dict[str, list[Event]]:
    """Tool call id to the results that depend on it; empty for a call that nothing answered."""
    start, targets = trace.graph.children
    return {
        e.id: [r for j in targets[start[i] : start[i + 1]].tolist() if (r := trace.events[j]).type == "tool_result"]
        for i, e in enumerate(trace.events)
        if e.type == "tool_call"
    }


def succeeded(call: Event, results: Sequence[Event]) -> bool | None:
    """Whether a tool call succeeded: its own `ok`, else that of every result; an `error` is a failure. None where nobody says."""
    flags = [False if e.error is not None else e.ok for e in (call, *results)]
    if flags[0] is not None:
        return flags[0]
    known = [ok for ok in flags[1:] if ok is not None]
    return all(known) if known else None


def tool_success_shares(trace: Trace) -> dict[str, float]:
    """Agent to the share of its tool calls that did not fail; none for an agent without calls.

    A call that nothing answered did not fail; one whose result was paid less than 0 (R5) did.
    """
    answers = results_of(trace) if trace.events else {}
    calls = [e for e in trace.events if e.type == "tool_call"]
    blamed = {e.id: any((r.reward or {}).get("R5", 0.0) < 0 for r in (e, *answers[e.id])) for e in calls}
    return gathered(((e.agent, float(succeeded(e, answers[e.id]) is not False and not blamed[e.id])) for e in calls), "mean")
