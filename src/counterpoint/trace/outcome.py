"""Outcomes: rewards that a person gave a trace, each with its author and time, kept in `meta`.

Always true: the last outcome of a channel is the trace's reward in it; those before stay on record, and what the source itself
stated comes first, under the author `source`. The same outcomes put on a trace that was imported again give the same rewards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from counterpoint.errors import InputError
from counterpoint.trace.records import Number
from counterpoint.trace.trace import Trace

OUTCOMES = "outcomes"
"""The name in `meta`."""
SOURCE = "source"
"""The author of what a log states itself."""


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One verdict on one trace."""

    channel: str
    value: Number
    by: str
    """Who says so."""
    at: float
    """When, seconds since the epoch."""
    note: str | None = None
    """Why, in the author's words."""
    basis: str | None = None
    """What in the log it rests on, where it was proposed from there."""


def outcomes(trace: Trace) -> list[Outcome]:
    """The outcomes of a trace, the oldest first; what cannot be read as one is left out."""
    return outcomes_of(trace.meta)


def outcomes_of(meta: dict[str, Any]) -> list[Outcome]:
    """The same, of a trace's `meta`."""
    records = meta.get(OUTCOMES)
    out = []
    for one in records if isinstance(records, list) else ():
        try:
            out.append(msgspec.convert(one, Outcome))
        except msgspec.ValidationError:
            continue
    return out


def with_outcomes(trace: Trace, new: Sequence[Outcome]) -> Trace:
    """The trace with these outcomes after those that it has; a channel that the source stated keeps that on record."""
    known = outcomes(trace)
    rewards = dict(trace.rewards)
    for one in new:
        if not one.channel or not math.isfinite(one.value):
            raise InputError(f"{one.channel!r}={one.value} is not an outcome", fix="a name and a finite number, such as team=1")
        if one in known:
            continue
        if one.by == SOURCE and any(k.by == SOURCE and k.channel == one.channel for k in known):
            continue
        if one.channel in trace.rewards and not any(k.channel == one.channel for k in known) and one.by != SOURCE:
            known.append(Outcome(channel=one.channel, value=trace.rewards[one.channel], by=SOURCE, at=0.0))
        known.append(one)
        rewards[one.channel] = one.value
    return replace(trace, rewards=rewards, meta={**trace.meta, OUTCOMES: [msgspec.to_builtins(one) for one in known]})


def in_words(trace: Trace) -> list[str]:
    """The outcomes that count now and that a person gave: `team 0.5 by ann: one source is missing`."""
    last = {one.channel: one for one in outcomes(trace)}
    scores = [one for one in last.values() if one.by != SOURCE]
    return [f"{o.channel} {o.value:g} by {o.by}" + (f": {o.note or o.basis}" if o.note or o.basis else "") for o in scores]


def by_hand(trace: Trace, channel: str) -> str | None:
    """The verdict of a person that counts now in a channel, as `team 1 by ann`; None where the source's own number counts."""
    scores = [one for one in outcomes(trace) if one.channel == channel]
    return f"{channel} {scores[-1].value:g} by {scores[-1].by}" if scores and scores[-1].by != SOURCE else None


def as_recorded(trace: Trace) -> Trace:
    """The trace with the rewards that its source stated, and without what people said; a channel that only they gave is gone."""
    scores = outcomes(trace)
    if not scores:
        return trace
    channels, stated = {one.channel for one in scores}, {one.channel: one.value for one in scores if one.by == SOURCE}
    rewards = {name: stated.get(name, value) for name, value in trace.rewards.items() if name not in channels or name in stated}
    return replace(trace, rewards=rewards, meta={name: value for name, value in trace.meta.items() if name != OUTCOMES})


def carried_over(trace: Trace, old: Sequence[Outcome]) -> Trace:
    """A trace that was imported again, with the outcomes that people gave it before; what the source states now counts."""
    return with_outcomes(trace, [one for one in old if one.by != SOURCE]) if old else trace
