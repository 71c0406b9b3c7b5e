"""OpenTelemetry's records in one form, whichever of its encodings they came in.

Known shapes: OTLP JSON (`resourceSpans`, `resourceLogs`) and its snake_case twin, Tempo (`batches`), Jaeger
(`data[].spans[]`), rows of the ClickHouse exporter, and spans as the SDKs print them (`context`, or `trace_id` beside
`span_id`) or as Phoenix exports them, alone, in a list, or under `spans`.

Any of them may stand in the `_raw` of a log router's events.

Always true: nothing here raises on a strange value; an id is hex whether it came as hex or as base64; a time is seconds since
the epoch whatever its unit; a span without an id is counted as broken.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import as_dict, as_list, decode, number, seconds, string
from counterpoint.formats.spans.phoenix import settled_record

_HEX = re.compile(r"^(?:0x)?([0-9a-fA-F]{16}|[0-9a-fA-F]{32})$")
_BASE64 = re.compile(r"^[A-Za-z0-9+/_-]{11}=|^[A-Za-z0-9+/_-]{22}==")
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue", "bytesValue")
_SNAKE_VALUES = ("string_value", "int_value", "double_value", "bool_value", "bytes_value", "Value")
_DEEP = 12


@dataclass(slots=True)
class SpanEvent:
    """An event of a span."""

    name: str
    at: float | None
    attrs: dict[str, Any]


@dataclass(slots=True)
class RawSpan:
    """A span as OpenTelemetry has it, before anybody says what it means."""

    id: str
    trace: str
    parent: str | None
    name: str
    start: float | None
    end: float | None
    attrs: dict[str, Any]
    resource: dict[str, Any]
    scope: str = ""
    events: list[SpanEvent] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    """Trace and span that it names as its cause."""
    ok: bool | None = None
    error: str | None = None
    order: int = 0


@dataclass(slots=True)
class LogRecord:
    """A log record."""

    name: str
    at: float | None
    body: Any
    attrs: dict[str, Any]
    resource: dict[str, Any]
    trace: str | None = None
    span: str | None = None
    order: int = 0


@dataclass
class Records:
    """What some bodies or files hold, in the order in which it came."""

    spans: list[RawSpan] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    broken: int = 0
    """Spans without an id."""

    def add(self, document: Any) -> None:
        """Take in a decoded document of any known shape."""
        for kind, record, resource, scope in records_in(document):
            if kind == "log":
                self.logs.append(_log(record, resource, len(self.logs)))
            else:
                span = _READ[kind](record, resource, scope)
                if span is None:
                    self.broken += 1
                else:
                    span.order = len(self.spans)
                    self.spans.append(span)


def records_in(document: Any) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], str]]:
    """Kind (span, jaeger, row, log), record, resource attributes and scope name of every record in a document."""
    stack: list[tuple[Any, dict[str, Any], int]] = [(document, {}, 0)]
    while stack:
        value, resource, depth = stack.pop()
        if depth > _DEEP:
            continue
        if isinstance(value, list):
            stack.extend((item, resource, depth + 1) for item in reversed(value))
        elif isinstance(value, dict):
            if "_raw" in value and (inner := _unwrapped(value["_raw"])) is not None:
                stack.append((inner, resource, depth + 1))
                continue
            value = settled_record(value)
            kind = _kind(value)
            if kind is not None:
                yield kind, value, resource, string(as_dict(value.get("scope")).get("name")) or ""
                continue
            yield from _grouped(value)
            inside = {**resource, **attributes(as_dict(value.get("resource")).get("attributes"))}
            for name in ("data", "trace", "traces", "spans", "batches", "observations"):
                if name in value and not (name == "batches" and isinstance(value[name], list) and _is_batch(value[name])):
                    below = _processes(value) if name == "spans" and "processes" in value else inside
                    stack.append((value[name], below, depth + 1))


def _unwrapped(raw: Any) -> Any:
    """The document in an event of a log router (Cribl, Splunk), which carries what it received as text in `_raw`."""
    if isinstance(raw, str) and raw.lstrip()[:1] in ("{", "["):
        try:
            return decode(raw)
        except InputError:
            return None
    return raw if isinstance(raw, (dict, list)) else None


def _kind(value: dict[str, Any]) -> str | None:
    if "spanID" in value and "operationName" in value:
        return "jaeger"
    if "SpanName" in value and "SpanId" in value:
        return "row"
    if "LogAttributes" in value:
        return "log"
    context = value.get("context")
    has_ids = ("span_id" in value and "trace_id" in value) or ("spanId" in value and "traceId" in value)
    return "span" if "name" in value and (has_ids or (isinstance(context, dict) and "span_id" in context)) else None


def _is_batch(batches: list[Any]) -> bool:
    return any(isinstance(b, dict) and ("resource" in b or "scopeSpans" in b or _OLD in b) for b in batches)


_OLD = "instrumentationLibrarySpans"
_GROUPS = (
    (
        ("resourceSpans", "resource_spans", "batches"),
        ("scopeSpans", "scope_spans", _OLD, "instrumentation_library_spans"),
        "span",
    ),
    (("resourceLogs", "resource_logs"), ("scopeLogs", "scope_logs", "instrumentationLibraryLogs"), "log"),
)


def _grouped(value: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], str]]:
    for outer, inner, kind in _GROUPS:
        groups = [g for name in outer for g in as_list(value.get(name))]
        for group in groups if groups else [value] if any(name in value for name in inner) else []:
            resource = attributes(as_dict(as_dict(group).get("resource")).get("attributes"))
            for scoped in (s for name in inner for s in as_list(as_dict(group).get(name))):
                scope = as_dict(as_dict(scoped).get("scope") or as_dict(scoped).get("instrumentationLibrary"))
                names = ("spans",) if kind == "span" else ("logRecords", "log_records", "logs")
                for record in (r for name in names for r in as_list(as_dict(scoped).get(name))):
                    if isinstance(record, dict):
                        yield kind, record, resource, string(scope.get("name")) or ""


def _processes(value: dict[str, Any]) -> dict[str, Any]:
    """Jaeger's processes by id, for its spans to look theirs up."""
    by_name = {}
    for name, process in as_dict(value["processes"]).items():
        own = {"service.name": as_dict(process).get("serviceName"), **attributes(as_dict(process).get("tags"))}
        by_name[name] = own
    return {"\0processes": by_name}


