"""A trace as lines: a header, then one record per line. The journal's form, and the `.jsonl` file's.

Always true: `decode_lines(encode_lines(trace)) == trace`, number for number; a record is one line and no line holds a line
break, so a file that was cut off anywhere is a valid file plus a torn tail; a line is decoded or named, never skipped.

| line | says |
|---|---|
| `{"counterpoint":1,"trace_id":..,"task_id":..,"system":..,"topology":..,"meta":{}}` | the header, first |
| `{"event":{..}}` | an event; `"extra"` beside it holds what its own field names would hide |
| `{"open":{..}}`, `{"close":"e7","fields":{..}}` | an event that began; what is known at its end |
| `{"edge":{"src":..,"dst":..,"type":..}}` | an edge |
| `{"content":"sha256:..","text":".."}` | a text |
| `{"finish":{"rewards":{},"costs":{},"metrics":{},"meta":{}}}` | the end, last; without it the trace is unfinished |
| `{"sum":123}` | CRC-32 of all bytes since the last sum: a changed byte before it is found |
| `{"sum":123,"tally":true}` | the first of a journal: a file beside it says how much was acknowledged |
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import msgspec
from msgspec.structs import replace

from counterpoint.errors import InputError, InvalidTrace
from counterpoint.trace.line_records import (
    OPEN_EVENTS,
    UNFINISHED,
    UNREADABLE,
    VERSION,
    Content,
    Ending,
    Finish,
    Header,
    Record,
    any_decoder,
    encode_records,
    event_of,
    header_decoder,
    line_decoder,
    object_decoder,
    unlike,
)
from counterpoint.trace.records import BARE, PLAIN, Edge, Event
from counterpoint.trace.trace import Trace
from counterpoint.trace.wire import event_dict, event_from_dict

# -- writing -----------------------------------------------------------------------------------------------------


def header_line(
    trace_id: str, task_id: str, system: str | None = None, topology: Any = None, meta: dict[str, Any] | None = None
) -> bytes:
    """The first line; raises `InvalidTrace` for an empty id, an unknown topology, or meta that is not JSON."""
    header = Header(counterpoint=VERSION, trace_id=trace_id, task_id=task_id, system=system, topology=topology, meta=meta or {})
    why = unlike(header, header_decoder.decode)
    if why:
        raise InvalidTrace(f"the header cannot be written: {why}", where=f"trace {trace_id!r}")
    return msgspec.json.encode(header) + b"\n"


def sum_line(crc: int, *, is_tallied: bool = False) -> bytes:
    """The line that seals the bytes before it; the first one of a journal says whether there is a tally beside it."""
    return (b'{"sum":%d,"tally":true}\n' if is_tallied else b'{"sum":%d}\n') % crc


def encode_lines(trace: Trace) -> bytes:
    """The whole trace as the bytes of a `.jsonl` file."""
    records: list[Record] = [*trace.events, *trace.edges]
    records += [Content(ref, text) for ref, text in trace.contents.items()]
    records.append(Finish.of(trace.rewards, trace.costs, trace.metrics))
    data, refused = encode_records(records)
    if refused:
        what = f"{_name(refused[0].record)} cannot be written: {refused[0].why}"
        raise InvalidTrace(what, where=f"trace {trace.trace_id!r}", fix="see `counterpoint store check` for the whole list")
    return header_line(trace.trace_id, trace.task_id, trace.system, trace.topology, trace.meta) + data


def _name(record: Any) -> str:
    return f"event {record.id!r}" if isinstance(record, Event) else f"a record of kind {type(record).__name__.lower()}"


# -- reading -----------------------------------------------------------------------------------------------------


def is_lines(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a trace as lines."""
    return re.match(rb'\s*\{\s*"counterpoint"\s*:\s*\d', head) is not None


def decode_lines(data: bytes | bytearray | memoryview, *, where: str | None = None) -> Trace:
    """A trace from the bytes of a `.jsonl` file; `InvalidTrace` with the line's number when a line is wrong.

    A last line without its line break counts when it is whole: people edit such files. A file with no `finish` line is an
    unfinished trace, and its `meta` says so.
    """
    text = bytes(data)  # no copy where it is bytes already
    reader = LineReader(where=where)
    reader.feed(text if text.endswith(b"\n") or not text else text + b"\n")
    return reader.trace()


