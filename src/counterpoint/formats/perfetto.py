"""Perfetto: a timeline for ui.perfetto.dev and chrome://tracing (Chrome's trace-event JSON). AnswerDraft only.

One process per trace, one thread per agent (and further threads where an agent does two things at once). An event with a
duration is a slice, one without is an instant; each spawn, message, return, aggregate and safety edge is an arrow with an id
of its own; counters show the agents alive and the tokens spent. Times are whole microseconds.

What is lost: causal, temporal and tool edges (the threads show them), edges that lead backwards in time, rewards and costs
but for their totals, fields that are not shown, texts, `meta`.

Always true: slices of one thread nest or lie apart, and never overlap in part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from counterpoint.errors import CounterpointError, InvalidTrace
from counterpoint.formats.format import Format
from counterpoint.trace import Event, Trace
from counterpoint.trace.critical_path import critical_path
from counterpoint.trace.team import team_of
from counterpoint.trace.vocabulary import EDGE_TYPES

_FLOWS = frozenset(EDGE_TYPES) - {"temporal", "causal", "tool_dependency"}
_SHOWN = (
    "role", "from_", "to", "tool", "task", "turn", "tokens_in", "tokens_out", "cost_usd", "model", "decision", "options", "logp",
    "policy", "key", "ok", "error", "trusted", "source", "reward", "content_ref",
)  # fmt: skip
# Beyond this a double, which is what readers of the format use, no longer tells microseconds apart.
_LATEST_US = 1 << 53
# Samples of the token counter: more would be drawn on the same pixels.
_SAMPLES = 2000
_PID = 1

_encode = msgspec.json.Encoder().encode


def _sniff(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and b'"traceEvents"' in head


def _write(trace: Trace) -> bytes:
    try:
        lines = [_encode(record) for record in _records(trace)]
        other = _encode({"trace_id": trace.trace_id, "task_id": trace.task_id, "rewards": trace.rewards, "costs": trace.costs})
    except UnicodeEncodeError as error:
        raise InvalidTrace("a text holds half of a surrogate pair, which no JSON file can carry", why=str(error)) from error
    return b'{"displayTimeUnit":"ms","otherData":' + other + b',"traceEvents":[\n' + b",\n".join(lines) + b"\n]}\n"


# -- threads -------------------------------------------------------------------------------------------------------------------


class Threads:
    """Thread numbers, from `first` on: one for each agent, and further ones where its slices would overlap in part.

    `place` is called in order of start.
    """

    def __init__(self, first: int) -> None:
        self._next = first
        self._open: dict[str, list[tuple[int, list[int]]]] = {}
        """For each agent its threads: the number, and the ends of the slices that are open, the innermost last."""

    def place(self, agent: str, start: int, end: int) -> int:
        """The thread for a slice of the agent."""
        own = self._open.setdefault(agent, [])
        for number, ends in own:
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                return number
        own.append((self._next, [end]))
        self._next += 1
        return self._next - 1

    def threads(self) -> Iterator[tuple[int, str, int]]:
        """Every thread: its number, its agent, and whether it is the agent's first, second, ..."""
        for agent, own in self._open.items():
            for copy, (number, _) in enumerate(own, 1):
                yield number, agent, copy


def _records(trace: Trace) -> Iterator[dict[str, Any]]:
    starts, ends = _times(trace)
    order = sorted(range(len(starts)), key=starts.__getitem__)
    threads = Threads(first=_PID + 1)
    thread = [0] * len(starts)
    for i in order:
        thread[i] = threads.place(trace.events[i].agent, starts[i], ends[i])
    yield from _names(trace, threads)
    out, into = _flows(trace, order)
    critical = _critical(trace)
    for i in order:
        event = trace.events[i]
        yield _slice(event, starts[i], ends[i], thread[i], is_critical=i in critical)
        # An arrow belongs to the slice that was opened last on its thread, so it stands right behind it at the same time.
        for kind, flow in into.get(i, ()):
            yield _flow("f", kind, flow, starts[i], thread[i]) | {"bp": "e"}
        for kind, flow in out.get(i, ()):
            yield _flow("s", kind, flow, starts[i], thread[i])
    yield from _alive(trace, starts, ends)
    yield from _tokens(trace, order, starts, ends)


def _times(trace: Trace) -> tuple[list[int], list[int]]:
    """Start and end of each event in microseconds; both ends are rounded, so that what met still meets."""
    try:
        starts = [round(e.t * 1_000_000) for e in trace.events]
        ends = [round((e.t + (e.dur or 0)) * 1_000_000) for e in trace.events]
    except (OverflowError, ValueError) as error:
        raise InvalidTrace("a time is NaN or infinite", why=str(error), fix="see `counterpoint store check`") from error
    if max(ends, default=0) > _LATEST_US or min(starts, default=0) < 0 or any(e < s for s, e in zip(starts, ends, strict=True)):
        raise InvalidTrace("a time is negative, or too far away for a timeline", fix="give t in seconds since the trace began")
    return starts, ends