# -- attributes ------------------------------------------------------------------------------------------------------------


def attributes(value: Any) -> dict[str, Any]:
    """Attributes by name, from a list of key and value or from a map, with OTLP's wrapping taken off."""
    if isinstance(value, dict):
        return {str(k): _bare(v, 0) for k, v in value.items()}
    values: dict[str, Any] = {}
    for item in as_list(value):
        if isinstance(item, dict) and isinstance(item.get("key"), str):
            values[item["key"]] = _bare(item.get("value"), 0)
    return values


def _bare(value: Any, depth: int) -> Any:
    if not isinstance(value, dict) or depth > _DEEP or len(value) > 2:
        return value
    for name in (*_VALUES, *_SNAKE_VALUES):
        if name in value:
            inner = value[name]
            if name in ("intValue", "int_value") and isinstance(inner, str):
                return int(inner) if re.fullmatch(r"-?\d{1,20}", inner) else inner
            return _bare(inner, depth + 1)
    for name in ("arrayValue", "array_value"):
        if name in value:
            return [_bare(item, depth + 1) for item in as_list(as_dict(value[name]).get("values"))]
    for name in ("kvlistValue", "kvlist_value"):
        if name in value:
            items = (as_dict(item) for item in as_list(as_dict(value[name]).get("values")))
            return {str(item.get("key")): _bare(item.get("value"), depth + 1) for item in items}
    return value


def _id(value: Any) -> str | None:
    """A span's or trace's id: hex in lower case; none where it is all zeros."""
    text = string(value)
    if text is None:
        return None
    if match := _HEX.match(text):
        text = match[1].lower()
    elif _BASE64.match(text) and len(text) in (12, 24):
        try:
            text = base64.b64decode(text.translate({45: 43, 95: 47})).hex()
        except (ValueError, binascii.Error):
            return text
    return text if text.strip("0") else None


def _get(record: dict[str, Any], *names: str) -> Any:
    for name in names:
        value = record.get(name)
        if value is not None:
            return value
    return None


# -- the shapes ------------------------------------------------------------------------------------------------------------


