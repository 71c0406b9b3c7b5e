"""What is running, as a stream: batches of new events and a line for every trace that grows.

Always true: a batch has a number larger than every one before it, also of an earlier server; who comes back with the last number
seen gets every batch since, or, when these are forgotten, is told so (`event: reset`) and gets the whole picture; a slow reader
holds up nobody. Nothing is followed while nobody listens. An event is told once when it begins and once when it ends.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from counterpoint.app.viewer.collection import which_store
from counterpoint.app.viewer.events import cut_text, fields
from counterpoint.app.viewer.shapes import LiveBatch, LiveTrace
from counterpoint.app.viewer.team_orders import Steering
from counterpoint.errors import CounterpointError, InvalidTrace
from counterpoint.recorder.orders import OPERATOR
from counterpoint.store import Store
from counterpoint.store.journal import journals
from counterpoint.store.summary import Summary
from counterpoint.store.tally import is_short
from counterpoint.trace import Event, Trace
from counterpoint.trace.ending import under_way
from counterpoint.trace.lines import LineReader
from counterpoint.trace.naming import agent_names, title_of
from counterpoint.trace.quantities import members

# -- Traces as they grow: those in the journal, line by line, and stored ones that are replaced (`watch`, `serve`) -----------
# Always true: only what its writer knows to be on disk is told; what was there at the first look is not news; each look costs
# what has come since the last, not what there is. A trace is in the list as long as it is in the journal, or was stored or
# changed a short while ago, or its record ends in a call without an answer and was last at work within a week.

SILENT_S = 60.0
"""Seconds of silence after which an agent is marked as worth a look."""
_STORED_S = 0.5
_LATEST = 200
_SHOWN_S = 300.0
_WAITED_S = 7 * 86400.0
"""A stored trace that waits for an answer is shown for so long after it was last at work; older ones were cut off."""
_WAITING = 100
_WHOLE = 20_000
"""Of a stored trace with more events only the numbers are told."""
_READ_TOGETHER = 8
_TEXT = 200
_SUM = b'\n{"sum":'


class News(NamedTuple):
    """What a look found."""

    traces: list[LiveTrace]
    events: dict[str, list[dict[str, Any]]]

    @property
    def shape(self) -> list[tuple[Any, ...]]:
        """What makes a batch worth sending when there is no event: who runs, who is silent, what is open."""
        return [(one.id, one.events, one.silent_s > SILENT_S, len(one.open), one.is_steerable) for one in self.traces]


class Follower:
    """Looks at one store."""

    def __init__(self, store: Path | None) -> None:
        self._path = store
        self._store: Store | None = None
        self._which: tuple[int, ...] | None = None
        self._journals: dict[Path, _Journal] = {}
        self._stored: dict[str, _StoredTrace] = {}
        self._known: dict[str, tuple[str, int]] = {}
        """Stored trace to its version and its number of events, as last seen."""
        self._latest: list[str] = []
        self._looked = -_STORED_S
        self._has_looked = False
        self._was_open: dict[str, None] = {}
        self._waiting: list[Summary] = []

    def look(self) -> News:
        """Everything since the last look."""
        self._open()
        if self._store is None:
            self._has_looked = True
            return News([], {})
        events: dict[str, list[dict[str, Any]]] = {}
        self._look_at_journals(self._store.path / "journal", events)
        if time.monotonic() - self._looked >= _STORED_S:
            self._looked = time.monotonic()
            self._look_at_stored(self._store, events)
        self._has_looked = True
        now = time.time()
        traces = [one.live(now) for one in self._journals.values() if one.is_known]
        traces += [one.live(now) for one in self._stored.values()]
        shown = {one.id for one in traces}
        recent = (row for row in self._waiting if row.id not in shown and now - row.active < _WAITED_S)
        traces += [_StoredTrace(row, 0).live(now) for row in recent]
        return News(traces, {name: rows for name, rows in events.items() if rows})

    def _open(self) -> None:
        """Open the store once it is there; one that was removed, and perhaps made anew, is another one."""
        which = None if self._path is None else which_store(self._path)
        if which == self._which:
            return
        if self._store is not None:
            self._store.close()
        self._journals, self._stored, self._known, self._latest, self._was_open = {}, {}, {}, [], {}
        self._waiting = []
        self._store = None if self._path is None or which is None else Store(self._path, create=False, read_only=True)
        self._which = which

    # -- the journal ---------------------------------------------------------------------------------------------

    def _look_at_journals(self, folder: Path, events: dict[str, list[dict[str, Any]]]) -> None:
        paths = list(journals(folder))
        for gone in self._journals.keys() - set(paths):
            del self._journals[gone]
        for path in paths:
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # sealed while we looked
            one = self._journals.get(path)
            if one is None or one.inode != status.st_ino or status.st_size < one.at:
                one = self._journals[path] = _Journal(path, status.st_ino)
                is_news = self._has_looked
            else:
                is_news = True
            if status.st_size > one.size:
                found = one.more(status)
                if one.is_known:
                    self._was_open[one.name] = None
                    if is_news:
                        events.setdefault(one.name, []).extend(found)

    # -- the lake ------------------------------------------------------------------------------------------------

    def _look_at_stored(self, store: Store, events: dict[str, list[dict[str, Any]]]) -> None:
        now, reads = time.time(), 0
        latest = store.latest(_LATEST)
        if [version for version, _ in latest] == self._latest:
            latest = []
        else:
            self._latest = [version for version, _ in latest]
            found = [row for row in store.rows() if row.waiting and not row.is_open]
            self._waiting = sorted(found, key=lambda row: row.active, reverse=True)[:_WAITING]
        for version, row in reversed(latest):
            before, count = self._known.get(row.id, (None, 0))
            self._known[row.id] = version, row.events
            if before == version or not self._has_looked:
                continue
            if row.id in self._was_open:  # told line by line already
                del self._was_open[row.id]
                continue
            one = self._stored.setdefault(row.id, _StoredTrace(row, count if before else None))
            reads += 1
            events.setdefault(row.id, []).extend(one.changed(row, now, store if reads <= _READ_TOGETHER else None))
        for name in [name for name, one in self._stored.items() if now - one.written > _SHOWN_S]:
            del self._stored[name]


class _Journal:
    """One trace in the journal, read as far as its last sum."""

    def __init__(self, path: Path, inode: int) -> None:
        self.inode, self.at, self.size = inode, 0, 0
        self._path = path
        self._reader = LineReader(where=os.fspath(path))
        self._agents: set[str] = set()
        self._steering = Steering(path)
        self._count, self._last_t, self._written = 0, 0.0, 0.0
        self._title: str | None = None
        self._names: dict[str, str] = {}

    @property
    def is_known(self) -> bool:
        return self._reader.header is not None

    @property
    def name(self) -> str:
        assert self._reader.header is not None
        return self._reader.header.trace_id

    def more(self, status: os.stat_result) -> list[dict[str, Any]]:
        """The events that are new or have ended since the last call."""
        if is_short(self._path, status.st_size):
            return []  # the list says that it is damaged; else the next look sees it
        try:
            with open(self._path, "rb") as file:
                file.seek(self.at)
                data = file.read(status.st_size - self.at)
        except FileNotFoundError:
            return []
        self.size, self._written = status.st_size, status.st_mtime
        end = _summed(data)
        reader, known = self._reader, dict(self._reader.open)
        if not end:
            return []
        try:
            reader.feed(data[:end])
        except InvalidTrace:
            return []  # opening the trace says what is wrong
        self.at += end
        began = len(known)
        ended = [place for name, place in known.items() if name not in reader.open]
        fresh = [*(reader.events[place] for place in ended), *reader.events[began:]]
        out = [_event_fields(event, reader.contents, is_open=event.id in reader.open) for event in fresh]
        self._count += len(reader.events) - began
        self._agents |= members(reader.events[began:])
        self._steering.more(reader.events[began:])
        self._last_t = max([self._last_t, *(event.t + (event.dur or 0) for event in fresh)])
        self._name_them(reader)
        # Only what is still open is needed from here on; a long trace must not be held.
        reader.events = [reader.events[place] for place in reader.open.values()]
        reader.open = {event.id: place for place, event in enumerate(reader.events)}
        reader.edges.clear()
        reader.contents.clear()
        return out

    def _name_them(self, reader: LineReader) -> None:
        """What people call the trace and its agents, from what was read now: the rest of it is not held."""
        head = reader.header
        if head is None or not reader.events:
            return
        seen = Trace(
            trace_id=head.trace_id,
            task_id=head.task_id,
            events=list(reader.events),
            meta=head.meta,
            contents=dict(reader.contents),
        )
        self._title = self._title or title_of(seen)
        self._names = agent_names(seen) | self._names

    def live(self, now: float) -> LiveTrace:
        """The trace as a line."""
        head = self._reader.header
        assert head is not None
        return LiveTrace(
            id=head.trace_id,
            title=self._title,
            task_id=head.task_id,
            agents=len(self._agents - {OPERATOR}),
            events=self._count,
            last_t=self._last_t,
            silent_s=round(max(0.0, now - self._written), 1),
            open=_open(self._reader.events, self._names),
            **self._steering.now(),
        )


def _summed(data: bytes) -> int:
    """How many bytes are sealed by a sum that is whole."""
    at = len(data)
    while (at := data.rfind(_SUM, 0, at)) >= 0:
        end = data.find(b"\n", at + 1)
        if end >= 0:
            return end + 1
    return 0


class _StoredTrace:
    """One trace that is replaced, whole, whenever more of it is known."""

    def __init__(self, row: Summary, before: int | None) -> None:
        self._row, self.written = row, 0.0
        self._before = before
        """How many events it had when it was first seen; None for a new one."""
        self._marks: dict[str, int] | None = {} if before is None else None
        """Event to a hash of it, as last told; None before the first reading."""
        self._open = _waits(row)

    def changed(self, row: Summary, now: float, store: Store | None) -> list[dict[str, Any]]:
        """The events that are new or others than they were."""
        self._row, self.written, self._open = row, now, _waits(row)
        if store is None or row.events > _WHOLE:
            return []
        try:
            trace = store.get(row.id)
        except CounterpointError:  # removed or replaced meanwhile
            return []
        marks = {event.id: hash(repr(event)) for event in trace.events}
        fresh = self._fresh(trace, marks)
        self._marks = marks
        still = {event.id for event in under_way(trace)}
        names = agent_names(trace) if still else {}
        self._open = _waits(row) or _open((event for event in trace.events if event.id in still), names)
        return [_event_fields(event, trace.contents, is_open=event.id in still) for event in fresh]

    def _fresh(self, trace: Trace, marks: dict[str, int]) -> list[Event]:
        if self._marks is not None:
            return [event for event in trace.events if self._marks.get(event.id) != marks[event.id]]
        # What it was before is gone from the store; the latest are most likely what came.
        return sorted(trace.events, key=lambda event: event.t)[self._before :]

    def live(self, now: float) -> LiveTrace:
        """The trace as a line."""
        row = self._row
        return LiveTrace(
            id=row.id,
            title=row.title,
            task_id=row.task_id,
            agents=row.agents,
            events=row.events,
            last_t=float(row.wall_clock_s or 0.0),
            silent_s=round(max(0.0, now - (row.active if row.waiting and row.quarters else self.written)), 1),
            open=self._open,
        )


def _open(events: Iterable[Event], names: Mapping[str, str]) -> list[dict[str, Any]]:
    about = ((e, names.get(e.agent, e.agent)) for e in events)
    return [
        {"id": e.id, "agent": e.agent, "name": name, "type": e.type, "tool": e.tool, "since": e.t, "at": e.at}
        for e, name in about
    ]


def _waits(row: Summary) -> list[dict[str, Any]]:
    """The calls that the record of a stored trace ends in."""
    return [{"id": w.event, "agent": w.agent, "name": w.name, "what": w.what, "at": w.since} for w in row.waiting]


def _event_fields(event: Event, contents: dict[str, str], *, is_open: bool) -> dict[str, Any]:
    """An event as the page is told: its fields, the beginning of its text, and whether it has yet to end."""
    out = fields(event, _TEXT)
    out.pop("content_ref", None)
    text = contents.get(event.content_ref) if event.content_ref else None
    if text is not None:
        cut, size = cut_text(text, _TEXT)
        out |= {"text": cut, "text_size": size}
    if is_open:
        out["open"] = True
    return out


GAP_S = 0.04
"""No two batches are closer. The recorder writes every 50 ms, so an event is on the page within 100 ms of being made."""
LOOK_S = 0.015
"""While something runs and nothing has come, the next look is so soon; a look at what has not grown costs next to nothing."""
REFRESH_S = 5.0
"""How long a trace was silent is told again so often."""
_BEAT_S = 15.0
_LINGER_S = 60.0
"""After the last reader left, for so long the stream can still be resumed."""


class Ring:
    """The last batches, bounded in number and in bytes."""

    def __init__(self, count: int = 2_400, size: int = 32 << 20) -> None:
        self._count, self._size, self._held = count, size, 0
        self._batches: deque[tuple[int, bytes]] = deque()
        # Hundredths of a second since the epoch are ahead of all numbers that an earlier server gave away.
        self.seq = int(time.time() * 100)
        self._forgotten = self.seq
        """No batch up to this one is here."""

    def add(self, seq: int, data: bytes) -> None:
        """One more."""
        self.seq = seq
        self._batches.append((seq, data))
        self._held += len(data)
        while len(self._batches) > self._count or (self._held > self._size and len(self._batches) > 1):
            self._forgotten, old = self._batches.popleft()
            self._held -= len(old)

    def after(self, seq: int) -> list[tuple[int, bytes]] | None:
        """The batches after this number; None when some of them are not here."""
        if not self._forgotten <= seq <= self.seq:
            return None
        return [pair for pair in self._batches if pair[0] > seq]


def _message(seq: int, data: bytes) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (seq, data)


class Live:
    """One follower for any number of readers."""

    def __init__(self, store: Path | None) -> None:
        """`store` need not be there yet."""
        self.ring = Ring()
        self._follower = Follower(store)
        self._news = News([], {})
        self._told = 0.0
        self._readers = 0
        self._left = 0.0
        self._task: asyncio.Task[None] | None = None
        self._fresh = asyncio.Event()
        self._is_over = False

    def end(self) -> None:
        """Every stream ends; the server goes down."""
        self._is_over = True
        self._fresh.set()
        if self._task is not None:
            self._task.cancel()

    async def stream(self, after: int | None) -> AsyncIterator[bytes]:
        """Messages from a number on; None begins with the picture of now."""
        self._readers += 1
        try:
            if self._task is None or self._task.done():
                await self._look()
                self._task = asyncio.create_task(self._follow())
            yield b"retry: 1000\n\n"
            found = None if after is None else self.ring.after(after)
            if found is None:
                if after is not None:
                    yield b'event: reset\nid: %d\ndata: {"seq":%d}\n\n' % (self.ring.seq, self.ring.seq)
                after = self.ring.seq
                yield _message(after, self._batch(after, News(self._news.traces, {})))
            assert after is not None
            async for part in self._since(after):
                yield part
        finally:
            self._readers -= 1
            self._left = time.monotonic()

    async def _since(self, after: int) -> AsyncIterator[bytes]:
        while not self._is_over:
            found = self.ring.after(after)
            if found is None:  # too slow: begin again from the picture of now
                after = self.ring.seq
                yield b'event: reset\nid: %d\ndata: {"seq":%d}\n\n' % (after, after)
                yield _message(after, self._batch(after, News(self._news.traces, {})))
            elif found:
                after = found[-1][0]
                yield b"".join(_message(*pair) for pair in found)
            else:
                fresh = self._fresh
                try:
                    await asyncio.wait_for(fresh.wait(), _BEAT_S)
                except TimeoutError:
                    yield b": still here\n\n"

    async def _follow(self) -> None:
        """Look again and again, as long as somebody listens or may come back."""
        while self._readers or time.monotonic() - self._left < _LINGER_S:
            try:
                has_news = await self._look()
            except Exception:  # a store that cannot be read now may be read in a moment; the stream stays
                await asyncio.sleep(1.0)
                continue
            await asyncio.sleep(LOOK_S if self._news.traces and not has_news else GAP_S)

    async def _look(self) -> bool:
        """Make a batch of what has come; whether anything has."""
        news = await asyncio.get_running_loop().run_in_executor(None, self._follower.look)
        now = time.monotonic()
        has_changed = bool(news.events) or news.shape != self._news.shape
        self._news = news
        if not has_changed and (not news.traces or now - self._told < REFRESH_S):
            return False
        self._told = now
        seq = self.ring.seq + 1
        self.ring.add(seq, self._batch(seq, news))
        fresh, self._fresh = self._fresh, asyncio.Event()
        fresh.set()
        return True

    @staticmethod
    def _batch(seq: int, news: News) -> bytes:
        return msgspec.json.encode(LiveBatch(seq=seq, at=time.time(), traces=news.traces, events=news.events))
