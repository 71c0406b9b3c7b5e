"""Whole traces from other machines, as `counterpoint store push` sends them: in the store before they are acknowledged.

Always true: what was answered is in the store, also after a kill or a power cut; sending it again changes nothing. A trace comes
with the digest that its own store knows it by, and is taken only where it has the same here. Where two machines use one id for
two traces, the second is stored as ID-WRITER. What somebody removed here stays out. Requests that come together share one commit.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future

import msgspec
from msgspec import Struct

from counterpoint.errors import InputError, TryAgain
from counterpoint.store import Store
from counterpoint.store.writing import digest_of
from counterpoint.trace import Trace
from counterpoint.trace.annotation import renamed, with_annotations
from counterpoint.trace.lines import decode_lines

PATH = "/v1/counterpoint/traces"
PARCEL = "application/vnd.counterpoint.traces"
"""The content type of a `Parcel` in msgpack."""
_BYTES_TOGETHER = 32 << 20
"""Traces of at most so many bytes share a commit; they are in memory while they are written."""


class ParcelTrace(Struct, frozen=True, array_like=True):
    """One trace on its way."""

    digest: str
    """By which the sender's store knows it."""
    source: str | None
    """Where the sender's store has it from."""
    lines: bytes
    """The trace in the form .jsonl, which keeps everything."""


class Parcel(Struct, frozen=True, array_like=True):
    """What one request holds."""

    writer: str
    """The sender's store, by a name that it keeps."""
    traces: list[ParcelTrace]


class Receipt(Struct, frozen=True, omit_defaults=True):
    """What became of one trace, in the order of the request."""

    what: str
    """added, unchanged, updated, removed (here, by somebody, and left out), or refused."""
    id: str = ""
    """What it is called in the store."""
    why: str = ""
    """Of a refused one."""


class _Waiting:
    """A request that waits for its commit."""

    def __init__(self, parcel: Parcel) -> None:
        self.parcel, self.done = parcel, Future[list[Receipt]]()
        self.size = sum(len(sent.lines) for sent in parcel.traces)


class Collector:
    """Takes parcels into a store, in a thread of its own."""

    def __init__(self, store: Store, counts: Counter[str]) -> None:
        self._store, self._counts = store, counts
        self._waiting: list[_Waiting] = []
        self._wake = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
        self._thread.start()

    def put(self, body: bytes) -> Future[list[Receipt]]:
        """Done when all that the body holds is durable, or known to be refused; `InputError` where it is no parcel."""
        try:
            waiting = _Waiting(msgspec.msgpack.decode(body, type=Parcel))
        except (msgspec.MsgspecError, ValueError) as error:
            raise InputError("is not a batch of traces", why=str(error), fix="counterpoint store push sends them") from error
        with self._wake:
            if self._is_closing:
                raise TryAgain("the collector is shutting down")
            self._waiting.append(waiting)
            self._wake.notify()
        return waiting.done

    def close(self) -> None:
        """Store what waits."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._is_closing)
                if not self._waiting:
                    return
                some, size = [self._waiting.pop(0)], 0
                while self._waiting and size + self._waiting[0].size <= _BYTES_TOGETHER:
                    size += self._waiting[0].size
                    some.append(self._waiting.pop(0))
            try:
                found = self._stored([(w.parcel.writer, sent) for w in some for sent in w.parcel.traces])
            except Exception as error:  # a full disk, a store in other hands: senders keep what they have and come again
                for w in some:
                    w.done.set_exception(error)
                continue
            self._counts.update(f"traces {kept.what}" for kept in found)
            for w in some:
                n = len(w.parcel.traces)
                w.done.set_result(found[:n])
                found = found[n:]

    def _stored(self, sent: Sequence[tuple[str, ParcelTrace]]) -> list[Receipt]:
        """All of them together, which is quicker; one by one where one of them cannot be."""
        read = [_read(one) for _, one in sent]
        pairs = [(trace, *one) for trace, one in zip(read, sent, strict=True)]
        good = [(trace, _source(w, one)) for trace, w, one in pairs if isinstance(trace, Trace)]
        good = [(trace, source) for trace, source in good if not self._store.removals.has_sent(trace, source)]
        try:
            whats = self._store.add_many([trace for trace, _ in good], [source for _, source in good])
        except InputError:
            return [self._alone(w, one, x) if isinstance(x, Trace) else Receipt("refused", why=x) for x, w, one in pairs]
        kept = {id(trace): what for (trace, _), what in zip(good, whats, strict=True)}
        return [
            Receipt(kept.get(id(x), "removed"), x.trace_id) if isinstance(x, Trace) else Receipt("refused", why=x) for x in read
        ]

    def _alone(self, writer: str, sent: ParcelTrace, trace: Trace) -> Receipt:
        source = _source(writer, sent)
        try:
            return self._put(trace, source)
        except InputError:
            own = renamed(trace, f"{trace.trace_id}-{writer}")
        try:
            return self._put(own, source)
        except InputError as error:
            return Receipt("refused", why=error.one_line())

    def _put(self, trace: Trace, source: str) -> Receipt:
        is_removed = self._store.removals.has_sent(trace, source)
        return Receipt("removed" if is_removed else self._store.add(trace, source), trace.trace_id)


def _source(writer: str, sent: ParcelTrace) -> str:
    """Where a trace is from, as the store tells writers apart."""
    return f"{writer}:{sent.source or ''}"


def _read(sent: ParcelTrace) -> Trace | str:
    """The trace, or why it is none."""
    try:
        trace = decode_lines(sent.lines)
        is_same = digest_of(with_annotations(trace, ())) == sent.digest.partition("+")[0]  # what people say is not a part of it
        return trace if is_same else "it is not the trace that was sent: its digest differs"
    except InputError as error:
        return error.one_line()
