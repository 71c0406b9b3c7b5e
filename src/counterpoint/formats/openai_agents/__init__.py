"""OpenAI Agents SDK: the traces and spans that its processors export, batch by batch.

Read are the bodies sent to the ingest endpoint (`{"data": [...]}`), and files of such items: a list, or one item or batch per
line. Agent spans become agents (inside a function span: sub-agents with spawn and return), function spans tool calls with
their results, generation and response spans model steps with their tokens, handoff spans messages from agent to agent,
guardrail spans safety events. Task and turn spans are wrappers; the sums of tokens on them are not counted again.

What is lost: the content of `response` spans, which hold only an id and token counts; what was cut at 100 kB.

Conversations are read as well, where a program kept them itself (`items.py`): lists of input items, sessions in SQLite, states
of runs, and responses.

Always true: an item exported twice counts once; an item of a kind that we do not know is counted and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, compact, seconds, string, text_of
from counterpoint.formats.openai_agents.items import holds_items, traces_of_items
from counterpoint.formats.spans.span import Kind, Span, close_wrappers
from counterpoint.formats.spans.trees import traces_of
from counterpoint.trace import Trace

_ITEM = re.compile(rb'"object"\s*:\s*"trace(?:\.span)?"')
_KINDS: dict[str, Kind] = {
    "agent": "agent",
    "function": "tool",
    "generation": "llm",
    "response": "llm",
    "transcription": "llm",
    "speech": "llm",
    "handoff": "handoff",
    "guardrail": "guardrail",
    "custom": "chain",
    "task": "chain",
    "turn": "chain",
    "mcp_tools": "chain",
    "speech_group": "chain",
}
_CUT = "... [truncated]"
_NO_CONTENT = "what response spans said: they hold only an id"
_NO_TOKENS = "the tokens of some model calls"


def _sniff(head: bytes) -> bool:
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    if begins and bool(_ITEM.search(head)) and (b'"span_data"' in head or b'"workflow_name"' in head):
        return True
    return holds_items(head)


def _read(session: Session) -> Iterator[Trace]:
    spans: list[Span] = []
    for file in session.files:
        if holds_items(file.head()):
            yield from traces_of_items(session, file)
            continue
        for record in session.documents(file):
            for item in _items(record):
                _take(item, spans, session, file.name)
    wrappers = {span.id for span in spans if span.id == span.trace}
    for span in spans:
        if span.parent == span.trace and span.trace not in wrappers:
            span.parent = None
    close_wrappers(spans, wrappers)
    yield from traces_of(spans, session, system="openai-agents")


def _items(record: Any) -> Iterator[dict[str, Any]]:
    if isinstance(record, list):
        for one in record:
            yield from _items(one)
    elif isinstance(record, dict):
        if isinstance(record.get("data"), list) and "object" not in record:
            yield from _items(record["data"])
        else:
            yield record


def _take(item: dict[str, Any], spans: list[Span], session: Session, file: str) -> None:
    kind = item.get("object")
    if kind == "trace.span":
        if (span := _span(item, len(spans), session, file)) is not None:
            spans.append(span)
    elif kind == "trace":
        if (id_ := string(item.get("id"))) is not None:
            spans.append(_root(item, id_, len(spans)))
    else:
        session.report.unknown[str(kind)] += 1


def _root(item: dict[str, Any], id_: str, order: int) -> Span:
    """The trace itself: the wrapper of everything in it, which says what the workflow is called."""
    name = string(item.get("workflow_name")) or "workflow"
    extra = {"group_id": item.get("group_id"), "metadata": item.get("metadata") or None}
    return Span(id_, id_, name=name, order=order, extra={k: v for k, v in extra.items() if v is not None})


def _span(item: dict[str, Any], order: int, session: Session, file: str) -> Span | None:
    id_, trace = string(item.get("id")), string(item.get("trace_id"))
    if id_ is None or trace is None:
        session.report.broke(file, None, "a span without an id or trace")
        return None
    data = as_dict(item.get("span_data"))
    kind = string(data.get("type")) or "custom"
    if kind not in _KINDS:
        session.report.unknown[kind] += 1
    span = Span(id_, trace, string(item.get("parent_id")) or trace, kind=_KINDS.get(kind, "chain"), order=order)
    span.start, span.end = seconds(item.get("started_at")), seconds(item.get("ended_at"))
    span.name = string(data.get("name")) or kind
    _fill(span, kind, data, session)
    if (error := as_dict(item.get("error"))) or isinstance(item.get("error"), str):
        span.ok, span.error = False, text_of(error.get("message") or item.get("error"))
        span.extra.update({"error_data": error["data"]} if error.get("data") else {})
    elif span.end is not None and span.kind == "tool":
        span.ok = True
    if span.input.endswith(_CUT) or span.output.endswith(_CUT):
        session.report.lacks["the ends of long fields, cut at 100 kB"] += 1
    return span


def _fill(span: Span, kind: str, data: dict[str, Any], session: Session) -> None:
    if kind == "agent":
        span.agent = span.name
        span.extra = {name: data[name] for name in ("tools", "handoffs", "output_type") if data.get(name)}
    elif kind == "function":
        span.tool = span.name
        span.input, span.output = compact(data.get("input") or ""), text_of(data.get("output"))
        span.extra = {"mcp": data["mcp_data"]} if data.get("mcp_data") else {}
    elif kind == "handoff":
        span.agent, span.to = string(data.get("from_agent")), string(data.get("to_agent"))
        span.extra = {"is_handoff": True}
    elif kind == "guardrail":
        span.verdict = "triggered" if data.get("triggered") is True else "allow"
    elif kind in ("custom", "task", "turn"):
        inner = as_dict(data.get("data"))
        span.name = string(inner.get("sdk_span_type")) or span.name
    elif span.kind == "llm":
        _model(span, kind, data, session)


def _model(span: Span, kind: str, data: dict[str, Any], session: Session) -> None:
    span.model = string(data.get("model")) or string(as_dict(data.get("response")).get("model"))
    span.usage = Usage.openai(data.get("usage"))
    if span.usage is None:
        session.report.lacks[_NO_TOKENS] += 1
    if kind == "response" and not data.get("output"):
        session.report.lacks[_NO_CONTENT] += 1
    span.talks(data.get("input"), data.get("output"))
    if (response := string(data.get("response_id"))) is not None:
        span.extra["response_id"] = response


openai_agents = Importer(
    suffixes=(".json", ".jsonl"),
    sniff=_sniff,
    signs=("object", "trace_id", "span_data", "started_at", "ended_at"),
    system="openai-agents",
    rank=10,
    read_session=_read,
    becomes={
        "agent span": ("spawn", "return"),
        "function span": ("tool_call", "tool_result"),
        "generation or response span": ("orchestrator_decision", "message"),
        "handoff span": ("message",),
        "guardrail span": ("safety_event",),
        "item": ("human_intervention", "orchestrator_decision", "message", "tool_call", "tool_result", "spawn", "return"),
    },
    lost="what response spans said (the export holds only an id), what was cut at 100 kB; of items images and tokens",
    versions="openai-agents 0.1 to 0.24: spans, SQLite sessions, states of runs 1.0 to 1.21",
    exact="spans, tokens, handoffs, agents as tools",
)
