"""`Run`: recording one trace. `event` appends to a list; threads and tasks that ask for durability share one sync.

Always true: `sync` and `sync_async` return only when every record made before the call is on disk, or raise; a record that the
disk refused stays and is tried again at the next sync; a record that no line can carry is kept in `refused`, and every sync
says so until `drop_refused`. An event is in the journal before any edge that names it.
"""

from __future__ import annotations

import functools
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from counterpoint.errors import CounterpointError, InputError, InvalidTrace, did_you_mean
from counterpoint.store.flusher import Flusher
from counterpoint.store.journal import Journal
from counterpoint.trace import Edge, Event, Trace, content_ref, summed_costs
from counterpoint.trace.line_records import Close, Content, Finish, Refusal, encode_records, open_line
from counterpoint.trace.lines import LineReader
from counterpoint.trace.records import BARE, FIELDS, wire_name
from counterpoint.trace.wire import event_from_dict

if TYPE_CHECKING:
    import asyncio

    from counterpoint.store.disk_answer import DiskAnswer

Numbers = dict[str, int | float]
_NAMES = frozenset(map(wire_name, FIELDS)) | {"extra"}
_TYPES: dict[str, tuple[type, ...]] = {"dur": (float, int), "ok": (bool,), "tokens_in": (int,), "tokens_out": (int,)}
_TYPES |= {"cost_usd": (float, int), "content_ref": (str,), "error": (str,), "model": (str,)}
_USUAL = frozenset((name, kind) for name, kinds in _TYPES.items() for kind in (*kinds, type(None)))
"""The usual fields of a close, each with what it may be; the others are looked at more slowly."""
_RECORD = 400
"""Bytes of a record in memory, its texts apart."""
Check = Callable[[Trace], object]
Seal = Callable[[Trace], None]


Make = Callable[[Callable[[str], str]], Mapping[str, Any]]
"""Makes what a note says, given what keeps a text (one, at most) and gives its reference; it does not raise."""


_UNNAMED = f"unnamed-{secrets.token_hex(12)}-"
"""How the stand-ins for references begin: nobody else's text does."""
_UNNAMED_REF = re.compile(_UNNAMED.encode() + rb"(\d+)")


class _Text(Struct, frozen=True, gc=False):
    """A text that is hashed when it is written."""

    text: str


class _Later(Struct, frozen=True):
    """A note that is filled when it is written."""

    note: dict[str, Any]
    make: Make
    size: int