def _span(record: dict[str, Any], resource: dict[str, Any], scope: str) -> RawSpan | None:
    context = as_dict(record.get("context"))
    name = _id(_get(record, "spanId", "span_id") or context.get("span_id"))
    if name is None:
        return None
    parent = _get(record, "parentSpanId", "parent_span_id", "parent_id")
    parent = as_dict(parent).get("span_id") if isinstance(parent, dict) else parent
    status = as_dict(record.get("status"))
    attrs = attributes(record.get("attributes"))
    events = [
        SpanEvent(
            string(e.get("name")) or "",
            _time(_get(e, "timeUnixNano", "time_unix_nano", "timestamp", "time")),
            attributes(e.get("attributes")),
        )
        for e in map(as_dict, as_list(_get(record, "events", "span_events")))
    ]
    ok, error = _status(_get(status, "code", "status_code", "statusCode"), _get(status, "message", "description"), attrs, events)
    own = as_dict(record.get("resource")).get("attributes")
    end = _time(_get(record, "endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime"))
    return RawSpan(
        id=name,
        trace=_id(_get(record, "traceId", "trace_id") or context.get("trace_id")) or "no-trace-id",
        parent=_id(parent),
        name=string(record.get("name")) or "",
        start=_time(_get(record, "startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime")),
        end=end,
        attrs=attrs,
        resource={**resource, **attributes(own)} if own else resource,
        scope=scope,
        events=events,
        links=_links(as_list(record.get("links"))),
        ok=ok,
        error=error,
    )


def _links(links: list[Any]) -> list[tuple[str, str]]:
    pairs = []
    for link in map(as_dict, links):
        context = as_dict(link.get("context")) or link
        span = _id(_get(context, "spanId", "span_id", "spanID"))
        if span is not None:
            pairs.append((_id(_get(context, "traceId", "trace_id", "traceID")) or "", span))
    return pairs


def _jaeger(record: dict[str, Any], resource: dict[str, Any], scope: str) -> RawSpan | None:
    name, attrs = _id(record.get("spanID")), attributes(record.get("tags"))
    if name is None:
        return None
    trace = _id(record.get("traceID")) or "no-trace-id"
    references = [as_dict(r) for r in as_list(record.get("references"))]
    parent = next((_id(r.get("spanID")) for r in references if r.get("refType") == "CHILD_OF"), _id(record.get("parentSpanID")))
    others = [(_id(r.get("traceID")) or trace, s) for r in references if (s := _id(r.get("spanID"))) and s != parent]
    start, length = number(record.get("startTime")), number(record.get("duration"))
    begin = None if start is None else start * 1e-6
    events = []
    for log in map(as_dict, as_list(record.get("logs"))):
        fields = attributes(log.get("fields"))
        at = number(log.get("timestamp"))
        events.append(SpanEvent(str(fields.pop("event", "")), None if at is None else at * 1e-6, fields))
    ok, error = _status(_get(attrs, "otel.status_code"), _get(attrs, "otel.status_description"), attrs, events)
    own = as_dict(resource.get("\0processes")).get(str(record.get("processID")), {})
    return RawSpan(
        id=name,
        trace=trace,
        parent=parent,
        name=string(record.get("operationName")) or "",
        start=begin,
        end=None if begin is None or length is None else begin + length * 1e-6,
        attrs=attrs,
        resource=own,
        scope=string(attrs.get("otel.scope.name")) or scope,
        events=events,
        links=others,
        ok=False if attrs.get("error") in (True, "true") else ok,
        error=error,
    )


def _row(record: dict[str, Any], resource: dict[str, Any], scope: str) -> RawSpan | None:
    name, attrs = _id(record.get("SpanId")), attributes(record.get("SpanAttributes"))
    if name is None:
        return None
    start, length = seconds(record.get("Timestamp")), number(record.get("Duration"))
    columns = ((_column(record, "Events", part)) for part in ("Name", "Timestamp", "Attributes"))
    events = [SpanEvent(string(n) or "", seconds(t), attributes(a)) for n, t, a in zip(*columns, strict=False)]
    linked = zip(_column(record, "Links", "TraceId"), _column(record, "Links", "SpanId"), strict=False)
    ok, error = _status(record.get("StatusCode"), record.get("StatusMessage"), attrs, events)
    return RawSpan(
        id=name,
        trace=_id(record.get("TraceId")) or "no-trace-id",
        parent=_id(record.get("ParentSpanId")),
        name=string(record.get("SpanName")) or "",
        start=start,
        end=None if start is None or length is None else start + length * 1e-9,
        attrs=attrs,
        resource={**attributes(record.get("ResourceAttributes"))},
        scope=string(record.get("ScopeName")) or scope,
        events=events,
        links=[(_id(t) or "", link) for t, s in linked if (link := _id(s))],
        ok=ok,
        error=error,
    )


