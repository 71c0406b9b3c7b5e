"""MLflow 2 and 3: traces (`info` with `data.spans`), alone, in lists, on lines, or as rows of a table.

Agent spans become agents (nested: sub-agents with spawn and return), `LLM` and `CHAT_MODEL` spans model steps with their tokens
and cost, tool, retriever and embedding spans calls with their results, guardrail spans safety events. Spans that came over OTLP
and have no type of MLflow's are read by the GenAI conventions. Other spans are wrappers.

Feedback becomes a reward, of its span or of the run: a number, a truth value, or the `yes` and `no` of MLflow's judges, which
count 1 and 0; all assessments stand in `meta`.

What is lost: logged artifacts and attachments, previews, tags.

Always true: input tokens hold the cache, as `mlflow.chat.tokenUsage` does; a value is opened where it is JSON text, as MLflow
writes every attribute; a trace whose spans state fewer tokens than its head does says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, number, seconds, string, text_of
from counterpoint.formats.spans.genai import genai_span
from counterpoint.formats.spans.raw_records import RawSpan
from counterpoint.formats.spans.span import Kind, Span, opened
from counterpoint.formats.spans.trees import traces_of
from counterpoint.trace import Trace

_KINDS: dict[str, Kind] = {
    "LLM": "llm",
    "CHAT_MODEL": "llm",
    "AGENT": "agent",
    "TOOL": "tool",
    "RETRIEVER": "retriever",
    "EMBEDDING": "retriever",
    "RERANKER": "retriever",
    "GUARDRAIL": "guardrail",
    "EVALUATOR": "evaluator",
}
_WRAPPERS = frozenset({"CHAIN", "PARSER", "MEMORY", "WORKFLOW", "TASK", "UNKNOWN"})
_MARKS = (b"mlflow.traceRequestId", b"mlflow.spanType", b"mlflow.spanInputs", b"mlflow.trace_schema", b"mlflow.traceInputs")
_SPANS = (b'"spans"', b'"trace"', b'"data"')
_TRUTH = {"yes": 1.0, "no": 0.0}
_LESS = "tokens that the trace states and none of its spans does"


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if keys.keys() >= {"info", "data"}:
        return b'"trace_metadata"' in head or b'"request_metadata"' in head or any(mark in head for mark in _MARKS)
    if "resourceSpans" in keys or "resource_spans" in keys:
        return False  # OTLP that MLflow exported
    has_spans = "spans" in keys or "trace" in keys or ("data" in keys and b'"spans"' in head)
    return has_spans and any(mark in head for mark in _MARKS)


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        for document in session.documents(file):
            for trace in document if isinstance(document, list) else [document]:
                head, spans = _parts(as_dict(trace))
                if spans:
                    yield from _traces(session, head, spans)
                else:
                    session.report.broke(file.name, None, "a trace without spans")


def _parts(trace: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is known of a trace, and its spans."""
    inner = as_dict(opened(trace.get("trace")))
    whole = inner if "data" in inner else trace
    head = as_dict(whole.get("info")) or {k: v for k, v in trace.items() if k not in ("spans", "trace", "data")}
    listed = as_list(opened(as_dict(whole.get("data")).get("spans"))) or as_list(opened(trace.get("spans")))
    return head, [span for one in listed if (span := as_dict(opened(one)))]


def _traces(session: Session, head: dict[str, Any], listed: list[dict[str, Any]]) -> Iterator[Trace]:
    about = {k: opened(v) for k, v in _pairs(head.get("trace_metadata") or head.get("request_metadata")).items()}
    first = as_dict(listed[0].get("attributes"))
    stated = string(head.get("trace_id")) or string(head.get("request_id")) or string(opened(first.get("mlflow.traceRequestId")))
    name = stated or run_of(listed)
    spans = [_span(row, name, order, session) for order, row in enumerate(listed)]
    marks, whole = _assessments(head, {span.id: span for span in spans})
    total = as_dict(about.get("mlflow.trace.tokenUsage"))
    for trace in traces_of(spans, session, system="mlflow"):
        for kind, value in whole.items():
            trace.rewards.setdefault(kind, value)
        more = {"assessments": marks, "session": about.get("mlflow.trace.session"), "state": _state(head)}
        trace.meta.update({k: v for k, v in more.items() if v})
        told = (count(total.get("input_tokens")) or 0) + (count(total.get("output_tokens")) or 0)
        if missing := max(told - int(trace.costs.get("tokens", 0)), 0):
            trace.meta["import"].setdefault("lacks", {})[_LESS] = missing
        yield trace


def _pairs(value: Any) -> dict[str, Any]:
    """An object, or a list of keys and values, as the REST interface of MLflow 2 has it."""
    got = opened(value)
    return as_dict(got) or {str(p["key"]): p.get("value") for p in map(as_dict, as_list(got)) if "key" in p}


def _state(head: dict[str, Any]) -> str | None:
    state = string(head.get("state")) or string(head.get("status"))
    return state if state not in ("OK", "STATE_UNSPECIFIED") else None


