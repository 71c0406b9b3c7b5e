"""The records of a trace as lines, and their decoders. The form itself is described in `lines.py`.

Always true: records are frozen; a decoder here takes what `lines.py` writes and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from counterpoint.trace.records import FIELDS, Edge, Event, Name, Number, wire_name
from counterpoint.trace.vocabulary import Topology
from counterpoint.trace.wire import decode_event, event_dict

VERSION = 1
UNFINISHED = "unfinished"
"""The key of `meta` that marks a trace whose end was not recorded."""
OPEN_EVENTS = "open_events"
"""The key of `meta` that lists events which began and did not end: a hung tool."""


class Header(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The first line."""

    counterpoint: int
    trace_id: Name
    task_id: Name
    system: str | None = None
    topology: Topology | None = None
    meta: dict[str, Any] = field(default_factory=dict)


class Open(Struct, frozen=True, gc=False):
    """An event that has begun."""

    open: Event


class Close(Struct, frozen=True, gc=False):
    """The end of an event, with the fields (JSON names) that are known by then."""

    close: str
    fields: dict[str, Any] = field(default_factory=dict)


class Content(Struct, frozen=True, gc=False):
    """A text and its reference."""

    content: str
    text: str


class Ending(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    rewards: dict[str, Number] = field(default_factory=dict)
    costs: dict[str, Number] = field(default_factory=dict)
    metrics: dict[str, Number] | None = None
    meta: dict[str, Any] = field(default_factory=dict)


class Finish(Struct, frozen=True):
    """The end of the trace."""

    finish: Ending

    @classmethod
    def of(
        cls,
        rewards: dict[str, Number] | None = None,
        costs: dict[str, Number] | None = None,
        metrics: dict[str, Number] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Finish:
        """The finish record of these maps."""
        return cls(Ending(rewards=rewards or {}, costs=costs or {}, metrics=metrics, meta=meta or {}))


Record = Event | Edge | Open | Close | Content | Finish


class Line(Struct, forbid_unknown_fields=True):
    """Any line after the header, by the fast route."""

    event: Event | None = None
    edge: Edge | None = None
    open: Event | None = None
    close: str | None = None
    fields: dict[str, Any] | None = None
    content: str | None = None
    text: str | None = None
    finish: Ending | None = None
    sum: int | None = None
    tally: bool | None = None


header_decoder = msgspec.json.Decoder(Header)
event_decoder = msgspec.json.Decoder(Event)
line_decoder = msgspec.json.Decoder(Line)
object_decoder = msgspec.json.Decoder(dict[str, Raw])
any_decoder = msgspec.json.Decoder()
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def event_of(obj: dict[str, Raw], kind: str) -> Event:
    """The event of a line: fields that are not declared are kept, those beside it join them."""
    event = decode_event(obj[kind])
    return replace(event, extra=(event.extra or {}) | any_decoder.decode(obj["extra"])) if "extra" in obj else event


# -- Records of a trace to lines that are known to read back. The form itself is described in `lines.py` --------------
# Always true: what is written here reads back equal; what would not is named and left out, and the rest is written. Batches
# take a quick road, and only the records that cannot go there are looked at one by one.

_encoder = msgspec.json.Encoder()
_DECLARED = frozenset(wire_name(f) for f in FIELDS) | {"extra"}


class Refusal(Struct, frozen=True):
    """A record that no line can carry, and why."""

    record: Any
    why: str


def encode_records(records: Sequence[Record | bytes]) -> tuple[bytes, list[Refusal]]:
    """Records as lines that are known to read back; those that would not are refused, and the rest written.

    Bytes are lines of `open_line`, and are written as they are.
    """
    try:
        if all(type(r) is Event and r.extra is None for r in records):
            return _plain_events(records), []
    except (*UNREADABLE, ValueError, TypeError, AttributeError):
        pass
    lines: list[bytes] = [b""] * len(records)
    graph: dict[int, Any] = {}
    rest: dict[int, Any] = {}
    slow: list[int] = []
    for i, record in enumerate(records):
        kind = type(record)
        if kind is bytes:
            lines[i] = record  # type: ignore[assignment]
        elif kind is Edge:
            graph[i] = {"edge": record}
        elif kind is Close or kind is Content:
            rest[i] = record
        elif kind is Event and record.extra is None:  # type: ignore[union-attr]
            graph[i] = {"event": record}
        else:
            slow.append(i)
    slow += _quickly(graph, lines, is_typed=True) + _quickly(rest, lines, is_typed=False)
    refused = []
    for i in sorted(slow):
        lines[i], why = _slowly(records[i])
        if why:
            refused.append(Refusal(records[i], why))
    return b"".join(lines), refused


def _quickly(objects: dict[int, Any], lines: list[bytes], *, is_typed: bool) -> list[int]:
    """Write objects into their places together; gives the places of those that must be looked at one by one.

    Whether a typed record reads back is only known when it is read; of an object that may hold anything, NaN and what is no
    Unicode are all that JSON would change or refuse, and those say "null", or cannot be encoded.
    """
    if not objects:
        return []
    try:
        data = _encoder.encode_lines(list(objects.values()))
        if is_typed:
            line_decoder.decode_lines(data)
    except (*UNREADABLE, ValueError, TypeError, AttributeError):
        return list(objects)
    for i, line in zip(objects, data[:-1].split(b"\n"), strict=True):
        lines[i] = line + b"\n"
    return [i for i in objects if b"null" in lines[i]] if b"null" in data else []


def _slowly(record: Any) -> tuple[bytes, str]:
    """The line of one record, or why there is none."""
    event = record.open if type(record) is Open else record
    if type(event) is Event:
        line = _event_line("open" if event is not record else "event", event)
        if line is not None:
            return line, ""
    why = unlike(record, _record_of)
    return (b"", why) if why else (_encoder.encode(_object(record)) + b"\n", "")


def open_line(event: Event) -> tuple[bytes, str]:
    """The line of an event that has begun, or why no line can carry it."""
    line = _event_line("open", event)
    return (line, "") if line is not None else _slowly(Open(event))


def _event_line(kind: str, event: Event) -> bytes | None:
    """The line of an event, in a fifth of the time of the general road; None where that is not to be had."""
    extra = event.extra
    try:
        if extra is None:
            data = _encoder.encode(event)
            event_decoder.decode(data)  # every field is typed: reading it back is proof
        elif extra and _DECLARED.isdisjoint(extra):
            data, more = _encoder.encode(replace(event, extra=None)), _encoder.encode(extra)
            event_decoder.decode(data)
            if any_decoder.decode(more) != extra:
                return None
            data = data[:-1] + b"," + more[1:]
        else:
            return None
    except (*UNREADABLE, ValueError, TypeError, AttributeError, OverflowError):
        return None
    return b'{"%s":%s}\n' % (kind.encode(), data)


def _plain_events(events: Sequence[Any]) -> bytes:
    """The usual batch, in three calls; a line break cannot be inside a JSON string, so replacing it frames every event."""
    data = _encoder.encode_lines(events)
    event_decoder.decode_lines(data)
    return b'{"event":' + data[:-1].replace(b"\n", b'}\n{"event":') + b"}\n" if data else b""


def _object(record: Record) -> Any:
    """What the encoder writes for a record."""
    kind = type(record)
    if kind is Edge:
        return {"edge": record}
    if kind is Event:
        return _event_object("event", record)  # type: ignore[arg-type]
    if kind is Open:
        return _event_object("open", record.open)  # type: ignore[union-attr]
    return record


def _event_object(kind: str, event: Event) -> dict[str, Any]:
    extra = event.extra
    if extra is None:
        return {kind: event}
    if not extra or not _DECLARED.isdisjoint(extra):
        # Spread among the fields, these would come back as the fields themselves, or not at all.
        return {kind: replace(event, extra=None), "extra": extra}
    return {kind: event_dict(event)}


def unlike(record: Any, decode: Any) -> str:
    """Why a record does not come back equal from its own line; nothing when it does."""
    try:
        again = decode(_encoder.encode(record if isinstance(record, Header) else _object(record)))
    except (*UNREADABLE, ValueError, TypeError, AttributeError, OverflowError) as error:
        return str(error)
    if again == record:
        return ""
    return "it holds something that JSON cannot carry, such as NaN, a tuple or a key that is not a string"


def _record_of(line: bytes) -> Record:
    """One line as the record it was."""
    obj = object_decoder.decode(line)
    match next(iter(obj)):
        case "event":
            return event_of(obj, "event")
        case "open":
            return Open(event_of(obj, "open"))
        case "edge":
            return msgspec.json.decode(obj["edge"], type=Edge)
        case "close":
            return msgspec.json.decode(line, type=Close)
        case "content":
            return msgspec.json.decode(line, type=Content)
        case _:
            return msgspec.json.decode(line, type=Finish)