def _names(trace: Trace, threads: Threads) -> Iterator[dict[str, Any]]:
    def named(kind: str, tid: int, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "name": kind, "pid": _PID, "tid": tid, "ts": 0, "args": args}

    yield named("process_name", _PID, name=trace.trace_id)
    roles = {e.agent: e.role for e in reversed(trace.events) if e.role and e.type != "spawn"}
    for index, (tid, agent, copy) in enumerate(threads.threads()):
        role = f" ({roles[agent]})" if agent in roles and not agent.startswith(roles[agent]) else ""
        yield named("thread_name", tid, name=f"{agent}{role}" + (f" #{copy}" if copy > 1 else ""))
        yield named("thread_sort_index", tid, sort_index=index)


def _slice(event: Event, start: int, end: int, tid: int, *, is_critical: bool) -> dict[str, Any]:
    args = {name.rstrip("_"): value for name in _SHOWN if (value := getattr(event, name)) is not None}
    if is_critical:
        args["critical_path"] = True
    record: dict[str, Any] = {"ph": "X", "name": _title(event), "cat": event.type + (",critical" if is_critical else "")}
    record |= {"pid": _PID, "tid": tid, "ts": start, "args": {"id": event.id, **args}}
    return record | ({"ph": "i", "s": "t"} if event.dur is None else {"dur": end - start})


def _title(event: Event) -> str:
    match event.type:
        case "orchestrator_decision":
            return f"decide {event.decision}" if event.decision else "decide"
        case "tool_call":
            return event.tool or "tool_call"
        case "tool_result":
            return f"{event.tool} result" if event.tool else "tool_result"
        case "spawn" | "despawn" | "message":
            return f"{event.type} {event.to}" if event.to else event.type
        case _:
            return event.type


_Ends = dict[int, list[tuple[str, int]]]


def _flows(trace: Trace, order: list[int]) -> tuple[_Ends, _Ends]:
    """Arrows by the event they leave and the event they reach; those that lead backwards are left out."""
    rank = dict(zip(order, range(len(order)), strict=True))
    out: _Ends = {}
    into: _Ends = {}
    for number, edge in enumerate(trace.edges, 1):
        src, dst = trace.index.get(edge.src), trace.index.get(edge.dst)
        if edge.type in _FLOWS and src is not None and dst is not None and rank[src] < rank[dst]:
            out.setdefault(src, []).append((edge.type, number))
            into.setdefault(dst, []).append((edge.type, number))
    return out, into


def _flow(phase: str, kind: str, number: int, at: int, tid: int) -> dict[str, Any]:
    return {"ph": phase, "name": kind, "cat": kind, "id": number, "pid": _PID, "tid": tid, "ts": at}


def _critical(trace: Trace) -> set[int]:
    """The events on the critical path; none where the records are not a graph."""
    try:
        path = critical_path(team_of(trace))
        return set(path.events) if path is not None else set()
    except CounterpointError:
        return set()


def _counter(name: str, at: int, **args: int) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": _PID, "tid": _PID, "ts": at, "args": args}


def _alive(trace: Trace, starts: list[int], ends: list[int]) -> Iterator[dict[str, Any]]:
    """How many agents are between their first act and the end of their last."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for event, start, end in zip(trace.events, starts, ends, strict=True):
        first[event.agent] = min(start, first.get(event.agent, start))
        last[event.agent] = max(end, last.get(event.agent, end))
    change: dict[int, int] = {}
    for times, step in ((first, 1), (last, -1)):
        for at in times.values():
            change[at] = change.get(at, 0) + step
    alive = 0
    for at in sorted(change):
        alive += change[at]
        yield _counter("agents alive", at, agents=alive)


def _tokens(trace: Trace, order: list[int], starts: list[int], ends: list[int]) -> Iterator[dict[str, Any]]:
    """Tokens spent so far, in a limited number of samples; the last is the total."""
    spent = [i for i in order if trace.events[i].tokens_in or trace.events[i].tokens_out]
    stride = max(1, len(spent) // _SAMPLES)
    read = written = 0
    for k, i in enumerate(spent):
        # a file of the survey's schema may say -1 for unknown: a counter never falls
        read += max(0, trace.events[i].tokens_in or 0)
        written += max(0, trace.events[i].tokens_out or 0)
        if k % stride == 0 or k == len(spent) - 1:
            yield _counter("tokens", starts[i], read=read, written=written)


perfetto = Format(
    suffixes=(".perfetto.json",),
    sniff=_sniff,
    write=_write,
    fields={
        "slices": ("name", "cat", "ts", "dur", "thread = agent", "args: id", *(f.rstrip("_") for f in _SHOWN)),
        "arrows": tuple(t for t in EDGE_TYPES if t in _FLOWS),
        "counters": ("agents alive", "tokens"),
    },
    lost="causal, temporal and tool edges (threads show them), edges backwards in time, extra fields, texts, meta; not read back",
)
