"""When a run was at work: its events in quarters of an hour, with what each quarter amounts to; and the calls it waits for.

Always true: an event whose time is known is in exactly one quarter, that of its record: a model's answer counts when it was
complete, everything else when it began. Midnight of every time zone is the border of a quarter, so days of any zone are sums of
quarters. A run without a clock's time has no quarters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from counterpoint.trace.ending import is_unfinished, under_way
from counterpoint.trace.line_records import OPEN_EVENTS
from counterpoint.trace.naming import agent_names, first_line, started
from counterpoint.trace.quantities import money_total
from counterpoint.trace.records import Event
from counterpoint.trace.sides import Side, side_of, sub_agents
from counterpoint.trace.trace import Trace

QUARTER_S = 900
_LAST_TIME = 1e11
_MOST = 1 << 62
_AT_ONCE = frozenset({"tool_call", "spawn"})
"""Events that are recorded when they begin; their `dur` is how long the answer took."""
_WAITED_FOR, _WORDS = 8, 60
_SAYS = ("command", "cmd", "file_path", "path", "url", "query", "pattern", "description", "prompt")
"""Arguments of a call that say most about it, the first first."""


class Quarter(Struct, frozen=True, array_like=True, gc=False):
    """What was recorded in a quarter of an hour."""

    first: float
    """When its first and its last event were, seconds since the epoch."""
    last: float
    events: int
    calls: int = 0
    errors: int = 0
    tokens: int | None = None
    cost_usd: float | None = None
    unpriced: dict[str, int] = {}
    """Tokens that no cost covers, by model."""
    subs: Side | None = None
    """What sub-agents spent of it; None where there are none, and in what was written before this was kept."""


class Waiting(Struct, frozen=True, array_like=True, gc=False):
    """A call that began and has no answer, behind which its agent did nothing more."""

    event: str
    agent: str
    name: str
    """What people call the agent."""
    what: str
    """The tool, and the beginning of what it was asked: `Bash: sleep 99999`."""
    since: float | None
    """Seconds since the epoch; None where the source has no clock's time."""


def moments(events: Sequence[Event], meta: Mapping[str, Any]) -> list[float | None]:
    """When each event counts, seconds since the epoch; None where the run has no clock's time."""
    began = started(events, meta)
    zero = min((e.t for e in events), default=0)
    out: list[float | None] = []
    for e in events:
        at = e.at if e.at is not None and -_LAST_TIME < e.at < _LAST_TIME else None
        begin = float(at) if at is not None else None if began is None else began + float(e.t - zero)
        wait = 0.0 if e.dur is None or e.type in _AT_ONCE else float(max(e.dur, 0))
        moment = None if begin is None else begin + wait
        out.append(moment if moment is not None and -_LAST_TIME < moment < _LAST_TIME else None)
    return out


