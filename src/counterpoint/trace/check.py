"""Is it a trace? References, cycles, time, and whether the team's story holds together.

Always true: `problems` reads the trace and changes nothing; an error means that some question about the trace has no answer
(a reference to nowhere, an effect before its cause), a warning that the source left something out or contradicts itself.
The survey's schema itself is checked when a file is read (`wire`, `schema_check`); `problems` repeats it for traces that
were built in memory.

| code | severity | what it says |
|---|---|---|
| duplicate-id, dangling-edge, cycle | error | the records are not a graph |
| time-backwards | error | an edge leads to an event that started before its cause |
| act-before-spawn | error | an agent acts before the spawn that created it |
| negative, non-finite | error | a cost, count or duration below zero, or not a number |
| field | error | a record built in memory breaks the schema |
| orphan-result | warning | a tool result with no call before it |
| return-elsewhere | warning | an agent returns to another agent than its spawner |
| act-after-despawn | warning | an agent acts after it was ended |
| idle-agent | warning | an agent was spawned and never acts |
| spawned-twice | warning | two spawns create one agent |
| costs-differ | warning | the trace's costs and its events do not add up |
| source-lacks | warning | the log it was imported from does not say this |
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

import counterpoint.trace.schema_check as schema_check
import counterpoint.trace.wire as wire
from counterpoint.errors import InvalidTrace
from counterpoint.trace.graph import cycle
from counterpoint.trace.link import Links, link
from counterpoint.trace.problem import DEFAULT_LIMIT, Findings, Problem
from counterpoint.trace.quantities import AROUND
from counterpoint.trace.records import AMOUNTS, FIELDS, Event, wire_name
from counterpoint.trace.trace import Trace
from counterpoint.trace.vocabulary import EVENT_TYPES

CODES = tuple(
    name.strip()
    for line in (__doc__ or "").splitlines()
    if line.startswith("| ") and ("error" in line or "warning" in line)
    for name in line.split("|")[1].split(",")
)

_CODE = {name: code for code, name in enumerate(EVENT_TYPES)}
_SPAWN, _DESPAWN, _CALL, _RESULT, _RETURN, _MESSAGE = (
    _CODE[n] for n in ("spawn", "despawn", "tool_call", "tool_result", "return", "message")
)
# How far a stated cost may lie from the sum of its parts before we say so: sources round.
_SLACK = 1e-6
_NAMES = frozenset(map(wire_name, FIELDS))
_UNKNOWN = "leave it out where it is not known"


def problems(trace: Trace, limit: int | None = None) -> list[Problem]:
    """Everything wrong with a trace, errors and warnings; all of them unless a limit is given.

    >>> import counterpoint as cpt
    >>> late = cpt.Event(id="e1", t=5.0, type="message", agent="a")
    >>> early = cpt.Event(id="e2", t=1.0, type="message", agent="b")
    >>> trace = cpt.Trace(trace_id="t", task_id="x", events=[late, early], edges=[cpt.Edge("e1", "e2", "causal")])
    >>> [problem.code for problem in cpt.problems(trace) if problem.severity == "error"]
    ['time-backwards']
    """
    return findings(trace, limit).problems


def findings(
    trace: Trace, limit: int | None = DEFAULT_LIMIT, *, known: Literal["nothing", "schema", "fields"] = "nothing"
) -> Findings:
    """What `problems` gives, with counts; the first `limit` of each severity in full.

    `known` says what decoding has shown already: `schema` after `wire.decode_loosely`, every field after `decode_strictly`.
    Of a trace that is still as it was decoded, this is known without being said.
    """
    problems = Findings(limit)
    known = wire.shown_by_decoding(trace) if known == "nothing" else known
    if known == "nothing" and not _records_hold(trace, problems):
        return problems
    if known == "schema":
        _own_fields(trace, problems)
    try:
        _rules(trace, problems)
    except OverflowError:  # a whole number that no field's type refuses
        problems.error("non-finite", "$", "a number is beyond what a double holds", "write a finite number")
    return problems


def _rules(trace: Trace, problems: Findings) -> None:
    links = link(trace.events, trace.edges)
    columns = _Columns(trace.events)
    _references(trace, links, problems)
    _numbers(trace, problems)
    _time(trace, links, columns, problems)
    _agents(trace, columns, problems)
    _results(trace, links, columns, problems)
    _costs(trace, columns, problems)
    _source(trace, problems)


class _Columns:
    """The few event fields that every rule needs, as arrays. Comprehensions, as each is half the time of a getter."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.t: NDArray[np.float64] = np.array([e.t for e in events], np.float64)
        self.type = np.frombuffer(bytes([_CODE[e.type] for e in events]), np.uint8)

    @cached_property
    def by_time(self) -> list[int] | range:
        """Event numbers in order of time, file order among equals; in nearly every trace that is file order."""
        is_in_order = bool((self.t[1:] >= self.t[:-1]).all())
        return range(len(self.t)) if is_in_order else np.argsort(self.t, kind="stable").tolist()

    @cached_property
    def agents_by_time(self) -> list[str]:
        events = self.events
        return [e.agent for e in events] if isinstance(self.by_time, range) else [events[i].agent for i in self.by_time]

    def places(self, numbers: list[int]) -> list[tuple[int, int]]:
        """Of some events, their places in the order of time with their numbers, earliest first."""
        if isinstance(self.by_time, range):
            return [(i, i) for i in numbers]
        wanted = set(numbers)
        return [(place, i) for place, i in enumerate(self.by_time) if i in wanted]

    def of_type(self, code: int) -> list[int]:
        return np.flatnonzero(self.type == code).tolist()


