"""`Recorder`: what a team does, written down as it happens: each event's opening and its close, and what it read.

Always true: an event that takes time is opened when it begins and closed when it ends, so a recording that breaks off shows
what was under way; every event says by its edges what it actually read; ids are e1, e2, ... in the order of recording; a key is
written once: on resuming, an event whose key is recorded already keeps its id and is not written again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

from msgspec.structs import replace

from counterpoint.errors import InputError
from counterpoint.trace import Edge, Event, Trace, content_ref

Reads = Iterable[tuple[str, str]]
"""Pairs of an event that was read and the type of the edge."""
Make = Callable[[Callable[[str], str]], Mapping[str, Any]]
"""Makes what a note says, given what keeps a text and gives its reference."""
_DIGITS = 6
_src = itemgetter(0)


class Sink(Protocol):
    """Where records go: a `store.Run`, or memory."""

    def event(self, event: Event) -> None: ...

    def edge(self, src: str, dst: str, type: str) -> None: ...

    def content(self, text: str) -> str: ...

    def later(self, note: dict[str, Any], make: Make, size: int = 0) -> None: ...

    def open(self, event: Event) -> str: ...

    def close(self, event_id: str, *, extra: Mapping[str, Any] | None = None, **fields: Any) -> None: ...


class MemorySink:
    """A recording that is kept in memory, as a fork's is until it is whole."""

    def __init__(self) -> None:
        self.events: dict[str, Event] = {}
        self.edges: list[Edge] = []
        self.contents: dict[str, str] = {}

    def event(self, event: Event) -> None:
        """Keep an event."""
        self.events[event.id] = event

    def edge(self, src: str, dst: str, type: str) -> None:
        """Keep an edge."""
        self.edges.append(Edge(src, dst, type))  # type: ignore[arg-type]  # our own callers name edge types

    def content(self, text: str) -> str:
        """Keep a text; gives its reference."""
        ref = content_ref(text)
        self.contents[ref] = text
        return ref

    def later(self, note: dict[str, Any], make: Make, size: int = 0) -> None:
        """Fill a note with what is made, here at once."""
        note.update(make(self.content))

    def open(self, event: Event) -> str:
        """Keep an event that has begun."""
        self.events[event.id] = event
        return event.id

    def close(self, event_id: str, *, extra: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Add what is known at the end."""
        event = self.events[event_id]
        joined = {**(event.extra or {}), **(extra or {})} or None
        known = {name: value for name, value in fields.items() if value is not None}
        self.events[event_id] = replace(event, extra=joined, **known)

    def drop(self, event_id: str) -> list[tuple[str, str]]:
        """Forget an event that a fork says never happened; gives what it had read."""
        self.events.pop(event_id)
        read = [(str(e.src), str(e.type)) for e in self.edges if e.dst == event_id]
        self.edges = [e for e in self.edges if event_id not in (e.src, e.dst)]
        return read


class Clock(Protocol):
    """When an event begins and how long it takes."""

    def start(self, agent: str, reads: Iterable[str]) -> float:
        """The time at which an event of this agent begins, after all that it reads."""

    def end(self, event: str, agent: str, t: float, dur: float | None) -> float:
        """Its duration; `dur` is what it is known to have taken, where it did not happen just now."""

    def restore(self, event: str, agent: str, t: float, dur: float) -> None:
        """An event that was recorded before the run was resumed."""


class WallClock:
    """Real time since the run began; a run that is resumed goes on after what it has."""

    def __init__(self) -> None:
        self._zero = time.monotonic_ns()

    def start(self, agent: str, reads: Iterable[str]) -> float:
        """Now, in whole microseconds: half the time of rounding."""
        return (time.monotonic_ns() - self._zero) // 1000 / 1e6

    def end(self, event: str, agent: str, t: float, dur: float | None) -> float:
        """From its beginning until now."""
        took = (time.monotonic_ns() - self._zero) // 1000 - int(t * 1e6 + 0.5)
        return took / 1e6 if took > 0 else 0.0

    def restore(self, event: str, agent: str, t: float, dur: float) -> None:
        """What comes now comes after it."""
        self._zero = min(self._zero, time.monotonic_ns() - math.ceil((t + dur) * 1e9))


class LogicalClock:
    """Time by dependence alone: an event begins when its agent is free and all that it reads is there.

    A run of fake models is the same to the byte each time, and a fork's times are those of a team in which recorded calls take
    as long as they took.
    """

    def __init__(self) -> None:
        self._free: dict[str, float] = {}
        self._end: dict[str, float] = {}

    def start(self, agent: str, reads: Iterable[str]) -> float:
        """The latest end of what it waits for."""
        begin = self._free.get(agent, 0.0)
        for name in reads:
            begin = max(begin, self._end.get(name, 0.0))
        return round(begin, _DIGITS)

    def end(self, event: str, agent: str, t: float, dur: float | None) -> float:
        """What it is known to take."""
        took = round(dur or 0.0, _DIGITS)
        self._end[event] = self._free[agent] = t + took
        return took

    def restore(self, event: str, agent: str, t: float, dur: float) -> None:
        """Its agent was busy with it."""
        self._end[event] = t + dur
        self._free[agent] = max(self._free.get(agent, 0.0), t + dur)


class Recorder:
    """Writes the events of one team into a sink."""

    def __init__(
        self,
        sink: Sink,
        clock: Clock,
        *,
        so_far: Trace | None = None,
        open_ids: Iterable[str] = (),
        keep: Callable[[str], str] | None = None,
    ) -> None:
        """`so_far` is what a run that is resumed has recorded; `open_ids` are its events without an end; `keep` keeps a text for
        the sink."""
        self.sink, self.clock, self.keep = sink, clock, keep or sink.content
        self._is_timed = not isinstance(clock, WallClock)
        self._begun: dict[str, tuple[str, float]] = {}
        self._known: dict[str, str] = {}
        self._silent: set[str] = set()
        """Events that are recorded already, whole."""
        self.texts: set[str] = set() if so_far is None else set(so_far.contents)
        """References of what events said."""
        self.count = 0
        if so_far is not None:
            unended = set(open_ids)
            self.count = len(so_far.events)
            for event in so_far.events:
                if event.key is not None:
                    self._known[event.key] = event.id
                if event.id in unended:
                    self._begun[event.id] = (event.agent, float(event.t))
                else:
                    self._silent.add(event.id)
                    clock.restore(event.id, event.agent, float(event.t), float(event.dur or 0.0))

    def open(
        self, agent: str, type: str, *, key: str | None = None, reads: Reads = (), text: str | None = None, **fields: Any
    ) -> str:
        """An event begins; gives its id."""
        event = self._known.get(key) if key is not None and self._known else None
        if event is not None:
            return event
        pairs = reads if isinstance(reads, list) else list(reads)
        name, t = self._begin(agent, pairs)
        ref = fields.pop("content_ref", None) if text is None else self._content(text)
        self.sink.open(Event(id=name, t=t, type=type, agent=agent, key=key, content_ref=ref, **fields))  # type: ignore[arg-type]
        self._read(name, pairs)
        self._begun[name] = (agent, t)
        return name

    def _content(self, text: str) -> str:
        ref = self.keep(text)
        self.texts.add(ref)
        return ref

    def _begin(self, agent: str, pairs: list[tuple[str, str]]) -> tuple[str, float]:
        """The next id, and when its event begins."""
        self.count += 1
        return f"e{self.count}", self.clock.start(agent, map(_src, pairs))

    def _read(self, name: str, pairs: list[tuple[str, str]]) -> None:
        edge = self.sink.edge
        for src, kind in pairs:
            edge(src, name, kind)

    def close(
        self,
        event: str,
        *,
        text: str | None = None,
        dur: float | None = None,
        extra: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        """The event ends, with what is known now."""
        begun = self._begun.get(event)
        if begun is None:  # recorded already, before the run broke off
            return
        agent, t = begun
        if text is not None:
            fields["content_ref"] = self._content(text)
        self.sink.close(event, dur=self.clock.end(event, agent, t, dur), extra=extra, **fields)
        del self._begun[event]  # not before: what the sink refuses may be closed again, without it

    def event(
        self,
        agent: str,
        type: str,
        *,
        key: str | None = None,
        reads: Reads = (),
        text: str | None = None,
        dur: float | None = None,
        **fields: Any,
    ) -> str:
        """An event that takes no time, or whose time is known; gives its id."""
        known = self._known.get(key) if key is not None and self._known else None
        if known is not None:
            return known
        pairs = reads if isinstance(reads, list) else list(reads)
        name, t = self._begin(agent, pairs)
        ref = fields.pop("content_ref", None) if text is None else self._content(text)
        if self._is_timed:
            self.clock.end(name, agent, t, dur)
        self.sink.event(
            Event(id=name, t=t, type=type, agent=agent, key=key, content_ref=ref, dur=dur, **fields)  # type: ignore[arg-type]
        )
        self._read(name, pairs)
        return name

    def edge(self, src: str, dst: str, type: str) -> None:
        """One more thing that an event turned out to have read; not for events that were recorded before a resume."""
        if dst not in self._silent:
            self.sink.edge(src, dst, type)

    def drop(self, event: str) -> list[tuple[str, str]]:
        """Forget an event of a fork that never happens; gives what it had read. Only in memory: a journal forgets nothing."""
        self._begun.pop(event, None)
        if not isinstance(self.sink, MemorySink):
            raise InputError("only a recording in memory can forget an event", fix="fork a recorded trace")
        return self.sink.drop(event)


def timed(events: list[Event], edges: Sequence[Edge], kept: Sequence[Event]) -> list[Event]:
    """When each event happens: as recorded where it was kept; the others when their agent is free and what they read is there."""
    read: dict[str, list[str]] = {}
    for edge in edges:
        read.setdefault(edge.dst, []).append(edge.src)
    free: dict[str, float] = {}
    end: dict[str, float] = {}
    out = []
    for place, event in enumerate(events):
        if place < len(kept):
            event = replace(event, t=kept[place].t, dur=kept[place].dur)
        else:
            begin = max([free.get(event.agent, 0.0), *(end[src] for src in read.get(event.id, ()))])
            event = replace(event, t=round(begin, 6))
        end[event.id] = float(event.t) + float(event.dur or 0.0)
        free[event.agent] = max(free.get(event.agent, 0.0), end[event.id])
        out.append(event)
    return out
