"""OTLP in protobuf's binary form, read as the JSON that OTLP writes: ids in hex, 64-bit numbers as text, enums as numbers.

AnswerDraft out here because it is a table and a loop: no library has to be installed, and one that builds the whole message first
could not be stopped by a limit.

Always true: bytes that are no such message raise `InputError`; fields that the table does not know are skipped; a message
nests 64 deep at most and holds `limit` values at most.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from counterpoint.errors import InputError

_DEPTH = 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class _Field:
    name: str
    wire: int
    value: Callable[[Any], Any] | str
    """What becomes of the bytes or the number; or the name of the message that they are."""
    is_list: bool = False


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _double(number: int) -> Any:
    value = struct.unpack("<d", number.to_bytes(8, "little"))[0]
    # JSON has no such numbers; protobuf writes their names.
    return value if abs(value) < float("inf") else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")


def _string(name: str) -> _Field:
    return _Field(name, _BYTES, _text)


def _id(name: str) -> _Field:
    return _Field(name, _BYTES, bytes.hex)


def _moment(name: str) -> _Field:
    return _Field(name, _FIXED64, str)


def _count(name: str) -> _Field:
    return _Field(name, _VARINT, int)


def _flags(name: str) -> _Field:
    return _Field(name, _FIXED32, int)


def _message(name: str, kind: str) -> _Field:
    return _Field(name, _BYTES, kind)


def _messages(name: str, kind: str) -> _Field:
    return _Field(name, _BYTES, kind, is_list=True)


TRACES, LOGS = "ExportTraceServiceRequest", "ExportLogsServiceRequest"
_ATTRIBUTES = _messages("attributes", "KeyValue")
_MESSAGES: dict[str, dict[int, _Field]] = {
    TRACES: {1: _messages("resourceSpans", "ResourceSpans")},
    LOGS: {1: _messages("resourceLogs", "ResourceLogs")},
    "ResourceSpans": {
        1: _message("resource", "Resource"),
        2: _messages("scopeSpans", "ScopeSpans"),
        3: _string("schemaUrl"),
    },
    "ResourceLogs": {
        1: _message("resource", "Resource"),
        2: _messages("scopeLogs", "ScopeLogs"),
        3: _string("schemaUrl"),
    },
    "ScopeSpans": {1: _message("scope", "Scope"), 2: _messages("spans", "Span"), 3: _string("schemaUrl")},
    "ScopeLogs": {1: _message("scope", "Scope"), 2: _messages("logRecords", "LogRecord"), 3: _string("schemaUrl")},
    "Resource": {1: _ATTRIBUTES, 2: _count("droppedAttributesCount")},
    "Scope": {1: _string("name"), 2: _string("version"), 3: _ATTRIBUTES, 4: _count("droppedAttributesCount")},
    "Span": {
        1: _id("traceId"),
        2: _id("spanId"),
        3: _string("traceState"),
        4: _id("parentSpanId"),
        5: _string("name"),
        6: _count("kind"),
        7: _moment("startTimeUnixNano"),
        8: _moment("endTimeUnixNano"),
        9: _ATTRIBUTES,
        10: _count("droppedAttributesCount"),
        11: _messages("events", "Event"),
        12: _count("droppedEventsCount"),
        13: _messages("links", "Link"),
        14: _count("droppedLinksCount"),
        15: _message("status", "Status"),
        16: _flags("flags"),
    },
    "Event": {1: _moment("timeUnixNano"), 2: _string("name"), 3: _ATTRIBUTES, 4: _count("droppedAttributesCount")},
    "Link": {
        1: _id("traceId"),
        2: _id("spanId"),
        3: _string("traceState"),
        4: _ATTRIBUTES,
        5: _count("droppedAttributesCount"),
        6: _flags("flags"),
    },
    "Status": {2: _string("message"), 3: _count("code")},
    "LogRecord": {
        1: _moment("timeUnixNano"),
        2: _count("severityNumber"),
        3: _string("severityText"),
        5: _message("body", "AnyValue"),
        6: _ATTRIBUTES,
        7: _count("droppedAttributesCount"),
        8: _flags("flags"),
        9: _id("traceId"),
        10: _id("spanId"),
        11: _moment("observedTimeUnixNano"),
        12: _string("eventName"),
    },
    "KeyValue": {1: _string("key"), 2: _message("value", "AnyValue")},
    "AnyValue": {
        1: _string("stringValue"),
        2: _Field("boolValue", _VARINT, bool),
        3: _Field("intValue", _VARINT, lambda number: str(_signed(number))),
        4: _Field("doubleValue", _FIXED64, _double),
        5: _message("arrayValue", "ArrayValue"),
        6: _message("kvlistValue", "KeyValueList"),
        7: _Field("bytesValue", _BYTES, _base64),
    },
    "ArrayValue": {1: _messages("values", "AnyValue")},
    "KeyValueList": {1: _messages("values", "KeyValue")},
}


def decode(data: bytes, message: str, limit: int) -> dict[str, Any]:
    """The message as OTLP's JSON would have it."""
    budget = [limit]
    try:
        return _decoded(memoryview(data), message, budget, 0)
    except (IndexError, struct.error) as error:
        raise InputError("is not protobuf of OTLP", why="it ends in the middle of a field") from error


def _decoded(data: memoryview, message: str, budget: list[int], depth: int) -> dict[str, Any]:
    budget[0] -= 1
    if budget[0] < 0:
        raise InputError("holds too many values", fix="send smaller batches")
    if depth > _DEPTH:
        raise InputError("is nested too deeply")
    known, out = _MESSAGES[message], dict[str, Any]()
    for number, wire, value in _fields(data):
        field = known.get(number)
        if field is None:
            continue
        if wire != field.wire:
            raise InputError("is not protobuf of OTLP", why=f"field {number} of {message} is of another type")
        if isinstance(field.value, str):
            item: Any = _decoded(value, field.value, budget, depth + 1)
        else:
            item = field.value(bytes(value) if wire == _BYTES else value)
        if field.is_list:
            out.setdefault(field.name, []).append(item)
        else:
            out[field.name] = item
    return out


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of each field."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        wire = tag & 7
        value: Any
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire == _BYTES:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        else:
            raise InputError("is not protobuf of OTLP", why=f"there is no wire type {wire}")
        if at > end or tag < 8:
            raise InputError("is not protobuf of OTLP", why="it ends in the middle of a field")
        yield tag >> 3, wire, value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    for k in range(at + 1, at + 10):
        byte = data[k]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, k + 1
        shift += 7
    raise InputError("is not protobuf of OTLP", why="a number is longer than 64 bits")
