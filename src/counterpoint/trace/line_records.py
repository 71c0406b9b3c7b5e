"""The records of a trace as lines, and their decoders. The form itself is described in `lines.py`.

Always true: records are frozen; a decoder here takes what `lines.py` writes and nothing else.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from counterpoint.trace.records import Edge, Event, Name, Number
from counterpoint.trace.vocabulary import Topology
from counterpoint.trace.wire import decode_event

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


class Finished(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    rewards: dict[str, Number] = field(default_factory=dict)
    costs: dict[str, Number] = field(default_factory=dict)
    metrics: dict[str, Number] | None = None
    meta: dict[str, Any] = field(default_factory=dict)


class Finish(Struct, frozen=True):
    """The end of the trace."""

    finish: Finished

    @classmethod
    def of(
        cls,
        rewards: dict[str, Number] | None = None,
        costs: dict[str, Number] | None = None,
        metrics: dict[str, Number] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Finish:
        """The finish record of these maps."""
        return cls(Finished(rewards=rewards or {}, costs=costs or {}, metrics=metrics, meta=meta or {}))


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
    finish: Finished | None = None
    sum: int | None = None


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
