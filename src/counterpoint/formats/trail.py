"""TRAIL: agent traces with OpenInference attributes, and what annotators found wrong in them.

Spans lie inside each other as `child_spans` with ISO 8601 durations; they are mapped as OpenInference's are (agents inside
agents become sub-agents with spawn and return). Annotation files, named after the trace or naming it, are joined to it: each
error becomes a label (`trail_errors`) on the event of the span that it locates, or on the nearest event where that span has
none; the scores become metrics. Categories are written alike, whatever their case, spaces and plural.

What is lost: logs of functions that are not steps of agents, resource attributes, the state of the tracer.

Always true: no error and no score is lost: what names no span of its trace is counted and kept in the trace's `meta`; an
annotation that is not JSON is counted, and its trace is read without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import as_dict, as_list, duration, number, seconds, string, text_of
from counterpoint.formats.spans.openinference import flat, spans_of
from counterpoint.formats.spans.raw_records import RawSpan, SpanEvent
from counterpoint.formats.spans.span import Span
from counterpoint.formats.spans.trees import traces_of
from counterpoint.trace import Trace

_ID = re.compile(rb'"trace_id"\s*:\s*"([^"]+)"')
_ERRORS = re.compile(rb'"errors"\s*:\s*\[')
_SUFFIXES = ("", ":result", ":return", ":output", ":input")
_NO_PLACE = "the place of some annotated errors: no span of that id in the trace"
_NO_TRACE = "an annotation whose trace is not here"


def _is_trace(head: bytes) -> bool:
    return b'"span_attributes"' in head and b'"span_name"' in head and b'"spans"' in head


def _is_annotation(head: bytes) -> bool:
    """Errors with what annotators always write, or the scores where there are no errors."""
    has_fields = b'"location"' in head and b'"evidence"' in head and b'"impact"' in head
    return bool(_ERRORS.search(head)) and (has_fields or b'"reliability_score"' in head)


def _sniff(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and (_is_trace(head) or _is_annotation(head))


def _group(files: Sequence[File]) -> list[Session]:
    """A trace and its annotations: by the id that they name, else by the name of the file."""
    groups: dict[str, list[File]] = {}
    for file in files:
        head = file.head()
        named = _ID.search(head)
        key = named[1].decode("utf-8", "replace") if named else file.stem
        groups.setdefault(key, []).append(file)
    return [Session(key, files_here) for key, files_here in sorted(groups.items())]


def _read(session: Session) -> Iterator[Trace]:
    raws: list[RawSpan] = []
    notes: list[dict[str, Any]] = []
    for file in session.files:
        document = as_dict(session.document(file))
        if isinstance(document.get("spans"), list):
            raws.extend(_raws(document))
        elif "errors" in document or "scores" in document:
            notes.append(document)
    if notes and not raws:
        session.report.broke(session.files[0].name, None, _NO_TRACE)
    spans = spans_of(raws, session.report)
    for trace in traces_of(spans, session, system="trail"):
        yield _annotated(trace, spans, notes, session)


def _raws(document: dict[str, Any]) -> Iterator[RawSpan]:
    """Every span of a document, outer ones first."""
    name = text_of(document.get("trace_id")) or "unnamed"
    stack: list[tuple[Any, str | None]] = [(span, None) for span in reversed(as_list(document.get("spans")))]
    while stack:
        span, parent = stack.pop()
        id_ = string(as_dict(span).get("span_id"))
        if id_ is None:
            continue
        yield _raw(span, id_, name, parent)
        stack.extend((child, id_) for child in reversed(as_list(span.get("child_spans"))))


def _raw(span: dict[str, Any], id_: str, trace: str, parent: str | None) -> RawSpan:
    start, length = seconds(span.get("timestamp")), duration(span.get("duration"))
    status = text_of(span.get("status_code")).lower()
    events = [as_dict(event) for event in as_list(span.get("events"))]
    return RawSpan(
        id_,
        trace,
        string(span.get("parent_span_id")) or parent,
        text_of(span.get("span_name")),
        start,
        None if start is None or length is None else start + length,
        flat(as_dict(span.get("span_attributes"))),
        {},
        scope=text_of(span.get("scope_name")),
        events=[SpanEvent(text_of(e.get("Name")), seconds(e.get("Timestamp")), as_dict(e.get("Attributes"))) for e in events],
        ok={"ok": True, "error": False}.get(status),
        error=string(span.get("status_message")) if status == "error" else None,
    )


# -- annotations ---------------------------------------------------------------------------------------------------------


def _annotated(trace: Trace, spans: list[Span], notes: list[dict[str, Any]], session: Session) -> Trace:
    """The trace with labels, metrics and what has no place in either."""
    if not notes:
        return trace
    placed: dict[int, list[dict[str, Any]]] = {}
    unplaced: list[dict[str, Any]] = []
    near = _Near(trace, spans)
    errors = [as_dict(error) for note in notes for error in as_list(note.get("errors"))]
    for error in errors:
        label = {"category": category(error.get("category")), **{k: v for k, v in error.items() if k != "category"}}
        at = near.event(text_of(error.get("location")))
        if at is None:
            unplaced.append(label)
        else:
            placed.setdefault(at, []).append(label)
    if unplaced:
        session.report.lacks[_NO_PLACE] += len(unplaced)
    events = list(trace.events)
    for i, labels in placed.items():
        events[i] = msgspec.structs.replace(events[i], extra={**(events[i].extra or {}), "trail_errors": labels})
    metrics, reasons = _scores(notes)
    metrics["errors"] = float(len(errors))
    meta = {**trace.meta, "trail": {key: value for key, value in (("reasons", reasons), ("unplaced", unplaced)) if value}}
    return msgspec.structs.replace(trace, events=events, metrics={**(trace.metrics or {}), **metrics}, meta=meta)


def _scores(notes: list[dict[str, Any]]) -> tuple[dict[str, float], dict[str, str]]:
    metrics: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for note in notes:
        for scores in as_list(note.get("scores")):
            for name, value in as_dict(scores).items():
                if (got := number(value)) is not None:
                    metrics[name] = got
                elif value:
                    reasons[name] = text_of(value)
    return metrics, reasons


class _Near:
    """The event of a span; of a span that is no event, the first inside it, else that of the span around it."""

    def __init__(self, trace: Trace, spans: list[Span]) -> None:
        self.index = trace.index
        self.parent = {span.id: span.parent for span in spans}
        self.inside: dict[str, list[str]] = {}
        for span in sorted(spans, key=lambda s: (s.start or 0.0, s.order)):
            self.inside.setdefault(span.parent or "", []).append(span.id)

    def event(self, span: str) -> int | None:
        """The place of the event in the trace."""
        at: str | None = span if span in self.parent else None
        visited: set[str] = set()
        while at is not None and at not in visited:
            stack = [at]
            while stack:
                name = stack.pop()
                event_id = next((self.index[name + s] for s in _SUFFIXES if name + s in self.index), None)
                if event_id is not None:
                    return event_id
                stack.extend(n for n in reversed(self.inside.get(name, [])) if n not in visited)
            visited.add(at)
            at = self.parent.get(at)
        return None


def category(value: Any) -> str:
    """A category's name, written one way: words in lower case, apart by one space or hyphen, in the singular."""
    words = re.split(r"\s+", re.sub(r"[_\s]+", " ", text_of(value)).strip().lower())
    return " ".join([*words[:-1], re.sub(r"(?<=[a-z]{3})(?<!s)s$", "", words[-1])])


trail = Importer(
    suffixes=(".json",),
    sniff=_sniff,
    signs=("trace_id", "spans", "span_id", "span_name", "span_attributes", "child_spans"),
    system="trail",
    rank=10,
    group=_group,
    read_session=_read,
    becomes={
        "AGENT span": ("spawn", "return"),
        "input of the outermost AGENT span": ("human_intervention",),
        "LLM span": ("orchestrator_decision", "message"),
        "TOOL span": ("tool_call", "tool_result"),
        "annotated error": ("extra.trail_errors",),
        "score": ("metrics",),
    },
    versions="the published set",
    exact="tokens, nesting, errors",
    lost="logs of other functions, resource attributes",
)