class LineReader:
    """Reads lines as they come, keeps what they say, and gives the trace so far."""

    def __init__(self, *, where: str | None = None) -> None:
        self.where = where
        self.header: Header | None = None
        self.events: list[Event] = []
        self.edges: list[Edge] = []
        self.contents: dict[str, str] = {}
        self.open: dict[str, int] = {}
        """Events that have begun and not ended, by id, with their place."""
        self.finished: Ending | None = None
        self.line = 0
        self.at = 0
        """Where the line being read begins, in the bytes last fed."""
        self.crc = 0
        """CRC-32 of the bytes since the last sum."""
        self.is_tallied = False
        """Whether a file beside it says how much of it was acknowledged."""

    def feed(self, data: bytes) -> int:
        """Read the whole lines of these bytes; returns how many bytes they are. What follows is a torn tail."""
        end = data.rfind(b"\n") + 1
        summed = begin = 0
        while begin < end:
            stop = data.index(b"\n", begin)
            line, self.at = data[begin:stop], begin
            self.line += 1
            if line.startswith(b'{"sum":'):
                self._check_sum(line, zlib.crc32(data[summed:begin], self.crc))
                self.crc, summed = 0, stop + 1
            elif line and not line.isspace():
                self._take(line)
            begin = stop + 1
        self.crc = zlib.crc32(data[summed:end], self.crc)
        return end

    def _check_sum(self, line: bytes, crc: int) -> None:
        try:
            record = line_decoder.decode(line)
        except UNREADABLE as error:
            raise self._wrong(str(error)) from error
        if record.sum != crc:
            raise self._wrong("a byte before it has changed since it was written", "take the file from a copy")
        self.is_tallied |= bool(record.tally)

    def _take(self, line: bytes) -> None:
        if self.header is None:
            self.header = self._read_header(line)
            return
        if self.finished is not None:
            raise self._wrong("there is a record after the finish", "one file holds one trace")
        try:
            record = line_decoder.decode(line)
            if record.event is not None:
                self.events.append(record.event)
                return
        except UNREADABLE:
            self._take_slowly(line)
            return
        if record.edge is not None:
            self.edges.append(record.edge)
        elif record.open is not None:
            self._open(record.open)
        elif record.close is not None:
            self._close(record.close, record.fields or {})
        elif record.content is not None and record.text is not None:
            self.contents[record.content] = record.text
        elif record.finish is not None:
            self.finished = record.finish
        else:
            raise self._wrong("is not a record of a trace", "a record is event, open, close, edge, content or finish")

    def _take_slowly(self, line: bytes) -> None:
        """Events with fields of their own; everything else that comes here is wrong."""
        try:
            obj = object_decoder.decode(line)
            if "event" in obj and obj.keys() <= {"event", "extra"}:
                self.events.append(event_of(obj, "event"))
                return
            if "open" in obj and obj.keys() <= {"open", "extra"}:
                self._open(event_of(obj, "open"))
                return
            line_decoder.decode(line)
        except UNREADABLE as error:
            raise self._wrong(_plain(error)) from error
        raise AssertionError("a line that is both wrong and right")  # pragma: no cover

    def _open(self, event: Event) -> None:
        self.open[event.id] = len(self.events)
        self.events.append(event)

    def _close(self, name: str, fields: dict[str, Any]) -> None:
        if name not in self.open:
            raise self._wrong(f"closes {name!r}, which is not open", "an event opens once and closes once")
        place = self.open.pop(name)
        event = self.events[place]
        try:
            if event.extra is None and fields.keys() <= PLAIN:  # the usual end, in a third of the time
                msgspec.convert(BARE | fields, Event)
                self.events[place] = replace(event, **fields)
                return
        except UNREADABLE:
            pass  # what has the wrong type, or is below zero, goes where it belongs
        try:
            # Its `extra` apart: a name in it may be a field's, and must not come back as that field.
            closed = event_from_dict(event_dict(replace(event, extra=None)) | fields)
        except UNREADABLE as error:
            raise self._wrong(_plain(error)) from error
        extra = {**(event.extra or {}), **(closed.extra or {})}
        self.events[place] = replace(closed, extra=extra or event.extra)

    def _read_header(self, line: bytes) -> Header:
        try:
            version = any_decoder.decode(object_decoder.decode(line).get("counterpoint", b"null"))
        except UNREADABLE as error:
            raise self._wrong(_plain(error), "is this a trace as lines? its first line is the header") from error
        if not isinstance(version, int):
            raise self._wrong("is not a header", 'the first line is {"counterpoint":1,"trace_id":..,"task_id":..}')
        if version > VERSION:
            raise InputError(
                f"was written by a newer Counterpoint (format {version}; this one reads up to {VERSION})",
                where=self.where,
                fix="install a newer version of Counterpoint",
            )
        try:
            return header_decoder.decode(line)
        except UNREADABLE as error:
            raise self._wrong(_plain(error)) from error

    def _wrong(self, what: str, fix: str | None = None) -> InvalidTrace:
        place = f"line {self.line}"
        return InvalidTrace(what, where=f"{self.where}: {place}" if self.where else place, fix=fix)

    def trace(self) -> Trace:
        """The trace as far as it was read; an unfinished one says so in `meta`."""
        if self.header is None:
            raise self._wrong("there is no header", 'the first line is {"counterpoint":1,"trace_id":..,"task_id":..}')
        head, end = self.header, self.finished or Ending()
        meta = head.meta | end.meta
        if self.finished is None:
            meta[UNFINISHED] = True
        if self.open:
            meta[OPEN_EVENTS] = list(self.open)
        return Trace(
            trace_id=head.trace_id,
            task_id=head.task_id,
            system=head.system,
            topology=head.topology,
            events=list(self.events),
            edges=list(self.edges),
            rewards=end.rewards,
            costs=end.costs,
            metrics=end.metrics,
            meta=meta,
            contents=dict(self.contents),
        )


def _plain(error: Exception) -> str:
    return re.sub(r"^JSON is malformed: ", "not JSON: ", str(error))