def _records_hold(trace: Trace, problems: Findings) -> bool:
    """A trace built in memory may hold anything: write it out and read it back, as a file would be."""
    costs = {"tokens": 0, "wall_clock_s": 0} | trace.costs  # a trace in memory need not state them
    try:
        whole = msgspec.structs.replace(trace, costs=costs)
        foreign = [e.extra for e in trace.events if e.extra]
        if foreign and wire.is_finite(foreign) and _declared_hold(whole):
            return True  # which is asked first, as no decoding of the whole would take the fields of others
        data = wire.encode(whole)
        if wire.decode_strictly(data) is not None or _declared_hold(whole):
            return True
        checked = schema_check.problems(data, problems.limit)
    except InvalidTrace as error:
        problems.error("non-finite", error.where or "$", error.what, error.fix or "")
        return False
    except (ValueError, TypeError) as error:
        problems.error("field", "$", f"a record cannot be written as JSON: {error}")
        return False
    for problem in checked.errors:
        problems.error("field", problem.where, problem.what, problem.hint)
    if not checked.error_count:
        _own_fields(trace, problems)
    return not problems.by_code("error").get("field")


def _declared_hold(trace: Trace) -> bool:
    """Whether the declared fields alone pass, where nothing in `extra` bears the name of one: imported traces are like that."""
    if not all(_NAMES.isdisjoint(e.extra) for e in trace.events if e.extra):
        return False
    bare = [msgspec.structs.replace(e, extra=None) if e.extra else e for e in trace.events]
    return wire.decode_strictly(wire.encode(msgspec.structs.replace(trace, events=bare))) is not None


def _own_fields(trace: Trace, problems: Findings) -> None:
    """Our own fields, which the survey's schema leaves open: their types and ranges."""
    for i, event in enumerate(trace.events):
        for field in AMOUNTS:
            value = getattr(event, field)
            if schema_check.is_number(value) and value < 0:
                problems.error("negative", f"events[{i}].{field}", f"must not be negative, is {value}", _UNKNOWN)
        again = wire.event_from_dict(wire.event_dict(event))
        moved = set(again.extra or ()) - set(event.extra or ())
        for field in sorted(moved):
            problems.error("field", f"events[{i}].{field}", "is of another type", "put foreign values into `extra`")


