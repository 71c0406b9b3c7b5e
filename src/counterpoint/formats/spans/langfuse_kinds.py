"""What a Langfuse observation is: by its type, and for plain spans by the attributes of the framework that made them.

Always true: what Langfuse calls a generation, agent or tool is one; a plain span is taken for more than a wrapper only where
an attribute states it, or where its output is a tool's message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, compact, count, number, string, text_of
from counterpoint.formats.spans.langgraph import KEPT, mark_tool, result_text
from counterpoint.formats.spans.openinference import is_sdk_trace
from counterpoint.formats.spans.said import opened, said, told
from counterpoint.formats.spans.span import Kind, Span

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


def describe(span: Span, row: dict[str, Any], meta: dict[str, Any]) -> bool:
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
        asked, given = row.get("input"), row.get("output")
        span.input, span.output = told(asked) if asked else "", said(given).text if given else ""
    return kind in _KINDS


def _stated(row: dict[str, Any], attributes: dict[str, Any], scope: str) -> Kind:
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
    asked, given = row.get("input"), row.get("output") or attributes.get("final_result")
    span.input, span.output = told(asked) if asked else "", said(given).text if given else ""
    span.usage = _usage(row)


def _as_model(span: Span, row: dict[str, Any]) -> None:
    answer = said(row.get("output")) if row.get("output") else None
    span.input, span.output = told(row["input"]) if row.get("input") else "", answer.text if answer else ""
    span.model = string(row.get("model")) or string(row.get("providedModelName"))
    span.usage = _usage(row)
    span.cost_usd = number(row.get("totalCost") or row.get("calculatedTotalCost")) or None
    if answer and answer.calls:
        span.extra["tool_calls"] = [call._asdict() for call in answer.calls]


def _as_tool(span: Span, row: dict[str, Any], attributes: dict[str, Any]) -> None:
    named = ("gen_ai.tool.name", "ai.toolCall.name", "tool.name")
    span.tool = next((name for key in named if (name := string(attributes.get(key)))), None) or _plain(span.name)
    span.call = string(attributes.get("gen_ai.tool.call.id")) or string(attributes.get("ai.toolCall.id"))
    asked = row.get("input") or attributes.get("tool_arguments") or attributes.get("tool.parameters")
    given = row.get("output") or attributes.get("tool_response")
    span.input, span.output = compact(asked or ""), result_text(given) if given else ""
    if span.call is None:
        answer = as_dict(opened(given))
        span.call = string(as_dict(answer.get("kwargs", answer)).get("tool_call_id"))
    if span.kind == "tool":
        mark_tool(span, asked, given)


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
    found = [n for key in names if (n := count(details[key])) is not None]
    return sum(found) if found else None
