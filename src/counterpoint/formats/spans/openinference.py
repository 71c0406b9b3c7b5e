"""OpenInference's attributes as spans: agents, model calls, tools, retrievers, guardrails and evaluations.

TRAIL's and Langfuse's spans with such attributes are read by the same functions, and so are those that stand in one file with
spans of the GenAI conventions: `speaks_openinference` tells the two apart, span by span.

Always true: an agent's name or a parent that was not set is taken from a neighbour only where that states it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, number, string, text_of
from counterpoint.formats.spans.genai import usage_of
from counterpoint.formats.spans.phoenix import KIND, STATED
from counterpoint.formats.spans.raw_records import RawSpan
from counterpoint.formats.spans.span import Kind, LastAnswer, Span, ToolUse, last_answer, last_request, opened

_KINDS: dict[str, Kind] = {
    "LLM": "llm",
    "AGENT": "agent",
    "TOOL": "tool",
    "CHAIN": "chain",
    "RETRIEVER": "retriever",
    "RERANKER": "retriever",
    "EMBEDDING": "retriever",
    "GUARDRAIL": "guardrail",
    "EVALUATOR": "evaluator",
    "PROMPT": "chain",
}
# A kind beside nothing but gen_ai attributes is a courtesy to viewers: such spans are OpenTelemetry's.
OWN = ("input.value", "output.value", "llm.", "agent.name")
OWN_COUNTS = (
    "llm.token_count.prompt_details.cache_read", "llm.token_count.prompt_details.cache_write",
    "llm.token_count.completion_details.reasoning",
)  # fmt: skip
# Some tracers set both sets of attributes: what OpenInference's own do not say is taken from the others.
_MODELS = ("llm.model_name", "embedding.model_name", "gen_ai.response.model", "gen_ai.request.model")
_TOOLS = ("tool.name", "tool_call.function.name", "gen_ai.tool.name")
_NO_PARENTS = "parents of spans: they stand under the trace's only agent"
_OPENAI_AGENTS = "openinference.instrumentation.openai_agents"
_HANDOFF = re.compile(r"^handoff to (.+)$", re.I)
_MESSAGE = re.compile(r"^llm\.(input|output)_messages\.(\d+)\.message\.(.+)$")
_PART = re.compile(r"^contents?\.(\d+)(?:\.message_content\.text)?$")
_CALL = re.compile(r"^tool_calls\.(\d+)\.tool_call\.(.+)$")
_SCORE = re.compile(r"^(?:evaluation|annotation)s?\.(.+?)\.(?:result\.)?score$")
_MANAGED = re.compile(r"^smolagents\.managed_agents\.\d+\.name$")
_NAMED = re.compile(r"agent named '([^']+)'")
_KEPT = ("session.id", "user.id", "graph.node.id", "graph.node.parent_id", "llm.finish_reason", "llm.provider", "tag.tags")


class Beside(NamedTuple):
    """What dumps write beside the parts of a span that every tracer has."""

    body: Mapping[str, Any] = {}
    """Messages, where they were kept in an event's body."""
    scores: Mapping[str, float] = {}