def _column(record: dict[str, Any], *parts: str) -> list[Any]:
    return as_list(_get(record, ".".join(parts), "".join(parts)))


def _log(record: dict[str, Any], resource: dict[str, Any], order: int) -> LogRecord:
    attrs = attributes(_get(record, "attributes", "LogAttributes"))
    body = _bare(_get(record, "body", "Body"), 0)
    named = _get(record, "eventName", "event_name", "EventName") or attrs.get("event.name")
    at = _time(_get(record, "timeUnixNano", "time_unix_nano", "Timestamp", "timestamp"))
    own = seconds(attrs.get("event.timestamp"))
    observed = _time(_get(record, "observedTimeUnixNano", "observed_time_unix_nano"))
    return LogRecord(
        name=string(named) or (body if isinstance(body, str) else ""),
        at=own if own is not None else at if at is not None else observed,
        body=body,
        attrs=attrs,
        resource=resource or attributes(record.get("ResourceAttributes")),
        trace=_id(_get(record, "traceId", "trace_id", "TraceId")),
        span=_id(_get(record, "spanId", "span_id", "SpanId")),
        order=order,
    )


_READ = {"span": _span, "jaeger": _jaeger, "row": _row}


def _time(value: Any) -> float | None:
    """A moment; zero is none."""
    moment = seconds(value)
    return moment if moment else None


def _status(code: Any, message: Any, attrs: dict[str, Any], events: list[SpanEvent]) -> tuple[bool | None, str | None]:
    text = str(code).upper().rsplit("_", 1)[-1].rsplit(".", 1)[-1] if code is not None else ""
    failed = text in ("2", "ERROR") or bool(attrs.get("error.type"))
    if not failed:
        return (True if text in ("1", "OK") else None), None
    thrown = next((e.attrs.get("exception.message") for e in events if e.name == "exception"), None)
    what = string(message) or string(thrown) or string(attrs.get("error.message")) or string(attrs.get("error.type"))
    return False, what


# -- files -----------------------------------------------------------------------------------------------------------------


_BLOCK = 1 << 20
_OVERLAP = 512
_NAMED = re.compile(
    rb'\\?"(?:(?:context\.)?trace_?[iI][dD]|TraceId|session\.id|gen_ai\.conversation\.id)\\?"\s*[:,]\s*'
    rb'(?:\\?"value\\?"\s*:\s*\{\s*\\?"string_?[vV]alue\\?"\s*:\s*)?\\?"([^"\\]{4,})\\?"'
)


def unwrapped_head(head: bytes) -> bytes:
    """How a file begins, with the quotes of what stands in `_raw` as quotes."""
    return head.replace(b'\\"', b'"') if b'"_raw"' in head[:65536] else head


def files_together(files: Sequence[File]) -> list[list[File]]:
    """Files that hold spans of one trace or of one session, together: exporters begin a new file when one is full."""
    owner = list(range(len(files)))

    def find(at: int) -> int:
        while owner[at] != at:
            owner[at] = owner[owner[at]]
            at = owner[at]
        return at

    first: dict[bytes, int] = {}
    for i, file in enumerate(files):
        for name in _ids_in(file):
            a, b = sorted((find(first.setdefault(name, i)), find(i)))
            owner[b] = a
    groups: dict[int, list[File]] = {}
    for i, file in enumerate(files):
        groups.setdefault(find(i), []).append(file)
    return list(groups.values())


def _ids_in(file: File) -> set[bytes]:
    """The ids of traces and sessions that a file names; none where it cannot be read as text."""
    ids: set[bytes] = set()
    try:
        with file.unpacked() as stream:
            rest = b""
            while data := stream.read(_BLOCK):
                ids.update(_NAMED.findall(rest + data))
                rest = data[-_OVERLAP:]
    except (InputError, OSError, EOFError):
        return set()
    return ids
