"""OTLP request bodies: taken apart into one line per trace, and the answers to them.

Always true: a body is a request whole or `InputError`; in a request, a record without an id that could place it is rejected
and counted, and the others are taken. Values are cut out of the body as they are, never built up and written again, so that
what is kept is what came. A record's key is the trace that the importer of OpenTelemetry would put it into: spans by trace id,
those of Claude Code and all log records by the session they name, if any. Spans that name a span of another trace as their
cause join the two.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct

from counterpoint.errors import InputError
from counterpoint.formats.importing.values import as_dict, decode
from counterpoint.formats.otel import protobuf as wire

Kind = Literal["traces", "logs"]
MAX_VALUES = 4_000_000
"""Objects and lists in one body. A few bytes of JSON can ask for hundreds of memory; no batch of spans has so many."""
# A line is one line whatever the sender's taste in white space; inside of strings JSON has none of these.
_ONE_LINE = bytes.maketrans(b"\n\r\t", b"   ")
_NOTHING = Raw(b"{}")
_LONG = 200
# As `formats/otel/log_records.py` reads them.
_SESSIONS = ("session.id", "conversation.id", "session_id")
_ROLLOUT = "agentlightning.rollout_id"
_PLACING = frozenset({*_SESSIONS, "ag2.network.envelope_id", "ag2.network.causation_id", _ROLLOUT})
_CLAUDE, _AG2 = "claude_code.", b'"ag2.network.'


class _Attribute(Struct):
    key: str = ""
    value: Raw = Raw(b"null")


class _Link(Struct):
    traceId: str | None = None


class _Span(Struct):
    """What must be known of a span to place it."""

    traceId: str | None = None
    spanId: str | None = None
    name: str | None = None
    links: list[_Link] | None = None


class _Named(Struct):
    """What has attributes: a span of some systems, a log record, a resource."""

    traceId: str | None = None
    attributes: list[_Attribute] | None = None


class _Scope(Struct, omit_defaults=True):
    scope: Raw = _NOTHING
    spans: list[Raw] | None = None
    logRecords: list[Raw] | None = None
    schemaUrl: str | None = None


class _Resource(Struct, omit_defaults=True):
    resource: Raw = _NOTHING
    scopeSpans: list[_Scope] | None = None
    scopeLogs: list[_Scope] | None = None
    schemaUrl: str | None = None


class _Body(Struct, omit_defaults=True):
    resourceSpans: list[_Resource] | None = None
    resourceLogs: list[_Resource] | None = None


_body = msgspec.json.Decoder(_Body)
_span = msgspec.json.Decoder(_Span)
_named = msgspec.json.Decoder(_Named)
_encode = msgspec.json.Encoder().encode


class OtlpBatch(NamedTuple):
    """What a body holds."""

    lines: dict[str, bytes]
    """Key of a trace to the part of the request that belongs to it, as one line of OTLP JSON."""
    counts: dict[str, int]
    """Key to the number of its spans or log records."""
    joins: dict[str, set[str]]
    """Key to the names that it shares with others: their keys, or something that both name."""
    rejected: int
    why: str
    """Of the rejected ones, the first reason."""


def of_json(body: bytes, kind: Kind) -> OtlpBatch:
    """A request in JSON."""
    if body.count(b"{") + body.count(b"[") > MAX_VALUES:
        raise InputError(f"holds more than {MAX_VALUES:,} objects and lists", fix="send smaller batches")
    try:
        if not body.isascii():
            body.decode("utf-8")  # what is cut out of the body as it is, is looked at by nobody else
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8", why=f"byte 0x{body[error.start]:02x} at {error.start:,}") from error
    request = _request(body.translate(_ONE_LINE))
    found = request.resourceSpans if kind == "traces" else request.resourceLogs
    if found is None and not _is_empty(body):
        name = "resourceSpans" if kind == "traces" else "resourceLogs"
        raise InputError(f"is JSON, but not an OTLP request: it has no {name}", fix="see the page `serve` of the docs")
    return _sorted(found or [], kind)


def of_protobuf(body: bytes, kind: Kind) -> OtlpBatch:
    """A request in protobuf."""
    found = wire.decode(body, wire.TRACES if kind == "traces" else wire.LOGS, MAX_VALUES)
    return of_json(_encode(found), kind)


def _request(body: bytes) -> _Body:
    try:
        return _body.decode(body)
    except RecursionError as error:
        raise InputError("is nested too deeply") from error
    except msgspec.ValidationError as error:
        raise InputError("is JSON, but not an OTLP request", why=str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Half a surrogate pair, as JavaScript may write it, is worth a question mark and not the whole batch.
        mended = json.dumps(decode(body), ensure_ascii=False).encode("utf-8", "replace")
    try:
        return _body.decode(mended)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError("is JSON, but not an OTLP request", why=str(error)) from error


def _is_empty(body: bytes) -> bool:
    return not body.strip(b" \t\r\n{}")


class _Unplaced(Exception):
    """A record that belongs to no trace, and why."""


def _sorted(resources: Iterable[_Resource], kind: Kind) -> OtlpBatch:
    """The records by key, each still under its resource and scope."""
    by_key: dict[str, list[_Resource]] = {}
    counts: Counter[str] = Counter()
    joins: dict[str, set[str]] = {}
    whys = []
    for resource in resources:
        own = _resource_texts(resource.resource)
        for scope in (resource.scopeSpans if kind == "traces" else resource.scopeLogs) or ():
            parts: dict[str, list[Raw]] = {}
            for raw in (scope.spans if kind == "traces" else scope.logRecords) or ():
                try:
                    key, joined = _span_key(raw, own) if kind == "traces" else (_log_key(raw, own), set())
                except (_Unplaced, InputError, msgspec.MsgspecError, RecursionError) as error:
                    whys.append(str(error))
                    continue
                parts.setdefault(key, []).append(raw)
                counts[key] += 1
                if joined:
                    joins.setdefault(key, set()).update(joined)
            for key, raws in parts.items():
                _put(by_key.setdefault(key, []), resource, scope, raws, kind)
    name = "resourceSpans" if kind == "traces" else "resourceLogs"
    lines = {key: _encode(_Body(**{name: found})) + b"\n" for key, found in by_key.items()}
    return OtlpBatch(lines, dict(counts), joins, len(whys), whys[0] if whys else "")


def _put(found: list[_Resource], resource: _Resource, scope: _Scope, raws: list[Raw], kind: Kind) -> None:
    if kind == "traces":
        inner = _Scope(scope=scope.scope, spans=raws, schemaUrl=scope.schemaUrl)
        found.append(_Resource(resource=resource.resource, scopeSpans=[inner], schemaUrl=resource.schemaUrl))
    else:
        inner = _Scope(scope=scope.scope, logRecords=raws, schemaUrl=scope.schemaUrl)
        found.append(_Resource(resource=resource.resource, scopeLogs=[inner], schemaUrl=resource.schemaUrl))


def _span_key(raw: Raw, resource: dict[str, str]) -> tuple[str, set[str]]:
    """Which trace a span belongs to, and what that shares with others."""
    span = _span.decode(raw)
    trace = _id(span.traceId, 16)
    if trace is None or _id(span.spanId, 8) is None:
        raise _Unplaced("a span has no valid traceId and spanId")
    joined = {f"trace-{other}" for link in span.links or () if (other := _id(link.traceId, 16)) not in (None, trace)}
    if _AG2 in bytes(raw):
        texts = _texts(raw)
        named = (texts.get("ag2.network.envelope_id"), texts.get("ag2.network.causation_id"))
        joined |= {f"envelope-{name}" for name in named if name}
    if _ROLLOUT in resource:
        joined.add(f"rollout-{resource[_ROLLOUT]}")
    if (span.name or "").startswith(_CLAUDE):
        session = _texts(raw).get("session.id") or resource.get("session.id")
        if session:
            return f"session-{session}", joined
    return f"trace-{trace}", joined


def _log_key(raw: Raw, resource: dict[str, str]) -> str:
    own = _texts(raw)
    session = next((found for name in _SESSIONS if (found := own.get(name) or resource.get(name))), None)
    if session is not None:
        return f"session-{session}"
    trace = _id(_named.decode(raw).traceId, 16)
    if trace is None:
        raise _Unplaced("a log record names neither a session (session.id, conversation.id) nor a trace")
    return f"trace-{trace}"


def _resource_texts(raw: Raw) -> dict[str, str]:
    """Of a resource: one that is not of OTLP is kept as it is, and places nothing."""
    try:
        return _texts(raw)
    except (InputError, msgspec.MsgspecError, RecursionError):
        return {}


def _texts(raw: Raw) -> dict[str, str]:
    """The attributes that place a record, where they are texts."""
    found = {}
    for attribute in _named.decode(raw).attributes or ():
        if attribute.key in _PLACING:
            value = as_dict(decode(bytes(attribute.value))).get("stringValue")
            if isinstance(value, str) and value:
                found[attribute.key] = value if len(value) <= _LONG else hashlib.sha256(value.encode()).hexdigest()
    return found


def _id(value: str | None, size: int) -> str | None:
    """An id of so many bytes in lower-case hex: OTLP writes hex, protobuf's own JSON base64. All zeros is no id."""
    if not value:
        return None
    try:
        data = bytes.fromhex(value) if len(value) == 2 * size else base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        return None
    return data.hex() if len(data) == size and any(data) else None