def _span(row: dict[str, Any], trace: str, order: int, session: Session) -> Span:
    attributes = as_dict(row.get("attributes"))
    got = {key: None if value == "null" else opened(value) for key, value in attributes.items()}
    place = as_dict(row.get("context"))
    id_ = string(row.get("span_id")) or string(place.get("span_id")) or f"span{order}"
    parent = string(row.get("parent_span_id")) or string(row.get("parent_id"))
    start, end = seconds(_first(row, "start_time_unix_nano", "start_time")), _end(row)
    ok, error = _status(row)
    kind = string(got.get("mlflow.spanType"))
    name = string(row.get("name")) or kind or "span"
    if kind in (None, "UNKNOWN") and any(key.startswith("gen_ai.") for key in attributes):
        span = genai_span(RawSpan(id_, trace, parent, name, start, end, got, {}, ok=ok, error=error, order=order))
        span.order = order
        return span
    if kind is not None and kind not in _KINDS and kind not in _WRAPPERS:
        session.report.unknown[f"span of type {kind}"] += 1
    span = Span(id_, trace, parent, name, _KINDS.get(kind or "", "chain"), start, end, ok=ok, error=error, order=order)
    _fill(span, got)
    return span


def _first(row: dict[str, Any], *names: str) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _end(row: dict[str, Any]) -> float | None:
    return seconds(_first(row, "end_time_unix_nano", "end_time")) or None


def _status(row: dict[str, Any]) -> tuple[bool | None, str | None]:
    status = as_dict(row.get("status"))
    code = str(status.get("code") or row.get("status_code") or row.get("status") or "").removeprefix("STATUS_CODE_")
    if code != "ERROR":
        return (True if code == "OK" else None), None
    told = string(status.get("message")) or string(row.get("status_message"))
    raised = (as_dict(event.get("attributes")) for event in map(as_dict, as_list(row.get("events"))))
    return False, told or next((text for a in raised if (text := text_of(a.get("exception.message")))), None) or "error"


def _fill(span: Span, got: dict[str, Any]) -> None:
    asked, answered = got.get("mlflow.spanInputs"), got.get("mlflow.spanOutputs")
    if span.kind == "llm":
        span.talks(asked, answered)
        span.usage = _usage(got)
        span.cost_usd = number(as_dict(got.get("mlflow.llm.cost")).get("total_cost")) or None
        span.model = _model(got, as_dict(asked), as_dict(answered))
    elif span.kind in ("tool", "retriever"):
        span.tool, span.input = span.name, compact(asked) if asked not in (None, {}) else ""
        span.output = text_of(answered) if answered is not None else ""
        span.call = string(as_dict(answered).get("tool_call_id"))
    else:
        span.talks(_only(asked), _only(answered), with_calls=False)
        span.agent = span.name if span.kind == "agent" else None
        span.usage = _usage(got)
        if span.kind == "guardrail":
            span.verdict = "allow" if span.ok is not False else "triggered"


def _only(value: Any) -> Any:
    """The one argument of a function, where it is a text."""
    got = as_dict(value)
    return next(iter(got.values())) if len(got) == 1 and isinstance(next(iter(got.values())), str) else value


def _usage(got: dict[str, Any]) -> Usage | None:
    told = as_dict(got.get("mlflow.chat.tokenUsage"))
    read, wrote = told.get("cache_read_input_tokens"), told.get("cache_creation_input_tokens")
    usage = Usage.whole(told.get("input_tokens"), told.get("output_tokens"), cached=read, written=wrote)
    hour = count(told.get("cache_creation_input_tokens_above_1hr")) or 0
    return usage._replace(cache_write_1h=min(hour, usage.cache_write)) if usage is not None else None


def _model(got: dict[str, Any], asked: dict[str, Any], answered: dict[str, Any]) -> str | None:
    invoked = as_dict(got.get("invocation_params"))
    named = (got.get("mlflow.llm.model"), answered.get("model"), asked.get("model"), got.get("model"), invoked.get("model"))
    return next((name for value in (*named, invoked.get("model_name")) if (name := string(value))), None)


def _assessments(head: dict[str, Any], spans: dict[str, Span]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Every valid assessment, as it is told, and the values of those of the whole run; those of a span go to it."""
    marks: list[dict[str, Any]] = []
    whole: dict[str, float] = {}
    for one in map(as_dict, as_list(opened(head.get("assessments")))):
        name, feedback = string(one.get("assessment_name")) or string(one.get("name")), as_dict(one.get("feedback"))
        if name is None or one.get("valid") is False:
            continue
        expected = as_dict(one.get("expectation"))
        mark = {"name": name, "value": feedback.get("value"), "expected": expected.get("value"), "span": one.get("span_id")}
        mark |= {"rationale": one.get("rationale"), "by": as_dict(one.get("source")).get("source_type")}
        marks.append({k: v for k, v in mark.items() if v is not None})
        value = _value(feedback.get("value"))
        span = spans.get(str(one.get("span_id")))
        if value is not None:
            (whole if span is None else span.reward)[name] = value
    return marks, whole


def _value(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    return _TRUTH.get(value.strip().lower()) if isinstance(value, str) else number(value)


mlflow = Importer(
    suffixes=(".mlflow.json",),
    sniff=_sniff,
    signs=("info", "data", "spans", "trace_metadata", "request_metadata", "mlflow.spanType", "mlflow.spanInputs"),
    system="mlflow",
    rank=11,
    read_session=_read,
    becomes={
        "LLM, CHAT_MODEL span": ("orchestrator_decision", "message"),
        "TOOL, RETRIEVER, EMBEDDING, RERANKER span": ("tool_call", "tool_result"),
        "AGENT span": ("human_intervention", "spawn", "return"),
        "GUARDRAIL span": ("safety_event",),
        "assessment": ("reward", "rewards", "meta"),
        "info": ("meta",),
    },
    lost="artifacts and attachments, previews, tags",
    versions="traces of MLflow 2.14 to 3.18",
    exact="tokens, costs, times, nesting, errors, assessments",
)
"""Traces of MLflow."""