def flat(value: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    """Nested attributes with dotted names, as they were set."""
    out: dict[str, Any] = {}
    stack: list[tuple[str, Any]] = [(under, value)]
    while stack:
        name, node = stack.pop()
        if isinstance(node, Mapping) and (node or not name):
            stack.extend((f"{name}.{k}" if name else str(k), v) for k, v in node.items())
        elif isinstance(node, list) and node and all(isinstance(v, Mapping) for v in node):
            stack.extend((f"{name}.{i}", v) for i, v in enumerate(node))
        else:
            out[name] = node
    return out


def speaks_openinference(attributes: Mapping[str, Any]) -> bool:
    """Whether a span with these (flat) attributes states a kind of OpenInference's, and more of it than the kind alone."""
    if string(attributes.get(KIND)) is None:
        return False
    if STATED in attributes and "gen_ai.operation.name" not in attributes:
        return True
    return any(name.startswith(OWN) for name in attributes) or not any(name.startswith("gen_ai.") for name in attributes)


def is_sdk_trace(scope: str, attributes: Mapping[str, Any]) -> bool:
    """Whether an agent span is the OpenAI Agents SDK's whole trace, which its instrumentation calls an agent."""
    return scope.startswith(_OPENAI_AGENTS) and not (attributes.get("agent.name") or attributes.get("graph.node.id"))


def spans_of(raws: list[RawSpan], report: Report, beside: Mapping[str, Beside] | None = None) -> list[Span]:
    """The spans, with what only their neighbours tell: names of sub-agents, lost parents."""
    beside = beside or {}
    spans = [_span(raw, i, beside.get(raw.id, Beside())) for i, raw in enumerate(raws)]
    by_id = {span.id: span for span in spans}
    raw_of = {raw.id: raw for raw in raws}
    nodes: dict[tuple[str, str], list[Span]] = {}
    for span, raw in zip(spans, raws, strict=True):
        if span.kind == "agent" and (node := string(raw.attrs.get("graph.node.id"))):
            nodes.setdefault((span.trace, node), []).append(span)
        _name_by_its_tool(span, by_id, raw_of)
        _name_by_its_manager(span, by_id, raw_of)
    for span, raw in zip(spans, raws, strict=True):
        _follow_graph(span, raw, nodes)
    _adopt(spans, raws, beside, report)
    return spans


def _span(raw: RawSpan, order: int, beside: Beside) -> Span:
    got = raw.attrs
    stated = string(got.get(KIND))
    span = Span(raw.id, raw.trace, raw.parent, raw.name, start=raw.start, end=raw.end, order=order)
    span.links = [other for _, other in raw.links]
    span.ok, span.error = raw.ok, _error(raw)
    span.reward = {**_scores(got), **beside.scores}
    span.extra = {name: got[name] for name in _KEPT if got.get(name) not in (None, "")}
    if stated is None:
        _from_body(span, raw, beside.body)
        return span
    span.kind = _KINDS.get(stated.upper(), "chain")
    span.input, span.output = text_of(opened(got.get("input.value"))), text_of(got.get("output.value"))
    span.model = next((model for name in _MODELS if (model := string(got.get(name)))), None)
    if span.kind == "agent":
        _as_agent(span, raw)
    elif span.kind == "llm":
        _as_model(span, got)
    elif span.kind == "tool":
        _as_tool(span, raw)
    elif span.kind == "guardrail":
        span.verdict = _verdict(span, got)
    if span.kind in ("retriever", "evaluator"):
        span.tool = string(got.get("retriever.name")) or span.name
    return span


def _error(raw: RawSpan) -> str | None:
    for event in raw.events:
        if event.name == "exception" and (what := event.attrs.get("exception.message") or event.attrs.get("exception.type")):
            return text_of(what)
    return raw.error or ("error" if raw.ok is False else None)


def _scores(got: dict[str, Any]) -> dict[str, float]:
    pairs = ((match[1], number(value)) for name, value in got.items() if (match := _SCORE.match(name)))
    return {name: value for name, value in pairs if value is not None}


# -- by kind -------------------------------------------------------------------------------------------------------------


def _as_agent(span: Span, raw: RawSpan) -> None:
    got = raw.attrs
    name = string(got.get("agent.name")) or string(got.get("graph.node.id"))
    if is_sdk_trace(raw.scope, got):
        span.kind = "chain"
        return
    span.agent = name or re.sub(r"\.(run|arun|query|invoke|kickoff)$", "", raw.name)
    span.agent_id = string(got.get("agent.id"))
    span.input, span.output = last_request(got.get("input.value")), span.output or _answer(got).text
    span.usage, span.cost_usd = _usage(got), number(got.get("llm.cost.total"))


def _as_model(span: Span, got: dict[str, Any]) -> None:
    answer = _answer(got)
    span.output = answer.text
    span.input = _prompt(got) or span.input
    span.usage, span.cost_usd = _usage(got), number(got.get("llm.cost.total"))
    if answer.calls:
        span.extra["tool_calls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in answer.calls]


def _as_tool(span: Span, raw: RawSpan) -> None:
    got = raw.attrs
    handed = _HANDOFF.match(raw.name) if raw.scope.startswith(_OPENAI_AGENTS) else None
    if handed:
        # More handoffs asked for at once than the one that is made mark its span as an error, and it is made all the same.
        span.kind, span.agent, span.to = "handoff", string(got.get("input.value")), string(got.get("output.value")) or handed[1]
        span.extra.update({"is_handoff": True, **({"status": "error"} if raw.ok is False else {})})
        span.ok = span.error = None
        span.input = span.output = ""
        return
    span.tool = next((tool for name in _TOOLS if (tool := string(got.get(name)))), raw.name)
    span.call = string(got.get("tool.id")) or string(got.get("tool_call.id"))
    if (kind := string(as_dict(opened(got.get("tool.parameters"))).get("subagent_type"))) is not None:
        span.to = kind
    arguments = got.get("input.value", got.get("tool_call.function.arguments", got.get("tool.parameters")))
    span.input = _arguments(arguments)


def _arguments(value: Any) -> str:
    """A call's arguments; smolagents wraps them with how it calls."""
    inner = as_dict(opened(value))
    if "sanitize_inputs_outputs" in inner:
        args, kwargs = as_list(inner.get("args")), as_dict(inner.get("kwargs"))
        return compact(kwargs if not args else {"args": args, **kwargs})
    return compact(value) if value is not None else ""


def _verdict(span: Span, got: dict[str, Any]) -> str | None:
    inner = as_dict(opened(got.get("output.value")))
    if inner.get("triggered") is True or inner.get("tripwire_triggered") is True:
        return "triggered"
    return string(inner.get("verdict")) or ("error" if span.error else None)


def _usage(got: dict[str, Any]) -> Usage | None:
    """By the conventions the prompt count holds the cache; Anthropic's own instrumentation leaves it out, which shows."""
    prompt, out = count(got.get("llm.token_count.prompt")), got.get("llm.token_count.completion")
    read = count(got.get("llm.token_count.prompt_details.cache_read")) or 0
    wrote = count(got.get("llm.token_count.prompt_details.cache_write")) or 0
    total = read + wrote + (prompt or 0) if read + wrote > (prompt or 0) else prompt
    reasoning = got.get("llm.token_count.completion_details.reasoning")
    return Usage.whole(total, out, cached=read, written=wrote, reasoning=reasoning) or usage_of(got)


# -- messages ------------------------------------------------------------------------------------------------------------


def _messages(got: dict[str, Any], side: str) -> list[dict[str, Any]]:
    """Flattened messages, in order: role, parts of text by place, calls by place."""
    rows: dict[int, dict[str, Any]] = {}
    for name, value in got.items():
        match = _MESSAGE.match(name)
        if not match or match[1] != side:
            continue
        row = rows.setdefault(int(match[2]), {"parts": {}, "calls": {}})
        rest = match[3]
        if rest == "content":
            row["parts"][-1] = text_of(value)
        elif part := _PART.match(rest):
            row["parts"][int(part[1])] = text_of(value)
        elif call := _CALL.match(rest):
            row["calls"].setdefault(int(call[1]), {})[call[2]] = value
        else:
            row[rest] = value
    return [rows[i] for i in sorted(rows)]


def _text(row: dict[str, Any]) -> str:
    return "\n".join(text for _, text in sorted(row["parts"].items()) if text)


def _answer(got: dict[str, Any]) -> LastAnswer:
    """What was said: the last words, and all calls. Without flattened messages, what `output.value` holds."""
    rows = _messages(got, "output")
    if not rows:
        return last_answer(got.get("output.value"))
    calls = [
        ToolUse(string(c.get("id")), str(c.get("function.name") or ""), text_of(c.get("function.arguments")))
        for row in rows
        for _, c in sorted(row["calls"].items())
    ]
    texts = [text for row in rows if (text := _text(row))]
    return LastAnswer(texts[-1] if texts else "", tuple(calls))


def _prompt(got: dict[str, Any]) -> str:
    """What the model was told last."""
    rows = _messages(got, "input")
    return next((text for row in reversed(rows) if (text := _text(row))), "")


def _from_body(span: Span, raw: RawSpan, body: Mapping[str, Any]) -> None:
    """Spans whose kind was lost on the way and whose messages are in an event's body (AWS's collector writes such)."""
    if not body:
        return
    asked, answered = (opened(_content(body.get(side))) for side in ("input", "output"))
    if isinstance(answered, dict) and "generations" in answered:
        answer = last_answer(answered)
        span.kind, span.input, span.output = "llm", text_of(asked), answer.text
        span.extra.update({"tool_calls": [c._asdict() for c in answer.calls]} if answer.calls else {})
    elif isinstance(answered, dict) and answered.get("type") == "tool":
        span.kind, span.tool, span.call = "tool", string(answered.get("name")), string(answered.get("tool_call_id"))
        span.input, span.output = text_of(asked), text_of(answered.get("content"))
        span.ok = answered.get("status") != "error"
    elif isinstance(answered, dict) and "messages" in answered and "remaining_steps" not in as_dict(asked):
        span.kind, span.agent = "agent", raw.scope.rsplit(".", 1)[-1] or raw.name
        span.input, span.output = last_request(asked), last_answer(answered).text


def _content(side: Any) -> Any:
    messages = as_list(as_dict(side).get("messages"))
    return as_dict(messages[-1]).get("content") if messages else None


# -- neighbours ----------------------------------------------------------------------------------------------------------


def _name_by_its_tool(span: Span, by_id: dict[str, Span], raw_of: dict[str, RawSpan]) -> None:
    """A sub-agent that is only named after the tool that made it: the tool's arguments say of which type it is."""
    above = by_id.get(span.parent or "")
    if span.kind != "agent" or above is None or above.kind != "tool":
        return
    asked = as_dict(opened(raw_of[above.id].attrs.get("input.value")))
    if (kind := string(asked.get("subagent_type"))) and (span.agent in (above.tool, None) or not span.agent):
        span.agent = kind
    span.input = span.input or text_of(asked.get("prompt"))
    answer = as_dict(opened(above.output))
    span.output = span.output or last_answer(answer.get("content")).text
    if answer.get("status") == "completed" and span.end is not None and above.end is not None:
        span.end = min(span.end, above.end)  # Claude's instrumentation closes sub-agents only with the whole query


def _name_by_its_manager(span: Span, by_id: dict[str, Span], raw_of: dict[str, RawSpan]) -> None:
    """smolagents names the agents that one manages on the manager, and in the first line of the task that it gives."""
    if span.kind != "agent" or string(raw_of[span.id].attrs.get("agent.name")):
        return
    above, visited = by_id.get(span.parent or ""), {span.id}
    while above is not None and above.kind != "agent" and above.id not in visited:
        visited.add(above.id)
        above = by_id.get(above.parent or "")
    if above is None or above.kind != "agent":
        return
    managed = {text_of(v) for k, v in raw_of[above.id].attrs.items() if _MANAGED.match(k)}
    named = _NAMED.search(span.input[:400])
    if named and named[1] in managed:
        span.agent = named[1]


def _follow_graph(span: Span, raw: RawSpan, nodes: dict[tuple[str, str], list[Span]]) -> None:
    """`graph.node.parent_id` names the node that control came from: the latest span of it that began before."""
    before = string(raw.attrs.get("graph.node.parent_id"))
    if span.kind != "agent" or before is None or span.start is None:
        return
    known = [s for s in nodes.get((span.trace, before), []) if s is not span and s.start is not None and s.start <= span.start]
    if known:
        span.links.append(max(known, key=lambda s: (s.start or 0.0, s.order)).id)


def _adopt(spans: list[Span], raws: list[RawSpan], beside: Mapping[str, Beside], report: Report) -> None:
    """Where bodies were all that is left no span has a parent: a trace's only agent is that of its other spans."""
    traces: dict[str, list[Span]] = {}
    for span, raw in zip(spans, raws, strict=True):
        if KIND not in raw.attrs and raw.id in beside and beside[raw.id].body:
            traces.setdefault(span.trace, []).append(span)
    for spans_here in traces.values():
        agents = [s for s in spans_here if s.kind == "agent"]
        for span in spans_here if len(agents) == 1 else []:
            if span.parent is None and span is not agents[0]:
                span.parent = agents[0].id
                report.lacks[_NO_PARENTS] += 1