# -- lines read again ------------------------------------------------------------------------------------------------------


def read_again(line: bytes) -> OtlpBatch | None:
    """What a line of the spool holds; None when it is damaged."""
    request = _whole(line)
    if request is None:
        return None
    spans, logs = request.resourceSpans, request.resourceLogs
    taken = _sorted(spans, "traces") if spans else _sorted(logs or (), "logs")
    return taken if taken.lines else None


def once(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines with each record once: of a span that came again the last, of equal log records the first.

    A sender that got no answer sends its batch again, and some send a span when it begins and once more when it ends.
    """
    requests = [request for line in lines if (request := _whole(line)) is not None]
    place: dict[bytes, int] = {}
    n = 0
    for request in requests:
        for raws, is_span in _record_lists(request):
            for raw in raws:
                identity = _identity(raw) if is_span else bytes(raw)
                if is_span or identity not in place:
                    place[identity] = n
                n += 1
    keep, n = set(place.values()), 0
    for request in requests:
        left = 0
        for raws, _ in _record_lists(request):
            kept = [raw for i, raw in enumerate(raws, n) if i in keep]
            n += len(raws)
            raws[:] = kept
            left += len(kept)
        if left:
            yield _encode(request) + b"\n"


def _whole(line: bytes) -> _Body | None:
    try:
        return _request(line)
    except InputError:
        return None


def _record_lists(request: _Body) -> Iterator[tuple[list[Raw], bool]]:
    for resource in request.resourceSpans or ():
        for scope in resource.scopeSpans or ():
            yield scope.spans or [], True
    for resource in request.resourceLogs or ():
        for scope in resource.scopeLogs or ():
            yield scope.logRecords or [], False


def _identity(raw: Raw) -> bytes:
    span = _span.decode(raw)
    return f"{_id(span.traceId, 16)}/{_id(span.spanId, 8)}".encode()


# -- answers ---------------------------------------------------------------------------------------------------------------


def reply(taken: OtlpBatch, kind: Kind, *, is_protobuf: bool) -> bytes:
    """The answer to a request that was taken: empty, or what was rejected and why."""
    if not taken.rejected:
        return b"" if is_protobuf else b"{}"
    if is_protobuf:
        return _field(1, _number(1, taken.rejected) + _field(2, taken.why.encode()))
    name = "rejectedSpans" if kind == "traces" else "rejectedLogRecords"
    return _encode({"partialSuccess": {name: str(taken.rejected), "errorMessage": taken.why}})


def status(code: int, message: str, *, is_protobuf: bool) -> bytes:
    """The answer to one that was not: google.rpc.Status."""
    if is_protobuf:
        return _number(1, code) + _field(2, message.encode())
    return _encode({"code": code, "message": message})


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