def _references(trace: Trace, links: Links, problems: Findings) -> None:
    for i in links.repeated.tolist():
        name = trace.events[i].id
        problems.error("duplicate-id", f"events[{i}]", f"the id {name!r} was used before", "make ids unique")
    for k in np.flatnonzero((links.src < 0) | (links.dst < 0)).tolist():
        for end, number in (("src", links.src[k]), ("dst", links.dst[k])):
            if number < 0:
                name = getattr(trace.edges[k], end)
                problems.error("dangling-edge", f"edges[{k}].{end}", f"there is no event {name!r}", "add it or drop the edge")
    whole = (links.src >= 0) & (links.dst >= 0)
    src, dst = links.src[whole], links.dst[whole]
    if bool((src < dst).all()):
        return
    loop = cycle(len(trace.events), src, dst)
    if loop:
        names = " -> ".join(trace.events[i].id for i in [*loop[:8], loop[0]])
        problems.error("cycle", f"events[{loop[0]}]", f"a cycle of {len(loop)} events: {names}", "drop or turn one edge")


def _numbers(trace: Trace, problems: Findings) -> None:
    for name, value in trace.costs.items():
        if value < 0:
            problems.error("negative", f"$.costs.{name}", f"a cost is not negative, is {value}", _UNKNOWN)


def _time(trace: Trace, links: Links, columns: _Columns, problems: Findings) -> None:
    whole = (links.src >= 0) & (links.dst >= 0)
    late = np.flatnonzero(whole & (columns.t[links.src] > columns.t[links.dst]))
    for k in late.tolist():
        edge, s, d = trace.edges[k], trace.events[links.src[k]], trace.events[links.dst[k]]
        problems.error(
            "time-backwards",
            f"edges[{k}]",
            f"{edge.dst!r} at t={d.t} depends on {edge.src!r} at t={s.t}, which is later",
            "an effect cannot start before its cause; mend the clock or the edge",
        )


def _agents(trace: Trace, columns: _Columns, problems: Findings) -> None:
    events = trace.events
    spawned: dict[str, int] = {}
    for i in columns.of_type(_SPAWN):
        child = events[i].to
        if child is None:
            continue
        if child in spawned:
            what = f"{child!r} was spawned by {events[spawned[child]].id!r} already"
            problems.warning("spawned-twice", f"events[{i}]", what, "give each instance its own name")
        else:
            spawned[child] = i
    if not spawned:
        return
    _lives(trace, columns, spawned, problems)
    _returns(trace, columns, spawned, problems)


def _lives(trace: Trace, columns: _Columns, spawned: dict[str, int], problems: Findings) -> None:
    """Nobody acts before its spawn or after its despawn. One growing set of who has acted so far answers for all."""
    events, agents, t = trace.events, columns.agents_by_time, columns.t
    active: set[str] = set()
    done = 0
    for place, i in columns.places(list(spawned.values())):
        child = str(events[i].to)
        active.update(agents[done:place])
        done = place
        act = columns.by_time[agents.index(child)] if child in active else i
        if t[act] < t[i]:
            what = f"{child!r} acts at t={events[act].t}, before its spawn {events[i].id!r} at t={events[i].t}"
            problems.error("act-before-spawn", f"events[{act}]", what, "an agent exists from its spawn on")
    active.update(agents[done:])
    for child, i in spawned.items():
        if child not in active:
            problems.warning("idle-agent", f"events[{i}]", f"{child!r} is spawned and never acts", "record what it did")
    active, done = set(), len(agents)
    for place, i in reversed(columns.places(columns.of_type(_DESPAWN))):
        active.update(agents[place + 1 : done])
        done, ended = place + 1, events[i].to
        act = columns.by_time[len(agents) - 1 - agents[::-1].index(ended)] if ended is not None and ended in active else i
        if t[act] > t[i]:
            what = f"{ended!r} was ended by {events[i].id!r} at t={events[i].t}"
            problems.warning("act-after-despawn", f"events[{act}]", what, "an ended agent does not act")


