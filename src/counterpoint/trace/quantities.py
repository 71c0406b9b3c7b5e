"""What a trace amounts to: its agents, duration, tokens, cost, failures. Lists, pages, queries and audits take them from here.

Always true: a number is what the events carry, or what the source states in `costs` where that is more; None where neither says
anything. A source without times has no duration: its `t` counts events.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from counterpoint.trace.keys import STATED
from counterpoint.trace.records import Edge, Event, Number
from counterpoint.trace.vocabulary import OUTSIDE_ROLES, TEAM_TYPES

NO_TIMES = "timestamps: t counts events"
"""What an importer writes into `meta.import.lacks` when no record of its source has a time."""


NO_TRANSCRIPT = "the transcript of a sub-agent"
"""What an importer writes into `meta.import.lacks`, with how many, when the records of agents that it knows are not there."""


PLACEHOLDER = "the true output of a model call: a placeholder of the stream stands for its tokens"
"""What an importer writes into `meta.import.lacks`, with how many, when calls state too few output tokens for their words."""


def missing_transcripts(meta: Mapping[str, Any]) -> int:
    """Of how many agents the importer knew and found no records: what the trace counts is then not all that was spent."""
    return _lacking(meta, NO_TRANSCRIPT)


def placeholder_outputs(meta: Mapping[str, Any]) -> int:
    """How many model calls state a placeholder for their output: what the trace counts is then less than was spent."""
    return _lacking(meta, PLACEHOLDER)


def uncounted(meta: Mapping[str, Any]) -> int:
    """Agents and model calls whose tokens are not, or not truly, known: totals are then at least what is said."""
    return missing_transcripts(meta) + placeholder_outputs(meta)


def _lacking(meta: Mapping[str, Any], what: str) -> int:
    about = meta.get("import")
    lacks = about.get("lacks") if isinstance(about, dict) else None
    count = lacks.get(what) if isinstance(lacks, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


def has_times(meta: Mapping[str, Any]) -> bool:
    """Whether `t` and `dur` are seconds; False where the importer found no time in its source."""
    about = meta.get("import")
    lacks = about.get("lacks") if isinstance(about, dict) else None
    return not (isinstance(lacks, dict) and NO_TIMES in lacks)


def members(events: Sequence[Event]) -> frozenset[str]:
    """The agents of the team: who acts in it, spawns or is spawned; not users, tools and others who are only heard."""
    kinds = {(e.agent, e.type, e.role) for e in events}
    acting = {agent for agent, kind, _ in kinds if kind in TEAM_TYPES}
    outside = {agent for agent, kind, role in kinds if role in OUTSIDE_ROLES and kind != "spawn"}
    spawns = [e for e in events if e.type == "spawn" and e.to is not None and e.to != e.agent]
    named = {name for e in spawns for name in (e.agent, e.to) if name is not None}
    return frozenset((acting - outside - OUTSIDE_ROLES) | named)


AROUND = frozenset({"system", "memory"})
"""Roles of what is around a team and works by itself: a client, its hooks, what it remembers."""


def span_s(events: Sequence[Event]) -> Number:
    """Seconds of the work: from the first start to the last end of what agents, people and tools did, or what failed them. A hook
    that fired days before anybody asked, or a command that ends the client, is not work. A duration below zero counts as none."""
    if not events:
        return 0
    work = [e for e in events if e.role not in AROUND or e.ok is False] or events
    return max([e.t + max(e.dur or 0, 0) for e in work]) - min([e.t for e in work])


def duration_s(events: Sequence[Event], costs: Mapping[str, Number], meta: Mapping[str, Any]) -> Number | None:
    """The wall clock: the span of the events, or `costs.wall_clock_s` where the source states more.

    `t` alone never becomes a duration, for it may count steps: where no event carries `dur`, only what the source states counts.
    """
    if not has_times(meta):
        return None
    stated = costs.get("wall_clock_s", 0)
    if not any(e.dur is not None for e in events):
        return stated or None
    try:
        return max(span_s(events), stated) or None
    except OverflowError:  # an integer that no float holds, beside floats
        return stated or None


def tokens(events: Sequence[Event], costs: Mapping[str, Number]) -> Number | None:
    """Tokens read and written: of all events, or `costs.tokens` where the source states more."""
    counted, stated = counted_tokens(events), costs.get("tokens", 0)
    if counted or stated:
        return max(counted, stated)
    return 0 if any(e.tokens_in is not None or e.tokens_out is not None for e in events) else None


def counted_tokens(events: Sequence[Event]) -> int:
    """Tokens that the events carry, exactly."""
    return sum([(e.tokens_in or 0) + (e.tokens_out or 0) for e in events])


def known_costs(events: Sequence[Event], costs: Mapping[str, Number], meta: Mapping[str, Any]) -> dict[str, Number]:
    """What the source states in `costs`, with tokens, wall clock, messages and dollars as told here; none that nobody knows."""
    own = {"tokens": tokens(events, costs), "wall_clock_s": duration_s(events, costs, meta), "cost_usd": cost_usd(events, costs)}
    if costs.get("messages") == sum(e.type == "message" for e in events):  # counted, and not what the source says of itself
        own |= {"messages": said_messages(events)} if "messages" in costs else {}
    return {name: value for name, value in (dict(costs) | own).items() if value is not None}


def cost_usd(events: Sequence[Event], costs: Mapping[str, Number]) -> Number | None:
    """US dollars: `cost_usd` of all events, or `costs.cost_usd` where the source states more."""
    paid = [e.cost_usd for e in events if e.cost_usd is not None]
    stated = costs.get("cost_usd")
    if not paid:
        return stated
    try:
        counted = math.fsum(paid)
    except OverflowError:  # an integer that no float holds: whole numbers add up exactly by themselves
        return max(stated or 0, sum(int(x) for x in paid))
    return counted if stated is None or stated <= counted * (1 + 1e-9) else stated


def money_total(amounts: Iterable[float]) -> float:
    """The sum of amounts, no further from 0 than the largest float."""
    some, most = list(amounts), sys.float_info.max
    try:
        return math.fsum(some)
    except OverflowError:  # whole, or on the way
        return max(-most, min(most, len(some) * math.fsum(x / len(some) for x in some)))


def unpriced(events: Sequence[Event], costs: Mapping[str, Number]) -> dict[str, int]:
    """Tokens that no cost covers, by model ("" where none is named), the most first.

    They are those of events without `cost_usd`; none where the source states a cost of the whole that is more than theirs.
    """
    stated, paid = costs.get("cost_usd"), cost_usd(events, {})
    if stated is not None and (paid is None or stated > paid * (1 + 1e-9)):
        return {}
    out: dict[str, int] = {}
    for event in events:
        if event.cost_usd is None and (count := (event.tokens_in or 0) + (event.tokens_out or 0)):
            out[event.model or ""] = out.get(event.model or "", 0) + count
    return dict(sorted(out.items(), key=lambda row: -row[1]))


def is_failed(event: Event) -> bool:
    """Whether an event went wrong. A safety event reports, and `ok: false` on a message judges, what somebody else did."""
    if event.type == "safety_event":
        return False
    return event.error is not None or (event.ok is False and event.type != "message")


_STOPS = frozenset({"withheld", "not allowed", "held", "rejected", "limit"})
"""Errors of safety events by which a live team's gates, allow-lists and limits say that they stopped something."""