def quarters_of(trace: Trace) -> tuple[Quarter, ...]:
    """The quarters of an hour in which anything was recorded, in order."""
    try:
        when = moments(trace.events, trace.meta)
    except OverflowError:  # a time that no float holds
        return ()
    by_quarter: dict[int, list[int]] = {}
    for i, moment in enumerate(when):
        if moment is not None:
            by_quarter.setdefault(int(moment // QUARTER_S), []).append(i)
    failed, has_unpriced, subs = set(trace.failures), bool(trace.unpriced), sub_agents(trace)
    quarters = (
        (numbers, _quarter(trace.events, numbers, when, failed, has_unpriced)) for _, numbers in sorted(by_quarter.items())
    )
    if not subs:
        return tuple(quarter for _, quarter in quarters)
    return tuple(replace(quarter, subs=_subs(trace.events, numbers, subs, has_unpriced)) for numbers, quarter in quarters)


def _subs(events: Sequence[Event], numbers: list[int], subs: Collection[str], has_unpriced: bool) -> Side | None:
    inside = [events[i] for i in numbers if events[i].agent in subs]
    return side_of(inside, not has_unpriced) if inside else None


def _quarter(
    events: Sequence[Event], numbers: list[int], when: list[float | None], failed: set[int], has_unpriced: bool
) -> Quarter:
    inside = [events[i] for i in numbers]
    times = [moment for i in numbers if (moment := when[i]) is not None]
    counts = [_tokens(e) for e in inside if e.tokens_in is not None or e.tokens_out is not None]
    paid = [_money(e.cost_usd) for e in inside if e.cost_usd is not None]
    unpriced: dict[str, int] = {}
    for e in inside:
        if has_unpriced and e.cost_usd is None and (count := _tokens(e)):
            unpriced[e.model or ""] = unpriced.get(e.model or "", 0) + count
    return Quarter(
        first=round(min(times), 3), last=round(max(times), 3), events=len(inside),
        calls=sum(e.type == "tool_call" for e in inside), errors=sum(i in failed for i in numbers),
        tokens=min(sum(counts), _MOST) if counts else None, cost_usd=money_total(paid) if paid else None,
        unpriced={model: min(count, _MOST) for model, count in unpriced.items()},
    )  # fmt: skip


def _tokens(event: Event) -> int:
    return (event.tokens_in or 0) + (event.tokens_out or 0)


def _money(paid: float) -> float:
    try:
        return float(paid)
    except OverflowError:
        return 0.0


def _request_words(event: Event, text: str | None) -> str | None:
    """What a call was asked, in a few words: its command, its file, or how its text begins."""
    args = (event.extra or {}).get("args")
    if not isinstance(args, dict) and text and text.lstrip().startswith("{") and len(text) < 200_000:
        try:
            args = msgspec.json.decode(text)
        except msgspec.DecodeError:
            args = None
    fields = args if isinstance(args, dict) else {}
    request = next((words for key in _SAYS if (words := _words(fields.get(key)))), text)
    return first_line(request, _WORDS) if request else None


def _words(value: Any) -> str | None:
    """A text, or the words of a command."""
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return " ".join(value)
    return value if isinstance(value, str) and value else None


def waiting_of(trace: Trace) -> tuple[Waiting, ...]:
    """What the run waits for where its record breaks off, the longest first; nothing of a run that came to an end."""
    events = under_way(trace)
    if not events or (OPEN_EVENTS in trace.meta and not is_unfinished(trace.meta)):  # a recorder said that it is over
        return ()
    try:
        when = moments(trace.events, trace.meta)
    except OverflowError:
        when = [None] * len(trace.events)
    names = agent_names(trace, {e.agent for e in events})
    out = []
    for e in events:
        asked = _request_words(e, trace.text(e))
        kind = e.tool or (f"agent {names.get(e.to, e.to)}" if e.type == "spawn" and e.to else e.type.replace("_", " "))
        since = when[trace.index[e.id]]
        out.append(Waiting(e.id, e.agent, names.get(e.agent, e.agent), f"{kind}: {asked}" if asked else kind, since))
    # a call that hangs before the spawn that waits for the agent which made it
    out.sort(key=lambda one: (trace.events[trace.index[one.event]].type == "spawn", one.since or 0.0))
    return tuple(out[:_WAITED_FOR])


def sliced(trace: Trace, begin: float, end: float) -> Trace:
    """The run as far as it was recorded from `begin` to before `end`; a run without a clock's time as it is.

    What its source states of the whole (`costs`) is left out where anything is.
    """
    try:
        when = moments(trace.events, trace.meta)
    except OverflowError:
        return trace
    events = [e for e, moment in zip(trace.events, when, strict=True) if moment is None or begin <= moment < end]
    if len(events) == len(trace.events):
        return trace
    inside = {e.id for e in events}
    edges = [edge for edge in trace.edges if edge.src in inside and edge.dst in inside]
    return replace(trace, events=events, edges=edges, costs={})
