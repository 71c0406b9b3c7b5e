"""What a mechanism says of itself for when nobody names one: why it is a good answer, and what the traces must have.

Always true: nothing here asks the mechanism, a model or a disk; the order of preference is `choice`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from counterpoint.trace import Trace
from counterpoint.trace.replay import Replay

MOST_REPLAYED = 50_000
"""Agents times events up to which all agents are taken out in turn, without being asked for."""
Merges = Callable[[Trace], Any]
"""A trace to its last merge, which can be made again without some workers (`credit.mechanisms.remerge.Merged`), or None."""


class Beside(NamedTuple):
    """What beside the traces may be asked, without a model call."""

    replay: Replay | None
    merged: Merges | None


class Default(NamedTuple):
    """Why a mechanism is the best where it answers, and how it is asked."""

    why: str
    lacks: Callable[[Sequence[Trace], Beside], str | None]
    """Why it cannot be asked, without asking it."""
    options: Mapping[str, Any] = MappingProxyType({})
    takes: tuple[str, ...] = ()
    """Fields of `Beside` that are its options."""
    unit: str | None = None
    """It is asked only where this unit is asked for."""
    may_favour_one: bool = False
    """It may give everything to one agent because little was recorded: then others are asked first."""


def no_reward(traces: Sequence[Trace]) -> str | None:
    missing = [t.trace_id for t in traces if "team" not in t.rewards]
    return None if not missing else "no outcome is recorded (reward 'team'): counterpoint notes score adds one"


def no_replay(traces: Sequence[Trace], beside: Beside) -> str | None:
    if beside.replay is None:
        return "this run cannot be replayed without asking a model, or not at all"
    size = sum(len(t.events) * len(t.members) for t in traces)
    if size > MOST_REPLAYED:
        return f"one replay per agent is a lot of work here ({sum(len(t.members) for t in traces):,} agents): ask for it by name"
    return no_reward(traces)
