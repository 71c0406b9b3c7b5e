"""OpenInference spans (Phoenix and its instrumentations), in OTLP, span dumps, Jaeger and Phoenix exports.

AGENT spans become agents (inside another, or inside its tool: sub-agents with spawn and return), LLM spans model steps with
their tokens, TOOL spans calls with their results, RETRIEVER, RERANKER and EMBEDDING spans calls too, GUARDRAIL spans safety
events, handoffs of the OpenAI Agents instrumentation messages; evaluations become rewards. CHAIN spans, and spans of a kind
that we do not know, are wrappers. Spans whose kind was lost on the way, with messages in an event's body, are told by the
shape of those. `spans/openinference.py` says what the attributes mean; spans of the GenAI conventions in the same file, or in
the same trace, are read as `otel` reads them.

What is lost: documents and embeddings as values, tool schemas, invocation parameters, and all but the last message that a
model was given.

Always true: an agent's sum of tokens counts only where no model call inside it has any; a prompt count that leaves the cache
out is recognised by being smaller than it; a trace of GenAI spans alone is `otel`'s, whichever file it stands in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import as_dict, as_list, number, string, text_of
from counterpoint.formats.otel import read_files, traces_in
from counterpoint.formats.spans.openinference import OWN, Beside
from counterpoint.formats.spans.phoenix import KIND, shows_phoenix
from counterpoint.formats.spans.raw_records import Records, files_together, records_in, unwrapped_head
from counterpoint.trace import Trace

_SCOPE, _KIND = b'"openinference.instrumentation.', f'"{KIND}"'.encode()
_OWN = tuple(f'"{name}'.encode() for name in OWN)
_OTHERS = (b'"parentObservationId"', b'"parent_observation_id"', b'"span_attributes"')  # Langfuse's and TRAIL's envelopes


def _sniff(head: bytes) -> bool:
    if head[:1] == b"\x0a" and b"\x08" in head:  # OTLP in protobuf, and no blank line before JSON
        return _KIND.strip(b'"') in head
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    head = unwrapped_head(head)
    is_marked = _SCOPE in head or (_KIND in head and (any(own in head for own in _OWN) or b'"gen_ai.' not in head))
    return begins and (is_marked or shows_phoenix(head)) and not any(other in head for other in _OTHERS)


def _group(files: Sequence[File]) -> list[Session]:
    return [Session(group[0].name, group) for group in files_together(files)]


def _read(session: Session) -> Iterator[Trace]:
    records = _Records()
    read_files(session, records)
    yield from traces_in(records, session, system="openinference", beside=records.beside)


class _Records(Records):
    """OpenTelemetry's records, with what Phoenix and AWS's collector write beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.beside: dict[str, Beside] = {}

    def add(self, document: Any) -> None:
        super().add(document)
        for kind, record, _, _ in records_in(document):
            name = string(record.get("span_id") or record.get("spanId") or as_dict(record.get("context")).get("span_id"))
            if kind != "span" or name is None:
                continue
            events = as_list(record.get("span_events") or record.get("events"))
            body = next((as_dict(as_dict(e).get("body")) for e in events if as_dict(e).get("body")), {})
            if (scores := _annotations(record)) or body:
                self.beside[name] = Beside(body, scores)


def _annotations(span: dict[str, Any]) -> dict[str, float]:
    """Scores that Phoenix exports beside a span."""
    rows = [as_dict(one) for one in as_list(span.get("annotations") or span.get("span_annotations"))]
    scores = {text_of(row.get("name")): number(as_dict(row.get("result")).get("score", row.get("score"))) for row in rows}
    return {name: value for name, value in scores.items() if name and value is not None}


openinference = Importer(
    suffixes=(".json", ".jsonl", ".pb", ".bin"),
    sniff=_sniff,
    signs=("openinference.span.kind", "attributes", "context", "span_id", "trace_id", "parent_id"),
    system="openinference",
    rank=10,
    read_session=_read,
    group=_group,
    becomes={
        "AGENT span": ("spawn", "return"),
        "input of the outermost AGENT span": ("human_intervention",),
        "LLM span": ("orchestrator_decision", "message"),
        "TOOL, RETRIEVER, RERANKER, EMBEDDING span": ("tool_call", "tool_result"),
        "handoff span": ("message",),
        "GUARDRAIL span": ("safety_event",),
        "evaluation": ("rewards",),
    },
    versions="0.1",
    exact="tokens, nesting, scores",
    lost="documents, embeddings, tool schemas, parameters, all but the last message a model was given",
)