def is_stopped(event: Event) -> bool:
    """Whether a safety event tells of something that was kept from happening (`ok: true`, or what a gate or a limit refused)."""
    if event.type != "safety_event" or (event.extra or {}).get("violation") is True:
        return False
    return event.ok is True or event.error in _STOPS


def failures(events: Sequence[Event], edges: Iterable[Edge]) -> list[int]:
    """The events that went wrong, each failure once: a failed call whose result failed too is counted at the result, and a failed
    spawn at the failed return of its agent."""
    failed = {e.id: i for i, e in enumerate(events) if is_failed(e)}
    if not failed:
        return []
    returned = {events[i].from_ or events[i].agent for i in failed.values() if events[i].type == "return"}
    reported = {name for name, i in failed.items() if events[i].type == "spawn" and events[i].to in returned}
    if any(events[i].type == "tool_call" for i in failed.values()):
        for edge in edges:
            call, result = failed.get(edge.src), failed.get(edge.dst)
            if call is None or result is None:
                continue
            if events[call].type == "tool_call" and events[result].type in ("tool_result", "return"):
                reported.add(edge.src)
    return [i for name, i in failed.items() if name not in reported]


def stated_calls(event: Event) -> int:
    """Tool calls that another states of an agent whose own records are not there: they are no events."""
    extra = event.extra or {}
    count = extra.get("tool_calls") if STATED in extra else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 < count < 2**31 else 0


def said_messages(events: Sequence[Event]) -> int:
    """Messages with a receiver."""
    return sum(e.type == "message" and not is_thinking(e) for e in events)


def is_thinking(event: Event) -> bool:
    """Whether a `message` is a model's turn that was said to nobody: an agent that leads nobody thinks aloud."""
    return event.type == "message" and event.to is None and bool(event.extra and event.extra.get("aloud"))
