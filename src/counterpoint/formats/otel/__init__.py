"""OpenTelemetry: GenAI spans in any OTLP encoding, Jaeger, Tempo, ClickHouse; Claude Code's and Codex's logs.

`bodies.py` reads files and request bodies (`protobuf.py` the binary form, for the receiver), `dialects.py` the spans of
systems that the GenAI conventions do not cover, `log_records.py` log records, and `ours.py` spans that our own exporter
wrote. What GenAI spans mean is in `spans/genai.py`, and how spans become a trace in `spans/trees.py`.

Files are OTLP JSON (a document, or an object per line), OTLP protobuf bodies, the snake_case form, Jaeger and Tempo
documents, rows of the ClickHouse exporter, and spans as SDKs print them.

What is lost: metrics, spans that are neither an agent's nor a model's nor a tool's (HTTP, database), earlier messages that
every model call repeats, and whatever the tracer was told not to capture.

Always true: tokens are counted on the innermost model call only; a session of Claude Code and a conversation of Codex are one
trace each, other traces are as the tracer has them unless one names a span of another as its cause; spans that our own
exporter wrote (`otlp.py`), brought back by a collector or a backend, are the traces they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from counterpoint.errors import InputError
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.otel.bodies import count_records, read_file, spans_of_records
from counterpoint.formats.otel.ours import TRACE, is_ours, restored
from counterpoint.formats.spans.raw_records import Records
from counterpoint.formats.spans.trees import traces_of
from counterpoint.trace import Trace

_OURS = f'"{TRACE}"'.encode()
_OTLP = re.compile(rb'"(?:resource_?[sS]pans|resource_?[lL]ogs|scope_?[sS]pans|instrumentationLibrarySpans)"\s*:')
_SHAPES = (
    (b"spanID", b"operationName"),
    (b"SpanId", b"SpanName"),
    (b"LogAttributes", b"SeverityText"),
    (b"span_id", b"trace_id", b"attributes", b"start_time"),
    (b"spanId", b"traceId", b"attributes"),
)
_KEYS = {key: re.compile(rb'"' + key + rb'(?:_unix_nano)?"\s*:') for shape in _SHAPES for key in shape}
_BINARY_SPAN = re.compile(rb"\x0a\x10.{16}\x12\x08.{8}", re.DOTALL)


def _sniff(head: bytes) -> bool:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start in (b"{", b"["):
        if _OURS in head[:256]:
            return False  # what our own exporter wrote is `otlp`
        return _OTLP.search(head) is not None or any(all(_KEYS[key].search(head) for key in shape) for shape in _SHAPES)
    if head[:1] != b"\x0a":
        return False
    has_logs = b"claude_code." in head or b"codex." in head
    return _BINARY_SPAN.search(head) is not None or (has_logs and b"event.name" in head)


def _read(session: Session) -> Iterator[Trace]:
    records = Records()
    for file in session.files:
        before = len(records.spans) + len(records.logs)
        read_file(file, session, records)
        count_records(records, session.report, file.name, before=before)
    ours = [raw for raw in records.spans if is_ours(raw)]
    if ours:
        records.spans = [raw for raw in records.spans if not is_ours(raw)]
        try:
            yield from restored(ours)
        except InputError as error:
            session.report.broke(session.files[0].name, None, error.one_line())
    yield from traces_of(spans_of_records(records, session.report), session, system="otel")


otel = Importer(
    suffixes=(".json", ".jsonl", ".pb", ".bin"),
    sniff=_sniff,
    read_session=_read,
    system="otel",
    rank=-10,
    columns={
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
    lost="metrics, spans of no agent, model or tool, messages that every model call repeats, and what was not captured",
)
