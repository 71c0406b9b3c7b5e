"""Langfuse traces with their observations, as its interface, API and blob exports write them.

Read are `{"trace": {...}, "observations": [...]}`, traces that hold their observations, pages and lists of either, and files
with one per line, in camel or snake case. Generations become model steps with their tokens, tool observations calls with their
results, agent observations agents (nested: sub-agents with spawn and return), guardrails safety events, scores rewards. What was
exported as a plain span is recognised by the framework's own attributes: agents and tools of the GenAI conventions, of Pydantic
AI, of LangGraph and of BeeAI. Other spans are wrappers.

What is lost: prompt versions, model parameters, comments on scores beside the trace's `meta`.

Always true: observation ids are event ids; an observation that stands in the trace and beside it counts once; input tokens hold
the cache and output tokens the reasoning, as `inputUsage` and `outputUsage` do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, compact, count, number, seconds, string, text_of
from counterpoint.formats.spans.langgraph import KEPT, mark_graphs, mark_tool, result_text
from counterpoint.formats.spans.openinference import is_sdk_trace
from counterpoint.formats.spans.span import Kind, Span, close_wrappers, opened
from counterpoint.formats.spans.trees import traces_of
from counterpoint.trace import Trace

_HEADED = re.compile(rb'"trace"\s*:\s*\{')
_PARENTS = (b'"parentObservationId"', b'"parent_observation_id"')


def _sniff(head: bytes) -> bool:
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return False
    return any(key in head for key in _PARENTS) or (bool(_HEADED.search(head)) and b'"projectId"' in head)


def _read(session: Session) -> Iterator[Trace]:
    collection = _Collection()
    for file in session.files:
        for document in session.documents(file):
            collection.take(document, session, file.name)
    spans, metas = collection.spans(session)
    mark_graphs(spans, metas)
    for trace in traces_of(spans, session, system="langfuse"):
        scores = collection.scores.get(trace.trace_id)
        if scores:
            trace.meta["scores"] = scores
        yield trace


class _Collection:
    """Traces and observations, each once."""

    def __init__(self) -> None:
        self.traces: dict[str, dict[str, Any]] = {}
        self.observations: dict[str, dict[str, Any]] = {}
        self.scores: dict[str, list[dict[str, Any]]] = {}

    def take(self, document: Any, session: Session, file: str) -> None:
        stack: list[Any] = [document]
        while stack:
            value = stack.pop()
            if isinstance(value, list):
                stack.extend(reversed(value))
                continue
            if not isinstance(value, dict):
                continue
            row = {_camel(k): v for k, v in value.items()}
            if "parentObservationId" in row or ("traceId" in row and "type" in row and "startTime" in row):
                self._observation(row, session, file)
            elif isinstance(row.get("trace"), dict):
                stack.extend([row.get("scores"), row.get("observations"), row["trace"]])
            elif "observations" in row or ("timestamp" in row and "id" in row and "traceId" not in row):
                if (name := string(row.get("id"))) is not None:
                    self.traces[name] = row
                stack.extend([row.get("scores"), row.get("observations")])
            elif "dataType" in row and "name" in row:
                self._score(row)
            else:
                stack.append(row.get("data"))

    def _observation(self, row: dict[str, Any], session: Session, file: str) -> None:
        name, trace = string(row.get("id")), string(row.get("traceId"))
        if name is None or trace is None:
            session.report.broke(file, None, "an observation without an id or trace")
            return
        self.observations[name] = row

    def _score(self, row: dict[str, Any]) -> None:
        names = ("id", "name", "value", "stringValue", "dataType", "source", "comment", "observationId")
        score = {key: row[key] for key in names if row.get(key) not in (None, "")}
        mine = self.scores.setdefault(str(row.get("traceId")), [])
        if score not in mine:
            mine.append(score)

    def spans(self, session: Session) -> tuple[list[Span], dict[str, dict[str, Any]]]:
        """The spans of all traces, and the metadata of each; every trace is the wrapper of what is in it."""
        rows = list(self.observations.values())
        wrapped = {str(row["traceId"]) for row in rows}
        spans = [self._wrapper(name, i) for i, name in enumerate(sorted(wrapped))]
        metas: dict[str, dict[str, Any]] = {}
        for row in rows:
            span = Span(row["id"], row["traceId"], string(row.get("parentObservationId")) or _root(row["traceId"]))
            span.order, span.name = len(spans), string(row.get("name")) or str(row.get("type"))
            span.start, span.end = seconds(row.get("startTime")), seconds(row.get("endTime"))
            metas[span.id] = as_dict(opened(row.get("metadata")))
            if not _describe(span, row, metas[span.id]):
                session.report.unknown[str(row.get("type"))] += 1
            spans.append(span)
        close_wrappers(spans, {_root(name) for name in wrapped})
        self._reward(spans)
        return _joined(spans), metas

    def _wrapper(self, name: str, order: int) -> Span:
        row = self.traces.get(name, {})
        return Span(_root(name), name, name=string(row.get("name")) or "trace", order=order, start=seconds(row.get("timestamp")))

    def _reward(self, spans: list[Span]) -> None:
        by_id = {span.id: span for span in spans}
        for trace, scores in self.scores.items():
            for score in scores:
                span = by_id.get(str(score.get("observationId"))) or by_id.get(_root(trace))
                value = number(score.get("value"))
                if span is None or value is None:
                    continue
                key, k = str(score.get("name")), 2
                while key in span.reward:
                    key, k = f"{score.get('name')}~{k}", k + 1
                span.reward[key] = value


def _root(trace: str) -> str:
    return f"{trace}:trace"


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part.title() for part in rest) if first else key


def _joined(spans: list[Span]) -> list[Span]:
    """One span where a framework wrote the phases of one step as spans of their own."""
    first: dict[tuple[str, Any], Span] = {}
    joined: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start or 0.0, s.order)):
        step = span.extra.pop("step", None)
        before = first.setdefault((span.trace, step), span) if step else span
        if before is span:
            joined.append(span)
            continue
        before.end = max(filter(None, (before.end, span.end)), default=None)
        before.output, before.input = before.output or span.output, before.input or span.input
        before.usage = before.usage or span.usage
        before.ok, before.error = (False, span.error) if span.ok is False else (before.ok, before.error)
    return joined


# -- what an observation is ----------------------------------------------------------------------------------------------------


_KINDS: dict[str, Kind] = {
    "GENERATION": "llm",
    "AGENT": "agent",
    "TOOL": "tool",
    "RETRIEVER": "retriever",
    "EMBEDDING": "retriever",
    "GUARDRAIL": "guardrail",
    "EVALUATOR": "evaluator",
    "CHAIN": "chain",
    "SPAN": "chain",
    "EVENT": "chain",
}
_PHASE = re.compile(r"^(.+)\.(?:start|success|finish|error)-(\d+)$")
_BEEAI = "openinference.instrumentation.beeai"


def _describe(span: Span, row: dict[str, Any], meta: dict[str, Any]) -> bool:
    """Fill a span from an observation; False when its type is none that we know."""
    attributes, scope = as_dict(meta.get("attributes")), text_of(as_dict(meta.get("scope")).get("name"))
    kind = str(row.get("type")).upper()
    span.kind = _KINDS.get(kind, "chain")
    if span.kind == "chain":
        span.kind = _stated(row, attributes, scope)
    span.extra = {key: meta[key] for key in KEPT if meta.get(key) not in (None, "")}
    level = row.get("level")
    if level == "ERROR":
        span.ok, span.error = False, string(row.get("statusMessage")) or "error"
    if scope.startswith(_BEEAI) and (phase := _PHASE.match(span.name)) and span.kind in ("llm", "tool"):
        span.extra["step"] = phase[1], phase[2]
        span.name = phase[1]
    if span.kind == "agent":
        _as_agent(span, row, attributes, scope)
    elif span.kind == "llm":
        _as_model(span, row)
    elif span.kind in ("tool", "retriever"):
        _as_tool(span, row, attributes)
    else:
        span.talks(row.get("input"), row.get("output"), with_calls=False)
    return kind in _KINDS


def _stated(row: dict[str, Any], attributes: dict[str, Any], scope: str) -> Kind:
    """What a plain span is: more than a wrapper only where an attribute says so, or where its output is a tool's message."""
    operation = attributes.get("gen_ai.operation.name")
    if operation == "execute_tool" or attributes.get("gen_ai.tool.name"):
        return "tool"
    if operation == "invoke_agent" or attributes.get("agent_name"):
        return "agent"
    if attributes.get("openinference.span.kind") == "TOOL":
        return "tool"
    answer = as_dict(opened(row.get("output")))
    ids = answer.get("id")
    is_message = isinstance(ids, list) and bool(ids) and ids[-1] == "ToolMessage"
    return "tool" if is_message or (answer.get("type") == "tool" and "content" in answer) else "chain"


