"""OpenTelemetry: GenAI spans in any OTLP encoding, Jaeger, Tempo, ClickHouse; Claude Code's and Codex's logs.

This file reads files and request bodies, `protobuf.py` the binary form of both, `log_records.py` log records, and `dialects.py`
the spans of systems that the GenAI conventions do not cover, and those that our own exporter wrote. What GenAI spans mean is in
`spans/genai.py`, and how spans become a trace in `spans/trees.py`.

Files are OTLP JSON (a document, or an object per line), OTLP protobuf bodies, the snake_case form, Jaeger and Tempo
documents, rows of the ClickHouse exporter, and spans as SDKs print them.

What is lost: metrics, spans that are neither an agent's nor a model's nor a tool's (HTTP, database), earlier messages that
every model call repeats, and whatever the tracer was told not to capture.

Always true: tokens are counted on the innermost model call only; a session of Claude Code and a conversation of Codex are one
trace each, other traces are as the tracer has them unless one names a span of another as its cause; spans that our own
exporter wrote (`otlp.py`), brought back by a collector or a backend, are the traces they were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.values import as_dict, as_list, decode
from counterpoint.formats.otel import protobuf
from counterpoint.formats.otel.dialects import TRACE, Dialect, is_ours, joined, restored, spans_for
from counterpoint.formats.otel.log_records import add_logs
from counterpoint.formats.spans.genai import settled
from counterpoint.formats.spans.openinference import Beside
from counterpoint.formats.spans.raw_records import Records, files_together, unwrapped_head
from counterpoint.formats.spans.span import Span
from counterpoint.formats.spans.trees import traces_of
from counterpoint.trace import Trace

# -- OTLP bodies and files as spans: what an importer reads from a file and a receiver from a request -----------------
# `records_of` reads one body, JSON or protobuf; `spans_of_records` gives the spans of all records so far (joins reach across
# bodies, so a receiver collects records and asks again); `spans_of` does both for one body.
#
# Always true: a body that is neither JSON nor protobuf is an `InputError`; a strange value inside is left out or counted.


def spans_of(data: bytes, content_type: str = "") -> tuple[list[Span], Report]:
    """The spans in one OTLP body (traces or logs; gzip is taken off), and what was wrong with it.

    `content_type` is the request's: `application/json` or `application/x-protobuf`; by content where it is empty.
    """
    records, report = records_of(data, content_type)
    return spans_of_records(records, report), report


def records_of(data: bytes, content_type: str = "") -> tuple[Records, Report]:
    """The records in one OTLP body, before anybody says what they mean."""
    records, report = Records(), Report()
    data = File.of(data).data()
    is_binary = "protobuf" in content_type or ("json" not in content_type and not _is_text(data))
    records.add(_protobuf(data) if is_binary else decode(data))
    count_records(records, report, "body")
    return records, report


def spans_of_records(
    records: Records, report: Report, *, system: Dialect = "otel", beside: Mapping[str, Beside] | None = None
) -> list[Span]:
    """Spans in our form: each read by its dialect (`system` for one that shows none), joined across traces, with what logs say
    about them."""
    spans = spans_for(records.spans, report, system=system, beside=beside)
    join_traces(spans, records, report)
    return add_logs(records.logs, settled(spans), report)


def join_traces(spans: list[Span], records: Records, report: Report) -> None:
    """Make one trace of those that are one run's, and say so."""
    by_links, by_session = joined(spans, records.spans)
    if by_links:
        report.mended["traces that are one, by the links between them"] += by_links
    if by_session:
        report.mended["traces that are one, by the session that they name"] += by_session


def count_records(records: Records, report: Report, where: str, *, before: int = 0) -> None:
    """Add how much was read, apart from the records there were before, to a report."""
    report.records += len(records.spans) + len(records.logs) - before
    for _ in range(min(records.broken, 1000)):
        report.broke(where, None, "a span without an id")
    records.broken = 0


def _is_text(data: bytes) -> bool:
    return data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def _protobuf(data: bytes) -> Any:
    """An export request for traces or for logs, as the document that OTLP JSON would be."""
    for message in (protobuf.TRACES, protobuf.LOGS):  # the two have one layout
        try:
            document = protobuf.decode(data, message, len(data) + 1)
        except InputError:
            continue
        if _holds_records(document):
            return document
    raise InputError("is not an OTLP export request", why="it holds neither spans nor log records")


def _holds_records(document: dict[str, Any]) -> bool:
    """Whether any record has the ids of a span, or the time of a log record."""
    for group in as_list(document.get("resourceSpans")):
        for scope in as_list(as_dict(group).get("scopeSpans")):
            if any(as_dict(span).get("spanId") and as_dict(span).get("traceId") for span in as_list(as_dict(scope).get("spans"))):
                return True
    for group in as_list(document.get("resourceLogs")):
        for scope in as_list(as_dict(group).get("scopeLogs")):
            for log in map(as_dict, as_list(as_dict(scope).get("logRecords"))):
                if "timeUnixNano" in log or "observedTimeUnixNano" in log:
                    return True
    return False


def read_files(session: Session, records: Records) -> None:
    """Take in and count the records of a session's files."""
    for file in session.files:
        before = len(records.spans) + len(records.logs)
        read_file(file, session, records)
        count_records(records, session.report, file.name, before=before)


