"""OpenInference spans (Phoenix and its instrumentations), in OTLP JSON, span dumps and Phoenix exports.

AGENT spans become agents (inside another, or inside its tool: sub-agents with spawn and return), LLM spans model steps with
their tokens, TOOL spans calls with their results, RETRIEVER, RERANKER and EMBEDDING spans calls too, GUARDRAIL spans safety
events, handoffs of the OpenAI Agents instrumentation messages; evaluations become rewards. CHAIN spans are wrappers. Spans whose
kind was lost on the way, with messages in an event's body, are told by the shape of those.

What is lost: documents and embeddings as values, tool schemas, invocation parameters, and all but the last message that a model
was given.

Always true: an agent's sum of tokens counts only where no model call inside it has any; a prompt count that leaves the cache
out is seen by being smaller than it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from counterpoint.formats._documents import documents
from counterpoint.formats._importer import Importer, Session
from counterpoint.formats._openinference import Raw, flat, spans_of
from counterpoint.formats._span_trees import traces_of
from counterpoint.formats._values import as_dict, as_list, count, number, seconds, string, text_of
from counterpoint.trace import Trace

__all__ = ["openinference"]

_SCOPE, _KIND = b'"openinference.instrumentation.', b'"openinference.span.kind"'
# A kind beside nothing but gen_ai attributes is a courtesy to viewers: such spans are OpenTelemetry's.
_OWN = (b'"input.value"', b'"output.value"', b'"llm.', b'"agent.name"')
_OTHERS = (b'"parentObservationId"', b'"parent_observation_id"', b'"span_attributes"')  # Langfuse's and TRAIL's envelopes
_LISTS = (
    *("resourceSpans", "resource_spans", "scopeSpans", "scope_spans"),
    *("instrumentationLibrarySpans", "batches", "spans", "data"),
)
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue", "string_value", "int_value", "double_value", "bool_value")


def _sniff(head: bytes) -> bool:
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    is_marked = _SCOPE in head or (_KIND in head and (any(own in head for own in _OWN) or b'"gen_ai.' not in head))
    return begins and is_marked and not any(other in head for other in _OTHERS)


def _read(session: Session) -> Iterator[Trace]:
    raws: list[Raw] = []
    for file in session.files:
        for document in documents(session, file):
            for span, scope in _spans(document):
                raw = _raw(span, scope)
                if raw is None:
                    session.report.broke(file.name, None, "a span without an id")
                else:
                    raws.append(raw)
    return traces_of(spans_of(raws, session.report), session, system="openinference")


def _spans(document: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Every span of a document, with the scope that its envelope states."""
    stack: list[tuple[Any, str]] = [(document, "")]
    while stack:
        value, scope = stack.pop()
        if isinstance(value, list):
            stack.extend((one, scope) for one in reversed(value))
        elif isinstance(value, dict):
            inner = [value[name] for name in _LISTS if isinstance(value.get(name), list)]
            if "attributes" in value and not inner:
                yield value, scope
                continue
            stated = as_dict(value.get("scope") or value.get("instrumentationLibrary")).get("name")
            stack.extend((one, string(stated) or scope) for one in reversed(inner))


def _first(span: dict[str, Any], *names: str) -> Any:
    return next((span[name] for name in names if span.get(name) not in (None, "")), None)


def _raw(span: dict[str, Any], scope: str) -> Raw | None:
    context = as_dict(span.get("context"))
    name = string(_first(span, "span_id", "spanId") or _first(context, "span_id", "spanId"))
    if name is None:
        return None
    trace = string(_first(span, "trace_id", "traceId") or _first(context, "trace_id", "traceId")) or "unnamed"
    parent = string(_first(span, "parent_span_id", "parentSpanId", "parent_id"))
    status = span.get("status")
    code = as_dict(status).get("code", as_dict(status).get("status_code")) if isinstance(status, dict) else status
    named = as_dict(span.get("scope") or span.get("instrumentation_scope")).get("name")
    return Raw(
        name,
        trace,
        None if parent is not None and not parent.strip("0") else parent,
        text_of(_first(span, "name", "span_name")),
        seconds(_first(span, "start_time", "startTimeUnixNano", "start_time_unix_nano", "startTime")),
        seconds(_first(span, "end_time", "endTimeUnixNano", "end_time_unix_nano", "endTime")),
        _attributes(span.get("attributes")),
        is_error=_is_error(span.get("status_code", code)),
        message=string(as_dict(status).get("message")) or string(span.get("status_message")),
        scope=string(named) or scope,
        events=[_event(as_dict(one)) for one in as_list(_first(span, "span_events", "events"))],
        links=[link for one in as_list(span.get("links")) if (link := _linked(as_dict(one)))],
        scores=_annotations(span),
    )


def _event(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "name": event.get("name", event.get("event_name")), "attributes": _attributes(event.get("attributes"))}


def _linked(link: dict[str, Any]) -> str | None:
    return string(_first(link, "spanId", "span_id") or as_dict(link.get("context")).get("span_id"))


def _is_error(code: Any) -> bool | None:
    """OTLP's 1 and 2, or a name that may begin with `STATUS_CODE_` or `StatusCode.`."""
    if (plain := count(code)) is not None:
        return {1: False, 2: True}.get(plain)
    name = text_of(code).upper()
    return True if name.endswith("ERROR") else False if name.endswith("OK") else None


def _attributes(value: Any) -> dict[str, Any]:
    """As flat names and plain values, from a map or from OTLP's list of keys and typed values."""
    if isinstance(value, list):
        value = {text_of(as_dict(one).get("key")): _value(as_dict(one).get("value")) for one in value}
    return flat(as_dict(value))


def _value(value: Any) -> Any:
    got = as_dict(value)
    for name in _VALUES:
        if name in got:
            return got[name]
    array = as_dict(got.get("arrayValue") or got.get("array_value"))
    if array:
        return [_value(one) for one in as_list(array.get("values"))]
    pairs = as_dict(got.get("kvlistValue") or got.get("kvlist_value"))
    if pairs:
        return {text_of(as_dict(one).get("key")): _value(as_dict(one).get("value")) for one in as_list(pairs.get("values"))}
    return None if got else value


def _annotations(span: dict[str, Any]) -> dict[str, float]:
    """Scores that Phoenix exports beside a span."""
    rows = [as_dict(one) for one in as_list(_first(span, "annotations", "span_annotations"))]
    found = {text_of(row.get("name")): number(as_dict(row.get("result")).get("score", row.get("score"))) for row in rows}
    return {name: value for name, value in found.items() if name and value is not None}


openinference = Importer(
    suffixes=(".json", ".jsonl"),
    sniff=_sniff,
    system="openinference",
    rank=10,
    read_session=_read,
    columns={
        "AGENT span": ("spawn", "return"),
        "LLM span": ("orchestrator_decision", "message"),
        "TOOL, RETRIEVER, RERANKER, EMBEDDING span": ("tool_call", "tool_result"),
        "handoff span": ("message",),
        "GUARDRAIL span": ("safety_event",),
        "evaluation": ("rewards",),
    },
    lost="documents and embeddings, tool schemas, invocation parameters, and all but the last message that a model was given",
)
