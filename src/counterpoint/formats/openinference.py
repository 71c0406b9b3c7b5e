"""OpenInference spans (Phoenix and its instrumentations), in OTLP, span dumps, Jaeger and Phoenix exports.

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

from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.values import as_dict, as_list, number, string, text_of
from counterpoint.formats.otel.bodies import count, read_file
from counterpoint.formats.otel.raw_records import Records, records_in
from counterpoint.formats.spans.openinference import Beside, flat, spans_of
from counterpoint.formats.spans.trees import traces_of
from counterpoint.trace import Trace

_SCOPE, _KIND = b'"openinference.instrumentation.', b'"openinference.span.kind"'
# A kind beside nothing but gen_ai attributes is a courtesy to viewers: such spans are OpenTelemetry's.
_OWN = (b'"input.value"', b'"output.value"', b'"llm.', b'"agent.name"')
_OTHERS = (b'"parentObservationId"', b'"parent_observation_id"', b'"span_attributes"')  # Langfuse's and TRAIL's envelopes


def _sniff(head: bytes) -> bool:
    if head[:1] == b"\x0a":  # OTLP in protobuf
        return _KIND.strip(b'"') in head
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    is_marked = _SCOPE in head or (_KIND in head and (any(own in head for own in _OWN) or b'"gen_ai.' not in head))
    return begins and is_marked and not any(other in head for other in _OTHERS)


def _read(session: Session) -> Iterator[Trace]:
    records = _Records()
    for file in session.files:
        before = len(records.spans)
        read_file(file, session, records)
        count(records, session.report, file.name, before=before)
    for raw in records.spans:
        raw.attrs = flat(raw.attrs)
        if raw.ok is None and raw.id in records.codes:
            raw.ok = records.codes[raw.id]
    spans = spans_of(records.spans, session.report, records.beside)
    yield from traces_of(spans, session, system="openinference")


class _Records(Records):
    """OpenTelemetry's records, with what Phoenix and AWS's collector write beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.beside: dict[str, Beside] = {}
        self.codes: dict[str, bool] = {}
        """Phoenix keeps the status as a name of its own."""

    def add(self, document: Any) -> None:
        super().add(document)
        for kind, record, _, _ in records_in(document):
            name = string(record.get("span_id") or record.get("spanId") or as_dict(record.get("context")).get("span_id"))
            if kind != "span" or name is None:
                continue
            if (code := record.get("status_code")) in ("OK", "ERROR"):
                self.codes[name] = code == "OK"
            events = as_list(record.get("span_events") or record.get("events"))
            body = next((as_dict(as_dict(e).get("body")) for e in events if as_dict(e).get("body")), {})
            if (scores := _annotations(record)) or body:
                self.beside[name] = Beside(body, scores)


def _annotations(span: dict[str, Any]) -> dict[str, float]:
    """Scores that Phoenix exports beside a span."""
    rows = [as_dict(one) for one in as_list(span.get("annotations") or span.get("span_annotations"))]
    found = {text_of(row.get("name")): number(as_dict(row.get("result")).get("score", row.get("score"))) for row in rows}
    return {name: value for name, value in found.items() if name and value is not None}


openinference = Importer(
    suffixes=(".json", ".jsonl", ".pb", ".bin"),
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