def _returns(trace: Trace, columns: _Columns, spawned: dict[str, int], problems: Findings) -> None:
    events = trace.events
    for i in columns.of_type(_RETURN):
        event = events[i]
        who = event.from_ or event.agent
        if who in spawned and event.to is not None and event.to != events[spawned[who]].agent:
            what = f"{who!r} returns to {event.to!r}, but {events[spawned[who]].agent!r} spawned it"
            problems.warning("return-elsewhere", f"events[{i}]", what, "a return goes to the spawner; use a message")


def _results(trace: Trace, links: Links, columns: _Columns, problems: Findings) -> None:
    """A result must follow a call: an edge from one, or an earlier call of the same tool that nobody has answered."""
    events = trace.events
    whole = (links.src >= 0) & (links.dst >= 0)
    from_call = np.zeros(len(events), np.bool_)
    from_call[links.dst[whole & (columns.type[links.src] == _CALL)]] = True
    orphans = np.flatnonzero((columns.type == _RESULT) & ~from_call).tolist()
    if not orphans:
        return
    called: dict[str | None, list[float]] = {}
    for i in columns.of_type(_CALL):
        called.setdefault(events[i].tool, []).append(events[i].t)
    earliest = {tool: min(times) for tool, times in called.items()}
    for i in orphans:
        tool = events[i].tool
        if tool not in earliest or earliest[tool] > events[i].t:
            what = f"a result of {tool!r} with no call before it"
            problems.warning("orphan-result", f"events[{i}]", what, "record the tool_call, with an edge to its result")


def _source(trace: Trace, problems: Findings) -> None:
    """What an importer said its source leaves out."""
    about = trace.meta.get("import")
    lacks = about.get("lacks") if isinstance(about, dict) else None
    for what, times in lacks.items() if isinstance(lacks, dict) else ():
        problems.warning("source-lacks", "$.meta.import", f"{what} ({times})", "nothing was guessed in its place")


def _costs(trace: Trace, columns: _Columns, problems: Findings) -> None:
    def differ(name: str, counted: float, how: str) -> None:
        what = f"states {trace.costs[name]:g}, {how} {counted:g}"
        problems.warning("costs-differ", f"$.costs.{name}", what, "a source that rounds or leaves events out says so in meta")

    def compare(name: str, counted: float) -> None:
        if abs(trace.costs.get(name, counted) - counted) > _SLACK * max(1.0, abs(counted)):
            differ(name, counted, "its events carry")

    # One pass each; the dearer question (does any event carry it at all?) only when the sum is nothing.
    events, n = trace.events, len(trace.events)
    tokens = sum([(e.tokens_in or 0) + (e.tokens_out or 0) for e in events])
    if tokens or [e.tokens_in for e in events].count(None) < n or [e.tokens_out for e in events].count(None) < n:
        compare("tokens", tokens)
    if "cost_usd" in trace.costs:
        spent = sum([e.cost_usd or 0 for e in events])
        if spent or [e.cost_usd for e in events].count(None) < n:
            compare("cost_usd", spent)
    for name, code in (("tool_calls", _CALL), ("messages", _MESSAGE)):
        counted = int((columns.type == code).sum())
        if name in trace.costs and trace.costs[name] != counted:
            differ(name, counted, "its events are")
    stated = trace.costs.get("wall_clock_s")
    span = float(columns.t.max() - columns.t.min()) if len(columns.t) else 0.0
    if stated is not None and stated < span * (1 - _SLACK):
        starts = [e.t for e in events if e.role not in AROUND or e.ok is False]
        span = max(starts) - min(starts) if starts else span  # the wall clock is of the work (`quantities.span_s`)
        if stated < span * (1 - _SLACK):
            differ("wall_clock_s", span, "its events span")