class Run:
    """The recorder of one trace, from `Store.record` or `Store.resume`; safe to share between threads and tasks.

    `event` and `edge` record, `open` and `close` frame what takes time, `sync` waits for the disk, `finish` moves the trace to
    the lake.
    """

    def __init__(
        self,
        trace_id: str,
        journal: Journal,
        flusher: Flusher,
        check: Check,
        seal: Seal,
        *,
        so_far: LineReader | None = None,
        is_idle: bool = False,
    ) -> None:
        """Use `Store.record` or `Store.resume`. With `is_idle` nothing is written before somebody asks for it."""
        self.trace_id = trace_id
        self.refused: list[Refusal] = []
        """Records that no line can carry, with the reason."""
        self.trouble: CounterpointError | None = None
        """Why the disk did not take the latest records; they stay, and are tried again."""
        self.beside: Callable[[], object] | None = None
        """What else is done in the thread that writes, as often as it does; it does not raise."""
        self._journal, self._flusher = journal, flusher
        self._check, self._seal = check, seal
        self._buffer: list[Any] = []
        self._chars = 0
        """Characters of texts that wait for the disk."""
        self._ids: set[str] = {e.id for e in so_far.events} if so_far else set()
        self._open: set[str] = set(so_far.open) if so_far else set()
        self._refs: set[str] = set(so_far.contents) if so_far else set()
        self._made: set[str] = set(self._refs)
        """Those of texts that were hashed when they were written."""
        self._names: list[str] = []
        """Those of texts that `text` took, in this order."""
        self._texts, self._naming = 0, threading.Lock()
        self._last: tuple[str | None, str] = None, ""
        self._lost: set[str] = set()
        self._done = 0
        self._commit_lock = threading.Lock()
        self._waiting: dict[asyncio.AbstractEventLoop, DiskAnswer] = {}
        self._is_over = False
        self._held: dict[str, str] | None = {} if is_idle else None
        """Texts that wait, where nobody writes them: once each, for they are counted."""
        if not is_idle:
            flusher.add(self)

    # -- recording -----------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Record an event. It is durable after the next `sync`, or within the store's flush interval."""
        name = event.id
        if name in self._ids or self._is_over:
            raise self._repeated(name)
        self._buffer.append(event)
        self._ids.add(name)

    def edge(self, src: str, dst: str, type: str) -> None:
        """Record that event `dst` depends on, or read, event `src`. Both must be recorded already."""
        ids = self._ids
        if src not in ids or dst not in ids or self._is_over:
            self._alive()
            missing = src if src not in ids else dst
            raise InvalidTrace(f"there is no event {missing!r} yet", where=self._where, fix="record the event before its edge")
        self._buffer.append(Edge(src, dst, type))  # type: ignore[arg-type]  # checked when the line is written

    def content(self, text: str) -> str:
        """Keep a text, once; returns its reference, for an event's `content_ref`."""
        if self._is_over:
            self._alive()
        ref = content_ref(text)
        if ref not in self._refs:
            self._refs.add(ref)
            self._chars += len(text)
            self._buffer.append(Content(ref, text))
        return ref

    def text(self, text: str) -> str:
        """The same, hashed in the thread that writes: gives what stands for the reference in records of this run, until then."""
        if self._is_over:
            self._alive()
        known, name = self._last
        if known is text:  # what a step says is its event's text and its call's completion
            return name
        if self._held is not None and (held := self._held.get(text)) is not None:
            return held
        with self._naming:
            name = f"{_UNNAMED}{self._texts}"
            self._texts += 1
            self._buffer.append(_Text(text))
            if self._held is not None:
                self._held[text] = name
        self._chars += len(text)
        self._last = text, name
        return name

    def later(self, note: dict[str, Any], make: Make, size: int = 0) -> None:
        """Fill a note in the thread that writes, with what `make` makes of about `size` characters, given how to keep a text."""
        self._chars += size
        self._buffer.append(_Later(note, make, size))

    def open(self, event: Event) -> str:
        """Record that an event began; until `close` it stands in the trace as open. Returns its id."""
        if event.id in self._ids or self._is_over:
            raise self._repeated(event.id)
        line, why = open_line(event)
        if why:  # at once, for a close without its open could not be read back
            raise InvalidTrace(f"event {event.id!r} cannot be written: {why}", where=self._where)
        self._buffer.append(line)
        self._ids.add(event.id)
        self._open.add(event.id)
        return event.id

    def close(self, event_id: str, *, extra: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Record that an open event ended, with the fields that are known now: `run.close("e7", dur=1.5, ok=True)`.

        What `extra` holds joins the event's own `extra`; none of its names may be a field's.
        """
        if event_id not in self._open or self._is_over:
            self._alive()
            what = f"event {event_id!r} is not open"
            raise InvalidTrace(what, where=self._where, fix=did_you_mean(event_id, self._open))
        known = {name: value for name, value in fields.items() if value is not None}
        if not _USUAL.issuperset([(name, type(value)) for name, value in fields.items()]):
            known = self._odd(event_id, fields)
        if extra:
            if not _NAMES.isdisjoint(extra):
                hidden = [name for name in extra if name in _NAMES]
                raise InputError(f"{hidden[0]!r} is a field of an event, not extra", fix=f"close(..., {hidden[0]}=...)")
            known |= extra
        self._open.discard(event_id)
        self._buffer.append(Close(event_id, known))

    def _odd(self, event_id: str, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a close that is not of the usual kind, by their JSON names."""
        if unknown := [f for f in fields if f not in FIELDS or f == "id"]:
            raise InputError(f"an event has no field {unknown[0]!r} to close with", fix=did_you_mean(unknown[0], FIELDS))
        known = {wire_name(k): v for k, v in fields.items() if v is not None}
        try:
            is_typed = event_from_dict(BARE | known).extra is None
        except msgspec.ValidationError:
            is_typed = False
        if not is_typed:
            raise InvalidTrace(f"event {event_id!r} cannot close with a field of another type", where=self._where)
        return known

    def _repeated(self, name: str) -> CounterpointError:
        self._alive()
        return InvalidTrace(f"the event id {name!r} was used before", where=self._where, fix="make ids unique")

    @property
    def _where(self) -> str:
        return f"trace {self.trace_id!r}"

    def _alive(self) -> None:
        if self._is_over or not self._journal.is_open:
            raise InputError("this run is over", where=self._where, fix="store.resume(id) resumes an unfinished one")

    # -- durability ----------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Return when everything recorded so far is durable. Threads that wait together share one sync of the disk."""
        self._alive()
        # In this order: a commit in between can only make the number too large, which costs a sync and loses nothing.
        upto = len(self._buffer)
        upto += self._done
        self._commit(upto)
        if self.refused:
            raise self._refusal()

    def sync_async(self) -> asyncio.Future[None]:
        """The same for tasks, `await run.sync_async()`: the event loop goes on while the disk works."""
        if self._is_over:
            self._alive()
        import asyncio  # slow to import, and for tasks alone

        loop = asyncio.get_running_loop()
        # Whoever asks before the next commit begins shares one answer: a future each would be a tenth of the whole cost.
        future = self._waiting.get(loop)
        if future is None:
            from counterpoint.store.disk_answer import DiskAnswer

            future = self._waiting[loop] = DiskAnswer(loop=loop)
            self._flusher.wake(self)
        return future

    @property
    def load(self) -> int:
        """About how many bytes of records wait in memory for the disk."""
        return len(self._buffer) * _RECORD + self._chars

    def is_crowded(self, most: int) -> bool:
        """Whether more than so many bytes wait in memory: of this run, or of all that its flusher writes."""
        return self.load > most or self._flusher.load() > most

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits for its records to be durable."""
        return bool(self._waiting)

    def flush(self) -> None:
        """Write what there is, and what is awaited meanwhile, if the disk takes it."""
        while self._buffer or self.is_awaited:
            try:
                self._commit()
            except CounterpointError:
                break  # those who waited were told; the records stay, and the next sync says it again
            if not self.is_awaited:
                break
        if self.beside is not None:
            self.beside()

    def abandon(self) -> None:
        """In a forked child: the journal is its parent's."""
        self._is_over = True

    def _commit(self, upto: int | None = None) -> None:
        """Take what there is, write it, sync, and tell those who wait; nothing to do when a leader has got to `upto`."""
        with self._commit_lock:
            if upto is not None and self._done >= upto:
                return
            # Those who wait first, then what there is: who asks in between gets the next commit's answer, never too early a
            # one. A slice and not a swap: another thread may append between any two steps here, and must find the same list.
            waiting = {loop: self._waiting.pop(loop) for loop in list(self._waiting)}
            batch = self._buffer[:]
            self._make(batch)
            error: CounterpointError | None = None
            try:
                if batch:
                    lines, refused = self._lines(batch)
                    if lines:
                        self._journal.append(lines)
                    self.refused += refused
                    self._done += len(batch)
                    del self._buffer[: len(batch)]
                    self._chars -= sum(len(record.text) for record in batch if type(record) is Content)
                error = self._refusal() if self.refused else None
                self.trouble = None
            except CounterpointError as failed:
                error = self.trouble = failed
                raise
            finally:
                for loop, answer in waiting.items():
                    if not loop.is_closed():
                        loop.call_soon_threadsafe(answer.tell, error)

    def _make(self, batch: list[Any]) -> None:
        """Fill the notes of a batch, once: what is tried again after the disk refused it has them."""
        for place, record in enumerate(batch):
            if type(record) is _Later:
                made: list[Content] = []
                record.note.update(record.make(functools.partial(self._keep_made, made)))
                self._chars -= record.size
                batch[place] = self._buffer[place] = made[0] if made else b""
            elif type(record) is _Text:
                made = []
                self._names.append(self._keep_made(made, record.text))
                self._chars -= len(record.text)
                batch[place] = self._buffer[place] = made[0] if made else b""

    def _keep_made(self, made: list[Content], text: str) -> str:
        ref = content_ref(text)
        if ref not in self._made:
            self._made.add(ref)
            self._chars += len(text)
            made.append(Content(ref, text))
        return ref

    def _lines(self, batch: list[Any]) -> tuple[bytes, list[Refusal]]:
        """The lines of a batch. An edge falls with its event, so that the journal never names what it does not hold."""
        lines, refused = encode_records(batch)
        if self._names:
            lines = _UNNAMED_REF.sub(self._name, lines)
        if not refused and not self._lost:
            return lines, refused
        self._lost |= {r.record.id for r in refused if isinstance(r.record, Event)}
        fallen = [r for r in batch if isinstance(r, Edge) and (r.src in self._lost or r.dst in self._lost)]
        lines, refused = encode_records([r for r in batch if r not in fallen])
        lines = _UNNAMED_REF.sub(self._name, lines)
        return lines, refused + [Refusal(edge, "one of its events was refused") for edge in fallen]

    def _name(self, found: re.Match[bytes]) -> bytes:
        return self._names[int(found[1])].encode()

    def _refusal(self) -> InvalidTrace:
        first = self.refused[0]
        more = f", and {len(self.refused) - 1} more" if len(self.refused) > 1 else ""
        name = getattr(first.record, "id", type(first.record).__name__.lower())
        return InvalidTrace(
            f"record {name!r} cannot be written: {first.why}{more}",
            where=self._where,
            why="everything else is durable",
            fix="correct it and record it again; run.drop_refused() continues without it",
        )

    def drop_refused(self) -> list[Refusal]:
        """Go on without the records that could not be written; returns them."""
        with self._commit_lock:
            dropped, self.refused = self.refused, []
            self._ids -= self._lost
            self._lost = set()
        return dropped

    # -- the end -------------------------------------------------------------------------------------------------

    def finish(
        self,
        rewards: Numbers | None = None,
        costs: Numbers | None = None,
        metrics: Numbers | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Trace:
        """End the trace and move it from the journal to the lake. Costs that are not given are counted from the events."""
        trace = self.end(rewards, costs, metrics, meta)
        self._seal(trace)
        self.delete()
        return trace

    def end(
        self,
        rewards: Numbers | None = None,
        costs: Numbers | None = None,
        metrics: Numbers | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Trace:
        """The first half of `finish`: the journal has the whole trace, and whoever opens the store next moves it to the lake."""
        if self._has_finish and self._journal.is_open:  # sealing failed before, and is tried again
            trace = self._journal.read().trace()
        else:
            self.sync()
            so_far = self._journal.read()
            end = Finish.of(rewards, dict(summed_costs(so_far.events)) | (costs or {}), metrics, meta)
            so_far.finished = end.finish
            trace = so_far.trace()
            self._check(trace)
            self._write_finish(end)
        return trace

    def delete(self) -> None:
        """Remove the journal: the trace is in the lake, or nobody wants it."""
        self._is_over = True
        self._flusher.discard(self)
        self._journal.delete()

    def _write_finish(self, end: Finish) -> None:
        lines, refused = encode_records([end])
        if refused:
            raise InvalidTrace(f"the trace cannot be finished: {refused[0].why}", where=self._where)
        with self._commit_lock:
            if self._buffer:
                raise InputError("something was recorded while the trace was ending", where=self._where, fix="finish it again")
            self._journal.append(lines)
            self._is_over = self._has_finish = True
        self._flusher.discard(self)

    _has_finish = False

    def release(self) -> None:
        """Stop recording and leave the trace unfinished, in the journal, for `Store.resume`."""
        try:
            if not self._is_over and self._journal.is_open:
                self._commit()
        finally:
            self._is_over = True
            self._flusher.discard(self)
            self._journal.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.release()
        except CounterpointError as failed:
            if error is None:
                raise
            error.add_note(f"and the journal could not be written: {failed}")