def traces_in(
    records: Records, session: Session, *, system: Dialect, beside: Mapping[str, Beside] | None = None
) -> Iterator[Trace]:
    """The traces in some records: those that our own exporter wrote, then the others, each of the system whose dialect its spans
    speak (`system` where that is both or none)."""
    ours = [raw for raw in records.spans if is_ours(raw)]
    if ours:
        records.spans = [raw for raw in records.spans if not is_ours(raw)]
        try:
            yield from restored(ours)
        except InputError as error:
            session.report.broke(session.files[0].name, None, error.one_line())
    spans = spans_of_records(records, session.report, system=system, beside=beside)
    yield from traces_of(spans, session, system=system)


# -- files -----------------------------------------------------------------------------------------------------------------


def read_file(file: File, session: Session, records: Records) -> None:
    """Take a file's records in: one document, one object per line, objects one after the other, or a protobuf body."""
    head = file.head(1 << 12)
    if head and not _is_text(head):
        try:
            records.add(_protobuf(file.data()))
        except InputError as error:
            session.report.broke(file.name, None, error.one_line())
    elif _is_lines(file):
        for _, record in session.records(file):
            session.report.records -= 1  # counted below, by what is in it
            records.add(record)
    else:
        for document in _documents(file, session):
            records.add(document)


def _is_lines(file: File) -> bool:
    """Whether the first line is a whole object and not the last, or another value (which is no record) before an object."""
    try:
        lines = file.lines()
        _, first = next(lines)
        _, second = next(lines)
        return first is not None and (isinstance(decode(first), dict) or (second or b"").lstrip()[:1] == b"{")
    except (InputError, StopIteration):
        return False


def _documents(file: File, session: Session) -> Iterator[Any]:
    """The document that a file is; or several, as a console exporter prints them."""
    try:
        data = file.data()
        session.check_coding(data)
        text = data.decode("utf-8", "replace").lstrip("\ufeff")
    except InputError as error:
        session.report.broke(file.name, None, error.one_line())
        return
    try:
        yield decode(text)
        return
    except InputError as error:
        whole = error
    decoder, at, documents = json.JSONDecoder(), 0, 0
    while at < len(text):
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        documents += 1
        yield document
    if at < len(text) or not documents:
        line = text.count("\n", 0, at) + 1
        session.report.broke(file.name, line, whole.one_line() if not documents else "the rest is not JSON")


_OURS = f'"{TRACE}"'.encode()
_OTLP = re.compile(rb'"(?:resource_?[sS]pans|resource_?[lL]ogs|scope_?[sS]pans|instrumentationLibrarySpans)"\s*:\s*(?:\[|$)')
_SHAPES = (
    (b"spanID", b"operationName"),
    (b"SpanId", b"SpanName"),
    (b"LogAttributes", b"SeverityText"),
    (b"span_id", b"trace_id", b"attributes", b"start_time"),
    (b"spanId", b"traceId", b"attributes"),
)
# An id is no object: what has one there is a schema of spans, or a page about them.
_KEYS = {
    key: re.compile(rb'"' + key + rb'(?:_unix_nano)?"\s*:' + (rb"(?!\s*[{\[])" if b"_id" in key or b"Id" in key else b""))
    for shape in _SHAPES
    for key in shape
}
_BINARY_SPAN = re.compile(rb"\x0a\x10.{16}\x12\x08.{8}", re.DOTALL)


def _sniff(head: bytes) -> bool:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    head = unwrapped_head(head)
    if start in (b"{", b"["):
        if _OURS in head[:256]:
            return False  # what our own exporter wrote is `otlp`
        return _OTLP.search(head) is not None or any(all(_KEYS[key].search(head) for key in shape) for shape in _SHAPES)
    if head[:1] != b"\x0a":
        return False
    has_logs = b"claude_code." in head or b"codex." in head
    return _BINARY_SPAN.search(head) is not None or (has_logs and b"event.name" in head)


def _group(files: Sequence[File]) -> list[Session]:
    return [Session(group[0].name, group) for group in files_together(files)]


def _read(session: Session) -> Iterator[Trace]:
    records = Records()
    read_files(session, records)
    yield from traces_in(records, session, system="otel")


otel = Importer(
    suffixes=(".json", ".jsonl", ".pb", ".bin"),
    sniff=_sniff,
    signs=("resourceSpans", "scopeSpans", "traceId", "spanId", "startTimeUnixNano", "attributes"),
    read_session=_read,
    group=_group,
    system="otel",
    rank=-10,
    becomes={
        "invoke_agent": ("spawn", "return", "message"),
        "chat": ("orchestrator_decision", "message", "return", "aggregate"),
        "execute_tool": ("tool_call", "tool_result"),
        "handoff": ("message",),
        "guardrail": ("safety_event",),
        "claude_code.interaction": ("human_intervention",),
        "claude_code.tool.blocked_on_user": ("human_intervention", "safety_event"),
        "autogen process": ("message",),
        "gen_ai.evaluation.result": ("reward",),
        "links": ("causal",),
    },
    versions="GenAI conventions to 1.43",
    exact="tokens, nesting, agent ids",
    lost="uncaptured contents, metrics; log records: who spawned or called",
)