def _as_agent(span: Span, row: dict[str, Any], attributes: dict[str, Any], scope: str) -> None:
    if is_sdk_trace(scope, attributes):
        span.kind = "chain"
        return
    names = ("gen_ai.agent.name", "agent_name", "agent.name", "graph.node.id")
    span.agent_id = string(attributes.get("gen_ai.agent.id"))
    stated = next((name for key in names if (name := string(attributes.get(key)))), None)
    span.agent = stated or (None if span.agent_id and span.agent_id in span.name else span.name)
    span.talks(row.get("input"), row.get("output") or attributes.get("final_result"), with_calls=False)
    span.usage = _usage(row)


def _as_model(span: Span, row: dict[str, Any]) -> None:
    span.talks(row.get("input"), row.get("output"))
    span.model = string(row.get("model")) or string(row.get("providedModelName"))
    span.usage = _usage(row)
    span.cost_usd = number(row.get("totalCost") or row.get("calculatedTotalCost")) or None


def _as_tool(span: Span, row: dict[str, Any], attributes: dict[str, Any]) -> None:
    named = ("gen_ai.tool.name", "ai.toolCall.name", "tool.name")
    span.tool = next((name for key in named if (name := string(attributes.get(key)))), None) or _plain(span.name)
    span.call = string(attributes.get("gen_ai.tool.call.id")) or string(attributes.get("ai.toolCall.id"))
    asked = row.get("input") or attributes.get("tool_arguments") or attributes.get("tool.parameters")
    result = row.get("output") or attributes.get("tool_response")
    span.input, span.output = compact(asked or ""), result_text(result) if result else ""
    if span.call is None:
        answer = as_dict(opened(result))
        span.call = string(as_dict(answer.get("kwargs", answer)).get("tool_call_id"))
    if span.kind == "tool":
        mark_tool(span, asked, result)


def _plain(name: str) -> str:
    return name.removeprefix("running tool: ").removeprefix("execute_tool ")


def _usage(row: dict[str, Any]) -> Usage | None:
    """Langfuse keeps apart what it knows of input and of output; `inputUsage` and `outputUsage` are the sums."""
    details = as_dict(row.get("usageDetails")) or as_dict(row.get("usage"))
    if not details and not row.get("totalUsage"):
        return None
    into = count(row.get("inputUsage")) if row.get("inputUsage") is not None else _sum(details, "input", "prompt_tokens")
    out = count(row.get("outputUsage")) if row.get("outputUsage") is not None else _sum(details, "output", "completion_tokens")
    cached = _sum(details, *(key for key in details if "cache_read" in key or "cached" in key))
    wrote = _sum(details, *(key for key in details if "cache_creation" in key or "cache_write" in key))
    reasoning = _sum(details, *(key for key in details if "reasoning" in key))
    return Usage.whole(into, out, cached=cached, written=wrote, reasoning=reasoning)


def _sum(details: dict[str, Any], *begins: str) -> int | None:
    names: Iterable[str] = [key for key in details if key.startswith(begins)] if begins else []
    counts = [n for key in names if (n := count(details[key])) is not None]
    return sum(counts) if counts else None


langfuse = Importer(
    suffixes=(".json", ".jsonl"),
    sniff=_sniff,
    signs=("trace", "observations", "parentObservationId", "startTime", "traceId"),
    system="langfuse",
    rank=10,
    read_session=_read,
    becomes={
        "GENERATION": ("orchestrator_decision", "message"),
        "TOOL, RETRIEVER, EMBEDDING": ("tool_call", "tool_result"),
        "AGENT": ("spawn", "return"),
        "input of the outermost AGENT": ("human_intervention",),
        "GUARDRAIL": ("safety_event",),
        "score": ("rewards",),
    },
    versions="SDK 3.10; older",
    exact="tokens, costs, scores, nesting",
    lost="prompt versions, parameters, tokens that frameworks omit",
)
